"""Whether an agent knew the public issue that a case was made from: it names it, in what it said or did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from traincheck.pilot.ledger import Entry
from traincheck.pilot.sources import Objects

_AROUND: Final = 80
_SPOKEN: Final = ("model_answered", "tool_called", "submitted", "turn_ended")
"""Entries that hold an agent's own words; what tools answered and operators said is not its own."""


@dataclass(frozen=True)
class Naming:
    """One place in which an agent named the public issue."""

    number: int
    """Of the entry."""
    word: str
    quote: str


def namings(entries: Iterable[Entry], objects: Objects, words: Sequence[str], given: str = "") -> Iterator[Naming]:
    """Places in a trial's ledger in which ``words`` (a case's ``public_names``) are named; case does not matter.

    Words that the agent was ``given`` in its task show nothing and are left out.
    """
    telling = [word for word in words if word.lower() not in given.lower()]
    for entry in entries:
        if entry.kind not in _SPOKEN:
            continue
        text = "\n".join(_own_words(entry, objects))
        for word in telling:
            at = text.lower().find(word.lower())
            if at >= 0:
                quote = text[max(0, at - _AROUND) : at + len(word) + _AROUND]
                yield Naming(number=entry.number, word=word, quote=" ".join(quote.split()))


def _own_words(entry: Entry, objects: Objects) -> Iterator[str]:
    name = entry.data.get("text")
    if isinstance(name, str):
        yield objects.get(name).decode(errors="replace")
    if entry.kind == "submitted":
        yield str(entry.data.get("note", ""))
    if entry.kind == "tool_called":
        yield repr(entry.data["arguments"])
