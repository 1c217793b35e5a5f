"""Kinds of regularity: one file per relation, one interface (``base``). The list of them is in ``registry``."""
