"""Reads segments back, straight from docs/trace-format.md: what the tests compare the writer with."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traincheck.events import HEADER_SIZE, MAGIC, RECORD_SIZE, Kind, Mark, Value

HEADER = struct.Struct("<8sIIIIQQQQQQQQ40x")
RECORD = struct.Struct("<BBHIQQQ")
assert HEADER.size == HEADER_SIZE
assert RECORD.size == RECORD_SIZE


@dataclass(frozen=True)
class Header:
    magic: bytes
    version: int
    record_size: int
    pid: int
    number: int
    first: int
    clock: int
    opened_clock: int
    opened_monotonic: int
    opened_realtime: int
    count: int
    closed_clock: int
    closed_monotonic: int


@dataclass(frozen=True)
class Record:
    kind: int
    detail: int
    small: int
    id: int
    a: int
    b: int
    c: int


@dataclass
class Call:
    """A call put together from its records."""

    number: int
    function: int
    parent: int
    thread: int
    begin: int
    end: int | None = None
    outcome: int | None = None
    exception: int = 0
    captures: list[tuple[int, int, int, int]] = field(default_factory=list)  # (capture, kind, low, high)


def header(path: Path) -> Header:
    found = Header(*HEADER.unpack(path.read_bytes()[:HEADER_SIZE]))
    assert found.magic == MAGIC
    assert (found.version, found.record_size) == (1, RECORD_SIZE)
    return found


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("events-*.tcev"))


def records(directory: Path) -> Iterator[Record]:
    """All committed records, in order, over all segments."""
    for number, path in enumerate(segments(directory)):
        assert path.name == f"events-{number:05d}.tcev"
        data = path.read_bytes()
        for offset in range(HEADER_SIZE, len(data) - RECORD_SIZE + 1, RECORD_SIZE):
            record = Record(*RECORD.unpack_from(data, offset))
            if record.kind == Kind.NONE:
                break
            yield record


def calls(directory: Path) -> list[Call]:
    """Calls in order of entry; fails on records that belong to no call or come after its end."""
    found: dict[int, Call] = {}
    for r in records(directory):
        if r.kind == Kind.BEGIN:
            assert r.b not in found, "a call began twice"
            assert not r.c or (r.c in found and found[r.c].end is None), "the parent is not open"
            found[r.b] = Call(r.b, r.id, r.c, r.small, r.a)
        elif r.kind == Kind.END:
            call = found[r.b]
            assert call.end is None, "a call ended twice"
            assert (call.function, call.thread) == (r.id, r.small)
            call.end, call.outcome, call.exception = r.a, r.detail, r.c
        elif r.kind == Kind.CAPTURE:
            assert found[r.a].end is None, "a capture after the end"
            found[r.a].captures.append((r.id, r.detail, r.b, r.c))
    return list(found.values())


def marks(directory: Path, *, clocks: bool = False) -> list[Record]:
    return [r for r in records(directory) if r.kind == Kind.MARK and (clocks or r.detail != Mark.CLOCK)]


class Symbols:
    """A ``miss`` that numbers what it is asked for and remembers a description, never the object."""

    def __init__(self) -> None:
        self.by_id: dict[int, tuple[int, Any]] = {}
        self.asked: list[tuple[int, Any]] = []

    def __call__(self, kind: int, obj: Any) -> int:
        description: Any
        if kind == 11:
            description = (type(obj).__name__, str(obj.dtype), tuple(obj.shape), str(obj.device), obj.requires_grad)
        elif isinstance(obj, type):
            description = f"{obj.__module__}.{obj.__qualname__}"
        elif isinstance(obj, str | int | tuple):
            description = obj
        else:
            description = str(obj)
        self.asked.append((kind, description))
        number = len(self.asked)
        self.by_id[number] = (kind, description)
        return number

    def value(self, capture: tuple[int, int, int, int]) -> Any:
        """What a capture says, in Python's words."""
        _, kind, low, _ = capture
        if kind == Value.NONE:
            return None
        if kind == Value.BOOL:
            return bool(low)
        if kind == Value.INT:
            return low - (1 << 64) if low >> 63 else low
        if kind == Value.FLOAT:
            return struct.unpack("<d", struct.pack("<Q", low))[0]
        if kind in (Value.SYMBOL, Value.TENSOR, Value.LOCATION, Value.ERROR):
            return self.by_id[low][1]
        if kind == Value.OBJECT:
            return ("object", self.by_id[low][1])
        return Value(kind)
