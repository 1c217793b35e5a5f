"""``traincheck pilot run``: the trials of a frozen plan."""

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
        name="run",
        epilog=examples(
            "traincheck pilot run plan.json -o out/pilot",
            "traincheck pilot run plan.json -o out/pilot --resume",
            "traincheck pilot run plan.json -o out/pilot --only t-bcdfghjk",
            "traincheck pilot run plan.json -o out/pilot --tools agent-cli",
        ),
    )(run)


def run(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="Frozen plan (JSON).", show_default=False)],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of the pilot.", show_default=False)
    ],
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted pilot; trials that began are not run again.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TRIAL", help="Only this trial. Repeatable.", show_default=False),
    ] = None,
    tools: Annotated[
        list[Path] | None,
        typer.Option(
            "--tools",
            metavar="FOLDER",
            help="Folder whose bin/ or node_modules/.bin/ solvers need besides, e.g. an agent's CLI. Repeatable.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the trials of a plan in their order, each in a fresh process, home and workspace.

    Refuses when a case, the package, the grader or a version is not as frozen.
    Ends with 0 when every trial was closed by itself, 3 when one was cut off, failed or had a leak.
    """
    from traincheck.cli._paths import input_file, input_folder
    from traincheck.errors import VIOLATIONS
    from traincheck.pilot import running

    input_file(plan, "a frozen plan")
    folders = [input_folder(folder, "a folder with programs") for folder in tools or ()]
    pilot = running.prepare(plan, output, resume=resume, only=only or (), tools=folders)
    loud = running.warning(pilot.plan)
    if loud:
        _output.note(f"warning: {loud}")
    with _output.progress("trials") as bar:
        pilot.say = bar
        summary = pilot.run(only or ())
    rows = summary["trials"]
    bad = [row for row in rows if row["closed"] in (None, "interrupted") or row["leaks"] or row["failure"]]
    if as_json:
        _output.print_json(summary)
    else:
        _output.table(
            ("trial", "case", "arm", "solver", "ended", ">submissions", "sandbox", ">leaks"),
            [
                (row["trial"], row["case"], row["arm"], row["solver"], row["closed"], row["submissions"],
                 row["sandbox"], len(row["leaks"]))
                for row in rows
            ],
        )  # fmt: skip
        for row in rows:
            for leak in row["leaks"]:
                _output.say(f"{row['trial']}: leak: {leak}")
            if row["failure"]:
                _output.say(f"{row['trial']}: its process failed: {row['failure']}")
        _output.say(f"pilot: {output}; next: traincheck pilot grade {output}")
    if bad:
        raise typer.Exit(VIOLATIONS)
