"""One byte sequence for one value: what every hash of the pilot is taken of."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def encoded(value: Any) -> bytes:
    """``value`` as JSON with sorted keys and no spaces, UTF-8.

    Half a surrogate pair (how Python holds a file name that is not UTF-8) is kept, and ``json.loads`` reads it back.
    Raises ValueError on NaN and infinity, TypeError on what JSON has not.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def sha256(value: Any) -> str:
    """SHA-256 of ``encoded(value)``, in hex."""
    return hashlib.sha256(encoded(value)).hexdigest()
