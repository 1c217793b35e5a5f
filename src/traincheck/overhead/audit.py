"""Audit of a trace: each call began and ended once, nothing is lost, the reader's rows are the records, one to one.

Segments are parsed here again, from docs/trace-format.md, so that the reader is no witness in its own case.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.events import FORMAT_VERSION, HEADER_SIZE, MAGIC, RECORD_SIZE, Kind
from traincheck.overhead.artifacts import SCHEMA, sha256_file
from traincheck.trace import Trace, open_trace

Array = npt.NDArray[Any]

_LAYOUT: Final = np.dtype(
    {
        "names": ["kind", "flag", "thread", "id", "time", "call", "low", "high"],
        "formats": ["u1", "u1", "<u2", "<u4", "<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 1, 2, 4, 8, 16, 16, 24],
        "itemsize": RECORD_SIZE,
    }
)
"""Fields by name; bytes 8-15 of a CAPTURE or STATE are its call or observation, bytes 16-23 of a BEGIN its call."""

_MOST: Final = 5
_TOP: Final = 40


def audit(folder: Path) -> dict[str, Any]:
    """What is in a trace of ours, and in ``faults`` a sentence on everything that is wrong with it (empty: nothing)."""
    faults: list[str] = []
    trace = open_trace(folder)
    processes = sorted(path for path in (folder / "processes").iterdir() if path.is_dir())
    described = []
    for index, path in enumerate(processes):
        described.append(_process(path, index, trace, faults))
    faults += [f"the reader misses something: {lack.text}" for lack in trace.lacks]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "schema": SCHEMA,
        "faults": faults,
        "processes": described,
        "records": sum(process["records"] for process in described),
        "calls": sum(process["calls"] for process in described),
        "bytes": sum(path.stat().st_size for path in files),
        "per_step": _per_step(trace),
        "per_function": _per_function(trace),
        "lacks": [lack.text for lack in trace.lacks],
        "files": {path.relative_to(folder).as_posix(): sha256_file(path) for path in files},
    }


def _process(folder: Path, index: int, trace: Trace, faults: list[str]) -> dict[str, Any]:
    own: list[str] = []
    records = _records(folder, own)
    kinds: dict[Kind, Array] = {kind: records[records["kind"] == kind] for kind in Kind if kind is not Kind.NONE}
    calls = _pairs(kinds[Kind.BEGIN], kinds[Kind.END], own)
    told: dict[str, Any] = {}
    try:
        told = json.loads((folder / "process.json").read_text())
    except (OSError, ValueError) as error:
        own.append(f"process.json cannot be read: {error}")
    if told:
        if told.get("records") != len(records):
            own.append(f"process.json says {told.get('records')} records, its segments hold {len(records)}")
        for field in ("dropped", "symbols_lost"):
            if told.get(field):
                own.append(f"process.json says {field}: {told[field]}")
        own += [f"TrainCheck's own fault in {one['where']}: {one['error']}" for one in told.get("faults", ())]
    symbols = folder / "symbols.jsonl"
    _against_reader(kinds, _places(symbols), index, trace, own)
    faults += [f"{folder.name}: {text}" for text in own]
    return {
        "name": folder.name,
        "rank": (told.get("rank") or {}).get("rank"),
        "records": len(records),
        "calls": calls,
        "bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "symbol_bytes": symbols.stat().st_size if symbols.exists() else 0,
        "per_kind": {kind.name.lower(): len(rows) for kind, rows in kinds.items()},
        "per_thread": {str(n): int(c) for n, c in sorted(Counter(kinds[Kind.BEGIN]["thread"].tolist()).items())},
    }


def _records(folder: Path, faults: list[str]) -> Array:
    """All committed records in order; numbering of segments and of records is checked."""
    parts: list[Array] = []
    expected = 0
    for number, path in enumerate(sorted(folder.glob("events-*.tcev"))):
        data = path.read_bytes()
        if len(data) < HEADER_SIZE or data[:8] != MAGIC:
            faults.append(f"{path.name} is no segment")
            continue
        version, size, _pid, segment, first = struct.unpack_from("<4IQ", data, 8)
        (count,) = struct.unpack_from("<Q", data, 64)
        if (version, size) != (FORMAT_VERSION, RECORD_SIZE):
            faults.append(f"{path.name} has version {version} and records of {size} bytes")
            continue
        if segment != number:
            faults.append(f"{path.name} is segment {segment}, expected {number}")
        if first != expected:
            faults.append(f"{path.name} begins at record {first}, {expected} came before it: records are lost")
        if (len(data) - HEADER_SIZE) % RECORD_SIZE:
            faults.append(f"{path.name} ends inside a record")
        held = np.frombuffer(data, _LAYOUT, count=(len(data) - HEADER_SIZE) // RECORD_SIZE, offset=HEADER_SIZE)
        ends = np.flatnonzero(held["kind"] == Kind.NONE)
        held = held[: ends[0]] if len(ends) else held
        if count and count != len(held):
            faults.append(f"{path.name} says {count} records and holds {len(held)}: records are lost")
        if not count:
            faults.append(f"{path.name} was not closed")
        parts.append(held)
        expected = first + len(held)
    if not parts:
        faults.append("it has no events")
        return np.empty(0, _LAYOUT)
    return np.concatenate(parts)


def _pairs(begins: Array, ends: Array, faults: list[str]) -> int:
    """Number of calls; every call id must begin once and end once, with one function and thread."""
    begun, ended = begins["call"], ends["call"]
    for what, ids in (("begins", begun), ("ends", ended)):
        unique, counts = np.unique(ids, return_counts=True)
        twice = unique[counts > 1]
        if len(twice):
            faults.append(f"{_calls(twice)} {what} more than once")
    alone = np.setdiff1d(begun, ended)
    if len(alone):
        faults.append(f"{_calls(alone)} began and never ended")
    orphans = np.setdiff1d(ended, begun)
    if len(orphans):
        faults.append(f"{_calls(orphans)} ended and never began")
    if len(begun) and len(np.unique(begun)) != int(begun.max()):
        gone = np.setdiff1d(np.arange(1, int(begun.max()) + 1, dtype=begun.dtype), begun)
        faults.append(f"{_calls(gone)} left no record of its begin")
    if not faults and len(begun) == len(ended):
        a, b = begins[np.argsort(begun)], ends[np.argsort(ended)]
        odd = (a["id"] != b["id"]) | (a["thread"] != b["thread"]) | (b["time"] < a["time"])
        if odd.any():
            faults.append(f"{_calls(a['call'][odd])} ended with another function or thread, or before its begin")
    return len(np.unique(begun))


def _calls(ids: Array) -> str:
    shown = ", ".join(str(int(one)) for one in ids[:_MOST])
    return f"call {shown}" if len(ids) == 1 else f"{len(ids)} calls ({shown}{', …' if len(ids) > _MOST else ''})"


def _places(symbols: Path) -> list[int]:
    """Ids of captures that say where a call was made: the reader gives them as a column of the call."""
    found = []
    for line in symbols.read_text().splitlines() if symbols.exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # a torn last line: the reader says so
        if entry.get("k") == "capture" and entry.get("path") == "@location":
            found.append(int(entry["id"]))
    return found


def _against_reader(kinds: dict[Kind, Array], places: list[int], index: int, trace: Trace, faults: list[str]) -> None:
    """The reader's rows of this process are its records, one to one."""

    def rows(name: str) -> pl.DataFrame:
        frame: pl.DataFrame = getattr(trace, name)
        return frame.filter(pl.col("process") == index)

    calls = rows("calls")
    begins, ends = kinds[Kind.BEGIN], kinds[Kind.END]
    _same("calls", np.sort(begins["call"]), calls["call"].sort().to_numpy(), faults)
    closed = calls.filter(pl.col("end_seq").is_not_null())
    _same("ends of calls", np.sort(ends["call"]), closed["call"].sort().to_numpy(), faults)
    parents = calls.sort("call")["parent"].to_numpy()
    _same("parents of calls", begins[np.argsort(begins["call"], kind="stable")]["high"], parents, faults)
    captures, states = kinds[Kind.CAPTURE], kinds[Kind.STATE]
    at = np.isin(captures["id"], places)
    located = calls.filter(pl.col("location").is_not_null())["call"].sort().to_numpy()
    # Bytes 8-15 of these are call and observation: in the layout the field called time.
    _same("locations", np.unique(captures[at]["time"]), located, faults)
    _same("captures", np.sort(captures[~at]["time"]), rows("captures")["call"].sort().to_numpy(), faults)
    _same("states", np.sort(states["time"]), rows("states")["observation"].sort().to_numpy(), faults)
    _same("marks", np.sort(kinds[Kind.MARK]["low"].view(np.int64)), rows("marks")["value"].sort().to_numpy(), faults)


def _same(what: str, raw: Array, read: Array, faults: list[str]) -> None:
    if len(raw) != len(read):
        faults.append(f"{what}: {len(raw)} records, but the reader gives {len(read)} rows")
    elif not np.array_equal(raw.astype(np.uint64), read.astype(np.uint64)):
        faults.append(f"{what}: the reader's {len(read)} rows are not the records")


def _per_step(trace: Trace) -> list[dict[str, Any]]:
    """Calls, captures and states of each step (0: before the first), all ranks."""
    counts = [
        getattr(trace, name).group_by("step").len(name).with_columns(pl.col("step").cast(pl.Int32))
        for name in ("calls", "captures", "states")
    ]
    steps = sorted({step for frame in counts for step in frame["step"].drop_nulls().to_list()})
    found = [dict(zip(frame["step"].to_list(), frame[frame.columns[1]].to_list(), strict=True)) for frame in counts]
    return [
        {
            "step": step,
            "calls": found[0].get(step, 0),
            "captures": found[1].get(step, 0),
            "states": found[2].get(step, 0),
            "bytes": RECORD_SIZE * (2 * found[0].get(step, 0) + found[1].get(step, 0) + found[2].get(step, 0)),
        }
        for step in steps
    ]


def _per_function(trace: Trace) -> dict[str, Any]:
    """Calls, captures and bytes by function: how many functions, the most frequent, and each."""
    counts = trace.calls.group_by("function").len().sort("len", "function", descending=[True, False])
    top = {str(name): int(count) for name, count in counts.head(_TOP).iter_rows()}
    captures = dict(trace.captures.group_by("function").len().iter_rows())
    each = {}
    for name, calls in counts.sort(pl.col("function").cast(pl.String)).iter_rows():
        read = int(captures.get(name, 0))
        each[str(name)] = {"calls": calls, "captures": read, "bytes": RECORD_SIZE * (2 * calls + read)}
    return {"functions": counts.height, "most_frequent": top, "each": each}
