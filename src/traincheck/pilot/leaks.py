"""Leak audit, the first and the last thing of a trial: what a solver could see and must not have seen.

Looked for are a case's canary, lines that only its private files have, paths of private folders and of other trials,
and values of this process's secret variables. Looked at are the trial's folders, the variables of its processes, what
its processes find at those paths, and, at the end, everything that was said and every source that was submitted.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.events import Audited
from traincheck.pilot.ledger import Entry
from traincheck.pilot.places import Place
from traincheck.pilot.sources import Objects, SourceError

_SECRET: Final = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
_SHORTEST_SECRET: Final = 8
_SHORTEST_LINE: Final = 40
"""Characters of a private line that cannot stand in a workspace by chance."""
_LARGEST: Final = 16 << 20
"""Bytes of a file that are looked through."""


@dataclass(frozen=True)
class Forbidden:
    """What must not be seen: words, by what they are; paths that must not be there."""

    words: dict[str, bytes] = field(default_factory=dict)
    """What it is -> the bytes."""
    lines: dict[str, bytes] = field(default_factory=dict)
    """The same, for lines of private files: a solver may come to write one by itself, so they count at the start."""
    paths: tuple[Path, ...] = ()


def forbidden(cases: Iterable[CaseFolder], hidden: Iterable[Path], variables: Mapping[str, str]) -> Forbidden:
    """What no solver may see: of ``cases`` all that is private, ``hidden`` paths, secrets among ``variables``."""
    words: dict[str, bytes] = {}
    lines: dict[str, bytes] = {}
    paths = [path.resolve() for path in hidden]
    for case in cases:
        name = case.case.name
        words[f"the canary of case {name}"] = case.case.canary.encode()
        paths.append(case.private.resolve())
        open_lines = {line for path in _files(case.workspace) for line in _lines(path)} | {
            line.strip().encode() for line in case.task.splitlines()
        }
        for path in _files(case.private):
            for line in _lines(path):
                if len(line) >= _SHORTEST_LINE and line not in open_lines and case.case.canary.encode() not in line:
                    lines[f"a line of private {name}/{path.relative_to(case.private).as_posix()}"] = line
                    break  # one of each file is enough to know that the file was given away
    for path in paths:
        words[f"the path of hidden {path.parent.name}/{path.name}"] = str(path).encode()
    for name, value in variables.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET:
            words[f"the value of variable {name}"] = value.encode()
    return Forbidden(words=words, lines=lines, paths=tuple(paths))


@dataclass
class Audit:
    """An audit under way."""

    what: Forbidden
    looked_at: int = 0
    leaks: list[str] = field(default_factory=list)

    def text(self, where: str, content: bytes, *, lines: bool = False) -> None:
        """Look through one text."""
        self.looked_at += 1
        for kinds in (self.what.words, self.what.lines) if lines else (self.what.words,):
            self.leaks += [f"{where}: {name}" for name, word in kinds.items() if word in content]

    def folder(self, name: str, top: Path, *, lines: bool = False) -> None:
        """Look through names and contents of a folder's files; links are looked at, not followed."""
        for path in _files(top):
            where = f"{name}/{path.relative_to(top).as_posix()}"
            if path.is_symlink():
                self.text(where, os.fsencode(os.readlink(path)))
            elif path.stat().st_size <= _LARGEST:
                self.text(where, os.fsencode(path.name) + b"\n" + path.read_bytes(), lines=lines)

    def event(self, when: str) -> Audited:
        """The entry of a ledger."""
        return Audited(when="first" if when == "first" else "last", looked_at=self.looked_at, leaks=tuple(self.leaks))


def first(place: Place, what: Forbidden, told: str) -> Audited:
    """Before the solver is told anything: its folders, its variables, what it finds at hidden paths.

    ``told`` is its first message. Needs a place that is started.
    """
    audit = Audit(what)
    audit.text("the first message", told.encode(), lines=True)
    _folders(audit, place, ("work", "home", "tmp", "vartmp", "guard", "package", "manual"), lines=True)
    _inside(audit, place)
    return audit.event("first")


def last(place: Place, what: Forbidden, entries: Sequence[Entry], objects: Objects, sources: Iterable[str]) -> Audited:
    """After it: the same, and every text of its ledger and every file of its submitted ``sources``."""
    audit = Audit(what)
    _folders(audit, place, ("work", "home", "tmp", "vartmp", "workers"), lines=False)
    _inside(audit, place)
    for entry in entries:
        if entry.kind == "audited":  # an audit tells what it found
            continue
        audit.text(f"entry {entry.number} ({entry.kind})", repr(entry.data).encode())
        name = entry.data.get("text")
        if isinstance(name, str):
            _object(audit, f"text of entry {entry.number} ({entry.kind})", name, objects)
    for source in dict.fromkeys(sources):
        for path, held in objects.get_map(source).entries.items():
            if held.sha256 is not None:
                _object(audit, f"source {source[:12]}: {path}", held.sha256, objects)
    return audit.event("last")


def _object(audit: Audit, where: str, name: str, objects: Objects) -> None:
    try:
        audit.text(where, objects.get(name))
    except SourceError as error:
        audit.leaks.append(f"{where}: it can't be looked at: {error.message}")


def _folders(audit: Audit, place: Place, names: Iterable[str], *, lines: bool) -> None:
    for name in names:
        audit.folder(name, place.root / name, lines=lines)


def _inside(audit: Audit, place: Place) -> None:
    """Variables as a process in the place has them, and hidden paths as it finds them."""
    variables = _run(place, ["/usr/bin/env", "-0"])
    for line in variables.split(b"\0"):
        if line:
            audit.text(f"variable {line.partition(b'=')[0].decode(errors='replace')}", line)
    paths = audit.what.paths
    script = (
        'for path in "$@"; do if [ -r "$path" ] && [ -n "$(ls -A "$path" 2>/dev/null)" ]; then echo "$path"; fi; done'
    )
    found = _run(place, ["/bin/sh", "-c", script, "look", *map(str, paths)]).decode(errors="replace").splitlines()
    audit.looked_at += len(paths)
    audit.leaks += [f"a process of the trial can read {path}" for path in found]


def _run(place: Place, command: list[str]) -> bytes:
    done = subprocess.run([*place.prefix(), *command], capture_output=True, timeout=60, check=True)
    return done.stdout


def _files(top: Path) -> Iterator[Path]:
    """All files and links below ``top``, sorted; folders that can't be opened have none."""
    for folder, folders, names in os.walk(top):
        folders.sort()
        for name in sorted([*names, *(one for one in folders if Path(folder, one).is_symlink())]):
            path = Path(folder, name)
            if path.is_symlink() or path.is_file():
                yield path


def _lines(path: Path) -> list[bytes]:
    if path.is_symlink() or path.stat().st_size > _LARGEST:
        return []
    return [line.strip() for line in path.read_bytes().splitlines()]
