"""Do the books agree: a sound pilot has no problem, and every fault that is planted is named."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tests.pilot.ledger_entries import MS, answer, asked, entries, job, opened, plan
from traincheck.errors import TraincheckError
from traincheck.pilot import events, heads
from traincheck.pilot.accounting.account import account
from traincheck.pilot.accounting.devices import published
from traincheck.pilot.accounting.reconciling import device_problems, reconcile, trial_problems
from traincheck.pilot.accounting.trials import costs, trial_figures
from traincheck.pilot.canonical import encoded
from traincheck.pilot.figures import Costs, TrialFigures
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Ledger
from traincheck.pilot.planning import plans
from traincheck.pilot.sources import Objects, capture
from traincheck.pilot.submissions import recheck, submissions
from traincheck.pilot.verdicts import CaseGrade, FirstValid, Occurrence, Replay, TrialGrade

PLAN = plan("t", "u")
A, B = "a" * 64, "b" * 64
Timed = list[tuple[int, events.Event]]


def _trial(name: str, sources: tuple[str, ...] = (A, B)) -> Timed:
    return [
        (0, opened(PLAN, name)),
        (1, events.Audited(when="first", looked_at=1, leaks=())),
        (2, events.Submitted(number=0, source=sources[0])),
        (10, events.TurnStarted(turn=1, text=A)),
        (10, events.ModelRequested(request="m1", turn=1, carries_task=True)),
        (20, events.ModelFailed(request="m1", attempt=1, error="reset", transport=True)),
        (20, events.Suspended(interval=1, reason="transport")),
        (25, events.ModelRequested(request="m1", turn=1, attempt=2, carries_task=True)),
        (30, answer("m1", 5, 5, 5)),
        (30, events.Resumed(interval=1)),
        (40, events.ToolCalled(call="c1", tool="run", arguments={}, turn=1)),
        (85, events.ToolAnswered(call="c1", text=A)),
        *((90 + at, events.Submitted(number=1 + at, source=one)) for at, one in enumerate(sources[1:])),
        (120, events.TurnEnded(turn=1)),
        (130, events.Audited(when="last", looked_at=1, leaks=())),
        (140, events.Closed(reason="finished", final=sources[-1], devices_held=0)),
    ]


def _device() -> Timed:
    return [
        (0, events.ServiceStarted(devices=2, kind="cpu")),
        *job("t-1", (41, 45, 46, 60, 61), (0, 1), "t"),
        *job("u-1", (50, 61, 62, 80, 81), (0,), "u"),
        *job("t-2", (51, 62, 63, 70, 71), (1,), "t"),
        (55, asked("u-2", "u", 3)),
        (56, events.Refused(request="u-2", reason="3 devices were asked for, there are 2")),
        (200, events.ServiceStopped(held=0)),
    ]


def _reconciled(trials: dict[str, Timed], device: Timed) -> list[str]:
    read = {name: entries(timed) for name, timed in trials.items()}
    found = entries(device)
    figures = [trial_figures(PLAN, PLAN.trial(name), one, found, None) for name, one in read.items() if name in "tu"]
    return reconcile(PLAN, read, found, figures, costs(found, []))


def _sound() -> dict[str, Timed]:
    return {"t": _trial("t"), "u": _trial("u")}


def test_sound_books_have_no_problem() -> None:
    assert _reconciled(_sound(), _device()) == []


# -- planted faults: of a trial ----------------------------------------------------------------------------------------


def _without(kind: type[events.Event]) -> Callable[[Timed], Timed]:
    return lambda trial: [one for one in trial if not isinstance(one[1], kind)]


def _with(at: int, event: events.Event) -> Callable[[Timed], Timed]:
    return lambda trial: [*trial, (at, event)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_without(events.Closed), "the trial is not finished"),
        (_with(141, events.Submitted(number=2, source=A)), "(submitted) comes after the trial was closed"),
        (_with(95, events.Submitted(number=5, source=A)), "submission 5 where 2 was expected"),
        (_without(events.Submitted), "no initial snapshot"),
        (_without(events.ModelRequested), "no model request carries the task"),
        (_without(events.Resumed), "suspension 1 (transport) has no end"),
        (_with(100, events.Resumed(interval=9)), "suspension 9 ended and never began"),
        (_with(101, events.Suspended(interval=1, reason="transport")), "suspension 1 began 2 times"),
        (lambda t: _without(events.Resumed)(_without(events.Suspended)(t)), "transport failure lies in no suspension"),
        (_with(100, answer("m1", 5, 5, 5)), "was answered twice"),
        (_with(100, answer("m9", 5, 5, 5)), "m9 was answered and never sent"),
        (_with(100, events.ModelRequested(request="m1", turn=1, attempt=5, carries_task=True)), "5 is the 3. one"),
        (_with(100, events.ToolAnswered(call="c9", text=A)), "tool call c9 was answered and never made"),
        (_with(100, events.TurnStarted(turn=3, text=A)), "turn 3 begins where turn 2 was expected"),
        (_with(125, events.TurnEnded(turn=2)), "turn 2 ends and was not begun"),
        (_without(events.Audited), "leak audits are not one first and one last: none"),
        (_without(events.Opened), "does not begin with its one opening"),
        (_with(100, opened(PLAN, "t")), "does not begin with its one opening"),
        (
            lambda t: [*_without(events.Closed)(t), (140, events.Closed(reason="finished", final=A, devices_held=2))],
            "2 devices were held when it was closed",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_a_trial_is_named(change: Callable[[Timed], Timed], told: str) -> None:
    assert trial_problems(entries(_trial("t"))) == []
    assert told in "\n".join(trial_problems(entries(change(_trial("t")))))


def test_a_trial_that_was_cut_off_need_not_have_its_last_audit() -> None:
    cut: Timed = [*_trial("t")[:-2], (140, events.Closed(reason="interrupted", final=A, devices_held=0))]
    assert trial_problems(entries(cut)) == []
    finished: Timed = [*_trial("t")[:-2], _trial("t")[-1]]
    assert trial_problems(entries(finished)) == ["leak audits are not one first and one last: first"]


# -- of the device ledger ----------------------------------------------------------------------------------------------


def _drop(name: str, kind: type[events.Event]) -> Callable[[Timed], Timed]:
    return lambda device: [
        one for one in device if not (isinstance(one[1], kind) and getattr(one[1], "request", name) == name)
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_drop("t-1", events.Released), "t-1: its lease has no end"),
        (_drop("t-1", events.WorkerEnded), "t-1: its lease has no end"),
        (_drop("t-1", events.WorkerEnded), "t-1: released after worker_started"),
        (_drop("t-1", events.Granted), "t-1: worker_started after asked"),
        (_drop("t-1", events.Asked), "t-1: granted after nothing"),
        (_drop("u-2", events.Refused), "u-2 was never answered"),
        (_drop("", events.ServiceStopped), "the device service was not stopped"),
        (lambda d: [*d[:-1], (200, events.ServiceStopped(held=1))], "1 devices were held when"),
        (lambda d: [*d, *job("x", (46, 47, 48, 49, 50), (1,), "t")], "device 1 was given to x while t-1 had it"),
        (lambda d: [*d, *job("x", (46, 47, 48, 49, 50), (7,), "t")], "3 devices were given away at entry"),
        (
            lambda d: [*_drop("t-1", events.Granted)(d), (45, events.Granted(request="t-1", devices=(0,)))],
            "t-1 asked for 2 and got 1",
        ),
        (lambda d: [*d, (58, events.Replayed(request="t-1"))], "t-1 was replayed before it was over"),
        (
            lambda d: [*d, (90, asked("g", purpose="grading")), (91, events.Refused(request="g", reason="x"))],
            "g is of grading, this is the ledger of solver",
        ),
    ],
)  # fmt: skip
def test_a_fault_of_the_device_ledger_is_named(change: Callable[[Timed], Timed], told: str) -> None:
    assert device_problems(entries(_device()), "solver") == []
    assert told in "\n".join(device_problems(entries(change(_device())), "solver"))


def test_a_request_that_was_run_twice_counts_twice_and_is_named() -> None:
    device = _device()
    again = job("t-2", (100, 101, 102, 110, 111), (1,), "t")
    found = entries([*device[:-1], *again, device[-1]])
    assert costs(found, []).solver == 0.053 + 0.008
    assert "request t-2: asked after released (entry 18)" in device_problems(found, "solver")


# -- of the whole ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "told"),
    [
        (job("x", (100, 100, 100, 101, 101), (0,), "z"), "request x is of 'z', there is no such trial"),
        (job("x", (100, 100, 100, 101, 101), (0,), "z"), "a request belongs to none of them"),
        (job("x", (150, 150, 150, 151, 151), (0,), "t"), "request x was asked outside of its trial t"),
        (job("x", (100, 100, 100, 151, 151), (0,), "t"), "request x ran on after its trial t was closed"),
    ],
)
def test_a_request_that_fits_no_trial_is_named(device: Timed, told: str) -> None:
    assert told in "\n".join(_reconciled(_sound(), [*_device()[:-1], *device, _device()[-1]]))


def test_trials_are_those_of_the_plan() -> None:
    assert "trial u was planned and has no ledger" in _reconciled({"t": _trial("t")}, _device())
    strange = {**_sound(), "x": _trial("x")}
    assert "trial x was not planned" in _reconciled(strange, _device())
    other = plan("t")
    told = reconcile(other, {"t": entries(_trial("t"))}, [], [], Costs(solver=0, grading=0, qualification=0))
    assert any("its plan is" in one for one in told)


def test_a_total_that_is_no_sum_of_rows_is_named() -> None:
    read = {name: entries(timed) for name, timed in _sound().items()}
    device = entries(_device())
    figures = [trial_figures(PLAN, PLAN.trial(name), one, device, None) for name, one in read.items()]
    wrong = costs(device, []).model_copy(update={"solver": 0.054})
    assert any("the solvers' total is 0.054" in one for one in reconcile(PLAN, read, device, figures, wrong))
    full = figures[0].full.model_copy(update={"device_seconds": 0.0350001})
    more = [figures[0].model_copy(update={"full": full}), figures[1]]
    assert any("trial t is said to have used" in one for one in reconcile(PLAN, read, device, more, costs(device, [])))
    missing = reconcile(PLAN, read, device, figures[:1], costs(device, []))
    assert any("a trial is missing" in one for one in missing)


def test_totals_are_exact_sums_of_their_rows() -> None:
    read = {name: entries(timed) for name, timed in _sound().items()}
    device = entries(_device())
    figures = [trial_figures(PLAN, PLAN.trial(name), one, device, None) for name, one in read.items()]
    assert [one.full.device_seconds for one in figures] == [0.035, 0.018]  # 2 x 14 + 7 and 18 ms
    assert costs(device, []).solver == 0.053


@pytest.mark.parametrize(
    ("rows", "total"),
    [
        ((120.0304, 97.5114, 145.5504), "363.091"),
        ((100.0996, 50.5956, 74.4996), "225.196"),
        ((67.0974, 67.0974, 67.0974), "201.291"),
    ],
)
def test_a_published_total_is_the_sum_of_the_published_rows(rows: tuple[float, ...], total: str) -> None:
    """Rounding the sum of the rows as they were measured would give another third place."""
    rounded, whole = published(rows)
    assert sum(rounded) == whole == Decimal(total)
    assert all(one == one.quantize(Decimal("0.001")) for one in rounded)
    assert str(whole) == total != f"{sum(rows):.3f}"


def test_published_rows_are_what_is_printed() -> None:
    values = [0.0004, 0.0006, 12.3456, 0.1 + 0.2, 0.0]
    rounded, total = published(values)
    assert [str(one) for one in rounded] == [f"{one:.3f}" for one in values]
    assert str(total) == "12.647"
    assert published([]) == ([], Decimal("0.000"))


def test_what_was_graded_is_what_was_submitted() -> None:
    read = {name: entries(timed) for name, timed in _sound().items()}

    def told(occurrences: str, distinct: int, final: str) -> list[str]:
        made = [
            Occurrence(number=number, source=one * 64, verdict="incorrect") for number, one in enumerate(occurrences)
        ]
        last = Occurrence(number=1, source=final * 64, verdict="incorrect")
        grade = TrialGrade(
            occurrences=tuple(made), distinct=distinct, first_valid=FirstValid(status="none"), final=last
        )
        device = entries(_device())
        figures = [trial_figures(PLAN, PLAN.trial(name), one, device, None) for name, one in read.items()]
        return reconcile(PLAN, read, device, figures, costs(device, []), {"t": grade})

    assert told("ab", 2, "b") == []
    assert told("aa", 2, "b") == ["trial t: what was graded is not what was submitted"]
    assert told("ab", 1, "b") == ["trial t: 1 distinct sources were graded, 2 were submitted"]
    assert told("ab", 2, "a") == ["trial t: the final source that was graded is not the last one submitted"]


# -- submissions -------------------------------------------------------------------------------------------------------


def test_occurrences_resolve_to_one_map_each_and_are_read_again(tmp_path: Path) -> None:
    store = Objects(tmp_path / "store")
    work = tmp_path / "work"
    work.mkdir()
    made = []
    for text in ("one", "two", "one", "three"):
        (work / "train.py").write_text(text)
        (work / "new.py").write_text("x") if text == "three" else None
        made.append(store.put_map(capture(work, store)))
    found = submissions(entries(_trial("t", tuple(made))))
    assert [(one.number, one.source) for one in found.occurrences] == list(enumerate(made))
    assert len(found.distinct) == 3
    assert found.initial.source == made[0] == found.of(2).source
    first, last = store.get_map(found.initial.source), store.get_map(found.final.source)
    assert last.changed_from(first) == {"new.py": "added", "train.py": "changed"}
    assert store.get_map(found.of(2).source).changed_from(first) == {}
    assert recheck(found.distinct, store) == []

    name = store.get_map(made[1]).entries["train.py"].sha256
    assert name is not None
    (store.folder / "objects" / name[:2] / name[2:]).write_text("changed")
    (told,) = recheck(found.distinct, store)
    assert f"source {made[1][:12]}, train.py: object {name}" in told
    assert "was changed" in told
    (store.folder / "maps" / f"{made[3]}.json").unlink()
    assert len(recheck(found.distinct, store)) == 2


# -- a folder ----------------------------------------------------------------------------------------------------------


def _write(path: Path, timed: Timed) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = sorted(timed, key=lambda one: one[0])
    clock = iter([0, *(at * MS for at, _ in ordered)])
    with Ledger(path, now=lambda: next(clock)) as ledger:
        for _, event in ordered:
            ledger.add(events.kind_of(event), events.data_of(event))
        return ledger.head


def _pilot(root: Path) -> Layout:
    layout = Layout(root)
    store = Objects(layout.store)
    (root / "work").mkdir(parents=True)
    made = []
    for text in ("one", "two"):
        (root / "work" / "train.py").write_text(text)
        made.append(store.put_map(capture(root / "work", store)))
    plans.write(PLAN, root, layout.plan)
    for name in "tu":
        head = _write(layout.ledger(name), _trial(name, tuple(made)))
        heads.record(layout.heads, layout.ledger(name), head)
    _write(layout.device, _device())
    graded: Timed = [
        (0, events.ServiceStarted(devices=2, kind="cpu")),
        (300, asked("g", "grading/case", purpose="grading")),
        (300, events.Granted(request="g", devices=(1,))),
        (301, events.WorkerStarted(request="g", pid=1)),
        (400, events.WorkerEnded(request="g", exit_code=0, reason="exit")),
        (401, events.Released(request="g")),
        (402, events.ServiceStopped(held=0)),
    ]
    _write(layout.grading_device, graded)
    occurrences = tuple(
        Occurrence(number=number, source=one, verdict="correct" if number else "incorrect")
        for number, one in enumerate(made)
    )
    grade = TrialGrade(
        occurrences=occurrences,
        distinct=2,
        first_valid=FirstValid(status="proven", number=1),
        final=occurrences[-1],
    )
    replay = Replay(verdict="correct", reason="the same", attempts=())
    case = CaseGrade(
        plan=PLAN.hash,
        case="case",
        valid=True,
        sources={one: {"base": replay} for one in made},
        trials={"t": grade},
        counts={"correct": 2},
    )
    layout.grades("case").write_text(case.model_dump_json(by_alias=True))
    return layout


def test_a_folder_is_accounted_for(tmp_path: Path) -> None:
    found = account(_pilot(tmp_path))
    assert found.problems == ()
    assert found.costs.model_dump() == {"solver": 0.053, "grading": 0.099, "qualification": 0.0}
    first, second = found.trials
    assert isinstance(first, TrialFigures)
    assert (first.trial, first.first_valid, first.first_valid_number, second.first_valid) == (
        "t", "proven", 1, "undetermined",
    )  # fmt: skip
    assert first.at_first_valid is not None
    assert first.at_first_valid.clocks.model_dump() == {"raw_s": 0.08, "queue_adjusted_s": 0.065, "adjusted_s": 0.055}
    assert first.at_first_valid.device_seconds == 0.035
    assert first.full.clocks.raw_s == 0.11
    assert found.plan.hash == PLAN.hash


def test_qualification_is_read_from_its_own_ledgers(tmp_path: Path) -> None:
    layout = _pilot(tmp_path)
    for path, seconds in ((layout.qualification_device, 100), (tmp_path / "elsewhere.jsonl", 20)):
        timed: Timed = [
            (0, events.ServiceStarted(devices=2, kind="cpu")),
            (0, asked("q", "qualification/case", purpose="qualification")),
            (0, events.Granted(request="q", devices=(1,))),
            (0, events.WorkerStarted(request="q", pid=1)),
            (seconds, events.WorkerEnded(request="q", exit_code=0, reason="exit")),
            (seconds, events.Released(request="q")),
            (seconds, events.ServiceStopped(held=0)),
        ]
        _write(path, timed)
    found = account(layout, [tmp_path / "elsewhere.jsonl"])
    assert found.costs.model_dump() == {"solver": 0.053, "grading": 0.099, "qualification": 0.12}
    assert found.problems == ()


def test_what_is_wrong_in_a_folder_is_named(tmp_path: Path) -> None:
    layout = _pilot(tmp_path)
    lines = layout.ledger("t").read_bytes().splitlines(keepends=True)
    layout.ledger("t").write_bytes(b"".join(lines[:-1]))
    told = "\n".join(account(layout).problems)
    assert "trial t: the trial is not finished" in told
    assert "trials/t/ledger.jsonl: the ledger does not end with the recorded entry" in told

    lines[5] = lines[5].replace(b'"error":"reset"', b'"error":"timeout"')
    layout.ledger("t").write_bytes(b"".join(lines))
    assert "entry 5 was changed" in "\n".join(account(layout).problems)

    with Ledger(layout.ledger("u")) as ledger:
        ledger.add("unheard", {})
    assert "unknown kind: 'unheard'" in "\n".join(account(layout).problems)

    for path in (layout.store / "objects").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes() + b"!")
    assert "was changed" in "\n".join(account(layout).problems)

    layout.grades("case").write_bytes(encoded({"plan": "x"}))
    assert "holds no grades" in "\n".join(account(layout).problems)


def test_without_a_plan_there_is_no_account(tmp_path: Path) -> None:
    with pytest.raises(TraincheckError, match="there is no plan"):
        account(Layout(tmp_path))
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(TraincheckError, match="is no plan"):
        account(Layout(tmp_path))
