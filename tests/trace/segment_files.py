"""Event files written with ``struct`` straight from the tables of docs/trace-format.md: a second opinion on the format.

Nothing here comes from the package, so that reader and documentation are held against each other.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path

MAGIC = b"TCEVENT\0"
OPENED, MONOTONIC, REALTIME = 5_000_000, 2_000_000_000, 1_800_000_000_000_000_000


def begin(thread: int, function: int, time: int, call: int, parent: int) -> bytes:
    return struct.pack("<BBHIQQQ", 1, 0, thread, function, time, call, parent)


def end(outcome: int, thread: int, function: int, time: int, call: int, exception: int = 0) -> bytes:
    return struct.pack("<BBHIQQQ", 2, outcome, thread, function, time, call, exception)


def capture(kind: int, thread: int, number: int, call: int, low: int, high: int = 0) -> bytes:
    return struct.pack("<BBHIQQQ", 3, kind, thread, number, call, low, high)


def observe(moment: int, thread: int, reason: int, time: int, call: int, observation: int) -> bytes:
    return struct.pack("<BBHIQQQ", 4, moment, thread, reason, time, call, observation)


def state(kind: int, attribute: int, variable: int, observation: int, low: int, high: int = 0) -> bytes:
    return struct.pack("<BBHIQQQ", 5, kind, attribute, variable, observation, low, high)


def mark(kind: int, thread: int, symbol: int, time: int, a: int, b: int = 0) -> bytes:
    return struct.pack("<BBHIQQQ", 6, kind, thread, symbol, time, a, b)


def header(
    *,
    magic: bytes = MAGIC,
    version: int = 1,
    record_size: int = 32,
    pid: int = 7,
    number: int = 0,
    first: int = 0,
    clock: int = 0,
    opened: int = OPENED,
    count: int = 0,
    closed: int = 0,
    closed_monotonic: int = 0,
) -> bytes:
    fields = struct.pack("<8s4I4Q", magic, version, record_size, pid, number, first, clock, opened, MONOTONIC)
    return (fields + struct.pack("<4Q", REALTIME, count, closed, closed_monotonic)).ljust(128, b"\0")


def write_process(
    root: Path,
    segments: Sequence[bytes],
    symbols: Sequence[dict[str, object]] = (),
    name: str = "1800000000000000000-7",
    facts: dict[str, object] | None = None,
) -> Path:
    """A process folder with these whole segments; returns it."""
    folder = root / "processes" / name
    folder.mkdir(parents=True)
    for number, data in enumerate(segments):
        (folder / f"events-{number:05}.tcev").write_bytes(data)
    (folder / "symbols.jsonl").write_text("".join(json.dumps(symbol) + "\n" for symbol in symbols))
    given = {"schema": 1, "name": name, "pid": 7, "end": "exit", "exit": 0, "rank": {"rank": 3, "world_size": 4}}
    (folder / "process.json").write_text(json.dumps({**given, **(facts or {})}))
    return folder
