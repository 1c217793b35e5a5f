"""``traincheck pilot qualify``: show a case's fault and fix, and that the grader tells right from wrong on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="qualify",
        epilog=examples(
            "traincheck pilot qualify pilots/cases/tiny-accumulation -o out/tiny-accumulation",
            "traincheck pilot qualify pilots/cases/tiny-accumulation -o out/tiny-accumulation --resume --json",
        ),
    )(qualify)


def qualify(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="Folder of the case.", show_default=False)],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of the qualification.", show_default=False)
    ],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted qualification; replays that are done are kept.")
    ] = False,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Run the initial source, right programs, other good repairs and near misses of a case, before any trial.

    Ends with 0 when the case is qualified, 3 when a check fails (it is written as failed), 2 on a case that is
    incomplete. Device time goes to a ledger of its own.
    """
    import sys

    from traincheck.cli._paths import fresh_folder, input_folder
    from traincheck.errors import VIOLATIONS
    from traincheck.pilot.grading.qualify import FILES
    from traincheck.pilot.grading.qualify import qualify as work

    input_folder(case, "a case")
    if not resume:
        fresh_folder(output, force, FILES)
    with _output.working("qualifying") as spin:

        def say(what: str) -> None:
            spin(what)
            if not sys.stderr.isatty():
                _output.note(what)

        try:
            found = work(case, output, say=say)
        except KeyboardInterrupt:
            _output.note(f"replays that are done are kept in {output}; --resume goes on")
            raise
    if as_json:
        _output.print_json(found.model_dump(mode="json", by_alias=True))
    else:
        failed = [one for one in found.checks if not one.holds]
        _output.table(
            ("source", "scenario", "verdict", "what differs first"),
            [
                (source, scenario, one.verdict, one.reason if one.verdict != "correct" else "")
                for source, replays in found.replays.items()
                for scenario, one in replays.items()
            ],
        )
        for one in failed:
            _output.say(f"failed: {one.name}: {one.wanted} was wanted, found {one.found}")
        _output.say(
            f"{found.case}: {'qualified' if found.valid else 'not qualified'}, "
            f"{len(found.checks) - len(failed)} of {len(found.checks)} checks hold, "
            f"{found.device_seconds:.1f} device-seconds"
        )
        _output.say(f"qualification: {output / 'qualification.md'}")
    raise typer.Exit(0 if found.valid else VIOLATIONS)
