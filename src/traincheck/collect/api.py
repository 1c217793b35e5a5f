"""Collecting from inside a program or notebook: ``collect``, ``step``, ``stage``."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError


class CollectError(TraincheckError):
    """Collection could not begin. Remedy: end the one that runs, or name another folder."""


@contextlib.contextmanager
def collect(path: str | os.PathLike[str], *, force: bool = False, **plan: Any) -> Iterator[Path]:
    """Collect what this process does inside the block into the folder ``path``, and give that path.

    Keyword arguments are ``Plan``'s fields (``scope="boundary"``, ``every=10``, ...). Raises CollectError if a
    collection is already running here, if ``path`` holds something, or if it can't be written; ValueError for a
    wrong plan.
    """
    import torch  # noqa: F401  a session starts with torch loaded

    from traincheck.collect import runfolder, session

    run = Path(path)
    wanted = Plan(**plan)
    if session.current is not None:
        raise CollectError("this process is already being collected", "end the running collection first")
    try:
        if run.exists() and any(run.iterdir()):
            if not force:
                raise CollectError(
                    f"{run} exists and is not empty", "name another folder, or pass force=True to replace a trace"
                )
            runfolder.clear(run)
        runfolder.create(run, wanted, list(getattr(sys, "orig_argv", sys.argv)), time.time_ns())
        active = session.Session(wanted, str(run.resolve()))
    except OSError as error:
        raise CollectError(f"{run} can't be written: {error}", "name a folder on a disk with space") from error
    active.start()
    failed = True
    try:
        yield run
        failed = False
    finally:
        active.stop(end="exception" if failed else "exit")
        runfolder.finish(run, None)


def step() -> None:
    """Say that a training step begins now. From the first call on, steps are only told this way. Does nothing when not
    collecting.
    """
    session = _current()
    if session is not None:
        session.tracker.explicit_step()


def stage(name: str) -> contextlib.AbstractContextManager[None]:
    """Everything in the ``with`` block belongs to the stage ``name``. Raises ValueError for a name that is no stage."""
    session = _current()
    if session is not None:
        explicit: contextlib.AbstractContextManager[None] = session.tracker.explicit_stage(name)
        return explicit
    from traincheck.events import STAGES

    if name not in STAGES:
        raise ValueError(f"a stage is one of {', '.join(STAGES)}, not {name!r}")
    return contextlib.nullcontext()


def _current() -> Any:
    module = sys.modules.get("traincheck.collect.session")
    session = getattr(module, "current", None)
    if session is not None:
        session.wake()
    return session
