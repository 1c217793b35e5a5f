"""A trial's figures against a second computation: a timeline is walked millisecond by millisecond."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pilot.ledger_entries import MS, answer, asked, entries, job, opened, plan
from traincheck.errors import TraincheckError
from traincheck.pilot import events
from traincheck.pilot.accounting.intervals import clipped, length, union
from traincheck.pilot.accounting.trials import costs, trial_figures
from traincheck.pilot.figures import Point, TrialFigures
from traincheck.pilot.verdicts import FirstValid, FirstValidStatus, Occurrence, TrialGrade

PLAN = plan("t", "u")
Timed = list[tuple[int, events.Event]]


def _grade(status: FirstValidStatus, number: int | None) -> TrialGrade:
    one = Occurrence(number=0, source="0" * 64, verdict="incorrect")
    return TrialGrade(occurrences=(one,), distinct=1, first_valid=FirstValid(status=status, number=number), final=one)


def _figures(trial: Timed, device: Timed, grade: TrialGrade | None = None) -> TrialFigures:
    return trial_figures(PLAN, PLAN.trial("t"), entries(trial), entries(device), grade)


def _submitted(number: int, source: str = "a") -> events.Submitted:
    return events.Submitted(number=number, source=source * 64)


# -- against a walk, millisecond by millisecond ------------------------------------------------------------------------


@dataclass
class Drawn:
    """A trial as plain numbers (ms), and the same as events."""

    zero: int
    end: int
    waits: list[tuple[int, int]] = field(default_factory=list)
    still: list[tuple[int, int, str]] = field(default_factory=list)
    leases: list[tuple[int, int, int]] = field(default_factory=list)
    """From, to, devices."""
    answers: list[tuple[int, tuple[int, int, int, int]]] = field(default_factory=list)
    submissions: list[int] = field(default_factory=list)
    trial: Timed = field(default_factory=list)
    device: Timed = field(default_factory=list)


_moment = st.integers(0, 120)


@st.composite
def _drawn(draw: st.DrawFn) -> Drawn:
    zero = draw(st.integers(1, 30))
    drawn = Drawn(zero=zero, end=zero)
    trial: Timed = [
        (0, opened(PLAN, "t")),
        (0, _submitted(0)),
        (zero, events.TurnStarted(turn=1, text="0")),
        (zero, events.ModelRequested(request="first", turn=1, carries_task=True)),
    ]
    for number in range(draw(st.integers(0, 4))):
        asked_at = draw(_moment)
        waited = draw(st.integers(0, 30))
        owner = draw(st.sampled_from(["t", "t", "t", "u"]))
        if draw(st.booleans()):
            ran, devices = draw(st.integers(0, 40)), draw(st.integers(1, 3))
            begin = asked_at + waited + draw(st.integers(0, 3))
            drawn.device += job(
                f"r{number}",
                (asked_at, asked_at + waited, begin, begin + ran, begin + ran + 1),
                tuple(range(devices)),
                owner,
            )
            if owner == "t":
                drawn.leases.append((begin, begin + ran, devices))
        else:
            drawn.device += [
                (asked_at, asked(f"r{number}", owner)),
                (asked_at + waited, events.Refused(request=f"r{number}", reason="no")),
            ]
        if owner == "t":
            drawn.waits.append((asked_at, asked_at + waited))
    for number in range(draw(st.integers(0, 3))):
        begin, lasted = draw(_moment), draw(st.integers(0, 30))
        reason = draw(st.sampled_from(["transport", "operator"]))
        drawn.still.append((begin, begin + lasted, reason))
        trial += [
            (begin, events.Suspended(interval=number, reason=reason)),
            (begin + lasted, events.Resumed(interval=number)),
        ]
    for number in range(draw(st.integers(0, 6))):
        at = draw(st.integers(zero, 150))
        counts = tuple(draw(st.integers(0, 50)) for _ in range(4))
        new, cached, out, reasoning = counts
        drawn.answers.append((at, (new, cached, out, min(out, reasoning))))
        trial.append((at, answer(f"m{number}", new, cached, out, min(out, reasoning))))
    drawn.submissions = sorted(draw(st.lists(_moment, max_size=3)))
    trial += [(at, _submitted(number + 1, "b")) for number, at in enumerate(drawn.submissions)]
    drawn.end = max(at for at, _ in trial)
    trial.append((drawn.end + draw(st.integers(0, 20)), events.Audited(when="last", looked_at=1, leaks=())))
    trial.append((drawn.end + 30, events.Closed(reason="finished", final="b" * 64, devices_held=0)))
    drawn.trial = trial
    return drawn


def _walked(drawn: Drawn, moment: int) -> tuple[int, int, int]:
    """The three clocks in ms, by looking at every millisecond."""
    raw = queue = adjusted = 0
    for at in range(drawn.zero, moment):
        waiting = any(begin <= at < end for begin, end in drawn.waits)
        still = any(begin <= at < end for begin, end, _ in drawn.still)
        raw += 1
        queue += not waiting
        adjusted += not waiting and not still
    return raw, queue, adjusted


def _used(drawn: Drawn, moment: int) -> int:
    """Device-milliseconds, by looking at every millisecond."""
    return sum(devices for begin, end, devices in drawn.leases for at in range(begin, end) if at < moment)


def _same_clocks(point: Point, walked: tuple[int, int, int]) -> None:
    clocks = point.clocks
    assert (clocks.raw_s, clocks.queue_adjusted_s, clocks.adjusted_s) == tuple(value / 1000 for value in walked)


@settings(max_examples=200, deadline=None)
@given(drawn=_drawn())
def test_clocks_tokens_and_device_time_are_those_of_a_walk(drawn: Drawn) -> None:
    number = len(drawn.submissions)
    found = _figures(drawn.trial, drawn.device, _grade("proven", number))
    _same_clocks(found.full, _walked(drawn, drawn.end))
    assert found.full.device_seconds == _used(drawn, 10_000) / 1000
    total = sum(new + cached + out for _, (new, cached, out, _) in drawn.answers)
    assert found.full.tokens.total == found.full.tokens_next == total
    assert found.full.tokens.reasoning == sum(one[3] for _, one in drawn.answers)

    at = drawn.submissions[-1] if number else 0
    assert found.at_first_valid is not None
    _same_clocks(found.at_first_valid, _walked(drawn, at))
    assert found.at_first_valid.device_seconds == _used(drawn, at) / 1000
    # An answer of the same millisecond was written before the submission, here: answers come first in the list.
    before = [one for when, one in drawn.answers if number and when <= at]
    after = sorted(when for when, _ in drawn.answers if not number or when > at)
    assert found.at_first_valid.tokens.total == sum(sum(one[:3]) for one in before)
    following = [one for when, one in drawn.answers if after and when == after[0]][:1]
    assert found.at_first_valid.tokens_next == sum(sum(one[:3]) for one in (*before, *following))

    inside = range(drawn.zero, drawn.end)
    assert found.queue_wait_s == sum(any(b <= at < e for b, e in drawn.waits) for at in inside) / 1000
    assert found.suspended_s == sum(any(b <= at < e for b, e, _ in drawn.still) for at in inside) / 1000
    for reason, seconds in found.suspensions.items():
        assert seconds == sum(any(b <= at < e and r == reason for b, e, r in drawn.still) for at in inside) / 1000
    assert found.full.clocks.raw_s >= found.full.clocks.queue_adjusted_s >= found.full.clocks.adjusted_s >= 0
    assert found.cost_gaps == 0


@settings(max_examples=200, deadline=None)
@given(
    intervals=st.lists(st.tuples(st.integers(-5, 40), st.integers(-5, 40)), max_size=8),
    begin=st.integers(-5, 40),
    end=st.integers(-5, 40),
)
def test_intervals_are_sets_of_moments(intervals: list[tuple[int, int]], begin: int, end: int) -> None:
    moments = {at for one, other in intervals for at in range(one, other)}
    united = union(intervals)
    assert {at for one, other in united for at in range(one, other)} == moments
    assert all(one[1] < other[0] for one, other in pairwise(united))
    assert length(intervals) == len(moments)
    within = {at for one, other in clipped(intervals, begin, end) for at in range(one, other)}
    assert within == {at for at in moments if begin <= at < end}


# -- by hand -----------------------------------------------------------------------------------------------------------

_BEGIN: Timed = [
    (0, opened(PLAN, "t")),
    (0, events.Audited(when="first", looked_at=3, leaks=())),
    (0, _submitted(0)),
    (90, events.TurnStarted(turn=1, text="0")),
    (100, events.ModelRequested(request="m1", turn=1, carries_task=True)),
]


def test_the_clock_begins_with_the_request_that_carries_the_task() -> None:
    trial: Timed = [
        *_BEGIN[:4],
        (95, events.ModelRequested(request="warm", turn=1, carries_task=False)),
        *_BEGIN[4:],
        (150, events.ModelRequested(request="m2", turn=1, carries_task=True)),
        (400, events.TurnEnded(turn=1)),
        (900, events.Closed(reason="finished", final="a" * 64, devices_held=0)),
    ]
    found = _figures(trial, [])
    assert found.full.clocks.raw_s == 0.3
    assert found.closed == "finished"
    assert found.first_valid == "undetermined"
    assert found.censored


def test_overlapping_waits_count_once_and_a_refusal_is_waited_for() -> None:
    trial: Timed = [*_BEGIN, (600, events.TurnEnded(turn=1))]
    device: Timed = [
        *job("r1", (110, 200, 200, 300, 300)),
        *job("r2", (150, 250, 250, 260, 260)),
        (300, asked("r3")),
        (350, events.Refused(request="r3", reason="cancelled")),
        *job("other", (100, 600, 600, 700, 700), owner="u"),
    ]
    found = _figures(trial, device)
    assert found.queue_wait_s == 0.14 + 0.05
    assert found.full.clocks.raw_s == 0.5  # what is adjusted stands beside it
    assert found.full.clocks.queue_adjusted_s == 0.31
    assert found.device_requests == 3
    assert found.full.device_seconds == 0.11


def test_device_seconds_are_devices_times_the_workers_life_clipped_at_the_submission() -> None:
    trial: Timed = [*_BEGIN, (250, _submitted(1)), (900, events.TurnEnded(turn=1))]
    device = [*job("r1", (110, 120, 150, 200, 210), (0, 1)), *job("r2", (200, 220, 230, 400, 410), (2,))]
    found = _figures(trial, device, _grade("proven", 1))
    assert found.full.device_seconds == (2 * 50 + 170) / 1000
    assert found.at_first_valid is not None
    assert found.at_first_valid.device_seconds == (2 * 50 + 20) / 1000
    assert not found.censored


def test_a_lease_without_an_end_is_a_gap() -> None:
    trial: Timed = [*_BEGIN, (900, events.TurnEnded(turn=1))]
    whole = job("r1", (110, 120, 130, 200, 210))
    assert _figures(trial, whole).cost_gaps == 0
    assert _figures(trial, whole[:-1]).cost_gaps == 1  # not given back
    lost = [*whole[:3], (700, events.ServiceStopped(held=1))]
    found = _figures(trial, lost)
    assert found.cost_gaps == 1
    assert found.full.device_seconds == 0.57  # at least: up to the last that is known


def test_suspension_is_from_the_failure_to_the_first_good_answer_and_has_its_reason() -> None:
    trial: Timed = [
        *_BEGIN,
        (200, events.ModelFailed(request="m1", attempt=1, error="reset", transport=True)),
        (200, events.Suspended(interval=1, reason="transport")),
        (220, events.ModelRequested(request="m1", turn=1, attempt=2, carries_task=True)),
        (240, events.ModelFailed(request="m1", attempt=2, error="reset", transport=True)),
        (260, events.ModelRequested(request="m1", turn=1, attempt=3, carries_task=True)),
        (300, answer("m1", 1, 2, 3)),
        (300, events.Resumed(interval=1)),
        (310, events.Suspended(interval=2, reason="operator")),
        (330, events.Resumed(interval=2)),
        (340, events.SolverFailed(error="exit 1", recovers=True)),
        (350, events.ModelRequested(request="m2", turn=1, carries_task=True)),
        (360, events.ModelFailed(request="m2", attempt=1, error="refused to answer", transport=False)),
        (370, answer("m3", 0, 0, 0)),
        (380, answer("m4", 0, 0, 0)),
        (400, events.TurnEnded(turn=1)),
    ]
    device = job("r1", (190, 250, 250, 260, 260))
    found = _figures(trial, device)
    assert found.suspensions == {"transport": 0.1, "operator": 0.02}
    assert found.suspended_s == 0.12
    assert found.queue_wait_s == 0.06
    assert found.full.clocks.raw_s == 0.3
    assert found.full.clocks.queue_adjusted_s == 0.24
    assert found.full.clocks.adjusted_s == 0.3 - 0.11 - 0.02  # the wait and the suspension overlap by 50 ms
    assert (found.transport_failures, found.retries, found.recoveries, found.solver_failures) == (2, 2, 2, 1)
    assert found.model_requests == 2


def test_a_suspension_without_an_end_lasts_to_the_end() -> None:
    trial: Timed = [
        *_BEGIN,
        (200, events.Suspended(interval=1, reason="operator")),
        (350, events.LimitReached(budget="time")),
    ]
    found = _figures(trial, [])
    assert found.suspended_s == 0.15
    assert found.full.clocks.adjusted_s == 0.1
    assert found.closed is None


def test_tokens_count_each_once_and_are_bounded_by_the_adjacent_answers() -> None:
    trial: Timed = [
        *_BEGIN,
        (200, answer("m1", 100, 900, 50, 40)),
        (210, _submitted(1)),
        (300, answer("m2", 10, 1000, 20)),
        (310, _submitted(2)),
        (320, events.TurnEnded(turn=1)),
        (330, events.TurnStarted(turn=2, text="0")),
        (400, answer("m3", 1, 1, 1)),
        (410, _submitted(3)),
        (500, events.TurnEnded(turn=2)),
    ]
    points = [_figures(trial, [], _grade("proven", number)).at_first_valid for number in range(4)]
    assert [(one.tokens.total, one.tokens_next, one.turn) for one in points if one is not None] == [
        (0, 1050, 0),
        (1050, 2080, 1),
        (2080, 2083, 1),
        (2083, 2083, 2),
    ]
    full = _figures(trial, []).full
    assert full.tokens.model_dump() == {
        "input": 111, "cached_input": 1901, "output": 71, "reasoning": 40, "total": 2083,
    }  # fmt: skip
    assert full.turn == 2


def test_grading_changes_no_clock() -> None:
    trial: Timed = [*_BEGIN, (210, _submitted(1)), (500, events.TurnEnded(turn=1))]
    before = _figures(trial, [])
    after = _figures(trial, [], _grade("proven", 1))
    assert after.full == before.full
    assert after.at_first_valid is not None
    assert after.at_first_valid.clocks.raw_s == 0.11


@pytest.mark.parametrize("status", ["bounded", "undetermined", "none"])
def test_without_a_proven_first_valid_the_trial_is_censored(status: FirstValidStatus) -> None:
    trial: Timed = [*_BEGIN, (210, _submitted(1)), (500, events.TurnEnded(turn=1))]
    found = _figures(trial, [], _grade(status, None))
    assert (found.first_valid, found.first_valid_number, found.at_first_valid, found.censored) == (
        status,
        None,
        None,
        True,
    )


def test_occurrences_are_counted_apart_from_distinct_sources() -> None:
    sources = "abacbdaed"
    trial: Timed = [*_BEGIN[:2], *_BEGIN[3:]]
    trial += [(100 + number, _submitted(number, source)) for number, source in enumerate(sources)]
    found = _figures([*trial, (500, events.TurnEnded(turn=1))], [])
    assert (found.submissions, found.distinct_sources) == (8, 5)


def test_a_trial_that_never_asked_a_model_has_no_time() -> None:
    found = _figures([*_BEGIN[:3], (50, events.SolverFailed(error="no start", recovers=False))], [])
    assert found.full.clocks.raw_s == found.full.clocks.adjusted_s == 0
    assert found.queue_wait_s == 0


def test_another_plan_or_trial_is_refused() -> None:
    with pytest.raises(TraincheckError, match="was run under plan"):
        trial_figures(plan("t"), PLAN.trial("t"), entries(_BEGIN), [], None)
    with pytest.raises(TraincheckError, match="is of trial t, not of u"):
        trial_figures(PLAN, PLAN.trial("u"), entries(_BEGIN), [], None)
    with pytest.raises(TraincheckError, match="does not begin"):
        trial_figures(PLAN, PLAN.trial("t"), entries(_BEGIN[2:]), [], None)


def test_the_three_ledgers_are_never_added_up() -> None:
    solver = job("r1", (0, 0, 0, 100, 100), (0, 1))
    strange: Timed = [
        (0, asked("g", purpose="grading")),
        (0, events.Granted(request="g", devices=(0,))),
        (0, events.WorkerStarted(request="g", pid=1)),
        (70, events.WorkerEnded(request="g", exit_code=0, reason="exit")),
        (70, events.Released(request="g")),
    ]
    found = costs(entries([*solver, *strange]), entries(strange), entries([]))
    assert found.model_dump() == {"solver": 0.2, "grading": 0.07, "qualification": 0.0}


def test_nanoseconds_are_added_up_as_integers() -> None:
    """A tenth of a second, ten times: floats would not give exactly one."""
    device = [one for number in range(10) for one in job(f"r{number}", (100, 100, 100, 200, 200))]
    found = _figures([*_BEGIN, (900, events.TurnEnded(turn=1))], device)
    assert found.full.device_seconds == 1.0
    assert sum([0.1] * 10) != 1.0
    assert entries(device)[0].at_ns == 100 * MS
