"""What tests of the device service share: a service on a source of their own, and requests for it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traincheck.pilot import events
from traincheck.pilot.accounting.devices import Row, rows
from traincheck.pilot.device import launching
from traincheck.pilot.device.client import Client
from traincheck.pilot.device.messages import Request
from traincheck.pilot.ledger import Entry, read
from traincheck.pilot.sources import Objects, capture

PATH = {"PATH": os.environ["PATH"]}
RUN = os.getpid()
"""Tells processes of this run of the tests from those of others: ``sleep 3371.<RUN>``."""


class Bench:
    """A folder with a store that holds one source, and a place for the service's files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger, self.store, self.jobs = folder / "device.jsonl", folder / "store", folder / "device"
        self.socket = folder / "s"
        (folder / "work" / "sub").mkdir(parents=True)
        (folder / "work" / "hello.txt").write_text("hello\n")
        self.objects = Objects(self.store)
        self.source = self.objects.put_map(capture(folder / "work", self.objects))

    @contextmanager
    def service(self, devices: int = 2, **more: Any) -> Iterator[Client]:
        """Run the service for the time of a ``with``."""
        with launching.service(ledger=self.ledger, store=self.store, jobs=self.jobs, devices=devices, **more) as socket:
            yield Client(socket)

    def start(self, devices: int = 2, *options: str) -> subprocess.Popen[bytes]:
        """Start the service at ``self.socket``, for tests that kill it."""
        command = launching.command(self.socket, ledger=self.ledger, store=self.store, jobs=self.jobs, devices=devices)
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def request(self, name: str, script: str, devices: int = 1, **more: Any) -> Request:
        """A job of ``sh``."""
        fields = {"owner": "trial", "purpose": "solver", "source": self.source, "env": PATH, "timeout_s": 20.0, **more}
        return Request(id=name, devices=devices, command=("sh", "-c", script), **fields)

    def entries(self) -> list[Entry]:
        """The ledger."""
        return list(read(self.ledger))

    def kinds(self, name: str) -> list[str]:
        """What happened to a request."""
        return [entry.kind for entry in self.entries() if entry.data.get("request") == name]

    def row(self, name: str) -> Row:
        """Its row in the account."""
        return next(row for row in rows(self.entries()) if row.request == name)

    def event(self, name: str, kind: str) -> events.Event:
        """One event of a request."""
        entry = next(one for one in self.entries() if one.kind == kind and one.data.get("request") == name)
        return events.parsed(entry, events.DEVICE)


def stop(process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> int:
    """End a service; gives its exit code."""
    process.send_signal(number)
    code = process.wait(timeout=20)
    if process.stdout is not None:
        process.stdout.close()
    return code


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for something, and fail when it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def living(word: str) -> list[int]:
    """Processes that have ``word`` among their arguments."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes().split(b"\0")
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            except (OSError, IndexError):
                continue
            if word.encode() in words and state != "Z":
                found.append(int(path.name))
    return found
