from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from traincheck.check import Result, check
from traincheck.errors import TraincheckError
from traincheck.findings import Finding
from traincheck.infer import infer
from traincheck.report import FILES, write_all
from traincheck.report.html import render as render_html
from traincheck.report.json_files import dumps
from traincheck.report.terminal import render

from ..relations.worlds import World

CONTENT = ["APIContainRelation", "ConsistencyRelation"]


@pytest.fixture(scope="module")
def broken() -> Result:
    return check(World(no_zero_from=3, ranks=2).trace(), infer([World().trace()], relations=CONTENT))


@pytest.fixture(scope="module")
def clean() -> Result:
    return check(World().trace(), infer([World().trace()], relations=CONTENT))


def printed(result: Result) -> str:
    stream = io.StringIO()
    render(result, Console(file=stream, width=400))
    return stream.getvalue()


def test_terminal_says_what_where_and_since_when(broken: Result) -> None:
    lines = printed(broken).splitlines()
    assert lines[0] == (
        "✗ grad of conv.bias, conv.weight and fc.weight was already set before Tensor.backward()  "
        "(since step 3, rank 0, 1, at train.py:12 in main)"
    )
    assert "zero_grad() is missing" in lines[1]
    assert "next: traincheck trace " in printed(broken)
    assert lines[-1].startswith("5 invariants: 1 violated, 4 passed")


def test_terminal_is_one_line_when_all_is_well(clean: Result) -> None:
    assert printed(clean) == "5 invariants: 0 violated, 5 passed, 0 did not apply\n"


def test_all_files_are_written(broken: Result, tmp_path: Path) -> None:
    folder = write_all(broken, tmp_path / "a" / "b")
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    results = json.loads((folder / "results.json").read_text())
    assert results == json.loads(json.dumps(broken.to_json()))
    assert json.loads((folder / "findings.json").read_text())["findings"] == results["findings"]


def test_files_of_old_tools(broken: Result, tmp_path: Path) -> None:
    write_all(broken, tmp_path)
    failed = _objects(tmp_path / "failed.log")
    assert len(failed) == 1
    assert failed[0]["check_passed"] is False
    assert failed[0]["triggered"] is True
    assert failed[0]["invariant"]["relation"] == "APIContainRelation"
    assert failed[0]["trace"][0]["meta_vars.step"] == 3
    assert isinstance(failed[0]["detection_time"], int)
    passed = _objects(tmp_path / "passed.log")
    assert {(item["check_passed"], item["triggered"]) for item in passed} == {(True, True)}
    assert len(passed) == 4
    summary = json.loads((tmp_path / "violations_summary.json").read_text())
    assert summary["first_violation_step"] == 3
    assert summary["distinct_invariants_violated"] == 1
    assert summary["violations"][0]["occurrences"] == 4 * 3 * 2


def _objects(path: Path) -> list[dict[str, object]]:
    text, decoder, found, at = path.read_text(), json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        item, at = decoder.raw_decode(text, at)
        found.append(item)
        at += 1
    return found


def test_html_is_self_contained_and_small(broken: Result, clean: Result) -> None:
    page = render_html(broken)
    assert "already set before" in page
    assert not re.search(r"<script|<link|src=|href=|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert len(page) < 50_000
    assert "Nothing was violated" in render_html(clean)


def test_html_escapes_every_value(broken: Result) -> None:
    evil = '<script>alert("x")</script>'
    finding = Finding(evil, (0,), 1, (), (evil,), (evil,), evil, evil, evil, evil, evil)
    outcomes = tuple(
        type(outcome)(**{**vars(outcome), "text": evil, "reason": evil, "outcome": kind})
        for outcome, kind in zip(
            broken.outcomes, ("violated", "error", "not_observable", "dormant", "passed"), strict=True
        )
    )
    result = Result(evil, broken.invariants, outcomes, (finding,), (evil,), (evil,), {evil: evil})
    assert "<script" not in render_html(result)


def test_nan_is_no_json() -> None:
    assert json.loads(dumps({"a": float("nan"), "b": (float("inf"), 1.5)})) == {"a": "nan", "b": ["inf", 1.5]}


def test_unwritable_folder_says_so(broken: Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraincheckError, match="cannot write the results"):
        write_all(broken, tmp_path / "file")
