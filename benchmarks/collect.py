"""What collecting costs: paired slowdowns of whole training runs, plain : boundary : full (: every 10th step : 0.x),
side by side.

    python benchmarks/collect.py [--pairs 3] [--steps 20] [--workload digits llama] [--peer PYTHON] [--json FILE]

Each trial is a fresh process; within a round the modes run in an order that is reversed in the next. A run's figure is
the median CPU and
wall time of its steps from the fourth on; a slowdown is the ratio to the plain run of the same round; the table gives
the median over rounds
and the range. ``--peer`` names the Python of an environment with the 0.x tool
(``pip install traincheck==0.2.0 torch==2.13.0``).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from running import WORKLOADS, peer_command

OURS = {
    "boundary": ["--scope", "boundary"],
    "full": ["--scope", "full"],
    "full, every 10th": ["--scope", "full", "--every", "10", "--warmup", "1"],
    "boundary, every 10th": ["--scope", "boundary", "--every", "10", "--warmup", "1"],
}
SELECTIVE = {
    "selective": [],
    "selective, every 10th": ["--every", "10", "--warmup", "1"],
}
"""Observed as a file of invariants asks for: see benchmarks/check.py."""
PEER = {
    "0.x API only": [],
    "0.x subclass": ["--models-to-track", "model", "--model-tracker-style", "subclass"],
}


def trial(
    mode: str, workload: str, steps: int, folder: Path, peer: str | None = None, rules: Path | None = None
) -> dict:
    out = folder / "times.json"
    out.unlink(missing_ok=True)
    script = WORKLOADS / f"{workload}.py"
    if mode in PEER:  # the 0.x tool writes beside the script
        script = Path(shutil.copytree(WORKLOADS, folder / "workloads", dirs_exist_ok=True)) / script.name
    command = [sys.executable, str(script), str(out), str(steps)]
    run = folder / "run"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    cwd = folder
    if mode in OURS or mode in SELECTIVE:
        words = OURS[mode] if mode in OURS else ["-i", str(rules), *SELECTIVE[mode]]
        command = [
            sys.executable,
            "-m",
            "traincheck",
            "collect",
            "--force",
            "-q",
            "-o",
            str(run),
            *words,
            "--",
            *command,
        ]
    elif mode in PEER:
        command = peer_command(str(peer), script, [str(out), str(steps)], run, folder, PEER[mode])
        env["PYTHONPATH"] = str(script.parent)
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=1800, check=False)
    if not out.exists():
        raise SystemExit(
            f"{mode} of {workload} wrote no times (exit {done.returncode}):\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    times = json.loads(out.read_text())
    result = {
        "cpu_ms": 1e3 * statistics.median(times["cpu"][3:]),
        "wall_ms": 1e3 * statistics.median(times["wall"][3:]),
        "total_cpu_s": sum(times["cpu"]),
        "peak_mb": times["peak_mb"],
        "steps": len(times["cpu"]),
    }
    if mode != "plain":
        result["bytes"] = sum(p.stat().st_size for p in run.rglob("*") if p.is_file())
        if mode not in PEER:
            described = [json.loads(p.read_text()) for p in run.glob("processes/*/process.json")]
            result["records"] = sum(d["records"] for d in described)
            result["dropped"] = sum(d["dropped"] for d in described)
        else:
            result["records"] = sum(p.read_bytes().count(b"\n") for p in run.glob("trace_*"))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--workload", nargs="+", default=["digits", "llama"])
    parser.add_argument("--modes", nargs="+", default=list(OURS))
    parser.add_argument("--peer", help="Python of an environment with the 0.x tool")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    modes = ["plain", *options.modes, *(PEER if options.peer else ())]
    results: dict[str, dict[str, list[dict]]] = {}
    console = Console(width=None if sys.stdout.isatty() else 160)
    for workload in options.workload:
        rounds: dict[str, list[dict]] = {mode: [] for mode in modes}
        for number in range(options.pairs):
            order = modes if number % 2 == 0 else modes[::-1]
            for mode in order:
                with tempfile.TemporaryDirectory() as folder, console.status(f"{workload}: {mode}, round {number + 1}"):
                    rounds[mode].append(trial(mode, workload, options.steps, Path(folder), options.peer))
        results[workload] = rounds
        console.print(table(workload, rounds))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def table(workload: str, rounds: dict[str, list[dict]]) -> Table:
    result = Table(
        title=f"{workload}: medians over {len(rounds['plain'])} rounds; slowdown = ratio to plain of the same round"
    )
    for column in (
        "mode",
        "CPU ms/step",
        "CPU slowdown",
        "wall slowdown",
        "records/10 steps",
        "MB/10 steps",
        "MB added",
    ):
        result.add_column(column, justify="left" if column == "mode" else "right")
    for mode, trials in rounds.items():
        cells = [mode, f"{statistics.median(t['cpu_ms'] for t in trials):.2f}"]
        for key in ("cpu_ms", "wall_ms"):
            ratios = [t[key] / p[key] for t, p in zip(trials, rounds["plain"], strict=True)]
            cells.append(f"{statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f})")
        per_ten = 10 / trials[0]["steps"]
        cells.append(f"{trials[0].get('records', 0) * per_ten:,.0f}")
        cells.append(f"{trials[0].get('bytes', 0) * per_ten / 1e6:.2f}")
        added = statistics.median(t["peak_mb"] - p["peak_mb"] for t, p in zip(trials, rounds["plain"], strict=True))
        cells.append(f"{added:.0f}")
        result.add_row(*cells)
    return result


if __name__ == "__main__":
    main()
