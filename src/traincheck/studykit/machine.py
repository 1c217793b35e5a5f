"""The machine a study ran on, and who else was using it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TICK = os.sysconf("SC_CLK_TCK")


def facts() -> dict[str, Any]:
    """Processor, memory, kernel, governor; null where the system does not say."""
    return {
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "python": sys.version.split()[0],
    }


def load() -> list[float]:
    """Load average of 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


@dataclass(frozen=True)
class Use:
    """CPU seconds that the machine's processors had been busy (all processes, stolen time too) at a moment."""

    busy_s: float

    @classmethod
    def now(cls) -> Use | None:
        """From /proc/stat; None where there is none."""
        line = (_read("/proc/stat") or "").partition("\n")[0].split()
        if len(line) < 9 or line[0] != "cpu":
            return None
        user, nice, system, _idle, _wait, interrupt, soft, stolen = (int(word) for word in line[1:9])
        return cls((user + nice + system + interrupt + soft + stolen) / _TICK)


def foreign(before: Use | None, after: Use | None, own_cpu_s: float, wall_s: float, limit: float) -> dict[str, Any]:
    """CPU time of everything but our own process tree: seconds, CPUs on average, and whether that is above the limit.

    ``own_cpu_s`` is that of our tree. Null where the system does not say.
    """
    if before is None or after is None or wall_s <= 0:
        return {"cpu_s": None, "cpus": None, "flagged": None}
    other = max(0.0, after.busy_s - before.busy_s - own_cpu_s)
    return {"cpu_s": round(other, 2), "cpus": round(other / wall_s, 3), "flagged": other / wall_s > limit}


def source() -> dict[str, Any]:
    """Commit and dirty flag of the TrainCheck that is measured; null outside of a git checkout."""
    folder = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    changes = git("status", "--porcelain", "--", ".", "..") if commit else None
    return {"commit": commit, "dirty": bool(changes) if changes is not None else None}


def _processor() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
