"""Constants that belong to one process, machine or moment are found; observed and direct outcomes are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from traincheck.overhead import outcomes, portability

STEP = {"param_type": "APIParam", "api_full_name": "torch.optim.adam.Adam.step"}
ALWAYS = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}


def changes(attribute: str, value: Any) -> dict[str, Any]:
    variable = {"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter", "attr_name": attribute}
    return invariant([STEP, {**variable, "pre_value": value, "post_value": value}], {"parent_func_call_pre": ALWAYS})


def when(name: str, value: Any, kind: str = "constant") -> dict[str, Any]:
    clause = {"type": kind, "prop_name": name}
    if kind == "constant":
        clause["values"] = [value]
    group = {"inverted": False, "preconditions": [{"clauses": [clause]}]}
    return invariant([STEP, STEP], {"parent_func_call_pre": group})


def invariant(params: list[dict[str, Any]], precondition: dict[str, Any]) -> dict[str, Any]:
    return {"text_description": "x", "relation": "APIContainRelation", "params": params, "precondition": precondition}


def audited(tmp_path: Path, *lines: dict[str, Any]) -> dict[str, Any]:
    rules = tmp_path / "rules.jsonl"
    rules.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return portability.audit(rules)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (changes("id", 140018813074304), "id is an identity or a time"),
        (changes("data_ptr", 5), "data_ptr is an identity or a time"),
        (when("process_id", 17), "process_id is an identity or a time"),
        (when("thread_id", 140018813074304), "thread_id is an identity or a time"),
        (when("time", 1.7e9), "time is an identity or a time"),
        (when("args.0.name", "<lock at 0x7f58a1b2c3d0>"), "an address"),
        (changes("data", "0123456789abcdef" * 2), "a digest of content"),
        (when("args.0.file", "/home/someone/data.bin"), "a path of this machine"),
    ],
)
def test_what_is_not_portable_is_named(line: dict[str, Any], why: str, tmp_path: Path) -> None:
    found = audited(tmp_path, when("stage", "training"), line)
    assert {fault["why"] for fault in found["faults"]} == {why}
    assert {fault["index"] for fault in found["faults"]} == {1}


def test_what_is_portable_is_left_alone(tmp_path: Path) -> None:
    lines = [
        when("stage", "training"),
        when("process_id", None, kind="consistent"),
        when("args.1.shape.0", 2048),
        changes("data", "non_none"),
        changes("requires_grad", True),
        changes("lr", 0.001),
    ]
    found = audited(tmp_path, *lines)
    assert found["faults"] == []
    assert found["invariants"] == 6
    assert found["constants"] > 6


def result(*verdicts: str, applications: int = 3) -> dict[str, Any]:
    rest = {"violations": 0, "first_step": None, "last_step": None, "steps": [[1, 3]], "ranks": []}
    rows = [
        {"index": n, "id": str(n), "text": f"rule {n}", "outcome": verdict, "applications": applications, **rest}
        for n, verdict in enumerate(verdicts)
    ]
    return {"outcomes": rows}


def test_agreement_is_counted_by_invariant_and_differences_are_named() -> None:
    same = outcomes.agreement(result("passed", "dormant"), result("passed", "dormant"))
    assert (same["same_verdict"], same["same"], same["invariants"]) == (2, 2, 2)
    found = outcomes.agreement(result("passed", "dormant"), result("passed", "violated"))
    assert (found["same_verdict"], found["same"]) == (1, 1)
    assert found["differences"] == [
        {"index": 1, "id": "1", "text": "rule 1", "differs": {"outcome": ["dormant", "violated"]}}
    ]
    fewer = outcomes.agreement(result("passed"), result("passed", applications=2))
    assert (fewer["same_verdict"], fewer["same"]) == (1, 0)
