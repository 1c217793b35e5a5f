"""What had been used up at an entry of a trial's ledger."""

from __future__ import annotations

from collections.abc import Sequence

from traincheck.pilot.accounting import devices
from traincheck.pilot.accounting.timeline import SECOND, Timeline
from traincheck.pilot.figures import Point
from traincheck.pilot.ledger import Entry


class Points:
    """Points of one trial."""

    def __init__(self, entries: Sequence[Entry], device: Sequence[Entry], trial: str) -> None:
        """``device`` are the entries of the solvers' device ledger. Raises LedgerError."""
        self._timeline = Timeline(entries)
        self._times = {step.number: step.at_ns for step in self._timeline.steps}
        self._requests = devices.of_owner(devices.rows(device), trial)

    def at(self, number: int) -> Point:
        """At the entry of that number: tokens of answers before it. Raises KeyError when there is none."""
        at_ns = self._times[number]
        return Point(
            clocks=self._timeline.clocks(at_ns, [row.wait() for row in self._requests]),
            tokens=self._timeline.tokens(number),
            tokens_next=self._timeline.tokens_next(number),
            device_seconds=sum(row.device_ns(at_ns) for row in self._requests) / SECOND,
            turn=self._timeline.turn(number),
        )

    def bounds(self, number: int, *, answer: bool) -> tuple[int, int]:
        """Total tokens at the model answers on either side of an entry.

        ``answer``: the entry is itself one, and what is meant lies somewhere in it.
        """
        low = self._timeline.tokens(number).total
        return low, self._timeline.tokens(number + 1).total if answer else self._timeline.tokens_next(number)
