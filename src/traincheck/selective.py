"""The selective plan: what a run must observe so that given invariants can be judged.

It stands between relations, which say what they need, and collect, which knows no relation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError

if TYPE_CHECKING:
    from traincheck.invariants import Invariant
    from traincheck.relations.base import Needs


def needs_of(invariants: Iterable[Invariant]) -> Needs:
    """What must be observed for all of these. Raises TraincheckError for one that this version cannot judge."""
    from traincheck.relations.base import Needs
    from traincheck.relations.registry import relation_of

    needs = Needs()
    for invariant in invariants:
        relation = relation_of(invariant.relation)
        reason = (
            f"this version does not know {invariant.relation}" if relation is None else relation.supports(invariant)
        )
        if reason is not None or relation is None:
            raise TraincheckError(
                f"cannot observe what an invariant needs ({invariant.text_description}): {reason}",
                "take that line out of the file, or collect everything: without -i",
            )
        needs = needs | relation.needs(invariant)
    return needs


def selective(plan: Plan, invariants: Iterable[Invariant]) -> Plan:
    """``plan`` narrowed to what the invariants need; sampling, stages and workers stay. Raises TraincheckError.

    It errs on the side of more: a needed function is observed with all arguments and its result, state with all
    attributes. What is left out is the mass of functions and, when no invariant speaks of it, the state.
    """
    needs = needs_of(invariants)
    around = {need.function for need in needs.states if need.function is not None}
    functions = {name: ["*"] for name in sorted({*needs.functions, *(name for name, _ in needs.captures), *around})}
    return replace(plan, scope="selective", functions=functions, state=bool(needs.states or needs.facts))
