"""Every command explains itself, quickly and without colours in a pipe."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import traincheck
from tests.cli.cli_support import COMMANDS, plain_environment
from traincheck.cli import app


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words) or "traincheck")
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_has_usage_and_examples(command, flag):
    result = CliRunner().invoke(app, [*command, flag], prog_name="traincheck")
    assert result.exit_code == 0
    assert result.stdout.startswith(" ") or result.stdout.startswith("Usage")
    assert "Usage: traincheck" in result.stdout
    assert "Examples:" in result.stdout
    assert "$ traincheck" in result.stdout
    assert "\x1b" not in result.stdout


def test_every_command_is_listed():
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert all(words[0] in listed for words in COMMANDS if words)


@pytest.mark.parametrize("arguments", [[], ["trace"]])
def test_no_arguments_show_the_help(arguments):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code in (0, 2)
    assert "Commands" in result.output
    assert "error:" not in result.output


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"traincheck {traincheck.__version__}\n"


def test_help_imports_nothing_heavy():
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from traincheck.cli import app\n"
        "for words in [[], ['collect'], ['check'], ['trace', 'show'], ['mcp']]:\n"
        "    assert CliRunner().invoke(app, [*words, '--help']).exit_code == 0\n"
        "print(sorted({'torch', 'polars', 'numpy', 'jinja2', 'sklearn', 'mcp'} & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], env=plain_environment(), capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr
