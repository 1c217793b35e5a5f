"""What the command line tests share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.cli_support import plain_environment

Traincheck = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def traincheck(tmp_path: Path) -> Traincheck:
    """Runs the real command in a folder of its own, output captured through pipes."""

    def run(*arguments: str | Path, cwd: Path = tmp_path, timeout: float = 120, **changes: str):
        return subprocess.run(
            [sys.executable, "-m", "traincheck", *map(str, arguments)],
            cwd=cwd,
            env=plain_environment(**changes),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run
