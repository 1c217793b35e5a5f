"""``traincheck trace import``: a trace of TrainCheck 0.x."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="import", epilog=examples("traincheck trace import old_trace/ -o runs/old"))(import_)


def import_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a 0.x trace.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="RUN",
            help=r"Folder of the new trace.  \[default: DIR-imported]",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Convert a trace of TrainCheck 0.x, so that it can be shown, learned from and checked."""
    from traincheck.cli._paths import TRACE_FILES, beside, free_folder, fresh_folder, input_folder

    input_folder(folder, "a trace of TrainCheck 0.x")
    target = output or beside(folder, "-imported")

    from traincheck.errors import TraceError
    from traincheck.trace.importer import import_trace, old_files, read

    if not old_files(folder):
        raise TraceError(
            f"{folder} holds no trace of TrainCheck 0.x: expected trace_*.log or proxy_log.json (plain or .gz)",
            "the folder that 0.x was given as its output",
        )
    free_folder(target, force, TRACE_FILES)
    with _output.working("importing"):
        if target.is_dir():  # an earlier import goes when it is known that there will be another
            read(folder)
        fresh_folder(target, force, TRACE_FILES)
        trace = import_trace(folder, target)
    if as_json:
        _output.print_json(trace.summary().to_json())
        return
    rows = ", ".join(f"{len(frame):,} {name}" for name, frame in trace.frames.items() if len(frame))
    _output.say(f"{folder} -> {target}: {rows}")
    for lack in trace.lacks:
        _output.note(f"note: {lack.text}")
