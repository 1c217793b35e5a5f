"""Opening a trace: whatever lies in a folder becomes a ``Trace``, or a sentence that says why it cannot."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from traincheck.errors import TraceError
from traincheck.trace import schema
from traincheck.trace.decode import decode
from traincheck.trace.manifest import Lack, Manifest, ProcessInfo, manifest_of, process_of, read_object
from traincheck.trace.segments import ForeignSegmentError, Stream, read_stream
from traincheck.trace.symbols import Symbols, parse
from traincheck.trace.trace import Trace

_PROCESS_NAME = re.compile(r"(\d{1,19})-(\d{1,10})")

Lacks = list[tuple[str, str]]


def open_trace(path: str | Path) -> Trace:
    """The trace in the folder ``path``: as a run wrote it (finished, live or torn), compacted, or of TrainCheck 0.x.

    What is missing is in ``Trace.lacks``. Raises TraceError when there is no trace, or one this version cannot read.
    """
    from traincheck.trace import compact, importer

    root = Path(path)
    try:
        if not root.is_dir():
            found = "a file" if root.exists() else "nothing"
            raise TraceError(f"{root}: expected a trace folder, found {found}", _hint(root))
        _refuse_pipes(root)
        if compact.is_compact(root):
            return compact.read(root)
        if (root / "processes").is_dir() or (root / "manifest.json").is_file():
            return read_segments(root)
        if importer.is_old_trace(root):
            return importer.read(root)
    except OSError as error:
        raise TraceError(f"{error.filename or root} cannot be read: {error.strerror or error}") from error
    raise TraceError(
        f"{root} is not a trace: it holds neither processes/ nor manifest.json, nor files of a 0.x trace", _hint(root)
    )


def _refuse_pipes(root: Path) -> None:
    """Who opens a pipe without a writer waits for ever."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(OSError):  # a run that goes on renames its files
                if stat.S_ISFIFO(path.stat().st_mode):
                    raise TraceError(f"{path} is a pipe: a trace consists of files", "take it out of the folder")


def _hint(root: Path) -> str:
    beside = root if root.is_dir() else root.parent
    try:
        inside = sorted(
            child.name for child in beside.iterdir() if (child / "processes").is_dir() or (child / "compact").is_dir()
        )
    except OSError:
        inside = []
    if inside:
        return f"try {beside / inside[0]}" + (f", or another of {len(inside)} traces there" if len(inside) > 1 else "")
    return "make one with: traincheck collect -o RUN -- COMMAND"


def read_segments(root: Path) -> Trace:
    """The trace in ``root/processes``, whether or not there is a compact form. Raises as ``open_trace`` does."""
    lacks: list[Lack] = []
    manifest = read_manifest(root, lacks)
    folders = _process_folders(root / "processes", lacks)
    processes: list[ProcessInfo] = []
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in schema.FRAMES}
    unreadable: list[str] = []
    for index, (folder, facts, problem) in enumerate(folders):
        info, found, frames = _read_process(folder, facts, problem, index, unreadable)
        processes.append(info)
        lacks.extend(Lack(code, index, f"{_who(info)}: {text}") for code, text in found)
        for name, frame in frames.items():
            parts[name].append(frame)
    if unreadable and len(unreadable) == len(folders):
        raise TraceError(f"{root} holds no event file that TrainCheck wrote: {unreadable[0]}", "collect the run again")
    if not folders:
        if manifest is None:
            raise TraceError(
                f"{root} is not a trace: processes/ holds no process and there is no manifest", _hint(root)
            )
        lacks.append(
            Lack(
                "no-process",
                None,
                "No process recorded anything: torch was never imported, or nothing could be written.",
            )
        )
    return Trace.of_parts(parts, path=root, manifest=manifest, processes=processes, lacks=lacks, source="segments")


def read_manifest(root: Path, lacks: list[Lack]) -> Manifest | None:
    """``manifest.json`` of a run; what is wrong with it goes to ``lacks``. Raises TraceError for a newer one."""
    value, problem = read_object(root / "manifest.json")
    if value is None:
        # What was observed decides what can be judged, and stands in a file of its own as well.
        plan, _ = read_object(root / "plan.json")
        known = plan is not None and isinstance(plan.get("scope"), str)
        unknown = "command and exit code" if known else "command, plan and exit code"
        lacks.append(Lack("no-manifest", None, f"manifest.json {problem}: {unknown} are not known."))
        return Manifest(plan=plan) if plan is not None and known else None
    manifest, bad = manifest_of(value)
    if bad:
        lacks.append(
            Lack("damaged-manifest", None, f"manifest.json: left out what has the wrong type ({', '.join(bad)}).")
        )
    if manifest.ended_ns is None:
        lacks.append(Lack("unfinished-run", None, "The run has not said that it ended: it goes on, or was killed."))
    elif manifest.complete is False:
        lacks.append(Lack("incomplete-run", None, "The manifest says that the trace is not complete."))
    return manifest


def _process_folders(root: Path, lacks: list[Lack]) -> list[tuple[Path, dict[str, Any] | None, str | None]]:
    """(folder, its process.json or None, what is wrong with that) of each process, ordered by start."""
    found = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if not folder.is_dir():
            continue
        names = {child.name for child in folder.iterdir()}
        if not names & {"process.json", "symbols.jsonl"} and not any(name.endswith(".tcev") for name in names):
            lacks.append(
                Lack("foreign-folder", None, f"processes/{folder.name} was left out: it holds no trace files.")
            )
            continue
        value, problem = read_object(folder / "process.json")
        found.append((folder, value, problem))
    return sorted(found, key=lambda item: (_started(item[0].name, item[1]), item[0].name))


def _started(name: str, value: dict[str, Any] | None) -> int:
    started = value.get("started_ns") if value else None
    if isinstance(started, int):
        return started
    match = _PROCESS_NAME.fullmatch(name)
    return int(match.group(1)) if match else 2**63


def _read_process(
    folder: Path, facts: dict[str, Any] | None, problem: str | None, index: int, unreadable: list[str]
) -> tuple[ProcessInfo, Lacks, dict[str, pl.DataFrame]]:
    info, bad = process_of(facts or {}, index, folder.name)
    lacks: Lacks = []
    if facts is None:
        match = _PROCESS_NAME.fullmatch(folder.name)
        if match:
            info = replace(info, started_ns=min(int(match.group(1)), 2**63 - 1), pid=int(match.group(2)))
        lacks.append(("no-process-file", f"process.json {problem}: rank, versions and how it ended are not known."))
    if bad:
        lacks.append(("damaged-process-file", f"process.json: left out what has the wrong type ({', '.join(bad)})."))
    try:
        symbols = parse((folder / "symbols.jsonl").read_bytes())
    except OSError:
        symbols = Symbols([])
        lacks.append(("no-symbols", "symbols.jsonl is not there: events have no names."))
    if symbols.bad:
        lacks.append(("damaged-symbols", f"{symbols.bad} lines of symbols.jsonl are no symbols and were left out."))
    if symbols.torn:
        lacks.append(("torn-symbols", "The last line of symbols.jsonl was cut and is left out."))
    try:
        stream = read_stream(folder)
    except ForeignSegmentError as error:
        unreadable.append(f"{folder.name}/{error}")
        stream = Stream.nothing()
        lacks.append(("foreign-segment", f"Its event files were left out: {error}."))
    lacks.extend(stream.lacks)
    decoded = decode(stream, symbols, index, info.rank)
    lacks.extend(decoded.lacks)
    info = replace(info, records=len(stream.records), monotonic_offset_ns=_offset(stream), raw=facts or {})
    lacks.extend(_losses(info, facts, stream, decoded.frames))
    return info, lacks, decoded.frames


def _losses(info: ProcessInfo, facts: dict[str, Any] | None, stream: Stream, frames: dict[str, pl.DataFrame]) -> Lacks:
    """What the process itself says it lost, and whether it came to its end."""
    lacks: Lacks = []
    said = facts.get("records") if facts else None
    if facts is not None and info.end in (None, "running"):
        is_open = frames["calls"].filter(pl.col("outcome") == "open").height
        lacks.append(
            (
                "unfinished-process",
                f"it has not said that it ended: it runs, or was killed; {is_open} calls are open at the end.",
            )
        )
    elif not stream.closed and info.records:
        lacks.append(("open-segment", "the last segment was not closed."))
    elif isinstance(said, int) and said > info.records:
        lacks.append(("lost-records", f"it wrote {said} records, {info.records} are here."))
    if info.dropped:
        lacks.append(("dropped-records", f"{info.dropped} records could not be written (no space)."))
    gaps = frames["marks"].filter(pl.col("kind") == "gap")
    if len(gaps):
        lacks.append(
            ("gaps", f"recording stopped and went on {len(gaps)} times (steps {_some(gaps['step'].unique())}).")
        )
    if info.faults:
        total = sum(fault.count for fault in info.faults)
        first = info.faults[0]
        lacks.append(("faults", f"{total} faults of TrainCheck itself; first in {first.where}: {first.error}"))
    return lacks


def _some(values: Iterable[Any]) -> str:
    items = [str(value) for value in values]
    return ", ".join(items[:5]) + (" …" if len(items) > 5 else "")


def _offset(stream: Stream) -> int | None:
    for header in stream.headers:
        if header.opened_realtime < 2**62 and header.opened_monotonic < 2**62:
            return header.opened_realtime - header.opened_monotonic
    return None


def _who(info: ProcessInfo) -> str:
    name = f"process {info.pid}" if info.pid is not None else f"process {info.name}"
    return f"Rank {info.rank} ({name})" if info.rank is not None else name.capitalize()
