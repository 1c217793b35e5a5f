"""Names of outputs, and that nothing is ever overwritten unasked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from traincheck.cli._paths import (
    TRACE_FILES,
    beside,
    default_run,
    fresh_file,
    fresh_folder,
    input_file,
    input_folder,
)
from traincheck.errors import TraincheckError
from traincheck.manage.sets import read


@pytest.mark.parametrize(
    ("command", "stem"),
    [
        (["python", "examples/train.py", "--lr", "1"], "train"),
        (["python", "-m", "my.train", "x.py"], "my.train"),
        (["torchrun", "--nproc-per-node", "2", "a/fit.py"], "fit"),
        (["bash", "go.sh"], "go"),
        (["/usr/bin/mytrainer"], "mytrainer"),
    ],
)
def test_default_run_is_named_after_the_script(command, stem):
    run = default_run(command)
    assert run.parent == Path("runs")
    assert run.name.startswith(stem + "-")


def test_beside(tmp_path, monkeypatch):
    assert beside(Path("runs/good"), ".jsonl") == Path("runs/good.jsonl")
    monkeypatch.chdir(tmp_path)
    assert beside(Path("."), ".jsonl").name == f"{tmp_path.name}.jsonl"


def test_existing_file_is_kept(tmp_path):
    target = tmp_path / "set.jsonl"
    assert fresh_file(target, force=False) == target
    target.write_text("precious")
    with pytest.raises(TraincheckError, match="exists already"):
        fresh_file(target, force=False)
    assert fresh_file(target, force=True) == target
    assert target.read_text() == "precious"
    with pytest.raises(TraincheckError, match="it is a folder"):
        fresh_file(tmp_path, force=True)


def test_existing_folder_is_kept(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    assert fresh_folder(run, False, TRACE_FILES) == run
    (run / "manifest.json").write_text("{}")
    with pytest.raises(TraincheckError, match="exists already"):
        fresh_folder(run, False, TRACE_FILES)
    assert (run / "manifest.json").exists()
    fresh_folder(run, True, TRACE_FILES)
    assert not run.exists()


def test_force_never_removes_what_is_not_ours(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(TraincheckError, match="left alone"):
        fresh_folder(tmp_path, True, TRACE_FILES)
    assert (tmp_path / "thesis.tex").exists()


def test_inputs_are_looked_at_first(tmp_path):
    (tmp_path / "good").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(TraincheckError, match="nothing at") as caught:
        input_folder(tmp_path / "goood", "a trace")
    assert "good" in str(caught.value.hint)
    with pytest.raises(TraincheckError, match="is empty"):
        input_folder(tmp_path / "good", "a trace")
    with pytest.raises(TraincheckError, match="is a file"):
        input_folder(tmp_path / "file", "a trace")
    with pytest.raises(TraincheckError, match="is a folder"):
        input_file(tmp_path / "good", "an invariant file")
    with pytest.raises(TraincheckError, match="nothing at") as caught:
        input_file(tmp_path / "no" / "file", "an invariant file")
    assert "no folder" in str(caught.value.hint)


def test_a_pipe_is_waited_for_and_that_is_said(tmp_path, capsys):
    pipe = tmp_path / "rules.jsonl"
    os.mkfifo(pipe)
    assert input_file(pipe, "an invariant file") == pipe
    assert f"{pipe} is a pipe: waiting" in capsys.readouterr().err
    (tmp_path / "file").touch()
    input_file(tmp_path / "file", "an invariant file")
    assert capsys.readouterr().err == ""


@pytest.mark.timeout(20)
def test_a_pipe_that_would_be_read_twice_is_refused(tmp_path):
    pipe = tmp_path / "rules.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(TraincheckError, match="read twice"):
        read([pipe])
