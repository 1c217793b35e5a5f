"""Do the books agree? Totals are sums of rows, every row has an owner, every beginning an end: one sentence on each
thing that does not hold. Nothing is mended here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from traincheck.pilot import events
from traincheck.pilot.accounting import devices
from traincheck.pilot.accounting.devices import Row
from traincheck.pilot.accounting.timeline import SECOND, Timeline
from traincheck.pilot.figures import Costs, TrialFigures
from traincheck.pilot.ledger import Entry, LedgerError
from traincheck.pilot.plan import Plan
from traincheck.pilot.submissions import submissions
from traincheck.pilot.verdicts import TrialGrade


def reconcile(
    plan: Plan,
    trials: Mapping[str, Sequence[Entry]],
    device: Sequence[Entry],
    figures: Iterable[TrialFigures],
    costs: Costs,
    grades: Mapping[str, TrialGrade] | None = None,
) -> list[str]:
    """Everything that does not fit together in the solvers' part of a pilot; empty when all does.

    ``trials`` are the entries of each trial's ledger, ``device`` those of the solvers' device ledger.
    """
    found = devices.rows(device)
    problems = [*_planned(plan, trials), *device_problems(device, "solver")]
    for name, entries in trials.items():
        problems += [f"trial {name}: {sentence}" for sentence in trial_problems(entries)]
    problems += _joined(trials, found)
    problems += _totals(found, list(figures), costs)
    for name, grade in (grades or {}).items():
        problems += _graded(name, trials.get(name), grade)
    return problems


def trial_problems(entries: Sequence[Entry]) -> list[str]:
    """What does not fit together within one trial's ledger."""
    try:
        timeline = Timeline(entries)
        submissions(entries)
    except LedgerError as error:
        return [error.message]
    problems = [*_frame(timeline), *_turns(timeline), *_model(timeline), *_tools(timeline), *_suspensions(timeline)]
    closed = timeline.closed
    if closed is not None and closed.devices_held:
        problems.append(f"{closed.devices_held} devices were held when it was closed")
    return problems


def device_problems(entries: Sequence[Entry], purpose: events.Purpose) -> list[str]:
    """What does not fit together within one device ledger, that of ``purpose``."""
    problems = list(_states(entries))
    for row in devices.rows(entries):
        if row.purpose != purpose:
            problems.append(f"request {row.request} is of {row.purpose}, this is the ledger of {purpose}")
        if row.gap:
            problems.append(f"request {row.request}: its lease has no end, what it cost is not known")
        if row.answered_ns is None:
            problems.append(f"request {row.request} was never answered")
        if row.reason == "lost":
            problems.append(f"request {row.request}: the worker was lost, its end is when that was noticed")
    problems += _allocation(entries)
    if entries:
        last = events.parsed(entries[-1], events.DEVICE)
        if not isinstance(last, events.ServiceStopped):
            problems.append("the device service was not stopped")
        elif last.held:
            problems.append(f"{last.held} devices were held when the device service stopped")
    return problems


def _planned(plan: Plan, trials: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    planned = {trial.id: trial for trial in plan.order}
    for name in planned:
        if name not in trials:
            yield f"trial {name} was planned and has no ledger"
    for name, entries in trials.items():
        if name not in planned:
            yield f"trial {name} was not planned"
            continue
        opened = next((entry for entry in entries if entry.kind == "opened"), None)
        if opened is None:
            continue
        for field, wanted in (("trial", name), ("plan", plan.hash), ("case", planned[name].case)):
            if opened.data.get(field) != wanted:
                yield f"trial {name}: its {field} is {opened.data.get(field)!r}, planned is {wanted!r}"
        for field, wanted in (("arm", planned[name].arm), ("solver", planned[name].solver)):
            if opened.data.get(field) != wanted:
                yield f"trial {name}: its {field} is {opened.data.get(field)!r}, planned is {wanted!r}"


def _frame(timeline: Timeline) -> Iterator[str]:
    kinds = [type(step.event) for step in timeline.steps]
    if not kinds or kinds[0] is not events.Opened or kinds.count(events.Opened) > 1:
        yield "the ledger does not begin with its one opening"
    if events.Closed not in kinds:
        yield "the trial is not finished: it was never closed"
    else:
        for step in timeline.steps[kinds.index(events.Closed) + 1 :]:
            yield f"entry {step.number} ({events.kind_of(step.event)}) comes after the trial was closed"
    if timeline.zero_ns is None:
        yield "no model request carries the task: the clocks have no zero"
    audits = [step.event.when for step in timeline.steps if isinstance(step.event, events.Audited)]
    cut_off = timeline.closed is not None and timeline.closed.reason == "interrupted"
    if audits != ["first", "last"] and not (cut_off and audits in ([], ["first"])):
        yield f"leak audits are not one first and one last: {', '.join(audits) or 'none'}"


def _turns(timeline: Timeline) -> Iterator[str]:
    expected, inside = 1, False
    for step in timeline.steps:
        event = step.event
        if isinstance(event, events.TurnStarted):
            if event.turn != expected or inside:
                yield f"entry {step.number}: turn {event.turn} begins where turn {expected} was expected to"
            inside, expected = True, event.turn + 1
        elif isinstance(event, events.TurnEnded):
            if not inside or event.turn != expected - 1:
                yield f"entry {step.number}: turn {event.turn} ends and was not begun"
            inside = False


def _model(timeline: Timeline) -> Iterator[str]:
    attempts: Counter[str] = Counter()
    answered: set[str] = set()
    for step in timeline.steps:
        event = step.event
        if isinstance(event, events.ModelRequested):
            attempts[event.request] += 1
            if event.attempt != attempts[event.request]:
                yield f"model request {event.request}: attempt {event.attempt} is the {attempts[event.request]}. one"
        elif isinstance(event, events.ModelAnswered):
            if event.request not in attempts:
                yield f"model request {event.request} was answered and never sent"
            if event.request in answered:
                yield f"model request {event.request} was answered twice: its tokens would count twice"
            answered.add(event.request)
        elif isinstance(event, events.ModelFailed) and event.request not in attempts:
            yield f"model request {event.request} failed and was never sent"


def _tools(timeline: Timeline) -> Iterator[str]:
    called = {step.event.call for step in timeline.steps if isinstance(step.event, events.ToolCalled)}
    for step in timeline.steps:
        if isinstance(step.event, events.ToolAnswered) and step.event.call not in called:
            yield f"tool call {step.event.call} was answered and never made"


def _suspensions(timeline: Timeline) -> Iterator[str]:
    found = timeline.suspensions()
    known = Counter(one.interval for one in found)
    for interval, times in known.items():
        if times > 1:
            yield f"suspension {interval} began {times} times"
    for step in timeline.steps:
        if isinstance(step.event, events.Resumed) and step.event.interval not in known:
            yield f"suspension {step.event.interval} ended and never began"
    closed_by = timeline.closed
    for one in found:
        if one.end_ns is not None and one.end_ns < one.begin_ns:
            yield f"suspension {one.interval} ended before it began"
        if one.end_ns is None and (closed_by is None or closed_by.reason == "finished"):
            yield f"suspension {one.interval} ({one.reason}) has no end"
    for step in timeline.steps:
        if isinstance(step.event, events.ModelFailed) and step.event.transport:
            answer = next(
                (
                    later.at_ns
                    for later in timeline.steps
                    if later.number > step.number and isinstance(later.event, events.ModelAnswered)
                ),
                None,
            )
            if answer is not None and not any(
                one.begin_ns < answer and (one.end_ns is None or one.end_ns >= step.at_ns) for one in found
            ):
                yield f"model request {step.event.request}: its transport failure lies in no suspension"


def _states(entries: Iterable[Entry]) -> Iterator[str]:
    """Requests that go through their states in another order than asked, granted, started, ended, released."""
    allowed = {
        "asked": {""},
        "granted": {"asked"},
        "refused": {"asked"},
        "worker_started": {"granted"},
        "worker_ended": {"worker_started"},
        "released": {"granted", "worker_ended"},
    }
    states: dict[str, str] = {}
    for entry in entries:
        name = entry.data.get("request")
        if entry.kind not in allowed or not isinstance(name, str):
            if entry.kind == "replayed" and states.get(str(name)) not in ("refused", "released"):
                yield f"request {name} was replayed before it was over"
            continue
        state = states.get(name, "")
        if state not in allowed[entry.kind]:
            yield f"request {name}: {entry.kind} after {state or 'nothing'} (entry {entry.number})"
        states[name] = entry.kind


def _allocation(entries: Iterable[Entry]) -> Iterator[str]:
    """Devices that were given away twice, or that do not exist."""
    total = 0
    held: dict[int, str] = {}
    wanted: dict[str, int] = {}
    for entry in entries:
        event = events.parsed(entry, events.DEVICE)
        if isinstance(event, events.ServiceStarted):
            total = event.devices
        elif isinstance(event, events.Asked):
            wanted[event.request] = event.devices
        elif isinstance(event, events.Granted):
            if len(event.devices) != wanted.get(event.request):
                yield f"request {event.request} asked for {wanted.get(event.request)} and got {len(event.devices)}"
            for device in event.devices:
                if device in held:
                    yield f"device {device} was given to {event.request} while {held[device]} had it"
                held[device] = event.request
            if len(held) > total:
                yield f"{len(held)} devices were given away at entry {entry.number}, there are {total}"
        elif isinstance(event, events.Released):
            held = {device: name for device, name in held.items() if name != event.request}


def _joined(trials: Mapping[str, Sequence[Entry]], found: Iterable[Row]) -> Iterator[str]:
    spans = {name: (entries[0].at_ns, entries[-1].at_ns) for name, entries in trials.items() if entries}
    for row in found:
        if row.owner not in spans:
            yield f"request {row.request} is of {row.owner!r}, there is no such trial"
            continue
        begin, end = spans[row.owner]
        if row.asked_ns < begin or row.asked_ns > end:
            yield f"request {row.request} was asked outside of its trial {row.owner}"
        elif row.released_ns is not None and row.released_ns > end:
            yield f"request {row.request} ran on after its trial {row.owner} was closed"


def _totals(found: Sequence[Row], figures: Sequence[TrialFigures], costs: Costs) -> Iterator[str]:
    """Sums are taken in integers; a figure is such a sum in seconds, so that equality is exact."""
    solver = [row for row in found if row.purpose == "solver"]
    by_trial = {one.trial: sum(row.device_ns() for row in solver if row.owner == one.trial) for one in figures}
    for one in figures:
        if one.full.device_seconds != by_trial[one.trial] / SECOND:
            yield (
                f"trial {one.trial} is said to have used {one.full.device_seconds} device-seconds, "
                f"its rows add up to {by_trial[one.trial] / SECOND}"
            )
        if one.at_first_valid is not None and one.at_first_valid.device_seconds > one.full.device_seconds:
            yield f"trial {one.trial} used more devices through its first valid submission than in full"
    total = sum(row.device_ns() for row in solver)
    if costs.solver != total / SECOND:
        yield f"the solvers' total is {costs.solver} device-seconds, its rows add up to {total / SECOND}"
    if sum(by_trial.values()) != total:
        yield (
            f"trials add up to {sum(by_trial.values()) / SECOND} device-seconds, the ledger to {total / SECOND}: "
            "a request belongs to none of them, or a trial is missing"
        )


def _graded(name: str, entries: Sequence[Entry] | None, grade: TrialGrade) -> Iterator[str]:
    if entries is None:
        yield f"trial {name} was graded and has no ledger"
        return
    try:
        found = submissions(entries)
    except LedgerError:  # told already
        return
    wanted = [(one.number, one.source) for one in found.occurrences]
    if [(one.number, one.source) for one in grade.occurrences] != wanted:
        yield f"trial {name}: what was graded is not what was submitted"
    if grade.distinct != len(found.distinct):
        yield f"trial {name}: {grade.distinct} distinct sources were graded, {len(found.distinct)} were submitted"
    if grade.final.source != found.final.source:
        yield f"trial {name}: the final source that was graded is not the last one submitted"
