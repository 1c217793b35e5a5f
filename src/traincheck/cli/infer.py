"""``traincheck infer``: learn invariants from healthy runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json, Runs


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="infer",
        epilog=examples(
            "traincheck infer runs/good -o good.jsonl",
            "traincheck infer runs/good runs/other-seed -o good.jsonl --json",
            "traincheck infer runs/good --explain AdamW.step",
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
    relation: Annotated[
        list[str] | None,
        typer.Option("--relation", metavar="NAME", help="Learn only this relation. Repeatable.", show_default=False),
    ] = None,
    no_relation: Annotated[
        list[str] | None,
        typer.Option("--no-relation", metavar="NAME", help="Do not learn this one. Repeatable.", show_default=False),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, metavar="N", help="Processes to learn with; the result is the same.")
    ] = 1,
    subject: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="NAME|ID",
            help="Say why there are invariants about this function, variable, relation or id, with examples, and why "
            "candidates were dropped. Writes a file only with -o.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Learn from healthy runs what holds in all of them."""
    from traincheck.cli._paths import beside, fresh_file, input_folder

    for run in runs:
        input_folder(run, "a trace")
    target = None
    if output is not None or subject is None:
        target = fresh_file(output or beside(runs[0], ".invariants.jsonl"), force)

    from traincheck.infer import infer as learn
    from traincheck.trace import open_trace

    with _output.progress("reading") as say:
        traces = [open_trace(run) for run in runs]
        learned = learn(traces, relations=relation, without=no_relation or (), jobs=jobs, progress=say)
        if target is not None:
            learned.save(target)
    if subject is not None:
        from traincheck.cli._explain import show

        show(learned, traces, subject, as_json)
        return

    counts = Counter(invariant.relation for invariant in learned)
    if as_json:
        _output.print_json(
            {
                "schema": 1,
                "runs": [str(run) for run in runs],
                "output": str(target),
                "total": len(learned),
                "relations": dict(sorted(counts.items())),
                "rejected": len(learned.rejected),
                "lacks": {
                    str(run): [lack.text for lack in trace.lacks] for run, trace in zip(runs, traces, strict=True)
                },
            }
        )
        return
    for run, trace in zip(runs, traces, strict=True):
        for lack in trace.lacks:
            _output.note(f"note: {run}: {lack.text}")
    _output.say(f"{len(learned):,} invariants from {len(runs)} run{'s' if len(runs) > 1 else ''} -> {target}")
    for name, count in sorted(counts.items()):
        _output.say(f"{count:>7,} {name}")
    if not len(learned):
        _output.note(_nothing([len(trace.steps) for trace in traces]))
    if learned.rejected:
        _output.say(f"{len(learned.rejected):>7,} candidates rejected, with reasons in {target}.rejected")


def _nothing(steps: Sequence[int]) -> str:
    """What a person should know who learned nothing."""
    seen = f"{', '.join(map(str, steps))} training step{'' if list(steps) == [1] else 's'}"
    few = "; take runs of at least 3 steps" if min(steps) < _FEW else ""
    return f"warning: nothing was learned: a rule must be seen in at least 2 or 3 training steps, found {seen}{few}"


_FEW = 3
