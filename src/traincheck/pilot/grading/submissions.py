"""What trials of a case submitted, read from their ledgers: only when all of them are closed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from traincheck.errors import TraincheckError
from traincheck.pilot import events
from traincheck.pilot.heads import recorded
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import ORIGIN, LedgerError, read
from traincheck.pilot.plan import Plan
from traincheck.pilot.planning import deviations
from traincheck.pilot.sources import Objects, SourceError, SourceMap
from traincheck.pilot.submissions import Submissions, recheck, submissions


def of_case(layout: Layout, plan: Plan, case: str) -> dict[str, Submissions]:
    """Trials of a case in the plan's order, and what each submitted.

    Raises TraincheckError when one has not been run or is still open (a trial that never will be is recorded as a
    deviation, and left out), LedgerError when a ledger is broken or was cut off.
    """
    skipped = {one.trial for one in deviations.load(layout.deviations)}
    heads = recorded(layout.heads)
    found: dict[str, Submissions] = {}
    waiting = []
    for trial in plan.order:
        if trial.case != case:
            continue
        path = layout.ledger(trial.id)
        if not path.exists():
            if trial.id not in skipped:
                waiting.append(f"{trial.id} has not been run")
            continue
        submitted = _read(trial.id, path, plan, heads.get(path.relative_to(layout.root).as_posix()))
        if submitted is not None:
            found[trial.id] = submitted
        elif trial.id not in skipped:
            waiting.append(f"{trial.id} is still open")
    if waiting:
        raise TraincheckError(
            f"case {case} can't be graded before all its trials are closed: {', '.join(waiting[:5])}",
            "traincheck pilot run goes on with them; one that never will be is recorded with "
            "`traincheck pilot deviation DIR --what NAME --why TEXT --trial TRIAL`",
        )
    if not found:
        raise TraincheckError(f"there is no trial of case {case}", f"the plan has {', '.join(plan.cases)}")
    return found


def rehashed(objects: Objects, sources: Iterable[str]) -> dict[str, SourceMap]:
    """Maps of distinct sources, with every object read and hashed again. Raises SourceError."""
    distinct = tuple(dict.fromkeys(sources))
    problems = recheck(distinct, objects)
    if problems:
        raise SourceError("; ".join(problems[:5]))
    return {name: objects.get_map(name) for name in distinct}


def _read(trial: str, path: Path, plan: Plan, head: str | None) -> Submissions | None:
    """What a closed trial submitted; None while it is open."""
    entries = list(read(path))
    for entry in entries:
        event = events.parsed(entry)
        if isinstance(event, events.Opened) and (event.plan, event.trial) != (plan.hash, trial):
            raise LedgerError(f"{path} is of trial {event.trial} of plan {event.plan[:12]}, not {plan.hash[:12]}")
    if head is not None and head != (entries[-1].hash if entries else ORIGIN):
        raise LedgerError(f"{path} does not end with the recorded entry: it was cut off or went on")
    if not entries or entries[-1].kind != "closed":
        return None
    found = submissions(entries)
    planned = plan.cases[plan.trial(trial).case]["workspace"]
    if found.initial.source != planned:
        raise LedgerError(f"{path}: the trial did not begin with the planned workspace, {planned[:12]}")
    return found
