"""Preconditions and lists of names in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from traincheck.invariants import UNCONDITIONAL, Clause, Group, Invariant
from traincheck.relations.values import say

_WORDS: Final = {
    "meta_vars.stage": "stage",
    "meta_vars.step": "step",
    "process_id": "process",
    "thread_id": "thread",
    "var_name": "name",
    "var_type": "type",
}


def properties(invariant: Invariant) -> set[str]:
    """Names of all properties that the precondition asks for."""
    return {
        clause.prop_name
        for group in invariant.precondition.values()
        for conj in group.preconditions
        for clause in conj.clauses
        if isinstance(clause, Clause)
    }


def condition(invariant: Invariant, group: str, word: str = "when") -> str:
    """`` when stage is training`` for a group of the precondition; empty when unconditional."""
    found = invariant.precondition.get(group)
    if found is None or found.unconditional:
        return ""
    return f" {word} {_group(found)}"


def _group(group: Group) -> str:
    parts = []
    for conj in group.preconditions:
        if conj.clauses == UNCONDITIONAL:
            parts.append("always")
            continue
        parts.append(" and ".join(_clause(clause) for clause in conj.clauses if isinstance(clause, Clause)))
    text = ", or ".join(parts) if parts else "never"
    return f"not ({text})" if group.inverted else text


def _clause(clause: Clause) -> str:
    name = _WORDS.get(clause.prop_name, clause.prop_name.removeprefix("attributes.").removeprefix("meta_vars."))
    if name.startswith("captures."):
        name = name.removeprefix("captures.").replace("@", " ")
    if clause.type in ("constant", "generalised"):
        values = " or ".join(say(value) for value in clause.values or [])
        return f"{name} is {values}"
    return {"consistent": f"the same {name}", "unequal": f"different {name}", "exist": f"{name} is known"}[clause.type]


def names(items: Sequence[str], most: int = 3) -> str:
    """``a, b, c and 4 more``."""
    shown = list(items[:most])
    if len(items) > most:
        return f"{', '.join(shown)} and {len(items) - most} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
