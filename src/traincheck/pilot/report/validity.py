"""Which trials count. One that ran into a limit or failed counts, as censored; one that the study spoiled does not."""

from __future__ import annotations

from traincheck.pilot import events
from traincheck.pilot.plan import WITH_PACKAGE
from traincheck.pilot.report.reading import Read, TrialRead

DECLARED = "invalid"
"""What a deviation is about by which an operator says that a trial does not count."""


def reasons(pilot: Read, trial: TrialRead) -> list[str]:
    """Why a trial does not count, one sentence each; empty: it counts."""
    planned = trial.planned
    found = [
        f"declared invalid: {one.why}"
        for one in pilot.deviations
        if one.what == DECLARED and one.trial in (None, planned.id)
    ]
    if not trial.entries:
        why = [one.why for one in pilot.deviations if one.trial == planned.id and one.what != DECLARED]
        return [*found, trial.broken or ": ".join(["it was not run", *why])]
    if trial.broken is not None:
        found.append(trial.broken)
    found += [text for text in pilot.problems if text.startswith(f"trials/{planned.id}/")]  # of its ledger's end
    if trial.figures is None:
        found.append("it can't be accounted for")
    opened = trial.of(events.Opened)
    if not opened:
        found.append("its ledger does not say what it began with")
    elif opened[0].plan != pilot.plan.hash:
        found.append(f"it was run under plan {opened[0].plan[:12]}")
    elif (opened[0].case, opened[0].arm) != (planned.case, planned.arm):
        found.append(f"it was run as {opened[0].case}, {opened[0].arm}")
    found += _leaks(trial)
    if planned.arm not in WITH_PACKAGE:
        found += _attested(trial)
    closed = trial.of(events.Closed)
    if not closed:
        found.append("its ledger has no end")
    elif closed[0].devices_held:
        found.append(f"it ended with {closed[0].devices_held} devices not given back")
    if trial.figures is not None and trial.figures.cost_gaps:
        found.append(f"{trial.figures.cost_gaps} leases have no end: its cost is not known")
    if trial.grade is None:
        found.append("grading does not know it")
    grade = pilot.grades.get(planned.case)
    if grade is not None and not grade.valid:
        found.append(f"case {planned.case} is invalid: {'; '.join(grade.problems) or 'see its grading'}")
    return list(dict.fromkeys(found))


def remarks(pilot: Read, trial: TrialRead) -> list[str]:
    """What a reader should know of a trial that counts all the same."""
    prefix = f"trial {trial.planned.id}: "
    found = [text.removeprefix(prefix) for text in pilot.problems if text.startswith(prefix)]
    found += [f"limit reached: {one.budget}" for one in trial.of(events.LimitReached)]
    failures = trial.of(events.SolverFailed)
    if failures:
        found.append(f"the solver failed {len(failures)} times, last: {' '.join(failures[-1].error.split())[:120]}")
    silent = sum(one.imported_at_exit is None for one in trial.of(events.Attested))
    if silent:
        found.append(f"{silent} workers ended without attesting")
    closed = trial.of(events.Closed)
    if closed and closed[0].reason not in ("finished", "limit"):
        found.append(f"ended: {closed[0].reason}")
    return found


def _leaks(trial: TrialRead) -> list[str]:
    audits = trial.of(events.Audited)
    done = {audit.when for audit in audits}
    found = [f"there was no {when} leak audit" for when in ("first", "last") if when not in done]
    return found + [f"leak ({audit.when} audit): {leak}" for audit in audits for leak in audit.leaks]


def _attested(trial: TrialRead) -> list[str]:
    """Of an arm without the package."""
    found = []
    for one in trial.of(events.Attested):
        if one.importable_at_start:
            found.append(f"worker {one.worker} could import the package")
        if one.imported_at_exit:
            found.append(f"worker {one.worker} had imported the package")
        if not one.guard:
            found.append(f"worker {one.worker} had no import guard")
    return found
