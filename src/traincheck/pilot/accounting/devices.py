"""Device time: one row for each request, devices x worker lifetime, and the waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from traincheck.pilot import events
from traincheck.pilot.accounting.intervals import Interval
from traincheck.pilot.ledger import Entry


@dataclass(frozen=True)
class Row:
    """One request. Times are CLOCK_MONOTONIC in ns; None: it did not come to that."""

    request: str
    owner: str
    purpose: events.Purpose
    devices: int
    """As asked; as many are given."""
    asked_ns: int
    answered_ns: int | None = None
    """Granted or refused: the wait is over."""
    granted: bool = False
    started_ns: int | None = None
    ended_ns: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    released_ns: int | None = None
    through_ns: int = 0
    """The last entry of the ledger: up to here a worker without an end has been seen to live."""

    @property
    def gap(self) -> bool:
        """Whether devices were given and never given back, or a worker has no end: its cost is not known."""
        return self.granted and (self.released_ns is None or (self.started_ns is not None and self.ended_ns is None))

    def wait(self) -> Interval:
        """From asked to granted or refused; a wait that never ended lasts to the last entry."""
        return self.asked_ns, self.through_ns if self.answered_ns is None else self.answered_ns

    def device_ns(self, moment_ns: int | None = None) -> int:
        """Devices x worker lifetime, clipped at a moment. A worker without an end counts to the last entry."""
        if self.started_ns is None:
            return 0
        end = self.through_ns if self.ended_ns is None else self.ended_ns
        if moment_ns is not None:
            end = min(end, moment_ns)
        return self.devices * max(0, end - self.started_ns)


def rows(entries: Iterable[Entry]) -> list[Row]:
    """Every request of a device ledger, in the order in which they came. Raises LedgerError.

    What does not fit together is told by ``reconciling``: a grant of what was not asked is left out here, a request
    that was asked twice has two rows.
    """
    found: list[dict[str, object]] = []
    latest: dict[str, dict[str, object]] = {}
    last = 0
    for entry in entries:
        last = entry.at_ns
        event = events.parsed(entry, events.DEVICE)
        if isinstance(event, events.Asked):
            latest[event.request] = {
                "request": event.request,
                "owner": event.owner,
                "purpose": event.purpose,
                "devices": event.devices,
                "asked_ns": entry.at_ns,
            }
            found.append(latest[event.request])
            continue
        fields = latest.get(getattr(event, "request", ""))
        if fields is not None:
            fields.update(_fields(event, entry.at_ns))
    return [Row(**fields, through_ns=last) for fields in found]  # type: ignore[arg-type]


def _fields(event: events.Event, at_ns: int) -> dict[str, object]:
    if isinstance(event, events.Granted):
        return {"answered_ns": at_ns, "granted": True, "devices": len(event.devices)}
    if isinstance(event, events.Refused):
        return {"answered_ns": at_ns}
    if isinstance(event, events.WorkerStarted):
        return {"started_ns": at_ns}
    if isinstance(event, events.WorkerEnded):
        return {"ended_ns": at_ns, "exit_code": event.exit_code, "reason": event.reason}
    if isinstance(event, events.Released):
        return {"released_ns": at_ns}
    return {}


def published(device_seconds: Iterable[float]) -> tuple[list[Decimal], Decimal]:
    """Rows as they are printed, to three places, and the total to print under them: the exact sum of what is printed.

    The sum of the rows as they were measured may round to another third place.
    """
    rows = [Decimal(f"{value:.3f}") for value in device_seconds]
    return rows, sum(rows, Decimal("0.000"))


def total_ns(entries: Iterable[Entry], purpose: events.Purpose) -> int:
    """Device time of a whole ledger; requests of another purpose are in no sum. Raises LedgerError."""
    return sum(row.device_ns() for row in rows(entries) if row.purpose == purpose)


def of_owner(found: Sequence[Row], owner: str) -> list[Row]:
    """The requests of one owner."""
    return [row for row in found if row.owner == owner]
