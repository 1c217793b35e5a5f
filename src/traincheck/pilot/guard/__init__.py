"""What is in every Python worker of a trial: it says whether TrainCheck was within reach, and keeps it out of controls.

The package is absent from a control's file system; the import hook is a second lock, and what workers attest shows
that both held. A worker that starts Python without its site (``-S``, ``-I``) has no hook and attests nothing: there the
absence alone holds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BOOT: Final = Path(__file__).parent / "boot" / "worker.py"
_REFUSE: Final = "refuse"


def content() -> str:
    """The program that runs at the start of every worker."""
    return _BOOT.read_text(encoding="utf-8")


def write(folder: Path, *, refuse: bool) -> None:
    """Put the guard into ``folder``, which goes on PYTHONPATH. ``refuse``: imports of TrainCheck fail."""
    shutil.copyfile(_BOOT, folder / "sitecustomize.py")
    if refuse:
        (folder / _REFUSE).touch()


@dataclass(frozen=True)
class Attestation:
    """What one worker said. ``imported_at_exit`` is None when it was killed, or left without Python's exit."""

    worker: str
    importable_at_start: bool
    imported_at_exit: bool | None
    guard: bool
    run: str | None
    """Folder of the TrainCheck run that it was started under."""
    command: tuple[str, ...]


def attestations(folder: Path) -> Iterator[Attestation]:
    """Everything in the ``workers`` folder, by name. Files that a worker (or a solver) spoiled are told as unknown."""
    for path in sorted(folder.glob("*.jsonl")):
        lines = path.read_text(errors="replace").splitlines()
        try:
            start = json.loads(lines[0])
            end = json.loads(lines[1]) if len(lines) > 1 else {}
            yield Attestation(
                worker=path.stem,
                importable_at_start=bool(start["importable"]),
                imported_at_exit=bool(end["imported"]) if "imported" in end else None,
                guard=bool(start["guard"]),
                run=start["run"],
                command=tuple(map(str, start["command"])),
            )
        except (ValueError, KeyError, IndexError, TypeError):
            # Not a word to be trusted: counted as one that might have had it.
            yield Attestation(path.stem, True, None, False, None, ())
