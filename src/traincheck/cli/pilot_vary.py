"""``traincheck pilot vary``: a variant of a case that nobody has published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="vary",
        epilog=examples(
            "traincheck pilot vary pilots/cases/token-average-ddp -o out/cases/mine",
            "traincheck pilot vary pilots/cases/token-average-ddp -o out/cases/mine --seed 4711 --json",
        ),
    )(vary)


def vary(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="Folder of the case.", show_default=False)],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="DIR", help="Folder of the variant; a fresh one.", show_default=False),
    ],
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="What is drawn; keep it to yourself.", show_default="a new one")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a case with the same failure under other names, sizes and seeds, as its [variation] allows.

    A shipped case may be in what a model was trained on. The variant is a case of its own: qualify it, then plan with
    it. What it was made from, the seed too, is in its private/variant.json.
    """
    import json
    import secrets

    from traincheck.cli._paths import fresh_folder, input_folder
    from traincheck.pilot.cases import CaseFolder
    from traincheck.pilot.varying import vary as work

    input_folder(case, "a case")
    fresh_folder(output, False, ())
    made = work(CaseFolder(case), output, secrets.randbits(63) if seed is None else seed)
    if as_json:
        told = json.loads((made.private / "variant.json").read_text(encoding="utf-8"))
        _output.print_json({"schema": 1, "case": made.case.name, "folder": str(output), **told})
    else:
        _output.say(f"{made.case.name}: {output}")
        _output.note(f"next: traincheck pilot qualify {output} -o DIR")
