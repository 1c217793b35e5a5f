"""Deviations: what was done otherwise than planned, and why. A ledger: nothing is taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from traincheck.pilot import heads
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Ledger, LedgerError, read
from traincheck.studykit.strict import Strict

KIND: Final = "deviation"


class Deviation(Strict):
    """One deviation."""

    what: str = Field(min_length=1)
    """What is otherwise; of a changed hash, the name that ``verify`` gives it, e.g. ``package``."""
    why: str = Field(min_length=1)
    found: str | None = None
    """Of a changed hash or version: what it is now. A later change is another deviation."""
    trial: str | None = None
    """The trial it concerns; None: all of them."""
    plan: str | None = None
    """Hash of the plan that was deviated from."""


def record(path: Path, deviation: Deviation) -> None:
    """Append to a pilot's ledger at ``path``; its new end is kept in ``heads.json`` beside it.

    Raises LedgerError when it is broken, OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with Ledger(path) as ledger:
        head = ledger.add(KIND, deviation.model_dump(mode="json")).hash
    heads.record(Layout(path.parent).heads, path, head)


def load(path: Path) -> tuple[Deviation, ...]:
    """All deviations in their order; none where there is no file. Raises LedgerError, OSError."""
    if not path.exists():
        return ()
    found = []
    for entry in read(path):
        if entry.kind != KIND:
            raise LedgerError(f"{path}: entry {entry.number} is no deviation: {entry.kind!r}")
        try:
            found.append(Deviation.model_validate(entry.data))
        except ValidationError as error:
            raise LedgerError(f"{path}: entry {entry.number} has wrong fields: {error}") from error
    return tuple(found)
