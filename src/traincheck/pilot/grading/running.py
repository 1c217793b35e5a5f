"""Running one job on devices: what grading asks for, and a local runner that keeps the ledger of it itself."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from traincheck.errors import TraincheckError
from traincheck.marked import carrying, send
from traincheck.pilot import events
from traincheck.pilot.ledger import Ledger, read

MARK: Final = "TRAINCHECK_REPLAY_RECORDS"
"""Variable by which every process of a replay is known, wherever a launcher has put it."""

_GRACE_S: Final = 5.0
_LOOK_S: Final = 0.02

Reason = Literal["exit", "timeout", "cancelled", "lost"]
_CANCELLED: Final[Reason] = "cancelled"


@dataclass(frozen=True)
class Job:
    """One job. ``request`` is its idempotency key."""

    request: str
    owner: str
    """``grading/<case>`` or ``qualification/<case>``."""
    purpose: events.Purpose
    devices: int
    command: tuple[str, ...]
    source: str
    """Hash of the source map it runs from."""
    cwd: Path
    env: Mapping[str, str]
    timeout_s: float
    out: Path
    err: Path


@dataclass(frozen=True)
class Done:
    """How a job ended. ``exit_code`` is negative for a signal."""

    exit_code: int
    reason: Reason
    seconds: float
    """Lifetime of its process, clean-up included."""


class Runner(Protocol):
    """Who runs jobs and accounts for their device time."""

    def run(self, job: Job) -> Done:
        """Run to the end, with nothing left behind. Raises TraincheckError when it can't be run at all."""
        ...


class StoppedError(Exception):
    """The runner was stopped while this job ran or waited; it came to nothing."""


class LocalRunner:
    """Runs jobs on this machine, as many at a time as devices allow, and writes the ledger of device time.

    Threads may share it.
    """

    def __init__(self, path: Path, devices: int) -> None:
        """Open or go on with the ledger at ``path``: leases that a killed grader left open are ended, as lost."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lost = open_leases(path) if path.exists() else ()
        self._ledger, self._devices = Ledger(path), devices
        self._free = list(range(devices))
        self._turn = threading.Condition()
        self._stopped = threading.Event()
        for request, started in lost:
            if started:
                self._add(events.WorkerEnded(request=request, exit_code=-signal.SIGKILL, reason="lost"))
            self._add(events.Released(request=request))
        self._add(events.ServiceStarted(devices=devices, kind="cpu"))

    @property
    def head(self) -> str:
        """Last hash of the ledger."""
        return self._ledger.head

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return self._devices

    def run(self, job: Job) -> Done:
        """See ``Runner``. A KeyboardInterrupt ends the job, is accounted for, and goes on. Raises StoppedError too."""
        self._add(
            events.Asked(
                request=job.request, owner=job.owner, purpose=job.purpose, devices=job.devices, command=job.command,
                source=job.source,
            )
        )  # fmt: skip
        given: list[int] = []
        try:
            self._take(job, given)
            done = self._worked(job)
        finally:
            with _uninterrupted(), self._turn:
                if given:
                    self._add(events.Released(request=job.request))
                    self._free = sorted([*self._free, *given])
                    self._turn.notify_all()
                else:
                    self._add(events.Refused(request=job.request, reason=self._why_refused(job)))
        if done.reason == "cancelled":
            raise StoppedError(job.request)
        return done

    def stop(self) -> None:
        """End all jobs that run, from another thread; those that wait are refused."""
        self._stopped.set()
        with self._turn:
            self._turn.notify_all()

    def _take(self, job: Job, given: list[int]) -> None:
        """Wait for devices, and put those that are given into ``given``."""
        if job.devices > self._devices:
            raise TraincheckError(
                f"{job.request} needs {job.devices} devices, and there are {self._devices}", "give it more devices"
            )
        with self._turn:
            self._turn.wait_for(lambda: len(self._free) >= job.devices or self._stopped.is_set())
            if self._stopped.is_set():
                raise StoppedError(job.request)
            with _uninterrupted():
                given.extend(self._free[: job.devices])
                self._free = self._free[job.devices :]
                self._add(events.Granted(request=job.request, devices=tuple(given)))

    def _why_refused(self, job: Job) -> str:
        return f"there are {self._devices} devices" if job.devices > self._devices else "stopped"

    def _worked(self, job: Job) -> Done:
        code, reason = -int(signal.SIGKILL), _CANCELLED
        process: subprocess.Popen[bytes] | None = None
        began = time.monotonic()
        try:
            with job.out.open("wb") as out, job.err.open("wb") as err, _uninterrupted():
                process = subprocess.Popen(
                    job.command, cwd=job.cwd, env=dict(job.env), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True,
                )  # fmt: skip
                self._add(events.WorkerStarted(request=job.request, pid=process.pid))
            code, reason = self._waited(process, job.timeout_s)
        finally:
            if process is not None:
                with _uninterrupted():
                    end(process, job.env.get(MARK))
                    self._add(events.WorkerEnded(request=job.request, exit_code=code, reason=reason))
        return Done(code, reason, time.monotonic() - began)

    def _waited(self, process: subprocess.Popen[bytes], timeout_s: float) -> tuple[int, Reason]:
        """Wait in short sleeps: a signal's handler runs between them."""
        late = time.monotonic() + timeout_s
        while time.monotonic() < late:
            if self._stopped.is_set():
                return -int(signal.SIGTERM), _CANCELLED
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_S), "exit"
        return -int(signal.SIGTERM), "timeout"

    def close(self) -> None:
        """Write that the service ends, and how many devices are not free, which is none."""
        self._add(events.ServiceStopped(held=self._devices - len(self._free)))
        self._ledger.close()

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add(self, event: events.Event) -> None:
        self._ledger.add(events.kind_of(event), events.data_of(event))


def open_leases(path: Path) -> tuple[tuple[str, bool], ...]:
    """Requests of a ledger that were granted and not released; with each, whether its worker runs by the ledger.

    Raises LedgerError.
    """
    running: dict[str, bool] = {}
    for entry in read(path):
        request = str(entry.data.get("request"))
        if entry.kind == "granted":
            running[request] = False
        elif entry.kind == "worker_started":
            running[request] = True
        elif entry.kind == "worker_ended":
            running[request] = False
        elif entry.kind == "released":
            running.pop(request, None)
    return tuple(running.items())


def asked(path: Path) -> dict[str, int]:
    """How often each request was asked for. Raises LedgerError."""
    found: dict[str, int] = {}
    for entry in read(path) if path.exists() else ():
        if entry.kind == "asked":
            name = str(entry.data["request"])
            found[name] = found.get(name, 0) + 1
    return found


def device_seconds(path: Path) -> float:
    """Allocated devices x lifetime of workers over a whole ledger, in device-seconds. Raises LedgerError."""
    granted: dict[str, int] = {}
    began: dict[str, int] = {}
    total = 0
    for entry in read(path) if path.exists() else ():
        request = str(entry.data.get("request"))
        if entry.kind == "granted":
            granted[request] = len(entry.data["devices"])
        elif entry.kind == "worker_started":
            began[request] = entry.at_ns
        elif entry.kind == "worker_ended":
            total += granted[request] * (entry.at_ns - began.pop(request))
    return total / 1e9


def end(process: subprocess.Popen[bytes], mark: str | None) -> None:
    """End a process, its group, and what a launcher put into groups of its own (known by ``mark``)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if mark:
        send(signal.SIGKILL, carrying(f"{MARK}={mark}"))


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the end of this: what is begun is written down, what is written down is true."""
    if threading.current_thread() is not threading.main_thread():  # signals go to the main one
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
    if came:
        raise KeyboardInterrupt


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def filled(launch: Sequence[str], **values: object) -> tuple[str, ...]:
    """A launch command with its ``{python}``, ``{ranks}``, ``{config}``, ``{port}`` filled in."""
    return tuple(_replaced(word, values) for word in launch)


def _replaced(word: str, values: Mapping[str, object]) -> str:
    for name, value in values.items():
        word = word.replace("{" + name + "}", str(value))
    return word
