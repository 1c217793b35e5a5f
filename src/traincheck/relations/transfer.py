"""What a rule says of training, and what it only says of the program it was learned of.

References of one program may teach what that program does: it clips, it runs under autocast, its model has dropout.
When references are different programs, that they agree on such a thing is no reason to ask it of a third. What stays is
what holds in any training loop, and what the parts of a library do inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from traincheck.invariants import APIParam, Clause, Invariant, VarTypeParam
from traincheck.relations.sequence_roles import Role, role_of
from traincheck.relations.tables import Tables

FORWARD: Final = "torch.nn.modules.module.Module.__call__"

_DISPATCH: Final = (FORWARD, "torch.autograd.function.")
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
    elif relation in ("FunctionLeadRelation", "FunctionCoverRelation"):
        asked = functions[1:] if relation == "FunctionLeadRelation" else functions[:-1]
        for function in asked:
            if role_of(function) not in _ASKED_OF_ALL or not function.startswith(_GENERIC):
                return f"whether {function} is called at all is a matter of the program"
    elif relation == "ConsistentOutputRelation":
        if isinstance(params[1], VarTypeParam) and params[1].attr_name == "dtype":
            return "the dtype computed in is a choice of the program"
    elif relation == "DistinctArgumentRelation" and not _across_processes(invariant):
        return "whether a loop sees the same data twice is a matter of the program"
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
    return any(clause.prop_name in ("captures.args[0]@type", "captures.self@type") for clause in _clauses(invariant))


def _across_processes(invariant: Invariant) -> bool:
    return any(
        clause.type == "unequal" and clause.prop_name in ("process_id", "rank") for clause in _clauses(invariant)
    )
