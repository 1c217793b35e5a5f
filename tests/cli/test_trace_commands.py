"""``traincheck trace …`` on small traces made by hand, and on what is none."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from traincheck.cli import app
from traincheck.trace.build import TraceBuilder, digest

RUNNER = CliRunner()


def build(folder: Path, steps: int = 3, changed: int | None = None) -> Path:
    """A run of ``steps`` steps; from step ``changed`` on the update is another one."""
    builder = TraceBuilder()
    for step in range(1, steps + 1):
        builder.step(step)
        call = builder.begin("torch.optim.SGD.step")
        with builder.observe("torch.optim.SGD.step", "after", call):
            data = f"{step}{'!' if changed is not None and step >= changed else ''}"
            builder.state("model.weight", data=digest(data))
        builder.end()
    builder.write(folder)
    return folder


@pytest.fixture
def run(tmp_path):
    return build(tmp_path / "run")


def test_show_text(run):
    result = RUNNER.invoke(app, ["trace", "show", str(run)])
    assert result.exit_code == 0, result.stderr
    assert "Processes (1)" in result.stdout
    assert "torch.optim.SGD.step" in result.stdout
    assert not any(line != line.rstrip() for line in result.stdout.splitlines())


def test_show_says_what_it_leaves_out(run):
    result = RUNNER.invoke(app, ["trace", "show", str(run), "--top", "1"])
    assert "the first 1)" in result.stdout
    assert "the first" not in RUNNER.invoke(app, ["trace", "show", str(run), "--top", "0"]).stdout


def test_show_json_is_json_alone(traincheck, run):
    result = traincheck("trace", "show", run, "--json")
    assert result.returncode == 0
    assert result.stderr == ""
    summary = json.loads(result.stdout)
    assert summary["schema"] == 1
    assert [function["function"] for function in summary["functions"]] == ["torch.optim.SGD.step"]
    assert "\x1b" not in result.stdout


def test_compact_then_show_is_the_same(run, tmp_path):
    before = json.loads(RUNNER.invoke(app, ["trace", "show", str(run), "--json"]).stdout)
    result = RUNNER.invoke(app, ["trace", "compact", str(run), "--force", "--json"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["rows"]["calls"] == 3
    after = json.loads(RUNNER.invoke(app, ["trace", "show", str(run), "--json"]).stdout)
    assert (run / "compact" / "compact.json").exists()
    for key in ("calls", "captures", "states", "functions", "steps", "coverage"):
        assert after[key] == before[key]


def test_compact_twice_is_refused(run):
    assert RUNNER.invoke(app, ["trace", "compact", str(run), "--force"]).exit_code == 0
    again = RUNNER.invoke(app, ["trace", "compact", str(run)])
    assert again.exit_code == 2
    assert again.stderr.startswith("error: ")


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
def test_import(tmp_path, packed):
    old = tmp_path / "old"
    old.mkdir()
    lines = [
        {"type": "function_call (pre)", "func_call_id": "a", "function": "torch.relu", "process_id": 1,
         "thread_id": 1, "time": 1, "meta_vars": {"step": 0}, "args": {}, "kwargs": {}},
        {"type": "function_call (post)", "func_call_id": "a", "function": "torch.relu", "process_id": 1,
         "thread_id": 1, "time": 2, "meta_vars": {"step": 0}, "args": {}, "kwargs": {}, "return_values": None},
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    if packed:
        (old / "trace_API_1_1.log.gz").write_bytes(gzip.compress(text.encode()))
    else:
        (old / "trace_API_1_1.log").write_text(text)
    result = RUNNER.invoke(app, ["trace", "import", str(old), "-o", str(tmp_path / "new")])
    assert result.exit_code == 0, result.stderr
    summary = json.loads(RUNNER.invoke(app, ["trace", "show", str(tmp_path / "new"), "--json"]).stdout)
    assert [function["function"] for function in summary["functions"]] == ["torch.relu"]
    again = RUNNER.invoke(app, ["trace", "import", str(old), "-o", str(tmp_path / "new")])
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert RUNNER.invoke(app, ["trace", "import", str(old), "-o", str(tmp_path / "new"), "--force"]).exit_code == 0


def test_import_keeps_its_target_when_there_is_nothing_to_import(tmp_path, run):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("hello")
    result = RUNNER.invoke(app, ["trace", "import", str(tmp_path / "empty"), "-o", str(run), "--force"])
    assert result.exit_code == 2
    assert "holds no trace of TrainCheck 0.x" in result.stderr
    assert (run / "processes").exists()


def test_diff_of_the_same_and_of_different(tmp_path, run):
    same = tmp_path / "same"
    shutil.copytree(run, same)
    other = build(tmp_path / "other", changed=2)
    assert RUNNER.invoke(app, ["trace", "diff", str(run), str(same)]).exit_code == 0
    result = RUNNER.invoke(app, ["trace", "diff", str(run), str(other)])
    assert result.exit_code == 3, result.output
    assert "step 2" in result.stdout
    assert "model.weight" in result.stdout
    as_json = RUNNER.invoke(app, ["trace", "diff", str(run), str(other), "--json"])
    assert as_json.exit_code == 3
    assert json.loads(as_json.stdout)["schema"] == 1
    assert as_json.stderr == ""


COMMANDS = [
    ["trace", "show", "{}"],
    ["trace", "compact", "{}"],
    ["trace", "diff", "{}", "{}"],
    ["trace", "import", "{}", "-o", "unused"],
    ["infer", "{}", "-o", "unused.jsonl"],
    ["check", "{}", "-i", "good.jsonl"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command))
@pytest.mark.parametrize("kind", ["missing", "empty", "file", "foreign", "hostile"])
def test_what_is_no_trace_is_told_in_a_sentence(tmp_path, monkeypatch, command, kind):
    monkeypatch.chdir(tmp_path)
    Path("good.jsonl").touch()
    target = Path("target")
    if kind == "file":
        target.write_text("x")
    elif kind != "missing":
        target.mkdir()
    if kind == "foreign":
        (target / "notes.txt").write_text("hello")
    if kind == "hostile":
        (target / "processes" / "0-1").mkdir(parents=True)
        (target / "processes" / "0-1" / "events-00000.tcev").write_bytes(b"\xff" * 500)
        (target / "manifest.json").write_bytes(b"\x00{[")
    result = RUNNER.invoke(app, [word.format(target) for word in command])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert not Path("unused").exists()
    assert not Path("unused.jsonl").exists()
