"""JSON as every reader takes it: NaN and infinity, which JSON has not, become text."""

from __future__ import annotations

import json
import math
from typing import Any


def strict(value: Any) -> Any:
    """``value`` with text keys, lists for tuples, and text for numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(item) for item in value]
    return value


def dumps(value: Any, encoding: str = "utf-8") -> str:
    """Indented JSON with a final newline; what ``encoding`` cannot write stands there as JSON escapes."""
    plain = strict(value)
    text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:  # a narrow locale, or half a surrogate pair: the name of a file that is not UTF-8
        text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
    return text
