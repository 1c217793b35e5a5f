"""What the service knows of each request; read back from its ledger when it is started again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from traincheck.pilot import events
from traincheck.pilot.device.messages import Request, Times
from traincheck.pilot.ledger import Entry, LedgerError


@dataclass
class Record:
    """One request. Times are CLOCK_MONOTONIC in ns; None: it has not come to that."""

    asked: events.Asked
    asked_ns: int
    granted_ns: int | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    devices: tuple[int, ...] = ()
    pid: int | None = None
    ended: events.WorkerEnded | None = None
    refused: str | None = None
    refused_ns: int | None = None
    released: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.released or self.refused is not None

    def times(self) -> Times:
        """As a client is told."""
        waited = self.granted_ns if self.granted_ns is not None else self.refused_ns
        return Times(asked_ns=self.asked_ns, granted_ns=waited, started_ns=self.started_ns, ended_ns=self.ended_ns)

    def used_ns(self, now_ns: int) -> int:
        """Device-nanoseconds up to now."""
        if self.started_ns is None:
            return 0
        return len(self.devices) * ((self.ended_ns if self.ended_ns is not None else now_ns) - self.started_ns)

    def differs(self, request: Request) -> str | None:
        """In what a request of the same id is another one; None: it is the same."""
        wanted = asked_of(request)
        for field in events.Asked.model_fields:
            if getattr(wanted, field) != getattr(self.asked, field):
                return field
        return None


def asked_of(request: Request) -> events.Asked:
    """What the ledger keeps of a request."""
    return events.Asked(
        request=request.id,
        owner=request.owner,
        purpose=request.purpose,
        devices=request.devices,
        command=request.command,
        source=request.source,
        cwd=request.cwd,
    )


def restored(entries: Iterable[Entry]) -> dict[str, Record]:
    """All requests of a ledger, by id, in the order in which they came. Raises LedgerError."""
    found: dict[str, Record] = {}
    for entry in entries:
        event = events.parsed(entry, events.DEVICE)
        if isinstance(event, events.Asked):
            found[event.request] = Record(asked=event, asked_ns=entry.at_ns)
            continue
        name = getattr(event, "request", None)
        if name is None:
            continue
        if name not in found:
            raise LedgerError(f"entry {entry.number} ({entry.kind}) is of a request that was never asked: {name!r}")
        _apply(found[name], event, entry.at_ns)
    return found


def _apply(record: Record, event: events.Event, at_ns: int) -> None:
    if isinstance(event, events.Granted):
        record.granted_ns, record.devices = at_ns, event.devices
    elif isinstance(event, events.WorkerStarted):
        record.started_ns, record.pid = at_ns, event.pid
    elif isinstance(event, events.WorkerEnded):
        record.ended_ns, record.ended = at_ns, event
    elif isinstance(event, events.Released):
        record.released = True
    elif isinstance(event, events.Refused):
        record.refused, record.refused_ns = event.reason, at_ns
