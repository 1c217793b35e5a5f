"""What checking costs: a full trace of the Llama workload against a few and against many invariants, by length of run.

    python benchmarks/check.py [--steps 10 20 50 100] [--rounds 3] [--peer PYTHON] [--invariants FILE ...]
    python benchmarks/check.py --slowdown [--pairs 5] [--train-steps 60]

Sets of invariants: what one full run of 10 steps teaches (``learned``), and ``many``: these, what 0.x learned of an
MLP (tests/data/verdicts), and with ``--peer`` or ``--invariants`` what 0.x learned of this very program. Each trial is
a fresh process; reading the trace, the whole run at once and step by step are timed inside it, imports apart;
``command`` is the whole ``traincheck check`` with start and imports. ``--peer`` names the Python of an environment with
the 0.x tool (``pip install traincheck==0.2.0 torch==2.13.0``): its own check of its own trace stands beside ours.

``--slowdown`` instead trains: plain, and observed as ``learned`` asks for, at every step and at every 10th, in pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from collect import SELECTIVE, trial
from collect import table as slowdowns
from rich.console import Console
from rich.table import Table
from running import measured, peer_trace, trace

MLP = Path(__file__).parents[1] / "tests/data/verdicts/traincheck-0.2.0/invariants_mlp.json.gz"

INSIDE = """
import json, sys, time
import traincheck.check as c
from traincheck.invariants import load_invariants
from traincheck.relations.base import Numbered
from traincheck.relations.registry import ALL
from traincheck.relations.tables import Tables
from traincheck.trace import open_trace

def timed(work, *args, **options):
    wall, cpu = time.perf_counter(), time.process_time()
    result = work(*args, **options)
    return result, time.perf_counter() - wall, time.process_time() - cpu

run, *files = sys.argv[1:]
rules, load_s, _ = timed(load_invariants, *files)
trace, read_s, _ = timed(open_trace, run)
whole, check_s, check_cpu = timed(c.check, trace, rules)
stepwise, by_step_s, by_step_cpu = timed(c.check, trace, rules, by_step=True)
assert [o.outcome for o in whole.outcomes] == [o.outcome for o in stepwise.outcomes]
tables = Tables.of(trace)
windows = tables.steps()
each = {}
for relation in ALL:
    items = [Numbered(n, one) for n, one in enumerate(rules) if one.relation == relation.name]
    _, _, cpu = timed(c.judge, items, windows, tables.watch)
    each[relation.name] = 1e3 * cpu / len(windows)
print(json.dumps({"load_s": load_s, "read_s": read_s, "check_s": check_s, "check_cpu": check_cpu,
    "by_step_s": by_step_s, "by_step_cpu": by_step_cpu, "windows": len(windows), "window_ms": each,
    "summary": whole.summary}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, nargs="+", default=[10, 20, 50, 100])
    parser.add_argument("--workload", default="llama")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--invariants", type=Path, nargs="*", default=[], help="more of them, for the large set")
    parser.add_argument("--peer", help="Python of an environment with the 0.x tool")
    parser.add_argument("--slowdown", action="store_true")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--train-steps", type=int, default=60)
    parser.add_argument("--folder", type=Path, help="where traces are kept (default: a temporary folder)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        learned = folder / f"{options.workload}-learned.jsonl"
        reference = trace(folder, options.workload, 10)
        ours = [sys.executable, "-m", "traincheck"]
        measured([*ours, "infer", str(reference), "-o", str(learned), "--force"], folder)
        measure = slowdown if options.slowdown else checking
        found = measure(options, folder, learned, console)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


def checking(options: argparse.Namespace, folder: Path, learned: Path, console: Console) -> list[dict]:
    """The curve, by set of invariants; and the same of 0.x for the shortest run."""
    rows = []
    many = [learned, MLP, *(path.resolve() for path in options.invariants)]
    peer_rules = folder / f"{options.workload}-10-0.x.json"
    if options.peer:
        run = peer_trace(folder, options.peer, options.workload, 10)
        if not peer_rules.exists():
            tool = Path(options.peer).parent / "traincheck-infer"
            measured([str(tool), "-f", str(run), "-o", str(peer_rules)], folder)
        many.append(peer_rules)
    for name, files in (("learned", [learned]), ("many", many)):
        for steps in options.steps:
            run = trace(folder, options.workload, steps)
            words = [str(run), *map(str, files)]
            tolds = [measured([sys.executable, "-c", INSIDE, *words], folder).told() for _ in range(options.rounds)]
            rules = [word for file in files for word in ("-i", str(file))]
            command = [sys.executable, "-m", "traincheck", "check", str(run), *rules, "--json"]
            costs = [measured(command, folder) for _ in range(options.rounds)]
            row = {
                "tool": "ours",
                "set": name,
                "steps": steps,
                "summary": tolds[0]["summary"],
                "windows": tolds[0]["windows"],
                "peak_mb": max(cost.peak_mb for cost in costs),
                "command_s": statistics.median(cost.wall_s for cost in costs),
                "command_cpu": statistics.median(cost.cpu_s for cost in costs),
            }
            for key in ("load_s", "read_s", "check_s", "check_cpu", "by_step_s", "by_step_cpu"):
                row[key] = statistics.median(told[key] for told in tolds)
            row["window_ms"] = {
                relation: statistics.median(told["window_ms"][relation] for told in tolds)
                for relation in tolds[0]["window_ms"]
            }
            rows.append(row)
    if options.peer:
        tool = Path(options.peer).parent / "traincheck-check"
        output = folder / "checked-0.x"
        run = peer_trace(folder, options.peer, options.workload, 10)
        cost = measured([str(tool), "-f", str(run), "-i", str(peer_rules), "-o", str(output)], folder)
        total = sum(1 for line in peer_rules.read_text().splitlines() if line.strip())
        rows.append(
            {
                "tool": "0.x",
                "set": "its own",
                "steps": 10,
                "summary": {"total": total},
                "command_s": cost.wall_s,
                "command_cpu": cost.cpu_s,
                "peak_mb": cost.peak_mb,
            }
        )
    console.print(curve(options.workload, rows))
    console.print(windows(rows))
    return rows


def curve(workload: str, rows: list[dict]) -> Table:
    result = Table(title=f"check, full trace of {workload}: seconds (budget 1 s for ~700 invariants)")
    columns = {
        "load s": "load_s",
        "read s": "read_s",
        "check s": "check_s",
        "check CPU s": "check_cpu",
        "by step CPU s": "by_step_cpu",
        "command s": "command_s",
        "command CPU s": "command_cpu",
    }
    for column in ("tool", "set", "steps", "invariants", "judged", *columns, "peak MB"):
        result.add_column(column, justify="left" if column in ("tool", "set") else "right")
    for row in rows:
        total = row["summary"]["total"]
        judged = total - row["summary"].get("dormant", 0) - row["summary"].get("not_observable", 0)
        seconds = [f"{row[key]:.2f}" if key in row else "" for key in columns.values()]
        shown = str(judged) if row["tool"] == "ours" else ""
        result.add_row(row["tool"], row["set"], str(row["steps"]), str(total), shown, *seconds, f"{row['peak_mb']:.0f}")
    return result


def windows(rows: list[dict]) -> Table:
    result = Table(title="CPU ms a window, step by step")
    result.add_column("relation")
    told = [row for row in rows if "window_ms" in row]
    for row in told:
        result.add_column(f"{row['set']}, {row['steps']}", justify="right")
    for relation in told[0]["window_ms"]:
        result.add_row(relation, *(f"{row['window_ms'][relation]:.1f}" for row in told))
    return result


def slowdown(options: argparse.Namespace, _folder: Path, learned: Path, console: Console) -> dict:
    """Paired training runs: plain, and observed as the invariants ask for."""
    modes = ["plain", *SELECTIVE]
    rounds: dict[str, list[dict]] = {mode: [] for mode in modes}
    for number in range(options.pairs):
        for mode in modes if number % 2 == 0 else modes[::-1]:
            with tempfile.TemporaryDirectory() as folder, console.status(f"{mode}, round {number + 1}"):
                rounds[mode].append(
                    trial(mode, options.workload, options.train_steps, Path(folder), None, rules=learned)
                )
    console.print(slowdowns(options.workload, rounds))
    return rounds


if __name__ == "__main__":
    main()
