"""One training again, from its exact source, in fresh processes, observed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from traincheck.pilot import events
from traincheck.pilot.cases import CaseFolder, Scenario
from traincheck.pilot.grading import records
from traincheck.pilot.grading.outside import put_back
from traincheck.pilot.grading.running import MARK, Done, Job, Runner, filled, free_port
from traincheck.pilot.sources import Objects, SourceMap, materialise
from traincheck.studykit.processes import settings

OBSERVER: Final = Path(__file__).parent / "observer" / "boot"

_KEPT: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
"""What a replay has of our environment: nothing that says who runs it, or where the private folders are."""


@dataclass(frozen=True)
class Setting:
    """What all replays of one case have in common."""

    case: CaseFolder
    objects: Objects
    runner: Runner
    purpose: events.Purpose
    python: str = sys.executable
    """Interpreter that trains."""

    @property
    def owner(self) -> str:
        """Who pays for device time."""
        return f"{self.purpose}/{self.case.case.name}"

    def devices(self, scenario: Scenario) -> int:
        """How many devices a launch of a scenario takes."""
        return min(self.case.case.devices, scenario.ranks)


@dataclass(frozen=True)
class Replayed:
    """One training that was run again."""

    done: Done
    records: records.Records
    folder: Path
    put_back: tuple[str, ...] = ()
    """Paths of the world outside, or in its place, where the source had something else than the replay."""


def replay(
    setting: Setting, source: SourceMap, scenario: Scenario, folder: Path, request: str,
    *, prefix: tuple[str, ...] = (), variables: Mapping[str, str] | None = None,
) -> Replayed:  # fmt: skip
    """Run ``source`` in ``scenario`` and read what the observer wrote.

    ``folder`` is made anew: ``records/``, ``out.log``, ``err.log``, ``config.json``; workspace and home are removed
    when it has ended. ``prefix`` is put before the launch command. Raises SourceError, TraincheckError, OSError.
    """
    if folder.exists():
        shutil.rmtree(folder)
    workspace, home, written = folder / "workspace", folder / "home", folder / "records"
    case = setting.case.case
    there, changed = source, tuple[str, ...]()
    if case.outside:
        there, changed = put_back(source, setting.case.initial(setting.objects), case.outside)
    materialise(there, setting.objects, workspace)
    for path in (home / "tmp", written):
        path.mkdir(parents=True)
    config = folder / "config.json"
    config.write_text(json.dumps(scenario.config, indent=1) + "\n")
    command = filled(
        case.launch, python=setting.python, ranks=scenario.ranks, config=config.resolve(), port=free_port()
    )
    env = {
        **environment(home),
        "PYTHONPATH": str(OBSERVER),
        MARK: str(written.resolve()),
        **(variables or {}),
    }
    job = Job(
        request=request, owner=setting.owner, purpose=setting.purpose, devices=setting.devices(scenario),
        command=(*prefix, *command), source=source.hash, cwd=workspace, env=env, timeout_s=scenario.timeout_s,
        out=folder / "out.log", err=folder / "err.log",
    )  # fmt: skip
    try:
        done = setting.runner.run(job)
    finally:
        for path in (workspace, home):
            _remove(path)
    return Replayed(done, records.load(written), folder, changed)


def environment(home: Path) -> dict[str, str]:
    """What a replay sees of ours, with ``home`` as its home and ``home/tmp`` for scratch."""
    return {
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        **settings(1),
        "HOME": str(home.resolve()),
        "TMPDIR": str((home / "tmp").resolve()),
    }


def _remove(folder: Path) -> None:
    """Delete also what a program closed to itself."""
    for path, _, _ in os.walk(folder):
        if not Path(path).is_symlink():
            Path(path).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
