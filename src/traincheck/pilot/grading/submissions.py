"""What trials of a case submitted, read from their ledgers: only when all of them are closed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from traincheck.errors import TraincheckError
from traincheck.pilot import events
from traincheck.pilot.heads import recorded
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import ORIGIN, LedgerError, read
from traincheck.pilot.plan import Plan
from traincheck.pilot.planning import deviations
from traincheck.pilot.sources import Objects, SourceMap


@dataclass(frozen=True)
class Submissions:
    """One trial: sources in the order in which they were submitted; number 0 is the initial snapshot."""

    trial: str
    sources: tuple[str, ...]


def of_case(layout: Layout, plan: Plan, case: str) -> tuple[Submissions, ...]:
    """All trials of a case in the plan's order.

    Raises TraincheckError when one has not been run or is still open (a trial that never will be is recorded as a
    deviation, and left out), LedgerError when a ledger is broken or was cut off.
    """
    skipped = {one.trial for one in deviations.load(layout.deviations)}
    heads = recorded(layout.heads)
    found, waiting = [], []
    for trial in plan.order:
        if trial.case != case:
            continue
        path = layout.ledger(trial.id)
        if not path.exists():
            if trial.id not in skipped:
                waiting.append(f"{trial.id} has not been run")
            continue
        submissions, closed = _read(trial.id, path, plan, heads.get(path.relative_to(layout.root).as_posix()))
        if not closed:
            if trial.id not in skipped:
                waiting.append(f"{trial.id} is still open")
            continue
        found.append(submissions)
    if waiting:
        raise TraincheckError(
            f"case {case} can't be graded before all its trials are closed: {', '.join(waiting[:5])}",
            "traincheck pilot run goes on with them; one that never will be is recorded with "
            "`traincheck pilot deviation DIR --what NAME --why TEXT --trial TRIAL`",
        )
    if not found:
        raise TraincheckError(f"there is no trial of case {case}", f"the plan has {', '.join(plan.cases)}")
    return tuple(found)


def rehashed(objects: Objects, sources: tuple[str, ...]) -> dict[str, SourceMap]:
    """Maps of sources, with every object read and hashed again. Raises SourceError."""
    found = {}
    for name in dict.fromkeys(sources):
        source = objects.get_map(name)
        for entry in source.entries.values():
            if entry.sha256 is not None:
                objects.get(entry.sha256)
        found[name] = source
    return found


def _read(trial: str, path: Path, plan: Plan, head: str | None) -> tuple[Submissions, bool]:
    sources: dict[int, str] = {}
    last, closed = ORIGIN, False
    for entry in read(path):
        event = events.parsed(entry)
        if isinstance(event, events.Opened) and (event.plan, event.trial) != (plan.hash, trial):
            raise LedgerError(f"{path} is of trial {event.trial} of plan {event.plan[:12]}, not {plan.hash[:12]}")
        if isinstance(event, events.Submitted):
            if event.number != len(sources):
                raise LedgerError(f"{path}: submission {event.number} comes where {len(sources)} was to come")
            sources[event.number] = event.source
        closed = isinstance(event, events.Closed)
        last = entry.hash
    if head is not None and head != last:
        raise LedgerError(f"{path} does not end with the recorded entry: it was cut off or went on")
    planned = plan.cases[plan.trial(trial).case]["workspace"]
    if closed and sources.get(0) != planned:
        raise LedgerError(f"{path}: the trial did not begin with the planned workspace, {planned[:12]}")
    return Submissions(trial, tuple(sources.values())), closed
