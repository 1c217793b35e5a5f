"""``traincheck manual``: how to use this, on one page."""

from __future__ import annotations

from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="manual", epilog=examples("traincheck manual", "traincheck manual --agent"))(manual)


def manual(
    agent: Annotated[bool, typer.Option("--agent", help="The page for coding agents: all they need.")] = False,
    as_json: Json = False,
) -> None:
    """Say what to do in which order, and where more is written."""
    from traincheck.agents.manual import for_agents, for_people

    text = for_agents() if agent else for_people()
    if as_json:
        _output.print_json({"schema": 1, "for": "agents" if agent else "people", "text": text})
    else:
        _output.say(text.rstrip("\n"))
