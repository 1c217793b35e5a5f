"""Files of a workspace that stand for the world outside of the program: no repair is made there.

Every replay has them as the case has them, whatever was submitted, and nothing that Python would import in their place.
A program that no longer asks them, or changes what it got from them, is the program's affair.
"""

from __future__ import annotations

import fnmatch
from pathlib import PurePosixPath

from traincheck.pilot.sources import SourceEntry, SourceMap


def put_back(source: SourceMap, initial: SourceMap, outside: tuple[str, ...]) -> tuple[SourceMap, tuple[str, ...]]:
    """``source`` with the ``outside`` files of ``initial``; and the paths where it had something else, sorted."""
    entries = dict(source.entries)
    for path in outside:
        for above in _above(path):  # a folder that became a file or a link is a folder again
            now, then = entries.get(above), initial.entries.get(above)
            if then is not None and (now is None or now.kind != "folder"):
                _set(entries, above, then)
        if entries.get(path) != initial.entries[path]:
            _set(entries, path, initial.entries[path])
    for path in [path for path in entries if path not in initial.entries and _shadows(path, outside)]:
        _set(entries, path, None)
    found = SourceMap(roots=source.roots, entries=dict(sorted(entries.items())))
    return found, tuple(sorted(found.changed_from(source)))


def _shadows(path: str, outside: tuple[str, ...]) -> bool:
    """Whether Python would import ``path`` in the place of a module of ``outside``, or on the way to it."""
    for module in outside:
        place = PurePosixPath(module)
        if place.suffix != ".py":
            continue
        name = place.with_suffix("").as_posix()
        ways = [name, *_above(module)]
        if path == name or any(path == f"{way}.py" or fnmatch.fnmatchcase(path, f"{way}.*so") for way in ways):
            return True
        if any(fnmatch.fnmatchcase(path, f"{way}/__init__.*") for way in _above(module)):
            return True
    return False


def _above(path: str) -> list[str]:
    return [one.as_posix() for one in reversed(PurePosixPath(path).parents) if one.name]


def _set(entries: dict[str, SourceEntry], path: str, entry: SourceEntry | None) -> None:
    """What stands at a path, with nothing left below it."""
    for name in [name for name in entries if name == path or name.startswith(f"{path}/")]:
        del entries[name]
    if entry is not None:
        entries[path] = entry
