"""Rules of different programs: what is said of training stays, what is said of a program goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from traincheck.check import check
from traincheck.infer import finished, infer
from traincheck.invariants import Invariant, parse_invariant
from traincheck.relations.registry import BY_NAME
from traincheck.relations.tables import Tables
from traincheck.relations.transfer import FORWARD, general, of_one_program, programs

from .worlds import BACKWARD, STEP, ZERO, World, names_of

API = "APIParam"
CLIP = "torch.nn.utils.clip_grad.clip_grad_norm_"


def rule(relation: str, *params: Any, **groups: Any) -> Invariant:
    told = [{"param_type": API, "api_full_name": p} if isinstance(p, str) else p for p in params]
    text = {"text_description": "", "relation": relation, "params": told, "precondition": groups}
    return parse_invariant(json.dumps(text))


def when(**clause: Any) -> dict[str, Any]:
    full = {"additional_path": "None", "prop_dtype": "str", **clause}
    return {"inverted": False, "preconditions": [{"clauses": [full]}]}


def output(attribute: str, value: object) -> dict[str, Any]:
    return {"param_type": "VarTypeParam", "var_type": "torch.Tensor", "attr_name": attribute, "const_value": value}


def child(function: str, **arguments: object) -> dict[str, Any]:
    given = {name: {type(value).__name__: value} for name, value in arguments.items()}
    return {"param_type": API, "api_full_name": function, "arguments": {"args": given, "func_name": function}}


def change(attribute: str, before: object, after: object) -> dict[str, Any]:
    values = {"pre_value": before, "post_value": after}
    return {"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter", "attr_name": attribute, **values}


def place(attribute: str, given: bool) -> dict[str, Any]:
    told = {"name": "input", "index": 0, "type": "torch.Tensor", "additional_path": [attribute], "api_name": LINEAR}
    return {"param_type": "InputOutputParam", "is_input": given, **told}


CONTAINER = "torch.nn.modules.container"
SEQUENTIAL = f"{CONTAINER}.Sequential.forward"
LINEAR = "torch.nn.modules.linear.Linear.forward"
INPUT = "ConsistentInputOutputRelation"
CONTAIN, LEAD, COVER = "APIContainRelation", "FunctionLeadRelation", "FunctionCoverRelation"
OUTPUT, DISTINCT = "ConsistentOutputRelation", "DistinctArgumentRelation"
OF_TYPE = when(type="constant", prop_name="captures.args[0]@type", values=["mine.CNN"])


OF_CONTAINER = when(type="constant", prop_name="captures.args[0]@type", values=["mine.CNN", f"{CONTAINER}.Sequential"])


def test_rules_of_parameters_are_put_so_that_they_hold_of_others() -> None:
    always = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}
    moves = rule(CONTAIN, STEP, change("data", "non_none", "non_none"), var_events=always, parent_func_call_pre=always)
    told = finished(BY_NAME[CONTAIN], general(moves)).text_description
    assert "where requires_grad is True" in told
    assert "when optimizer.lr is above-zero" in told
    assert general(general(moves)) == general(moves)
    grows = rule(CONTAIN, BACKWARD, change("grad", None, "non_none"), var_events=always)
    told = finished(BY_NAME[CONTAIN], general(grows)).text_description
    assert "anything --> non-None where requires_grad is True" in told
    some = rule(CONTAIN, STEP, change("data", "non_none", "non_none"))
    for other in (rule(COVER, BACKWARD, STEP), some):
        assert general(other) == other


def test_a_program_that_freezes_sums_and_warms_up_is_not_blamed() -> None:
    learned = infer([World().trace(), World(names=names_of(4)).trace()])  # the same program, said to be two
    two = [finished(BY_NAME[one.relation], general(one)) for one in learned if of_one_program(one) is None]
    assert two
    frozen = World(names=(*names_of(3), "zfrozen.weight"), frozen=("zfrozen.weight",), accumulate=2, warmup=2)
    assert check(frozen.trace(), two).summary["violated"] == 0
    assert check(frozen.trace(), learned).summary["violated"] > 0


@pytest.mark.parametrize(
    ("invariant", "of_training"),
    [
        (rule(CONTAIN, STEP, "torch.optim.adamw.adamw"), True),
        (rule(CONTAIN, FORWARD, "torch.nn.modules.dropout.Dropout.forward"), False),
        (rule(CONTAIN, FORWARD, "torch.nn.functional.dropout", parent_func_call_pre=OF_TYPE), True),
        (rule(CONTAIN, STEP, child("torch.optim.adamw.adamw", amsgrad=False)), False),
        (rule(CONTAIN, "torch.nn.Dropout.forward", child("torch.nn.functional.dropout", training=True)), True),
        (rule(COVER, BACKWARD, STEP), True),
        (rule(COVER, CLIP, STEP), False),
        (rule(LEAD, BACKWARD, STEP), False),  # another program has another optimizer
        (rule(LEAD, CLIP, BACKWARD), True),
        (rule(LEAD, STEP, ZERO), True),
        (rule(LEAD, ZERO, BACKWARD), True),
        (rule(LEAD, BACKWARD, ZERO), False),  # it may sum over micro-batches
        (rule(COVER, ZERO, BACKWARD), False),
        (rule(COVER, FORWARD, ZERO), False),  # it may clear gradients first
        (rule(CONTAIN, ZERO, change("grad", "non_none", None)), False),
        (rule(CONTAIN, SEQUENTIAL, "torch.nn.modules.linear.Linear.forward"), False),
        (rule(CONTAIN, FORWARD, "torch.nn.modules.linear.Linear.forward", parent_func_call_pre=OF_CONTAINER), False),
        (rule(INPUT, place("dtype", True), LINEAR, place("dtype", False)), False),
        (rule(INPUT, place("shape", True), LINEAR, place("shape", False)), True),
        (rule(INPUT, place("shape", True), FORWARD, place("shape", False)), False),
        (rule(OUTPUT, "torch.nn.Linear.forward", output("dtype", "torch.bfloat16")), False),
        (rule(OUTPUT, "torch.nn.Linear.forward", output("requires_grad", True)), True),
        (rule(DISTINCT, FORWARD), False),
        (rule(DISTINCT, FORWARD, distinct_arg=when(type="unequal", prop_name="process_id", prop_dtype="int")), True),
    ],
    ids=lambda value: value.relation if isinstance(value, Invariant) else None,
)
def test_what_is_said_of_training(invariant: Invariant, of_training: bool) -> None:
    why = of_one_program(invariant)
    assert (why is None) == of_training, why


def test_runs_of_one_program_are_one() -> None:
    runs = [World(), World(seed=4, steps=9), World(names=names_of(5))]
    assert programs([Tables.of(world.trace()) for world in runs]) == 1


def test_of_several_references_two_must_show_it() -> None:
    one = infer([World().trace()], relations=["APIContainRelation"])
    both = infer([World().trace(), World(ranks=1, fused_from=1).trace()], relations=["APIContainRelation"])
    assert len(both) < len(one)
    lost = {i.text_description for i in one} - {i.text_description for i in both}
    assert lost
    reasons = {item.reason for item in both.rejected}
    assert len(infer([World().trace(), World(seed=2).trace()], relations=["APIContainRelation"])) == len(one)
    assert reasons
