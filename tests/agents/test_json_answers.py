"""Every command answers programs too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from traincheck.cli import app

EXCEPTIONS = {
    "collect": "its standard output is the program's; RUN/manifest.json and `trace show RUN --json` have the facts",
    "mcp": "its standard output is the protocol's, which is JSON",
}


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(words), command
        return
    for name, one in below.items():
        yield from leaves(one, (*words, name))


ALL = dict(leaves(typer.main.get_command(app)))


def test_the_walk_finds_the_commands():
    assert {"check", "collect", "infer", "doctor", "manual", "mcp", "trace show", "invariants suppress"} <= ALL.keys()
    assert EXCEPTIONS.keys() <= ALL.keys()


@pytest.mark.parametrize("name", sorted(ALL))
def test_it_has_json_or_a_reason(name):
    options = {option for parameter in ALL[name].params for option in parameter.opts}
    assert ("--json" in options) != (name in EXCEPTIONS)


@pytest.mark.parametrize("name", sorted(set(ALL) - set(EXCEPTIONS)))
def test_its_answer_is_described(name):
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
    assert f"`{name}`" in page or f"`{name.split()[0]} …`" in page


@pytest.mark.parametrize("name", sorted(EXCEPTIONS))
def test_exceptions_are_explained(name):
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
    assert f"`{name}`" in page
