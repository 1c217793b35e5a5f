"""Errors become sentences and exit codes, in one place."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.cli.cli_support import plain_environment
from traincheck import doctor
from traincheck.cli import app
from traincheck.errors import TraincheckError
from traincheck.trace.build import TraceBuilder


def fail_with(monkeypatch, error: BaseException) -> None:
    def examine():
        raise error

    monkeypatch.setattr(doctor, "examine", examine)


def test_expected_errors_are_two_lines(monkeypatch):
    fail_with(monkeypatch, TraincheckError("there is no such thing", "another thing"))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 2
    assert result.stderr == "error: there is no such thing\ntry: another thing\n"
    assert result.stdout == ""


def test_text_of_an_error_is_never_markup(monkeypatch):
    fail_with(monkeypatch, TraincheckError("no [red]colour[/red] in args[0] :smile:"))
    assert CliRunner().invoke(app, ["doctor"]).stderr == "error: no [red]colour[/red] in args[0] :smile:\n"


def test_own_failures_are_one_line_and_a_hint(monkeypatch):
    fail_with(monkeypatch, ZeroDivisionError("by\nzero"))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: TrainCheck failed: ZeroDivisionError: by zero\ntry: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_the_traceback(monkeypatch, how):
    fail_with(monkeypatch, ZeroDivisionError("by zero"))
    arguments = ["--debug", "doctor"] if how == "option" else ["doctor"]
    result = CliRunner().invoke(app, arguments, env={"TRAINCHECK_DEBUG": "1"} if how == "environment" else {})
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EACCES, 2), (errno.ENOENT, 2), (errno.ENOTDIR, 2), (errno.ENOSPC, 1), (errno.EIO, 1)]
)
def test_files_that_cannot_be_used_are_named(monkeypatch, number, code):
    fail_with(monkeypatch, OSError(number, os.strerror(number), "/some/file"))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == code
    assert result.stderr.startswith(f"error: cannot use /some/file: {os.strerror(number)}\ntry: ")
    assert "Traceback" not in result.stderr


def test_interruption_is_130(monkeypatch):
    fail_with(monkeypatch, KeyboardInterrupt())
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bogus"], "no such command 'bogus'"),
        (["--bogus"], "no such option"),
        (["check", "run"], "missing option '-i' / '--invariants'"),
        (["collect"], "missing argument 'COMMAND"),
        (["collect", "--every", "0", "--", "true"], "invalid value for '--every'"),
        (["collect", "--scope", "some", "--", "true"], "invalid value for '--scope'"),
        (["collect", "--stage-only", "lunch", "--", "true"], "there is no stage 'lunch'"),
        (["infer"], "missing argument 'RUN"),
        (["trace", "diff", "one"], "missing argument 'B'"),
    ],
)
def test_wrong_usage(arguments, said):
    result = CliRunner().invoke(app, arguments, prog_name="traincheck")
    assert result.exit_code == 2
    assert result.stdout == ""
    error, hint = result.stderr.rstrip("\n").split("\n")
    assert error.lower().startswith(f"error: {said}".lower())
    assert hint.startswith("try: ")


def test_colours_only_on_a_terminal():
    pty = pytest.importorskip("pty")

    def on_terminal(**changes: str) -> bytes:
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "traincheck", "trace", "show", "/nowhere/at/all"]
        environment = plain_environment(TERM="xterm-256color", **changes)
        process = subprocess.Popen(command, stderr=slave, stdout=slave, stdin=slave, env=environment)
        os.close(slave)
        output = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:
                break
            if not piece:
                break
            output += piece
        os.close(master)
        assert process.wait(60) == 2
        return output

    assert b"\x1b[1;31m" in on_terminal()
    assert b"\x1b[1;31m" not in on_terminal(NO_COLOR="1")


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    TraceBuilder().write(tmp_path / "run")
    command = f"{sys.executable} -m traincheck trace show run --json; echo code $? >&2"
    process = subprocess.run(
        ["bash", "-c", f"({command}) | true"], cwd=tmp_path, env=plain_environment(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr == "code 0\n"
