"""Running programs under collection while something goes wrong: kills, full disks, limits."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LAUNCH = """
import json, sys
from pathlib import Path
from traincheck.collect.launch import LaunchOptions, launch
from traincheck.collect.plan import Plan
sys.exit(launch(LaunchOptions(command=sys.argv[3:], output=Path(sys.argv[1]), plan=Plan(**json.loads(sys.argv[2])))))
"""


def launching(run: Path, command: list[str], **plan: Any) -> list[str]:
    """``traincheck collect`` with plan fields that it has no option for, such as ``segment_bytes``."""
    return [sys.executable, "-I", "-c", LAUNCH, str(run), json.dumps(plan), *command]


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int, options: str = "") -> Iterator[Path]:
    """A file system of that size at ``folder/disk``; skips the test where none may be mounted."""
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k{options}", "traincheck-test", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if done.returncode:
        pytest.skip(f"a small disk can't be mounted here (it takes root): {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
