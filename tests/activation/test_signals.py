"""Signals: what the terminal sends reaches the program by itself, what is sent to ``traincheck collect`` is handed to
the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.activation.watching import TRAIN, collecting, environment, script

COUNT = (
    TRAIN
    + """
import os, signal, sys, time
got = []
signal.signal(getattr(signal, sys.argv[1]), lambda number, frame: got.append(number))
train()
print("ready", flush=True)
end = time.monotonic() + 30
while not got and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.5)  # another one would come in this time
print(len(got), flush=True)
sys.exit(5)
"""
)


@contextlib.contextmanager
def _started(folder: Path, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Under collection in a session of its own, up to the line ``ready``."""
    process = subprocess.Popen(
        collecting(folder / "run", command),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _account(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "run" / "processes").glob("*/process.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_interrupt_of_the_group(tmp_path: Path) -> None:
    """As Ctrl-C does: the program dies of it as it would, and the trace is completed."""
    program = TRAIN + "import time\ntrain()\nprint('ready', flush=True)\ntime.sleep(30)\n"
    with _started(tmp_path, script(tmp_path, program)) as process:
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    lines = err.decode().splitlines()
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-2] == "KeyboardInterrupt"
    assert lines[-1].startswith("traincheck: 1 process, 2 steps, ")
    account = _account(tmp_path)
    assert (account["end"], account["exit"], account["exception"]) == ("exception", 130, "KeyboardInterrupt")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["exit_code"], manifest["complete"]) == (130, True)


def test_interrupt_arrives_once(tmp_path: Path) -> None:
    with _started(tmp_path, [*script(tmp_path, COUNT), "SIGINT"]) as process:
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, b"1\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"])
def test_signals_to_the_launcher_are_handed_on(tmp_path: Path, name: str) -> None:
    with _started(tmp_path, [*script(tmp_path, COUNT), name]) as process:
        os.kill(process.pid, getattr(signal, name))
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, b"1\n")
    assert b"traincheck: 1 process, 2 steps, " in err
    assert (_account(tmp_path)["end"], _account(tmp_path)["exit"]) == ("exit", 5)


def test_termination_of_the_launcher_ends_the_program(tmp_path: Path) -> None:
    program = TRAIN + "import time\ntrain()\nprint('ready', flush=True)\ntime.sleep(30)\n"
    with _started(tmp_path, script(tmp_path, program)) as process:
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert _account(tmp_path)["end"] == "running"
    assert b"1 process ended without a word (killed?): its trace is there up to that moment" in err


def test_siblings_are_left_alone(tmp_path: Path) -> None:
    """SIGTERM is for the command; what it has started itself is its own business."""
    script(tmp_path, "import time\ntime.sleep(1.5)\nopen('lived', 'w').close()\n", "sibling.py")
    program = (
        "import signal, subprocess, sys, time\nother = subprocess.Popen([sys.executable, 'sibling.py'])\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(other.wait()))\nprint('ready', flush=True)\ntime.sleep(30)\n"
    )
    with _started(tmp_path, script(tmp_path, program)) as process:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert (tmp_path / "lived").exists()


@pytest.mark.parametrize(("key", "name"), [(b"\x03", "SIGINT"), (b"\x1c", "SIGQUIT")])
def test_keys_of_a_terminal(tmp_path: Path, key: bytes, name: str) -> None:
    """On a real terminal: the program is in the foreground, gets the key's signal once, and may read what is typed."""
    command = collecting(tmp_path / "run", [*script(tmp_path, COUNT), name])
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, command, environment())
    seen = b""
    sent = False
    with contextlib.suppress(OSError):  # EIO: the last process of the terminal has ended
        while piece := os.read(terminal, 4096):
            seen += piece
            if b"ready\r\n" in seen and not sent:
                sent = True
                os.write(terminal, key)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert re.search(rb"\n(\^.)?1\r\n", seen)
    assert b"traincheck: 1 process, 2 steps, " in seen


def test_stopped_and_continued(tmp_path: Path) -> None:
    with _started(tmp_path, [*script(tmp_path, COUNT), "SIGUSR1"]) as process:
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(0.2)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGUSR1)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (5, b"1\n")


def test_a_process_that_outlives_the_command(tmp_path: Path) -> None:
    program = TRAIN + "import os, time\ntrain()\nopen('up', 'w').close()\ntime.sleep(4)\ntrain()\n"
    script(tmp_path, program)
    shell = (
        f"'{sys.executable}' program.py >/dev/null 2>&1 &\nuntil test -e up; do sleep 0.05; done; echo ready; sleep 1"
    )
    with _started(tmp_path, ["sh", "-c", shell]) as process:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert b"1 process still runs and is collected" in err
        end = time.monotonic() + 30
        while _account(tmp_path)["end"] == "running" and time.monotonic() < end:
            time.sleep(0.1)
        assert (_account(tmp_path)["end"], _account(tmp_path)["steps"]) == ("exit", 4)
