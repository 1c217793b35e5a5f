"""``traincheck invariants …`` and ``check --suppressions``: files, exit codes, JSON and errors."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from traincheck.cli import app
from traincheck.invariants import dump_invariants, load_invariants
from traincheck.suppressions import FILE_NAME, load_suppressions
from traincheck.trace.build import Object, TraceBuilder, digest

RUNNER = CliRunner()
STEP = "torch.optim.sgd.SGD.step"
TODAY = date.today()
TOMORROW = (TODAY + timedelta(days=1)).isoformat()
YESTERDAY = (TODAY - timedelta(days=1)).isoformat()


def build(folder: Path, trained: bool = True, steps: int = 6) -> Path:
    """A run whose steps call ``_inner`` and change two parameters; with ``trained=False`` only one."""
    builder = TraceBuilder()
    for step in range(1, steps + 1):
        builder.step()
        with builder.call(STEP, args=[Object("torch.optim.sgd.SGD", 1)]):
            with builder.call("torch.optim.sgd.sgd"):
                pass
            for moment, age in (("before", step - 1), ("after", step)):
                with builder.observe(STEP, moment):
                    for name in ("model.fc1.weight", "model.fc2.weight"):
                        stuck = name.startswith("model.fc2") and not trained
                        data = digest((name, 0 if stuck else age))
                        builder.state(name, data=data, grad=digest((name, step)), requires_grad=True)
    return builder.write(folder)


def run(*arguments, code: int = 0):
    result = RUNNER.invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert "\x1b" not in result.output
    return result


def out(*arguments, code: int = 0):
    """The JSON of a command: standard output holds nothing else."""
    return json.loads(run(*arguments, "--json", code=code).stdout)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build(Path("good"))
    build(Path("again"), steps=8)
    build(Path("bad"), trained=False)
    run("infer", "good", "-o", "good.jsonl")
    run("infer", "again", "-o", "again.jsonl")
    return tmp_path


@pytest.fixture
def violated(runs):
    """Indexes of the invariants that ``bad`` violates."""
    found = [one["index"] for one in out("check", "bad", "-i", "good.jsonl", code=3)["outcomes"]]
    broken = [
        one["index"]
        for one in out("check", "bad", "-i", "good.jsonl", code=3)["outcomes"]
        if one["outcome"] == "violated"
    ]
    assert 0 < len(broken) < len(found)
    return broken


# show


def test_show_lists_all(runs):
    data = out("invariants", "show", "good.jsonl", "again.jsonl")
    known = load_invariants("good.jsonl", "again.jsonl")
    assert data["schema"] == 1
    assert data["total"] == data["shown"] == len(data["invariants"]) == len(known)
    for number, one in enumerate(data["invariants"]):
        assert one["index"] == number
        assert one["id"] == known[number].key
        assert (one["file"], one["line"]) == known.places[number]
        assert {"relation", "text", "support", "steps", "references"} <= set(one)
    text = run("invariants", "show", "good.jsonl").stdout
    first = text.splitlines()[0].split()
    assert first == ["index", "relation", "text", "support", "steps", "references"]
    assert text.rstrip().endswith(f"{len(load_invariants('good.jsonl'))} invariants")


def test_show_some(runs):
    data = out("invariants", "show", "good.jsonl", "--tensor", "Parameter.data", "--relation", "apicontain")
    assert 0 < data["shown"] < data["total"]
    assert all("data" in one["text"] for one in data["invariants"])
    assert out("invariants", "show", "good.jsonl", "--min-support", "100000")["invariants"] == []
    text = run("invariants", "show", "good.jsonl", "--api", "nothing").stdout
    assert text == f"0 of {data['total']} invariants\n"


def test_show_one_in_full(runs):
    (one,) = out("invariants", "show", "good.jsonl", "--index", "0")["invariants"]
    assert one["invariant"] == json.loads(Path("good.jsonl").read_text().splitlines()[0])
    assert one["parameters"]
    assert one["precondition"][0]["holds_when"]
    text = run("invariants", "show", "good.jsonl", "--id", one["id"]).stdout
    for word in (one["text"], one["id"], "parameters", "precondition", "6 steps", "good.jsonl, line 1"):
        assert word in text


# filter


def test_filter_writes_lines_as_they_were(runs):
    data = out("invariants", "filter", "good.jsonl", "--tensor", "data", "-o", "some.jsonl")
    lines = Path("good.jsonl").read_text().splitlines()
    kept = Path("some.jsonl").read_text().splitlines()
    assert data["written"] == len(kept) > 0
    assert data["read"] == len(lines)
    assert data["selection"] == {"tensors": ["data"]}
    assert set(kept) < set(lines)
    (provenance,) = load_invariants("some.jsonl").provenance
    assert [reference["run"] for reference in provenance["references"]] == ["good"]
    assert provenance["made"] == {"by": "filter", "tensors": ["data"]}
    assert run("check", "bad", "-i", "some.jsonl", code=3).stdout.count("trace diff good bad") == 1


def test_filter_leaves_out(runs):
    known = list(load_invariants("good.jsonl"))
    said = run("invariants", "filter", "good.jsonl", "--not-index", "0", "-o", "x.jsonl").stdout
    assert said == f"{len(known) - 1} of {len(known)} invariants -> x.jsonl\n"
    assert list(load_invariants("x.jsonl")) == known[1:]
    run("invariants", "filter", "good.jsonl", "--not-relation", "cover", "-o", "z", code=2)
    run("invariants", "filter", "good.jsonl", "--not-tensor", "Parameter.data", "-o", "y.jsonl")
    kept = load_invariants("y.jsonl")
    assert 0 < len(kept) < len(known)
    assert all("Parameter.data" not in one.text_description for one in kept)


def test_filter_of_nothing_writes_nothing(runs):
    result = run("invariants", "filter", "good.jsonl", "--api", "nothing", "-o", "x.jsonl", code=2)
    assert "nothing was written" in result.stderr
    assert not Path("x.jsonl").exists()


@pytest.mark.parametrize("command", ["filter", "merge"])
def test_outputs_are_never_replaced_unasked(runs, command):
    before = Path("again.jsonl").read_bytes()
    result = run("invariants", command, "good.jsonl", "-o", "again.jsonl", code=2)
    assert result.stderr == (
        "error: the output again.jsonl exists already\ntry: another name with -o, or --force to replace it\n"
    )
    assert Path("again.jsonl").read_bytes() == before
    run("invariants", command, "good.jsonl", "-o", "again.jsonl", "--force")
    assert len(load_invariants("again.jsonl")) == len(load_invariants("good.jsonl"))
    run("invariants", command, "good.jsonl", "-o", "good.jsonl", "--force")  # all is read before anything is written
    assert Path("good.jsonl").read_bytes() == Path("again.jsonl").read_bytes()
    assert "cannot write" in run("invariants", command, "good.jsonl", "-o", "/proc/no/x", code=2).stderr


# merge and diff


def test_merge_counts(runs):
    data = out("invariants", "merge", "good.jsonl", "again.jsonl", "-o", "both.jsonl")
    one, two, both = (load_invariants(f"{name}.jsonl") for name in ("good", "again", "both"))
    keys = {invariant.key for invariant in (*one, *two)}
    assert {invariant.key for invariant in both} == keys
    assert data["written"] == len(both) == len(keys)
    assert data["read"] == len(one) + len(two)
    assert data["duplicates"] == len(one) + len(two) - len(both) > 0
    assert {invariant.support.references for invariant in both} == {2}
    assert dump_invariants(both) == "".join(
        f"{line}\n" for line in Path("both.jsonl").read_text(encoding="utf-8").split("\n") if line
    )
    assert out("check", "good", "-i", "both.jsonl")["summary"]["violated"] == 0
    said = run("invariants", "merge", "again.jsonl", "good.jsonl", "-o", "back.jsonl").stdout
    assert "duplicates) -> back.jsonl" in said
    assert Path("back.jsonl").read_bytes() == Path("both.jsonl").read_bytes()


def test_diff_exit_codes(runs):
    assert run("invariants", "diff", "good.jsonl", "good.jsonl").stdout.startswith("the same: ")
    data = out("invariants", "diff", "good.jsonl", "again.jsonl", code=3)
    assert data["same"] is False
    assert data["only_in_a"] == data["only_in_b"] == []
    assert {tuple(change["what"]) for change in data["changed"]} == {("support",)}
    assert out("invariants", "diff", "good.jsonl", "again.jsonl", "--ignore-support")["same"] is True
    run("invariants", "filter", "good.jsonl", "--not-index", "0", "-o", "fewer.jsonl")
    data = out("invariants", "diff", "good.jsonl", "fewer.jsonl", code=3)
    assert [one["index"] for one in data["only_in_a"]] == [0]
    assert data["files"] == ["good.jsonl", "fewer.jsonl"]


# suppress, and check


def test_suppressed_violations_are_judged_and_make_no_finding(runs, violated):
    said = run("invariants", "suppress", "good.jsonl", *violated, "--reason", "frozen on purpose")
    assert f"{len(violated)} suppression" in said.stdout
    assert said.stderr == ""
    plain = out("check", "bad", "-i", "good.jsonl", "--no-suppressions", code=3)
    result = run("check", "bad", "-i", "good.jsonl", "--json")
    data = json.loads(result.stdout)
    assert f"suppressions are taken from {FILE_NAME}" in result.stderr
    assert data["findings"] == []
    assert plain["suppressions"] is None
    assert "suppressed" not in plain["summary"]
    assert data["summary"] == {**plain["summary"], "violated": 0, "suppressed": len(violated)}
    summary = data["summary"]
    assert summary["total"] == sum(count for name, count in summary.items() if name != "total")
    assert data["suppressions"] == {
        "files": [FILE_NAME],
        "on": TODAY.isoformat(),
        "in_force": len(violated),
        "expired": [],
        "unmatched": [],
    }
    for before, after in zip(plain["outcomes"], data["outcomes"], strict=True):
        told = {"reason": "frozen on purpose", "date": TODAY.isoformat()} if after["index"] in violated else None
        assert after == {**before, "suppressed": told}
    text = run("check", "bad", "-i", "good.jsonl").stdout
    assert f"0 violated, {len(violated)} violated but suppressed" in text
    assert "✗" not in text


def test_reports_tell_suppressed_ones_apart(runs, violated):
    run("invariants", "suppress", "good.jsonl", *violated, "--reason", "frozen <on> purpose")
    run("check", "bad", "-i", "good.jsonl", "-o", "report")
    assert Path("report/failed.log").read_text() == ""
    assert json.loads(Path("report/violations_summary.json").read_text())["distinct_invariants_violated"] == 0
    assert json.loads(Path("report/findings.json").read_text())["findings"] == []
    assert json.loads(Path("report/results.json").read_text())["summary"]["suppressed"] == len(violated)
    html = Path("report/report.html").read_text()
    assert "violated but suppressed" in html
    assert "frozen &lt;on&gt; purpose" in html
    run("check", "bad", "-i", "good.jsonl", "-o", "plain", "--no-suppressions", code=3)
    assert "suppressed" not in Path("plain/report.html").read_text()


def test_others_still_count(runs, violated):
    held = next(one for one in range(len(load_invariants("good.jsonl"))) if one not in violated)
    run("invariants", "suppress", "good.jsonl", held, "--reason", "x")
    data = out("check", "bad", "-i", "good.jsonl", code=3)
    assert data["summary"]["violated"] == len(violated)
    assert data["summary"]["suppressed"] == 0
    assert data["outcomes"][held]["outcome"] == "passed"
    assert data["outcomes"][held]["suppressed"]["reason"] == "x"


def test_a_suppression_ends(runs, violated):
    run("invariants", "suppress", "good.jsonl", *violated, "--reason", "for now", "--until", TODAY.isoformat())
    assert out("check", "bad", "-i", "good.jsonl")["outcomes"][violated[0]]["suppressed"]["until"] == TODAY.isoformat()
    lines = [json.loads(line) for line in Path(FILE_NAME).read_text().splitlines()]
    old = [{**line, "date": "2020-01-01", "until": YESTERDAY} for line in lines]
    Path(FILE_NAME).write_text("".join(json.dumps(line) + "\n" for line in old))
    result = run("check", "bad", "-i", "good.jsonl", "--json", code=3)
    data = json.loads(result.stdout)
    assert data["summary"]["violated"] == len(violated)
    assert data["suppressions"]["expired"] == old
    assert data["findings"]
    assert f"ended on {YESTERDAY} (for now): it counts again" in result.stderr
    assert run("check", "good", "-i", "good.jsonl").exit_code == 0


def test_a_given_file_is_taken_instead(runs, violated):
    said = run("invariants", "suppress", "good.jsonl", *violated, "--reason", "x", "-s", "mine.jsonl")
    assert "only with --suppressions mine.jsonl" in said.stderr
    assert not Path(FILE_NAME).exists()
    assert out("check", "bad", "-i", "good.jsonl", code=3)["suppressions"] is None
    result = run("check", "bad", "-i", "good.jsonl", "--suppressions", "mine.jsonl")
    assert "taken from" not in result.stderr
    Path(FILE_NAME).write_text("not read\n")
    run("check", "bad", "-i", "good.jsonl", "--suppressions", "mine.jsonl")
    assert f"{FILE_NAME}, line 1" in run("check", "bad", "-i", "good.jsonl", code=2).stderr


def test_unmatched_suppressions_are_said(runs, violated):
    run("invariants", "suppress", "good.jsonl", *violated, "--reason", "x")
    run("invariants", "filter", "good.jsonl", "--not-index", violated[0], "-o", "fewer.jsonl")
    result = run("check", "good", "-i", "fewer.jsonl")
    assert "1 suppression is of no invariant checked here" in result.stderr


def test_list(runs):
    ids = [one.key for one in load_invariants("good.jsonl")]
    run("invariants", "suppress", "good.jsonl", "1", ids[0], "--reason", "why", "--until", TOMORROW)
    data = out("invariants", "suppress", "good.jsonl", "--list")
    assert data["file"] == FILE_NAME
    assert [(one["index"], one["id"], one["state"]) for one in data["suppressions"]] == [
        (1, ids[1], "in_force"),
        (0, ids[0], "in_force"),
    ]
    assert data["suppressions"][0]["until"] == TOMORROW
    run("invariants", "filter", "good.jsonl", "--not-index", "0", "-o", "fewer.jsonl")
    states = [one["state"] for one in out("invariants", "suppress", "fewer.jsonl", "--list")["suppressions"]]
    assert states == ["in_force", "unmatched"]
    text = run("invariants", "suppress", "--list").stdout
    assert "why" in text
    assert f"2 suppressions in {FILE_NAME}" in text
    assert "nothing at other" in run("invariants", "suppress", "--list", "-s", "other", code=2).stderr


def test_remove(runs):
    ids = [one.key for one in load_invariants("good.jsonl")]
    run("invariants", "suppress", "good.jsonl", "0", "1", "--reason", "why")
    assert [one["id"] for one in out("invariants", "suppress", "good.jsonl", "0", "--remove")["removed"]] == [ids[0]]
    assert [one.id for one in load_suppressions(FILE_NAME)] == [ids[1]]
    assert "is not suppressed" in run("invariants", "suppress", "good.jsonl", "1", "0", "--remove", code=2).stderr
    assert [one.id for one in load_suppressions(FILE_NAME)] == [ids[1]]  # all or nothing
    run("invariants", "filter", "good.jsonl", "--not-index", "1", "-o", "fewer.jsonl")
    said = run("invariants", "suppress", "fewer.jsonl", ids[1], "--remove").stdout  # its invariant is gone
    assert "0 suppressions" in said
    assert len(load_suppressions(FILE_NAME)) == 0
    run("check", "good", "-i", "good.jsonl")


def test_suppressed_already(runs):
    run("invariants", "suppress", "good.jsonl", "0", "--reason", "first")
    before = Path(FILE_NAME).read_bytes()
    result = run("invariants", "suppress", "good.jsonl", "1", "0", "--reason", "second", code=2)
    assert "first" in result.stderr
    assert "--force" in result.stderr
    assert Path(FILE_NAME).read_bytes() == before
    run("invariants", "suppress", "good.jsonl", "1", "0", "--reason", "second", "--force")
    assert [one.reason for one in load_suppressions(FILE_NAME)] == ["second", "second"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "gud.jsonl"], "nothing at gud.jsonl"),
        (["show", "good"], "is a folder"),
        (["show", "wrong.jsonl"], "wrong.jsonl, line 1, field relation: unknown relation"),
        (["show", "good.jsonl", "--relation", "Magic"], "unknown relation 'Magic'"),
        (["show", "good.jsonl", "--index", "999"], "no invariant 999"),
        (["show", "good.jsonl", "--min-support", "-1"], "min-support"),
        (["show"], "missing argument"),
        (["filter", "good.jsonl"], "missing option '-o'"),
        (["filter", "wrong.jsonl", "-o", "x"], "wrong.jsonl, line 1"),
        (["filter", "good.jsonl", "-o", "good"], "is a folder"),
        (["merge", "good.jsonl", "wrong.jsonl", "-o", "x"], "wrong.jsonl, line 1"),
        (["diff", "good.jsonl", "gud.jsonl"], "nothing at gud.jsonl"),
        (["diff", "wrong.jsonl", "good.jsonl"], "wrong.jsonl, line 1"),
        (["suppress"], "expected an invariant file and"),
        (["suppress", "good.jsonl", "--reason", "x"], "expected an invariant file and"),
        (["suppress", "good.jsonl", "0"], "expected a reason"),
        (["suppress", "good.jsonl", "0", "--reason", " "], "expected a reason"),
        (["suppress", "good.jsonl", "999", "--reason", "x"], "no invariant 999"),
        (["suppress", "good.jsonl", "0", "what", "--reason", "x"], "found 'what'"),
        (["suppress", "good.jsonl", "0", "--reason", "x", "--until", "soon"], "--until: expected a day as YYYY-MM-DD"),
        (["suppress", "good.jsonl", "0", "--reason", "x", "--until", YESTERDAY], "is past"),
        (["suppress", "good.jsonl", "0", "--reason", "x", "-s", "good"], "is a folder"),
        (["suppress", "good.jsonl", "0", "--reason", "x", "-s", "wrong.jsonl"], "wrong.jsonl, line 1"),
        (["suppress", "good.jsonl", "0", "--reason", "x", "-s", "no/where"], "cannot write"),
        (["suppress", "good.jsonl", "--list", "--remove"], "found both"),
        (["suppress", "good.jsonl", "0", "--list"], "expected no INDEX"),
        (["suppress", "good.jsonl", "0", "--remove", "--reason", "x"], "not with --remove"),
        (["suppress", "good.jsonl", "0", "--remove"], f"nothing at {FILE_NAME}"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_are_sentences(runs, words, said):
    Path("wrong.jsonl").write_text(
        '{"text_description": "", "relation": "Magic", "precondition": {},'
        ' "params": [{"param_type": "APIParam", "api_full_name": "a"}]}\n'
    )
    before = sorted(Path.cwd().iterdir())
    result = run("invariants", *words, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert sorted(Path.cwd().iterdir()) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suppressions", "none"], "nothing at none"),
        (["--suppressions", "good"], "is a folder"),
        (["--suppressions", "good.jsonl"], "good.jsonl, line 1: this is an invariant, not a suppression"),
        (["--suppressions", "good.jsonl", "--no-suppressions"], "found both"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_check_errors(runs, words, said):
    result = run("check", "good", "-i", "good.jsonl", "-o", "report", *words, code=2)
    assert result.stdout == ""
    assert said in result.stderr
    assert not Path("report").exists()


def test_a_pipe_gets_json_alone(runs, traincheck):
    result = traincheck("invariants", "diff", "good.jsonl", "again.jsonl", "--json")
    assert result.returncode == 3
    assert result.stderr == ""
    assert json.loads(result.stdout)["schema"] == 1
