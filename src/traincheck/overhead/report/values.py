"""Values of a study as JSON that every reader takes, and as text of a table cell."""

from __future__ import annotations

import json
import math
from typing import Any, Final

_INT64: Final = range(-(1 << 63), 1 << 64)
"""Integers that readers in other languages hold; larger ones become text."""


def readable(value: Any) -> Any:
    """``value`` as strict JSON: text keys, no NaN or infinity, no integer beyond 64 bits, nothing of a foreign type.

    What JSON has not becomes text (``"nan"``, ``"inf"``, ``"18446744073709551616"``). Keys that become the same text
    are kept apart by their type: no entry is lost.
    """
    if value is None or isinstance(value, (bool, str)):
        return _text(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value) if value in _INT64 else _digits(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = key if isinstance(key, str) else str(readable(key))
            if name in found:
                name = f"{name} ({type(key).__name__})"
            found[name] = readable(item)
        return found
    if isinstance(value, (list, tuple)):
        return [readable(item) for item in value]
    if callable(getattr(value, "item", None)):  # a scalar of numpy or torch
        return readable(value.item())
    return _text(str(value))


def dumps(value: Any) -> str:
    """Indented JSON with a final newline; the same bytes for the same value."""
    return json.dumps(readable(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _digits(value: int) -> str:
    # Python refuses to write very long integers in decimal.
    return str(value) if value.bit_length() < 4096 else hex(value)


def _text(value: str) -> str:
    """Without lone surrogates, which UTF-8 has not."""
    return value.encode("utf-8", "backslashreplace").decode()


def ratio(value: Any) -> str:
    """``1.043x``; ``-`` for what is no number."""
    return f"{value:.3f}x" if _is_number(value) else "-"


def amount(value: Any, unit: str = "", digits: int = 2) -> str:
    """``12.30 ms``; large counts with thousands commas; ``-`` for what is no number."""
    if not _is_number(value):
        return "-"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"
    return f"{text} {unit}".rstrip()


def spread(paired: Any) -> str:
    """``1.043x (1.031–1.062)`` of what ``statistics.paired`` gives."""
    if not paired:
        return "-"
    if paired["pairs"] == 1:
        return ratio(paired["median"])
    return f"{ratio(paired['median'])} ({paired['min']:.3f}–{paired['max']:.3f})"


def between(paired: Any) -> str:
    """The interval as text, or what there is instead of one."""
    if not paired or not paired["interval"]:
        return "none" if paired else "-"
    return f"{paired['interval']['low']:.3f}–{paired['interval']['high']:.3f}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
