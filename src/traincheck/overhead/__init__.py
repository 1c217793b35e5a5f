"""The checking-overhead study: what checking costs on real training, and proof that training stays the same.

``program/`` is the training program of every trial and imports nothing of TrainCheck; the rest plans, runs, compares
and sums up, and never runs inside a measured process (``profile/`` alone does, to measure from within).
docs/overhead.md says what a study leaves on disk.
"""
