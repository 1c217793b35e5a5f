"""The manual for agents: it fits, and every command in it works as it is written."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import bpe_openai
import pytest
import typer
from typer.testing import CliRunner

from tests.agents.agent_support import environment
from traincheck.agents.manual import DOCUMENTATION, MOST_TOKENS, for_agents
from traincheck.cli import app

BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)
CODES = {"traincheck check runs/bad": 3, "traincheck trace diff runs/good runs/bad": 3}
"""Commands of the manual that end with another code than 0."""


def commands() -> list[str]:
    return [line for block in BLOCK.findall(for_agents()) for line in block.splitlines() if line.strip()]


def test_there_are_commands_for_both_kinds_of_program():
    found = commands()
    assert any("-- python train.py" in line for line in found)
    assert any("-- torchrun " in line for line in found)
    assert [line.split()[1] for line in found[:4]] == ["collect", "infer", "collect", "check"]


@pytest.mark.parametrize("vocabulary", ["cl100k_base", "o200k_base"])
def test_it_fits(vocabulary):
    """Two public vocabularies of 100,000 and 200,000 tokens; a quarter is left for those that split more finely."""
    tokens = len(bpe_openai.get_encoding(vocabulary).encode(for_agents()))
    assert tokens * 1.25 <= MOST_TOKENS


def test_it_would_fit_were_it_split_as_finely_as_prose_of_other_scripts():
    """Without any vocabulary: at three characters a token (both above have 3.9 here) it fits as well."""
    assert len(for_agents()) / 3 <= MOST_TOKENS


def test_every_option_that_is_named_exists():
    root = typer.main.get_command(app)
    for line in re.findall(r"`?(traincheck [^`\n]*)", for_agents()):
        words = shlex.split(line.split(" -- ")[0])[1:]
        command, known = root, set()
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {opt for parameter in command.params for opt in (*parameter.opts, *parameter.secondary_opts)}
        given = {word.split("=")[0] for word in words if word.startswith("-")}
        assert given <= known | {"--help"}, line


def test_options_of_the_cost_paragraph_exist():
    collect = typer.main.get_command(app).commands["collect"]
    known = {opt for parameter in collect.params for opt in parameter.opts}
    assert {"-i", "--every", "--warmup", "--scope", "--force", "-o"} <= known


def test_it_is_printed_as_it_is():
    result = CliRunner().invoke(app, ["manual", "--agent"])
    assert result.exit_code == 0
    assert result.stdout.strip() == for_agents().strip()
    told = json.loads(CliRunner().invoke(app, ["manual", "--agent", "--json"]).stdout)
    assert told == {"schema": 1, "for": "agents", "text": for_agents()}


def test_people_get_an_overview_with_pages_that_exist():
    result = CliRunner().invoke(app, ["manual"])
    assert result.exit_code == 0
    assert "traincheck manual --agent" in result.stdout
    root = Path(__file__).parents[2]
    for page, _ in DOCUMENTATION:
        assert page in result.stdout
        assert (root / page).is_file()
    assert len(result.stdout) < len(for_agents()) / 2


@pytest.mark.slow
def test_its_commands_work_as_written(project):
    for line in commands():
        ran = subprocess.run(
            ["bash", "-c", line],
            cwd=project,
            env={**environment(), "PATH": f"{Path(sys.executable).parent}:{environment()['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )
        expected = next((code for start, code in CODES.items() if line.startswith(start)), 0)
        assert ran.returncode == expected, f"$ {line}\n{ran.stdout[-1500:]}\n{ran.stderr[-1500:]}"
        if line.startswith("python -c"):
            assert re.search(r"^1 \S*suspect\.py:\d+ in \S+ .*did not change", ran.stdout), ran.stdout
        if "torchrun" in line:
            assert "2 processes" in ran.stderr
        if "--explain" in line:
            assert " 0 kept" not in ran.stdout
            assert "SGD.step" in ran.stdout
    findings = json.loads((project / "runs/bad-check/findings.json").read_text())["findings"]
    for field in (
        "title",
        "first_step",
        "ranks",
        "tensors",
        "apis",
        "location",
        "expected",
        "observed",
        "meaning",
        "next",
    ):
        assert field in findings[0]
        assert f"`{field}`" in for_agents()
    results = json.loads((project / "runs/bad-check/results.json").read_text())
    assert results["summary"]["violated"] > 0
    assert results["outcomes"][0].keys() >= {"outcome", "evidence"}
