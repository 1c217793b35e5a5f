"""What a rule says of training, and what it only says of the program it was learned of.

References of one program may teach what that program does: it clips, it runs under autocast, its model has dropout.
When references are different programs, that they agree on such a thing is no reason to ask it of a third. What stays is
what holds in any training loop, and what the parts of a library do inside.

How a loop is built is a choice as well: gradients are cleared before or after, to None or to zero, each time or after
several micro-batches; layers are frozen, the learning rate starts at 0. Rules are put so that these do not break them
(``general``), or go.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import polars as pl

from traincheck.invariants import (
    UNCONDITIONAL,
    APIParam,
    Clause,
    Conjunction,
    Group,
    InputOutputParam,
    Invariant,
    Param,
    VarTypeParam,
)
from traincheck.relations.contain_calls import PARENT
from traincheck.relations.contain_states import VARIABLE
from traincheck.relations.sequence_roles import Role, role_of
from traincheck.relations.tables import Tables

FORWARD: Final = "torch.nn.modules.module.Module.__call__"

_CONTAINERS: Final = "torch.nn.modules.container."

_DISPATCH: Final = (FORWARD, _CONTAINERS, "torch.autograd.function.")
"""Beginnings of names of functions that call what they are given: what is inside belongs to the program."""

_ASKED_OF_ALL: Final = frozenset((Role.BACKWARD, Role.FORWARD, Role.ZERO))
"""What every loop does, in functions that every loop uses: not a certain optimizer's step."""

_GENERIC: Final = ("torch.",)

_MODES: Final = frozenset(("training", "train"))
"""Arguments that tell a layer the stage, in any program."""


def programs(references: Sequence[Tables]) -> int:
    """How many different programs these are runs of, told from the models they trained: their types and layers."""
    return len({_models(reference) for reference in references})


def of_one_program(invariant: Invariant) -> str | None:
    """None, or why the rule is about a program and not about training."""
    relation, params = invariant.relation, invariant.params
    functions = [param.api_full_name for param in params if isinstance(param, APIParam)]
    if relation == "APIContainRelation":
        if len(functions) == 2 and functions[0].startswith(_DISPATCH) and not _names_the_type(invariant):
            return f"what {functions[0].rpartition('.')[2]}() contains is a matter of the model"
        if any(
            set(param.arguments.args) - _MODES for param in params if isinstance(param, APIParam) and param.arguments
        ):
            return "with which options a function is called is a matter of the program"
        if _clears(invariant):
            return "whether gradients are cleared to None or to zero is a choice of the program"
    elif relation in ("FunctionLeadRelation", "FunctionCoverRelation"):
        if why := _phase(relation, functions):
            return why
        asked = functions[1:] if relation == "FunctionLeadRelation" else functions[:-1]
        for function in asked:
            if role_of(function) not in _ASKED_OF_ALL or not function.startswith(_GENERIC):
                return f"whether {function} is called at all is a matter of the program"
    elif relation == "ConsistentOutputRelation":
        if isinstance(params[1], VarTypeParam) and params[1].attr_name == "dtype":
            return "the dtype computed in is a choice of the program"
    elif relation == "ConsistentInputOutputRelation":
        if functions[0].startswith(_DISPATCH):
            return "what a model makes of its input is a matter of the model"
        if any(isinstance(param, InputOutputParam) and param.additional_path == ["dtype"] for param in params):
            return "whether there is autocast is a choice of the program"
    elif relation == "DistinctArgumentRelation" and not _across_processes(invariant):
        return "whether a loop sees the same data twice is a matter of the program"
    return None


def general(invariant: Invariant) -> Invariant:
    """The rule as it may be asked of another program: of trainable parameters, and of steps that go somewhere."""
    parent, child = invariant.params[0], invariant.params[-1]
    if not (isinstance(parent, APIParam) and isinstance(child, VarTypeParam)) or not _moves(invariant):
        return invariant
    role = role_of(parent.api_full_name)
    groups = dict(invariant.precondition)
    trainable = Clause(
        type="constant",
        prop_name="attributes.requires_grad",
        additional_path="None",
        prop_dtype="bool",
        values=[True],
    )
    params: list[Param] = list(invariant.params)
    if role is Role.BACKWARD and child.attr_name == "grad":
        # In the second of several micro-batches there are gradients already.
        params[-1] = child.model_copy(update={"pre_value": "anything"})
    elif role is Role.STEP and child.attr_name == "data":
        moving = Clause(type="generalised", prop_name="optimizer.lr", values=["above_zero"])
        groups[PARENT] = _and(groups.get(PARENT), moving)
    else:
        return invariant
    groups[VARIABLE] = _and(groups.get(VARIABLE), trainable)
    return invariant.model_copy(update={"params": params, "precondition": groups})


def _moves(invariant: Invariant) -> bool:
    """Whether it says of every parameter that its content or gradient changes to something."""
    child, group = invariant.params[-1], invariant.precondition.get(VARIABLE)
    if not isinstance(child, VarTypeParam) or group is None or not group.preconditions:
        return False
    return child.var_type.endswith("Parameter") and child.is_set("post_value") and child.post_value is not None


def _and(group: Group | None, clause: Clause) -> Group:
    """The group with one clause more in each of its conjunctions."""
    conjunctions = group.preconditions if group is not None else []
    result = []
    for conj in conjunctions or [Conjunction(clauses=[])]:
        rest = [one for one in conj.clauses if isinstance(one, Clause)] if conj.clauses != UNCONDITIONAL else []
        known = any(one.prop_name == clause.prop_name for one in rest)
        result.append(Conjunction(clauses=rest if known else [clause, *rest]))
    return Group(inverted=False, preconditions=result)


def _clears(invariant: Invariant) -> bool:
    child = invariant.params[-1]
    if not isinstance(child, VarTypeParam) or child.attr_name != "grad":
        return False
    return child.is_set("post_value") and child.post_value is None


def _phase(relation: str, functions: Sequence[str]) -> str | None:
    """Orders that only say where in the loop, and how often, gradients are cleared."""
    covers = relation == "FunctionCoverRelation"
    for one, two in pairwise(map(role_of, functions)):
        if covers and two is Role.ZERO:
            return "whether gradients are cleared before or after the rest is a matter of the program"
        if (one, two) == (Role.BACKWARD, Role.ZERO) or (covers and (one, two) == (Role.ZERO, Role.BACKWARD)):
            return "whether gradients are summed over several micro-batches is a choice of the program"
    return None


def _models(reference: Tables) -> tuple[str, ...]:
    """Types of the models called in training, and the layers that were."""
    calls = reference.calls.filter(pl.col("stage").cast(pl.String) == "training").select(
        "process", "call", pl.col("function").cast(pl.String)
    )
    called = reference.captures.filter(
        pl.col("function").cast(pl.String) == FORWARD,
        pl.col("path").cast(pl.String).is_in(["self", "args[0]"]),
        pl.col("moment").cast(pl.String) == "in",
    ).join(calls, on=["process", "call"], how="semi")
    layers = calls["function"].unique().drop_nulls()
    types = called["type"].cast(pl.String).drop_nulls().unique().to_list()
    return tuple(sorted([*types, *layers.filter(layers.str.ends_with(".forward")).to_list()]))


def _clauses(invariant: Invariant) -> list[Clause]:
    groups = invariant.precondition.values()
    return [c for group in groups for conj in group.preconditions for c in conj.clauses if isinstance(c, Clause)]


def _names_the_type(invariant: Invariant) -> bool:
    types = ("captures.args[0]@type", "captures.self@type")
    named = [value for clause in _clauses(invariant) if clause.prop_name in types for value in clause.values or []]
    return bool(named) and not any(str(value).startswith(_CONTAINERS) for value in named)


def _across_processes(invariant: Invariant) -> bool:
    return any(
        clause.type == "unequal" and clause.prop_name in ("process_id", "rank") for clause in _clauses(invariant)
    )
