"""Running one command of a study: its own process group, its cost from start to end, and never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from traincheck.studykit.machine import Use, load

_GRACE_S = 10
_DROPPED = ("TRAINCHECK", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC", "PYTHONPATH")


@dataclass(frozen=True)
class Cost:
    """What a command took: clock readings in ns, CPU seconds of its whole tree, machine use before and after."""

    exit_code: int
    timed_out: bool
    began_monotonic_ns: int
    ended_monotonic_ns: int
    began_ns: int
    """Realtime."""
    ended_ns: int
    cpu_s: float
    peak_mb: float
    """Of the largest process."""
    use_before: Use | None
    use_after: Use | None
    load_before: list[float]
    load_after: list[float]

    @property
    def wall_s(self) -> float:
        """Seconds by the clock."""
        return (self.ended_monotonic_ns - self.began_monotonic_ns) / 1e9


def environment(threads: int, **more: str) -> dict[str, str]:
    """What a trial sees: ours without what launchers and TrainCheck left in it, threads and hashing fixed, offline."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    return {**kept, **settings(threads), **more}


def settings(threads: int) -> dict[str, str]:
    """The variables a study sets."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "RAYON_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


def run(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], out: Path, err: Path, timeout_s: float) -> Cost:
    """Run a command to its end. On a timeout, or when we are interrupted, its whole group is ended.

    Raises OSError when it can't be started.
    """
    with out.open("wb") as stdout, err.open("wb") as stderr:
        load_before, use_before = load(), Use.now()
        began, began_mono = time.time_ns(), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        process = subprocess.Popen(
            list(command), cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            start_new_session=True,
        )  # fmt: skip
        late, over = threading.Event(), threading.Event()

        def watch() -> None:
            if not over.wait(timeout_s):
                late.set()
                _end(process.pid, over)

        threading.Thread(target=watch, daemon=True).start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            threading.Thread(target=_end, args=(process.pid, over), daemon=True).start()
            with contextlib.suppress(ChildProcessError):
                os.wait4(process.pid, 0)
            raise
        finally:
            over.set()
        process.returncode = os.waitstatus_to_exitcode(status)
        ended_mono, ended = time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.time_ns()
        return Cost(
            exit_code=process.returncode,
            timed_out=late.is_set(),
            began_monotonic_ns=began_mono,
            ended_monotonic_ns=ended_mono,
            began_ns=began,
            ended_ns=ended,
            cpu_s=usage.ru_utime + usage.ru_stime,
            peak_mb=usage.ru_maxrss / 1024,
            use_before=use_before,
            use_after=Use.now(),
            load_before=load_before,
            load_after=load(),
        )


def _end(group: int, over: threading.Event) -> None:
    """Ask a group to end (launchers pass it on to workers that have groups of their own), then end it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        if not over.wait(_GRACE_S):
            os.killpg(group, signal.SIGKILL)


def last_words(*files: Path, most: int = 600) -> str:
    """The end of the last file that holds something."""
    for path in reversed(files):
        with contextlib.suppress(OSError):
            text = path.read_text(errors="replace").strip()
            if text:
                return text[-most:]
    return ""
