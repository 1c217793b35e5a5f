"""``traincheck trace show``: what a trace holds and what it lacks."""

from __future__ import annotations

import typer

from traincheck.cli._help import examples
from traincheck.cli._options import Json, Run


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="show", epilog=examples("traincheck trace show runs/good", "traincheck trace show runs/good --json")
    )(show)


def show(run: Run, as_json: Json = False) -> None:
    """Show a trace: the command, each process and how it ended, counts by function and step, state, gaps.

    Works on the trace of a run that is still going on, and says where it ends.
    """
    from traincheck.cli import _output
    from traincheck.cli._paths import input_folder

    input_folder(run, "a trace")

    from traincheck.trace import open_trace
    from traincheck.trace.summary import summarize

    with _output.working("reading"):
        summary = summarize(open_trace(run))
    if as_json:
        _output.print_json(summary.as_dict())
    else:
        _output.say(summary.text())
