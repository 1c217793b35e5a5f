"""``traincheck check``: hold a run against invariants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json, Run


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="check",
        epilog=examples(
            "traincheck check runs/bad -i good.jsonl",
            "traincheck check runs/bad -i good.jsonl -o runs/bad-check",
            "traincheck check runs/bad -i good.jsonl --json",
            "traincheck check runs/bad -i good.jsonl --suppressions accepted.jsonl",
        ),
    )(check)


def check(
    run: Run,
    invariants: Annotated[
        list[Path],
        typer.Option("-i", "--invariants", metavar="FILE", help="Invariant file. Repeatable.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="Folder for report.html, results.json, …; without it nothing is written.",
            show_default=False,
        ),
    ] = None,
    suppressions: Annotated[
        list[Path] | None,
        typer.Option(
            "--suppressions",
            metavar="FILE",
            help="Violations to accept: `traincheck invariants suppress` writes it. Repeatable."
            r"  \[default: traincheck-suppressions.jsonl beside an invariant file, if there is one]",
            show_default=False,
        ),
    ] = None,
    no_suppressions: Annotated[
        bool, typer.Option("--no-suppressions", help="Accept nothing, whatever stands beside the invariant files.")
    ] = False,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Check a run against invariants and say what broke.

    Ends with 0 when nothing was violated, 3 when something was, 2 on bad input, 1 when TrainCheck itself failed.
    """
    from traincheck.cli._paths import free_folder, fresh_folder, input_file, input_folder

    input_folder(run, "a trace")
    files = [input_file(path, "an invariant file") for path in invariants]

    from traincheck.check import check as judge
    from traincheck.cli._suppressions import chosen, tell
    from traincheck.errors import TraincheckError
    from traincheck.report import FILES, terminal, write_all

    if output is not None:
        free_folder(output, force, FILES)
    accepted = chosen(files, suppressions or [], no_suppressions)
    unwritten = None
    with _output.working("checking"):
        result = judge(run, files, suppressions=accepted)
        if output is not None:
            try:
                write_all(result, fresh_folder(output, force, FILES))
            except (TraincheckError, OSError) as error:  # what was found is told all the same
                unwritten = error
    if accepted is not None:
        tell(accepted, [outcome.id for outcome in result.outcomes])
    if as_json:
        _output.print_json(result.to_json())
    else:
        terminal.render(result, _output.stdout())
        if output is not None and unwritten is None:
            _output.say(f"report: {output / 'report.html'}")
        elif output is None and result.findings:
            _output.say("report: none written; -o OUT writes report.html and more")
    if unwritten is not None:
        raise unwritten
    raise typer.Exit(result.exit_code)
