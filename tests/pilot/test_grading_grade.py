"""Grading a case: after all trials, every distinct source in every scenario, counted, resumable, and replayed again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.pilot import closed_pilot, fake_training
from traincheck.cli.app import app
from traincheck.errors import TraincheckError
from traincheck.pilot import heads
from traincheck.pilot.grading.grade import grade
from traincheck.pilot.grading.running import asked, device_seconds, open_leases
from traincheck.pilot.ledger import read
from traincheck.pilot.planning import deviations
from traincheck.pilot.sources import SourceError
from traincheck.pilot.verdicts import CaseGrade

SUBMITTED = {0: ["wrong", "right", "right"], 1: ["killed", "wrong", "right", "designated"]}


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CaseGrade]:
    """Two trials, four distinct sources, graded."""
    folder = tmp_path_factory.mktemp("graded")
    layout, _ = closed_pilot.closed(folder, SUBMITTED)
    (found,) = grade(layout.root)
    return folder, found


def test_every_distinct_source_runs_in_every_scenario_and_counts_add_up(pilot: tuple[Path, CaseGrade]) -> None:
    _, found = pilot
    assert found.valid, found.problems
    assert len(found.sources) == 4  # of 9 occurrences
    assert {len(replays) for replays in found.sources.values()} == {3}
    assert found.counts == {"correct": 5, "incorrect": 3, "expected_failure": 1, "unknown": 3}
    assert sum(found.counts.values()) == len(found.sources) * 3


def test_verdicts_of_sources(pilot: tuple[Path, CaseGrade], tmp_path: Path) -> None:
    folder, found = pilot
    layout = closed_pilot.Layout(folder / "pilot")
    verdicts = {}
    for behaviour in ("designated", "wrong", "right", "killed"):
        replays = found.sources[closed_pilot.source(folder, layout, behaviour)]
        verdicts[behaviour] = [replays[name].verdict for name in ("base", "other", "faulty")]
    assert verdicts == {
        "designated": ["correct", "correct", "expected_failure"],
        "wrong": ["incorrect"] * 3,
        "right": ["correct"] * 3,
        "killed": ["unknown"] * 3,
    }


def test_occurrences_are_kept_apart_from_sources(pilot: tuple[Path, CaseGrade]) -> None:
    folder, found = pilot
    plan = closed_pilot.planning.load(folder / "pilot" / "plan.json")
    first, second = (found.trials[one.id] for one in plan.order)
    assert [one.verdict for one in first.occurrences] == ["incorrect", "incorrect", "correct", "correct"]
    assert (first.distinct, first.first_valid.status, first.first_valid.number) == (3, "proven", 2)
    assert (first.final.number, first.final.verdict) == (3, "correct")
    assert [one.verdict for one in second.occurrences] == ["incorrect", "unknown", "incorrect", "correct", "incorrect"]
    assert (second.first_valid.status, second.first_valid.earliest, second.first_valid.latest) == ("bounded", 1, 3)
    assert (second.final.number, second.final.verdict) == (4, "incorrect")  # the initial source again, judged alone


def test_grading_has_a_ledger_of_its_own(pilot: tuple[Path, CaseGrade]) -> None:
    folder, found = pilot
    layout = closed_pilot.Layout(folder / "pilot")
    requests = asked(layout.grading_device)
    attempts = sum(len(one.attempts) for replays in found.sources.values() for one in replays.values())
    assert attempts == 4 * 3 + 3  # one source is unknown for a reason of the machine: twice in each scenario
    assert len(requests) == attempts + 3  # and one replay of the oracle in each
    assert {entry.data["purpose"] for entry in read(layout.grading_device) if entry.kind == "asked"} == {"grading"}
    assert device_seconds(layout.grading_device) > 0
    assert not layout.device.exists()
    assert list(heads.problems(layout.heads)) == []


def test_grading_again_runs_nothing_and_says_the_same(pilot: tuple[Path, CaseGrade]) -> None:
    folder, found = pilot
    layout = closed_pilot.Layout(folder / "pilot")
    before = asked(layout.grading_device)
    assert grade(layout.root) == (found,)
    assert asked(layout.grading_device) == before
    assert CaseGrade.model_validate_json(layout.grades("fake").read_bytes()) == found


def test_a_fault_in_collecting_is_mended_without_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots, evaluator and plan are as they were; that the grader's code is another one is a deviation."""
    layout, _ = closed_pilot.closed(tmp_path, {0: ["right"]})
    before = grade(layout.root)
    requests = asked(layout.grading_device)
    layout.grades("fake").write_text("{}")  # what the faulty collector had made of it
    monkeypatch.setattr("traincheck.pilot.planning.state.grader_hash", lambda: "f" * 64)
    with pytest.raises(TraincheckError, match="grader was"):
        grade(layout.root)
    deviations.record(
        layout.deviations,
        deviations.Deviation(what="grader", why="final submissions were joined wrongly", found="f" * 64),
    )
    assert grade(layout.root) == before
    assert CaseGrade.model_validate_json(layout.grades("fake").read_bytes()) == before[0]
    assert asked(layout.grading_device) == requests


def test_replays_run_side_by_side_as_devices_allow(pilot: tuple[Path, CaseGrade]) -> None:
    """Two devices, one for each replay: never more than both, and both at once at some time."""
    folder, _ = pilot
    held: dict[str, list[int]] = {}
    most = 0
    for entry in read(folder / "pilot" / "grading" / "device.jsonl"):
        if entry.kind == "granted":
            held[entry.data["request"]] = entry.data["devices"]
            given = [device for devices in held.values() for device in devices]
            assert len(given) == len(set(given))
            most = max(most, len(given))
        elif entry.kind == "released":
            del held[entry.data["request"]]
    assert most == 2
    assert not held


def test_an_interrupted_grading_goes_on_where_it_was(tmp_path: Path) -> None:
    """Ctrl-C: what runs is ended and accounted for, what was done is kept, the same command finishes."""
    layout, _ = closed_pilot.closed(tmp_path, {0: ["right", "late"]})
    command = [sys.executable, "-m", "traincheck", "pilot", "grade", str(layout.root)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    late = time.monotonic() + 100
    while not list(layout.grading.rglob("verdict.json")) and time.monotonic() < late:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in told
    assert open_leases(layout.grading_device) == ()
    assert list(heads.problems(layout.heads)) == []
    done = {path: path.read_bytes() for path in layout.grading.rglob("verdict.json")}
    assert done
    (found,) = grade(layout.root)
    assert sum(found.counts.values()) == 9
    assert {path: path.read_bytes() for path in done} == done


def test_counts_again_from_the_files_of_the_attempts(pilot: tuple[Path, CaseGrade]) -> None:
    """Without the grader's models: folders and JSON alone."""
    folder, found = pilot
    initial = closed_pilot.planning.load(folder / "pilot" / "plan.json").cases["fake"]["workspace"]
    counts = dict.fromkeys(("correct", "incorrect", "expected_failure", "unknown"), 0)
    for scenario in (folder / "pilot" / "grading" / "fake").glob("[0-9a-f]*/*"):
        last = sorted(scenario.glob("attempt-*/verdict.json"))[-1]
        verdict = json.loads(last.read_text())["attempt"]["verdict"]
        if (scenario.parent.name, scenario.name, verdict) == (initial, "faulty", "incorrect"):
            verdict = "expected_failure"
        counts[verdict] += 1
    assert counts == found.counts


def test_a_published_source_runs_again(pilot: tuple[Path, CaseGrade], tmp_path: Path) -> None:
    """From the map in the store alone; the pilot's folder stays as it is."""
    folder, _ = pilot
    layout = closed_pilot.Layout(folder / "pilot")
    right, wrong = (closed_pilot.source(folder, layout, behaviour) for behaviour in ("right", "wrong"))
    before = sorted(path for path in layout.root.rglob("*"))
    run = CliRunner().invoke(
        app, ["pilot", "replay", str(layout.root), right[:16], "-o", str(tmp_path / "r"), "--json"]
    )
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert told["source"] == right
    assert {name: one["verdict"] for name, one in told["replays"].items()} == told["graded_before"]
    arguments = ["pilot", "replay", str(layout.root), wrong, "--scenario", "faulty", "-o", str(tmp_path / "w")]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 3
    assert "incorrect" in run.output
    assert sorted(path for path in layout.root.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0" * 64], "has no source"),
        (["", "--case", "fake"], "sources begin with"),
        (["{right}", "--scenario", "x"], "no scenario"),
        (["{right}", "--case", "x"], "no case"),
    ],
)
def test_a_source_or_scenario_that_is_not_there_is_named(
    pilot: tuple[Path, CaseGrade], tmp_path: Path, arguments: list[str], said: str
) -> None:
    folder, _ = pilot
    layout = closed_pilot.Layout(folder / "pilot")
    right = closed_pilot.source(folder, layout, "right")
    words = [word.replace("{right}", right) for word in arguments]
    run = CliRunner().invoke(app, ["pilot", "replay", str(layout.root), *words, "-o", str(tmp_path / "out")])
    assert run.exit_code == 2
    assert said in run.output


def test_grading_waits_for_all_trials_of_the_case(tmp_path: Path) -> None:
    layout, plan = closed_pilot.frozen(tmp_path)
    first, second = (one.id for one in plan.order)
    closed_pilot.trial(tmp_path, layout, plan, first, ["right"])
    with pytest.raises(TraincheckError, match=f"{second} has not been run"):
        grade(layout.root)
    closed_pilot.trial(tmp_path, layout, plan, second, ["right"], close=False)
    with pytest.raises(TraincheckError, match=f"{second} is still open"):
        grade(layout.root)
    run = CliRunner().invoke(app, ["pilot", "grade", str(layout.root)])
    assert run.exit_code == 2
    deviations.record(
        layout.deviations, deviations.Deviation(what="never run", why="the provider was gone", trial=second)
    )
    (found,) = grade(layout.root)
    assert list(found.trials) == [first]


@pytest.mark.parametrize("what", ["case.toml", "private/oracles/fixed/train.py", "workspace/train.py", "task.md"])
def test_grading_refuses_what_is_not_as_planned(tmp_path: Path, what: str) -> None:
    layout, _ = closed_pilot.closed(tmp_path, {})
    path = tmp_path / "case" / what
    path.write_text(path.read_text() + "\n# changed\n")
    with pytest.raises(TraincheckError, match="does not hold any more: case fake"):
        grade(layout.root)


def test_a_snapshot_that_was_changed_is_not_graded(tmp_path: Path) -> None:
    layout, _ = closed_pilot.closed(tmp_path, {0: ["right"]})
    entry = closed_pilot.Objects(layout.store).get_map(closed_pilot.source(tmp_path, layout, "right"))
    name = entry.entries["train.py"].sha256
    assert name is not None
    (layout.store / "objects" / name[:2] / name[2:]).write_text(fake_training.program("wrong"))
    with pytest.raises(SourceError, match="was changed"):
        grade(layout.root)


def test_a_ledger_that_was_cut_off_is_not_graded(tmp_path: Path) -> None:
    """A last submission that is cut off together with the end would otherwise go unseen."""
    layout, plan = closed_pilot.closed(tmp_path, {0: ["wrong", "right"]})
    path = layout.ledger(plan.order[0].id)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(TraincheckError, match="does not end with the recorded entry"):
        grade(layout.root)


@pytest.mark.parametrize(
    ("behaviour", "problem"),
    [("wrong", "is incorrect in scenario base, correct was wanted"), ("right", "is correct in scenario faulty")],
)
def test_an_initial_source_that_does_not_behave_as_registered_makes_the_case_invalid(
    tmp_path: Path, behaviour: str, problem: str
) -> None:
    fake_training.case(tmp_path / "case")
    (tmp_path / "case" / "workspace" / "train.py").write_text(fake_training.program(behaviour))
    layout, _ = closed_pilot.closed(tmp_path, {})
    (found,) = grade(layout.root)
    assert not found.valid
    assert any(problem in told for told in found.problems), found.problems


def test_a_trial_that_began_with_another_source_is_not_graded(tmp_path: Path) -> None:
    layout, plan = closed_pilot.frozen(tmp_path)
    (tmp_path / "case" / "workspace" / "train.py").write_text(fake_training.program("right"))
    for one in plan.order:
        closed_pilot.trial(tmp_path, layout, plan, one.id, [])
    (tmp_path / "case" / "workspace" / "train.py").write_text(fake_training.program("designated"))
    with pytest.raises(TraincheckError, match="did not begin with the planned workspace"):
        grade(layout.root)


def test_the_command_ends_with_3_on_an_invalid_case(tmp_path: Path) -> None:
    fake_training.case(tmp_path / "case")
    for name in ("private/oracles/fixed",):
        (tmp_path / "case" / name / "train.py").write_text(fake_training.program("first"))
    layout, _ = closed_pilot.closed(tmp_path, {})
    run = CliRunner().invoke(app, ["pilot", "grade", str(layout.root), "--json"])
    assert run.exit_code == 3, run.output
    (told,) = json.loads(run.stdout)
    assert not told["valid"]
    assert len(told["problems"]) == 2  # the two healthy scenarios
