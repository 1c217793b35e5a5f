"""The relations there are, in the order in which they are learned and shown."""

from __future__ import annotations

from typing import Final

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


def relation_of(name: str) -> Relation | None:
    """The relation of that name, None when this version has none."""
    return BY_NAME.get(name)
