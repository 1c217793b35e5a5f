"""Activation: how collection reaches a process. ``launch`` sets the environment, ``boot`` waits for torch."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from traincheck.collect.commandlines import is_fork_server, is_launcher
from traincheck.collect.jsonfile import beyond_limit

RUN_VARIABLE = "TRAINCHECK_RUN"
PLAN_FILE = "plan.json"
NOTES = "not-watched-*.txt"
BOOT_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot")


def environment(run: str, base: dict[str, str]) -> dict[str, str]:
    """``base`` with collection into ``run`` switched on for every Python process below; nothing else differs."""
    path = base.get("PYTHONPATH", "")
    first, *rest = path.split(os.pathsep)
    if first == BOOT_FOLDER:
        path = os.pathsep.join(rest)
    # What stood there is kept to the letter: an empty entry means the current folder.
    return {**base, RUN_VARIABLE: run, "PYTHONPATH": BOOT_FOLDER + os.pathsep + path if path else BOOT_FOLDER}


def watch_import(
    run: str, born: int, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """torch is about to be imported: find it, and start a session when it has run. Called by ``boot``.

    ``born`` is the id of the process whose command line this is: another one was forked off.
    """
    if is_launcher(_command_line()):
        return None
    if "torch" in sys.modules:
        _torch_is_there(run, born)
        return None
    from traincheck.collect.imports import ImportWatcher

    def loaded(module: str) -> None:
        if module == "torch":
            watcher.stop()
            _torch_is_there(run, born)

    watcher = ImportWatcher(["torch"], loaded)
    watcher.start()
    return watcher.find_spec(name, path, target)


def _torch_is_there(run: str, born: int) -> None:
    if is_fork_server(_command_line()) and os.getpid() == born:
        _start_in_children(run)
    else:
        start(run)


def _start_in_children(run: str) -> None:
    """This process only forks others, which inherit torch without importing it."""
    server = os.getpid()

    def forked() -> None:
        if os.getppid() == server:  # not a child of a child: that one's session goes on in it
            start(run)

    os.register_at_fork(after_in_child=forked)


def _command_line() -> list[str]:
    return list(getattr(sys, "orig_argv", []))


def start(run: str) -> Any:
    """Start a session into ``run`` in this process; None (and a note in the run's folder) if that is not possible."""
    try:
        from traincheck.collect.plan import Plan
        from traincheck.collect.session import Session

        with open(os.path.join(run, PLAN_FILE), encoding="utf-8") as file:
            plan = Plan.from_json(json.load(file))
        session = Session(plan, run)
        session.start()
        return session
    except Exception as error:
        not_watched(run, error)
        return None


def not_watched(run: str, error: BaseException) -> None:
    """Leave a note in the run's folder that this process is not watched. Raises nothing.

    The file is made by ``mknod``, with the kind of error in its name: that works without a descriptor and without a
    free block.
    """
    number = error.errno if isinstance(error, OSError) else None
    kind = errno.errorcode.get(number or 0) or type(error).__name__
    path = os.path.join(run, f"not-watched-{os.getpid()}-{kind}.txt")
    with contextlib.suppress(OSError):
        os.mknod(path, 0o644)
    text = f"{error.strerror}" if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    note = f"{sys.executable}: {text}\n"
    if not beyond_limit(len(note.encode("utf-8", "replace"))):  # the name of the file has said it
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(note)


def note_text(path: str | os.PathLike[str]) -> str:
    """What a note says; when there was no room for its text, what its name says."""
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        text = file.read().strip()
        if text:
            return text
    kind = os.path.splitext(os.path.basename(path))[0].rpartition("-")[2]
    number = next((n for n, name in errno.errorcode.items() if name == kind), None)
    return os.strerror(number) if number else kind
