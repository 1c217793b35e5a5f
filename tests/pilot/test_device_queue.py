"""The device service's queue: first come first served, nothing given twice, waits written down, budgets kept."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.pilot.device_service import RUN, Bench, living, stop, until
from traincheck.errors import TraincheckError
from traincheck.pilot.accounting.devices import rows
from traincheck.pilot.accounting.reconciling import device_problems
from traincheck.pilot.device import launching
from traincheck.pilot.device.client import AsyncClient, Client, ServiceGoneError
from traincheck.pilot.device.messages import Progress


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _hold(bench: Bench, name: str = "go") -> str:
    """A script that runs until a file is there."""
    return f"until test -e {bench.folder / name}; do sleep 0.01; done"


def test_a_large_request_is_not_overtaken(bench: Bench) -> None:
    with bench.service(2) as client, ThreadPoolExecutor(3) as pool:
        small = pool.submit(client.run, bench.request("small", _hold(bench)))
        until(lambda: client.state().running == ("small",))
        large = pool.submit(client.run, bench.request("large", "true", 2))
        until(lambda: client.state().queued == ("large",))
        late = pool.submit(client.run, bench.request("late", "true"))
        until(lambda: client.state().queued == ("large", "late"))
        assert client.state().free == (1,)  # it would fit, and waits all the same
        (bench.folder / "go").touch()
        for one in (small, large, late):
            assert one.result().exit_code == 0
    granted = [entry.data["request"] for entry in bench.entries() if entry.kind == "granted"]
    assert granted == ["small", "large", "late"]


def test_many_requests_are_served_in_order_and_nothing_is_given_twice(bench: Bench) -> None:
    chance = random.Random(3)
    wanted = [
        bench.request(f"r{number}", f"sleep 0.0{chance.randrange(10)}", chance.randrange(1, 4)) for number in range(14)
    ]

    async def all_of_them(path: Path) -> None:
        client = AsyncClient(path)
        results = await asyncio.gather(*(client.run(one) for one in wanted))
        assert [one.exit_code for one in results] == [0] * len(wanted)
        assert [len(one.devices) for one in results] == [one.devices for one in wanted]

    with bench.service(3) as client:
        asyncio.run(all_of_them(client.path))
        assert client.state().free == (0, 1, 2)
    entries = bench.entries()
    asked = [entry.data["request"] for entry in entries if entry.kind == "asked"]
    assert [entry.data["request"] for entry in entries if entry.kind == "granted"] == asked
    held: set[int] = set()
    owners: dict[str, set[int]] = {}
    for entry in entries:  # by hand, besides what device_problems says
        if entry.kind == "granted":
            assert not held & set(entry.data["devices"])
            owners[entry.data["request"]] = set(entry.data["devices"])
            held |= owners[entry.data["request"]]
            assert held <= {0, 1, 2}
        elif entry.kind == "released":
            held -= owners[entry.data["request"]]
    assert held == set()
    assert device_problems(entries, "solver") == []


def test_a_wait_is_from_asked_to_granted(bench: Bench) -> None:
    told: list[tuple[str, int]] = []

    def tell(progress: Progress) -> None:
        told.append((progress.event, time.clock_gettime_ns(time.CLOCK_MONOTONIC)))

    with bench.service(1) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.run, bench.request("first", "sleep 0.4"))
        until(lambda: client.state().running)
        second = client.run(bench.request("second", "sleep 0.3"), tell)
        first.result()
    row = bench.row("second")
    assert row.answered_ns is not None
    waited = row.answered_ns - row.asked_ns
    assert 0.1e9 < waited < 2e9
    (queued, queued_ns), (granted, granted_ns) = told
    assert (queued, granted) == ("queued", "granted")
    assert abs((granted_ns - queued_ns) - waited) < 0.2e9  # a caller that suspends its clock sees the same
    assert row.answered_ns >= (bench.row("first").released_ns or 0)
    assert second.times.granted_ns == row.answered_ns


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"devices": 3}, "3 devices were asked for, there are 2"),
        ({"source": "0" * 64}, "source map 0+ is missing"),
    ],
)
def test_what_can_never_be_is_refused_at_once(bench: Bench, more: dict[str, object], told: str) -> None:
    with bench.service(2) as client:
        result = client.run(bench.request("r1", "true").model_copy(update=more))
        again = client.run(bench.request("r1", "true").model_copy(update=more))
    assert (result.status, result.exit_code, result.replayed) == ("refused", None, False)
    assert again == result.model_copy(update={"replayed": True})
    import re

    assert re.search(told, result.reason)
    assert bench.kinds("r1") == ["asked", "refused", "replayed"]
    assert bench.row("r1").device_ns() == 0
    assert device_problems(bench.entries(), "solver") == []


def test_a_source_without_its_content_is_refused(bench: Bench) -> None:
    source = bench.objects.get_map(bench.source)
    name = source.entries["hello.txt"].sha256
    assert name is not None
    (bench.store / "objects" / name[:2] / name[2:]).unlink()
    with bench.service() as client:
        result = client.run(bench.request("r1", "true"))
    assert result.status == "refused"
    assert "hello.txt" in result.reason


def test_a_budget_is_the_owners_and_ends_what_runs(bench: Bench) -> None:
    with bench.service(2) as client:
        first = client.run(bench.request("r1", "sleep 0.3", 2, budget_device_seconds=1.4))
        assert first.exit_code == 0
        second = client.run(bench.request("r2", "sleep 30", 2, budget_device_seconds=1.4))
        assert (second.reason, second.exit_code) == ("budget", -9)
        third = client.run(bench.request("r3", "true", budget_device_seconds=1.4))
        assert (third.status, third.reason) == ("refused", "the budget of 1.4 device-seconds is used up")
        other = client.run(bench.request("r4", "true", owner="another", budget_device_seconds=1.4))
        assert other.exit_code == 0
    used = sum(row.device_ns() for row in rows(bench.entries()) if row.owner == "trial")
    assert 1.4e9 <= used < 3e9


def test_a_budget_is_shared_by_jobs_that_run_together(bench: Bench) -> None:
    with bench.service(2) as client, ThreadPoolExecutor(2) as pool:
        begin = time.monotonic()
        both = [pool.submit(client.run, bench.request(name, "sleep 30", budget_device_seconds=2.0)) for name in "ab"]
        assert [one.result().reason for one in both] == ["budget", "budget"]
        assert time.monotonic() - begin < 10
    used = [bench.row(name).device_ns() for name in "ab"]
    assert sum(used) >= 2e9
    assert min(used) < 1.8e9  # one alone would have two seconds, two together one each


def test_a_budget_that_was_used_up_meanwhile_refuses_at_the_head_of_the_queue(bench: Bench) -> None:
    with bench.service(1) as client, ThreadPoolExecutor(2) as pool:
        running = pool.submit(client.run, bench.request("r1", "sleep 30", budget_device_seconds=0.4))
        until(lambda: client.state().running)
        queued = pool.submit(client.run, bench.request("r2", "true", budget_device_seconds=0.4))
        assert running.result().reason == "budget"
        assert queued.result().status == "refused"


def test_a_queued_request_is_cancelled(bench: Bench) -> None:
    with bench.service(1) as client, ThreadPoolExecutor(2) as pool:
        running = pool.submit(client.run, bench.request("r1", _hold(bench)))
        until(lambda: client.state().running)
        queued = pool.submit(client.run, bench.request("r2", "true"))
        until(lambda: client.state().queued)
        client.cancel("r2")
        result = queued.result()
        assert (result.status, result.reason) == ("refused", "cancelled")
        (bench.folder / "go").touch()
        assert running.result().exit_code == 0
        with pytest.raises(TraincheckError, match="no request 'r9'"):
            client.cancel("r9")
    row = bench.row("r2")
    assert row.answered_ns is not None
    assert row.answered_ns > row.asked_ns  # it waited until the answer
    assert not row.granted


def test_a_running_job_is_cancelled(bench: Bench) -> None:
    with bench.service(1) as client, ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.run, bench.request("r1", f"sleep 3381.{RUN}"))
        until(lambda: living(f"3381.{RUN}"))
        client.cancel("r1")
        result = running.result()
        assert (result.status, result.reason, result.exit_code) == ("ended", "cancelled", -9)
        assert living(f"3381.{RUN}") == []
        client.cancel("r1")  # it is over: nothing happens
    assert bench.kinds("r1") == ["asked", "granted", "worker_started", "worker_ended", "released"]


def test_what_a_dead_requester_left_is_cleared(bench: Bench) -> None:
    with bench.service(1) as client, ThreadPoolExecutor(3) as pool:
        running = pool.submit(client.run, bench.request("t1/a", f"sleep 3383.{RUN}"))
        until(lambda: living(f"3383.{RUN}"))
        queued = pool.submit(client.run, bench.request("t1/b", "true"))
        until(lambda: client.state().queued == ("t1/b",))
        other = pool.submit(client.run, bench.request("t10/a", "true"))
        until(lambda: client.state().queued == ("t1/b", "t10/a"))
        assert client.clear("t1/") == ["t1/b", "t1/a"]
        assert bench.row("t1/a").released_ns is not None
        assert (running.result().reason, queued.result().status) == ("cancelled", "refused")
        assert other.result().exit_code == 0
        assert client.clear("t1/") == []


def test_a_client_that_goes_leaves_the_queue(bench: Bench) -> None:
    async def scenario(path: Path) -> None:
        client = AsyncClient(path)
        running = asyncio.create_task(client.run(bench.request("r1", _hold(bench))))
        while not (await client.state()).running:
            await asyncio.sleep(0.01)
        queued = asyncio.create_task(client.run(bench.request("r2", "true")))
        while not (await client.state()).queued:
            await asyncio.sleep(0.01)
        queued.cancel()
        while (await client.state()).queued:
            await asyncio.sleep(0.01)
        (bench.folder / "go").touch()
        assert (await running).exit_code == 0

    with bench.service(1) as client:
        asyncio.run(asyncio.wait_for(scenario(client.path), 20))
        assert client.fetch("r2").reason == "cancelled"
    assert bench.kinds("r2") == ["asked", "refused", "replayed"]


def test_a_job_goes_on_without_its_client_and_is_fetched(bench: Bench) -> None:
    async def scenario(path: Path) -> None:
        client = AsyncClient(path)
        leaving = asyncio.create_task(client.run(bench.request("r1", f"{_hold(bench)}; echo end")))
        while not (await client.state()).running:
            await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.sleep(0.1)
        assert (await client.state()).running == ("r1",)
        fetching = asyncio.create_task(client.fetch("r1"))
        await asyncio.sleep(0.05)
        (bench.folder / "go").touch()
        result = await fetching
        assert (result.exit_code, result.stdout.text, result.replayed) == (0, "end\n", False)

    with bench.service(1) as client:
        asyncio.run(asyncio.wait_for(scenario(client.path), 20))
        assert client.fetch("r1").stdout.text == "end\n"
        with pytest.raises(TraincheckError, match="no request"):
            client.fetch("r9")


def test_stopping_ends_jobs_and_gives_everything_back(bench: Bench) -> None:
    process = bench.start(1)
    client = Client(bench.socket)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(client.run, bench.request("r1", f"sleep 3382.{RUN}"))
        until(lambda: living(f"3382.{RUN}"))
        queued = pool.submit(client.run, bench.request("r2", "true"))
        until(lambda: client.state().queued)
        assert stop(process) == 0
        assert running.result().reason == "cancelled"
        assert (queued.result().status, queued.result().reason) == ("refused", "the service was stopped")
    assert living(f"3382.{RUN}") == []
    assert not bench.socket.exists()
    last = bench.entries()[-1]
    assert (last.kind, last.data) == ("service_stopped", {"held": 0})
    assert device_problems(bench.entries(), "solver") == []
    with pytest.raises(ServiceGoneError, match="is gone"):
        client.state()


def test_two_services_do_not_share_a_ledger(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    with bench.service(1), pytest.raises(TraincheckError, match="did not start"), bench.service(1):
        pass
    assert "another device service writes" in capfd.readouterr().err


def test_a_socket_path_that_is_too_long_is_told(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    import subprocess

    long = bench.folder / ("x" * 120)
    command = launching.command(long, ledger=bench.ledger, store=bench.store, jobs=bench.jobs, devices=1)
    assert subprocess.run(command, timeout=30, check=False).returncode == 2
    assert "too long for a socket" in capfd.readouterr().err


def test_only_its_user_may_speak_to_the_service_and_nonsense_is_answered(bench: Bench) -> None:
    process = bench.start(1)
    try:
        assert bench.socket.stat().st_mode & 0o777 == 0o600
        for line, told in (
            (b"nonsense\n", "no message"),
            (b'{"op": "dance"}\n', "no operation"),
            (b"[]\n", "no object"),
        ):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(bench.socket))
                connection.sendall(line)
                assert told in connection.makefile().readline()
        assert Client(bench.socket).state().devices == 1
    finally:
        assert stop(process) == 0
