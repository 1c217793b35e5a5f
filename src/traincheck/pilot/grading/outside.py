"""Files of a workspace that stand for the world outside of the program: no repair is made there.

Every replay has them as the case has them, whatever was submitted.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from traincheck.errors import TraincheckError
from traincheck.pilot.sources import SourceEntry, SourceMap


def put_back(source: SourceMap, initial: SourceMap, outside: tuple[str, ...]) -> tuple[SourceMap, tuple[str, ...]]:
    """``source`` with the ``outside`` files of ``initial``, and those of them that were not as there, sorted.

    Raises TraincheckError when ``initial`` has no such file.
    """
    for path in outside:
        if path not in initial.entries or initial.entries[path].kind != "file":
            raise TraincheckError(
                f"the case declares {path} as outside of the program, but its source has no such file",
                "files under the case's roots, by their path in the workspace, not ignored",
            )
    changed = tuple(sorted(path for path in outside if source.entries.get(path) != initial.entries[path]))
    entries = dict(source.entries)
    for path in changed:
        for above in _above(path):  # a folder that became a file or a link is a folder again
            if (now := entries.get(above)) is None or now.kind != "folder":
                _set(entries, above, initial.entries.get(above))
        _set(entries, path, initial.entries[path])
    return SourceMap(roots=source.roots, entries=dict(sorted(entries.items()))), changed


def _above(path: str) -> list[str]:
    return [one.as_posix() for one in reversed(PurePosixPath(path).parents) if one.name]


def _set(entries: dict[str, SourceEntry], path: str, entry: SourceEntry | None) -> None:
    """What stands at a path, with nothing left below what is no folder."""
    for name in [name for name in entries if name == path or name.startswith(f"{path}/")]:
        del entries[name]
    if entry is not None:
        entries[path] = entry
