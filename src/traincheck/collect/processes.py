"""What a process says of itself: ``process.json``, written atomically, and the folder it stands in."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
from typing import Any

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


def write_json(path: str, data: dict[str, Any]) -> None:
    """Write atomically: readers see the old or the new content. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, default=str)
            file.write("\n")
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


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
        "rank": environment_rank(),
        "versions": {},
        "environment": {key: os.environ[key] for key in ENVIRONMENT if key in os.environ},
        "records": 0,
        "dropped": 0,
        "faults": [],
        "recorder": {"segment_bytes": segment_bytes},
        "plan_hash": plan_hash,
    }


def environment_rank() -> dict[str, Any] | None:
    """Rank as launchers put it into the environment, None outside of one."""
    keys = {"rank": "RANK", "world_size": "WORLD_SIZE", "local_rank": "LOCAL_RANK"}
    found = {name: int(os.environ[key]) for name, key in keys.items() if os.environ.get(key, "").isdigit()}
    return found if "rank" in found else None


LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.launch",
    "deepspeed.launcher.runner",
    "torch._inductor.compile_worker",
)


def is_launcher(argv: list[str]) -> bool:
    """Whether a command line is that of a launcher or helper, which trains nothing itself."""
    for index, word in enumerate(argv[1:], start=1):
        if word == "-m":
            return index + 1 < len(argv) and argv[index + 1] in _LAUNCHER_MODULES
        if word == "-c":
            return index + 1 < len(argv) and (
                "multiprocessing.resource_tracker" in argv[index + 1] or "multiprocessing.forkserver" in argv[index + 1]
            )
        if not word.startswith("-"):
            base = os.path.basename(word)
            if base in LAUNCHERS:
                return base != "accelerate" or "launch" in argv[index + 1 :]
            return word.replace(os.sep, ".").endswith(
                tuple(module + ".py" for module in (*_LAUNCHER_MODULES, "_inductor.compile_worker.__main__"))
            )
    return False
