"""Same verdicts as TrainCheck 0.x on real data, but for the documented faults: see docs/verdicts.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collect.running import PROGRAMS, clean_environment
from traincheck.check import check

from .comparing import AS_0X, Comparison, cause, given, of_its_own_reference, of_the_bug, table

PAGE = Path(__file__).parent.parent.parent / "docs" / "verdicts.md"
OWN = {"ref": "invariants_mlp.json.gz", "ddp2": "invariants_ddp2.json.gz"}


@pytest.mark.parametrize("name", given())
def test_known_errors_get_the_verdicts_of_0x(name: str) -> None:
    trace, invariants, expected = given()[name]
    result = check(trace, invariants)
    found: dict[str, list[int]] = {}
    for outcome in result.outcomes:
        found.setdefault(AS_0X.get(outcome.outcome, outcome.outcome), []).append(outcome.index)
    assert found == {verdict: lines for verdict, lines in expected.items() if lines}
    if expected.get("failed"):
        assert result.exit_code == 3
        assert result.findings[0].title


@pytest.fixture(scope="module", params=OWN)
def own(request: pytest.FixtureRequest) -> Comparison:
    return of_its_own_reference(request.param, OWN[request.param])


def test_every_difference_has_a_documented_cause(own: Comparison) -> None:
    _explained(own)


def test_differences_are_those_on_the_page(own: Comparison) -> None:
    assert _rows(own.name) == table([own])


def test_most_verdicts_are_the_same(own: Comparison) -> None:
    known = sum(said is not None for said in own.said)
    assert known > 200
    faults = {"W-C4": 0, "other": 0}
    for _, said, outcome, invariant in own.differences():
        fault, _ = cause(invariant, said, outcome) or ("?", "")
        faults["W-C4" if fault == "W-C4" else "other"] += 1
    assert faults["other"] < 0.12 * known, faults


@pytest.mark.slow
def test_the_verdicts_on_a_bug_that_0x_collected_itself(tmp_path: Path) -> None:
    """The same program with the same bug, collected by us: what 0.x rightly failed, fails."""
    run = tmp_path / "run"
    words = [sys.executable, "-m", "traincheck", "collect", "-q", "-o", str(run), "--", sys.executable]
    script = str(PROGRAMS / "variants" / "old_bug.py")
    subprocess.run([*words, script], cwd=tmp_path, env=clean_environment(), check=True, timeout=240)
    bug = of_the_bug(run)
    _explained(bug)
    rows = _rows("bug")
    assert {tuple(row.split("|")[2:5]) for row in rows} >= {tuple(row.split("|")[2:5]) for row in table([bug])}
    assert bug.result.outcomes[289].outcome == "violated"  # SGD.step() changes Parameter.data
    assert any(finding.title.startswith("Parameter.data of no variable changed") for finding in bug.result.findings)


def _explained(comparison: Comparison) -> None:
    open_questions = [
        f"{line}: {said} -> {outcome.outcome}: {outcome.text} ({outcome.reason})"
        for line, said, outcome, invariant in comparison.differences()
        if cause(invariant, said, outcome) is None
    ]
    assert open_questions == []


def _rows(name: str) -> list[str]:
    return re.findall(rf"^\| {name} \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
