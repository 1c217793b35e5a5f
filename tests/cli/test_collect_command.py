"""``traincheck collect`` from outside: the program is left as it is, and a trace is there afterwards."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.cli_support import plain_environment
from traincheck import open_trace
from traincheck.trace.build import TraceBuilder

TRAINING = """
import sys
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
print("arguments", sys.argv[1:])
print("on stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]) if sys.argv[1:2] and sys.argv[1].isdigit() else 0)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


def test_output_arguments_and_exit_code_are_the_programs_own(traincheck, script, tmp_path):
    command = [sys.executable, script, "7", "--json", "-o", "x", "--", "--help", ""]
    result = traincheck("collect", "-o", "run", "--", *command)
    assert result.returncode == 7
    assert result.stdout == "arguments ['7', '--json', '-o', 'x', '--', '--help', '']\n"
    ours = [line for line in result.stderr.splitlines() if line != "on stderr"]
    assert ours[0].startswith("traincheck: collecting into run")
    assert "4 steps" in ours[-1]
    trace = open_trace(tmp_path / "run")
    assert trace.manifest is not None
    assert trace.manifest.exit_code == 7
    assert trace.steps == [1, 2, 3, 4]


def test_quiet_is_silent_and_the_separator_optional(traincheck, script):
    result = traincheck("collect", "--quiet", "-o", "run", sys.executable, script, "--flag")
    assert (result.returncode, result.stdout, result.stderr) == (0, "arguments ['--flag']\n", "on stderr\n")


def test_default_folder_is_named_after_the_script(traincheck, script, tmp_path):
    assert traincheck("collect", "--", sys.executable, script).returncode == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("train-")


def test_an_existing_trace_is_never_mixed(traincheck, script, tmp_path):
    TraceBuilder().write(tmp_path / "run")
    (before,) = (tmp_path / "run" / "processes").iterdir()
    result = traincheck("collect", "-o", "run", "--", sys.executable, script)
    assert result.returncode == 2
    assert result.stderr.startswith("error: the output run exists already\ntry: ")
    assert result.stdout == ""  # the program was not started
    assert before.exists()
    assert traincheck("collect", "-o", "run", "--force", "--", sys.executable, script).returncode == 0
    (after,) = (tmp_path / "run" / "processes").iterdir()
    assert after != before


def test_a_command_that_is_not_there(traincheck, tmp_path):
    result = traincheck("collect", "-o", "run", "--", "no-such-trainer", "--lr", "1")
    assert result.returncode == 2
    assert "error: the command 'no-such-trainer' was not found\n" in result.stderr
    assert not (tmp_path / "run").exists()


def test_scope_sampling_and_stage_reach_the_plan(traincheck, script, tmp_path):
    options = ["--scope", "boundary", "--every", "2", "--warmup", "1", "--stage-only", "training,evaluation"]
    result = traincheck("collect", "-o", "run", *options, "--package", "json", "--", sys.executable, script)
    assert result.returncode == 0
    plan = json.loads((tmp_path / "run" / "manifest.json").read_text())["plan"]
    assert plan["scope"] == "boundary"
    assert (plan["every"], plan["warmup"]) == (2, 1)
    assert plan["stages"] == ["training", "evaluation"]
    assert plan["packages"] == ["torch", "json"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_program(tmp_path, number):
    ready = tmp_path / "ready"
    program = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-m", "traincheck", "collect", "-q", "-o", "run", "--", sys.executable, "-c", program],
        cwd=tmp_path,
        env=plain_environment(),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    if number == signal.SIGINT:
        import os

        os.killpg(process.pid, number)  # as the terminal does it: to the whole group
    else:
        process.send_signal(number)
    assert process.wait(60) == 128 + number if number == signal.SIGTERM else process.wait(60) in (1, 130)


def test_a_program_without_torch_is_told_so(traincheck):
    result = traincheck("collect", "-o", "run", "--", sys.executable, "-c", "print(1)")
    assert result.returncode == 0
    assert result.stdout == "1\n"
    assert "nothing was collected" in result.stderr
