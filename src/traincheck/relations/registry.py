"""The relations there are, in the order in which they are learned and shown."""

from __future__ import annotations

from typing import Final

from traincheck.invariants import APIParam, Invariant
from traincheck.relations.base import Relation
from traincheck.relations.consistency import Consistency
from traincheck.relations.consistent_input_output import ConsistentInputOutput
from traincheck.relations.consistent_output import ConsistentOutput
from traincheck.relations.contain import APIContain
from traincheck.relations.cover import FunctionCover
from traincheck.relations.distinct_argument import DistinctArgument
from traincheck.relations.lead import FunctionLead
from traincheck.relations.threshold import Threshold

ALL: Final[tuple[Relation, ...]] = (
    APIContain(),
    Consistency(),
    ConsistentOutput(),
    ConsistentInputOutput(),
    FunctionCover(),
    FunctionLead(),
    DistinctArgument(),
    Threshold(),
)

BY_NAME: Final[dict[str, Relation]] = {relation.name: relation for relation in ALL}


GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "APIContainRelation": ("parent_func_call_pre", "var_events"),
    "ConsistencyRelation": ("var",),
    "ConsistentOutputRelation": ("pre_event",),
    "ConsistentInputOutputRelation": ("pre_event",),
    "FunctionCoverRelation": ("func_cover",),
    "FunctionLeadRelation": ("func_lead",),
    "DistinctArgumentRelation": ("distinct_arg",),
    "ThresholdRelation": ("pre_event",),
}
"""The groups of a precondition that each relation reads."""


def unjudged(invariant: Invariant) -> str | None:
    """Why this version cannot judge the invariant, whatever the run; None when it can.

    A group that its relation does not read would be a condition left out: judged without it, it is another rule.
    """
    relation = relation_of(invariant.relation)
    if relation is None:
        return f"{invariant.relation} is not judged by this version"
    read = GROUPS[relation.name]
    if isinstance(invariant.params[-1], APIParam):
        read = tuple(name for name in read if name != "var_events")
    strange = sorted(set(invariant.precondition) - set(read))
    if strange:
        return f"the precondition has groups that are not read here ({', '.join(strange)}); expected {', '.join(read)}"
    return relation.supports(invariant)


def relation_of(name: str) -> Relation | None:
    """The relation of that name, None when this version has none."""
    return BY_NAME.get(name)
