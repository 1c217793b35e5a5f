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


def dumps(value: Any) -> str:
    """Indented JSON with a final newline."""
    return json.dumps(strict(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
