"""``traincheck mcp``: a server for coding agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli._help import examples


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="mcp", epilog=examples("traincheck mcp", "traincheck mcp --root ~/project"))(mcp)


def mcp(
    root: Annotated[
        Path,
        typer.Option(
            "--root",
            metavar="DIR",
            help=r"Folder the tools read and write in.  \[default: this one]",
            show_default=False,
        ),
    ] = Path(),
) -> None:
    """Serve collect, infer, check, findings, trace and doctor to agents over MCP (standard input and output).

    Paths outside of the root are refused; commands that are run are not confined.
    Needs the extra: pip install 'traincheck\\[mcp]'.
    """
    from traincheck.agents.root import Root
    from traincheck.errors import TraincheckError

    place = Root.of(root.expanduser())
    try:
        from traincheck.agents.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise TraincheckError(
            f"the server needs the package mcp, version 2: {error}", "pip install 'traincheck[mcp]'"
        ) from error
    raise typer.Exit(serve(place))
