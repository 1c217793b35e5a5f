"""Redaction: an annotator must not see which arm a trial is of.

What shows the arm is found by comparison: files and operator's lines that the packets of one case do not all have.
The tool's name is taken out wherever it stands. What is taken out is counted, and the counts stay with the operator:
a packet that told them would tell the arm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from traincheck.pilot.sources import Objects, SourceMap

MARK: Final = "▇▇▇"
_WORD: Final = re.compile(r"[\w./@-]*traincheck[\w./@-]*", re.IGNORECASE)
_ABSENCE: Final = re.compile(r"no module named|not found|no such file|cannot import", re.IGNORECASE)
"""Said of the tool, it shows an arm without it."""
_SHORTEST: Final = 16
"""Characters of a line that is revealing wherever it stands; shorter ones (``import torch``) stand everywhere, and are
taken out only in a text that has longer ones."""


@dataclass(frozen=True)
class Start:
    """What a trial began with."""

    case: str
    packet: SourceMap
    messages: tuple[str, ...]
    """The operator's."""


@dataclass
class Redactor:
    """Takes out what shows an arm, and counts it by kind: ``line``, ``name``, ``file``."""

    lines: Sequence[str] = ()
    files: Sequence[str] = ()
    """Names of files that not all arms have."""
    short: frozenset[str] = frozenset()
    """Whole lines, without the spaces around them, that are taken out beside revealing ones."""
    counts: dict[str, int] = field(default_factory=lambda: {"line": 0, "name": 0, "file": 0})

    def __call__(self, text: str) -> str:
        """``text`` without it."""
        lines = text.split("\n")
        whole = [any(held in line for held in self.lines) for line in lines]
        if any(whole):
            whole = [one or line.strip() in self.short for one, line in zip(whole, lines, strict=True)]
        return "\n".join(self._line(line, one) for line, one in zip(lines, whole, strict=True))

    def _line(self, line: str, whole: bool) -> str:
        if whole or (_WORD.search(line) and _ABSENCE.search(line)):
            self.counts["line"] += 1
            return MARK
        line, found = _WORD.subn(MARK, line)
        self.counts["name"] += found
        for name in self.files:
            line, found = re.subn(rf"(?<![\w.-])(?:[\w./-]*/)?{re.escape(name)}(?![\w-])", MARK, line)
            self.counts["file"] += found
        return line


@dataclass(frozen=True)
class Revealing:
    """By what an arm is known, sorted."""

    lines: tuple[str, ...]
    files: tuple[str, ...]
    short: frozenset[str]

    def redactor(self, *files: str) -> Redactor:
        """A redactor that has counted nothing yet; ``files`` are more names."""
        return Redactor(self.lines, (*self.files, *files), self.short)


def revealing(starts: Iterable[Start], objects: Objects, texts: Sequence[str] = ()) -> Revealing:
    """By what the arms of these trials are known; ``texts`` (manuals) are revealing as a whole.

    Raises SourceError when an object is missing.
    """
    by_case: dict[str, list[Start]] = {}
    for start in starts:
        by_case.setdefault(start.case, []).append(start)
    lines: set[str] = {line for text in texts for line in _lines(text)}
    names: set[str] = set()
    for group in by_case.values():
        packets = [_files(start.packet) for start in group]
        shared = set.intersection(*(set(packet.items()) for packet in packets))
        common = {line for _, sha in shared for line in _lines(_content(objects, sha))}
        for packet in packets:
            for path, sha in packet.items():
                if (path, sha) not in shared:
                    lines.update(line for line in _lines(_content(objects, sha)) if line not in common)
                    if not all(path in other for other in packets):
                        names.add(PurePosixPath(path).name)
        said: list[set[str]] = [{line for message in start.messages for line in _lines(message)} for start in group]
        lines.update(line for one in said for line in one if not all(line in other for other in said))
    short = {line.strip() for text in texts for line in text.splitlines() if 0 < len(line.strip()) < _SHORTEST}
    return Revealing(tuple(sorted(lines)), tuple(sorted(names)), frozenset(short))


def _files(packet: SourceMap) -> Mapping[str, str]:
    return {path: entry.sha256 for path, entry in packet.entries.items() if entry.sha256 is not None}


def _content(objects: Objects, sha: str) -> str:
    return objects.get(sha).decode("utf-8", "replace")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if len(line.strip()) >= _SHORTEST]
