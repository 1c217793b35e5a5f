"""``traincheck infer`` and ``check``: files, exit codes and JSON, on small traces made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from traincheck.cli import app
from traincheck.trace.build import Object, TraceBuilder, digest

RUNNER = CliRunner()
STEP = "torch.optim.sgd.SGD.step"


def build(folder: Path, trained: bool = True, steps: int = 6) -> Path:
    """A run in which each step changes the data of two parameters; with ``trained=False`` only of one."""
    builder = TraceBuilder()
    for step in range(1, steps + 1):
        builder.step()
        with builder.call(STEP, args=[Object("torch.optim.sgd.SGD", 1)]):
            for moment, age in (("before", step - 1), ("after", step)):
                with builder.observe(STEP, moment):
                    for name in ("model.fc1.weight", "model.fc2.weight"):
                        stuck = name.startswith("model.fc2") and not trained
                        data = digest((name, 0 if stuck else age))
                        builder.state(name, data=data, grad=digest((name, step)), requires_grad=True)
    return builder.write(folder)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(Path("good"))
    build(Path("again"), steps=8)
    build(Path("bad"), trained=False)
    assert RUNNER.invoke(app, ["infer", "good", "-o", "good.jsonl"]).exit_code == 0
    return tmp_path


def test_infer_writes_a_file_and_says_so(runs):
    result = RUNNER.invoke(app, ["infer", "good", "again", "-o", "both.jsonl", "--json"])
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout)
    lines = Path("both.jsonl").read_text().splitlines()
    assert said["schema"] == 1
    assert said["total"] == len(lines) == sum(said["relations"].values()) > 0
    assert said["output"] == "both.jsonl"


def test_infer_has_a_default_name(runs):
    assert RUNNER.invoke(app, ["infer", "good"]).exit_code == 0
    assert Path("good.invariants.jsonl").exists()


def test_infer_never_overwrites_unasked(runs):
    before = Path("good.jsonl").read_bytes()
    result = RUNNER.invoke(app, ["infer", "bad", "-o", "good.jsonl"])
    assert result.exit_code == 2
    assert result.stderr == (
        "error: the output good.jsonl exists already\ntry: another name with -o, or --force to replace it\n"
    )
    assert Path("good.jsonl").read_bytes() == before
    assert RUNNER.invoke(app, ["infer", "good", "-o", "good.jsonl", "--force"]).exit_code == 0
    assert Path("good.jsonl").read_bytes() == before  # the same trace gives the same bytes


@pytest.mark.parametrize(("run", "code"), [("good", 0), ("again", 0), ("bad", 3)])
def test_check_exit_code(runs, run, code):
    result = RUNNER.invoke(app, ["check", run, "-i", "good.jsonl"])
    assert result.exit_code == code, result.output
    assert ("fc2.weight" in result.stdout) == (code == 3)
    assert "\x1b" not in result.stdout


def test_check_json_is_json_alone(runs, traincheck):
    result = traincheck("check", "bad", "-i", "good.jsonl", "--json")
    assert result.returncode == 3
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert found["schema"] == 1
    assert found["summary"]["violated"] >= 1
    assert found["summary"]["total"] == len(found["outcomes"])
    assert any("model.fc2.weight" in finding["tensors"] for finding in found["findings"])


def test_check_output_folder(runs):
    result = RUNNER.invoke(app, ["check", "bad", "-i", "good.jsonl", "-o", "out"])
    assert result.exit_code == 3
    assert {"report.html", "results.json", "failed.log"} <= {path.name for path in Path("out").iterdir()}
    again = RUNNER.invoke(app, ["check", "good", "-i", "good.jsonl", "-o", "out"])
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    assert json.loads(Path("out/results.json").read_text())["summary"]["violated"] > 0
    assert RUNNER.invoke(app, ["check", "good", "-i", "good.jsonl", "-o", "out", "--force"]).exit_code == 0
    assert json.loads(Path("out/results.json").read_text())["summary"]["violated"] == 0


def test_check_never_clears_a_folder_of_something_else(runs):
    result = RUNNER.invoke(app, ["check", "bad", "-i", "good.jsonl", "-o", "good", "--force"])
    assert result.exit_code == 2
    assert "left alone" in result.stderr
    assert Path("good/manifest.json").exists()


@pytest.mark.parametrize(
    "content",
    [b"not json\n", b'{"relation": "NoSuchRelation"}\n', b"\xff\xfe\x00", b"[1]\n", b"\x1f\x8bbroken"],
    ids=["text", "unknown relation", "binary", "list", "torn gzip"],
)
def test_a_wrong_invariant_file_is_told_in_a_sentence(runs, content):
    Path("wrong.jsonl").write_bytes(content)
    result = RUNNER.invoke(app, ["check", "good", "-i", "good.jsonl", "-i", "wrong.jsonl"])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "wrong.jsonl" in result.stderr


def test_a_missing_invariant_file_names_its_neighbours(runs):
    result = RUNNER.invoke(app, ["check", "good", "-i", "gud.jsonl"])
    assert result.exit_code == 2
    assert "nothing at gud.jsonl" in result.stderr
    assert "good.jsonl" in result.stderr


def test_unwritable_outputs_are_told_in_a_sentence(runs):
    for arguments in (
        ["infer", "good", "-o", "/proc/nowhere/set.jsonl"],
        ["check", "good", "-i", "good.jsonl", "-o", "/proc/nowhere/out"],
    ):
        result = RUNNER.invoke(app, arguments)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("error: ")
        assert "Traceback" not in result.stderr


def test_selective_collection_takes_its_plan_from_invariants(runs, traincheck, tmp_path):
    import sys

    (tmp_path / "train.py").write_text(
        "import torch\n"
        "model = torch.nn.Linear(3, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(3):\n"
        "    optimizer.zero_grad(); model(torch.ones(2, 3)).sum().backward(); optimizer.step()\n"
    )
    result = traincheck("collect", "-o", "small", "-i", "good.jsonl", "--", sys.executable, "train.py")
    assert result.returncode == 0, result.stderr
    plan = json.loads(Path("small/manifest.json").read_text())["plan"]
    assert plan["scope"] == "selective"
    assert STEP in plan["functions"]
    assert RUNNER.invoke(app, ["check", "small", "-i", "good.jsonl"]).exit_code == 0


def test_too_short_a_run_is_told(runs):
    build(Path("short"), steps=1)
    result = RUNNER.invoke(app, ["infer", "short", "-o", "short.jsonl"])
    assert result.exit_code == 0
    assert "warning: nothing was learned: " in result.stderr
    assert "found 1 training step; take runs of at least 3 steps" in result.stderr
    checked = RUNNER.invoke(app, ["check", "good", "-i", "short.jsonl"])
    assert checked.exit_code == 0
    assert "warning: there was no invariant to check" in checked.stdout


def test_an_earlier_report_stays_until_there_is_another(runs):
    """With --force too: a command that cannot do its work takes nothing away."""
    assert RUNNER.invoke(app, ["check", "bad", "-i", "good.jsonl", "-o", "report"]).exit_code == 3
    before = {path: path.read_bytes() for path in Path("report").iterdir()}
    Path("broken.jsonl").write_text("{")
    Path("norun").mkdir()
    Path("norun/file").write_text("")
    for run, file in (("bad", "broken.jsonl"), ("norun", "good.jsonl")):
        assert RUNNER.invoke(app, ["check", run, "-i", file, "-o", "report", "--force"]).exit_code == 2
        assert {path: path.read_bytes() for path in Path("report").iterdir()} == before


def test_what_was_found_is_told_when_it_cannot_be_written(runs, monkeypatch):
    def full(self, *args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = RUNNER.invoke(app, ["check", "bad", "-i", "good.jsonl", "-o", "report"])
    assert result.exit_code == 2
    assert "violated" in result.stdout
    assert "report:" not in result.stdout
    assert "error: cannot write the results to report: No space left on device" in result.stderr
    as_json = RUNNER.invoke(app, ["check", "bad", "-i", "good.jsonl", "-o", "report", "--json"])
    assert json.loads(as_json.stdout)["summary"]["violated"] > 0


def test_an_earlier_run_stays_when_nothing_can_be_run(runs):
    result = RUNNER.invoke(app, ["collect", "-o", "good", "--force", "--", "no-such-program"])
    assert result.exit_code == 2
    assert Path("good/manifest.json").exists()


def test_an_earlier_import_stays_when_there_is_nothing_to_import(runs):
    Path("old").mkdir()
    Path("old/trace_API_1_2.log").write_text("noise\n")
    result = RUNNER.invoke(app, ["trace", "import", "old", "-o", "good", "--force"])
    assert result.exit_code == 2
    assert Path("good/manifest.json").exists()
