"""An append-only ledger: one JSON entry a line, each holding the hash of the one before it.

A line that was changed, removed, added or moved breaks the chain at a place that ``read`` names. What a chain can't
show is that its end was cut off: who closes a ledger records its last hash elsewhere (``Ledger.head``).
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from traincheck.errors import TraincheckError
from traincheck.pilot.canonical import encoded, sha256

ORIGIN: Final = "0" * 64
"""What the first entry has in place of the hash of one before it."""


class LedgerError(TraincheckError):
    """A ledger is broken: an entry is no JSON, out of order, or does not follow from the one before it.

    Remedy: the entries before the one named can be trusted; restore the file from where it was copied from.
    """


@dataclass(frozen=True)
class Entry:
    """One line of a ledger."""

    number: int
    """From 0."""
    at_ns: int
    """CLOCK_MONOTONIC: comparable between all processes of one machine until it is started anew."""
    wall_ns: int
    """Nanoseconds since 1970, for people; no figure is computed from it."""
    kind: str
    data: dict[str, Any]
    previous: str
    hash: str

    def body(self) -> dict[str, Any]:
        """What the hash is of."""
        return {
            "number": self.number,
            "at_ns": self.at_ns,
            "wall_ns": self.wall_ns,
            "kind": self.kind,
            "data": self.data,
            "previous": self.previous,
        }


class Ledger:
    """A ledger that is being written. Entries are on the disk when ``add`` returns; threads may share it."""

    def __init__(self, path: Path, now: Callable[[], int] | None = None) -> None:
        """Open or go on with the ledger at ``path``; ``now`` is a clock in ns. Raises LedgerError, OSError."""
        self.path = path
        self._now = now or (lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        self._lock = threading.Lock()
        self._number, self.head, self._last_ns = 0, ORIGIN, 0
        if path.exists():
            _drop_half_a_line(path)
            for entry in read(path):
                self._number, self.head, self._last_ns = entry.number + 1, entry.hash, entry.at_ns
        if self._now() < self._last_ns:
            raise LedgerError(
                f"{path}: its last entry is later than this machine's clock, so the machine was started anew since",
                "begin a new ledger: times before and after cannot be compared",
            )
        self._file = path.open("ab", buffering=0)  # readers see a line whole

    def add(self, kind: str, data: dict[str, Any]) -> Entry:
        """Append one entry. Raises OSError; TypeError or ValueError when ``data`` is no strict JSON."""
        data = json.loads(encoded(data))  # as a reader gets it: the hash must not depend on, say, keys being numbers
        with self._lock:
            body: dict[str, Any] = {
                "number": self._number,
                "at_ns": max(self._now(), self._last_ns),
                "wall_ns": time.time_ns(),
                "kind": kind,
                "data": data,
                "previous": self.head,
            }
            entry = Entry(**body, hash=sha256(body))
            self._append(encoded({**body, "hash": entry.hash}) + b"\n")
            self._number, self.head, self._last_ns = entry.number + 1, entry.hash, entry.at_ns
            return entry

    def _append(self, line: bytes) -> None:
        """Write a line, or nothing: after a failure (the disk is full) the ledger can be gone on with."""
        size = os.fstat(self._file.fileno()).st_size
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes could be written", str(self.path))
            os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):
                self._file.truncate(size)
            raise

    def now(self) -> int:
        """The clock of the entries, in ns."""
        return self._now()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> Iterator[Entry]:
    """All entries, each checked against the one before. Raises LedgerError naming the first that does not follow."""
    previous, last_ns = ORIGIN, 0
    with path.open("rb") as file:
        for number, line in enumerate(file):
            entry = _parsed(line, f"{path}, entry {number}")
            if entry.number != number:
                raise LedgerError(f"{path}: entry {number} says that it is number {entry.number}")
            if entry.previous != previous:
                raise LedgerError(f"{path}: entry {number} does not follow from the one before it")
            if sha256(entry.body()) != entry.hash:
                raise LedgerError(f"{path}: entry {number} was changed, its hash is of other content")
            if entry.at_ns < last_ns:
                raise LedgerError(f"{path}: entry {number} is earlier than the one before it")
            previous, last_ns = entry.hash, entry.at_ns
            yield entry


def _parsed(line: bytes, where: str) -> Entry:
    try:
        return Entry(**json.loads(line))
    except (ValueError, TypeError) as error:
        raise LedgerError(f"{where} is no entry of a ledger: {error}") from error


def _drop_half_a_line(path: Path) -> None:
    """What a writer that was killed had begun to write was never acknowledged."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
