"""The device service runs nothing twice: repeated requests, and services that were killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.pilot.device_service import RUN, Bench, living, stop, until
from traincheck.errors import TraincheckError
from traincheck.pilot.accounting.devices import rows
from traincheck.pilot.accounting.reconciling import device_problems
from traincheck.pilot.device.broker import Broker, Settings
from traincheck.pilot.device.client import Client, ServiceGoneError
from traincheck.pilot.device.messages import Result
from traincheck.pilot.ledger import read


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _counting(bench: Bench, then: str = "true") -> str:
    """A script that leaves a line for each time that it was run."""
    return f"echo run >> {bench.folder / 'runs'}; echo printed; echo file > out/file; {then}"


def _runs(bench: Bench) -> int:
    path = bench.folder / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_repeated_request_gives_the_recorded_result(bench: Bench) -> None:
    with bench.service() as client:
        first = client.run(bench.request("r1", _counting(bench, "exit 4")))
        again = client.run(bench.request("r1", _counting(bench, "exit 4")))
    assert _runs(bench) == 1
    assert not first.replayed
    assert again == first.model_copy(update={"replayed": True})
    assert bench.kinds("r1") == ["asked", "granted", "worker_started", "worker_ended", "released", "replayed"]
    assert device_problems(bench.entries(), "solver") == []


def test_a_request_repeated_while_it_runs_joins_it(bench: Bench) -> None:
    with bench.service() as client, ThreadPoolExecutor(2) as pool:
        script = _counting(bench, f"until test -e {bench.folder / 'go'}; do sleep 0.01; done")
        both = [pool.submit(client.run, bench.request("r1", script)) for _ in range(2)]
        until(lambda: _runs(bench) == 1)
        time.sleep(0.2)
        (bench.folder / "go").touch()
        one, two = (each.result() for each in both)
    assert one == two
    assert _runs(bench) == 1
    assert bench.kinds("r1").count("asked") == 1


@pytest.mark.parametrize("field", ["command", "source", "devices", "owner"])
def test_the_same_id_for_another_request_is_refused(bench: Bench, field: str) -> None:
    (bench.folder / "work" / "hello.txt").write_text("other\n")
    from traincheck.pilot.sources import capture

    other = {
        "command": ("true",),
        "source": bench.objects.put_map(capture(bench.folder / "work", bench.objects)),
        "devices": 2,
        "owner": "somebody",
    }
    with bench.service() as client:
        first = client.run(bench.request("r1", _counting(bench)))
        with pytest.raises(TraincheckError, match=f"asked before with another {field}"):
            client.run(bench.request("r1", _counting(bench)).model_copy(update={field: other[field]}))
        assert client.fetch("r1").stdout == first.stdout
    assert _runs(bench) == 1


def test_results_survive_a_killed_service(bench: Bench) -> None:
    process = bench.start()
    first = Client(bench.socket).run(bench.request("r1", _counting(bench)))
    assert stop(process, signal.SIGKILL) == -9
    with bench.service() as client:
        again = client.run(bench.request("r1", _counting(bench)))
    assert again == first.model_copy(update={"replayed": True})
    assert _runs(bench) == 1
    assert [entry.kind for entry in bench.entries()].count("service_started") == 2


def test_what_ran_when_the_service_was_killed_is_lost_and_not_run_again(bench: Bench) -> None:
    process = bench.start(1)
    client = Client(bench.socket)
    script = _counting(bench, f"sleep 3391.{RUN}")
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(client.run, bench.request("r1", script))
        until(lambda: living(f"3391.{RUN}"))
        queued = pool.submit(client.run, bench.request("r2", "true"))
        until(lambda: client.state().queued)
        stop(process, signal.SIGKILL)
        for one in (running, queued):
            with pytest.raises(ServiceGoneError):
                one.result()
    until(lambda: not living(f"3391.{RUN}"))  # its keeper ended it: nobody would have held it to its time
    with bench.service(1) as client:
        result = client.run(bench.request("r1", script))
        assert (result.status, result.reason, result.replayed) == ("ended", "lost", True)
        assert result.stdout.text == "printed\n"
        gone = client.run(bench.request("r2", "true"))
        assert gone.status == "refused"
        assert "killed while the request was queued" in gone.reason
        assert client.run(bench.request("r3", "true")).exit_code == 0
    assert _runs(bench) == 1
    assert bench.kinds("r1") == ["asked", "granted", "worker_started", "worker_ended", "released", "replayed"]
    assert bench.row("r1").reason == "lost"
    assert not bench.row("r1").gap
    assert not (bench.jobs / "r1" / "work").exists()
    (told,) = device_problems(bench.entries(), "solver")
    assert "r1: the worker was lost" in told


def _keeper_above(pid: int) -> int:
    """The keeper of a job, of whose processes ``pid`` is one."""
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("no keeper")


def test_a_worker_that_still_lives_after_a_kill_is_ended(bench: Bench) -> None:
    process = bench.start(1)
    job = bench.request("r1", f"sleep 3392.{RUN}; true")
    running = threading.Thread(target=_ignoring, args=(lambda: Client(bench.socket).run(job),))
    running.start()
    until(lambda: living(f"3392.{RUN}"))
    keeper = _keeper_above(living(f"3392.{RUN}")[0])
    os.kill(process.pid, signal.SIGSTOP)  # so that it can't see the keeper's death
    os.kill(keeper, signal.SIGKILL)
    stop(process, signal.SIGKILL)
    running.join()
    assert living(f"3392.{RUN}")
    with bench.service(1) as client:
        assert living(f"3392.{RUN}") == []
        assert client.fetch("r1").reason == "lost"
        assert client.state().free == (0,)


def test_a_job_whose_keeper_was_killed_is_lost(bench: Bench) -> None:
    with bench.service(1) as client, ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.run, bench.request("r1", f"sleep 3393.{RUN}; true"))
        until(lambda: living(f"3393.{RUN}"))
        os.kill(_keeper_above(living(f"3393.{RUN}")[0]), signal.SIGKILL)
        assert running.result().reason == "lost"
        assert living(f"3393.{RUN}") == []
        assert client.run(bench.request("r2", "true")).exit_code == 0


def test_a_result_that_was_written_before_the_kill_is_kept(bench: Bench) -> None:
    """Killed between the result and the ledger's entry: the work was done, and is not lost."""
    with bench.service(1) as client:
        first = client.run(bench.request("r1", _counting(bench)))
    lines = bench.ledger.read_bytes().splitlines(keepends=True)
    end = next(number for number, line in enumerate(lines) if b'"kind":"worker_ended"' in line)
    bench.ledger.write_bytes(b"".join(lines[:end]))
    with bench.service(1) as client:
        again = client.run(bench.request("r1", _counting(bench)))
    assert (again.reason, again.exit_code, again.files) == ("exit", 0, first.files)
    assert _runs(bench) == 1
    assert device_problems(bench.entries(), "solver") == []


def test_the_service_recovers_from_a_kill_at_any_moment(bench: Bench) -> None:
    """A ledger cut off after each of its entries, with the results that were written by then and without."""
    with bench.service(2) as client:
        for number, script in enumerate((_counting(bench), "exit 5")):
            client.run(bench.request(f"r{number}", script, number + 1))
        client.run(bench.request("large", "true", 3))
        client.run(bench.request("r0", _counting(bench)))
    lines = bench.ledger.read_bytes().splitlines(keepends=True)
    assert len(lines) == 15
    for cut in range(1, len(lines) + 1):
        for jobs in (bench.jobs, bench.folder / "nothing"):
            ledger = bench.folder / f"{cut}-{jobs.name}.jsonl"
            ledger.write_bytes(b"".join(lines[:cut]))
            asked = [entry.data["request"] for entry in read(ledger) if entry.kind == "asked"]
            answers = asyncio.run(_recovered(bench, ledger, jobs))
            assert set(answers) == set(asked)
            entries = list(read(ledger))
            assert b"".join(lines[:cut]) == ledger.read_bytes()[: len(b"".join(lines[:cut]))]
            assert [row.gap for row in rows(entries)] == [False] * len(asked)
            told = [one for one in device_problems(entries, "solver") if "the worker was lost" not in one]
            assert told == []
            codes = {name: one.exit_code for name, one in answers.items() if isinstance(one, Result)}
            assert set(codes) == {*asked} if jobs == bench.jobs else set(codes) <= {*asked}
            assert codes.get("r1", 5) in (5, -9, None)
    assert _runs(bench) == 1


async def _recovered(bench: Bench, ledger: Path, jobs: Path) -> dict[str, object]:
    """Start on a ledger, ask for everything again, stop: request -> what was told."""
    broker = Broker(Settings(ledger=ledger, store=bench.store, jobs=jobs, ids=(0, 1)))
    assert broker.free == [0, 1]
    answers: dict[str, object] = {}
    for name in broker.records:
        try:
            broker.attach(name, partial(answers.__setitem__, name))
        except TraincheckError as error:
            answers[name] = error.message
    told = [answer for answer in answers.values() if not isinstance(answer, Result)]
    assert all("missing or was changed" in str(one) for one in told)
    assert not told or not jobs.exists()
    assert not broker.active
    await broker.stop()
    return answers


def test_a_changed_result_is_not_given(bench: Bench) -> None:
    with bench.service(1) as client:
        client.run(bench.request("r1", _counting(bench, "exit 1")))
        path = bench.jobs / "r1" / "result.json"
        path.write_text(path.read_text().replace('"exit_code": 1', '"exit_code": 0'))
        with pytest.raises(TraincheckError, match="missing or was changed"):
            client.run(bench.request("r1", _counting(bench, "exit 1")))
    assert _runs(bench) == 1


def test_a_patient_client_goes_on_with_the_next_service(bench: Bench) -> None:
    process = bench.start(1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            Client(bench.socket, patience_s=20).run, bench.request("r1", _counting(bench, f"sleep 3394.{RUN}"))
        )
        until(lambda: living(f"3394.{RUN}"))
        stop(process, signal.SIGKILL)
        process = bench.start(1)
        try:
            assert running.result().reason == "lost"
        finally:
            assert stop(process) == 0
    assert _runs(bench) == 1


def test_what_an_owner_used_is_known_after_a_kill(bench: Bench) -> None:
    process = bench.start(1)
    Client(bench.socket).run(bench.request("r1", "sleep 0.4", budget_device_seconds=0.3))
    stop(process, signal.SIGKILL)
    with bench.service(1) as client:
        assert client.run(bench.request("r2", "true", budget_device_seconds=0.3)).status == "refused"


def test_a_service_ends_with_its_caller(bench: Bench) -> None:
    import subprocess
    import sys

    program = (
        "import os, sys; from pathlib import Path; from traincheck.pilot.device.launching import service\n"
        "folder = Path(sys.argv[1])\n"
        "with service(ledger=folder / 'device.jsonl', store=folder / 'store', jobs=folder / 'device', devices=1):\n"
        "    os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(bench.folder)], check=False, timeout=30)
    assert done.returncode == -9
    until(lambda: bench.entries()[-1].kind == "service_stopped")


def _ignoring(work: object) -> None:
    with pytest.raises(ServiceGoneError):
        work()  # type: ignore[operator]
