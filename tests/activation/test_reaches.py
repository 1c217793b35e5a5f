"""Collection reaches every Python process of a command that trains, however it is started, and no other."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from tests.activation.watching import TRAIN, Done, script, watched
from traincheck.trace import open_trace

MAIN = TRAIN + "import sys\nprint(train(), sys.argv[1:])\n"


def _complete(done: Done, processes: int = 1, steps: int = 2) -> None:
    """Every process of the run trained, ended as it should, and its trace lacks nothing."""
    accounts = done.fine().accounts
    assert len(accounts) == processes
    for account in accounts:
        assert (account["end"], account["exit"], account["dropped"], account["faults"]) == ("exit", 0, 0, [])
        assert account["steps"] == steps
    trace = open_trace(done.run)
    assert trace.lacks == []
    assert trace.steps == list(range(1, steps + 1))


def test_script_with_arguments(tmp_path: Path) -> None:
    done = watched(tmp_path, [*script(tmp_path, MAIN), "--lr", "1", "-x"])
    _complete(done)
    assert done.out.endswith(b"['--lr', '1', '-x']\n")


def test_module(tmp_path: Path) -> None:
    script(tmp_path, MAIN, "pkg/mod.py")
    _complete(watched(tmp_path, [sys.executable, "-m", "pkg.mod"]))


def test_command_string(tmp_path: Path) -> None:
    _complete(watched(tmp_path, [sys.executable, "-c", MAIN]))


@pytest.mark.parametrize("words", [[], ["-"]])
def test_program_from_standard_input(tmp_path: Path, words: list[str]) -> None:
    _complete(watched(tmp_path, [sys.executable, *words], stdin=MAIN.encode()))


@pytest.mark.parametrize("first_line", ["#!/bin/sh\n", ""])
def test_shell_script(tmp_path: Path, first_line: str) -> None:
    python = script(tmp_path, MAIN)
    shell = tmp_path / "train.sh"
    shell.write_text(f'{first_line}echo before\n"{python[0]}" {python[1]} "$@"\n')
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    done = watched(tmp_path, ["./train.sh", "two words"])
    _complete(done)
    assert done.out.startswith(b"before\n")
    assert done.out.endswith(b"['two words']\n")


def test_grandchildren(tmp_path: Path) -> None:
    script(tmp_path, MAIN)
    outer = "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, 'program.py'], check=True)\n"
    _complete(watched(tmp_path, script(tmp_path, outer, "outer.py")), processes=2)


def test_a_child_that_is_exec_ed(tmp_path: Path) -> None:
    """``exec`` replaces a process that imported torch: each of the two programs is a process of the run."""
    script(tmp_path, MAIN)
    outer = "import os, sys, torch\nos.execv(sys.executable, [sys.executable, 'program.py'])\n"
    done = watched(tmp_path, script(tmp_path, outer, "outer.py")).fine()
    assert [(a["end"], a["exit"], a["pid"] == done.accounts[0]["pid"]) for a in done.accounts] == [
        ("running", None, True),
        ("exit", 0, True),
    ]


def test_torchrun(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = script(tmp_path, TRAIN + "train()\n")
    done = watched(tmp_path, [*launcher, program[1]])
    _complete(done, processes=2)
    assert sorted(account["rank"]["rank"] for account in done.accounts) == [0, 1]
    assert {account["environment"]["WORLD_SIZE"] for account in done.accounts} == {"2"}


def test_torchrun_as_a_script(tmp_path: Path) -> None:
    torchrun = Path(sys.executable).with_name("torchrun")
    if not torchrun.exists():
        pytest.skip("no torchrun beside this Python")
    program = script(tmp_path, TRAIN + "train()\n")
    _complete(watched(tmp_path, [str(torchrun), "--standalone", "--nproc-per-node", "1", program[1]]))


def test_processes_that_do_not_train_leave_no_folder(tmp_path: Path) -> None:
    program = "import json, subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import json'], check=True)\n"
    done = watched(tmp_path, script(tmp_path, program)).fine()
    assert done.accounts == []
    assert done.said[-1] == "traincheck: nothing was collected: no Python process of the command imported torch"


@pytest.mark.parametrize("flags", [["-E"], ["-I"], ["-S"]])
def test_interpreters_that_ignore_the_environment_are_not_covered(tmp_path: Path, flags: list[str]) -> None:
    done = watched(tmp_path, [sys.executable, *flags, "-c", "print('ran')"]).fine()
    assert done.out == b"ran\n"
    assert "no Python process of the command could be reached (one started with -E, -I or -S" in done.said[-1]


def test_no_python_at_all(tmp_path: Path) -> None:
    done = watched(tmp_path, ["echo", "hello"]).fine()
    assert done.out == b"hello\n"
    assert "no Python process of the command could be reached" in done.said[-1]


def test_an_interpreter_without_traincheck(tmp_path: Path) -> None:
    """It is told when torch is imported there, and only then."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "torch.py").write_text("")
    base = os.path.realpath(sys.executable)
    bare = [base, "-c", "import sys; sys.path.append('site'); import torch; print('ran')"]
    done = watched(tmp_path, bare).fine()
    assert done.out == b"ran\n"
    if "is not installed there" not in done.said[-1]:
        pytest.skip("the Python that this environment was made from has TrainCheck too")
    assert done.said[-1] == f"traincheck: nothing was collected: {base}: TrainCheck is not installed there"
    assert done.manifest["not_watched"] == [f"{base}: TrainCheck is not installed there"]
    assert done.manifest["complete"] is False

    quiet = watched(tmp_path, [base, "-c", "print('ran')"], "--force").fine()
    assert "no Python process of the command imported torch" in quiet.said[-1]
