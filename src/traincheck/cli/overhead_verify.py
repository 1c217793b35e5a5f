"""``traincheck overhead verify``: compute a finished study again from its raw artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json

_MOST = 40


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="verify",
        epilog=examples("traincheck overhead verify out/digits", "traincheck overhead verify out/digits --quick"),
    )(verify)


def verify(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="Do not learn and check again.")] = False,
    as_json: Json = False,
) -> None:
    """Compute a finished study again from its raw artifacts, and name what does not hold.

    Hashes of all files, audits of all traces, times, pairs, outcomes, summary
    and reports; learning and checking are repeated. Ends with 0 when all
    holds, 3 when a piece is missing, changed, extra or inconsistent.
    """
    from traincheck.cli._paths import input_folder
    from traincheck.errors import VIOLATIONS
    from traincheck.overhead.verify import verify as look

    input_folder(study, "a study")
    with _output.progress("verifying") as say:
        found = look(study, quick, say)
    if as_json:
        _output.print_json(found.to_json())
    elif not found.faults:
        counts = ", ".join(f"{number} {name}" for name, number in found.counts.items())
        _output.say(f"{found.study}: everything holds ({counts})")
    else:
        _output.say(f"{found.study}: {len(found.faults)} faults; the first: {found.faults[0]}")
        for fault in found.faults[1:_MOST]:
            _output.say(f"  {fault}")
        if len(found.faults) > _MOST:
            _output.say(f"  … and {len(found.faults) - _MOST} more: --json has all")
    raise typer.Exit(VIOLATIONS if found.faults else 0)
