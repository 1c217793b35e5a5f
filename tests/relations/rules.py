"""Invariants about arguments and results, written by hand."""

from __future__ import annotations

import json
from typing import Any

from traincheck.check import Outcome, check
from traincheck.invariants import Invariant, parse_invariant
from traincheck.trace import Trace

ALWAYS = [{"clauses": "Unconditional"}]


def api(name: str, **more: object) -> dict[str, Any]:
    return {"param_type": "APIParam", "api_full_name": name, **more}


def place(function: str, name: str, path: list[Any] | None, index: int | None, is_input: bool) -> dict[str, Any]:
    return {
        "param_type": "InputOutputParam",
        "name": name,
        "index": index,
        "type": "torch.Tensor",
        "additional_path": path,
        "api_name": function,
        "is_input": is_input,
    }


def _invariant(relation: str, params: list[Any], group: str, clauses: list[Any] | None) -> Invariant:
    conjs = ALWAYS if clauses is None else [{"clauses": clauses}]
    data = {
        "text_description": relation,
        "relation": relation,
        "params": params,
        "precondition": {group: {"inverted": False, "preconditions": conjs}},
    }
    return parse_invariant(json.dumps(data))


def output(function: str, attribute: str, constant: object, clauses: list[Any] | None = None) -> Invariant:
    variable = {"param_type": "VarTypeParam", "var_type": "torch.Tensor", "attr_name": attribute}
    params = [api(function), {**variable, "const_value": constant}]
    return _invariant("ConsistentOutputRelation", params, "pre_event", clauses)


def input_output(function: str, given: list[Any], back: list[Any], at: int = 0, out: int = 0) -> Invariant:
    one = place(function, "input_tensors", given, at, True)
    two = place(function, "output_tensors", back, out, False)
    return _invariant("ConsistentInputOutputRelation", [one, api(function), two], "pre_event", None)


def at_most(function: str, path: list[Any], limit: str) -> Invariant:
    params = [place(function, limit, None, None, True), api(function), _out(function, path)]
    return _invariant("ThresholdRelation", params, "pre_event", None)


def at_least(function: str, path: list[Any], limit: str) -> Invariant:
    params = [_out(function, path), api(function), place(function, limit, None, None, True)]
    return _invariant("ThresholdRelation", params, "pre_event", None)


def _out(function: str, path: list[Any]) -> dict[str, Any]:
    return place(function, "ret", None, None, False) if not path else place(function, "output_tensors", path, 0, False)


def distinct(function: str, *clauses: tuple[str, str] | dict[str, Any]) -> Invariant:
    told = [c if isinstance(c, dict) else {"type": c[0], "prop_name": c[1]} for c in clauses]
    return _invariant("DistinctArgumentRelation", [api(function)], "distinct_arg", told or None)


def judged(trace: Trace, invariant: Invariant) -> Outcome:
    """The outcome, which is the same step by step."""
    [whole] = check(trace, [invariant]).outcomes
    [stepwise] = check(trace, [invariant], by_step=True).outcomes
    assert whole.to_json() == stepwise.to_json()
    return whole
