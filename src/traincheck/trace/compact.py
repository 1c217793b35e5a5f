"""A finished trace as Parquet: ``RUN/compact/``, one file a frame, with an index that is written last.

The index (``compact.json``) holds what the frames do not: processes, lacks, rows and a hash of each file. Segments are
removed only after the files were read back and found equal.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import polars as pl
from polars.exceptions import PolarsError

from traincheck.errors import TraceError
from traincheck.trace import schema
from traincheck.trace.manifest import Fields, Lack, ProcessInfo, process_of, read_object
from traincheck.trace.trace import Trace

SCHEMA: Final = 1
FOLDER: Final = "compact"
INDEX: Final = "compact.json"

_LIVE: Final = frozenset({"unfinished-process", "unfinished-run"})
_KEEP: Final = frozenset({"foreign-segment", "unreadable-segment", "damaged-segment", "foreign-folder"})
"""Lacks after which the original files may still tell more than was read: they are not removed."""


@dataclass(frozen=True)
class Compacted:
    """What ``compact`` did. ``removed`` counts the files that were taken away, ``note`` says why none were."""

    path: str
    rows: dict[str, int]
    bytes_before: int
    bytes_after: int
    removed: int
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def is_compact(root: Path) -> bool:
    """Whether ``root`` holds a finished compact form."""
    return (root / FOLDER / INDEX).is_file()


def compact(path: str | Path, keep: bool = False, force: bool = False) -> Compacted:
    """Write the compact form of the finished trace in ``path`` and, unless ``keep``, remove the segments it replaces.

    ``force`` also compacts what a killed run left, and writes an existing compact form anew if segments are there.
    Raises TraceError when the run is not finished, the trace is compact already, or what was written does not read back
    equal.
    """
    from traincheck.trace.reader import open_trace, read_segments

    root = Path(path)
    originals = _originals(root)
    if is_compact(root) and not (force and originals):
        raise TraceError(f"{root} is compact already", f"read it as it is: traincheck trace show {root}")
    trace = read_segments(root) if is_compact(root) else open_trace(root)
    if trace.source != "segments":
        raise TraceError(f"{root} is a trace of TrainCheck 0.x", f"convert it: traincheck trace import {root} -o RUN")
    live = [lack.text for lack in trace.lacks if lack.code in _LIVE]
    if live and not force:
        raise TraceError(f"{root} is not finished: {live[0]}", "wait for its end; if it was killed, use --force")
    before = sum(file.stat().st_size for file in originals)
    write(trace, root)
    after = sum(file.stat().st_size for file in (root / FOLDER).iterdir())
    note = None
    doubtful = [lack.text for lack in trace.lacks if lack.code in _KEEP]
    if keep:
        note = "the segments were kept as asked"
    elif doubtful:
        note = f"the segments were kept because not all of them could be read: {doubtful[0]}"
    else:
        for file in originals:
            file.unlink()
    rows = {name: len(frame) for name, frame in trace.frames.items()}
    return Compacted(str(root), rows, before, after, 0 if note else len(originals), note)


def write(trace: Trace, root: Path) -> None:
    """Write ``trace`` as ``root/compact``; an existing one is replaced only by a complete and verified new one.

    Raises TraceError when it cannot be written or does not read back equal.
    """
    fresh = root / f".{FOLDER}.{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        _write_into(trace, fresh)
        old = root / FOLDER
        if old.exists():
            shutil.rmtree(old)
        fresh.rename(old)
    except OSError as error:
        raise TraceError(
            f"{error.filename or root} cannot be written: {error.strerror or error}",
            "free some space, or choose another folder",
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_into(trace: Trace, folder: Path) -> None:
    files: dict[str, Any] = {}
    for name, frame in trace.frames.items():
        file = folder / f"{name}.parquet"
        frame.write_parquet(file, compression="zstd")
        if not _parquet(file, name).equals(frame):
            raise TraceError(
                f"{file.name} does not read back as it was written", "nothing was removed; please report this"
            )
        files[name] = {"rows": len(frame), "hash": _hash(file)}
    index = {
        "schema": SCHEMA,
        "source": trace.source,
        "files": files,
        "processes": [_process_json(info) for info in trace.processes],
        "lacks": [lack.to_json() for lack in trace.lacks],
    }
    (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")


def read(root: Path) -> Trace:
    """The trace in ``root/compact``. Raises TraceError when a file is missing, damaged or newer."""
    from traincheck.trace.reader import read_manifest

    folder = root / FOLDER
    index, problem = read_object(folder / INDEX)
    if index is None:
        raise TraceError(f"{folder / INDEX} {problem}", _again(root))
    fields = Fields(index)
    files = fields.object("files")
    frames = {}
    for name in schema.FRAMES:
        file = folder / f"{name}.parquet"
        said = files.get(name)
        if not isinstance(said, dict) or not file.is_file():
            raise TraceError(f"{file} is missing", _again(root))
        if said.get("hash") != _hash(file):
            raise TraceError(f"{file} is damaged: it is not what was written", _again(root))
        frames[name] = _parquet(file, name)
    processes = [_process(item, number) for number, item in enumerate(fields.objects("processes"))]
    lacks = [
        Lack(
            str(item.get("code")),
            process if isinstance(process := item.get("process"), int) else None,
            str(item.get("text")),
        )
        for item in fields.objects("lacks")
    ]
    manifest = read_manifest(root, [])
    return Trace.of_parts(
        {name: [frame] for name, frame in frames.items()},
        path=root,
        manifest=manifest,
        processes=processes,
        lacks=lacks,
        source=fields.text("source") or "compact",
    )


def _parquet(file: Path, name: str) -> pl.DataFrame:
    try:
        return schema.conform(name, pl.read_parquet(file))
    except (PolarsError, OSError, pl.exceptions.PanicException) as error:
        first = str(error).splitlines()[:1]
        raise TraceError(
            f"{file} cannot be read as Parquet: {first[0] if first else error}", _again(file.parent.parent)
        ) from error


def _again(root: Path) -> str:
    if _originals(root):
        return f"the segments are still there: remove {root / FOLDER} to read them"
    return "the segments were removed when the trace was compacted; collect the run again"


def _originals(root: Path) -> list[Path]:
    return sorted([*root.glob("processes/*/events-*.tcev"), *root.glob("processes/*/symbols.jsonl")])


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        digest = hashlib.blake2b(digest_size=16)
        while chunk := opened.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _process_json(info: ProcessInfo) -> dict[str, Any]:
    own = {key: value for key, value in asdict(info).items() if key not in ("raw", "coordinates", "index")}
    rank = {"rank": info.rank, "world_size": info.world_size, "local_rank": info.local_rank, "mesh": info.mesh}
    return {**own, "rank": rank, "coordinates": info.coordinates, "process_json": info.raw}


def _process(item: dict[str, Any], number: int) -> ProcessInfo:
    info, _ = process_of(item, number, str(item.get("name")))
    fields = Fields(item)
    return replace(
        info,
        coordinates=fields.object("coordinates"),
        monotonic_offset_ns=fields.number("monotonic_offset_ns"),
        raw=fields.object("process_json"),
    )
