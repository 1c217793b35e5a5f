"""``traincheck doctor`` tries things and says what it found."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from traincheck import doctor
from traincheck.cli import app


@pytest.fixture
def quick(monkeypatch):
    """Without the child process, which has tests of its own here."""
    monkeypatch.setattr(doctor, "_collecting", lambda: "not tried")


def test_json(traincheck):
    result = traincheck("doctor", "--json")
    report = json.loads(result.stdout)
    assert result.returncode == 0
    assert report["schema"] == 1
    assert report["usable"] is True
    parts = {part["name"]: part for part in report["parts"]}
    assert parts["compiled core"]["state"] == "works"
    assert "recorded a call" in parts["compiled core"]["detail"]
    assert parts["torch"]["state"] == "works"
    assert parts["collecting"]["detail"].startswith("2 steps of a child process")
    assert {part["state"] for part in report["parts"]} <= {"works", "absent", "broken"}
    assert result.stderr == ""


def test_text(quick):
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "TrainCheck works here." in result.stdout
    assert "\x1b" not in result.stdout + result.stderr


def test_an_essential_part_that_fails_is_named(quick, monkeypatch):
    def broken() -> str:
        raise OSError("undefined symbol: nothing")

    monkeypatch.setattr(doctor, "_core", broken)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "OSError: undefined symbol: nothing" in result.stdout
    assert "TrainCheck cannot work here: compiled core." in result.stdout


def test_a_missing_torch_is_said_and_is_no_failure(monkeypatch):
    real = doctor.import_module

    def without_torch(name: str):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name)

    monkeypatch.setattr(doctor, "import_module", without_torch)
    report = doctor.examine()
    parts = {part.name: part for part in report.parts}
    assert report.usable
    assert parts["torch"].state == "absent"
    assert "not collected" in parts["torch"].detail
    assert parts["collecting"] == doctor.Part("collecting", "absent", "needs torch")
    assert parts["CUDA"] == doctor.Part("CUDA", "absent", "needs torch")


def test_collecting_that_does_not_reach_children_is_told(monkeypatch):
    from traincheck.collect import activation

    monkeypatch.setattr(activation, "environment", lambda run, base: base)
    report = doctor.examine()
    part = next(part for part in report.parts if part.name == "collecting")
    assert part.state == "broken"
    assert "the child process was not watched" in part.detail
    assert not report.usable


@pytest.mark.parametrize("broken", ["polars", "pydantic"])
def test_a_broken_dependency_is_told_apart_from_a_missing_one(quick, monkeypatch, broken):
    real = doctor.import_module

    def importing(name: str):
        if name == broken:
            raise ImportError("its own library is missing")
        return real(name)

    monkeypatch.setattr(doctor, "import_module", importing)
    part = next(part for part in doctor.examine().parts if part.name == broken)
    assert part.state == "broken"
    assert part.detail == "ImportError: its own library is missing"
