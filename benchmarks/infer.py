"""What inference costs: seconds and memory for full traces of the Llama workload of several lengths.

    python benchmarks/infer.py [--steps 10 20 50 100] [--rounds 3] [--jobs 1] [--peer PYTHON] [--peer-steps 10]

Each trial is a fresh process, start and imports included; medians over rounds. ``--peer`` names the Python of an
environment with the 0.x tool (``pip install traincheck==0.2.0 torch==2.13.0``): it collects the same program and infers
from its own trace, in one round. ``--folder`` keeps traces and invariants.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table
from running import Cost, measured, peer_trace, trace

BUDGET_S, BUDGET_MB = 20, 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 20, 50, 100])
    parser.add_argument("--workload", default="llama")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--peer", help="Python of an environment with the 0.x tool")
    parser.add_argument("--peer-steps", type=int, nargs="+", default=[10])
    parser.add_argument("--folder", type=Path, help="where traces are kept (default: a temporary folder)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for steps in options.steps:
            run = trace(folder, options.workload, steps)
            output = folder / f"{run.name}.jsonl"
            words = ["infer", str(run), "-o", str(output), "--force", "--jobs", str(options.jobs)]
            costs = [measured([sys.executable, "-m", "traincheck", *words], folder) for _ in range(options.rounds)]
            rows.append(row("ours", steps, costs, output))
            console.print(rows[-1])
        for steps in options.peer_steps if options.peer else ():
            run = peer_trace(folder, options.peer, options.workload, steps)
            output = folder / f"{run.name}.json"
            tool = Path(options.peer).parent / "traincheck-infer"
            rows.append(row("0.x", steps, [measured([str(tool), "-f", str(run), "-o", str(output)], folder)], output))
            console.print(rows[-1])
    console.print(table(options.workload, rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def row(tool: str, steps: int, costs: list[Cost], output: Path) -> dict:
    return {
        "tool": tool,
        "steps": steps,
        "wall_s": statistics.median(cost.wall_s for cost in costs),
        "cpu_s": statistics.median(cost.cpu_s for cost in costs),
        "peak_mb": max(cost.peak_mb for cost in costs),
        "invariants": sum(1 for line in output.read_text().splitlines() if line.strip()),
    }


def table(workload: str, rows: list[dict]) -> Table:
    result = Table(title=f"infer, full trace of {workload} (budget {BUDGET_S} s, {BUDGET_MB} MB for 10 and 20 steps)")
    for column in ("tool", "steps", "wall s", "CPU s", "peak MB", "invariants"):
        result.add_column(column, justify="left" if column == "tool" else "right")
    for one in rows:
        result.add_row(
            one["tool"],
            str(one["steps"]),
            f"{one['wall_s']:.2f}",
            f"{one['cpu_s']:.2f}",
            f"{one['peak_mb']:.0f}",
            f"{one['invariants']:,}",
        )
    return result


if __name__ == "__main__":
    main()
