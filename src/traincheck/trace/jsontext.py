"""JSON from anywhere: what Python's reader lets through and columns cannot hold is made harmless."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_SURROGATE: Final = re.compile(rb"\\ud[89a-f]|\xed[\xa0-\xbf]", re.IGNORECASE)


def loads(data: bytes) -> Any:
    """The JSON value in ``data``; halves of surrogate pairs read as ``?``. Raises ValueError or RecursionError."""
    value = json.loads(data)
    return _whole(value) if _SURROGATE.search(data) else value


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value
