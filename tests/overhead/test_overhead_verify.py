"""Verifying a study: all holds as it was; each kind of tampering is named, whether or not hashes are made to fit."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from traincheck.cli.app import app
from traincheck.errors import TraincheckError
from traincheck.events import HEADER_SIZE
from traincheck.overhead import artifacts, report
from traincheck.overhead.policy import load_policy
from traincheck.overhead.study import Study
from traincheck.overhead.trial import Place
from traincheck.overhead.verify import Verification, verify
from traincheck.overhead.verify_pieces import differences

pytest_plugins = ["tests.overhead.small_study"]

FULL, SELECTIVE, PLAIN = "trials/main.1.full.watched", "trials/main.1.selective.watched", "trials/main.1.full.plain"


def edit(path: Path, change: Callable[[Any], None]) -> None:
    """Change a JSON file in place."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value, indent=1) + "\n")


def segment(study: Path) -> None:
    (path,) = (study / FULL / "trace").glob("processes/*/events-*.tcev")
    data = bytearray(path.read_bytes())
    data[HEADER_SIZE + 40 * 32 + 24] ^= 1
    path.write_bytes(data)


def loss_bit(study: Path) -> None:
    def flip(rank: dict[str, Any]) -> None:
        loss = rank["steps"][2]["loss"]
        loss["bits"] = loss["bits"][:-1] + ("0" if loss["bits"][-1] != "0" else "1")

    edit(study / SELECTIVE / "rank-0.json", flip)


def slowdown(study: Path) -> None:
    edit(study / "pairs.json", lambda value: value["pairs"][1]["slowdown"].update(wall_median=1.001))


def no_symbols(study: Path) -> None:
    (path,) = (study / SELECTIVE / "trace").glob("processes/*/symbols.jsonl")
    path.unlink()


def no_trace(study: Path) -> None:
    shutil.rmtree(study / FULL / "trace")


def swapped_results(study: Path) -> None:
    one, other = study / FULL / "results.json", study / SELECTIVE / "results.json"
    a, b = one.read_bytes(), other.read_bytes()
    one.write_bytes(b)
    other.write_bytes(a)


def swapped_ranks(study: Path) -> None:
    shutil.copyfile(study / FULL / "rank-0.json", study / SELECTIVE / "rank-0.json")


def swapped_traces(study: Path) -> None:
    shutil.rmtree(study / FULL / "trace")
    shutil.copytree(study / "trials" / "reference.0" / "trace", study / FULL / "trace")


def extra_trial(study: Path) -> None:
    shutil.copytree(study / PLAIN, study / "trials" / "main.2.full.plain")


def missing_trial(study: Path) -> None:
    shutil.rmtree(study / PLAIN)


def edited_policy(study: Path) -> None:
    path = study / "policy.toml"
    path.write_text(path.read_text().replace("first_steady_step = 2", "first_steady_step = 1"))


def commented_policy(study: Path) -> None:
    path = study / "policy.toml"
    path.write_text(path.read_text().replace("A small study", "A big study"))


def foreign_policy(study: Path) -> None:
    path = study / "policy.toml"
    path.write_text(path.read_text() + "\nrounding = 2\n")


def edited_summary(study: Path) -> None:
    edit(study / "summary.json", lambda value: value["trials"].update(flagged=["none at all"]))


def edited_outcomes(study: Path) -> None:
    edit(study / "outcomes.json", lambda value: value["agreement"][0].update(same=0))


def edited_times(study: Path) -> None:
    edit(study / FULL / "trial.json", lambda value: value["times"].update(cpu_median_ms=0.5))


def edited_phases(study: Path) -> None:
    edit(study / FULL / "trial.json", lambda value: value["phases"].update(shutdown=0.001))


def unflagged(study: Path) -> None:
    edit(study / FULL / "trial.json", lambda value: value["foreign"].update(cpus=1.5, flagged=False))


def other_command(study: Path) -> None:
    edit(study / FULL / "trial.json", lambda value: value["command"].insert(6, "--no-state"))


def failed_but_valid(study: Path) -> None:
    edit(study / PLAIN / "rank-0.json", lambda rank: rank["steps"][1].update(failed=True))


def fewer_invariants(study: Path) -> None:
    path = study / "invariants" / "invariants.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def other_outcome(study: Path) -> None:
    def change(results: dict[str, Any]) -> None:
        results["outcomes"][0]["applications"] += 1

    edit(study / SELECTIVE / "results.json", change)


def edited_audit(study: Path) -> None:
    edit(study / FULL / "audit.json", lambda value: value.update(calls=value["calls"] + 1))


def other_plan(study: Path) -> None:
    edit(study / SELECTIVE / "trace" / "plan.json", lambda plan: plan["functions"].popitem())


def slower_steps(study: Path) -> None:
    def change(rank: dict[str, Any]) -> None:
        for step in rank["steps"]:
            step["wall_ns"] *= 50

    edit(study / PLAIN / "rank-0.json", change)


def less_load(study: Path) -> None:
    edit(study / FULL / "trial.json", lambda value: value["foreign"].update(cpu_s=1e6))


def other_schedule(study: Path) -> None:
    edit(study / "study.json", lambda value: value["schedule"].reverse())


def other_program(study: Path) -> None:
    path = study / "program" / "train.py"
    path.write_text(path.read_text() + "# faster\n")


TAMPERINGS: list[tuple[Callable[[Path], None], str, str]] = [
    # what is done, the piece that is named although all hashes fit, and a word on it
    (segment, f"{FULL}/audit.json", "files."),
    (loss_bit, "pairs.json", "pairs[1].evidence_equal is True, the raw artifacts give False"),
    (slowdown, "pairs.json", "pairs[1].slowdown.wall_median is 1.001, the raw artifacts give"),
    (no_symbols, f"{SELECTIVE}/audit.json", "the audit of the trace gives"),
    (no_trace, f"{FULL}/trace", "of another trial"),
    (swapped_results, f"{FULL}/results.json", "it holds the outcomes of"),
    (swapped_ranks, f"{SELECTIVE}/rank-0.json", "it was not written while main.1.selective.watched ran"),
    (swapped_traces, f"{FULL}/trace", "it is of another trial"),
    (extra_trial, "trials/main.2.full.plain", "the study has no such trial"),
    (missing_trial, f"{PLAIN}/trial.json", "the study ran that trial"),
    (edited_policy, "study.json", "policy.protocol.first_steady_step is 2, policy.toml comes to 1"),
    (commented_policy, "policy.toml", "study.json says"),
    (foreign_policy, "policy.toml", "there is no such field"),
    (edited_summary, "summary.json", "trials.flagged"),
    (edited_outcomes, "outcomes.json", "agreement[0].same is 0, the raw artifacts give"),
    (edited_times, f"{FULL}/trial.json", "times.cpu_median_ms is 0.5, the ranks' steps give"),
    (edited_phases, f"{FULL}/trial.json", "its phases come to"),
    (unflagged, f"{FULL}/trial.json", "it is not flagged with 1.5 CPUs of foreign load"),
    (other_command, f"{FULL}/trial.json", "command[6] is '--no-state', the mode gives"),
    (failed_but_valid, f"{PLAIN}/trial.json", "it is called valid, but step 2 of rank 0 failed"),
    (fewer_invariants, "invariants/invariants.jsonl", "study.json says"),
    (edited_audit, f"{FULL}/audit.json", "calls is"),
    (other_plan, f"{SELECTIVE}/trace/plan.json", "mode and invariants ask for"),
    (slower_steps, f"{PLAIN}/trial.json", "s, the training they are in"),
    (less_load, f"{FULL}/trial.json", "s of foreign load in"),
    (other_schedule, "study.json", "schedule[0][0] is"),
    (other_program, "program", "study.json says"),
]
KINDS = {extra_trial: "extra", missing_trial: "missing", no_symbols: "missing", no_trace: "missing"}


@pytest.fixture
def study(finished_study: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_study, tmp_path / "study", symlinks=True))


def told(found: Verification) -> str:
    return "\n".join(map(str, found.faults))


def test_a_study_holds_wherever_it_lies(study: Path) -> None:
    found = verify(study)
    assert told(found) == ""
    assert found.counts["trials"] == 5
    assert found.counts["traces"] == 3
    assert found.counts["pairs"] == found.counts["checked again"] == 2
    assert found.counts["learned again"] == 1
    assert found.counts["reports"] == 3
    assert found.counts["files"] > 30


@pytest.mark.parametrize(("change", "piece", "words"), TAMPERINGS, ids=[one[0].__name__ for one in TAMPERINGS])
def test_tampering_is_named(study: Path, change: Callable[[Path], None], piece: str, words: str) -> None:
    change(study)
    found = verify(study, quick=True)
    by_hash = [fault for fault in found.faults if "its SHA-256 is" in fault.text or fault.kind in ("missing", "extra")]
    assert by_hash, told(found)
    assert found.faults[0].kind == KINDS.get(change, "changed")
    # Who makes the hashes fit has still to make it follow from the evidence.
    artifacts.write_hashes(study)
    found = verify(study, quick=True)
    assert [fault for fault in found.faults if fault.piece == piece and words in fault.text], told(found)


def test_checking_and_learning_again_find_what_quick_does_not(study: Path) -> None:
    other_outcome(study)
    edit(
        study / "outcomes.json",
        lambda value: value["checked"][1].update(sha256=artifacts.sha256_file(study / SELECTIVE / "results.json")),
    )
    found = verify(study)
    named = [fault for fault in found.faults if fault.piece == f"{SELECTIVE}/results.json"]
    assert any("outcomes[0].applications is" in fault.text and "checking again gives" in fault.text for fault in named)


def test_an_invariant_that_was_never_learned_is_named(study: Path) -> None:
    fewer_invariants(study)
    found = verify(study)
    words = "learning again gives"
    assert any(fault.piece == "invariants/invariants.jsonl" and words in fault.text for fault in found.faults)


@pytest.mark.parametrize("name", ["report.md", "report.json", "report.html"])
def test_an_edited_report_is_named(study: Path, name: str) -> None:
    path = study / name
    path.write_text(path.read_text().replace("main", "mean", 1))
    (fault,) = verify(study, quick=True).faults
    assert (fault.kind, fault.piece) == ("inconsistent", name)


def test_a_study_without_hashes_or_with_broken_files_is_told_and_no_crash(study: Path) -> None:
    (study / "hashes.json").unlink()
    (study / "pairs.json").write_text("{")
    (study / FULL / "trial.json").write_text("[]")
    (study / SELECTIVE / "rank-0.json").write_text("{}")
    found = verify(study, quick=True)
    pieces = {fault.piece for fault in found.faults}
    assert {"hashes.json", "pairs.json", FULL, SELECTIVE} <= pieces


def test_an_interrupted_study_holds_for_what_it_has_and_its_report_says_so(study: Path) -> None:
    for path in (study / "trials").glob("main.?.selective.*"):
        shutil.rmtree(path)
    told = artifacts.read_json(study / "study.json")
    place = Place(study, load_policy(study / "policy.toml"), sys.executable, None, str(Path(__file__).parent))

    def stop(what: str, done: int, total: int) -> None:
        if ".selective." in what:
            raise KeyboardInterrupt

    file = Path(shutil.copyfile(study / "policy.toml", study.parent / told["policy_file"]))
    with pytest.raises(KeyboardInterrupt):
        Study(place, file, stop).run(resume=True)
    for name in report.FILES:
        (study / name).unlink()
    found = report.write(study, study)
    assert found["state"] == "interrupted"
    assert "The study was interrupted" in (study / "report.md").read_text()
    result = verify(study, quick=True)
    assert str(result.faults) == "[]"
    assert result.counts["trials"] == 3
    assert result.counts["pairs"] == 1
    # What it has is still held to account.
    edit(study / PLAIN / "trial.json", lambda value: value.update(seed=3))
    assert verify(study, quick=True).faults


def test_an_invalid_study_that_says_so_holds(study: Path) -> None:
    """A trace that could not be read when the study ran: the trial does not count, and verify finds the same."""
    home = study / FULL
    shutil.rmtree(home / "trace")
    (home / "audit.json").unlink()
    (home / "results.json").unlink()
    record = artifacts.read_json(home / "trial.json")
    reason = "the trace cannot be audited: FileNotFoundError: gone"
    record.update(trace={"records": 0, "bytes": 0, "calls": 0}, valid=False, reasons=[reason], check=None)
    record["phases"]["shutdown"] += record["phases"]["drain"]
    record["phases"]["drain"] = None
    artifacts.write_json(home / "trial.json", record)
    place = Place(study, load_policy(study / "policy.toml"), sys.executable, None, None)
    redone = Study(place, study / "policy.toml", lambda what, done, total: None)
    redone.record = artifacts.read_json(study / "study.json")
    redone.learned = artifacts.read_json(study / "invariants" / "learned.json")
    names = ["reference.0", *(name for pair in redone.record["schedule"] for name in pair)]
    redone.finished = [artifacts.read_json(study / "trials" / name / "trial.json") for name in names]
    redone.conclude()
    report.write(study, study)
    result = verify(study, quick=True)
    assert told(result) == ""
    assert result.counts["pairs that do not count"] == 1
    assert f"{FULL.removeprefix('trials/')} does not count: the trace" in (study / "report.md").read_text()


def test_a_study_that_runs_is_refused(study: Path) -> None:
    edit(study / "study.json", lambda value: value.update(state="running"))
    with pytest.raises(TraincheckError, match="has not ended"):
        verify(study)


def test_the_command_says_it_in_one_line_or_names_all(study: Path) -> None:
    run = CliRunner()
    good = run.invoke(app, ["overhead", "verify", str(study), "--quick"])
    assert (good.exit_code, good.stdout.count("\n")) == (0, 1)
    assert good.stdout.startswith("tiny: everything holds (")
    slowdown(study)
    edited_summary(study)
    bad = run.invoke(app, ["overhead", "verify", str(study), "--quick"])
    assert bad.exit_code == 3
    assert "the first: pairs.json: changed: its SHA-256 is" in bad.stdout.splitlines()[0]
    assert "summary.json: inconsistent: trials.flagged" in bad.stdout
    as_json = run.invoke(app, ["overhead", "verify", str(study), "--quick", "--json"])
    value = json.loads(as_json.stdout)
    assert as_json.exit_code == 3
    assert value["holds"] is False
    assert {fault["piece"] for fault in value["faults"]} >= {"pairs.json", "summary.json"}
    assert run.invoke(app, ["overhead", "verify", str(study / "nothing")]).exit_code == 2


def test_differences_name_the_place() -> None:
    one, other = {"a": [1, {"b": 2}], "c": True}, {"a": [1.0, {"b": 3}, 4], "c": 1, "d": None}
    assert [where for where, _, _ in differences(one, other)] == ["a[1].b", "a[2]", "c", "d"]
    assert list(differences({"x": [1, 2]}, {"x": [1, 2]})) == []
