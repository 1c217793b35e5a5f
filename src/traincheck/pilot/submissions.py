"""What was submitted in a trial: ordered occurrences, kept apart from the distinct sources they are of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from traincheck.pilot import events
from traincheck.pilot.ledger import Entry, LedgerError
from traincheck.pilot.sources import Objects, SourceError


@dataclass(frozen=True)
class Occurrence:
    """One submission; number 0 is the initial snapshot."""

    number: int
    source: str
    at_ns: int
    entry: int
    """Number of the ledger's entry."""


@dataclass(frozen=True)
class Submissions:
    """All occurrences of one trial, in order."""

    occurrences: tuple[Occurrence, ...]

    @property
    def distinct(self) -> tuple[str, ...]:
        """Distinct sources, in the order in which they first occur; the initial one is among them."""
        return tuple(dict.fromkeys(one.source for one in self.occurrences))

    @property
    def initial(self) -> Occurrence:
        """The source the trial started from."""
        return self.occurrences[0]

    @property
    def final(self) -> Occurrence:
        """The last submission; the initial snapshot when nothing was submitted."""
        return self.occurrences[-1]

    def of(self, number: int) -> Occurrence:
        """The occurrence of that number. Raises LedgerError when there is none."""
        for one in self.occurrences:
            if one.number == number:
                return one
        raise LedgerError(f"there is no submission {number}, the last one is {self.final.number}")


def submissions(entries: Iterable[Entry]) -> Submissions:
    """From a trial's ledger. Raises LedgerError when they are not numbered 0, 1, 2, … in their order."""
    found: list[Occurrence] = []
    for entry in entries:
        if entry.kind != "submitted":
            continue
        event = events.parsed(entry)
        assert isinstance(event, events.Submitted)
        if event.number != len(found):
            raise LedgerError(f"entry {entry.number}: submission {event.number} where {len(found)} was expected")
        found.append(Occurrence(event.number, event.source, entry.at_ns, entry.number))
    if not found:
        raise LedgerError("the ledger has no initial snapshot (submission 0)")
    return Submissions(tuple(found))


def recheck(sources: Iterable[str], store: Objects) -> list[str]:
    """Read every source again, whole: one sentence on each map or object that is missing or was changed.

    Grading starts only when there is none.
    """
    problems: list[str] = []
    contents: dict[str, str | None] = {}
    for source in dict.fromkeys(sources):
        try:
            entries = store.get_map(source).entries
        except SourceError as error:
            problems.append(error.message)
            continue
        for path, entry in entries.items():
            if entry.kind != "file":
                continue
            name = entry.sha256 or ""
            if name not in contents:
                contents[name] = _fault(name, store)
            fault = contents[name]
            if fault is not None:
                problems.append(f"source {source[:12]}, {path}: {fault}")
    return problems


def _fault(name: str, store: Objects) -> str | None:
    try:
        store.get(name)
    except SourceError as error:
        return error.message
    return None
