"""``traincheck check``: hold a run against invariants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Check a run against invariants and say what broke.

    Ends with 0 when nothing was violated, 3 when something was, 2 on bad input, 1 when TrainCheck itself failed.
    """
    raise NotImplementedError
