"""Names of inputs and outputs: what is derived from what, and the promise that nothing is overwritten unasked."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from time import localtime, strftime

from traincheck.cli import _output
from traincheck.errors import TraincheckError

TRACE_FILES = ("manifest.json", "manifest.json.next", "plan.json", "processes", "compact", "reached", "not-watched-*")
"""What a trace folder holds, as patterns."""


def default_run(command: Sequence[str]) -> Path:
    """``runs/<script>-<date>-<time>`` for a command: ``python -m my.train --lr 1`` gives ``runs/my.train-…``."""
    name = Path(command[0]).name
    for position, word in enumerate(command):
        if word == "-m" and position + 1 < len(command):
            name = command[position + 1]
            break
        if word.endswith((".py", ".sh")):
            name = Path(word).stem
            break
    return Path("runs") / f"{name}-{strftime('%Y%m%d-%H%M%S', localtime())}"


def beside(path: Path, ending: str) -> Path:
    """A name next to ``path``: ``runs/good`` and ``.jsonl`` give ``runs/good.jsonl``."""
    return (
        path.parent / (path.resolve().name + ending)
        if path.name in ("", ".", "..")
        else path.with_name(path.name + ending)
    )


def input_folder(path: Path, what: str) -> Path:
    """``path`` if it is a folder with something in it. Raises TraincheckError."""
    if not path.exists():
        raise TraincheckError(f"expected {what}, but there is nothing at {path}", _siblings(path))
    if not path.is_dir():
        raise TraincheckError(f"expected {what}, a folder, but {path} is a file", "give the folder that holds it")
    if not any(path.iterdir()):
        raise TraincheckError(
            f"expected {what}, but the folder {path} is empty", "collect a run first: traincheck collect --help"
        )
    return path


def input_file(path: Path, what: str) -> Path:
    """``path`` if it is a file. Raises TraincheckError."""
    if not path.exists():
        raise TraincheckError(f"expected {what}, but there is nothing at {path}", _siblings(path))
    if path.is_dir():
        raise TraincheckError(f"expected {what}, a file, but {path} is a folder", "give a file")
    if path.is_fifo() and not str(path).startswith(("/dev/", "/proc/")):  # those of a shell have a writer
        _output.note(f"note: {path} is a pipe: waiting until something has written {what} to it")
    return path


def fresh_file(path: Path, force: bool) -> Path:
    """``path`` if a file may be written there. Raises TraincheckError."""
    if path.is_dir():
        raise TraincheckError(f"the output {path} is to be a file, but it is a folder", "choose another name with -o")
    if path.exists() and not force:
        raise _exists(path)
    return path


def fresh_folder(path: Path, force: bool, ours: Sequence[str]) -> Path:
    """``path`` if a folder may be written there; with ``force`` an earlier output of ours is removed first.

    ``ours``: names (patterns) of what an earlier output holds. A folder that holds anything else is never removed.
    Raises TraincheckError.
    """
    if free_folder(path, force, ours).is_dir() and any(path.iterdir()):
        shutil.rmtree(path)
    return path


def free_folder(path: Path, force: bool, ours: Sequence[str]) -> Path:
    """As ``fresh_folder``, and nothing is removed yet: what stands there stays until there is something better."""
    if path.exists() and not path.is_dir():
        raise TraincheckError(f"the output {path} is to be a folder, but it is a file", "another name with -o")
    names = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    strange = [name for name in names if not any(fnmatch(name, pattern) for pattern in ours)]
    if names and not force:
        raise _exists(path)
    if strange:
        held = ", ".join(strange[:3]) + (", …" if len(strange) > 3 else "")
        raise TraincheckError(
            f"the output {path} holds more than an earlier output ({held}): it is left alone, even with --force",
            "another name with -o",
        )
    return path


def _exists(path: Path) -> TraincheckError:
    return TraincheckError(f"the output {path} exists already", "another name with -o, or --force to replace it")


def _siblings(path: Path) -> str:
    parent = path.parent
    if not parent.is_dir():
        return f"check the path: there is no folder {parent} either"
    names = sorted(entry.name for entry in parent.iterdir() if not entry.name.startswith("."))[:6]
    return f"one of what is in {parent}: {', '.join(names)}" if names else f"check the path: {parent} is empty"


def executable(word: str) -> Path:
    """The interpreter's path, its link not followed: a virtual environment is known by the link.

    Raises ``TraincheckError`` when there is no such program.
    """
    import shutil

    found = shutil.which(word)
    if found is None:
        raise TraincheckError(f"{word} can't be run", "the path of a Python")
    return Path(found).absolute()
