"""Answers of a bounded size: a reader's context is precious, and more can always be asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traincheck.strictjson import strict

MOST: Final = 12_000
"""Characters of an answer."""

LONGEST: Final = 600
"""Characters of one text in it."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SHORTER: Final = (200, 80, 30)
_FEWER: Final = (40, 10, 3)


@dataclass(frozen=True)
class Page:
    """A part of a list, and where the next part begins."""

    items: list[Any]
    total: int
    offset: int

    @property
    def next_offset(self) -> int | None:
        """None: this was the last part."""
        end = self.offset + len(self.items)
        return end if end < self.total else None

    def to_json(self, name: str) -> dict[str, Any]:
        """``{name: items, "total": …}`` and, when there is more, ``next_offset``."""
        told: dict[str, Any] = {name: self.items, "total": self.total}
        if self.next_offset is not None:
            told["next_offset"] = self.next_offset
        return told


def page(items: Sequence[Any], offset: int, limit: int) -> Page:
    """``limit`` of ``items`` from ``offset`` (from 0)."""
    return Page(list(items[offset : offset + limit]), len(items), offset)


def clip(text: str, most: int = LONGEST) -> str:
    """``text``, its middle left out when it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    kept = most // 2
    return f"{text[:kept]} …[{len(text) - 2 * kept} characters left out]… {text[-kept:]}"


def clipped(value: Any, most: int = LONGEST) -> Any:
    """``value`` with every text in it clipped."""
    if isinstance(value, str):
        return clip(value, most)
    if isinstance(value, dict):
        return {key: clipped(item, most) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clipped(item, most) for item in value]
    return value


def some(items: Sequence[Any], most: int) -> list[Any]:
    """The first ``most`` of ``items``, and how many more there are."""
    rest = len(items) - most
    return [*items[:most], f"… and {rest} more"] if rest > 0 else list(items)


def answer(value: dict[str, Any]) -> str:
    """``value`` as compact JSON of at most ``MOST`` characters.

    What is too long is shortened in steps, texts and lists alike, and says so itself.
    """
    whole = strict(value)
    text = _text(clipped(whole))
    for longest, most in zip(_SHORTER, _FEWER, strict=True):
        if len(text) <= MOST:
            return text
        text = _text(_cut(clipped(whole, longest), most) | {"shortened": "ask for less, or for a part: limit, offset"})
    return text if len(text) <= MOST else _text({"shortened": "too much for one answer", "fields": list(whole)[:50]})


def plain(text: str) -> str:
    """``text`` without the escape sequences of terminals."""
    return _COLOURS.sub("", text)


def tail(path: Path, lines: int, most: int = 4000) -> str:
    """The last ``lines`` lines of a text file, at most ``most`` characters, carriage returns read as line ends."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            start = max(0, file.tell() - 64 * 1024)
            file.seek(start)
            found = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    last = [line for line in plain(found).replace("\r", "\n").splitlines() if line.strip()]
    return "\n".join(last[-lines:] if lines else [])[-most:]


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Half a surrogate pair, from the name of a file that is not UTF-8, becomes its JSON escape.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _cut(value: Any, most: int) -> Any:
    if isinstance(value, list):
        return some([_cut(item, most) for item in value], most)
    if isinstance(value, dict):
        return {key: _cut(item, most) for key, item in value.items()}
    return value
