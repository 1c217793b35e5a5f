"""``traincheck overhead report``: a finished study as Markdown, JSON and one HTML page."""

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
        name="report",
        epilog=examples(
            "traincheck overhead report out/digits",
            "traincheck overhead report out/titan -o docs/measurements/torchtitan-llama-debug",
        ),
    )(report)


def report(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a study.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="OUT", help=r"Folder for the report.  \[default: DIR]", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Write report.md, report.json and report.html of a study.

    Tables, plots, provenance and limitations; large files by path and hash only.
    The same study gives the same bytes.
    """
    from traincheck.cli._paths import fresh_file, input_folder
    from traincheck.overhead.report import FILES, tables, words, write
    from traincheck.overhead.report.values import dumps

    input_folder(study, "a study")
    target = study
    if output is not None:  # in the study's own folder a report is only ever replaced by the same
        target = output
        for name in FILES:
            fresh_file(target / name, force)
    found = write(study, target)
    if as_json:
        _output.say(dumps(found).rstrip("\n"))
        return
    _output.say(words.verdict(found))
    held = tables.budget_rows(found)
    _output.table(held.headers, held.rows)
    _output.say(f"report: {', '.join(str(target / name) for name in FILES)}")
