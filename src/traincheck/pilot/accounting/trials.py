"""One trial's figures from its own ledger, the device ledger and its grade."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traincheck.errors import TraincheckError
from traincheck.pilot.accounting import devices
from traincheck.pilot.accounting.devices import Row
from traincheck.pilot.accounting.intervals import clipped, length
from traincheck.pilot.accounting.timeline import SECOND, Timeline
from traincheck.pilot.figures import Costs, Point, TrialFigures
from traincheck.pilot.ledger import Entry
from traincheck.pilot.plan import Plan, TrialPlan
from traincheck.pilot.submissions import Submissions, submissions
from traincheck.pilot.verdicts import TrialGrade


def trial_figures(
    plan: Plan, trial: TrialPlan, entries: Sequence[Entry], device: Iterable[Entry], grade: TrialGrade | None
) -> TrialFigures:
    """The account of one trial.

    ``entries`` are of the trial's ledger, ``device`` of the solvers' device ledger; without a grade no first valid
    submission is known. Raises TraincheckError when the ledger is of another trial or was written under another plan,
    LedgerError when an entry is no event or the submissions are not in order.
    """
    timeline = Timeline(entries)
    _check_plan(plan, trial, timeline)
    found = submissions(entries)
    own = devices.of_owner(devices.rows(device), trial.id)
    waits = [row.wait() for row in own]
    zero = timeline.zero_ns
    end = timeline.end_ns
    begin, until = (zero, max(zero, end or zero)) if zero is not None else (0, 0)
    first = grade.first_valid if grade is not None else None
    proven = first is not None and first.status == "proven"
    reasons = dict.fromkeys(one.reason for one in timeline.suspensions())

    def lasted(reason: str | None) -> float:
        return length(clipped(timeline.suspended(until, reason), begin, until)) / SECOND

    return TrialFigures(
        trial=trial.id,
        case=trial.case,
        arm=trial.arm,
        solver=trial.solver,
        block=trial.block,
        first_valid=first.status if first is not None else "undetermined",
        first_valid_number=first.number if first is not None and proven else None,
        at_first_valid=_at(timeline, own, found, first.number or 0) if first is not None and proven else None,
        full=_full(timeline, own, until),
        censored=not proven,
        submissions=sum(one.number > 0 for one in found.occurrences),
        distinct_sources=len(found.distinct),
        queue_wait_s=length(clipped(waits, begin, until)) / SECOND,
        suspended_s=lasted(None),
        suspensions={reason: lasted(reason) for reason in reasons},
        model_requests=timeline.model_requests(),
        transport_failures=timeline.transport_failures(),
        retries=timeline.retries(),
        recoveries=timeline.recoveries(),
        solver_failures=timeline.solver_failures(),
        device_requests=len(own),
        cost_gaps=sum(row.gap for row in own),
        closed=timeline.closed.reason if timeline.closed is not None else None,
    )


def costs(solver: Iterable[Entry], grading: Iterable[Entry], *qualification: Iterable[Entry]) -> Costs:
    """Device-seconds of the three ledgers, each by itself. Raises LedgerError.

    A request of another purpose than its ledger's is in no sum; ``reconciling`` names it. Of qualification there may
    be several ledgers.
    """
    return Costs(
        solver=devices.total_ns(solver, "solver") / SECOND,
        grading=devices.total_ns(grading, "grading") / SECOND,
        qualification=sum(devices.total_ns(one, "qualification") for one in qualification) / SECOND,
    )


def _at(timeline: Timeline, own: Sequence[Row], found: Submissions, number: int) -> Point:
    """What had been used up when a submission was made."""
    one = found.of(number)
    return Point(
        clocks=timeline.clocks(one.at_ns, [row.wait() for row in own]),
        tokens=timeline.tokens(one.entry),
        tokens_next=timeline.tokens_next(one.entry),
        device_seconds=sum(row.device_ns(one.at_ns) for row in own) / SECOND,
        turn=timeline.turn(one.entry),
    )


def _full(timeline: Timeline, own: Sequence[Row], until_ns: int) -> Point:
    """What was used up in all: leases to their own end, also where that is after the agent's last word."""
    tokens = timeline.tokens()
    return Point(
        clocks=timeline.clocks(until_ns, [row.wait() for row in own]),
        tokens=tokens,
        tokens_next=tokens.total,
        device_seconds=sum(row.device_ns() for row in own) / SECOND,
        turn=timeline.turn(),
    )


def _check_plan(plan: Plan, trial: TrialPlan, timeline: Timeline) -> None:
    opened = timeline.opened
    if opened is None:
        raise TraincheckError(f"the ledger of trial {trial.id} does not begin", "run the trial again")
    if opened.trial != trial.id:
        raise TraincheckError(f"the ledger is of trial {opened.trial}, not of {trial.id}")
    if opened.plan != plan.hash:
        raise TraincheckError(
            f"trial {trial.id} was run under plan {opened.plan[:12]}, this is plan {plan.hash[:12]}",
            "use the plan.json that the trial was run with",
        )
