"""``traincheck pilot report``: a pilot as Markdown, JSON and one HTML page, and its transcripts as a static site."""

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
            "traincheck pilot report out/tiny",
            "traincheck pilot report out/tiny -o docs/pilots/tiny --json",
            "traincheck pilot report out/tiny --qualification out/qualified-tiny --bundle site",
        ),
    )(report)


def report(
    pilot: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a graded pilot.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="OUT", help=r"Folder for the report.  \[default: DIR/report]", show_default=False
        ),
    ] = None,
    qualification: Annotated[
        list[Path] | None,
        typer.Option(
            "--qualification",
            metavar="DIR",
            help="Folder of a case's qualification. Repeatable.",
            show_default=False,
        ),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", metavar="SITE", help="Also write all transcripts as a static site.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Write report.md, report.json and report.html of a pilot: tables, comparisons, and what cannot be concluded.

    The same pilot gives the same bytes. A report that can't be made is kept as such, and later ones list it.
    The site holds transcripts only, no verdicts; it is not written when anything private of a case is in it.
    """
    from traincheck.cli._paths import fresh_file, fresh_folder, input_file
    from traincheck.pilot.layout import Layout
    from traincheck.pilot.report import FILES, bundles, tables, writing

    layout = Layout(pilot)
    input_file(layout.plan, "the plan of a pilot")
    target = layout.report
    if output is not None:  # in the pilot's own folder a report is only ever replaced by a newer one
        target = output
        for name in FILES:
            fresh_file(target / name, force)
    if bundle is not None:
        fresh_folder(bundle, force, bundles.FILES)
    found = writing.write(layout, target, tuple(qualification or ()))
    if bundle is not None:
        bundles.write(layout, bundle)
    if as_json:
        _output.print_json(found)
        return
    for text in found["cannot_conclude"]:
        _output.say(f"- {text}")
    held = tables.comparisons(found)
    _output.table(held.headers, held.rows)
    _output.say(f"report: {', '.join(str(target / name) for name in FILES)}")
    if bundle is not None:
        _output.say(f"site: {bundle / 'index.html'}")
