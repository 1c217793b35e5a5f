"""Freezing a draft, and refusing when anything has changed since."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from tests.pilot.synthetic_pilot import case_folder, draft
from traincheck.cli import app
from traincheck.errors import TraincheckError
from traincheck.pilot import heads, planning
from traincheck.pilot.layout import Layout
from traincheck.pilot.planning import advice, deviations, state
from traincheck.pilot.planning.verifying import differences


@pytest.fixture
def frozen(tmp_path):
    """A plan of one case, written."""
    case_folder(tmp_path / "broken", "broken")
    plan = planning.freeze(planning.read_draft(draft(tmp_path, ["broken"], arms=["control", "optional"])), tmp_path)
    planning.write(plan, tmp_path, tmp_path / "out" / "plan.json")
    return plan


def test_a_plan_names_everything_it_rests_on(frozen):
    assert set(frozen.cases["broken"]) == {"case", "task", "workspace", "evaluator"}
    assert {"python", "torch", "inspect-ai", "traincheck"} <= set(frozen.versions)
    for value in (frozen.package, frozen.grader, frozen.manual, *frozen.cases["broken"].values()):
        assert len(value) == 64
    assert frozen.detectable["scopes"][0]["ratio"] is None  # one trial


def test_the_same_draft_gives_the_same_hash(frozen, tmp_path):
    again = planning.freeze(planning.read_draft(tmp_path / "draft.toml"), tmp_path)
    assert again.hash == frozen.hash
    other = planning.freeze(
        planning.read_draft(draft(tmp_path, ["broken"], arms=["control", "optional"], seed=2)), tmp_path
    )
    assert other.hash != frozen.hash


def test_a_written_plan_is_read_again_wherever_it_is_copied_to(frozen, tmp_path):
    held = planning.load(tmp_path / "out" / "plan.json")
    assert held.hash == frozen.hash
    assert held.folders == {"broken": "../broken"}
    planning.write(held, tmp_path / "out", tmp_path / "deep" / "er" / "plan.json")
    copied = planning.load(tmp_path / "deep" / "er" / "plan.json")
    assert copied.hash == frozen.hash
    assert planning.case_folders(copied, tmp_path / "deep" / "er")["broken"].case.name == "broken"
    assert planning.verify(copied, tmp_path / "deep" / "er") == {}


def test_a_plan_that_was_changed_is_refused(frozen, tmp_path):
    path = tmp_path / "out" / "plan.json"
    data = json.loads(path.read_text())
    data["draft"]["budgets"]["tokens"] += 1
    path.write_text(json.dumps(data))
    with pytest.raises(TraincheckError, match="changed after it was frozen"):
        planning.load(path)
    path.write_text("{}")
    with pytest.raises(TraincheckError, match="is no plan"):
        planning.load(path)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("task.md", "case broken: task"),
        ("workspace/train.py", "case broken: workspace"),
        ("private/oracles/fixed/train.py", "case broken: evaluator"),
        ("private/new.txt", "case broken: evaluator"),
        ("case.toml", "case broken: case"),
    ],
)
def test_a_change_of_a_case_is_refused_and_named(frozen, tmp_path, file, name):
    path = tmp_path / "broken" / file
    path.write_text((path.read_text() if path.exists() else "") + "\n# changed\n")
    with pytest.raises(TraincheckError, match=name) as caught:
        planning.verify(planning.load(tmp_path / "out" / "plan.json"), tmp_path / "out")
    assert frozen.hash[:12] in caught.value.message
    assert set(differences(planning.load(tmp_path / "out" / "plan.json"), tmp_path / "out")) == {name}


@pytest.mark.parametrize("what", ["package", "grader", "manual"])
def test_a_change_of_package_grader_or_manual_is_refused(frozen, tmp_path, monkeypatch, what):
    copy = tmp_path / "traincheck"
    shutil.copytree(state._package(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(state, "_package", lambda: copy)
    assert planning.verify(frozen, tmp_path) == {}
    if what == "manual":
        monkeypatch.setattr(state, "manual_hash", lambda: "0" * 64)
    else:
        path = copy / {"package": "files.py", "grader": "pilot/verdicts.py"}[what]
        path.write_text(path.read_text() + "\n")
    with pytest.raises(TraincheckError, match=f"{what} was "):
        planning.verify(frozen, tmp_path)


def test_a_change_of_a_version_is_refused(frozen, tmp_path, monkeypatch):
    real = state.versions
    monkeypatch.setattr(state, "versions", lambda modules: {**real(modules), "torch": "9.9"})
    with pytest.raises(TraincheckError, match=r"version of torch was .* and is 9\.9"):
        planning.verify(frozen, tmp_path)


def test_a_recorded_deviation_lets_just_that_change_through(frozen, tmp_path):
    layout = Layout(tmp_path / "out")
    path = tmp_path / "broken" / "task.md"
    path.write_text("another task\n")
    run = CliRunner().invoke(
        app, ["pilot", "deviation", str(layout.root), "--what", "case broken: task", "--why", "a typing error"]
    )
    assert run.exit_code == 0, run.output
    (held,) = deviations.load(layout.deviations)
    assert (held.what, held.why, held.trial, held.plan) == ("case broken: task", "a typing error", None, frozen.hash)
    assert list(heads.problems(layout.heads)) == []
    plan = planning.load(layout.plan)
    assert set(planning.verify(plan, layout.root, layout.deviations)) == {"case broken: task"}
    with pytest.raises(TraincheckError):  # without the ledger it is refused
        planning.verify(plan, layout.root)
    path.write_text("yet another task\n")  # what is recorded is one change, not leave to change
    with pytest.raises(TraincheckError, match="case broken: task"):
        planning.verify(plan, layout.root, layout.deviations)


def test_deviations_are_a_ledger_that_nobody_changes(frozen, tmp_path):
    path = tmp_path / "deviations.jsonl"
    assert deviations.load(path) == ()
    for why in ("one", "two"):
        deviations.record(path, deviations.Deviation(what="x", why=why))
    assert [held.why for held in deviations.load(path)] == ["one", "two"]
    path.write_text(path.read_text().replace('"one"', '"won"'))
    with pytest.raises(TraincheckError, match="was changed"):
        deviations.load(path)


def test_a_deviation_that_was_cut_off_is_missed(frozen, tmp_path):
    layout = Layout(tmp_path / "out")
    for why in ("one", "two"):
        words = ["pilot", "deviation", str(layout.root), "--what", "x", "--why", why]
        assert CliRunner().invoke(app, words).exit_code == 0
    layout.deviations.write_bytes(layout.deviations.read_bytes().splitlines(keepends=True)[0])
    assert list(heads.problems(layout.heads)) == [
        "deviations.jsonl: the ledger does not end with the recorded entry, it was cut off or went on"
    ]


def test_drafts_with_faults_are_refused(tmp_path):
    case_folder(tmp_path / "broken", "broken")
    for arms, more, told in (
        (["control", "control"], "", "control is there twice"),
        (["control"], 'turns = ["more?"]\n', "budgets.turns is 1"),
        (["control"], "colour = 1\n", "there is no such field"),
        ([], "", "there is none"),
    ):
        with pytest.raises(TraincheckError, match=told):
            planning.read_draft(draft(tmp_path, ["broken"], arms=arms, more=more))


def test_a_case_that_needs_more_devices_than_there_are_is_refused(tmp_path):
    case_folder(tmp_path / "broken", "broken")
    path = tmp_path / "broken" / "case.toml"
    path.write_text(path.read_text().replace("devices = 1", "devices = 4"))
    with pytest.raises(TraincheckError, match="takes 4 devices"):
        planning.freeze(planning.read_draft(draft(tmp_path, ["broken"], arms=["control"])), tmp_path)


def test_what_a_plan_lacks_is_said(frozen):
    assert advice.lacks(frozen) == [
        "1 trial of each case, arm and solver: fewer than 5.",
        "1 model: fewer than 2.",
        "No arm placebo: the effect of reading any manual is in that of reading ours.",
        "One case: nothing is learnt of others.",
    ]


def test_the_command_prints_the_order_and_what_can_be_shown(tmp_path):
    case_folder(tmp_path / "broken", "broken")
    path = draft(tmp_path, ["broken"], arms=["control", "optional"], trials=5)
    target = tmp_path / "plan.json"
    run = CliRunner().invoke(app, ["pilot", "plan", str(path), "-o", str(target)])
    assert run.exit_code == 0, run.output
    plan = planning.load(target)
    assert plan.hash in run.output
    assert all(trial.id in run.output for trial in plan.order)
    assert "5 trials an arm; detectable is" in run.output
    assert "note: 1 model: fewer than 2." in run.output
    assert "fewer than 5" not in run.output
    again = CliRunner().invoke(app, ["pilot", "plan", str(path), "-o", str(target)])
    assert again.exit_code == 2
    printed = CliRunner().invoke(app, ["pilot", "plan", str(path), "-o", str(target), "--force", "--json"])
    assert json.loads(printed.stdout)["hash"] == plan.hash
