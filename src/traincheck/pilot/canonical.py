"""One byte sequence for one value: what every hash of the pilot is taken of."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def encoded(value: Any) -> bytes:
    """``value`` as JSON with sorted keys and no spaces, UTF-8.

    Raises ValueError on NaN and infinity, TypeError on what JSON has not.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(value: Any) -> str:
    """SHA-256 of ``encoded(value)``, in hex."""
    return hashlib.sha256(encoded(value)).hexdigest()
