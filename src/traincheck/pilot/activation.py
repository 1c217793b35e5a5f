"""How far a trial went in using TrainCheck, from evidence: manual read, prepared, imported, activated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from traincheck.pilot.events import Activation
from traincheck.pilot.guard import Attestation
from traincheck.pilot.ledger import Entry

_MANUAL_COMMAND: Final = re.compile(r"\btraincheck\s+manual\b")
# A command that uses it, or a program that is changed to use it: not the word alone, which a search has too.
_PREPARING: Final = re.compile(
    r"\btraincheck\s+(collect|infer|check|doctor|trace|invariants|mcp)\b|\b(import|from)\s+traincheck\b"
    r"|\bpip3?\s+install\b[^\n;&|]*traincheck|-m\s+traincheck\b"
)
_TRACE_MARKS: Final = ("processes", "compact")


def evidence(
    calls: Sequence[Entry],
    workers: Iterable[Attestation],
    folders: Iterable[tuple[str, Path]],
    *,
    manual: str | None,
    package: bool,
) -> Iterator[Activation]:
    """The evidence of a trial, in the order of the stages.

    ``calls`` are its ``tool_called`` entries, ``folders`` names and places of the folders in which traces may lie,
    ``manual`` the path that its manual has there (None: there is none), ``package`` whether it had the package: what
    has not got it can't prepare it. One piece of evidence for each thing seen.
    """
    for entry in calls:
        for text in _texts(entry.data["arguments"]):
            if (manual is not None and manual in text) or (package and _MANUAL_COMMAND.search(text)):
                yield Activation(stage="manual_read", evidence=f"call {entry.data['call']}: {_short(text)}")
                break
    for entry in calls if package else ():
        for text in _texts(entry.data["arguments"]):
            if _PREPARING.search(text):
                yield Activation(stage="prepared", evidence=f"call {entry.data['call']}: {_short(text)}")
                break
    watched = list(workers)
    for worker in watched:
        if worker.imported_at_exit:
            yield Activation(stage="imported", evidence=f"worker {worker.worker}: {_short(' '.join(worker.command))}")
    for worker in watched:
        if worker.run is not None:
            yield Activation(stage="activated", evidence=f"worker {worker.worker} was watched into {worker.run}")
    for name, top in folders:
        for path in sorted(top.rglob("manifest.json")):
            if any((path.parent / mark).is_dir() for mark in _TRACE_MARKS):
                where = path.parent.relative_to(top).as_posix()
                yield Activation(stage="activated", evidence=f"trace in {name}/{where}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else line[:159] + "…"
