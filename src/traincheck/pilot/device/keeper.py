"""Stands between the device service and one job: starts it, ends it when its time is over, and leaves nothing behind.

Run as a program of its own (``python -I -S keeper.py TOKEN``), standard library only. It is the subreaper of the job:
whatever a job starts stays below it, also what made a session of its own and lost its parent. In another process
namespace such orphans go elsewhere; they are found by the token, which is in the job's environment (``PILOT_JOB``).
When the service dies, the job is ended too.

In: one line of JSON (argv, cwd, env, stdout, stderr, timeout_s, file_limit), then a line ``cancelled`` or ``budget`` to
end the job. Out: ``{"pid": …}`` when it runs, ``{"exit_code": …, "reason": …}`` when nothing of it is left.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from typing import Any

MARK = "PILOT_JOB"
NOT_FOUND = 127

_SET_CHILD_SUBREAPER = 36
_TICK_S = 1.0
_PATIENCE_S = 10.0


def of_job(token: str, below: int | None = None) -> set[int]:
    """Living processes of a job: those that carry its token, those below ``below``, and all below either of them."""
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    marked: set[int] = set()
    wanted = f"{MARK}={token}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        state, parent, _group, session = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()[:4] or [b"X"] * 4
        if state in (b"Z", b"X"):
            continue
        parents[int(name)], sessions[int(name)] = int(parent), int(session)
        if wanted in _read(f"/proc/{name}/environ").split(b"\0"):
            marked.add(int(name))
    found = set(marked)
    led = {pid for pid in marked if sessions[pid] == pid}
    while True:
        more = {
            pid
            for pid, parent in parents.items()
            if pid not in found and (parent in found or parent == below or sessions[pid] in led)
        }
        if not more:
            return found - {os.getpid()}
        found |= more


def _read(path: str) -> bytes:
    """A file of /proc; empty when the process is gone or another user's."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def end_all(token: str, below: int | None = None) -> bool:
    """Kill every process of a job, until none is left; False when some are left after ten seconds."""
    until = time.monotonic() + _PATIENCE_S
    while living := of_job(token, below):
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def _reap(codes: dict[int, int]) -> None:
    """Take the exit codes of all children that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        codes[pid] = os.waitstatus_to_exitcode(status)


def _say(message: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(message).encode() + b"\n")
    except OSError:  # the service is gone
        return


def _line() -> bytes:
    """One line from the service; empty when it is gone."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            return b""
        line += piece
    return line


def _task() -> dict[str, Any] | None:
    pieces = b""
    while not pieces.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            return None
        pieces += piece
    task: dict[str, Any] = json.loads(pieces)
    return task


def _start(task: dict[str, Any]) -> subprocess.Popen[bytes] | None:
    """Start the job; None when there is no such command. Who drops the answer loses the exit code."""

    def limited() -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        most = task["file_limit"] if hard == resource.RLIM_INFINITY else min(task["file_limit"], hard)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    with open(task["stdout"], "wb") as out, open(task["stderr"], "wb") as err:
        try:
            return subprocess.Popen(
                task["argv"],
                cwd=task["cwd"],
                env=task["env"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=limited,  # this process has one thread
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            err.write(f"the command cannot be started: {error}\n".encode())
            return None


def _watched(worker: int, timeout_s: float, codes: dict[int, int]) -> str:
    """Wait until the worker ends, its time is over, or the service wants its end: gives the reason."""
    until = time.monotonic() + timeout_s
    place = os.pidfd_open(worker)
    poll = select.poll()
    poll.register(place, select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        left = until - time.monotonic()
        seen = dict(poll.poll(1000 * max(0.0, min(left, _TICK_S))))
        _reap(codes)
        if worker in codes:
            return "exit"
        if 0 in seen:
            return _line().decode().strip() or "lost"
        if left <= 0:
            return "timeout"


def main() -> None:
    """Keep one job."""
    token = sys.argv[1]
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    task = _task()
    if task is None:
        return
    process = _start(task)  # kept to the end: when it is dropped, it takes the exit code
    if process is None:
        _say({"pid": os.getpid()})
        _say({"exit_code": NOT_FOUND, "reason": "exit"})
        return
    worker = process.pid
    _say({"pid": worker})
    codes: dict[int, int] = {}
    reason = _watched(worker, task["timeout_s"], codes)
    if worker not in codes:
        _kill_group(worker)
    clean = end_all(token, below=os.getpid())
    until = time.monotonic() + _PATIENCE_S
    while worker not in codes and time.monotonic() < until:
        _reap(codes)
        time.sleep(0.001)
    _say({"exit_code": codes.get(worker, -signal.SIGKILL), "reason": reason, "clean": clean})


def _kill_group(worker: int) -> None:
    try:
        os.killpg(worker, signal.SIGKILL)
    except OSError:
        return


if __name__ == "__main__":
    main()
