"""What a process says of itself: ``process.json``, written atomically, and the folder it stands in."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from typing import Any

from traincheck.collect.jsonfile import keep_room, text_of, write_into_room, write_json

ENVIRONMENT = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "MASTER_PORT",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "PYTHONHASHSEED",
    "TORCH_COMPILE_DISABLE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "ACCELERATE_MIXED_PRECISION",
    "SLURM_PROCID",
    "SLURM_NTASKS",
)
"""The only environment variables that are stored: others may hold secrets."""


def make_folder(run: str) -> tuple[str, str]:
    """(name, path) of a new folder for this process in ``run``. Raises OSError."""
    name = f"{time.time_ns():019d}-{os.getpid()}"
    path = os.path.join(run, "processes", name)
    os.makedirs(path, exist_ok=False)
    return name, path


def remove_folder(path: str) -> None:
    """Remove the folder of a process that is not watched after all. Raises nothing."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(path):
            os.unlink(os.path.join(path, entry))
        os.rmdir(path)


class Account:
    """The ``process.json`` in ``folder``: written at the start, with room kept for what is written at the end.

    Raises OSError if it can't be written.
    """

    def __init__(self, folder: str, facts: dict[str, Any]) -> None:
        self._path = os.path.join(folder, "process.json")
        self._facts = facts
        write_json(self._path, facts)
        with contextlib.suppress(OSError):
            keep_room(self._path, len(text_of(facts)) + _ROOM)

    def finish(self, **facts: Any) -> int | None:
        """Write how it ended. Returns where in the file the exit code stands as ``null``, None if there is no such
        place.

        Raises OSError: then the file still says ``running``.
        """
        self._facts.update(facts)
        write_into_room(self._path, self._facts)
        place = text_of(self._facts).find(_EXIT_UNKNOWN)
        return None if place < 0 else place + len(_EXIT_UNKNOWN) - len(b"null")

    @property
    def path(self) -> str:
        """Where it stands."""
        return self._path


_ROOM = 64 << 10
_EXIT_UNKNOWN = b'\n "exit": null'


def describe(name: str, plan_hash: str, segment_bytes: int) -> dict[str, Any]:
    """What is known of this process when it starts."""
    return {
        "schema": 1,
        "name": name,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "argv": list(getattr(sys, "orig_argv", sys.argv)),
        "executable": sys.executable,
        "python": platform.python_version(),
        "started_ns": time.time_ns(),
        "ended_ns": None,
        "end": "running",
        "exit": None,
        "exception": None,
        "rank": environment_rank(),
        "versions": {},
        "environment": {key: os.environ[key] for key in ENVIRONMENT if key in os.environ},
        "records": 0,
        "dropped": 0,
        "faults": [],
        "recorder": {"segment_bytes": segment_bytes},
        "plan_hash": plan_hash,
    }


def about_to_exec() -> bool:
    """Called in a forked child: whether ``subprocess`` forked it, to run another program (as it does with
    ``preexec_fn``).
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _OURS:
        frame = frame.f_back  # type: ignore[assignment]
    return (
        frame is not None
        and frame.f_code.co_name == "_execute_child"
        and frame.f_globals.get("__name__") == "subprocess"
    )


_OURS = {__file__, os.path.join(os.path.dirname(__file__), "session.py")}


def code_of(error: BaseException | None) -> int:
    """The exit code that a process ends with when ``error`` (None: nothing) leaves its main function."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        return 0 if error.code is None else error.code & 0xFF if isinstance(error.code, int) else 1
    return 1


def environment_rank() -> dict[str, Any] | None:
    """Rank as launchers put it into the environment, None outside of one."""
    keys = {"rank": "RANK", "world_size": "WORLD_SIZE", "local_rank": "LOCAL_RANK"}
    found = {name: int(os.environ[key]) for name, key in keys.items() if os.environ.get(key, "").isdigit()}
    return found if "rank" in found else None
