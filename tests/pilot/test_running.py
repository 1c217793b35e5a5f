"""Running a plan: what it refuses, what an interrupted pilot keeps, what becomes of a trial that was cut off."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from traincheck.cli import app
from traincheck.errors import TraincheckError
from traincheck.pilot import events, running
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
arms = ["control", "optional"]
trials = 1
{more}
[budgets]
time_s = 60
working_time_s = 60
tokens = 100000
device_seconds = 30.0
[[solvers]]
name = "never-submits"
agent = "scripted"
model = "mockllm/model"
script = "never-submits"
"""


def frozen(tmp_path: Path, more: str = "") -> Path:
    shutil.copytree(CASES / "tiny-accumulation", tmp_path / "tiny")
    (tmp_path / "draft.toml").write_text(DRAFT.format(more=more))
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
    (tmp_path / "draft.toml").write_text(DRAFT.format(more="seed = 9"))
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
