"""Every command answers programs too."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.agents.agent_support import environment
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


@pytest.mark.parametrize(
    "words",
    [
        ("check", "none", "-i", "none"),
        ("infer", "none"),
        ("trace", "show", "none"),
        ("trace", "diff", "none", "none"),
        ("trace", "compact", "none"),
        ("trace", "import", "none"),
        ("invariants", "show", "none"),
        ("invariants", "diff", "none", "none"),
        ("overhead", "report", "none"),
    ],
    ids=" ".join,
)
def test_an_error_leaves_standard_output_empty(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "error: expected" in result.stderr
    assert "try: " in result.stderr


@pytest.mark.slow
def test_every_field_of_an_answer_is_on_the_page(project):
    """Real answers of real commands: their fields are those that docs/agents.md names for the command."""
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text().split("## The MCP server")[0]
    rows = {line.split("|")[1].strip(" `"): line for line in page.splitlines() if line.startswith("| `")}
    _run(project, "collect -o good -- python train.py")
    _run(project, "collect -o bad -- python suspect.py")
    for name, arguments, code in (
        ("infer", "infer good -o good.jsonl", 0),
        ("check", "check bad -i good.jsonl", 3),
        ("infer --explain", "infer good --explain SGD.step", 0),
        ("doctor", "doctor", 0),
        ("manual", "manual", 0),
        ("trace show", "trace show good", 0),
        ("trace diff", "trace diff good bad", 3),
        ("invariants show", "invariants show good.jsonl", 0),
        ("invariants filter", "invariants filter good.jsonl --not-index 0 -o fewer.jsonl", 0),
        ("invariants merge", "invariants merge good.jsonl fewer.jsonl -o both.jsonl", 0),
        ("invariants diff", "invariants diff good.jsonl fewer.jsonl", 3),
        ("invariants suppress", "invariants suppress good.jsonl 0 --reason known", 0),
        ("trace compact", "trace compact good", 0),
    ):
        told = json.loads(_run(project, f"{arguments} --json", code))
        named = set(re.findall(r"`([a-z_]+)`", rows[name]))
        assert told.pop("schema") == 1
        assert told.keys() <= named, f"{name}: {sorted(told.keys() - named)} not on the page"
    (finding, *_) = json.loads(_run(project, "check bad -i good.jsonl --no-suppressions --json", 3))["findings"]
    assert finding.keys() <= set(re.findall(r"`([a-z_]+)`", rows["check"]))


def _run(folder: Path, arguments: str, code: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "traincheck", *shlex.split(arguments)],
        cwd=folder,
        env={**environment(), "PATH": f"{Path(sys.executable).parent}:{environment()['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ran.returncode == code, f"$ traincheck {arguments}\n{ran.stdout[-800:]}\n{ran.stderr[-800:]}"
    return ran.stdout
