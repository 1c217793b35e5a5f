"""Running small programs under the observer."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from traincheck.pilot.grading.records import Records, load
from traincheck.pilot.grading.replaying import OBSERVER
from traincheck.pilot.grading.running import MARK


def observed(
    folder: Path, program: str, *, prefix: tuple[str, ...] = (), watched: bool = True, path: str = ""
) -> tuple[subprocess.CompletedProcess[str], Records]:
    """Run ``program``'s text in ``folder``; gives how it ended and what the observer wrote."""
    records = folder / "records"
    records.mkdir(parents=True)
    (folder / "program.py").write_text(textwrap.dedent(program))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    if watched:
        env = {**env, MARK: str(records), "PYTHONPATH": os.pathsep.join(filter(None, (str(OBSERVER), path)))}
    done = subprocess.run(
        [sys.executable, *prefix, "program.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    return done, load(records)
