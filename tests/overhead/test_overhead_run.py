"""A small study from end to end, and what it catches: planted changes of training, damaged traces, swapped files."""

from __future__ import annotations

import json
import shutil
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.overhead.tiny_workload import Tiny
from traincheck.errors import TraincheckError
from traincheck.events import HEADER_SIZE, RECORD_SIZE, Kind
from traincheck.overhead import artifacts, audit, summary, trial
from traincheck.overhead.policy import load_policy, policy_of
from traincheck.overhead.program.main import Run
from traincheck.overhead.study import ENTRY, Study
from traincheck.overhead.trial import Place, Trial
from traincheck.studykit import machine, processes
from traincheck.trace import open_trace

pytest_plugins = ["tests.overhead.small_study"]
HERE = Path(__file__).parent
STUDY = (HERE / "tiny.toml").read_text()


def place(folder: Path, **workload: Any) -> Place:
    """A place for single trials of the tiny workload, with what a study would have prepared."""
    policy = policy_of(
        {
            "schema": 1,
            "name": "tiny",
            "workload": {"class": "tiny_workload:Tiny", **workload},
            "protocol": {"steps": 4, "first_steady_step": 2, "timeout_s": 120},
            "modes": [{"name": "api", "kind": "api"}],
        },
        "tiny.toml",
    )
    shutil.copytree(
        Path(audit.__file__).parent / "program",
        folder / "program" / "overhead_program",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (folder / "program" / "train.py").write_text(ENTRY)
    (folder / "assets").mkdir()
    Tiny.prepare(folder / "assets", {})
    return Place(folder, policy, sys.executable, None, str(HERE))


def single(where: Place, mode: str) -> dict[str, Any]:
    side = "plain" if mode == "plain" else "watched"
    return trial.run(Trial(f"main.1.api.{side}", "main", 1, "api", mode, 1, 0, 4), where)


def test_a_study_counts_and_says_what_it_is_made_of(finished_study: Path) -> None:
    result = artifacts.read_json(finished_study / artifacts.SUMMARY)
    assert result["state"] == "finished"
    assert result["valid"] is True
    assert result["trials"]["run"] == result["trials"]["planned"] == 5
    assert result["pairs"]["evidence_equal"] == result["pairs"]["valid"] == 2
    assert result["pairs"]["facts_compared"] > 80
    (agreement,) = result["agreement"]
    assert agreement["direct"] == "main.1.full.watched"
    assert agreement["same"] == agreement["same_verdict"] == agreement["invariants"] > 5
    assert result["invariants"]["portable"] is True
    modes = result["cohorts"]["main"]
    assert set(modes) == {"plain", "full", "selective"}
    assert modes["full"]["slowdown"]["cpu_median"]["median"] > 0
    assert modes["full"]["records_per_10_steps"] > modes["selective"]["records_per_10_steps"] > 0

    told = artifacts.read_json(finished_study / artifacts.STUDY)
    assert told["invariants_sha256"] == artifacts.sha256_file(finished_study / "invariants" / "invariants.jsonl")
    assert [len(pair) for pair in told["schedule"]] == [2, 2]
    record = artifacts.read_json(finished_study / "trials" / "main.1.full.watched" / artifacts.TRIAL)
    assert record["command"][1:4] == ["-m", "traincheck", "collect"]
    assert [name for name, seconds in record["phases"].items() if seconds is None or seconds < 0] == []
    assert set(record["phases"]) >= {"launch", "import", "set_up", "training", "drain", "shutdown"}
    found = artifacts.read_json(finished_study / "trials" / "main.1.full.watched" / artifacts.AUDIT)
    assert found["faults"] == []
    assert [row["step"] for row in found["per_step"]] == [0, 1, 2, 3, 4]
    # Evidence is taken in the process, and not in the trace: no training program of ours reads generators.
    assert not [name for name in found["per_function"]["most_frequent"] if "rng" in name]
    assert artifacts.tampered(finished_study) == []


def test_a_swapped_artifact_is_named(finished_study: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(finished_study, tmp_path / "copy"))
    one = copy / "trials" / "main.1.full.watched" / artifacts.RESULTS
    shutil.copyfile(copy / "trials" / "main.1.selective.watched" / artifacts.RESULTS, one)
    (copy / "invariants" / "learned.json").unlink()
    (copy / "trials" / "more.json").write_text("{}")
    said = artifacts.tampered(copy)
    assert len(said) == 3
    assert any(text.startswith("trials/main.1.full.watched/results.json was changed: its SHA-256 is") for text in said)
    assert "invariants/learned.json is missing" in said
    assert "trials/more.json was not there when the study ended" in said


def damaged(finished_study: Path, tmp_path: Path) -> tuple[Path, Path, bytearray]:
    trace = Path(shutil.copytree(finished_study / "trials" / "main.1.full.watched" / "trace", tmp_path / "trace"))
    (segment,) = trace.glob("processes/*/events-*.tcev")
    return trace, segment, bytearray(segment.read_bytes())


def places(data: bytearray, kind: Kind) -> list[int]:
    return [at for at in range(HEADER_SIZE, len(data), RECORD_SIZE) if data[at] == kind]


def test_a_lost_record_is_named(finished_study: Path, tmp_path: Path) -> None:
    trace, segment, data = damaged(finished_study, tmp_path)
    end = places(data, Kind.END)[10]
    (call,) = struct.unpack_from("<Q", data, end + 16)
    del data[end : end + RECORD_SIZE]
    segment.write_bytes(data)
    said = "; ".join(audit.audit(trace)["faults"])
    assert "records are lost" in said
    # Also when header and process file are made to fit.
    (count,) = struct.unpack_from("<Q", data, 64)
    struct.pack_into("<Q", data, 64, count - 1)
    segment.write_bytes(data)
    process = segment.parent / "process.json"
    told = json.loads(process.read_text())
    process.write_text(json.dumps({**told, "records": told["records"] - 1}))
    said = "; ".join(audit.audit(trace)["faults"])
    assert f"call {call} began and never ended" in said


def test_a_duplicated_call_id_is_named(finished_study: Path, tmp_path: Path) -> None:
    trace, segment, data = damaged(finished_study, tmp_path)
    one, other = places(data, Kind.BEGIN)[5:7]
    (call,) = struct.unpack_from("<Q", data, one + 16)
    struct.pack_into("<Q", data, other + 16, call)
    segment.write_bytes(data)
    said = "; ".join(audit.audit(trace)["faults"])
    assert f"call {call} begins more than once" in said


def with_plant(where: Place, plant: str) -> Place:
    workload = where.policy.workload.model_copy(update={"options": {"plant": plant}})
    return replace(where, policy=where.policy.model_copy(update={"workload": workload}))


def reasons(where: Place, plain: dict[str, Any], watched: dict[str, Any]) -> str:
    (pair,) = summary.pairs_of(where.folder, [plain, watched])
    assert pair["valid"] is False
    assert pair["slowdown"] is None
    return "; ".join(pair["reasons"])


def test_a_random_draw_of_a_watched_run_is_named(tmp_path: Path) -> None:
    """In fresh processes, watched as any user would: the draw is made only where TrainCheck is."""
    where = place(tmp_path)
    plain = single(where, "plain")
    assert plain["valid"], plain["reasons"]
    watched = single(with_plant(where, "random"), "api")
    assert watched["valid"], watched["reasons"]
    assert watched["tracking"].startswith("disabled")
    trace = open_trace(where.folder / "trials" / watched["id"] / "trace")
    assert trace.states.height == 0 < trace.calls.height
    assert trace.steps == [1, 2, 3, 4]
    said = reasons(where, plain, watched)
    assert "training was not the same: step 2: generator torch differs" in said


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials run in this process, where torch is loaded already: what is tested is what becomes of their evidence."""
    real = processes.run

    def run(command: list[str], *, out: Path, err: Path, **more: Any) -> processes.Cost:
        if "--look" in command or "--prepare" in command:
            return real(command, out=out, err=err, **more)
        out.write_text("")
        err.write_text("")
        began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if "traincheck" in command:
            monkeypatch.setenv("TRAINCHECK_RUN", "pretended")
        code = 0
        try:
            Run(command[-1]).train()
        except RuntimeError:
            code = 1
        monkeypatch.delenv("TRAINCHECK_RUN", raising=False)
        ended = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return processes.Cost(code, False, began, ended, began, ended, 0.1, 1.0, None, None, [], [])

    monkeypatch.setattr(processes, "run", run)
    monkeypatch.setattr(trial, "_audited", lambda folder, reasons: {"records": 1, "bytes": 1, "calls": 1})


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("plant", "words"),
    [
        ("random", "training was not the same: step 2: generator torch differs"),
        ("in-place", "training was not the same: step 3: the loss is"),
        ("replaced", "1 parameters are other objects or lie elsewhere: model.2.weight"),
    ],
)
def test_a_planted_change_of_training_is_named(plant: str, words: str, tmp_path: Path) -> None:
    where = place(tmp_path)
    plain = single(where, "plain")
    assert plain["valid"], plain["reasons"]
    assert words in reasons(where, plain, single(with_plant(where, plant), "api"))


def test_a_rank_that_dies_makes_its_trial_invalid(tmp_path: Path) -> None:
    where = place(tmp_path, ranks=2, options={"plant": "killed"})
    record = single(where, "api")
    said = "; ".join(record["reasons"])
    assert record["valid"] is False
    # The launcher ends the other rank, which may have been done by then.
    assert "0 of 2 ranks wrote their evidence" in said or "1 of 2 ranks wrote their evidence" in said, said


@pytest.mark.usefixtures("here")
def test_the_same_training_counts(tmp_path: Path) -> None:
    where = place(tmp_path)
    (pair,) = summary.pairs_of(where.folder, [single(where, "plain"), single(where, "api")])
    assert pair["valid"], pair["reasons"]
    assert pair["slowdown"] == pair["ratios"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("plant", "words"),
    [("infinite-always", "step 2: the loss is inf"), ("fails-always", "training failed: RuntimeError: out of luck")],
)
def test_failed_steps_and_losses_that_are_not_finite_do_not_count(plant: str, words: str, tmp_path: Path) -> None:
    record = single(place(tmp_path, options={"plant": plant}), "plain")
    assert record["valid"] is False
    assert words in "; ".join(record["reasons"])


@pytest.mark.usefixtures("here")
def test_incomplete_phases_and_missing_evidence_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = place(tmp_path)
    real = trial._ranks

    def without(folder: Path) -> list[dict[str, Any]]:
        return [{**rank, "phases": rank["phases"][:-1]} for rank in real(folder)]

    monkeypatch.setattr(trial, "_ranks", without)
    assert "phases are incomplete (no done)" in "; ".join(single(where, "plain")["reasons"])
    monkeypatch.setattr(trial, "_ranks", lambda folder: [])
    assert "0 of 1 ranks wrote their evidence" in "; ".join(single(where, "plain")["reasons"])


@pytest.mark.usefixtures("here")
def test_an_interrupted_study_is_readable_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(STUDY.replace('"full"', '"api"').partition('[[modes]]\nname = "selective"')[0])
    where = Place(tmp_path / "out", load_policy(file), sys.executable, None, str(HERE))
    monkeypatch.setattr(Study, "_learn", lambda self, resume: None)
    real, made = trial.run, []

    def interrupted(one: Trial, at: Place) -> dict[str, Any]:
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(one.id)
        return real(one, at)

    monkeypatch.setattr(trial, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Study(where, file, lambda what, done, total: None).run()
    told = artifacts.read_json(where.folder / artifacts.SUMMARY)
    assert (told["state"], told["valid"], told["trials"]["run"]) == ("interrupted", False, 1)
    assert artifacts.tampered(where.folder) == []

    monkeypatch.setattr(trial, "run", lambda one, at: made.append(one.id) or real(one, at))
    told = Study(where, file, lambda what, done, total: None).run(resume=True)
    assert (told["state"], told["pairs"]["valid"]) == ("finished", 1)
    assert len(made) == len(set(made)) == 2

    other = file.read_text().replace("steps = 4, first", "steps = 5, first")
    file.write_text(other)
    with pytest.raises(TraincheckError, match="another policy"):
        Study(replace(where, policy=load_policy(file)), file, lambda what, done, total: None).run(resume=True)


def test_a_workload_that_cannot_be_had_is_said_before_training(tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    for change, words in (
        ('class = "tiny_workload:Tiny", options = { colour = 1 }', "workload.options.colour"),
        ('class = "tiny_workload:Tiny", ranks = 3', "can't train with 3 ranks"),
        ('class = "tiny_workload:Tinier"', "can't be loaded"),
    ):
        file.write_text(STUDY.replace('class = "tiny_workload:Tiny"', change))
        where = Place(tmp_path / "out", load_policy(file), sys.executable, None, str(HERE))
        with pytest.raises(TraincheckError) as error:
            Study(where, file, lambda what, done, total: None).run()
        assert words in error.value.message
        assert list((tmp_path / "out").iterdir()) == []


def test_foreign_load_is_flagged_and_our_own_is_not() -> None:
    before, after = machine.Use(100.0), machine.Use(115.0)
    assert machine.foreign(before, after, own_cpu_s=14.0, wall_s=10.0, limit=0.2)["flagged"] is False
    told = machine.foreign(before, after, own_cpu_s=5.0, wall_s=10.0, limit=0.2)
    assert told == {"cpu_s": 10.0, "cpus": 1.0, "flagged": True}
    assert machine.foreign(None, after, 0.0, 1.0, 0.2)["flagged"] is None
    now = machine.Use.now()
    assert now is None or now.busy_s > 0
