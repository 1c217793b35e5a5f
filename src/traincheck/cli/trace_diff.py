"""``traincheck trace diff``: where two runs part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
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
    from traincheck.cli._paths import input_folder

    input_folder(first, "a trace")
    input_folder(second, "a trace")

    from traincheck.errors import VIOLATIONS
    from traincheck.trace import open_trace
    from traincheck.trace.diff import diff as compare

    with _output.working("comparing"):
        found = compare(open_trace(first), open_trace(second))
    if as_json:
        _output.print_json(found.to_json())
    else:
        _output.say(found.text())
    if not found.same:
        raise typer.Exit(VIOLATIONS)
