"""Rules of different programs: what is said of training stays, what is said of a program goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from traincheck.infer import infer
from traincheck.invariants import Invariant, parse_invariant
from traincheck.relations.tables import Tables
from traincheck.relations.transfer import FORWARD, of_one_program, programs

from .worlds import BACKWARD, STEP, World, names_of

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


CONTAIN, LEAD, COVER = "APIContainRelation", "FunctionLeadRelation", "FunctionCoverRelation"
OUTPUT, DISTINCT = "ConsistentOutputRelation", "DistinctArgumentRelation"
OF_TYPE = when(type="constant", prop_name="captures.args[0]@type", values=["mine.CNN"])


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
