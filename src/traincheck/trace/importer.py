"""Traces of TrainCheck 0.x: a folder of JSON lines becomes a ``Trace``.

Reads ``trace_*.log`` and ``proxy_log.json``, plain or gzipped, of all tracker styles (proxy, subclass, sampler) and of
older releases. A process is a pid; parents come from nesting in time on each thread; step and stage come from
``meta_vars``, whose other entries stay as JSON in the ``meta`` columns.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from traincheck.errors import TraceError
from traincheck.trace import compact
from traincheck.trace.jsontext import loads
from traincheck.trace.manifest import Lack, manifest_of
from traincheck.trace.old_frames import ProcessFrames, mesh_of
from traincheck.trace.trace import Trace

SOURCE: Final = "traincheck-0.x"

_FILE: Final = re.compile(r"(trace_.*\.(log|json)|proxy_log\.json)(\.gz)?")

Record = dict[str, Any]


@dataclass
class _Found:
    """Records by pid, in time order within each, and what could not be read."""

    by_pid: dict[int, list[Record]] = field(default_factory=dict)
    lacks: list[Lack] = field(default_factory=list)
    lines: int = 0
    states: int = 0
    moded: int = 0


def old_files(root: Path) -> list[Path]:
    """The trace files in a 0.x folder."""
    return sorted(path for path in root.iterdir() if _FILE.fullmatch(path.name) and path.is_file())


def is_old_trace(root: Path) -> bool:
    """Whether ``root`` looks like the output folder of 0.x."""
    return bool(old_files(root))


def read(path: str | Path) -> Trace:
    """The 0.x trace in the folder ``path``, in memory. Raises TraceError when it holds no readable record."""
    root = Path(path)
    if not root.is_dir():
        raise TraceError(f"{root}: expected a folder of a 0.x trace, found {'a file' if root.exists() else 'nothing'}")
    files = old_files(root)
    if not files:
        raise TraceError(
            f"{root} holds no 0.x trace: expected trace_*.log or proxy_log.json (plain or .gz)",
            "name the folder that traincheck-collect 0.x wrote",
        )
    found = _Found()
    for file in files:
        _read_file(file, found)
    if not found.by_pid:
        raise TraceError(f"{root} holds no readable record of a 0.x trace", "its files are empty or of another program")
    starts = {pid: min(record["time"] for record in records) for pid, records in found.by_pid.items()}
    order = sorted(found.by_pid, key=lambda pid: (starts[pid], pid))
    meshes = {pid: mesh_of(found.by_pid[pid]) for pid in order}
    ranks = _ranks(order, meshes)
    parts = []
    for index, pid in enumerate(order):
        part = ProcessFrames(index, pid, ranks.get(pid), meshes[pid])
        part.add(found.by_pid.pop(pid))
        parts.append(part)
        found.lacks.extend(Lack(code, index, f"Process {pid}: {text}") for code, text in part.lacks)
    if not any(part.has_steps for part in parts):
        found.lacks.append(Lack("no-steps", None, "No record says at which step it was made; everything is in step 0."))
    frames: dict[str, list[Any]] = {}
    for part in parts:
        for name, frame in part.frames().items():
            frames.setdefault(name, []).append(frame)
    manifest, _ = manifest_of(_manifest(root, found))
    return Trace.of_parts(
        frames,
        path=root,
        manifest=manifest,
        processes=[part.info() for part in parts],
        lacks=found.lacks,
        source=SOURCE,
    )


def import_trace(path: str | Path, output: str | Path, force: bool = False) -> Trace:
    """Convert the 0.x trace in ``path`` to a trace of ours (compact form) in ``output``, and return it.

    Raises TraceError when there is nothing to read, or when ``output`` is not empty and ``force`` is not given.
    """
    root, target = Path(path), Path(output)
    if target.exists() and (not target.is_dir() or any(target.iterdir())) and not force:
        raise TraceError(f"{target} is there already and not empty", "choose another folder, or use --force")
    if (target / "processes").is_dir():
        raise TraceError(f"{target} holds a collected trace; it is not overwritten", "choose another folder")
    trace = read(root)
    compact.write(trace, target)
    assert trace.manifest is not None
    try:
        (target / "manifest.json").write_text(json.dumps(trace.manifest.raw, indent=1), encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{target / 'manifest.json'} cannot be written: {error.strerror}") from error
    trace.path = target
    return trace


def _manifest(root: Path, found: _Found) -> dict[str, Any]:
    style = "none" if not found.states else "immediate" if found.moded else "sampler"
    return {
        "schema": 1,
        "traincheck": "0.x",
        "command": [],
        "complete": not found.lacks,
        "imported_from": root.resolve().name,
        "tracker": style,
        "records": found.lines,
    }


def _read_file(file: Path, found: _Found) -> None:
    bad = 0
    last_bad = False
    for line in _lines(file, found):
        if not line.strip():
            continue
        record = _record(line)
        last_bad = record is None
        if record is None:
            bad += 1
            continue
        found.lines += 1
        if record["type"] == "state_change":
            found.states += 1
            found.moded += "mode" in record
        found.by_pid.setdefault(record["process_id"], []).append(record)
    if last_bad:
        bad -= 1
        found.lacks.append(Lack("torn-file", None, f"The last line of {file.name} was cut and is left out."))
    if bad:
        found.lacks.append(Lack("damaged-lines", None, f"{bad} lines of {file.name} are no records and were left out."))


def _lines(file: Path, found: _Found) -> Iterator[bytes]:
    try:
        with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as opened:
            yield from opened
    except (EOFError, zlib.error, gzip.BadGzipFile):
        found.lacks.append(
            Lack("torn-file", None, f"{file.name} ends before its compressed data does; the rest is lost.")
        )


def _record(line: bytes) -> Record | None:
    """The record in a line, with the fields that everything here relies on; None when it is none."""
    try:
        record = loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        return None
    for key in ("process_id", "time"):
        value = record.get(key)
        if isinstance(value, float) and value.is_integer():
            record[key] = value = int(value)
        if type(value) is not int or not -(2**62) < value < 2**62:
            return None
    return record


def _ranks(order: list[int], meshes: dict[int, dict[str, int]]) -> dict[int, int]:
    """0.x kept no global rank. Where processes differ only in their data-parallel coordinate, that is it."""
    if len(order) < 2 or any(set(mesh) != {"dp"} for mesh in meshes.values()):
        return {}
    ranks = {pid: meshes[pid]["dp"] for pid in order}
    return ranks if len(set(ranks.values())) == len(order) else {}
