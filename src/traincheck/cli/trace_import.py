"""``traincheck trace import``: a trace of TrainCheck 0.x."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="import", epilog=examples("traincheck trace import old_trace/ -o runs/old"))(import_)


def import_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a 0.x trace.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="RUN",
            help=r"Folder of the new trace.  \[default: DIR-imported]",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Convert a trace of TrainCheck 0.x, so that it can be shown, learned from and checked."""
    raise NotImplementedError
