"""``traincheck infer``: learn invariants from healthy runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json, Runs


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="infer",
        epilog=examples(
            "traincheck infer runs/good -o good.jsonl",
            "traincheck infer runs/good runs/other-seed -o good.jsonl --json",
        ),
    )(infer)


def infer(
    runs: Runs,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=r"Invariant file to write.  \[default: <first run>.invariants.jsonl]",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Learn from healthy runs what holds in all of them."""
    from traincheck.cli import _output
    from traincheck.cli._paths import beside, fresh_file, input_folder

    for run in runs:
        input_folder(run, "a trace")
    target = fresh_file(output or beside(runs[0], ".invariants.jsonl"), force)

    from traincheck.infer import infer as learn
    from traincheck.invariants import save_invariants
    from traincheck.trace import open_trace

    with _output.working("reading"):
        traces = [open_trace(run) for run in runs]
    with _output.working("learning"):
        invariants = learn(traces)
    save_invariants(invariants, target)

    counts: dict[str, int] = {}
    for invariant in invariants:
        counts[invariant.relation] = counts.get(invariant.relation, 0) + 1
    if as_json:
        _output.print_json(
            {
                "schema": 1,
                "runs": [str(run) for run in runs],
                "output": str(target),
                "total": len(invariants),
                "relations": dict(sorted(counts.items())),
                "lacks": {str(run): list(trace.lacks) for run, trace in zip(runs, traces, strict=True) if trace.lacks},
            }
        )
        return
    for run, trace in zip(runs, traces, strict=True):
        for lack in trace.lacks:
            _output.note(f"note: {run}: {lack}")
    _output.say(f"{len(invariants)} invariants from {len(runs)} run{'s' if len(runs) > 1 else ''} -> {target}")
    for relation, count in sorted(counts.items()):
        _output.say(f"  {count:>6}  {relation}")
