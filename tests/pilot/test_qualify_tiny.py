"""Qualification: fault and fix with numbers, near misses fail, other good repairs pass, failed checks stay failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.pilot import fake_training
from traincheck.cli.app import app
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.grading.attempts import CaseJudge
from traincheck.pilot.grading.qualification import Check, Qualification, all_hold
from traincheck.pilot.grading.qualify import qualify
from traincheck.pilot.grading.replaying import Setting
from traincheck.pilot.grading.running import LocalRunner, device_seconds
from traincheck.pilot.grading.variants import variant
from traincheck.pilot.ledger import read
from traincheck.pilot.sources import Objects

CASES = Path(__file__).parents[2] / "pilots" / "cases"

NUMBERS = """
import json, sys
from pathlib import Path
case, out = Path(sys.argv[1]), Path(sys.argv[2])
assert (case / "case.toml").exists() and Path.cwd() == out
(out / "numbers.json").write_text(json.dumps({
    "numbers": [{"name": "error", "value": 0.365, "unit": "relative L2"}],
    "checks": [
        {"name": "bits", "wanted": "equal", "found": "1 apart", "holds": False},
        {"name": "nearly", "wanted": "below 1e-6", "found": "1e-7", "holds": True, "strict": False, "relaxes": RELAXES},
    ],
}))
"""


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Qualification]:
    """A case whose program trains nothing: all but the preflight can hold."""
    folder = tmp_path_factory.mktemp("qualified")
    fake_training.case(folder / "case")
    (folder / "case" / "private" / "qualify.py").write_text(NUMBERS.replace("RELAXES", "None"))
    alternative = folder / "case" / "private" / "alternatives" / "spelled-otherwise"
    alternative.mkdir(parents=True)
    (alternative / "train.py").write_text(fake_training.program("right") + "\n# the same\n")
    mutant = folder / "case" / "private" / "mutants" / "right-after-all"
    mutant.mkdir()
    (mutant / "train.py").write_text(fake_training.program("right") + "\n# no mutant\n")
    return folder, qualify(folder / "case", folder / "out")


def held(found: Qualification) -> dict[str, bool]:
    return {check.name: check.holds for check in found.checks}


def test_what_is_checked_and_what_it_comes_to(fake: tuple[Path, Qualification]) -> None:
    _, found = fake
    assert held(found) == {
        "initial source in base": True,
        "initial source in other": True,
        "initial source in faulty": True,
        "oracles/fixed in base": True,
        "oracles/fixed in other": True,
        "oracles/fixed in faulty": True,
        "alternatives/spelled-otherwise in base": True,
        "alternatives/spelled-otherwise in other": True,
        "alternatives/spelled-otherwise in faulty": True,
        "mutants/right-after-all": False,
        "mutants/wrong": True,
        "incomplete evidence": True,
        "preflight: TrainCheck preserves the training": True,
        "preflight: the trace is complete": False,
        "bits": False,
        "nearly": True,
    }
    assert not found.valid
    (number,) = found.numbers
    assert (number.name, number.value, number.unit) == ("error", 0.365, "relative L2")
    assert found.reproduction == "A program that writes what it is told to."


def test_incomplete_evidence_is_tried_with_every_record(fake: tuple[Path, Qualification]) -> None:
    _, found = fake
    (check,) = [one for one in found.checks if one.name == "incomplete evidence"]
    assert check.found == "unknown without each of 5; correct with all"  # header, three steps, end


def test_failed_checks_stay_failed_on_the_page(fake: tuple[Path, Qualification]) -> None:
    folder, found = fake
    page = (folder / "out" / "qualification.md").read_text()
    assert "**Not qualified.**" in page
    assert "| **no** | bits | equal | 1 apart |" in page
    assert "| yes | nearly (relaxed control) | below 1e-6 | 1e-7 |" in page
    assert "No overhead benchmark" in page
    again = Qualification.model_validate_json((folder / "out" / "qualification.json").read_bytes())
    assert again == found


def test_qualification_pays_from_a_ledger_of_its_own(fake: tuple[Path, Qualification]) -> None:
    folder, found = fake
    ledger = folder / "out" / "device.jsonl"
    asked = [entry.data for entry in read(ledger) if entry.kind == "asked"]
    assert {(one["purpose"], one["owner"]) for one in asked} == {("qualification", "qualification/fake")}
    assert found.device_seconds == pytest.approx(device_seconds(ledger))
    assert any(one["request"] == "fake.numbers" for one in asked)


def test_the_command_ends_with_3_and_goes_on(fake: tuple[Path, Qualification]) -> None:
    """Replays that are done are not run again; an output that is there is not replaced unasked."""
    folder, found = fake
    arguments = ["pilot", "qualify", str(folder / "case"), "-o", str(folder / "out")]
    assert CliRunner().invoke(app, arguments).exit_code == 2
    before = device_requests(folder)
    run = CliRunner().invoke(app, [*arguments, "--resume", "--json"])
    assert run.exit_code == 3, run.output
    assert held(Qualification.model_validate(json.loads(run.stdout))) == held(found)
    new = device_requests(folder) - before
    assert {name.split(".")[1] for name in new} <= {"preflight", "numbers", "2", "oracle"}


def device_requests(folder: Path) -> set[str]:
    return {entry.data["request"] for entry in read(folder / "out" / "device.jsonl") if entry.kind == "asked"}


def test_a_case_that_is_incomplete_ends_with_2(tmp_path: Path) -> None:
    fake_training.case(tmp_path / "case")
    (tmp_path / "case" / "task.md").unlink()
    run = CliRunner().invoke(app, ["pilot", "qualify", str(tmp_path / "case"), "-o", str(tmp_path / "out")])
    assert run.exit_code == 2
    assert "has no task.md" in run.output


@pytest.mark.parametrize(
    ("relaxes", "failing", "expected"), [("bits", False, True), (None, False, False), ("bits", True, False)]
)
def test_a_failed_strict_check_counts_unless_a_control_was_decided_on(
    relaxes: str | None, failing: bool, expected: bool
) -> None:
    strict = Check(name="bits", wanted="equal", found="1 apart", holds=False)
    control = Check(name="nearly", wanted="near", found="-", holds=not failing, strict=False, relaxes=relaxes)
    assert all_hold((strict, control)) is expected


def test_numbers_that_fail_are_a_failed_check(tmp_path: Path) -> None:
    fake_training.case(tmp_path / "case")
    (tmp_path / "case" / "private" / "qualify.py").write_text("raise SystemExit('no torch here')\n")
    found = qualify(tmp_path / "case", tmp_path / "out")
    (check,) = [one for one in found.checks if one.name == "private/qualify.py"]
    assert not check.holds
    assert "no torch here" in check.found


def test_a_real_training_is_told_from_its_repair(tmp_path: Path) -> None:
    """One designated scenario of the tiny case, with torch: fault, another good repair, and the size of the fault."""
    folder = CaseFolder(CASES / "tiny-accumulation")
    objects = Objects(tmp_path / "store")
    scenario = folder.case.scenario("ragged-4")
    with LocalRunner(tmp_path / "device.jsonl", 1) as runner:
        judge = CaseJudge(Setting(folder, objects, runner, "qualification"), tmp_path / "oracles", 2, "tiny")
        initial = judge.judged(folder.initial(objects), scenario, tmp_path / "initial")
        other = variant(folder, objects, "alternatives", "scaled-gradients")
        repaired = judge.judged(other, scenario, tmp_path / "repaired")
    assert (initial.verdict, repaired.verdict) == ("incorrect", "correct")
    assert "gradients" in initial.reason
    told = json.loads((tmp_path / "initial" / "attempt-1" / "verdict.json").read_text())["against"][0]
    assert told["errors"]["gradients"][0] > 0.1
    assert told["errors"]["buffers"] == [0.0, 0.0, 0.0]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["tiny-accumulation", "tiny-clean"])
def test_tiny_cases_qualify(tmp_path: Path, name: str) -> None:
    """Mutants of the right program fail, other good repairs pass, TrainCheck preserves the training."""
    run = CliRunner().invoke(app, ["pilot", "qualify", str(CASES / name), "-o", str(tmp_path), "--json"])
    assert run.exit_code == 0, run.output
    found = Qualification.model_validate(json.loads(run.stdout))
    checks = held(found)
    assert all(checks.values())
    kinds = [label.partition("/")[0] for label in found.replays]
    assert kinds.count("mutants") >= 2
    assert kinds.count("alternatives") >= 1
    if name == "tiny-accumulation":
        assert (kinds.count("mutants"), kinds.count("alternatives")) == (3, 2)
        assert found.replays["initial"]["ragged"].gradient_errors[0] > 0.05  # type: ignore[operator]
    assert found.preflight is not None
    assert found.preflight.records == 4
