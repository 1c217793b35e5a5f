"""Launching: runs the user's command as it is, with collection switched on through the environment.

The command's cwd, standard streams, descriptors, arguments, signals and exit code are its own. Nothing heavy is
imported here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from traincheck.collect import runfolder
from traincheck.collect.activation import environment
from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError

_HANDED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT)
_SENT_BY_KERNEL = 0x80
_LOOK_UP_SECONDS = 1.0
"""How long a signal may lie that another thread of ours has taken (libraries start some)."""


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

    Raises LaunchError for a command that can't be found or started, or an output that is taken. An output that can't
    be written does not keep the command from running: it runs unwatched, and that is said.
    """
    command = list(options.command)
    program = find(command)
    started = time.time_ns()
    run, problem = _prepare(options, command, started)
    if problem is not None:
        _say(options, f"not collecting: {problem}; the program runs all the same")
        code = _run(program, command, dict(os.environ))
        _say(options, f"nothing was collected: {problem}")
        return code
    _say(options, f"collecting into {run} ({options.plan.scope} scope)")
    try:
        code = _run(program, command, environment(str(run.resolve()), dict(os.environ)))
    except LaunchError:
        runfolder.discard(run)
        raise
    trouble = runfolder.finish(run, code)
    _say(options, runfolder.summary(run, trouble))
    return code


def find(command: Sequence[str]) -> str:
    """The program of a command. Raises LaunchError when there is none."""
    if not command:
        raise LaunchError("there is no command to run", "traincheck collect -- python train.py")
    program = shutil.which(command[0])
    if program is not None:
        return program
    path = Path(command[0])
    if path.is_file():
        known = {".py": "python", ".sh": "sh"}.get(path.suffix)
        remedy = f"traincheck collect -- {known} {path}" if known else f"chmod +x {path}"
        raise LaunchError(f"{path} is a file, but not a program that can be run", remedy)
    raise LaunchError(f"the command {command[0]!r} was not found", "check the name, or give its path")


def _prepare(options: LaunchOptions, command: list[str], started: int) -> tuple[Path, str | None]:
    run = options.output or Path(time.strftime("traincheck-%Y%m%d-%H%M%S", time.localtime(started / 1e9)))
    try:
        if run.exists() and (not run.is_dir() or any(run.iterdir())):
            if not options.force:
                raise LaunchError(
                    f"{run} exists and is not empty", "name another folder with -o, or give --force to replace a trace"
                )
            try:
                runfolder.clear(run)
            except FileExistsError as error:
                raise LaunchError(str(error), "name another folder with -o") from error
        runfolder.create(run, options.plan, command, started)
    except OSError as error:
        return run, f"{run} can't be written ({error.strerror or error})"
    return run, None


def _run(program: str, command: list[str], env: dict[str, str]) -> int:
    """Run to the end. Signals are blocked here and taken off the queue: none is lost, none ends us before the trace
    is complete.

    What the terminal sends (Ctrl-C, Ctrl-\\, hanging up) reaches the command by itself, which is in the same process
    group; what was sent to this process alone is handed on. An interrupt never is: who sends one speaks to the group,
    as a terminal does.
    """
    numbers = {number for number in (signal.SIGINT, *_HANDED_ON) if signal.getsignal(number) is not signal.SIG_IGN}
    child: list[int] = []

    def taken_by_another_thread(number: int, _: object) -> None:
        if number != signal.SIGINT:
            _hand_on(child, number)

    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # exit codes would be thrown away
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers | {signal.SIGCHLD})
    before = {number: signal.signal(number, taken_by_another_thread) for number in numbers}
    try:
        child.append(_start(program, command, env, mask))
        return _wait(child, numbers | {signal.SIGCHLD})
    finally:
        while signal.sigtimedwait(numbers, 0) is not None:  # came too late for anyone
            pass
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start(program: str, command: list[str], env: dict[str, str], mask: Iterable[int]) -> int:
    # Python ignores these two for itself; the command is to find them as a shell would hand them down.
    defaults = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        try:
            return os.posix_spawn(program, command, env, setsigmask=mask, setsigdef=defaults)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a first line that names its interpreter: what every shell does with it.
            return os.posix_spawn("/bin/sh", ["sh", program, *command[1:]], env, setsigmask=mask, setsigdef=defaults)
    except OSError as error:
        raise LaunchError(
            f"{program} can't be started: {error.strerror or error}", "check that it runs without traincheck"
        ) from error


def _wait(child: list[int], signals: Iterable[int]) -> int:
    while True:
        done, status = os.waitpid(child[0], os.WNOHANG)
        if done:
            child.clear()
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
        info = signal.sigtimedwait(signals, _LOOK_UP_SECONDS)
        if info is not None and info.si_signo in _HANDED_ON and info.si_code != _SENT_BY_KERNEL:
            _hand_on(child, info.si_signo)


def _hand_on(child: list[int], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        for process in child:
            os.kill(process, number)


def _say(options: LaunchOptions, text: str) -> None:
    if options.quiet or sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        print(f"traincheck: {text}", file=sys.stderr, flush=True)
