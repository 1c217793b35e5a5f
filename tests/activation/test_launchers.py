"""Launchers of frameworks: their ranks are collected, they themselves are not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.activation.watching import TRAIN, script, watched
from traincheck.collect.commandlines import is_fork_server, is_launcher, started

PYTHON = ["/usr/bin/python3"]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["train.py", "-m", "x"], ("script", "train.py")),
        (["-m", "pkg.mod", "-c"], ("-m", "pkg.mod")),
        (["-mpkg.mod"], ("-m", "pkg.mod")),
        (["-um", "pkg.mod"], ("-m", "pkg.mod")),
        (["-Bsum", "pkg.mod"], ("-m", "pkg.mod")),
        (["-X", "dev", "-W", "ignore", "train.py"], ("script", "train.py")),
        (["-Xdev", "-Wignore", "-m", "pkg"], ("-m", "pkg")),
        (["-c", "print(1)", "-m"], ("-c", "print(1)")),
        (["-cprint(1)"], ("-c", "print(1)")),
        (["--check-hash-based-pycs", "never", "-u", "train.py"], ("script", "train.py")),
        (["-"], ("stdin", "")),
        ([], ("stdin", "")),
        (["-i"], ("stdin", "")),
    ],
)
def test_what_a_command_line_runs(argv: list[str], expected: tuple[str, str]) -> None:
    assert started([*PYTHON, *argv]) == expected


@pytest.mark.parametrize(
    ("argv", "launches"),
    [
        (["/opt/bin/torchrun", "--nproc-per-node", "2", "train.py"], True),
        (["-m", "torch.distributed.run", "train.py"], True),
        (["-X", "dev", "-um", "torch.distributed.launch", "train.py"], True),
        (["/venv/lib/torch/distributed/run.py", "train.py"], True),
        (["/opt/bin/accelerate", "launch", "train.py"], True),
        (["-m", "accelerate.commands.launch", "train.py"], True),
        (["/opt/bin/deepspeed", "train.py"], True),
        (["-u", "-m", "deepspeed.launcher.launch", "--world_info=e30="], True),
        (["/venv/lib/torch/_inductor/compile_worker/__main__.py", "--pickler=x"], True),
        (["-m", "torch._inductor.autotune_process"], True),
        (["-s", "-c", "from multiprocessing.resource_tracker import main;main(5)"], True),
        (["train.py", "torchrun"], False),
        (["-m", "torch.distributed.checkpoint.format_utils"], False),
        (["-m", "torch.distributed.running"], False),
        (["torchrun.py"], False),
        (["accelerate/train.py"], False),
        (["-c", "import torch.distributed.run"], False),
        (["-c", "from multiprocessing.spawn import spawn_main; spawn_main(5)"], False),
        ([], False),
    ],
)
def test_launchers_are_told_by_their_command_line(argv: list[str], launches: bool) -> None:
    assert is_launcher([*PYTHON, *argv]) is launches


def test_fork_servers_are_told_by_their_command_line() -> None:
    assert is_fork_server([*PYTHON, "-B", "-c", "from multiprocessing.forkserver import main; main(3, 5, [])"])
    assert not is_fork_server([*PYTHON, "-c", "import torch"])


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--num_processes", "1"], ["--multi_gpu", "--num_processes", "2"]])
def test_accelerate_launch(tmp_path: Path, options: list[str]) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed (pip install -e .[frameworks])")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--num_machines", "1", *options]
    program = script(tmp_path, TRAIN + "train()\nprint('trained')\n")
    done = watched(tmp_path, [*launcher, program[1]], HF_HOME=str(tmp_path / "hf")).fine()
    processes = done.out.count(b"trained")
    assert processes == int(options[-1])
    assert [(a["end"], a["exit"], a["steps"], a["faults"]) for a in done.accounts] == [("exit", 0, 2, [])] * processes


@pytest.mark.slow
def test_deepspeed(tmp_path: Path) -> None:
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed (pip install -e .[frameworks])")
    launcher = [sys.executable, "-m", "deepspeed.launcher.runner", "--num_gpus", "2"]
    program = script(tmp_path, TRAIN + "train()\nprint('trained')\n")
    done = watched(tmp_path, [*launcher, program[1]], DS_ACCELERATOR="cpu", HOME=str(tmp_path)).fine()
    assert done.out.count(b"trained") == 2
    assert [(a["end"], a["exit"], a["steps"], a["faults"]) for a in done.accounts] == [("exit", 0, 2, [])] * 2
