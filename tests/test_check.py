from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from traincheck.check import VERDICTS, Result, check
from traincheck.infer import Inference, infer
from traincheck.invariants import RELATIONS, Invariant, InvariantSet, load_invariants, parse_invariant, provenance_path
from traincheck.relations.contain import APIContain
from traincheck.relations.registry import BY_NAME, GROUPS, unjudged
from traincheck.trace.build import TraceBuilder, digest
from traincheck.trace.manifest import Manifest

from .relations.worlds import ADAMW, BACKWARD, STEP, ZERO, World

API = "APIParam"
VAR = "VarTypeParam"


def invariant(parent: str, child: dict[str, Any] | str, **groups: Any) -> Invariant:
    second = {"param_type": API, "api_full_name": child} if isinstance(child, str) else {"param_type": VAR, **child}
    always = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}
    return parse_invariant(
        json.dumps(
            {
                "text_description": f"{parent} > {child}",
                "relation": "APIContainRelation",
                "params": [{"param_type": API, "api_full_name": parent}, second],
                "precondition": groups or {"parent_func_call_pre": always},
            }
        )
    )


def only(result: Result) -> Any:
    assert len(result.outcomes) == 1
    return result.outcomes[0]


@pytest.fixture(scope="module")
def learned() -> Inference:
    return infer([World().trace()])


def test_shape_of_the_json(learned: Inference) -> None:
    data = check(World(no_zero_from=3).trace(), learned).to_json()
    again = json.loads(json.dumps(data, allow_nan=False))
    assert again == data
    assert data["schema"] == 1
    assert set(data["summary"]) == {"total", *VERDICTS}
    assert data["summary"]["total"] == len(data["outcomes"]) == len(learned)
    for number, outcome in enumerate(data["outcomes"]):
        assert outcome["index"] == number
        assert {"outcome", "relation", "text", "applications", "first_step"} <= set(outcome)
    finding = data["findings"][0]
    assert set(finding) == {
        "title",
        "outcome_indexes",
        "first_step",
        "ranks",
        "apis",
        "tensors",
        "location",
        "expected",
        "observed",
        "meaning",
        "next",
    }
    assert finding["location"] == "train.py:12 in main"
    assert finding["tensors"] == ["conv.bias", "conv.weight", "fc.weight"]
    assert finding["first_step"] == 3


def test_coverage(learned: Inference) -> None:
    result = check(World(steps=9, ranks=2, sampled=frozenset({4, 5})).trace(), learned)
    backward = next(o for o in result.outcomes if o.text.startswith("Tensor.backward() changes every"))
    assert backward.applications == 7 * 2 * 3
    assert backward.to_json()["steps"] == [[1, 3], [6, 9]]
    assert backward.ranks == (0, 1)
    assert result.exit_code == 0


def test_every_violation_counts(learned: Inference) -> None:
    result = check(World(steps=20, no_zero_from=5).trace(), learned)
    bad = next(o for o in result.outcomes if o.outcome == "violated")
    assert bad.violations == 16 * 3
    assert (bad.first_step, bad.last_step) == (5, 20)
    assert len(bad.evidence) == 8
    assert bad.evidence[0]["function"] == BACKWARD
    assert bad.evidence[0]["before"] != "None"


TESTING = {"clauses": [{"type": "constant", "prop_name": "meta_vars.stage", "values": ["testing"]}]}
MOMENTUM = {"var_type": "torch.nn.Parameter", "attr_name": "momentum"}
DORMANT = [
    (invariant("m.never", "m.other"), "m.never was never called"),
    (invariant(STEP, MOMENTUM), "no Parameter.momentum was observed"),
    (
        invariant(STEP, ADAMW, parent_func_call_pre={"inverted": False, "preconditions": [TESTING]}),
        "precondition was never met (when stage is testing)",
    ),
]


@pytest.mark.parametrize(("item", "reason"), DORMANT)
def test_dormant_says_why(item: Invariant, reason: str) -> None:
    outcome = only(check(World().trace(), [item]))
    assert outcome.outcome == "dormant"
    assert reason in outcome.reason


def test_a_relation_of_another_version_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traincheck.relations.registry.relation_of", lambda name: None)
    outcome = only(check(World().trace(), [invariant(STEP, ADAMW)]))
    assert outcome.outcome == "not_observable"
    assert "not judged by this version" in outcome.reason


def test_what_was_not_watched_is_not_violated() -> None:
    trace = World(fused_from=1).trace()
    assert only(check(trace, [invariant(STEP, ADAMW)])).outcome == "violated"
    trace.manifest = Manifest(plan={"scope": "boundary", "packages": ["torch"]})
    outcome = only(check(trace, [invariant(STEP, ADAMW)]))
    assert outcome.outcome == "not_observable"
    assert f"{ADAMW} was not watched in this run (boundary scope)" in outcome.reason


def test_a_fault_in_one_invariant_is_its_own(learned: Inference, monkeypatch: pytest.MonkeyPatch) -> None:
    real = APIContain.evaluate

    def evaluate(self: APIContain, invariants: Any, window: Any, carry: Any) -> Any:
        if any(item.number == 1 for item in invariants):
            raise ZeroDivisionError("one is broken")
        return real(self, invariants, window, carry)

    monkeypatch.setattr(APIContain, "evaluate", evaluate)
    result = check(World().trace(), learned)
    assert [o.index for o in result.outcomes if o.outcome == "error"] == [1]
    assert "one is broken" in str(result.outcomes[1].reason)
    assert result.summary["passed"] == len(learned) - 1
    assert result.exit_code == 1
    assert check(World(no_zero_from=2).trace(), learned).exit_code == 3


def test_raised_calls_are_not_the_returned_ones() -> None:
    b = TraceBuilder()
    b.step()
    with b.call("m.P"), b.call("m.C", raises="builtins.ValueError"):
        pass
    with b.call("m.P", raises="builtins.ValueError"):
        pass
    outcome = only(check(b.trace(), [invariant("m.P", "m.C")]))
    assert (outcome.applications, outcome.violations) == (1, 1)


def test_existence_as_in_old_files() -> None:
    """Without a condition on variables, one variable that changes is enough."""
    child = {"var_type": "torch.nn.Parameter", "attr_name": "data", "pre_value": "non_zero", "post_value": "above_zero"}
    assert only(check(World(frozen=("conv.bias",)).trace(), [invariant(STEP, child)])).outcome == "passed"
    frozen = only(check(World(frozen=World().names).trace(), [invariant(STEP, child)]))
    assert (frozen.outcome, frozen.first_step, frozen.violations) == ("violated", 1, 6)


def test_a_value_that_is_not_known_is_not_judged() -> None:
    """No state before the first update: the first change cannot be seen, and is not missed either."""
    child = {"var_type": "torch.nn.Parameter", "attr_name": "data"}
    b = TraceBuilder()
    for step in range(1, 4):
        b.step()
        with b.call(STEP) as call:
            pass
        with b.observe("step", "after", call.number):
            b.state("w", data=digest(step))
    outcome = only(check(b.trace(), [invariant(STEP, child)]))
    assert (outcome.outcome, outcome.applications) == ("passed", 2)


def test_findings_are_told_once_and_earliest_first(learned: Inference) -> None:
    result = check(World(no_zero_from=4, frozen=("conv.bias",)).trace(), learned)
    assert [f.first_step for f in result.findings] == sorted(f.first_step or 0 for f in result.findings)
    assert len({f.title for f in result.findings}) == len(result.findings)
    assert result.findings[0].tensors == ("conv.bias",)


def test_functions_that_are_missing_altogether_are_named(learned: Inference) -> None:
    assert check(World(no_zero_from=1).trace(), learned).never_called == (ZERO,)


def test_index_is_the_line_of_the_file(learned: Inference, tmp_path: Any) -> None:
    learned.save(tmp_path / "a.jsonl")
    result = check(World().trace(), tmp_path / "a.jsonl")
    assert [o.line for o in result.outcomes] == list(range(1, len(learned) + 1))
    both = check(World().trace(), [tmp_path / "a.jsonl", tmp_path / "a.jsonl"])
    assert [o.index for o in both.outcomes] == list(range(2 * len(learned)))
    loaded = load_invariants(tmp_path / "a.jsonl")
    assert isinstance(loaded, InvariantSet)
    assert check(World().trace(), loaded).summary == result.summary


def test_nothing_to_check() -> None:
    result = check(TraceBuilder().trace(), [])
    assert result.summary["total"] == 0
    assert result.exit_code == 0


@pytest.mark.parametrize("groups", [("nonsense",), ("parent_func_call_pre", "func_lead"), ("var_events",)])
def test_a_condition_that_is_not_read_is_not_left_out(groups: tuple[str, ...]) -> None:
    """Judged without its condition it would be another rule: passed or violated, both say nothing."""
    always = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}
    item = invariant(STEP, ADAMW, **dict.fromkeys(groups, always))
    outcome = only(check(World().trace(), [item]))
    assert outcome.outcome == "not_observable"
    assert outcome.reason is not None
    assert "expected parent_func_call_pre" in outcome.reason


def test_groups_of_all_relations_are_read(learned: Inference) -> None:
    assert set(GROUPS) == set(BY_NAME) == set(RELATIONS)
    assert all(unjudged(item) is None for item in learned)


@pytest.mark.parametrize("references", [None, 5, "abc", {"run": 3}, [1], [{"run": 5}], [None]])
def test_odd_references_end_nothing(learned: Inference, tmp_path: Path, references: object) -> None:
    """The provenance is optional, and so is what it says: only the next command misses the healthy run."""
    path = tmp_path / "good.jsonl"
    learned.save(path)
    provenance_path(path).write_text(json.dumps({"schema": 1, "references": references}))
    result = check(World(no_zero_from=3).trace(), path)
    assert result.exit_code == 3
    assert "trace show" in result.findings[0].next_command


def test_what_does_not_move_may_be_nan(learned: Inference) -> None:
    """A parameter that became NaN stays as it is; the words must not lead away from that."""
    result = check(World(not_in_optimizer=("conv.bias",)).trace(), learned)
    stuck = [finding for finding in result.findings if "data did not change" in finding.title]
    assert stuck
    assert all("already NaN" in finding.meaning for finding in stuck)
