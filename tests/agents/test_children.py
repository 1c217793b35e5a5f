"""Children of a tool call: all of them end, in time, and none is missed."""

from __future__ import annotations

import os
import sys
import time

import anyio
import pytest

from tests.agents.agent_support import gone, living, pids
from traincheck.agents import children as children_module
from traincheck.agents.children import Children
from traincheck.marked import carrying


async def quiet() -> None:
    pass


async def start(children, folder, command, timeout_s=60.0, tell=quiet):
    return await children.run(
        command, cwd=folder, env=dict(os.environ), out=folder / "out", err=None, timeout_s=timeout_s, tell=tell
    )


def test_exit_code_output_and_time(tmp_path):
    ended = anyio.run(start, Children(), tmp_path, ["sh", "-c", "echo to out; echo to err >&2; exit 7"])
    assert (ended.exit_code, ended.timed_out) == (7, False)
    assert (tmp_path / "out").read_text() == "to out\nto err\n"
    assert 0 < ended.wall_s < 10


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        anyio.run(start, Children(), tmp_path, ["no-such-program-anywhere"])


def test_a_timeout_ends_all_that_was_started(project):
    ended = anyio.run(start, Children(), project, [sys.executable, "sleeper.py"], 2.0)
    assert ended.timed_out
    assert ended.exit_code == -15
    assert living(pids(project, 1)) == []


def test_what_has_no_environment_for_a_moment_is_not_missed(project, monkeypatch):
    """As between fork and exec: each look that comes after a wait may find what the one before did not."""
    looks = []

    def every_other(variable):
        looks.append(variable)
        return carrying(variable) if len(looks) % 2 == 0 else set()

    monkeypatch.setattr(children_module, "carrying", every_other)
    ended = anyio.run(start, Children(), project, [sys.executable, "sleeper.py"], 4.0)
    assert ended.timed_out
    assert living(pids(project, 1)) == []


def test_cancelling_ends_all_that_was_started(project):
    async def cancelled():
        async with anyio.create_task_group() as group:
            group.start_soon(start, Children(), project, [sys.executable, "sleeper.py"])
            numbers = await anyio.to_thread.run_sync(pids, project)
            assert living(numbers) == numbers
            group.cancel_scope.cancel()
        return numbers

    assert living(anyio.run(cancelled)) == []


def test_what_ignores_the_request_is_ended_by_force(project):
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + (project / "sleeper.py").read_text()
    (project / "sleeper.py").write_text(stubborn)
    children = Children()

    async def closing():
        async with anyio.create_task_group() as group:
            group.start_soon(start, children, project, [sys.executable, "sleeper.py"])
            numbers = await anyio.to_thread.run_sync(pids, project)
            children.close()
            began = time.monotonic()
            group.cancel_scope.cancel()
        return numbers, time.monotonic() - began

    numbers, took = anyio.run(closing)
    assert living(numbers) == []
    assert took < 4  # a server that is told to end has no more time than that


def test_what_stays_in_the_background_is_ended_too(project):
    left = "sh -c 'sleep 300 & echo $! > pids'"
    ended = anyio.run(start, Children(), project, ["sh", "-c", left])
    assert ended.exit_code == 0
    assert gone(pids(project), 1)


def test_it_tells_that_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("traincheck.agents.children.EVERY_S", 0.1)
    told = []

    async def tell():
        told.append(time.monotonic())

    anyio.run(start, Children(), tmp_path, ["sleep", "1"], 60.0, tell)
    assert 3 <= len(told) <= 12
