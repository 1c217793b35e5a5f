"""Findings: violations that have one likely cause, told once, the earliest and most specific first."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from traincheck.invariants import Invariant
from traincheck.relations.base import Explanation
from traincheck.relations.registry import relation_of

MOST_TENSORS: Final = 50


@dataclass(frozen=True)
class Finding:
    """One thing that broke: what, since when, where, and what to do next."""

    title: str
    outcome_indexes: tuple[int, ...]
    first_step: int | None
    ranks: tuple[int, ...]
    apis: tuple[str, ...]
    tensors: tuple[str, ...]
    location: str | None
    expected: str
    observed: str
    meaning: str
    next_command: str

    def to_json(self) -> dict[str, Any]:
        """The object of ``findings.json`` and of ``--json``."""
        return {
            "title": self.title,
            "outcome_indexes": list(self.outcome_indexes),
            "first_step": self.first_step,
            "ranks": list(self.ranks),
            "apis": list(self.apis),
            "tensors": list(self.tensors),
            "location": self.location,
            "expected": self.expected,
            "observed": self.observed,
            "meaning": self.meaning,
            "next": self.next_command,
        }


@dataclass(frozen=True)
class _Broken:
    number: int
    step: int
    at: tuple[int, int]
    explanation: Explanation
    ranks: tuple[int, ...]
    location: str | None


def group_findings(
    invariants: Sequence[Invariant], violations: Mapping[int, pl.DataFrame], run: str, reference: str | None
) -> list[Finding]:
    """Findings from violations (invariant number -> its rows, earliest first)."""
    groups: dict[str, list[_Broken]] = {}
    for number in sorted(violations):
        broken = _explained(number, invariants[number], violations[number])
        if broken is not None:
            groups.setdefault(broken.explanation.kind, []).append(broken)
    words = ["trace", "diff", reference, run] if reference else ["trace", "show", run]
    command = shlex.join(["traincheck", *words])
    ordered = []
    for members in groups.values():
        members.sort(key=lambda one: (one.step, -one.explanation.specificity, one.at, one.number))
        first = members[0]
        finding = Finding(
            title=first.explanation.title,
            outcome_indexes=tuple(sorted(one.number for one in members)),
            first_step=first.step,
            ranks=tuple(sorted({rank for one in members for rank in one.ranks})),
            apis=tuple(dict.fromkeys(api for one in members for api in one.explanation.apis)),
            tensors=tuple(dict.fromkeys(t for one in members for t in one.explanation.tensors))[:MOST_TENSORS],
            location=next((one.location for one in members if one.location), None),
            expected=first.explanation.expected,
            observed=first.explanation.observed,
            meaning=first.explanation.meaning,
            next_command=command,
        )
        ordered.append(((first.step, -first.explanation.specificity, first.at, finding.title), finding))
    return [finding for _, finding in sorted(ordered, key=lambda pair: pair[0])]


def _explained(number: int, invariant: Invariant, rows: pl.DataFrame) -> _Broken | None:
    relation = relation_of(invariant.relation)
    if relation is None or rows.is_empty():
        return None
    step = rows["step"].min()
    early = rows.filter(pl.col("step") == step) if step is not None else rows
    ranks = {int(rank) for name in ("rank", "other_rank") for rank in rows[name].drop_nulls().to_list()}
    dicts = early.to_dicts()
    return _Broken(
        number=number,
        step=int(dicts[0]["step"] or 0),
        at=(int(dicts[0]["time_ns"] or 0), int(dicts[0]["seq"] or 0)),
        explanation=relation.explain(invariant, dicts),
        ranks=tuple(sorted(ranks)),
        location=next((row["location"] for row in dicts if row["location"]), None),
    )
