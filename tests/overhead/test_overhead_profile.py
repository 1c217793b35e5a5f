"""The parts of a profile: books that balance, a self-test that catches miscounts, a witness that misses no own code."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from traincheck.cli.app import app
from traincheck.collect import recorder as recorders
from traincheck.errors import TraincheckError
from traincheck.overhead.policy import policy_of
from traincheck.overhead.profile import command, components, counts, page, result, windows
from traincheck.overhead.profile.components import (
    APPLICATION,
    DIGESTS,
    MODULES,
    OBSERVATION,
    STEPS,
    SYMBOLS,
    TIMED,
    WATCHING,
    WRITING,
)
from traincheck.overhead.profile.ledger import Ledger, span_cost
from traincheck.overhead.profile.selftest import burn, self_test
from traincheck.overhead.profile.witness import Witness


class Ticks:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def spend(self, ns: int) -> None:
        self.now += ns


def booked(ledger: Ledger) -> dict[str, int]:
    return {name: ns for name, ns in zip(TIMED, ledger.books().spent, strict=True) if ns}


# --- the ledger ------------------------------------------------------------------------------------------------------


def test_each_moment_is_paid_for_once() -> None:
    clock = Ticks()
    ledger = Ledger(clock)
    digest = ledger.timed(lambda: clock.spend(5), DIGESTS)

    def look() -> None:
        clock.spend(1)
        digest()
        clock.spend(2)

    began = ledger.begin()
    clock.spend(10)
    ledger.timed(look, OBSERVATION)()
    clock.spend(20)
    ended, books = ledger.end()
    assert booked(ledger) == {APPLICATION: 30, OBSERVATION: 3, DIGESTS: 5}
    assert sum(books.spent) == ended - began == 38


def test_a_component_that_calls_itself_is_one_span() -> None:
    clock = Ticks()
    ledger = Ledger(clock)
    inner = ledger.timed(lambda: clock.spend(5), DIGESTS)
    ledger.begin()
    ledger.timed(lambda: (clock.spend(1), inner()), DIGESTS)()
    _, books = ledger.end()
    assert booked(ledger) == {DIGESTS: 6}
    assert books.spans[TIMED.index(DIGESTS)] == 1


def test_what_raises_closes_its_span() -> None:
    clock = Ticks()
    ledger = Ledger(clock)

    def fail() -> None:
        clock.spend(3)
        raise KeyError("mine")

    ledger.begin()
    with pytest.raises(KeyError, match="mine"):
        ledger.timed(fail, STEPS)()
    clock.spend(4)
    ledger.end()
    assert booked(ledger) == {STEPS: 3, APPLICATION: 4}


def test_a_window_that_ends_inside_a_span_is_refused() -> None:
    ledger = Ledger(Ticks())
    ledger.begin()
    with pytest.raises(RuntimeError, match="application > step logic is open"):
        ledger.timed(ledger.end, STEPS)()


def test_code_of_an_unknown_module_is_the_applications() -> None:
    clock = Ticks()
    ledger = Ledger(clock)
    ledger.begin()
    exec(compile("spend(7)", "/somewhere/else.py", "exec"), {"spend": clock.spend})
    ledger.end()
    assert booked(ledger) == {APPLICATION: 7}
    assert components.module_of("/somewhere/else.py") is None


def test_threads_have_books_of_their_own() -> None:
    ledger = Ledger()
    busy = ledger.timed(lambda: burn(30), DIGESTS)
    began = ledger.begin()
    thread = threading.Thread(target=busy)
    thread.start()
    thread.join()
    ended, _ = ledger.end()
    assert DIGESTS not in booked(ledger)
    assert (ended - began) / 1e6 < 20
    assert ledger.others()[DIGESTS] == pytest.approx(0.030, abs=0.005)


def test_a_span_costs_something_and_not_much() -> None:
    cost = span_cost(Ledger(), repeats=5, calls=200)
    assert 0 < cost["inner_ns"] + cost["outer_ns"] < 50_000


# --- the self-test ---------------------------------------------------------------------------------------------------


def test_self_test_counts_what_was_burnt() -> None:
    found = self_test(Ledger())
    assert found["booked_ms"] == pytest.approx(found["burnt_ms"], rel=0.1, abs=1)
    assert found["other_thread_ms"] >= 10
    assert found["process_ms"] >= found["window_ms"]


def test_self_test_catches_a_clock_that_counts_other_threads() -> None:
    with pytest.raises(RuntimeError, match=r"test of itself failed: .*the window: 90 ms were burnt"):
        self_test(Ledger(time.process_time_ns))


def test_self_test_catches_time_charged_to_another_component() -> None:
    class Wrong(Ledger):
        def timed(self, function: Callable[..., Any], component: str) -> Callable[..., Any]:
            return super().timed(function, SYMBOLS if component == DIGESTS else component)

    with pytest.raises(RuntimeError, match=r"state digests: 40 ms were burnt, the books say 0\.0.*interning: nothing"):
        self_test(Wrong())


def test_self_test_catches_spans_that_are_counted_twice() -> None:
    class Twice(Ledger):
        def end(self) -> Any:
            now, books = super().end()
            books.spent[TIMED.index(DIGESTS)] *= 2
            return now, books

    with pytest.raises(RuntimeError, match=r"the parts are .* ms, the window"):
        self_test(Twice())


# --- completeness ----------------------------------------------------------------------------------------------------


def test_every_module_of_collect_is_in_a_component() -> None:
    assert components.unlisted() == []
    assert set(MODULES.values()) <= set(WATCHING)
    assert set(TIMED) <= {APPLICATION, *WATCHING}


def test_a_module_in_no_component_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(MODULES, "collect.steps")
    with pytest.raises(LookupError, match=r"no component is known for collect\.steps: add"):
        Ledger().install()


@pytest.fixture
def installed() -> Iterator[Ledger]:
    ledger = Ledger()
    try:
        ledger.install()
        yield ledger
    finally:
        ledger.remove()


def test_all_entrances_exist_and_come_off_again() -> None:
    before = vars(recorders.Recorder)["states"]
    ledger = Ledger()
    ledger.install()
    assert vars(recorders.Recorder)["states"] is not before
    ledger.remove()
    assert vars(recorders.Recorder)["states"] is before


def test_an_entrance_that_is_gone_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(components.ENTRANCES, "collect.symbols", {SYMBOLS: ("Symbols.shout",)})
    ledger = Ledger()
    try:
        with pytest.raises(LookupError, match=r"there is no traincheck\.collect\.symbols\.Symbols\.shout"):
            ledger.install()
    finally:
        ledger.remove()


def test_the_witness_names_own_code_that_no_entrance_leads_to(tmp_path: Path, installed: Ledger) -> None:
    from traincheck.collect.digests import unreadable
    from traincheck.collect.steps import StepTracker

    recorder = recorders.Recorder(str(tmp_path))
    try:
        tracker = StepTracker(recorder)
        witness = Witness(installed)
        installed.begin()
        witness.begin()
        recorder.mark(recorders.Mark.NOTE, "timed")
        assert callable(unreadable)
        tracker.backward_begins()  # a hook calls it, and hooks are timed: called like this it is not
        installed.timed(tracker.backward_begins, OBSERVATION)()
        witness.end()
        installed.end()
    finally:
        recorder.close()
    assert witness.seen > 2
    assert witness.faults["collect.steps.backward_begins (step logic) is taken for the application's"] == 1
    assert witness.faults["collect.steps.backward_begins (step logic) is paid for by observation logic"] == 1
    assert not any("recorder.mark" in fault for fault in witness.faults)


def test_the_witness_names_own_code_in_no_component() -> None:
    ledger = Ledger()
    witness = Witness(ledger, lambda file: "collect.brand_new" if file == "/new.py" else None)
    scope: dict[str, Any] = {}
    exec(compile("def work(): pass", "/new.py", "exec"), scope)
    witness.begin()
    scope["work"]()
    witness.end()
    assert list(witness.faults) == ["collect.brand_new.work is in no component"]


# --- windows and sums ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "every"), [(3, 1), (24, 1), (12, 10)])
def test_sides_take_turns_and_have_as_many_steps(steps: int, every: int) -> None:
    kinds = windows.plan(steps, 3, every)
    assert kinds[:2] == [windows.WARM] * 2
    assert kinds[-every:] == [windows.WITNESSED] * every
    assert kinds.count(windows.ON) == kinds.count(windows.OFF) >= steps
    runs = [(kind, len(list(group))) for kind, group in itertools.groupby(kinds) if kind in (windows.ON, windows.OFF)]
    assert {length for _, length in runs} == {max(3, every)}
    assert [kind for kind, _ in runs][:4] == [windows.OFF, windows.ON, windows.ON, windows.OFF]
    assert all(windows.watched(kind) == (not kind.startswith("off")) for kind in kinds)


class Counted:
    """Stands for the trace of a run in which each watched step has the same records."""

    def window(self, first: int, end: int) -> dict[str, Any]:
        on = end > first
        return {
            "records": end - first,
            "calls": {"python": 10 * on, "builtin": 5 * on},
            "captures": {"tensor": 20} if on else {},
            "states": 4 * on,
            "segments": int(on),
            "other_threads": 0,
        }


def told(unexplained_us: int = 0) -> dict[str, Any]:
    """What a run of microseconds would have told: 1,000 of application and 100 of digests a step."""
    rows = []
    for kind in windows.plan(6, 2):
        on = windows.watched(kind)
        spent = dict.fromkeys(TIMED, 0) | {APPLICATION: 1_000_000}
        if on:
            spent[DIGESTS] = 100_000 + 3 * 1000
            # calls 15 x 100, hooks 3 x 50, captures 20 x 200, a segment, what entering three spans costs its caller
            spent[APPLICATION] += 1500 + 150 + 4000 + 10_000 + 3 * 500 + unexplained_us * 1000
        rows.append(
            {
                "kind": kind,
                "records": [0, 40 if on else 0],
                "spent_ns": list(spent.values()),
                "spans": [0, 0, 3 * on, 0, 0, 0, 0],
                "left": [3 * on, 0, 0, 0, 0, 0, 0],
                "thread_ns": sum(spent.values()),
                "process_ns": sum(spent.values()) + 7000,
                "wall_ns": 2_000_000,
            }
        )
    figure = {"least": 0.0, "most": 0.0}
    return {
        "windows": rows,
        "span": {"inner_ns": 1000, "outer_ns": 500},
        "calibration": {
            "call": {kind: {"ns": 100, **figure} for kind in ("python", "builtin")},
            "capture": {"tensor": {"ns": 200, **figure}, "none": {"ns": 10, **figure}},
            "hook": {"ns": 50, **figure},
            "segment": {"ns": 10_000, "records": 1000, **figure},
        },
        "installation": {"thread_s": 0.1, "process_s": 0.1},
        "background_s": {},
        "self_test": {"other_thread_ms": 100.0},
        "witness": {"steps": 1, "calls": 12, "faults": {}},
    }


def summarized(run: dict[str, Any]) -> dict[str, Any]:
    return result.summarize(run, told(), Counted(), sampled=False)  # type: ignore[arg-type]


def test_all_parts_add_up_to_the_window() -> None:
    found = summarized(told())
    parts = {part["component"]: part["ms"] for part in found["parts"]}
    assert list(parts) == [*WATCHING, result.PROFILER, result.UNATTRIBUTED, APPLICATION]
    assert sum(parts.values()) == pytest.approx(found["window_ms"])
    assert parts[DIGESTS] == pytest.approx(0.1)
    assert parts["probe"] == pytest.approx(0.00165)
    assert parts["captures"] == pytest.approx(0.004)
    assert parts[WRITING] == pytest.approx(0.01)
    assert parts[result.PROFILER] == pytest.approx(0.0045)
    assert parts[APPLICATION] == pytest.approx(1.0)
    assert parts[result.UNATTRIBUTED] == pytest.approx(0.0, abs=1e-9)
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(1)
    assert found["reconciles"]
    assert found["faults"] == []


def test_too_much_unattributed_does_not_reconcile() -> None:
    assert summarized(told(unexplained_us=40))["reconciles"]
    found = summarized(told(unexplained_us=80))
    assert not found["reconciles"]
    assert "0.080 ms of the window of 1.200 ms are unattributed, 6.7%: more than 5%" in found["faults"][0]


def test_books_that_do_not_balance_do_not_reconcile() -> None:
    run = told()
    run["windows"][3]["spent_ns"][0] += 5
    found = summarized(run)
    assert found["faults"] == ["step 4: the parts are 5 ns more than the window"]


def test_an_unwatched_step_that_was_watched_does_not_reconcile() -> None:
    run = told()
    step = next(number for number, row in enumerate(run["windows"], 1) if row["kind"] == windows.OFF)
    run["windows"][step - 1]["records"] = [0, 40]
    assert summarized(run)["faults"] == [f"step {step} was to be unwatched, and was watched"]


def test_what_the_witness_saw_does_not_reconcile() -> None:
    run = told()
    run["witness"]["faults"] = {"collect.new.work is in no component": 3}
    assert summarized(run)["faults"] == ["TrainCheck's own collect.new.work is in no component: 3 calls"]


# --- what can't be profiled ------------------------------------------------------------------------------------------


def policy(**workload: Any) -> Any:
    modes = [{"name": "full", "kind": "full"}, {"name": "old", "kind": "peer-api"}, {"name": "live", "kind": "live"}]
    given = {"schema": 1, "name": "mine", "workload": {"name": "digits-cnn", **workload}, "modes": modes}
    return policy_of(given, "mine.toml")


def test_modes_of_our_own_are_chosen_by_themselves() -> None:
    assert [mode.name for mode in command.choose(policy(), ()).modes] == ["full"]


@pytest.mark.parametrize(("name", "why"), [("old", "peer-api"), ("live", "live"), ("none", "no mode 'none'")])
def test_other_modes_are_refused(name: str, why: str) -> None:
    with pytest.raises(TraincheckError, match=why):
        command.choose(policy(), (name,))


def test_several_ranks_are_refused() -> None:
    with pytest.raises(TraincheckError, match="of one process, mine trains with 2"):
        command.choose(policy(ranks=2), ())


# --- the whole command -----------------------------------------------------------------------------------------------

STUDY = Path(__file__).parents[2] / "studies" / "digits-cnn.toml"
MODE_KEYS = {
    "mode", "kind", "steps", "evidence_equal", "reconciles", "faults", "window_ms", "parts", "tolerance_ms",
    "profiled", "unprofiled", "expansion", "counts", "calibration", "installation", "background_s", "self_test",
    "witness",
}  # fmt: skip
KEYS = {
    "schema", "study", "workload", "policy_file", "policy_sha256", "traincheck", "source", "began_ns", "ended_ns",
    "machine", "load", "python", "torch", "seed", "threads", "invariants", "tolerance", "reconciles", "modes",
}  # fmt: skip


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], int]:
    """The digits workload in full mode: folder, the JSON printed, exit code."""
    folder = tmp_path_factory.mktemp("profile") / "out"
    words = ["overhead", "profile", str(STUDY), "--mode", "full", "--steps", "18", "-o", str(folder), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code in (0, 3), done.output
    return folder, json.loads(done.stdout), done.exit_code


def test_digits_reconcile(profiled: tuple[Path, dict[str, Any], int]) -> None:
    _, found, code = profiled
    (mode,) = found["modes"]
    parts = {part["component"]: part for part in mode["parts"]}
    assert sum(part["ms"] for part in parts.values()) == pytest.approx(mode["window_ms"])
    # Everything that is exact must hold; how much is unattributed depends on who else uses the machine.
    assert [fault for fault in mode["faults"] if "unattributed" not in fault] == []
    assert abs(parts[result.UNATTRIBUTED]["share"]) < 0.3
    assert code == (0 if mode["reconciles"] else 3)
    assert parts[APPLICATION]["share"] > 0.5
    for name in (DIGESTS, OBSERVATION, WRITING, STEPS, "probe", "captures", result.PROFILER):
        assert parts[name]["ms"] > 0, name
    assert mode["evidence_equal"]
    assert mode["witness"]["calls"] > 100


def test_counts_are_those_of_the_trace(profiled: tuple[Path, dict[str, Any], int]) -> None:
    folder, found, _ = profiled
    run = folder / "runs" / "full.profiled"
    inside = json.loads((run / "profile.json").read_text())
    row = next(row for row in inside["windows"] if row["kind"] == windows.ON)
    process = run / "trace" / "processes" / inside["process"]
    seen = counts.Recorded(process, inside["ident"], 1 << 30).window(*row["records"])
    assert sum(seen["calls"].values()) == pytest.approx(sum(found["modes"][0]["counts"]["calls"].values()), rel=0.2)
    assert seen["states"] > 50
    with pytest.raises(TraincheckError, match="training thread is not to be found"):
        counts.Recorded(process, -1, 1 << 30)


def test_the_json_keeps_its_form(profiled: tuple[Path, dict[str, Any], int]) -> None:
    folder, found, _ = profiled
    assert set(found) == KEYS
    assert set(found["modes"][0]) == MODE_KEYS
    assert {frozenset(part) for part in found["modes"][0]["parts"]} == {
        frozenset({"component", "ms", "least_ms", "most_ms", "share", "how", "about"})
    }
    assert found == json.loads((folder / command.PROFILE).read_text())


def test_the_page_promises_nothing(profiled: tuple[Path, dict[str, Any], int]) -> None:
    folder, found, _ = profiled
    text = (folder / command.PAGE).read_text()
    assert "not what leaving a part out would save" in text
    for row in page.rows(found["modes"][0]):
        assert row[0] in text
    assert "speed-up" not in text


def test_an_earlier_profile_is_not_overwritten(profiled: tuple[Path, dict[str, Any], int]) -> None:
    folder, _, _ = profiled
    done = CliRunner().invoke(app, ["overhead", "profile", str(STUDY), "-o", str(folder)])
    assert done.exit_code != 0
