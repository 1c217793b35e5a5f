"""Who gets devices, and when: one queue, first come first served; every step is written before it is told."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from traincheck.errors import OWN_FAILURE, TraincheckError
from traincheck.pilot import events
from traincheck.pilot.device import jobs, keeper, records
from traincheck.pilot.device.messages import Progress, Request, Result, State
from traincheck.pilot.device.records import Record, asked_of
from traincheck.pilot.ledger import Ledger, read
from traincheck.pilot.sources import Objects, SourceError, missing_objects

CANCELLED: Final = "cancelled"
LOST: Final = "lost"
_KILLED: Final = -9
_SECOND: Final = 1_000_000_000

Made = TypeVar("Made")
Told = Progress | Result
Listener = Callable[[Told], None]


@dataclass(frozen=True)
class Settings:
    """What a service is started with."""

    ledger: Path
    store: Path
    jobs: Path
    ids: tuple[int, ...]
    """Devices: slots of CPU, or ids of GPUs."""
    kind: str = "cpu"
    file_limit: int = 1 << 30
    """Bytes of the largest file that a job may write."""


@dataclass
class Active:
    """A request that is not over: who waits for it, and how its job is ended."""

    request: Request
    record: Record
    listeners: list[Listener] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    keeper: asyncio.subprocess.Process | None = None
    end: str | None = None
    """Why the job is to end, once somebody wants that."""
    timer: asyncio.TimerHandle | None = None

    def tell(self, told: Told) -> None:
        """To all who wait."""
        for listener in self.listeners:
            listener(told)

    def stop(self, reason: str) -> None:
        """End the job; the first reason stays."""
        if self.end is not None:
            return
        self.end = reason
        if self.keeper is not None and self.keeper.stdin is not None:
            with suppress(OSError, RuntimeError):
                self.keeper.stdin.write(f"{reason}\n".encode())


class Broker:
    """All requests of one service. Lives in one event loop; nothing here is safe from other threads."""

    def __init__(self, settings: Settings) -> None:
        """Open the ledger. Raises LedgerError, OSError."""
        self.settings = settings
        self.objects = Objects(settings.store)
        known = records.restored(read(settings.ledger)) if settings.ledger.exists() else {}
        self.ledger = Ledger(settings.ledger)
        self.records: dict[str, Record] = known
        self.active: dict[str, Active] = {}
        self.queue: deque[Active] = deque()
        self.free = sorted(settings.ids)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the exception when the service can't go on, e.g. because the disk is full."""
        self._stopping = False
        self._recover()

    # -- what clients ask ------------------------------------------------------------------------------------------

    def ask(self, request: Request, listener: Listener) -> None:
        """Ask for devices, or for the result of a request that came before. ``listener`` is told at once or later.

        Raises TraincheckError when the id was used for another request, and when the service is stopping.
        """
        record = self.records.get(request.id)
        if record is None:
            self._new(request, listener)
            return
        other = record.differs(request)
        if other is not None:
            raise TraincheckError(
                f"request {request.id} was asked before with another {other}", "a new request has a new id"
            )
        self.attach(request.id, listener)

    def attach(self, name: str, listener: Listener) -> None:
        """Wait for a request that is known. Raises TraincheckError when it is not."""
        if name not in self.records:
            raise TraincheckError(f"there is no request {name!r}", "ask for devices first")
        active = self.active.get(name)
        if active is None:
            result = self._recorded(name)
            self._write(events.Replayed(request=name))
            listener(result)
            return
        active.listeners.append(listener)
        listener(self._progress(active))

    def leave(self, name: str, listener: Listener) -> None:
        """A client is gone. A request that nobody waits for any more leaves the queue; a job goes on."""
        active = self.active.get(name)
        if active is None or listener not in active.listeners:
            return
        active.listeners.remove(listener)
        if not active.listeners and active in self.queue:
            self._refuse(active, CANCELLED)
            self._grant()

    def cancel(self, name: str) -> None:
        """Take a request out of the queue, or end its job; nothing when it is over. Raises TraincheckError."""
        if name not in self.records:
            raise TraincheckError(f"there is no request {name!r}")
        active = self.active.get(name)
        if active is None:
            return
        if active in self.queue:
            self._refuse(active, CANCELLED)
            self._grant()
        else:
            active.stop(CANCELLED)

    def state(self) -> State:
        """What is going on."""
        queued = tuple(active.request.id for active in self.queue)
        running = tuple(name for name in self.active if name not in queued)
        return State(
            devices=len(self.settings.ids),
            kind=self.settings.kind,
            free=tuple(self.free),
            queued=queued,
            running=running,
        )

    async def stop(self) -> None:
        """End everything: the queue is refused, jobs are ended, the ledger is closed."""
        self._stopping = True
        for active in list(self.queue):
            self._refuse(active, "the service was stopped")
        for active in self.active.values():
            active.stop(CANCELLED)
        tasks = [active.task for active in self.active.values() if active.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        self._write(events.ServiceStopped(held=len(self.settings.ids) - len(self.free)))
        self.ledger.close()

    # -- the queue ---------------------------------------------------------------------------------------------------

    def _new(self, request: Request, listener: Listener) -> None:
        if self._stopping:
            raise TraincheckError("the device service is stopping", "ask the next one")
        asked_ns = self._write(asked_of(request))
        record = self.records[request.id] = Record(asked=asked_of(request), asked_ns=asked_ns)
        active = self.active[request.id] = Active(request, record, [listener])
        reason = self._why_not(request)
        if reason is not None:
            self._refuse(active, reason)
            return
        self.queue.append(active)
        listener(self._progress(active))
        self._grant()

    def _why_not(self, request: Request) -> str | None:
        if request.devices > len(self.settings.ids):
            return f"{request.devices} devices were asked for, there are {len(self.settings.ids)}"
        try:
            missing = missing_objects(self.objects.get_map(request.source), self.objects)
        except SourceError as error:
            return error.message
        if missing:
            return f"the content of {missing[0]} is not in the store, and {len(missing) - 1} more"
        return self._over_budget(request)

    def _over_budget(self, request: Request) -> str | None:
        budget = request.budget_device_seconds
        if budget is None or self._used_ns(request.owner) < budget * _SECOND:
            return None
        return f"the budget of {budget:g} device-seconds is used up"

    def _grant(self) -> None:
        """Serve the head of the queue as long as it fits. Nobody overtakes it, so that large requests are served."""
        while self.queue and not self._stopping:
            active = self.queue[0]
            reason = self._over_budget(active.request)
            if reason is not None:
                self._refuse(active, reason)
                continue
            if active.request.devices > len(self.free):
                return
            self.queue.popleft()
            given, self.free = self.free[: active.request.devices], self.free[active.request.devices :]
            active.record.devices = tuple(given)
            active.record.granted_ns = self._write(
                events.Granted(request=active.request.id, devices=active.record.devices)
            )
            active.tell(self._progress(active))
            active.task = asyncio.get_running_loop().create_task(self._run(active))

    def _refuse(self, active: Active, reason: str) -> None:
        record = active.record
        record.refused_ns = self._write(events.Refused(request=active.request.id, reason=reason))
        record.refused = reason
        if active in self.queue:
            self.queue.remove(active)
        del self.active[active.request.id]
        active.tell(self._of_refused(record))

    # -- a job -------------------------------------------------------------------------------------------------------

    async def _run(self, active: Active) -> None:
        try:
            result = await self._result(active)
            record = active.record
            self._write(events.Released(request=active.request.id))
            record.released = True
            self.free = sorted([*self.free, *record.devices])
            del self.active[active.request.id]
            active.tell(result)
            self._watch_budget(active.request.owner)
            self._grant()
        except BaseException as error:
            if not self.failed.done():
                self.failed.set_exception(error)
            raise

    async def _result(self, active: Active) -> Result:
        request, record = active.request, active.record
        job = self._job(request.id)
        try:
            await _aside(partial(job.prepare, request, self.objects))
            if active.end is not None:
                return self._not_started(job, record, active.end)
            code, reason = await self._worked(active, job)
        except (SourceError, OSError) as error:
            if record.started_ns is not None:
                raise
            return self._not_started(job, record, str(error))
        finally:
            await _aside(partial(job.withdraw, request))
            if record.started_ns is None:
                await _aside(partial(job.clear, request))
        files, left_out = await _aside(partial(_left, job, request, self.objects))
        stdout, stderr = job.printed()
        result = Result(
            request=request.id,
            status="ended",
            reason=reason,
            exit_code=code,
            devices=record.devices,
            stdout=stdout,
            stderr=stderr,
            files=files,
            left_out=left_out,
            times=record.times(),
        )
        await _aside(partial(job.clear, request))
        self._ended(record, code, reason, job.keep(result))
        return result.model_copy(update={"times": record.times()})

    async def _worked(self, active: Active, job: jobs.Job) -> tuple[int, str]:
        """Run the job under a keeper: exit code and reason, once nothing of it lives."""
        request, record = active.request, active.record
        mark = jobs.token(self.settings.ledger, request.id)
        task = job.task(request, record.devices, self.settings.kind, mark, self.settings.file_limit)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            keeper.__file__,
            mark,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(task).encode() + b"\n")
        first = await process.stdout.readline()
        record.pid = int(json.loads(first)["pid"]) if first else process.pid
        record.started_ns = self._write(events.WorkerStarted(request=request.id, pid=record.pid))
        active.keeper = process
        if active.end is not None:  # wanted while the keeper was starting
            reason, active.end = active.end, None
            active.stop(reason)
        self._watch_budget(request.owner)
        last = await process.stdout.readline()
        await process.wait()
        active.keeper = None
        if active.timer is not None:
            active.timer.cancel()
        if not last:  # the keeper was killed
            await _aside(partial(keeper.end_all, mark))
            return _KILLED, LOST
        told = json.loads(last)
        if not told.get("clean", True):
            raise TraincheckError(f"processes of request {request.id} cannot be ended", exit_code=OWN_FAILURE)
        return int(told["exit_code"]), str(told["reason"])

    def _not_started(self, job: jobs.Job, record: Record, reason: str) -> Result:
        result = Result(
            request=record.asked.request,
            status="not_started",
            reason=reason,
            devices=record.devices,
            times=record.times(),
        )
        job.keep(result)
        return result

    def _ended(self, record: Record, code: int, reason: Any, result: str | None) -> None:
        event = events.WorkerEnded(request=record.asked.request, exit_code=code, reason=reason, result=result)
        record.ended_ns, record.ended = self._write(event), event

    # -- budgets -----------------------------------------------------------------------------------------------------

    def _used_ns(self, owner: str) -> int:
        now = self.ledger.now()
        return sum(record.used_ns(now) for record in self.records.values() if record.asked.owner == owner)

    def _watch_budget(self, owner: str) -> None:
        """Set for each running job of the owner the moment at which the budget is used up, were nothing to change."""
        running = [
            active for active in self.active.values() if active.request.owner == owner and active.keeper is not None
        ]
        together = sum(active.request.devices for active in running)
        used = self._used_ns(owner)
        for active in running:
            if active.timer is not None:
                active.timer.cancel()
            budget = active.request.budget_device_seconds
            if budget is not None:
                left_s = max(0.0, (budget * _SECOND - used) / together / _SECOND)
                active.timer = asyncio.get_running_loop().call_later(left_s, active.stop, "budget")

    # -- what is written, what is told ---------------------------------------------------------------------------------

    def _write(self, event: events.Event) -> int:
        return self.ledger.add(events.kind_of(event), events.data_of(event)).at_ns

    def _job(self, name: str) -> jobs.Job:
        return jobs.Job(self.settings.jobs, name)

    def _progress(self, active: Active) -> Progress:
        if active.record.granted_ns is not None:
            return Progress(event="granted", devices=active.record.devices)
        return Progress(event="queued", position=self.queue.index(active) + 1)

    def _of_refused(self, record: Record) -> Result:
        return Result(request=record.asked.request, status="refused", reason=record.refused or "", times=record.times())

    def _recorded(self, name: str) -> Result:
        """The result of a request that is over. Raises TraincheckError when its file was changed."""
        record = self.records[name]
        if record.refused is not None:
            return self._of_refused(record).model_copy(update={"replayed": True})
        job = self._job(name)
        again: dict[str, Any] = {"times": record.times(), "replayed": True}
        if record.ended is not None and record.ended.result is None:  # lost: there never was a file
            stdout, stderr = job.printed()
            return Result(
                request=name,
                status="ended",
                reason=record.ended.reason,
                exit_code=record.ended.exit_code,
                devices=record.devices,
                stdout=stdout,
                stderr=stderr,
                **again,
            )
        result = job.kept(record.ended.result if record.ended is not None else None)
        if result is not None:
            return result.model_copy(update=again)
        if record.ended is None:
            return Result(request=name, status="not_started", reason=LOST, devices=record.devices, **again)
        raise TraincheckError(
            f"the recorded result of request {name} is missing or was changed: {job.result}",
            "restore it from where it was copied from; the job is not run again",
        )

    def _recover(self) -> None:
        """Take up a ledger: what was running when the service was killed is ended and its devices are free again."""
        self._write(events.ServiceStarted(devices=len(self.settings.ids), kind=self.settings.kind))
        for name, record in self.records.items():
            if record.over:
                continue
            if record.granted_ns is None:
                record.refused = "the service was killed while the request was queued"
                record.refused_ns = self._write(events.Refused(request=name, reason=record.refused))
                continue
            if not keeper.end_all(jobs.token(self.settings.ledger, name)):
                raise TraincheckError(f"processes of request {name} cannot be ended", exit_code=OWN_FAILURE)
            job = self._job(name)
            job.clear()
            if record.started_ns is not None and record.ended is None:
                self._after_loss(job, record)
            self._write(events.Released(request=name))
            record.released = True

    def _after_loss(self, job: jobs.Job, record: Record) -> None:
        """End a lease whose worker was running: with its result when that was written before the service died."""
        result = job.kept(None)
        if result is not None and result.status == "ended" and result.exit_code is not None:
            self._ended(record, result.exit_code, result.reason, job.keep(result))
        else:
            self._ended(record, _KILLED, LOST, None)


def _left(job: jobs.Job, request: Request, objects: Objects) -> tuple[dict[str, str], dict[str, str]]:
    try:
        return job.left(request, objects)
    except OSError as error:
        return {}, {".": f"cannot be read: {error}"}


async def _aside(work: Callable[[], Made]) -> Made:
    """Do what takes time in a thread, so that other clients are answered meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
