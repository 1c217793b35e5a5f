"""``traincheck invariants diff``: how two invariant files differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="diff", epilog=examples("traincheck invariants diff yesterday.jsonl today.jsonl"))(diff)


def diff(
    first: Annotated[Path, typer.Argument(metavar="A", help="Invariant file.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    ignore_support: Annotated[
        bool, typer.Option("--ignore-support", help="Compare rules and preconditions only, not how often they applied.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell which invariants only one file has, and which have another precondition or support.

    Ends with 0 when they are the same, 3 when they differ. Order and wording do not count.
    """
    from traincheck.cli._paths import input_file

    input_file(first, "an invariant file")
    input_file(second, "an invariant file")

    from traincheck.errors import VIOLATIONS
    from traincheck.invariants import load_invariants
    from traincheck.manage.diff import diff as compare

    found = compare(load_invariants(first), load_invariants(second), ignore_support=ignore_support)
    if as_json:
        _output.print_json({**found.to_json(), "files": [str(first), str(second)]})
    else:
        _output.say(found.text())
    if not found.same:
        raise typer.Exit(VIOLATIONS)
