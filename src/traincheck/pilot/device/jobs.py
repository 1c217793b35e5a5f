"""One job: its fresh folder, its environment, and what it leaves: what it printed and what it wrote under ``out/``."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from traincheck.files import write_whole
from traincheck.pilot.device import keeper
from traincheck.pilot.device.messages import Request, Result, Text
from traincheck.pilot.sources import Objects, SourceError, materialise

OUT: Final = "out"
WORK: Final = "work"
_FILES: Final = 10_000
_HEAD: Final = 4 << 10
_TAIL: Final = 12 << 10


def token(ledger: Path, request: str) -> str:
    """What marks a job's processes: the same after the service was started again, unlike any other service's."""
    return hashlib.sha256(f"{ledger.resolve()}\n{request}".encode()).hexdigest()[:32]


class Job:
    """Files of one request, in ``DIR/<request>/``: ``stdout``, ``stderr``, ``result.json``; ``work`` while it runs."""

    def __init__(self, folder: Path, request: str) -> None:
        self.folder = folder / quote(request, safe="+:@")
        self.stdout, self.stderr = self.folder / "stdout", self.folder / "stderr"
        self.result = self.folder / "result.json"

    def prepare(self, request: Request, objects: Objects) -> None:
        """Make the snapshot, out of sight, and move it to where the job looks for it. Raises SourceError, OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if request.workdir is not None:
            Path(request.workdir.host).parent.mkdir(parents=True, exist_ok=True)
        work = self._private(request)
        materialise(objects.get_map(request.source), objects, work)
        (work / OUT).mkdir(exist_ok=True)
        if not (work / request.cwd).is_dir():
            raise SourceError(f"the source has no folder {request.cwd!r}")
        if request.workdir is not None:
            work.rename(request.workdir.host)

    def withdraw(self, request: Request) -> None:
        """Take the snapshot back, whatever has become of it: what an agent sees it may have swapped for a link."""
        if request.workdir is not None:
            with contextlib.suppress(OSError):
                Path(request.workdir.host).rename(self._private(request))

    def _private(self, request: Request | None) -> Path:
        """Where the snapshot is while no job sees it: on the same file system as where one does."""
        if request is not None and request.workdir is not None:
            above = Path(request.workdir.host).parent
            if above.stat().st_dev != self.folder.stat().st_dev:
                return above.parent / f".{self.folder.name}"
        return self.folder / WORK

    def work(self, request: Request) -> Path:
        """Where the snapshot is made."""
        return Path(request.workdir.host) if request.workdir else self.folder / WORK

    def task(self, request: Request, devices: Sequence[int], kind: str, mark: str, file_limit: int) -> dict[str, Any]:
        """What the keeper is told."""
        work = self.work(request)
        inside = request.workdir.inside if request.workdir else str(work)
        ids = ",".join(map(str, devices))
        env = {
            **request.env,
            "PILOT_DEVICES": ids,
            "CUDA_VISIBLE_DEVICES": ids if kind == "gpu" else "",
            keeper.MARK: mark,
        }
        named = {"{workdir}": inside, "{cwd}": os.path.normpath(os.path.join(inside, request.cwd))}
        argv: list[str] = []
        for word in request.prefix:
            if word == "{env}":
                argv += [f"{name}={value}" for name, value in env.items()]
                continue
            for name, value in named.items():
                word = word.replace(name, value)
            argv.append(word)
        return {
            "argv": [*argv, *request.command],
            # With a prefix that goes to another place, ours is of no use, and the path there is not ours to trust.
            "cwd": "/" if request.workdir and request.prefix else str(work / request.cwd),
            "env": env,
            "stdout": str(self.stdout),
            "stderr": str(self.stderr),
            "timeout_s": request.timeout_s,
            "file_limit": file_limit,
        }

    def left(self, request: Request, objects: Objects) -> tuple[dict[str, str], dict[str, str]]:
        """Keep what is under ``out/``, within the request's limit: path -> object, path -> why it was left out."""
        top = self._private(request) / OUT
        files: dict[str, str] = {}
        left_out: dict[str, str] = {}
        room = request.output_limit
        if top.is_symlink() or top.parent.is_symlink():
            return {}, {".": "out is a link"}
        if not top.exists():
            return {}, {}
        for base, folders, names, place in os.fwalk(top):  # never through a link, be it a folder that became one
            folders.sort()
            for name in sorted(names):
                relative = _printable(Path(base, name).relative_to(top).as_posix())
                if len(files) + len(left_out) >= _FILES:
                    left_out["…"] = f"more than {_FILES} files"
                    return files, left_out
                content = _bounded(name, place, room)
                if isinstance(content, str):
                    left_out[relative] = content
                    continue
                room -= len(content)
                files[relative] = objects.put(content)
        return files, left_out

    def printed(self) -> tuple[Text, Text]:
        """What the job printed so far."""
        return _text(self.stdout), _text(self.stderr)

    def keep(self, result: Result) -> str:
        """Write ``result.json``; gives its SHA-256."""
        content = result.model_dump_json(indent=1) + "\n"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole({self.result: content})
        return hashlib.sha256(content.encode()).hexdigest()

    def kept(self, wanted: str | None) -> Result | None:
        """The result as it was written; None when it is missing, or is not the one with that SHA-256."""
        try:
            content = self.result.read_bytes()
            if wanted is not None and hashlib.sha256(content).hexdigest() != wanted:
                return None
            return Result.model_validate(json.loads(content))
        except (OSError, ValueError):
            return None

    def clear(self, request: Request | None = None) -> None:
        """Remove the snapshot, read-only folders too; what can't be removed stays."""
        work = self._private(request)
        if work.is_symlink():
            work.unlink()
            return
        with contextlib.suppress(OSError):  # it may not be there
            work.chmod(0o700)
            for _, folders, _, place in os.fwalk(work):
                for name in folders:
                    _open_up(name, place)
        shutil.rmtree(work, ignore_errors=True)


def _open_up(name: str, above: int) -> None:
    """Let the owner into a folder; a link is left alone."""
    with contextlib.suppress(OSError):
        place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=above)
        try:
            os.chmod(f"/proc/self/fd/{place}", 0o700)
        finally:
            os.close(place)


def _bounded(name: str, above: int, room: int) -> bytes | str:
    """Content of an ordinary file that is no larger than ``room``, or why not. Links are not followed."""
    try:
        place = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=above)
    except OSError as error:
        return "a link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
    with open(place, "rb") as file:
        about = os.fstat(place)
        if not stat.S_ISREG(about.st_mode):
            return "no ordinary file"
        if about.st_size > room:
            return f"{about.st_size} bytes, more than what is left of the limit"
        content = file.read(room + 1)
    return content if len(content) <= room else "grew beyond the limit"


def _text(path: Path) -> Text:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= _HEAD + _TAIL:
                return Text(text=_decoded(file.read()), size=size, cut=False)
            head = file.read(_HEAD)
            file.seek(-_TAIL, os.SEEK_END)
            tail = file.read(_TAIL)
    except OSError:
        return Text(text="", size=0, cut=False)
    between = f"\n[{size - len(head) - len(tail)} bytes left out]\n"
    return Text(text=_decoded(head) + between + _decoded(tail), size=size, cut=True)


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _printable(name: str) -> str:
    """The name of a file, bytes that are not UTF-8 as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
