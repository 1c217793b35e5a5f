"""Exact source maps: what a workspace held at one moment, complete, content-addressed, and able to be made again.

A map has an entry for every file, link and folder under the declared roots: mode bits, the target of a link, the
SHA-256 of a file's bytes. A deletion is an entry that the earlier map has and the later one has not. Two occurrences
with equal maps are the same source; the hash of a map is the source's name.

A name that is not UTF-8 stands in the map with each such byte as a zero byte and two hex digits, which no real name can
hold; ``real_name`` gives it back.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from pydantic import Field

from traincheck.errors import TraincheckError
from traincheck.pilot.canonical import encoded, sha256
from traincheck.studykit.strict import Strict

Kind = Literal["file", "link", "folder"]

_NAME: Final = re.compile(r"[0-9a-f]{64}")
_ESCAPED: Final = re.compile(r"\0([89a-f][0-9a-f])")
_turn: Final = itertools.count()


class SourceEntry(Strict):
    """One path of a source map."""

    kind: Kind
    mode: int = Field(ge=0, le=0o7777)
    """Permission bits; 0 for a link, which has none of its own."""
    sha256: str | None = None
    """Of a file's bytes."""
    size: int | None = None
    target: str | None = None
    """Of a link, as it is written."""


class SourceMap(Strict):
    """A whole source: POSIX paths relative to the workspace, sorted."""

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
    """File contents by their SHA-256, and source maps by their hash: ``objects/ab/cdef…`` and ``maps/<hash>.json``.

    Threads and processes may share a folder.
    """

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

    def has(self, name: str) -> bool:
        """Whether there is an object of that name; what it holds is not looked at."""
        return self._object(name).exists()

    def put_map(self, source: SourceMap) -> str:
        """Keep a map; gives its hash."""
        name = source.hash
        path = self.folder / "maps" / f"{name}.json"
        if not path.exists():
            _write(path, encoded(source.model_dump(mode="json")) + b"\n")
        return name

    def get_map(self, name: str) -> SourceMap:
        """The map of that hash. Raises SourceError when it is missing, no map, or was changed."""
        path = self.folder / "maps" / f"{_checked_name(name)}.json"
        try:
            source = SourceMap.model_validate(json.loads(path.read_bytes()))
        except FileNotFoundError as error:
            raise SourceError(f"source map {name} is missing from {self.folder}") from error
        except ValueError as error:
            raise SourceError(f"{path} is no source map: {error}") from error
        if source.hash != name:
            raise SourceError(f"{path} was changed: it is of source {source.hash}")
        return source

    def _object(self, name: str) -> Path:
        return self.folder / "objects" / _checked_name(name)[:2] / name[2:]


def capture(
    workspace: Path, objects: Objects, *, roots: Sequence[str] = (".",), ignore: Sequence[str] = ()
) -> SourceMap:
    """The exact source of ``workspace``, its file contents kept in ``objects``.

    ``ignore`` are ``fnmatch`` patterns on the name of a file or folder, or on its path; ignored folders are not
    entered. Links are recorded and never followed, a root that is one included; a root that is not there adds
    nothing. Raises SourceError for what is no file, link or folder, for what cannot be read, for a root that leads out
    of the workspace, and when a file changes while it is read.
    """
    reading = _Reading(objects, ignore)
    for root in roots:
        reading.root(workspace, root)
    return SourceMap(roots=tuple(roots), entries=dict(sorted(reading.entries.items())))


def materialise(source: SourceMap, objects: Objects, folder: Path) -> None:
    """Make the source again in ``folder``, which is empty or does not exist: bytes, modes, links, nothing else.

    Raises SourceError when an object is missing or changed, when ``folder`` holds something, and for a map whose
    paths lead out of the folder, be it through a link of its own.
    """
    _check_paths(source)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise SourceError(f"{folder} is not empty", "a fresh folder")
    modes: list[tuple[Path, int]] = []
    for name in sorted(source.entries, key=lambda name: PurePosixPath(name).parts):  # a folder before what is in it
        entry, path = source.entries[name], folder / real_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "folder":
            path.mkdir(exist_ok=True)
            modes.append((path, entry.mode))
        elif entry.kind == "link":
            path.symlink_to(real_name(entry.target or ""))
        else:
            path.write_bytes(objects.get(entry.sha256 or ""))
            path.chmod(entry.mode)
    for path, mode in reversed(modes):  # a folder that can't be written to is closed after its content is there
        path.chmod(mode)


def real_name(name: str) -> str:
    """A path or a link's target of a map as the system has it (what is not UTF-8 as ``os.fsdecode`` gives it)."""
    return _ESCAPED.sub(lambda found: chr(0xDC00 + int(found[1], 16)), name)


def _name_in_map(name: str) -> str:
    return "".join(f"\0{ord(one) - 0xDC00:02x}" if "\udc80" <= one <= "\udcff" else one for one in name)


def missing_objects(source: SourceMap, objects: Objects) -> list[str]:
    """Paths of the map whose content is not in the store, sorted; what the others hold is not looked at."""
    wanted = ((path, entry.sha256) for path, entry in source.entries.items() if entry.kind == "file")
    return sorted(path for path, name in wanted if name is None or not objects.has(name))


def _check_paths(source: SourceMap) -> None:
    for name in source.entries:
        path = PurePosixPath(name)
        if (
            path.is_absolute()
            or ".." in path.parts
            or path.as_posix() != name
            or name == "."
            or "\0" in real_name(name)
        ):
            raise SourceError(f"the map has a path that leads out of the folder, or is not plain: {name!r}")
        for above in path.parents:
            over = source.entries.get(above.as_posix())
            if over is not None and over.kind != "folder":
                raise SourceError(f"the map has {name!r} in {above.as_posix()!r}, which is a {over.kind}")


class _Reading:
    """Reads a workspace by way of open folders: where a name leads to can't change between two looks at it.

    An agent's own processes may still run while its workspace is read, with more rights on our side than on theirs.
    """

    def __init__(self, objects: Objects, ignore: Sequence[str]) -> None:
        self.entries: dict[str, SourceEntry] = {}
        self._objects, self._ignore = objects, ignore

    def root(self, workspace: Path, root: str) -> None:
        """Everything under one root."""
        relative = PurePosixPath(root)
        if relative.is_absolute() or ".." in relative.parts:
            raise SourceError(f"root {root!r} leads out of the workspace")
        try:
            folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise SourceError(f"{workspace} is no folder that can be read: {error.strerror}") from error
        path = ""
        try:
            for number, part in enumerate(relative.parts):
                path = f"{path}{part}"
                try:
                    about = os.stat(part, dir_fd=folder, follow_symlinks=False)
                except FileNotFoundError:
                    return
                last = number == len(relative.parts) - 1
                if last or stat.S_ISLNK(about.st_mode):  # whatever a link leads to is not of this workspace
                    self._add(folder, part, path, about)
                if not stat.S_ISDIR(about.st_mode):
                    return
                inner = self._open(folder, part, path, about, os.O_DIRECTORY)
                os.close(folder)
                folder, path = inner, f"{path}/"
            self._walk(folder, path)
        finally:
            os.close(folder)

    def _walk(self, folder: int, above: str) -> None:
        for name in sorted(os.listdir(folder)):
            path = above + name
            if any(fnmatch.fnmatchcase(name, one) or fnmatch.fnmatchcase(path, one) for one in self._ignore):
                continue
            try:
                about = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError as error:
                raise _changed(path) from error
            self._add(folder, name, path, about)
            if stat.S_ISDIR(about.st_mode):
                inner = self._open(folder, name, path, about, os.O_DIRECTORY)
                try:
                    self._walk(inner, f"{path}/")
                finally:
                    os.close(inner)

    def _add(self, folder: int, name: str, path: str, about: os.stat_result) -> None:
        mode = stat.S_IMODE(about.st_mode)
        if stat.S_ISLNK(about.st_mode):
            try:
                target = os.readlink(name, dir_fd=folder)
            except OSError as error:
                raise _changed(path) from error
            entry = SourceEntry(kind="link", mode=0, target=_name_in_map(target))
        elif stat.S_ISDIR(about.st_mode):
            entry = SourceEntry(kind="folder", mode=mode)
        elif stat.S_ISREG(about.st_mode):
            with open(self._open(folder, name, path, about, os.O_NONBLOCK), "rb") as file:
                content = file.read()
                if _identity(os.fstat(file.fileno())) != _identity(about):
                    raise _changed(path)
            entry = SourceEntry(kind="file", mode=mode, sha256=self._objects.put(content), size=len(content))
        else:
            raise SourceError(f"{path} is no file, link or folder", "remove it, or add it to what the case ignores")
        self.entries[_name_in_map(path)] = entry

    def _open(self, folder: int, name: str, path: str, about: os.stat_result, flags: int) -> int:
        """Open the very thing that was looked at: not what took its place, and not through a link."""
        try:
            place = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
        except PermissionError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}", "chmod it, or remove it") from error
        except OSError as error:
            raise _changed(path) from error
        if _identity(os.fstat(place)) != _identity(about):
            os.close(place)
            raise _changed(path)
        return place


def _identity(about: os.stat_result) -> tuple[int, ...]:
    """By what a thing is the same thing, and a file also of the same content."""
    if stat.S_ISDIR(about.st_mode):
        return about.st_dev, about.st_ino
    return about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size, stat.S_IFMT(about.st_mode)


def _changed(path: str) -> SourceError:
    return SourceError(f"{path} changed while it was read", "submit when nothing writes to the workspace")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise SourceError(f"{name!r} is no SHA-256")
    return name


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.{next(_turn)}.next")
    new.write_bytes(content)
    new.replace(path)
