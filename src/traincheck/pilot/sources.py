"""Exact source maps: what a workspace held at one moment, complete, content-addressed, and able to be made again.

A map has an entry for every file, link and folder under the declared roots: mode bits, the target of a link, the
SHA-256 of a file's bytes. A deletion is an entry that the earlier map has and the later one has not. Two occurrences
with equal maps are the same source; the hash of a map is the source's name.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from traincheck.errors import TraincheckError
from traincheck.pilot.canonical import sha256

Kind = Literal["file", "link", "folder"]


class SourceEntry(BaseModel):
    """One path of a source map."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    mode: int = Field(ge=0, le=0o7777)
    """Permission bits; 0 for a link, which has none of its own."""
    sha256: str | None = None
    """Of a file's bytes."""
    size: int | None = None
    target: str | None = None
    """Of a link, as it is written."""


class SourceMap(BaseModel):
    """A whole source: POSIX paths relative to the workspace, sorted."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: tuple[str, ...] = (".",)
    entries: dict[str, SourceEntry]

    @property
    def hash(self) -> str:
        """The source's name: SHA-256 over everything above."""
        return sha256(self.model_dump(mode="json"))

    def changed_from(self, earlier: SourceMap) -> dict[str, Literal["added", "changed", "deleted"]]:
        """Paths that differ from an earlier map, sorted."""
        found: dict[str, Literal["added", "changed", "deleted"]] = {}
        for path in sorted({*self.entries, *earlier.entries}):
            if path not in earlier.entries:
                found[path] = "added"
            elif path not in self.entries:
                found[path] = "deleted"
            elif self.entries[path] != earlier.entries[path]:
                found[path] = "changed"
        return found


class SourceError(TraincheckError):
    """A source can't be captured, or can't be made again exactly.

    Remedy: the message names the path; a missing or changed object has to be restored from where it was copied from.
    """


class Objects:
    """File contents by their SHA-256, and source maps by their hash: ``objects/ab/cdef…`` and ``maps/<hash>.json``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, content: bytes) -> str:
        """Keep ``content``; gives its SHA-256."""
        name = hashlib.sha256(content).hexdigest()
        path = self._object(name)
        if not path.exists():
            _write(path, content)
        return name

    def get(self, name: str) -> bytes:
        """The content of that SHA-256. Raises SourceError when it is missing or was changed."""
        try:
            content = self._object(name).read_bytes()
        except FileNotFoundError as error:
            raise SourceError(f"object {name} is missing from {self.folder}") from error
        if hashlib.sha256(content).hexdigest() != name:
            raise SourceError(f"object {name} in {self.folder} was changed")
        return content

    def put_map(self, source: SourceMap) -> str:
        """Keep a map; gives its hash."""
        path = self.folder / "maps" / f"{source.hash}.json"
        if not path.exists():
            _write(path, source.model_dump_json(indent=1).encode())
        return source.hash

    def get_map(self, name: str) -> SourceMap:
        """The map of that hash. Raises SourceError when it is missing, no map, or was changed."""
        path = self.folder / "maps" / f"{name}.json"
        try:
            source = SourceMap.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise SourceError(f"source map {name} is missing from {self.folder}") from error
        except ValueError as error:
            raise SourceError(f"{path} is no source map: {error}") from error
        if source.hash != name:
            raise SourceError(f"{path} was changed: it is of source {source.hash}")
        return source

    def _object(self, name: str) -> Path:
        return self.folder / "objects" / name[:2] / name[2:]


def capture(
    workspace: Path, objects: Objects, *, roots: Sequence[str] = (".",), ignore: Sequence[str] = ()
) -> SourceMap:
    """The exact source of ``workspace``, its file contents kept in ``objects``.

    ``ignore`` are ``fnmatch`` patterns on the name of a file or folder, or on its path; ignored folders are not
    entered. Links are recorded and never followed. Raises SourceError for what is no file, link or folder, for a
    root that leads out of the workspace, and when a file changes while it is read.
    """
    entries: dict[str, SourceEntry] = {}
    for root in roots:
        if PurePosixPath(root).is_absolute() or ".." in PurePosixPath(root).parts:
            raise SourceError(f"root {root!r} leads out of the workspace")
        top = workspace / root
        for path in _walk(top, workspace, ignore) if not top.is_file() else [top]:
            entries[path.relative_to(workspace).as_posix()] = _entry(path, objects)
    return SourceMap(roots=tuple(roots), entries=dict(sorted(entries.items())))


def materialise(source: SourceMap, objects: Objects, folder: Path) -> None:
    """Make the source again in ``folder``, which is empty or does not exist: bytes, modes, links, nothing else.

    Raises SourceError when an object is missing or changed, and when ``folder`` holds something.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SourceError(f"{folder} is not empty", "a fresh folder")
    modes: list[tuple[Path, int]] = []
    for name, entry in source.entries.items():
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise SourceError(f"the map has a path that leads out of the folder: {name!r}")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "folder":
            path.mkdir(exist_ok=True)
            modes.append((path, entry.mode))
        elif entry.kind == "link":
            path.symlink_to(entry.target or "")
        else:
            path.write_bytes(objects.get(entry.sha256 or ""))
            path.chmod(entry.mode)
    for path, mode in reversed(modes):  # a folder that can't be written to is closed after its content is there
        path.chmod(mode)


def _walk(top: Path, workspace: Path, ignore: Sequence[str]) -> Iterable[Path]:
    for name in sorted(os.listdir(top)):
        path = top / name
        relative = path.relative_to(workspace).as_posix()
        if any(fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(relative, pattern) for pattern in ignore):
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, workspace, ignore)


def _entry(path: Path, objects: Objects) -> SourceEntry:
    before = path.lstat()
    mode = stat.S_IMODE(before.st_mode)
    if stat.S_ISLNK(before.st_mode):
        return SourceEntry(kind="link", mode=0, target=os.readlink(path))
    if stat.S_ISDIR(before.st_mode):
        return SourceEntry(kind="folder", mode=mode)
    if not stat.S_ISREG(before.st_mode):
        raise SourceError(f"{path} is no file, link or folder", "remove it, or add it to what the case ignores")
    content = path.read_bytes()
    after = path.lstat()
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise SourceError(f"{path} changed while it was read", "submit when nothing writes to the workspace")
    return SourceEntry(kind="file", mode=mode, sha256=objects.put(content), size=len(content))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.next")
    new.write_bytes(content)
    new.replace(path)
