"""Comparing two sets of invariants: what only one of them has, and what changed in the rules of both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from traincheck.invariants import Invariant, InvariantSet
from traincheck.manage.merge import rule_of
from traincheck.manage.words import condition_line, parameters, row, support_line

SCHEMA: Final = 1
"""Version of ``Difference.to_json``."""


@dataclass(frozen=True)
class Change:
    """The same relation and parameters in both sets. Positions in A and B; ``what``: precondition, support, or both."""

    a: int
    b: int
    what: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """Positions of invariants in A and in B. Equal lines of one set count once."""

    first: InvariantSet
    second: InvariantSet
    only_a: tuple[int, ...]
    only_b: tuple[int, ...]
    changed: tuple[Change, ...]
    unchanged: int

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.only_a or self.only_b or self.changed)

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {
            "schema": SCHEMA,
            "same": self.same,
            "only_in_a": [row(self.first, number) for number in self.only_a],
            "only_in_b": [row(self.second, number) for number in self.only_b],
            "changed": [
                {
                    "relation": self.first[change.a].relation,
                    "text": self.first[change.a].text_description,
                    "what": list(change.what),
                    "a": _side(self.first, change.a),
                    "b": _side(self.second, change.b),
                }
                for change in self.changed
            ],
            "unchanged": self.unchanged,
        }

    def text(self) -> str:
        """What a person reads."""
        lines: list[str] = []
        texts_a = {self.first[number].text_description for number in self.only_a}
        alike = {self.second[number].text_description for number in self.only_b} & texts_a
        for word, mark, those, numbers in (
            ("only in A", "-", self.first, self.only_a),
            ("only in B", "+", self.second, self.only_b),
        ):
            if numbers:
                lines.append(f"{word}: {len(numbers):,}")
            for number in numbers:
                text = those[number].text_description
                lines.append(f"  {mark} {number} {text}")
                if text in alike:  # the words are the same: only the full names tell them apart
                    lines += [f"      {line}" for line in (*parameters(those[number]), condition_line(those[number]))]
        if self.changed:
            lines.append(f"changed: {len(self.changed):,}")
        for change in self.changed:
            a, b = self.first[change.a], self.second[change.b]
            lines.append(f"  ~ {change.a} -> {change.b} {a.text_description}")
            if "precondition" in change.what:
                lines.append(f"      precondition: {condition_line(a)}  ->  {condition_line(b)}")
            if "support" in change.what:
                lines.append(f"      support: {support_line(a)}  ->  {support_line(b)}")
        lines.append(f"{'the same' if self.same else 'unchanged'}: {self.unchanged:,}")
        return "\n".join(lines)


def diff(first: InvariantSet, second: InvariantSet, *, ignore_support: bool = False) -> Difference:
    """How two sets differ. With ``ignore_support`` figures do not count, only rules and their preconditions.

    Order, wording and sources do not count. Of a rule with other preconditions in B than in A, these are paired in
    order; what is left over is only in one.
    """
    a, b = _by_key(first), _by_key(second)
    changed = [
        Change(a[key], b[key], ("support",))
        for key in a
        if key in b and not ignore_support and _support(first[a[key]]) != _support(second[b[key]])
    ]
    unchanged = sum(key in b for key in a) - len(changed)
    ours = _by_rule(first, (number for key, number in a.items() if key not in b))
    theirs = _by_rule(second, (number for key, number in b.items() if key not in a))
    only_a: list[int] = []
    for rule, numbers in ours.items():
        others = theirs.get(rule, [])
        for number, other in zip(numbers, others, strict=False):
            both = not ignore_support and _support(first[number]) != _support(second[other])
            changed.append(Change(number, other, ("precondition", "support") if both else ("precondition",)))
        only_a += numbers[len(others) :]
        theirs[rule] = others[len(numbers) :]
    only_b = sorted(number for numbers in theirs.values() for number in numbers)
    changed.sort(key=lambda change: (change.a, change.b))
    return Difference(first, second, tuple(sorted(only_a)), tuple(only_b), tuple(changed), unchanged)


def _by_key(invariants: InvariantSet) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, invariant in enumerate(invariants):
        found.setdefault(invariant.key, number)
    return found


def _by_rule(invariants: InvariantSet, numbers: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number in numbers:
        found.setdefault(rule_of(invariants[number]), []).append(number)
    return found


def _support(invariant: Invariant) -> Any:
    if invariant.support is not None:
        return invariant.support
    return (invariant.num_positive_examples, invariant.num_negative_examples)


def _side(invariants: InvariantSet, number: int) -> dict[str, Any]:
    invariant: Invariant = invariants[number]
    return {
        "index": number,
        "id": invariant.key,
        "precondition": condition_line(invariant),
        "support": invariant.support.model_dump() if invariant.support is not None else None,
    }
