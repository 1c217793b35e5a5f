"""Running a plan: what it refuses, what an interrupted pilot keeps, what becomes of a trial that was cut off."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from traincheck.cli import app
from traincheck.errors import TraincheckError
from traincheck.pilot import events, jail, running
from traincheck.pilot.inspecting.solvers import RECOVERIES
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Ledger, read
from traincheck.pilot.plan import Plan
from traincheck.pilot.planning import deviations, freeze, load, read_draft, write
from traincheck.pilot.sources import Objects

from .places_support import CASES

DRAFT = """
schema = 1
name = "small"
cases = ["tiny"]
arms = {arms}
trials = 1
{more}
[budgets]
time_s = {time_s}
working_time_s = {working_time_s}
tokens = {tokens}
device_seconds = {device_seconds}
[[solvers]]
name = "agent"
{solver}
"""
SCRIPTED = 'agent = "scripted"\nmodel = "mockllm/model"\nscript = "{script}"'

GIVEN = {
    "arms": '["control", "optional"]', "more": "", "time_s": 60, "working_time_s": 60, "tokens": 100000,
    "device_seconds": 30.0, "script": "never-submits",
}  # fmt: skip


def drafted(**given: Any) -> str:
    values = {**GIVEN, **given}
    solver = values.pop("solver", SCRIPTED.format(script=values.pop("script")))
    return DRAFT.format(solver=solver, **values)


def frozen(tmp_path: Path, change: Callable[[Path], None] = lambda case: None, **given: Any) -> Path:
    shutil.copytree(CASES / "tiny-accumulation", tmp_path / "tiny")
    change(tmp_path / "tiny")
    (tmp_path / "draft.toml").write_text(drafted(**given))
    write(freeze(read_draft(tmp_path / "draft.toml"), tmp_path), tmp_path, tmp_path / "plan.json")
    return tmp_path / "plan.json"


def begun(layout: Layout, plan: Plan, trial: str, *more: events.Event) -> None:
    """A trial's ledger as far as it came."""
    planned = plan.trial(trial)
    layout.trial(trial).mkdir(parents=True)
    opened = events.Opened(
        trial=trial, plan=plan.hash, case=planned.case, arm=planned.arm, solver=planned.solver, packet="a" * 64,
        sandbox="jail",
    )  # fmt: skip
    with Ledger(layout.ledger(trial)) as ledger:
        for event in (opened, events.Submitted(number=0, source="a" * 64), *more):
            ledger.add(events.kind_of(event), events.data_of(event))


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("tiny/workspace/train.py", "case tiny-accumulation: workspace"),
        ("tiny/private/oracles/fixed/train.py", "case tiny-accumulation: evaluator"),
        ("tiny/task.md", "case tiny-accumulation: task"),
        ("tiny/case.toml", "case tiny-accumulation: case"),
    ],
)
def test_refuses_when_a_case_is_not_as_frozen(tmp_path: Path, path: str, named: str) -> None:
    plan = frozen(tmp_path)
    with (tmp_path / path).open("a") as file:
        file.write("\n")
    with pytest.raises(TraincheckError, match=named):
        running.prepare(plan, tmp_path / "out", resume=False)
    assert not (tmp_path / "out").exists()


def test_refuses_when_the_package_is_not_as_frozen(tmp_path: Path) -> None:
    plan = frozen(tmp_path)
    data: dict[str, Any] = json.loads(plan.read_text())
    del data["hash"]
    other = Plan.model_validate({**data, "package": "0" * 64, "grader": "1" * 64})
    write(other, tmp_path, plan)
    with pytest.raises(TraincheckError, match=r"package was 000000000000.*grader was 111111111111"):
        running.prepare(plan, tmp_path / "out", resume=False)


def test_refuses_a_folder_with_something_else(tmp_path: Path) -> None:
    plan = frozen(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(TraincheckError, match="no pilot"):
        running.prepare(plan, tmp_path / "out", resume=False)
    with pytest.raises(TraincheckError, match="no pilot to go on with"):
        running.prepare(plan, tmp_path / "new", resume=True)
    with pytest.raises(TraincheckError, match="no trial t-none"):
        running.prepare(plan, tmp_path / "new", resume=False, only=["t-none"])


def test_a_pilot_is_gone_on_with_only_by_its_own_plan(tmp_path: Path) -> None:
    plan = frozen(tmp_path)
    running.prepare(plan, tmp_path / "out", resume=False)
    with pytest.raises(TraincheckError, match="there is a pilot in"):
        running.prepare(plan, tmp_path / "out", resume=False)
    assert running.prepare(plan, tmp_path / "out", resume=True).plan == load(plan)
    (tmp_path / "draft.toml").write_text(drafted(more="seed = 9"))
    write(freeze(read_draft(tmp_path / "draft.toml"), tmp_path), tmp_path, tmp_path / "other.json")
    with pytest.raises(TraincheckError, match="holds a pilot of plan"):
        running.prepare(tmp_path / "other.json", tmp_path / "out", resume=True)


def test_a_trial_that_was_cut_off_is_closed_as_such_and_not_run_again(tmp_path: Path) -> None:
    pilot = running.prepare(frozen(tmp_path), tmp_path / "out", resume=False)
    cut, done = (trial.id for trial in pilot.plan.order)
    begun(pilot.layout, pilot.plan, cut)
    begun(pilot.layout, pilot.plan, done, events.Closed(reason="finished", final="a" * 64, devices_held=0))
    work = pilot.layout.trial(cut) / "place" / "work"
    shutil.copytree(tmp_path / "tiny" / "workspace", work)
    (work / "train.py").write_text("half a repair\n")
    before = pilot.layout.ledger(done).read_bytes()
    summary = pilot.run()

    assert [(row["trial"], row["closed"]) for row in summary["trials"]] == [(cut, "interrupted"), (done, "finished")]
    assert pilot.layout.ledger(done).read_bytes() == before
    *_, last = read(pilot.layout.ledger(cut))
    left = Objects(pilot.layout.store).get_map(last.data["final"])
    assert left.entries["train.py"].size == len("half a repair\n")
    (told,) = deviations.load(pilot.layout.deviations)
    assert (told.what, told.trial) == ("a trial was cut off", cut)
    heads = json.loads(pilot.layout.heads.read_text())
    assert heads[f"trials/{cut}/ledger.jsonl"] == last.hash
    assert "device.jsonl" in heads


def test_trials_out_of_their_order_are_a_deviation(tmp_path: Path) -> None:
    pilot = running.prepare(frozen(tmp_path), tmp_path / "out", resume=False)
    first, second = (trial.id for trial in pilot.plan.order)
    pilot._say_what_is_otherwise([first])
    assert deviations.load(pilot.layout.deviations) == ()
    pilot._say_what_is_otherwise([second])
    (told,) = deviations.load(pilot.layout.deviations)
    assert told.what == "trials were run out of their order"


def test_a_place_without_isolation_is_a_deviation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "available", lambda: jail.Support(False, "no namespaces"))
    pilot = running.prepare(frozen(tmp_path), tmp_path / "out", resume=False)
    pilot._say_what_is_otherwise([trial.id for trial in pilot.plan.order])
    (told,) = deviations.load(pilot.layout.deviations)
    assert "NO ISOLATION" in told.why


@pytest.mark.slow
def test_a_finished_pilot_that_is_gone_on_with_stays_as_it_is(tmp_path: Path) -> None:
    plan = frozen(tmp_path)
    result = CliRunner().invoke(app, ["pilot", "run", str(plan), "-o", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["trials"]
    assert [row["closed"] for row in rows] == ["finished", "finished"]
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("ledger.jsonl")}
    again = CliRunner().invoke(app, ["pilot", "run", str(plan), "-o", str(tmp_path / "out"), "--resume", "--json"])
    assert again.exit_code == 0, again.output
    assert before == {path: path.read_bytes() for path in (tmp_path / "out").rglob("ledger.jsonl")}


@pytest.mark.slow
@pytest.mark.skipif(not jail.available().ok, reason="without a jail every audit tells leaks, and trials go on")
def test_a_trial_whose_packet_leaks_is_not_begun(tmp_path: Path) -> None:
    def leaking(case: Path) -> None:
        with (case / "workspace" / "README.md").open("a") as file:
            file.write("\ntraincheck-canary-tiny-accumulation-c41d7e0a92f8\n")

    plan = frozen(tmp_path, change=leaking)
    result = CliRunner().invoke(app, ["pilot", "run", str(plan), "-o", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 3, result.output
    for row in json.loads(result.stdout)["trials"]:
        assert row["closed"] == "interrupted"
        assert row["leaks"] == ["work/README.md: the canary of case tiny-accumulation"]
        assert "is not begun" in row["failure"]
        kinds = [entry.kind for entry in read(Layout(tmp_path / "out").ledger(row["trial"]))]
        assert kinds == ["opened", "audited", "submitted", "closed"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "named"),
    [
        ('agent = "react"\nmodel = "nowhere/model"', "model 'nowhere/model' of solver agent can't be had"),
        ('agent = "codex_cli"\nmodel = "mockllm/model"', "needs the program 'codex'"),
    ],
)
def test_what_can_be_known_to_be_missing_leaves_a_trial_not_begun(tmp_path: Path, solver: str, named: str) -> None:
    plan = frozen(tmp_path, solver=solver, arms='["control"]')
    result = CliRunner().invoke(app, ["pilot", "run", str(plan), "-o", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 3, result.output
    (row,) = json.loads(result.stdout)["trials"]
    assert named in row["failure"]
    assert running.state_of(Layout(tmp_path / "out"), row["trial"]) == "not_begun"


LIMITS = {
    "tokens": ("dies-and-never-ends", {"tokens": 2000}),
    "time": ("holds-devices", {"time_s": 4}),
    "working_time": ("sleeps", {"working_time_s": 4, "time_s": 120}),
    "device_seconds": ("holds-devices", {"device_seconds": 2.0}),
}


@pytest.mark.slow
@pytest.mark.parametrize("budget", LIMITS)
def test_a_budget_that_is_used_up_ends_the_trial(tmp_path: Path, budget: str) -> None:
    script, changes = LIMITS[budget]
    plan = frozen(tmp_path, script=script, arms='["control"]', **changes)
    result = CliRunner().invoke(app, ["pilot", "run", str(plan), "-o", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["trials"]
    assert row["closed"] == "limit"
    entries = list(read(Layout(tmp_path / "out").ledger(row["trial"])))
    assert [entry.data["budget"] for entry in entries if entry.kind == "limit_reached"] == [budget]
    assert entries[-1].data["devices_held"] == 0
    begun_ns = next(entry.at_ns for entry in entries if entry.kind == "turn_started")
    reached_ns = next(entry.at_ns for entry in entries if entry.kind == "limit_reached")
    assert (reached_ns - begun_ns) / 1e9 < 25  # a command of 30 s was not waited for
    if budget == "tokens":  # a recovery gave it no more of them
        assert [entry.data["recovers"] for entry in entries if entry.kind == "solver_failed"] == [True]
        spent = [
            sum(entry.data["tokens"][name] for name in ("input", "cached_input", "output"))
            for entry in entries
            if entry.kind == "model_answered"
        ]
        assert sum(spent[:-1]) <= 2000 < sum(spent)
    device = list(read(Layout(tmp_path / "out").device))
    assert device[-1].data == {"held": 0}


@pytest.mark.slow
def test_a_solver_that_can_not_recover_is_told_as_such(tmp_path: Path) -> None:
    plan = frozen(tmp_path, script="dies-for-good", arms='["control"]')
    result = CliRunner().invoke(app, ["pilot", "run", str(plan), "-o", str(tmp_path / "out"), "--json"])
    (row,) = json.loads(result.stdout)["trials"]
    assert row["closed"] == "solver_failed"
    entries = list(read(Layout(tmp_path / "out").ledger(row["trial"])))
    failures = [entry.data["recovers"] for entry in entries if entry.kind == "solver_failed"]
    assert failures == [True] * RECOVERIES + [False]
    assert [entry.data["reason"] for entry in entries if entry.kind == "suspended"] == ["transport"]


@pytest.mark.slow
def test_an_interrupted_pilot_leaves_nothing_running_and_is_gone_on_with(tmp_path: Path) -> None:
    plan = frozen(tmp_path, script="sleeps", arms='["control"]', time_s=60, working_time_s=60)
    layout = Layout(tmp_path / "out")
    name = load(plan).order[0].id
    command = [sys.executable, "-c", "from traincheck.cli import main; main()", "pilot", "run", str(plan)]
    process = subprocess.Popen([*command, "-o", str(layout.root)], stderr=subprocess.PIPE)
    until = time.monotonic() + 90
    while time.monotonic() < until:
        path = layout.ledger(name)
        if path.exists() and "tool_called" in path.read_text():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    time.sleep(1)
    mine = str(layout.root).encode()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mine in _content(path)]
    assert left == []
    assert [entry.kind for entry in read(layout.device)][-1] == "service_stopped"
    # The same command with --resume closes it as what it is, and does not run it again.
    again = CliRunner().invoke(app, ["pilot", "run", str(plan), "-o", str(layout.root), "--resume", "--json"])
    assert again.exit_code == 3, again.output
    (row,) = json.loads(again.stdout)["trials"]
    assert row["closed"] == "interrupted"
    assert deviations.load(layout.deviations)[0].what == "a trial was cut off"


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
