"""Segments: the bytes of a process's event files as numpy records, and their clock as nanoseconds.

Files are read, not mapped: a live writer cuts a segment when it closes it, and a mapping of what was cut is a bus
error.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from traincheck.errors import TraceError
from traincheck.events import FORMAT_VERSION, HEADER_SIZE, MAGIC, RECORD_SIZE, Clock, Kind, Mark

RECORD: Final = np.dtype(
    [("kind", "u1"), ("b", "u1"), ("h", "<u2"), ("i", "<u4"), ("x", "<u8"), ("y", "<u8"), ("z", "<u8")]
)
"""A record, by position: byte 0, byte 1, bytes 2-3, 4-7, 8-15, 16-23, 24-31 (docs/trace-format.md)."""

_HEADER: Final = struct.Struct("<8s4I8Q")
_NAME: Final = re.compile(r"events-(\d{1,9})\.tcev")
_CHUNK: Final = 1 << 15  # records read at a time while looking for the end of an open segment
_MILLISECOND: Final = 1_000_000
_FAR: Final = 1 << 61  # sequence numbers and times beyond are damage

Records = npt.NDArray[Any]
Longs = npt.NDArray[Any]


@dataclass(frozen=True)
class Header:
    """A segment's header; see docs/trace-format.md."""

    pid: int
    number: int
    first_seq: int
    clock: int
    opened: int
    opened_monotonic: int
    opened_realtime: int
    count: int
    closed: int
    closed_monotonic: int

    def pack(self) -> bytes:
        """The 128 bytes."""
        packed = _HEADER.pack(
            MAGIC,
            FORMAT_VERSION,
            RECORD_SIZE,
            self.pid,
            self.number,
            self.first_seq,
            self.clock,
            self.opened,
            self.opened_monotonic,
            self.opened_realtime,
            self.count,
            self.closed,
            self.closed_monotonic,
        )
        return packed.ljust(HEADER_SIZE, b"\0")


class ForeignSegmentError(Exception):
    """A file named like a segment that is none; the message says why."""


@dataclass
class Stream:
    """All records of a process in order, with what was found missing.

    ``records`` and ``seq`` have the same length; ``lacks`` are (code, sentence).
    """

    records: Records
    seq: Longs
    time_ns: Longs
    """The record's time in monotonic ns; meaningless for kinds without a time."""
    headers: list[Header] = field(default_factory=list)
    closed: bool = False
    """Whether the last segment was closed by its writer."""
    lacks: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def nothing(cls) -> Stream:
        """A stream without records."""
        zero = np.empty(0, dtype=np.int64)
        return cls(np.empty(0, dtype=RECORD), zero, zero)


def parse_header(data: bytes, path: Path) -> Header | None:
    """The header in ``data``, or None when it was never written.

    Raises TraceError for a newer version or another record size, ForeignSegmentError for what is no segment.
    """
    if len(data) < HEADER_SIZE or not any(data[:HEADER_SIZE]):
        if any(data) and not MAGIC.startswith(data[:8]) and not data.startswith(MAGIC):
            raise ForeignSegmentError("it does not begin with the mark of a TrainCheck segment")
        return None
    magic, version, size, pid, number, first_seq, clock, *rest = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ForeignSegmentError("it does not begin with the mark of a TrainCheck segment")
    if version > FORMAT_VERSION or version < 1:
        raise TraceError(
            f"{path} has format version {version}, this TrainCheck reads version {FORMAT_VERSION}",
            "read it with the version that wrote it (manifest.json says which), or upgrade: pip install -U traincheck",
        )
    if size != RECORD_SIZE:
        raise TraceError(
            f"{path} has records of {size} bytes, expected {RECORD_SIZE}: it is damaged or from another program",
            "collect the run again, or remove this file to read the rest",
        )
    return Header(pid, number, first_seq, clock, *rest)


def read_stream(directory: Path) -> Stream:
    """All records of the process in ``directory``.

    Raises TraceError (newer version, other record size) and ForeignSegmentError (segment files, but none is ours).
    """
    numbered: dict[int, Path] = {}
    lacks: list[tuple[str, str]] = []
    for path in sorted(directory.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match and path.is_file():
            numbered.setdefault(int(match.group(1)), path)
    pieces: list[tuple[Header, Records]] = []
    foreign: list[str] = []
    closed = False
    last = max(numbered, default=-1)
    for number in sorted(numbered):
        path = numbered[number]
        try:
            header, records = _read_segment(path, lacks, is_last=number == last)
        except ForeignSegmentError as error:
            foreign.append(f"{path.name}: {error}")
            lacks.append(("foreign-segment", f"{path.name} was left out: {error}."))
            continue
        except OSError as error:
            lacks.append(("unreadable-segment", f"{path.name} cannot be read ({error.strerror}); its events are lost."))
            continue
        if header is not None:
            pieces.append((header, records))
            closed = header.count > 0 or header.closed > 0
    if foreign and len(foreign) == len(numbered):
        raise ForeignSegmentError(foreign[0])
    missing = [n for n in range(last + 1) if n not in numbered] if last < 1_000_000 else [last]
    if missing:
        names = ", ".join(f"events-{n:05}.tcev" for n in missing[:5]) + (" …" if len(missing) > 5 else "")
        lacks.append(
            ("missing-segment", f"{len(missing)} of {last + 1} segments are missing ({names}); their events are lost.")
        )
    return _join(pieces, closed, lacks)


def _read_segment(path: Path, lacks: list[tuple[str, str]], is_last: bool) -> tuple[Header | None, Records]:
    none = np.empty(0, dtype=RECORD)
    with path.open("rb") as file:
        header = parse_header(file.read(HEADER_SIZE), path)
        if header is None:
            lacks.append(("torn-segment", f"{path.name} was reserved but never begun."))
            return None, none
        if header.first_seq >= _FAR:
            lacks.append(
                ("damaged-segment", f"{path.name} has an impossible sequence number; its events are left out.")
            )
            return None, none
        if header.count:
            return header, _closed(path, file, header, lacks)
        records = _open_end(path, file, lacks)
        if not header.closed and not is_last:
            lacks.append(("open-segment", f"{path.name} was never closed although later segments exist."))
        return header, records


def _closed(path: Path, file: Any, header: Header, lacks: list[tuple[str, str]]) -> Records:
    data = file.read()
    held = len(data) // RECORD_SIZE
    if held < header.count:
        lacks.append(("truncated-segment", f"{path.name} is cut: it holds {held} of {header.count} records."))
    return np.frombuffer(data, dtype=RECORD, count=min(held, header.count))


def _open_end(path: Path, file: Any, lacks: list[tuple[str, str]]) -> Records:
    """Records up to the first whose kind is 0. Committed records are a prefix, so reading stops there."""
    chunks: list[Records] = []
    while True:
        data = file.read(_CHUNK * RECORD_SIZE)
        whole = len(data) // RECORD_SIZE
        chunk = np.frombuffer(data, dtype=RECORD, count=whole)
        ends = np.flatnonzero(chunk["kind"] == Kind.NONE)
        if len(ends):
            chunks.append(chunk[: ends[0]])
            break
        chunks.append(chunk)
        if len(data) < _CHUNK * RECORD_SIZE:
            if len(data) % RECORD_SIZE:
                lacks.append(("truncated-segment", f"{path.name} is cut in the middle of a record."))
            break
    return np.concatenate(chunks) if len(chunks) > 1 else chunks[0]


def _join(pieces: list[tuple[Header, Records]], closed: bool, lacks: list[tuple[str, str]]) -> Stream:
    headers = [header for header, _ in pieces]
    kept: list[Records] = []
    seqs: list[Longs] = []
    sources: list[npt.NDArray[np.bool_]] = []
    expected = 0
    for header, records in pieces:
        first = header.first_seq
        if first < expected:
            lacks.append(
                (
                    "damaged-segment",
                    f"Segment {header.number} says it begins at record {first}, but {expected} came before it.",
                )
            )
            first = expected
        elif first > expected:
            lacks.append(("lost-records", f"{first - expected} records before record {first} are lost."))
        kept.append(records)
        seqs.append(np.arange(first, first + len(records), dtype=np.int64))
        sources.append(np.full(len(records), header.clock == Clock.TSC))
        expected = first + len(records)
    if not kept:
        zero = np.empty(0, dtype=np.int64)
        return Stream(np.empty(0, dtype=RECORD), zero, zero, headers, closed, lacks)
    records = np.concatenate(kept)
    ticks = np.concatenate(sources)
    time_ns = _nanoseconds(records, ticks, headers, lacks)
    return Stream(records, np.concatenate(seqs), time_ns, headers, closed, lacks)


def clock_pairs(records: Records, ticks: npt.NDArray[np.bool_], headers: list[Header]) -> tuple[Longs, Longs]:
    """(ticks, monotonic ns) known to be the same moments: headers and ``clock`` marks, strictly increasing in both."""
    pairs: list[tuple[int, int]] = []
    for header in headers:
        if header.clock == Clock.TSC:
            pairs.append((header.opened, header.opened_monotonic))
            if header.closed:
                pairs.append((header.closed, header.closed_monotonic))
    marks = records[(records["kind"] == Kind.MARK) & (records["b"] == Mark.CLOCK) & ticks]
    pairs.extend(zip(marks["x"].tolist(), marks["y"].tolist(), strict=True))
    tick: list[int] = []
    ns: list[int] = []
    for a, b in sorted(pairs):
        if a < _FAR and b < _FAR and (not tick or (a > tick[-1] and b > ns[-1])):
            tick.append(a)
            ns.append(b)
    return np.asarray(tick, dtype=np.int64), np.asarray(ns, dtype=np.int64)


def _nanoseconds(
    records: Records, ticks: npt.NDArray[np.bool_], headers: list[Header], lacks: list[tuple[str, str]]
) -> Longs:
    raw: Longs = np.minimum(records["x"], np.uint64(_FAR)).astype(np.int64)
    if not ticks.any():
        return raw
    tick, ns = clock_pairs(records, ticks, headers)
    if len(tick) < 2:
        lacks.append(
            ("clock", "The rate of the clock is not known (the process ended early); times are in ticks of it.")
        )
        raw += ns[0] - tick[0] if len(tick) else 0
        return raw
    if ns[-1] - ns[0] < _MILLISECOND and raw[ticks].max(initial=0) - tick[-1] > 10 * (tick[-1] - tick[0]):
        lacks.append(
            ("clock", "The rate of the clock is known from less than a millisecond only; times are approximate.")
        )
    # relative to the first pair: floats then hold nanoseconds exactly
    base_tick, base_ns = tick[0], ns[0]
    x, known, at = (
        (raw - base_tick).astype(np.float64),
        (tick - base_tick).astype(np.float64),
        (ns - base_ns).astype(np.float64),
    )
    inside = np.interp(x, known, at)
    rate = at[-1] / known[-1]  # over all pairs: two close ones say little about the rate
    inside = np.where(x < 0, x * rate, np.where(x > known[-1], at[-1] + (x - known[-1]) * rate, inside))
    converted = np.clip(np.rint(inside), -float(_FAR), float(_FAR)).astype(np.int64) + base_ns
    times: Longs = np.where(ticks, converted, raw)
    return times
