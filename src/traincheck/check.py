"""Checking: a run against invariants. One outcome each, evidence for what broke, coverage for what held.

A thin engine: it feeds windows to relations and adds up what comes back. Whole run, step by step, or any other cut: the
outcomes are the same. A fault in one invariant is that invariant's outcome and nobody else's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from traincheck.errors import OWN_FAILURE, VIOLATIONS
from traincheck.findings import Finding, group_findings
from traincheck.invariants import Invariant, InvariantSet, load_invariants
from traincheck.relations.base import Judgement, Numbered, ReadsValues, Relation, merge, unwatched
from traincheck.relations.registry import relation_of, unjudged
from traincheck.relations.tables import Tables, Watch, Window
from traincheck.suppressions import Suppression, Suppressions, load_suppressions
from traincheck.trace import Trace, open_trace

SCHEMA: Final = 1
"""Version of ``Result.to_json``."""

MOST_EVIDENCE: Final = 8
"""Violations shown in full per invariant; the counts are complete."""

Verdict = Literal["passed", "violated", "dormant", "not_observable", "error"]
VERDICTS: Final[tuple[Verdict, ...]] = ("passed", "violated", "dormant", "not_observable", "error")


@dataclass(frozen=True)
class Outcome:
    """What became of one invariant. ``index`` is its place in the invariant file(s), from 0, blank lines skipped."""

    index: int
    outcome: Verdict
    relation: str
    text: str
    id: str
    applications: int = 0
    violations: int = 0
    first_step: int | None = None
    """First violated step."""
    last_step: int | None = None
    steps: tuple[int, ...] = ()
    """Steps in which it applied."""
    violated_steps: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    """Ranks on which it applied."""
    reason: str | None = None
    """Why it is dormant, not observable or in error."""
    evidence: tuple[dict[str, Any], ...] = ()
    """First failed applications, as rows of ``relations.base.VIOLATIONS``."""
    file: str | None = None
    line: int | None = None
    suppressed: Suppression | None = None
    """The suppression in force. The verdict stays what it is; a violation makes no finding and does not count."""

    def to_json(self) -> dict[str, Any]:
        """The object of ``results.json``."""
        return {
            "index": self.index,
            "outcome": self.outcome,
            "relation": self.relation,
            "text": self.text,
            "id": self.id,
            "applications": self.applications,
            "violations": self.violations,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "steps": _ranges(self.steps),
            "ranks": list(self.ranks),
            "reason": self.reason,
            "evidence": [_clean(row) for row in self.evidence],
            "file": self.file,
            "line": self.line,
            "suppressed": self.suppressed.brief() if self.suppressed is not None else None,
        }


@dataclass(frozen=True)
class Result:
    """Outcomes of all invariants on one run, and what they come to."""

    run: str
    invariants: tuple[Invariant, ...]
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    never_called: tuple[str, ...] = ()
    """Functions that the reference runs called, and this run did not."""
    lacks: tuple[str, ...] = ()
    """What the trace is missing."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Processes, ranks and steps of the run."""
    suppressions: Suppressions | None = None
    """Those the check took into account."""

    @property
    def summary(self) -> dict[str, int]:
        """How many invariants had which outcome; with suppressions, violated ones are apart under ``suppressed``."""
        counts: dict[str, int] = {verdict: sum(o.outcome == verdict for o in self.outcomes) for verdict in VERDICTS}
        if self.suppressions is not None:
            counts["suppressed"] = sum(o.outcome == "violated" and o.suppressed is not None for o in self.outcomes)
            counts["violated"] -= counts["suppressed"]
        return {"total": len(self.outcomes), **counts}

    @property
    def exit_code(self) -> int:
        """3 when something was violated, else 1 when an invariant could not be judged for a fault of ours, else 0."""
        summary = self.summary
        if summary["violated"]:
            return VIOLATIONS
        return OWN_FAILURE if summary["error"] else 0

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints and ``results.json`` holds."""
        ids = [outcome.id for outcome in self.outcomes]
        accepted = self.suppressions.to_json(ids) if self.suppressions is not None else None
        return {
            "schema": SCHEMA,
            "run": self.run,
            "facts": self.facts,
            "summary": self.summary,
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
            "findings": [finding.to_json() for finding in self.findings],
            "never_called": list(self.never_called),
            "lacks": list(self.lacks),
            "suppressions": accepted,
        }


def check(
    run: str | Path | Trace,
    invariants: str | Path | Sequence[str | Path] | Sequence[Invariant],
    *,
    by_step: bool = False,
    suppressions: str | Path | Suppressions | None = None,
) -> Result:
    """Hold a run (a trace folder or an open trace) against invariants (files, or loaded ones).

    ``by_step`` evaluates step by step, as live checking does; the outcomes are the same.
    ``suppressions`` (a file, or loaded ones) say whose violations make no finding; None: nobody's.
    Raises ``TraincheckError`` when the run or a file cannot be read.
    """
    trace = run if isinstance(run, Trace) else open_trace(run)
    known = _loaded(invariants)
    tables = Tables.of(trace)
    windows = tables.steps() if by_step else [tables.window()]
    judged, faults = judge([Numbered(n, item) for n, item in enumerate(known)], windows, tables.watch)
    name = str(trace.path) if trace.path is not None else "run"
    accepted = load_suppressions(suppressions) if isinstance(suppressions, (str, Path)) else suppressions
    return conclude(name, known, judged, faults, trace=trace, suppressions=accepted)


def judge(
    invariants: Sequence[Numbered], windows: Sequence[Window], watch: Watch | None = None
) -> tuple[Judgement, dict[int, tuple[Verdict, str]]]:
    """Feed windows to the relations; second: invariants that cannot be judged, and why."""
    unable: dict[int, tuple[Verdict, str]] = {}
    by_relation: dict[str, list[Numbered]] = {}
    for item in invariants:
        why, relation = unjudged(item.invariant), relation_of(item.invariant.relation)
        if why is None and relation is not None:
            why = unwatched(relation, item.invariant, watch or Watch())
        if why is not None or relation is None:
            unable[item.number] = ("not_observable", why or "")
        else:
            by_relation.setdefault(relation.name, []).append(item)
    parts: list[Judgement] = []
    for name, items in by_relation.items():
        relation = relation_of(name)
        assert relation is not None
        try:
            parts.append(_fold_windows(relation, items, windows))
        except Exception:  # one of them is at fault: find out which, and keep the others
            for item in items:
                try:
                    parts.append(_fold_windows(relation, [item], windows))
                except Exception as error:
                    unable[item.number] = ("error", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return merge(parts), unable


def _fold_windows(relation: Relation, items: Sequence[Numbered], windows: Sequence[Window]) -> Judgement:
    carry: Any = None
    parts = []
    for window in windows:
        judged, carry = relation.evaluate(items, window, carry)
        parts.append(judged)
    return merge(parts)


def conclude(
    run: str,
    invariants: InvariantSet,
    judged: Judgement,
    unable: dict[int, tuple[Verdict, str]],
    trace: Trace | None = None,
    suppressions: Suppressions | None = None,
) -> Result:
    """Outcomes and findings from what was judged."""
    totals = {
        int(row["invariant"]): row
        for row in judged.counts.group_by("invariant")
        .agg(pl.col("called", "observed", "applied", "violated").sum())
        .iter_rows(named=True)
    }
    applied = _lists(judged.counts.filter(pl.col("applied") > 0), "step")
    ranks = _lists(judged.counts.filter(pl.col("applied") > 0), "rank")
    broken = _lists(judged.counts.filter(pl.col("violated") > 0), "step")
    evidence = {
        int(str(number)): rows for (number,), rows in judged.violations.group_by(["invariant"], maintain_order=True)
    }
    outcomes = []
    never: set[str] = set()
    for number, invariant in enumerate(invariants):
        place = invariants.places[number] if number < len(invariants.places) else (None, None)
        base = Outcome(
            index=number,
            outcome="dormant",
            relation=invariant.relation,
            text=invariant.text_description,
            id=invariant.key,
            file=place[0],
            line=place[1],
        )
        if number in unable:
            verdict, why = unable[number]
            outcomes.append(replace(base, outcome=verdict, reason=why))
            continue
        total = totals.get(number, {"called": 0, "observed": 0, "applied": 0, "violated": 0})
        if not total["applied"]:
            relation = relation_of(invariant.relation)
            assert relation is not None
            silence: Verdict = "dormant"
            why = relation.dormant(invariant, total["called"], total["observed"])
            if isinstance(relation, ReadsValues) and total["called"] and not total["observed"]:
                unseen = relation.unobserved(invariant)
                silence, why = ("not_observable", unseen) if unseen is not None else (silence, why)
            if not total["called"]:
                never |= _first_functions(invariant)
            outcomes.append(replace(base, outcome=silence, reason=why))
            continue
        steps = broken.get(number, ())
        outcomes.append(
            replace(
                base,
                outcome="violated" if total["violated"] else "passed",
                applications=total["applied"],
                violations=total["violated"],
                first_step=steps[0] if steps else None,
                last_step=steps[-1] if steps else None,
                steps=applied.get(number, ()),
                violated_steps=steps,
                ranks=ranks.get(number, ()),
                evidence=tuple(evidence[number].head(MOST_EVIDENCE).to_dicts()) if number in evidence else (),
            )
        )
    if suppressions is not None:
        outcomes = [replace(outcome, suppressed=suppressions.of(outcome.id)) for outcome in outcomes]
        evidence = {number: rows for number, rows in evidence.items() if outcomes[number].suppressed is None}
    findings = group_findings(invariants, evidence, run, _reference(invariants.provenance))
    facts = {}
    if trace is not None:
        never -= set(trace.calls["function"].unique().cast(pl.String).to_list())
        facts = {"processes": len(trace.processes), "ranks": trace.ranks, "steps": len(trace.steps)}
    return Result(
        run,
        invariants.invariants,
        tuple(outcomes),
        tuple(findings),
        tuple(sorted(never)),
        tuple(lack.text for lack in trace.lacks) if trace is not None else (),
        facts,
        suppressions,
    )


def _reference(provenance: Sequence[dict[str, Any]]) -> str | None:
    """The first run that the invariants come from; what is odd in a provenance names none."""
    for source in provenance:
        listed = source.get("references")
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and isinstance(one.get("run"), str):
                return str(one["run"])
    return None


def _first_functions(invariant: Invariant) -> set[str]:
    name = getattr(invariant.params[0], "api_full_name", None)
    return {name} if name else set()


def _lists(counts: pl.DataFrame, column: str) -> dict[int, tuple[int, ...]]:
    grouped = counts.group_by("invariant").agg(pl.col(column).drop_nulls().unique().sort())
    return {int(row[0]): tuple(row[1]) for row in grouped.iter_rows()}


def _loaded(invariants: str | Path | Sequence[str | Path] | Sequence[Invariant]) -> InvariantSet:
    if isinstance(invariants, InvariantSet):
        return invariants
    if isinstance(invariants, (str, Path)):
        return load_invariants(invariants)
    items = list(invariants)
    if all(isinstance(item, Invariant) for item in items):
        return InvariantSet(tuple(item for item in items if isinstance(item, Invariant)))
    return load_invariants(*(item for item in items if isinstance(item, (str, Path))))


def _ranges(steps: Sequence[int]) -> list[list[int]]:
    """``[[1, 40], [50, 50]]``: steps as ranges, first and last included."""
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    return ranges


def _clean(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None and name != "invariant"}
