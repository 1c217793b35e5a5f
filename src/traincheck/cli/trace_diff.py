"""``traincheck trace diff``: where two runs part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli._help import examples
from traincheck.cli._options import Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="diff", epilog=examples("traincheck trace diff runs/yesterday runs/today"))(diff)


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Folder of a run.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", help="Folder of another run.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Find the first step, call or tensor at which two runs part.

    Ends with 0 when they are the same, 3 when they differ.
    """
    raise NotImplementedError
