"""``traincheck pilot replay``: run a published source again."""

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
        name="replay",
        epilog=examples(
            "traincheck pilot replay out/tiny 9a10c0cde83c -o out/again",
            "traincheck pilot replay out/tiny 9a10c0cde83c --scenario ragged -o out/again --json",
        ),
    )(replay)


def replay(
    pilot: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the pilot.", show_default=False)],
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Hash of a source map, or its beginning.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of the replays.", show_default=False)
    ],
    scenario: Annotated[
        list[str] | None,
        typer.Option("--scenario", metavar="NAME", help="Only this scenario. Repeatable.", show_default=False),
    ] = None,
    case: Annotated[
        str | None,
        typer.Option("--case", metavar="NAME", help="Case of a source that no trial submitted.", show_default=False),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Run a source of a pilot again and judge it as grading does; the pilot's folder is left as it is.

    Ends with 0 when it is correct in every scenario that was run, 3 when it is not, 2 when there is no such source.
    """
    import sys

    from traincheck.cli._paths import fresh_folder, input_folder
    from traincheck.errors import VIOLATIONS
    from traincheck.pilot.grading.again import replay_again

    input_folder(pilot, "a pilot's folder")
    fresh_folder(output, force, ("device.jsonl", "store", "oracles", "[0-9a-f]*"))
    with _output.working("replaying") as spin:

        def say(what: str) -> None:
            spin(what)
            if not sys.stderr.isatty():
                _output.note(what)

        found = replay_again(pilot, source, output, case=case, scenarios=tuple(scenario or ()), say=say)
    if as_json:
        _output.print_json(
            {
                "case": found.case,
                "source": found.source,
                "replays": {name: one.model_dump(mode="json") for name, one in found.replays.items()},
                "graded_before": found.before,
            }
        )
    else:
        _output.table(
            ("scenario", "verdict", "graded before", "reason"),
            [(name, one.verdict, found.before.get(name), one.reason) for name, one in found.replays.items()],
        )
        _output.say(f"source {found.source} of case {found.case}, replays in {output}")
    raise typer.Exit(0 if all(one.verdict == "correct" for one in found.replays.values()) else VIOLATIONS)
