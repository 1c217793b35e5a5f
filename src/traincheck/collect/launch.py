"""Launching: runs the user's command as it is, with collection switched on through the environment.

The command's cwd, standard streams, arguments, signals and exit code are its own. Nothing heavy is imported here.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traincheck.collect import runfolder
from traincheck.collect.activation import environment
from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError


class LaunchError(TraincheckError):
    """The command could not be started as asked. Remedy: the message names the argument to change."""


@dataclass(frozen=True)
class LaunchOptions:
    """What ``traincheck collect`` was asked for. ``output`` None: a new folder in the current directory."""

    command: Sequence[str]
    output: Path | None = None
    plan: Plan = field(default_factory=Plan)
    force: bool = False
    quiet: bool = False


def launch(options: LaunchOptions) -> int:
    """Run the command and return its exit code (128 + n if signal n ended it).

    Raises LaunchError for a command that can't be found or an output that is taken. An output that can't be written
    does not keep the
    command from running: it runs unwatched, and that is said.
    """
    command = list(options.command)
    program = _find(command)
    started = time.time_ns()
    run, problem = _prepare(options, command, started)
    if problem is not None:
        _say(options, f"not collecting: {problem}; the program runs all the same")
        code = _run(program, command, dict(os.environ))
        _say(options, f"no trace was written: {problem}")
        return code
    _say(options, f"collecting into {run} ({options.plan.scope} scope)")
    code = _run(program, command, environment(str(run.resolve()), dict(os.environ)))
    trouble = runfolder.finish(run, code)
    _say(options, runfolder.summary(run, trouble))
    return code


def _find(command: list[str]) -> str:
    if not command:
        raise LaunchError("there is no command to run", "traincheck collect -- python train.py")
    program = shutil.which(command[0])
    if program is None:
        raise LaunchError(f"the command {command[0]!r} was not found", "check the name, or give its path")
    return program


def _prepare(options: LaunchOptions, command: list[str], started: int) -> tuple[Path, str | None]:
    run = options.output or Path(time.strftime("traincheck-%Y%m%d-%H%M%S", time.localtime(started / 1e9)))
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        if not options.force:
            raise LaunchError(
                f"{run} exists and is not empty", "name another folder with -o, or give --force to replace a trace"
            )
        runfolder.clear(run)
    try:
        runfolder.create(run, options.plan, command, started)
    except OSError as error:
        return run, f"{run} can't be written ({error.strerror or error})"
    return run, None


def _run(program: str, command: list[str], env: dict[str, str]) -> int:
    """Run to the end. Ctrl-C reaches the command from the terminal itself; other signals are handed on."""
    with _patient():
        process = subprocess.Popen([command[0], *command[1:]], executable=program, env=env)
        with _handing_on(process):
            code = process.wait()
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _patient() -> Iterator[None]:
    """Ctrl-C ends the command, not us: we stay to write the end of the trace. The child gets its default back."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _handing_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    handed = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)

    def hand_on(number: int, _: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in handed}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(options: LaunchOptions, text: str) -> None:
    if not options.quiet:
        with contextlib.suppress(OSError, ValueError):
            print(f"traincheck: {text}", file=sys.stderr, flush=True)


def load_plan(path: Path) -> Plan:
    """The plan of a run folder. Raises LaunchError."""
    try:
        return Plan.from_json(json.loads((path / "plan.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise LaunchError(f"{path} holds no readable plan: {error}", "collect the run again") from error
