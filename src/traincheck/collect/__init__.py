"""Collecting: what runs inside the user's training process. It knows no relation, no report and no reader.

``launch`` (the parent) -> ``boot`` + ``activation`` (each child) -> ``session`` -> ``targets`` / ``install`` /
``steps`` / ``observe``
-> ``recorder`` + ``symbols`` -> the compiled core ``_probe`` -> segments on disk.
"""
