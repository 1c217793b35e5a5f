"""Activation: how collection reaches a process. By the environment (``launch`` sets it, ``boot`` reads it), or by
``collect()`` in a program.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from traincheck.collect.processes import is_launcher

RUN_VARIABLE = "TRAINCHECK_RUN"
PLAN_FILE = "plan.json"
BOOT_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot")


def environment(run: str, base: dict[str, str]) -> dict[str, str]:
    """``base`` with collection into ``run`` switched on for every Python process below."""
    path = base.get("PYTHONPATH", "")
    entries = [entry for entry in path.split(os.pathsep) if entry and entry != BOOT_FOLDER]
    return {**base, RUN_VARIABLE: run, "PYTHONPATH": os.pathsep.join([BOOT_FOLDER, *entries])}


def activate() -> None:
    """Start a session as soon as torch has been imported. Called once in each process, never raises."""
    run = os.environ.get(RUN_VARIABLE)
    if not run or is_launcher(list(getattr(sys, "orig_argv", []))):
        return
    if "torch" in sys.modules:
        start(run)
        return

    from traincheck.collect.imports import ImportWatcher

    def loaded(name: str) -> None:
        if name == "torch":
            watcher.stop()
            start(run)

    watcher = ImportWatcher(["torch"], loaded)
    watcher.start()


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
        with (
            contextlib.suppress(OSError),
            open(os.path.join(run, f"not-watched-{os.getpid()}.txt"), "w", encoding="utf-8") as file,
        ):
            file.write(f"{sys.executable}: {type(error).__name__}: {error}\n")
        return None
