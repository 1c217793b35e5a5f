"""Running a case's program with a probe inside, for ``private/qualify.py``: fault and fix are shown with numbers.

A probe is a Python file of the private folder that stands where the workspace's script does in the launch command. It
is given the script's own arguments, imports the program and measures in it; what it tells (``report``) comes back.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from traincheck.errors import TraincheckError
from traincheck.pilot.cases import CaseFolder
from traincheck.studykit import processes

_SCRIPT = "train.py"
_VARIABLE = "TRAINCHECK_PILOT_PROBE"


def shown(
    case: CaseFolder, probe: Path, scenario: str, overlay: str | None = None, **config: Any
) -> list[dict[str, Any]]:
    """What the probe told on each rank, by rank.

    ``overlay`` is a folder of ``private/`` (``oracles/fixed``) that is laid over the workspace; without, it is the
    initial source. ``config`` changes fields of the scenario's configuration. Raises TraincheckError when the program
    fails or a rank told nothing.
    """
    chosen = case.case.scenario(scenario)
    with tempfile.TemporaryDirectory(prefix="qualify-") as name:
        folder, told = Path(name) / "workspace", Path(name) / "told"
        told.mkdir()
        shutil.copytree(case.workspace, folder, ignore=shutil.ignore_patterns(*case.case.ignore))
        if overlay is not None:
            shutil.copytree(case.private / overlay, folder, dirs_exist_ok=True)
        file = folder / "scenario.json"
        file.write_text(json.dumps({**chosen.config, **config}), encoding="utf-8")
        output = Path(name) / "output"
        cost = processes.run(
            _command(case, probe, chosen.ranks, file),
            cwd=folder,
            env=processes.environment(1, PYTHONPATH=str(folder), **{_VARIABLE: str(told)}),
            out=output,
            err=Path(name) / "errors",
            timeout_s=chosen.timeout_s,
        )
        files = [told / f"rank-{rank}.json" for rank in range(chosen.ranks)]
        # A launcher may report a worker that aborted while it left, after everything was told: what counts is that.
        if missing := [path.name for path in files if not path.exists()]:
            text = (Path(name) / "errors").read_text(encoding="utf-8", errors="replace")
            end = text.partition("torch/distributed/elastic")[0][-2000:]  # before what the launcher says of it
            which = f"{case.case.name}, {scenario}, {overlay or 'initial'}"
            raise TraincheckError(
                f"{which}: exit {cost.exit_code}, no {', '.join(missing)}\n{end}",
                "run the case's launch command in its workspace to see more",
            )
        return [json.loads(path.read_text(encoding="utf-8")) for path in files]


def report(told: dict[str, Any]) -> None:
    """In a probe: what this rank tells, once, when all is measured."""
    path = Path(os.environ[_VARIABLE]) / f"rank-{os.environ.get('RANK', '0')}.json"
    new = path.with_suffix(".next")
    new.write_text(json.dumps(told), encoding="utf-8")
    new.replace(path)


def _command(case: CaseFolder, probe: Path, ranks: int, config: Path) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        filled = {"python": sys.executable, "ranks": ranks, "config": config, "port": free.getsockname()[1]}
    return [str(probe.resolve()) if part == _SCRIPT else part.format(**filled) for part in case.case.launch]
