"""Command lines as tools take them, and errors as they come back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from traincheck.agents import commands
from traincheck.errors import BAD_INPUT, OWN_FAILURE, TraincheckError


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --lr 0.1", ["python", "train.py", "--lr", "0.1"]),
        ("python 'my train.py'", ["python", "my train.py"]),
        ("python train.py --lr=0.1", ["python", "train.py", "--lr=0.1"]),
        ("A=1 python train.py", ["sh", "-c", "A=1 python train.py"]),
        ("python a.py && python b.py", ["sh", "-c", "python a.py && python b.py"]),
        ("python a.py > log 2>&1", ["sh", "-c", "python a.py > log 2>&1"]),
        ("python $SCRIPT", ["sh", "-c", "python $SCRIPT"]),
    ],
)
def test_words(command, expected):
    assert commands.words(command) == expected


@pytest.mark.parametrize("command", ["", "   ", "python 'train.py"])
def test_no_command(command):
    with pytest.raises(TraincheckError) as caught:
        commands.words(command)
    assert caught.value.hint


def test_python_is_the_one_that_serves(monkeypatch):
    monkeypatch.setenv("PATH", os.defpath)
    found = subprocess.run(
        ["sh", "-c", "command -v python"], env=commands.environment(), capture_output=True, text=True, check=True
    )
    assert Path(found.stdout.strip()).parent == Path(sys.executable).parent


def test_errors_keep_message_hint_and_code():
    said = "note: something\n\x1b[1;31merror:\x1b[0m expected a trace, found nothing\ntry: traincheck collect\n"
    error = commands.failure(said, 2)
    assert (error.message, error.hint) == ("expected a trace, found nothing", "traincheck collect")
    assert error.exit_code == BAD_INPUT


def test_a_crash_is_told_as_ours():
    error = commands.failure("Traceback …\nboom", 134)
    assert "ended with 134" in error.message
    assert "boom" in error.message
    assert error.exit_code == OWN_FAILURE
