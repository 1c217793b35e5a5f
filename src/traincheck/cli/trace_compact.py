"""``traincheck trace compact``: a finished trace as Parquet."""

from __future__ import annotations

from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json, Run


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="compact",
        epilog=examples("traincheck trace compact runs/good", "traincheck trace compact runs/good --keep"),
    )(compact)


def compact(
    run: Run,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the event files that the Parquet files replace.")] = False,
    as_json: Json = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also compact what a killed run left; replace an existing compact form.")
    ] = False,
) -> None:
    """Turn a finished trace into Parquet (zstd) in RUN/compact: smaller, faster to read, open to other tools.

    The event files are removed after what was written has been read back and
    found equal.
    """
    from traincheck.cli._paths import input_folder

    input_folder(run, "a trace")

    from traincheck.trace.compact import compact as make_compact

    with _output.working("compacting"):
        done = make_compact(run, keep=keep, force=force)
    if as_json:
        _output.print_json({"schema": 1, **done.to_json()})
        return
    rows = ", ".join(f"{count:,} {name}" for name, count in done.rows.items())
    _output.say(f"{done.path}: {rows}")
    removed = f", {done.removed} files removed" if done.removed else ""
    _output.say(f"{done.bytes_before / 1e6:.1f} MB -> {done.bytes_after / 1e6:.1f} MB{removed}")
    if done.note:
        _output.note(f"note: {done.note}")
