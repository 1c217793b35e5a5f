"""Replays through the whole machinery with a program that trains nothing: attempts, resumption, ledger."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pilot import fake_training
from traincheck.errors import TraincheckError
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.grading import running
from traincheck.pilot.grading.attempts import CaseJudge
from traincheck.pilot.grading.replaying import Setting
from traincheck.pilot.grading.running import Job, LocalRunner, asked, device_seconds, open_leases
from traincheck.pilot.grading.variants import variant
from traincheck.pilot.ledger import Ledger, read
from traincheck.pilot.sources import Objects, SourceMap, capture


class Bench:
    """A judge of the fake case with a ledger."""

    def __init__(self, tmp_path: Path, attempts: int = 2, **more: object) -> None:
        self.tmp_path = tmp_path
        self.objects = Objects(tmp_path / "store")
        folder = tmp_path / "case"
        if not folder.exists():
            fake_training.case(folder, **more)
        self.folder = CaseFolder(folder)
        self.ledger = tmp_path / "device.jsonl"
        self.runner = LocalRunner(self.ledger, 1)
        self.said: list[str] = []
        self.judge = CaseJudge(
            Setting(self.folder, self.objects, self.runner, "grading"), tmp_path / "oracles", attempts, "fake",
            used=asked(self.ledger), say=self.said.append,
        )  # fmt: skip

    def source(self, behaviour: str) -> SourceMap:
        place = self.tmp_path / f"source-{behaviour}"
        if not place.exists():
            place.mkdir()
            (place / "train.py").write_text(fake_training.program(behaviour))
        return capture(place, self.objects)

    def verdict(self, behaviour: str, scenario: str = "base"):  # type: ignore[no-untyped-def]
        folder = self.tmp_path / "replays" / behaviour / scenario
        return self.judge.judged(self.source(behaviour), self.folder.case.scenario(scenario), folder)


def test_right_wrong_and_short(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    found = {behaviour: bench.verdict(behaviour) for behaviour in ("right", "wrong", "short")}
    assert [one.verdict for one in found.values()] == ["correct", "incorrect", "unknown"]
    assert [len(one.attempts) for one in found.values()] == [1, 1, 1]  # a program that is short stays short
    assert "rank 0: no record of step 2, 3" in found["short"].reason


@pytest.mark.parametrize(("behaviour", "why"), [("late", "did not end in time"), ("killed", "exit code -9")])
def test_only_what_the_machine_may_be_to_blame_for_is_tried_again(tmp_path: Path, behaviour: str, why: str) -> None:
    bench = Bench(tmp_path)
    found = bench.verdict(behaviour)
    assert found.verdict == "unknown"
    assert [one.number for one in found.attempts] == [1, 2]
    assert all(one.infrastructure and why in one.reason for one in found.attempts)
    folder = tmp_path / "replays" / behaviour / "base"
    assert sorted(path.parent.name for path in folder.glob("*/verdict.json")) == ["attempt-1", "attempt-2"]


def test_replays_that_are_done_are_not_run_again(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    before = first.verdict("wrong"), first.verdict("killed")
    first.runner.close()
    again = Bench(tmp_path)
    assert (again.verdict("wrong"), again.verdict("killed")) == before
    assert not again.said


def test_another_tolerance_is_another_replay_and_the_earlier_one_is_kept(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.verdict("right")
    first.runner.close()
    path = tmp_path / "case" / "case.toml"
    path.write_text(path.read_text().replace("[[scenarios]]", "[tolerance]\ngradients = 1e-6\n[[scenarios]]", 1))
    again = Bench(tmp_path)
    again.verdict("right")
    assert again.said[-1].endswith("in base, attempt 1")
    kept = sorted(path.name for path in (tmp_path / "replays" / "right" / "base").iterdir())
    assert kept == ["attempt-1", "earlier-1.attempt-1"]


def test_an_attempt_that_was_interrupted_is_run_again_under_another_request(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.verdict("right")
    first.runner.close()
    (tmp_path / "replays" / "right" / "base" / "attempt-1" / "verdict.json").unlink()
    again = Bench(tmp_path)
    found = again.verdict("right")
    assert found.attempts[0].request.endswith(".base.1.again-1")
    assert set(asked(tmp_path / "device.jsonl").values()) == {1}


def test_what_a_replay_leaves(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.verdict("right")
    folder = tmp_path / "replays" / "right" / "base" / "attempt-1"
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert names == {"config.json", "err.log", "out.log", "records", "verdict.json"}
    assert len(list(folder.rglob("step-*.json"))) == 3


@pytest.mark.parametrize(
    ("behaviour", "lack"), [("short", "rank 0: no record of step 2, 3"), ("empty", "the observer sees no parameters")]
)
def test_an_oracle_that_is_not_complete_stops_the_grading(tmp_path: Path, behaviour: str, lack: str) -> None:
    """Also one in which there is nothing to compare: everything would agree with it."""
    fake_training.case(tmp_path / "case")
    (tmp_path / "case" / "private" / "oracles" / "fixed" / "train.py").write_text(fake_training.program(behaviour))
    bench = Bench(tmp_path)
    with pytest.raises(TraincheckError, match=f"oracle fixed is not complete in scenario base: {lack}"):
        bench.verdict("right")


def test_several_oracles_either_is_acceptable(tmp_path: Path) -> None:
    fake_training.case(tmp_path / "case")
    path = tmp_path / "case" / "case.toml"
    path.write_text(path.read_text().replace('name = "base"', 'name = "base"\noracles = ["first", "second"]'))
    bench = Bench(tmp_path)
    found = {behaviour: bench.verdict(behaviour) for behaviour in ("first", "second", "right")}
    assert [one.oracle for one in found.values()] == ["first", "second", None]
    assert found["right"].verdict == "incorrect"


def test_a_variant_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "case" / "private" / "mutants" / "wrong" / "train.py").write_text(fake_training.program("designated"))
    with pytest.raises(TraincheckError, match="changes nothing"):
        variant(bench.folder, bench.objects, "mutants", "wrong")
    with pytest.raises(TraincheckError, match="has no mutants/none"):
        variant(bench.folder, bench.objects, "mutants", "none")


def test_the_ledger_holds_each_lease_from_asked_to_released(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    began = time.monotonic()
    bench.verdict("right")
    took = time.monotonic() - began
    bench.runner.close()
    kinds = [entry.kind for entry in read(bench.ledger)]
    lease = ["asked", "granted", "worker_started", "worker_ended", "released"]
    assert kinds == ["service_started", *lease, *lease, "service_stopped"]  # the oracle, then the source
    assert open_leases(bench.ledger) == ()
    assert 0 < device_seconds(bench.ledger) <= took
    asked_for = [entry.data for entry in read(bench.ledger) if entry.kind == "asked"]
    assert {(one["owner"], one["purpose"]) for one in asked_for} == {("grading/fake", "grading")}


def test_leases_that_a_killed_grader_left_are_ended(tmp_path: Path) -> None:
    path = tmp_path / "device.jsonl"
    with Ledger(path) as ledger:
        for request in ("one", "two"):
            ledger.add("granted", {"request": request, "devices": [0]})
        ledger.add("worker_started", {"request": "two", "pid": 1})
    LocalRunner(path, 1).close()
    entries = [(entry.kind, entry.data.get("request"), entry.data.get("reason")) for entry in read(path)][3:6]
    assert entries == [("released", "one", None), ("worker_ended", "two", "lost"), ("released", "two", None)]
    assert open_leases(path) == ()


def test_more_devices_than_there_are_is_refused(tmp_path: Path) -> None:
    with LocalRunner(tmp_path / "device.jsonl", 1) as runner, pytest.raises(TraincheckError, match="needs 2 devices"):
        runner.run(job(tmp_path, [sys.executable, "-c", ""], devices=2))
    assert [entry.kind for entry in read(tmp_path / "device.jsonl")][1:3] == ["asked", "refused"]


def test_a_job_leaves_nothing_behind_in_groups_of_its_own(tmp_path: Path) -> None:
    """Launchers put workers into sessions of their own: ending the launcher is not enough."""
    code = "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, flush=True)"
    with LocalRunner(tmp_path / "device.jsonl", 1) as runner:
        done = runner.run(job(tmp_path, [sys.executable, "-c", code]))
    assert (done.exit_code, done.reason) == (0, "exit")
    assert not alive(int((tmp_path / "out.log").read_text()))


def test_an_interrupt_ends_the_job_and_is_accounted_for(tmp_path: Path) -> None:
    """Ctrl-C in the grader: the job's process is gone, its lease released, the ledger whole."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from pathlib import Path; from tests.pilot.test_grading_attempts import job;"
        "from traincheck.pilot.grading.running import LocalRunner;"
        "runner = LocalRunner(Path(sys.argv[2]) / 'device.jsonl', 1);"
        "runner.run(job(Path(sys.argv[2]), ['sh', '-c', 'echo $$; exec sleep 60']))"
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(root), str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        out = tmp_path / "out.log"
        late = time.monotonic() + 60
        while not (out.exists() and out.read_text().strip()) and time.monotonic() < late:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
    finally:
        process.kill()
    assert not alive(int(out.read_text()))
    last = [(entry.kind, entry.data.get("reason")) for entry in read(tmp_path / "device.jsonl")][-2:]
    assert last == [("worker_ended", "cancelled"), ("released", None)]


@pytest.mark.parametrize("moment", ["granted", "worker_started", "worker_ended", "released"])
def test_an_interrupt_while_an_entry_is_written_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Right after the process was made is when it would be left behind."""
    add = Ledger.add

    def interrupted(self, kind, data):  # type: ignore[no-untyped-def]
        entry = add(self, kind, data)
        if kind == moment:
            signal.raise_signal(signal.SIGINT)
        return entry

    monkeypatch.setattr(Ledger, "add", interrupted)
    runner = LocalRunner(tmp_path / "device.jsonl", 1)
    seconds = "60" if moment == "worker_started" else "0"
    with pytest.raises(KeyboardInterrupt):
        runner.run(job(tmp_path, ["sleep", seconds]))
    runner.close()
    lease = ["asked", "granted", "worker_started", "worker_ended", "released"]
    if moment == "granted":
        lease = ["asked", "granted", "released"]
    entries = list(read(tmp_path / "device.jsonl"))
    assert [entry.kind for entry in entries] == ["service_started", *lease, "service_stopped"]
    assert entries[-1].data["held"] == 0
    assert not any(alive(entry.data["pid"]) for entry in entries if "pid" in entry.data)


def job(folder: Path, command: list[str], devices: int = 1) -> Job:
    mark = {running.MARK: str(folder / "records")}
    return Job(
        request="one", owner="grading/x", purpose="grading", devices=devices, command=tuple(command), source="0" * 64,
        cwd=folder, env={"PATH": "/usr/bin:/bin", **mark}, timeout_s=30, out=folder / "out.log", err=folder / "err.log",
    )  # fmt: skip


def alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
