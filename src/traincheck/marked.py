"""Processes that are known by a variable in their environment, wherever a launcher has put them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def carrying(variable: str) -> set[int]:
    """Processes other than this one that were started with ``NAME=value`` in their environment.

    A process that dies, and one that is just becoming another program, has no environment for a moment: who waits for
    the last one to end keeps those that were seen, and asks ``lives`` of them.
    """
    wanted = variable.encode()
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.add(int(name))
    return found


def send(number: int, pids: Iterable[int]) -> None:
    """Send a signal to each that is still there and ours."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def lives(pid: int) -> bool:
    """Whether the process is there, and more than an exit code that nobody has taken."""
    try:
        state = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in (b"Z", b"X")
