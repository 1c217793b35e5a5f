"""A trial's ledger as accounting reads it: its clock's zero, its end, waits, suspensions, tokens, turns, failures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from traincheck.pilot import events
from traincheck.pilot.accounting.intervals import Interval, clipped, length, union
from traincheck.pilot.figures import Clocks, TokenSums
from traincheck.pilot.ledger import Entry

SECOND = 1_000_000_000

NOT_OF_THE_AGENT = (events.Opened, events.Audited, events.Attested, events.Activation, events.Closed)
"""Entries that the harness writes for itself: the trial's time ends with the last entry that is none of these."""


@dataclass(frozen=True)
class Step:
    """One entry, parsed."""

    number: int
    at_ns: int
    event: events.Event


@dataclass(frozen=True)
class Suspension:
    """An interval in which the trial stood still; ``end_ns`` None: nobody wrote that it went on."""

    interval: int
    reason: str
    begin_ns: int
    end_ns: int | None


class Timeline:
    """All entries of one trial, in order."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        """Raises LedgerError for entries that are no events of a trial."""
        self.steps = [Step(entry.number, entry.at_ns, events.parsed(entry)) for entry in entries]

    # -- zero and end --------------------------------------------------------------------------------------------------

    @property
    def zero_ns(self) -> int | None:
        """When the first model request that carries the task was sent; None: none was."""
        for step in self.steps:
            if isinstance(step.event, events.ModelRequested) and step.event.carries_task:
                return step.at_ns
        return None

    @property
    def end_ns(self) -> int | None:
        """When the last thing of the agent's work happened; None: nothing did."""
        work = (step.at_ns for step in self.steps if not isinstance(step.event, NOT_OF_THE_AGENT))
        return max(work, default=None)

    @property
    def closed(self) -> events.Closed | None:
        """How the trial ended."""
        return next((step.event for step in self.steps if isinstance(step.event, events.Closed)), None)

    @property
    def opened(self) -> events.Opened | None:
        """How the trial began."""
        return next((step.event for step in self.steps if isinstance(step.event, events.Opened)), None)

    # -- time ----------------------------------------------------------------------------------------------------------

    def suspensions(self) -> list[Suspension]:
        """All intervals, in the order in which they began."""
        ends = {step.event.interval: step.at_ns for step in self.steps if isinstance(step.event, events.Resumed)}
        return [
            Suspension(step.event.interval, step.event.reason, step.at_ns, ends.get(step.event.interval))
            for step in self.steps
            if isinstance(step.event, events.Suspended)
        ]

    def suspended(self, until_ns: int, reason: str | None = None) -> list[Interval]:
        """Intervals of suspensions (of one reason), open ones up to ``until_ns``."""
        return [
            (one.begin_ns, until_ns if one.end_ns is None else one.end_ns)
            for one in self.suspensions()
            if reason is None or one.reason == reason
        ]

    def clocks(self, moment_ns: int, waits: Sequence[Interval]) -> Clocks:
        """The three clocks at a moment; all zero before the task was sent."""
        zero = self.zero_ns
        if zero is None or moment_ns <= zero:
            return Clocks(raw_s=0.0, queue_adjusted_s=0.0, adjusted_s=0.0)
        raw = moment_ns - zero
        waited = union(clipped(waits, zero, moment_ns))
        still = clipped(self.suspended(moment_ns), zero, moment_ns)
        return Clocks(
            raw_s=raw / SECOND,
            queue_adjusted_s=(raw - length(waited)) / SECOND,
            adjusted_s=(raw - length([*waited, *still])) / SECOND,
        )

    # -- tokens, turns -------------------------------------------------------------------------------------------------

    def tokens(self, before: int | None = None) -> TokenSums:
        """Of answers that had arrived before the entry of that number; None: of all."""
        answers = [
            step.event.tokens
            for step in self.steps
            if isinstance(step.event, events.ModelAnswered) and (before is None or step.number < before)
        ]
        return TokenSums(
            input=sum(one.input for one in answers),
            cached_input=sum(one.cached_input for one in answers),
            output=sum(one.output for one in answers),
            reasoning=sum(one.reasoning for one in answers),
            total=sum(one.total for one in answers),
        )

    def tokens_next(self, before: int) -> int:
        """Total once the first answer after that entry has arrived; without one, the total at the entry."""
        for step in self.steps:
            if step.number > before and isinstance(step.event, events.ModelAnswered):
                return self.tokens(step.number + 1).total
        return self.tokens(before).total

    def turn(self, before: int | None = None) -> int:
        """The turn in which the entry of that number lies; 0: before the first. None: the last one."""
        turns = [
            step.event.turn
            for step in self.steps
            if isinstance(step.event, events.TurnStarted) and (before is None or step.number < before)
        ]
        return turns[-1] if turns else 0

    # -- failures ------------------------------------------------------------------------------------------------------

    def transport_failures(self) -> int:
        """Requests (retries too) that failed for the connection's or the provider's sake."""
        return sum(isinstance(step.event, events.ModelFailed) and step.event.transport for step in self.steps)

    def solver_failures(self) -> int:
        """Times the agent's own program ended with an error."""
        return sum(isinstance(step.event, events.SolverFailed) for step in self.steps)

    def retries(self) -> int:
        """Requests that were sent again."""
        return sum(isinstance(step.event, events.ModelRequested) and step.event.attempt > 1 for step in self.steps)

    def recoveries(self) -> int:
        """Times that a good model answer came after one or more failures of transport or of the agent's program."""
        count, failing = 0, False
        for step in self.steps:
            event = step.event
            if isinstance(event, events.ModelAnswered):
                count += failing
                failing = False
            elif isinstance(event, events.SolverFailed) or (isinstance(event, events.ModelFailed) and event.transport):
                failing = True
        return count

    def model_requests(self) -> int:
        """Requests; retries are not counted again."""
        return len({step.event.request for step in self.steps if isinstance(step.event, events.ModelRequested)})
