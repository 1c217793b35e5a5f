"""Putting invariant files together: every rule once, its support and provenance from all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from traincheck.invariants import Invariant
from traincheck.manage.sets import Source

_ADDED: Final = ("applications", "excluded", "steps", "references")
"""Figures of support that add up over different references; of all others the largest is kept."""


@dataclass(frozen=True)
class Merged:
    """The rules of all sources, sorted as ``infer`` sorts them."""

    invariants: tuple[Invariant, ...]
    read: int
    """Lines read; the difference to ``invariants`` are duplicates."""
    several_preconditions: int
    """Rules (relation and parameters) that stand in the result with more than one precondition."""


def merge(sources: Sequence[Source]) -> Merged:
    """One set of all: a union, equal keys once.

    Support of equal ones is added when their files come from different references (``Source.origins``), and is the
    largest of each figure when they share one: a run must not count twice. Ranks are always the largest. Nothing is
    judged: what was learned from one run is not known to hold in the others (``infer RUN RUN`` finds out).
    """
    kept: dict[str, tuple[Invariant, frozenset[str]]] = {}
    count = 0
    for source in sources:
        for invariant in source.invariants:
            count += 1
            known = kept.get(invariant.key)
            if known is None:
                kept[invariant.key] = (invariant, source.origins)
            else:
                first, origins = known
                kept[invariant.key] = (
                    _both(first, invariant, bool(origins & source.origins)),
                    origins | source.origins,
                )
    ordered = sorted(
        ((invariant.relation, invariant.text_description, key), invariant) for key, (invariant, _) in kept.items()
    )
    invariants = tuple(invariant for _, invariant in ordered)
    rules = Counter(rule_of(invariant) for invariant in invariants)
    return Merged(invariants, count, sum(number > 1 for number in rules.values()))


def rule_of(invariant: Invariant) -> str:
    """What identifies relation and parameters, whatever the precondition."""
    return invariant.model_copy(update={"precondition": {}}).key


def _both(first: Invariant, second: Invariant, shared: bool) -> Invariant:
    changes: dict[str, Any] = {}
    if first.support is None or second.support is None:
        if first.support is None and second.support is not None:
            changes["support"] = second.support
    else:
        ours, theirs = first.support.model_dump(), second.support.model_dump()
        figures = {
            name: _figure(ours.get(name), theirs.get(name), add=name in _ADDED and not shared)
            for name in ours
            if name in first.support.model_fields_set | second.support.model_fields_set
        }
        changes["support"] = type(first.support).model_validate(figures)
    for name in ("num_positive_examples", "num_negative_examples"):
        figure = _figure(getattr(first, name), getattr(second, name), add=not shared)
        if figure is not None:
            changes[name] = figure
    return first.model_copy(update=changes)


def _figure(ours: Any, theirs: Any, add: bool) -> Any:
    if not isinstance(ours, (int, float)) or not isinstance(theirs, (int, float)):
        return theirs if ours is None else ours
    return ours + theirs if add else max(ours, theirs)
