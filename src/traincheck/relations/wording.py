"""Preconditions and lists of names in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from traincheck.invariants import UNCONDITIONAL, Clause, Group, Invariant
from traincheck.relations.names import last
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


def condition(invariant: Invariant, group: str, word: str = "when", without: str = "") -> str:
    """`` when stage is training`` for a group of the precondition; empty when unconditional.

    ``without`` is a property that is told elsewhere.
    """
    found = invariant.precondition.get(group)
    if found is None or found.unconditional:
        return ""
    text = _group(found, without)
    return f" {word} {text}" if text else ""


def constants_of(invariant: Invariant, group: str, prop: str) -> list[Any]:
    """Values that a group with one conjunction demands of a property."""
    found = invariant.precondition.get(group)
    if found is None or found.inverted or len(found.preconditions) != 1:
        return []
    for clause in found.preconditions[0].clauses:
        if isinstance(clause, Clause) and clause.type == "constant" and clause.prop_name == prop:
            return list(clause.values or [])
    return []


def kind_of(invariant: Invariant, group: str, var_type: str) -> str:
    """What the variables are: ``Parameter``, or their role where the precondition names it."""
    roles = constants_of(invariant, group, "role")
    return " or ".join(str(role).replace("_", " ") for role in roles) or last(var_type)


def _group(group: Group, without: str = "") -> str:
    parts = []
    for conj in group.preconditions:
        if conj.clauses == UNCONDITIONAL:
            parts.append("always")
            continue
        clauses = [clause for clause in conj.clauses if isinstance(clause, Clause) and clause.prop_name != without]
        parts.append(" and ".join(map(_clause, clauses)))
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


def asks_captures(group: Group | None) -> bool:
    """Whether a precondition group asks for what was captured."""
    return group is not None and any(
        isinstance(clause, Clause) and clause.prop_name.startswith("captures.")
        for conj in group.preconditions
        for clause in conj.clauses
    )
