"""What the benchmarks of inference and checking share: Llama traces, and processes that are measured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).parent / "workloads"
TIMEOUT = 3600
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Cost:
    """What a process took, from start to end: seconds by the clock and of CPU (all threads), peak memory in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    output: str

    def told(self) -> dict[str, Any]:
        """The last line of its standard output, which is JSON."""
        return json.loads(self.output.strip().splitlines()[-1])


def measured(command: list[str], folder: Path) -> Cost:
    """Run a command in ``folder`` and wait for it. Raises SystemExit with its last words when it failed."""
    import time

    log = folder / "output.log"
    errors = folder / "errors.log"
    with log.open("wb") as out, errors.open("wb") as err:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text(errors="replace")
    if process.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}\n{text[-2000:]}{errors.read_text()[-2000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def trace(folder: Path, workload: str, steps: int, *options: str) -> Path:
    """Trace of a workload, full scope unless ``options`` say otherwise; made once."""
    run = folder / f"{workload}-{steps}{''.join(options[:1])}"
    if not (run / "manifest.json").exists():
        program = [sys.executable, str(WORKLOADS / f"{workload}.py"), str(folder / "times.json"), str(steps)]
        words = options or ("--scope", "full")
        tool = [sys.executable, "-m", "traincheck", "collect", "--force", "-q", "-o", str(run), *words]
        subprocess.run([*tool, "--", *program], cwd=folder, env=ENVIRONMENT, check=True, timeout=TIMEOUT)
    return run


def peer_command(python: str, script: Path, words: list[str], run: Path, folder: Path, options: list[str]) -> list[str]:
    """The 0.x tool passes no arguments to the program: a shell script does, and it runs in the output folder."""
    launcher = folder / "run.sh"
    launcher.write_text(f"#!/bin/sh\nexec {python} {script} {' '.join(words)}\n")
    launcher.chmod(0o755)
    shutil.rmtree(run, ignore_errors=True)
    tool = Path(python).parent / "traincheck-collect"
    return [str(tool), "-p", str(script), "-s", str(launcher), "--output-dir", str(run), "-t", "torch", *options]


def peer_trace(folder: Path, python: str, workload: str, steps: int) -> Path:
    """Trace of the 0.x tool (subclass tracking) of the same workload; made once."""
    run = folder / f"{workload}-{steps}-0.x"
    if not list(run.glob("trace_*")):
        # It writes beside the script.
        script = Path(shutil.copytree(WORKLOADS, folder / "workloads", dirs_exist_ok=True)) / f"{workload}.py"
        options = ["--models-to-track", "model", "--model-tracker-style", "subclass"]
        command = peer_command(python, script, [str(folder / "times.json"), str(steps)], run, folder, options)
        environment = {**ENVIRONMENT, "PYTHONPATH": str(script.parent)}
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=TIMEOUT, capture_output=True)
    return run
