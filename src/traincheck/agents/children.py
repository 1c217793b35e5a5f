"""Running a command for a tool: nothing of it reaches our standard output, and nothing of it is left behind.

A child gets a mark in its environment, which everything it starts inherits: that is how descendants are found that
have sessions and process groups of their own (the workers of ``torchrun`` have).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import anyio.abc

from traincheck.marked import carrying, lives, send

MARK: Final = "TRAINCHECK_TOOL_CALL"
EVERY_S: Final = 2.0
"""How often a running command is reported."""

_GRACE_S = 5.0
_LINGER_S = 1.0
_LOOK_S = 0.05


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    exit_code: int
    """-n when signal n ended it."""
    timed_out: bool
    wall_s: float


class Children:
    """Runs commands; knows when the server itself is about to end, so that there is no time for grace."""

    def __init__(self) -> None:
        self._closing = False

    def close(self) -> None:
        """From now on children are ended at once."""
        self._closing = True

    async def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        out: Path,
        err: Path | None,
        timeout_s: float,
        tell: Callable[[], Awaitable[None]],
    ) -> Ended:
        """Run a command to its end; ``tell`` is called now and then as long as it runs.

        Output goes to the files ``out`` and ``err`` (None: to ``out`` too). When the time is over or the caller is
        cancelled, the command and all it has started are asked to end, then ended. Raises OSError when it can't be
        started.
        """
        mark = uuid.uuid4().hex
        with _fresh(out) as stdout, _fresh(err) if err else contextlib.nullcontext(stdout) as stderr:
            began = time.monotonic()
            process = await anyio.open_process(
                list(command),
                cwd=cwd,
                env={**env, MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            timed_out = False
            try:
                while process.returncode is None and not timed_out:
                    left = timeout_s - (time.monotonic() - began)
                    with anyio.move_on_after(max(0.0, min(EVERY_S, left))):
                        await process.wait()
                    timed_out = process.returncode is None and left <= EVERY_S
                    if process.returncode is None:
                        await tell()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end(process, f"{MARK}={mark}")
                    with anyio.move_on_after(_GRACE_S):  # what hangs in the kernel is not waited for
                        await process.wait()
        code = process.returncode
        return Ended(-signal.SIGKILL if code is None else code, timed_out, time.monotonic() - began)

    async def _end(self, process: anyio.abc.Process, variable: str) -> None:
        """End what is left: first as a person would, by the command itself, then all of it, then by force."""
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        seen: set[int] = set()
        if await self._gone(variable, seen, process):
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            send(number, carrying(variable) | seen)
            if await self._gone(variable, seen, None):
                return

    async def _gone(self, variable: str, seen: set[int], leader: anyio.abc.Process | None) -> bool:
        """Wait until nothing with the mark lives, which two looks have to agree on; False when it takes too long.

        Once its leader has ended, the others get little time. ``seen``: those that were met, which may be dying.
        """
        until = time.monotonic() + (_GRACE_S if leader is None or leader.returncode is None else _LINGER_S)
        empty = 0
        while True:
            seen |= carrying(variable)
            seen -= {pid for pid in seen if not lives(pid)}
            empty = 0 if seen else empty + 1
            if empty == 2:
                return True
            if leader is not None and leader.returncode is not None:
                until = min(until, time.monotonic() + _LINGER_S)
                leader = None
            if self._closing:
                until = min(until, time.monotonic() + _LINGER_S / 2)
            if time.monotonic() >= until:
                return False
            await anyio.sleep(_LOOK_S)


def _fresh(path: Path) -> BinaryIO:
    """An empty file that is written to at its end, also by a program that opens its standard output once more."""
    path.write_bytes(b"")
    return path.open("ab")
