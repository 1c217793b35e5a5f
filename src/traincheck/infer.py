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

from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError
from traincheck.invariants import SCHEMA, Equivalent, Invariant, write_files
from traincheck.projection import project
from traincheck.relations.base import Candidate, Judgement, Numbered, Place, Relation, merge, unwatched
from traincheck.relations.registry import ALL, BY_NAME
from traincheck.relations.tables import Tables
from traincheck.relations.transfer import general, of_one_program, programs
from traincheck.selective import selective
from traincheck.trace import Trace, open_trace
from traincheck.workers import side_by_side

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how many steps are done, and of how many."""

REJECTED: Final = ".rejected"
"""Ending of the file of rejected candidates, beside the invariant file."""


@dataclass(frozen=True)
class Rejected:
    """A candidate that did not become an invariant: why, and the counter-example if there is one."""

    invariant: Invariant
    reason: str
    counterexample: str | None = None
    place: Place | None = None
    """The call in the counter-example; not in the file, whose readers have no references at hand."""

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
        rejected = "".join(json.dumps(item.to_json(), ensure_ascii=False) + "\n" for item in self.rejected)
        write_files(self.invariants, path, self.provenance, beside={REJECTED: rejected})


def infer(
    runs: Sequence[str | Path | Trace],
    *,
    relations: Sequence[str] | None = None,
    without: Sequence[str] = (),
    jobs: int = 1,
    progress: Progress | None = None,
) -> Inference:
    """Invariants that hold in all of ``runs`` (trace folders or open traces).

    ``relations`` are names to learn (default: all), ``without`` names to leave out. ``jobs`` processes learn relations
    side by side; the result is the same. ``progress(what, done, total)`` is told how far it is.
    Raises ``TraincheckError`` when there is no run, a run cannot be read or comes twice, or a relation is unknown.
    """
    if not runs:
        raise TraincheckError("expected at least one healthy run to learn from, found none", "give a trace folder")
    if jobs < 1:
        raise TraincheckError(f"expected at least one process to learn with, found --jobs {jobs}", "--jobs 2")
    chosen = _relations(relations, without)
    total = len(chosen) + 2
    say = progress or (lambda what, done, total: None)
    say("reading", 0, total)
    traces = [run if isinstance(run, Trace) else open_trace(run) for run in runs]
    folders = [trace.path.resolve() for trace in traces if trace.path is not None]
    twice = next((folder for n, folder in enumerate(folders) if folder in folders[:n]), None)
    if twice is not None:  # it would make everything look as sure as two runs do
        raise TraincheckError(f"expected different runs, found {twice} twice", "give each run once")
    references = tables_of(traces)
    different = programs(references)

    kept: list[Invariant] = []
    rejected: list[Rejected] = []
    learning = _each(chosen, references, traces, different, jobs)
    for done, relation in enumerate(chosen, start=1):
        say(f"learning {relation.name}", done, total)
        good, failed = next(learning)
        kept += good
        rejected += failed
    say("checking in selective form", total - 1, total)
    accepted, failed = _selective_check(kept, references)
    rejected += failed
    accepted = _folded(chosen, accepted)
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
    say("done", total, total)
    return Inference(tuple(accepted), tuple(rejected), provenance)


def tables_of(traces: Sequence[Trace]) -> list[Tables]:
    """What is learned from, named as the invariants' provenance names it."""
    return [Tables.of(trace, _name(trace, number)) for number, trace in enumerate(traces)]


Learned = tuple[list[Invariant], list[Rejected]]


def _each(
    chosen: Sequence[Relation], references: Sequence[Tables], traces: Sequence[Trace], different: int, jobs: int
) -> Iterator[Learned]:
    """What each relation learns, in their order."""
    if jobs == 1 or len(chosen) < 2:
        yield from (_learn(relation, references, different) for relation in chosen)
        return
    given = [trace if trace.path is None or trace.source == "frames" else trace.path for trace in traces]
    names = [relation.name for relation in chosen]
    yield from side_by_side(_learn_by_name, names, jobs, _start_worker, (given, different))


_worker: tuple[list[Tables], int] | None = None


def _start_worker(given: Sequence[Path | Trace], different: int) -> None:
    global _worker
    traces = [one if isinstance(one, Trace) else open_trace(one) for one in given]
    _worker = tables_of(traces), different


def _learn_by_name(name: str) -> Learned:
    assert _worker is not None
    return _learn(BY_NAME[name], *_worker)


def _learn(relation: Relation, references: Sequence[Tables], different: int) -> Learned:
    """Candidates of one relation that hold in their own references, and those that do not."""
    good: list[Invariant] = []
    rejected: list[Rejected] = []
    for candidate in relation.hypothesize(references):
        invariant = finished(relation, general(candidate.invariant) if different > 1 else candidate.invariant)
        if candidate.rejected is None:
            good.append(invariant)
        else:
            rejected.append(Rejected(invariant, candidate.rejected, candidate.counterexample, candidate.place))
    kept, failed = _self_check(relation, _once(good), references)
    if different > 1:
        failed += [Rejected(one, f"of {different} programs: {why}") for one in kept if (why := of_one_program(one))]
        kept = [one for one in kept if of_one_program(one) is None]
    return kept, [*rejected, *failed]


def finished(relation: Relation, invariant: Invariant) -> Invariant:
    """With its sentence, version and id."""
    named = invariant.model_copy(update={"text_description": relation.describe(invariant), "schema_version": SCHEMA})
    return named.model_copy(update={"id": named.key})


def _once(invariants: Sequence[Invariant]) -> list[Invariant]:
    return list({invariant.key: invariant for invariant in reversed(invariants)}.values())[::-1]


def _self_check(
    relation: Relation, invariants: Sequence[Invariant], references: Sequence[Tables], form: str = ""
) -> Learned:
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
            first = _first(relation, invariant, judged, number)
            failed.append(Rejected(invariant, f"violated by its own references{form}", first))
        elif not count:
            failed.append(Rejected(invariant, f"never applies in its own references{form}"))
        elif showing[number] < min(2, len(references)):
            failed.append(Rejected(invariant, f"only one of {len(references)} references shows it{form}"))
        else:
            kept.append(invariant)
    return kept, failed


def _selective_check(invariants: Sequence[Invariant], references: Sequence[Tables]) -> Learned:
    """The same on what a selective run of these invariants would have seen of the references."""
    if any(reference.source == "traincheck-0.x" for reference in references):
        return list(invariants), []  # was observed in its own way
    plan = selective(Plan(), invariants)
    seen = [project(reference, plan) for reference in references]
    kept: list[Invariant] = []
    failed: list[Rejected] = []
    for name in dict.fromkeys(invariant.relation for invariant in invariants):
        mine = [invariant for invariant in invariants if invariant.relation == name]
        good, bad = _self_check(BY_NAME[name], mine, seen, " in selective form")
        kept += good
        failed += bad
    return kept, failed


def _folded(chosen: Sequence[Relation], invariants: Sequence[Invariant]) -> list[Invariant]:
    """Without those that others imply, which list them."""
    result: list[Invariant] = []
    for relation in chosen:
        mine = [invariant for invariant in invariants if invariant.relation == relation.name]
        kept = relation.fold(mine)
        keys = {invariant.key for invariant in kept}
        links = {(_ends(invariant)[0], _ends(invariant)[-1]) for invariant in mine}
        under: dict[str, list[Equivalent]] = {}
        for gone in mine:
            if gone.key not in keys:
                near = max(kept, key=lambda one: (_nearness(one, gone, links), one.key))
                listed = Equivalent(id=gone.key, text_description=gone.text_description)
                under.setdefault(near.key, []).append(listed)
        for invariant in kept:
            listed_here = sorted(under.get(invariant.key, []), key=lambda one: (one.text_description, one.id))
            result.append(invariant.model_copy(update={"equivalents": listed_here}) if listed_here else invariant)
    return result


def _ends(invariant: Invariant) -> list[str]:
    return [getattr(param, "api_full_name", None) or param.model_dump_json() for param in invariant.params]


def _nearness(kept: Invariant, gone: Invariant, links: set[tuple[str, str]]) -> tuple[bool, ...]:
    """How much a kept invariant is the one that one folded away leads to: P > Q > C stands for P > C."""
    one, two = _ends(kept), _ends(gone)
    alike = kept.params[-1] == gone.params[-1]
    return (alike and (two[0], one[0]) in links, alike, one[-1] == two[-1], one[0] == two[0])


def _first(relation: Relation, invariant: Invariant, judged: Judgement, number: int) -> str:
    rows = judged.violations.filter(pl.col("invariant") == number).head(1).to_dicts()
    return f"{relation.explain(invariant, rows).observed}, step {rows[0]['step']}" if rows else ""


def _relations(names: Sequence[str] | None, without: Sequence[str]) -> list[Relation]:
    wanted = {_relation_name(name) for name in names} if names is not None else set(BY_NAME)
    wanted -= {_relation_name(name) for name in without}
    if not wanted:
        raise TraincheckError("expected at least one relation to learn, found none", "leave out fewer relations")
    return [relation for relation in ALL if relation.name in wanted]


def _relation_name(name: str) -> str:
    """The full name of a relation that was given with or without the ending ``Relation``."""
    for known in BY_NAME:
        if name in (known, known.removesuffix("Relation")):
            return known
    short = ", ".join(known.removesuffix("Relation") for known in BY_NAME)
    raise TraincheckError(f"unknown relation {name!r}", f"one of {short}")


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


__all__ = ["REJECTED", "Candidate", "Inference", "Rejected", "finished", "infer", "tables_of"]
