"""A trial's side of the device service: keys, results that come back, and jobs that run in the trial's place."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from traincheck.pilot import jail
from traincheck.pilot.device.messages import Result
from traincheck.pilot.inspecting.devices import Desk
from traincheck.pilot.inspecting.tools import told
from traincheck.pilot.places import Place
from traincheck.pilot.sources import capture

from .device_service import Bench
from .places_support import inside, trial_place

KIND = "jail" if jail.available().ok else "local"


def desk(bench: Bench, socket: Path, place: Place, budget: float = 60.0) -> Desk:
    return Desk("t-x", socket, place, bench.objects, timeout_s=20.0, budget=budget)


def ask(one: Desk, bench: Bench, place: Place, command: str, call: str | None, devices: int = 1) -> Result:
    source = bench.objects.put_map(capture(place.root / "work", bench.objects))
    return asyncio.run(one.run(command, devices, source, call, lambda: None))


def test_a_job_runs_in_the_trials_place_on_a_copy_of_its_workspace(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    with trial_place(tmp_path, "control", KIND) as place, bench.service() as client:
        one = desk(bench, client.path, place)
        code = "import os, sys; print(sorted(os.environ)); open('train.py', 'w')"
        result = ask(
            one,
            bench,
            place,
            f'pwd; ls train.py; cat /proc/self/status | grep CapEff; {sys.executable} -c "{code}"',
            "c1",
        )
        assert result.exit_code == 0, result.stderr.text
        assert "train.py" in result.stdout.text
        assert "'HOME'" in result.stdout.text
        assert "PYTEST_CURRENT_TEST" not in result.stdout.text
        if KIND == "jail":
            assert "/mnt/jobs/" in result.stdout.text
            assert "CapEff:\t0000000000000000" in result.stdout.text
        assert (place.root / "work" / "train.py").stat().st_size > 0  # the copy was changed, not the workspace
        assert list((place.root / "jobs").iterdir()) == []


def test_what_a_job_leaves_under_out_comes_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    with trial_place(tmp_path, "control", KIND) as place, bench.service() as client:
        one = desk(bench, client.path, place)
        result = ask(one, bench, place, "mkdir -p out/run; echo 1 > out/run/loss; echo 2 > elsewhere", "c1")
        assert sorted(result.files) == ["run/loss"]
        assert inside(place, "cat", "out/run/loss").stdout == "1\n"
        assert not (place.root / "work" / "elsewhere").exists()


@pytest.mark.skipif(KIND != "jail", reason="nothing is out of reach without a jail")
def test_a_link_in_the_workspace_does_not_lead_us_out(tmp_path: Path) -> None:
    bench, away = Bench(tmp_path / "bench"), tmp_path / "away"
    away.mkdir()
    with trial_place(tmp_path, "control") as place, bench.service() as client:
        source = bench.objects.put_map(capture(place.root / "work", bench.objects))
        inside(place, "ln", "-s", str(away), "out")
        one = desk(bench, client.path, place)
        asyncio.run(one.run("mkdir -p out && echo 1 > out/x", 1, source, "c1", lambda: None))
    assert list(away.iterdir()) == []


def test_a_result_that_was_never_given_is_given_again_and_nothing_runs(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    with trial_place(tmp_path, "control", KIND) as place, bench.service() as client:
        one = desk(bench, client.path, place)
        first = ask(one, bench, place, "date +%s.%N", "c1")
        one.forget()  # the solver died before it was given the result
        again = ask(one, bench, place, "date +%s.%N", "c2")
        assert again.replayed
        assert again.stdout == first.stdout
        one.answered("c2")
        anew = ask(one, bench, place, "date +%s.%N", "c3")
        assert not anew.replayed
        assert anew.stdout != first.stdout
    ran = [entry for entry in bench.entries() if entry.kind == "worker_started"]
    assert len(ran) == 2


def test_the_same_asked_twice_at_once_is_two_requests(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    with trial_place(tmp_path, "control", "local") as place:
        one = desk(bench, tmp_path / "none", place)
        assert one.key("x", "c1") == "t-x/x/0"
        assert one.key("x", "c2") == "t-x/x/1"
        assert one.key("y", "c3") == "t-x/y/0"
        one.answered("c1")
        one.answered("c2")
        assert one.key("x", "c4") == "t-x/x/2"


def test_what_does_not_fit_the_budget_is_ended_or_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    with trial_place(tmp_path, "control", KIND) as place, bench.service() as client:
        one = desk(bench, client.path, place, budget=0.5)
        first = ask(one, bench, place, "sleep 10", "c1")
        assert (first.status, first.reason) == ("ended", "budget")
        second = ask(one, bench, place, "true", "c2")
        assert second.status == "refused"
        assert "budget" in second.reason
        assert told(second).startswith("not run: ")


def test_the_wait_is_told_to_be_over_when_devices_are_given(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    with trial_place(tmp_path, "control", KIND) as place, bench.service(devices=1) as client:
        one = desk(bench, client.path, place)
        source = bench.objects.put_map(capture(place.root / "work", bench.objects))
        order: list[str] = []

        async def both() -> None:
            async def run(name: str) -> None:
                await one.run(f"sleep 0.3; echo {name}", 1, source, name, lambda: order.append(f"{name} granted"))
                order.append(f"{name} done")

            await asyncio.gather(run("a"), run("b"))

        asyncio.run(both())
    assert order.index(f"{order[0][0]} done") < order.index(f"{'b' if order[0][0] == 'a' else 'a'} granted")


def test_what_a_job_leaves_running_is_ended(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bench")
    with trial_place(tmp_path, "control", KIND) as place, bench.service() as client:
        one = desk(bench, client.path, place)
        mark = f"97{os.getpid()}"
        ask(one, bench, place, f"setsid sleep {mark} > /dev/null 2>&1 & sleep 0.2", "c1")
        found = inside(place, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert f"sleep {mark}" not in found.stdout
