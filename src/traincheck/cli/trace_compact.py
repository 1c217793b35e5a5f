"""``traincheck trace compact``: a finished trace as Parquet."""

from __future__ import annotations

import typer

from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json, Run


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="compact", epilog=examples("traincheck trace compact runs/good"))(compact)


def compact(run: Run, as_json: Json = False, force: Force = False) -> None:
    """Write the columns of a finished trace as Parquet (zstd) into RUN/compact, for fast reading and other tools."""
    raise NotImplementedError
