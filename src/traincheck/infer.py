"""Learning: from healthy runs to invariants that hold in all of them.

A thin engine: relations propose, this sorts, folds, checks every invariant against the very runs it comes from, and
keeps the rejected ones with the reason. The same traces give the same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from traincheck.errors import TraincheckError
from traincheck.invariants import SCHEMA, Invariant, save_invariants
from traincheck.relations.base import Candidate, Judgement, Numbered, Relation, merge, unwatched
from traincheck.relations.registry import ALL, BY_NAME
from traincheck.relations.tables import Tables
from traincheck.relations.transfer import of_one_program, programs
from traincheck.trace import Trace, open_trace

REJECTED: Final = ".rejected"
"""Ending of the file of rejected candidates, beside the invariant file."""


@dataclass(frozen=True)
class Rejected:
    """A candidate that did not become an invariant: why, and the counter-example if there is one."""

    invariant: Invariant
    reason: str
    counterexample: str | None = None

    def to_json(self) -> dict[str, Any]:
        """One line of the ``.rejected`` file."""
        return {"reason": self.reason, "counterexample": self.counterexample, "invariant": self.invariant.to_json()}


@dataclass(frozen=True)
class Inference(Sequence[Invariant]):
    """What was learned. A sequence of invariants, with what was rejected and where they come from."""

    invariants: tuple[Invariant, ...]
    rejected: tuple[Rejected, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.invariants)

    def __getitem__(self, index: Any) -> Any:
        return self.invariants[index]

    def __iter__(self) -> Iterator[Invariant]:
        return iter(self.invariants)

    def save(self, path: str | Path) -> None:
        """Write the invariant file, its provenance and ``<path>.rejected``. Raises ``TraincheckError``."""
        target = Path(path)
        save_invariants(self.invariants, target, self.provenance)
        lines = [json.dumps(item.to_json(), ensure_ascii=False) for item in self.rejected]
        try:
            target.with_name(target.name + REJECTED).write_text(
                "".join(f"{line}\n" for line in lines), encoding="utf-8"
            )
        except OSError as error:
            raise TraincheckError(f"cannot write {target}{REJECTED}: {error.strerror or error}") from None


def infer(
    runs: Sequence[str | Path | Trace],
    *,
    relations: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Inference:
    """Invariants that hold in all of ``runs`` (trace folders or open traces).

    ``relations`` are names to learn (default: all). ``progress`` is told what is being done.
    Raises ``TraincheckError`` when there is no run, a run cannot be read, or a relation is unknown.
    """
    if not runs:
        raise TraincheckError("expected at least one healthy run to learn from, found none", "give a trace folder")
    say = progress or (lambda _: None)
    chosen = _relations(relations)
    traces = [run if isinstance(run, Trace) else open_trace(run) for run in runs]
    references = [Tables.of(trace, _name(trace, n)) for n, trace in enumerate(traces)]

    different = programs(references)
    accepted: list[Invariant] = []
    rejected: list[Rejected] = []
    for relation in chosen:
        say(f"learning {relation.name}")
        good: list[Invariant] = []
        for candidate in relation.hypothesize(references):
            invariant = finished(relation, candidate.invariant)
            if candidate.rejected is None:
                good.append(invariant)
            else:
                rejected.append(Rejected(invariant, candidate.rejected, candidate.counterexample))
        say(f"checking {len(good)} of {relation.name} against the references")
        kept, failed = _self_check(relation, _once(good), references)
        if different > 1:
            failed += [Rejected(one, f"of {different} programs: {why}") for one in kept if (why := of_one_program(one))]
            kept = [one for one in kept if of_one_program(one) is None]
        rejected += failed
        accepted += relation.fold(kept)
    accepted.sort(key=lambda item: (item.relation, item.text_description, item.key))
    rejected.sort(key=lambda item: (item.invariant.relation, item.invariant.text_description, item.invariant.key))
    provenance = {
        "kind": "traincheck invariants",
        "traincheck": _version(),
        "relations": [relation.name for relation in chosen],
        "invariants": len(accepted),
        "rejected": len(rejected),
        "references": [_reference(trace, n) for n, trace in enumerate(traces)],
    }
    return Inference(tuple(accepted), tuple(rejected), provenance)


def finished(relation: Relation, invariant: Invariant) -> Invariant:
    """With its sentence, version and id."""
    named = invariant.model_copy(update={"text_description": relation.describe(invariant), "schema_version": SCHEMA})
    return named.model_copy(update={"id": named.key})


def _once(invariants: Sequence[Invariant]) -> list[Invariant]:
    return list({invariant.key: invariant for invariant in reversed(invariants)}.values())[::-1]


def _self_check(
    relation: Relation, invariants: Sequence[Invariant], references: Sequence[Tables]
) -> tuple[list[Invariant], list[Rejected]]:
    """Nothing is written that its own references break, or that none of them ever applies.

    Of several references two at least must show it: what only one does may be its own way of doing things.
    """
    numbered = [Numbered(number, invariant) for number, invariant in enumerate(invariants)]
    parts = []
    for reference in references:
        able = [item for item in numbered if unwatched(relation, item.invariant, reference.watch) is None]
        parts.append(relation.evaluate(able, reference.window(), None)[0])
    judged = merge(parts)
    totals = judged.counts.group_by("invariant").agg(pl.col("applied", "violated").sum())
    applied = {int(row[0]): (int(row[1]), int(row[2])) for row in totals.iter_rows()}
    showing: Counter[int] = Counter()
    for part in parts:
        showing.update(part.counts.filter(pl.col("applied") > 0)["invariant"].unique().to_list())
    kept, failed = [], []
    for number, invariant in enumerate(invariants):
        count, broken = applied.get(number, (0, 0))
        if broken:
            failed.append(
                Rejected(invariant, "violated by its own references", _first(relation, invariant, judged, number))
            )
        elif not count:
            failed.append(Rejected(invariant, "never applies in its own references"))
        elif showing[number] < min(2, len(references)):
            failed.append(Rejected(invariant, f"only one of {len(references)} references shows it"))
        else:
            kept.append(invariant)
    return kept, failed


def _first(relation: Relation, invariant: Invariant, judged: Judgement, number: int) -> str:
    rows = judged.violations.filter(pl.col("invariant") == number).head(1).to_dicts()
    return f"{relation.explain(invariant, rows).observed}, step {rows[0]['step']}" if rows else ""


def _relations(names: Sequence[str] | None) -> list[Relation]:
    if names is None:
        return list(ALL)
    for name in names:
        if name not in BY_NAME:
            raise TraincheckError(f"unknown relation {name!r}", f"one of {', '.join(BY_NAME)}")
    return [relation for relation in ALL if relation.name in set(names)]


def _name(trace: Trace, number: int) -> str:
    return str(trace.path) if trace.path is not None else f"run {number}"


def _reference(trace: Trace, number: int) -> dict[str, Any]:
    manifest = trace.manifest
    return {
        "run": _name(trace, number),
        "command": list(manifest.command) if manifest is not None and manifest.command else None,
        "plan_hash": manifest.plan_hash if manifest is not None else None,
        "processes": len(trace.processes),
        "steps": len(trace.steps),
        "lacks": len(trace.lacks),
    }


def _version() -> str:
    from traincheck import __version__

    return __version__


__all__ = ["REJECTED", "Candidate", "Inference", "Rejected", "finished", "infer"]
