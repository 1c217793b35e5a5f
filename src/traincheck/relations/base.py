"""The one interface through which inference and checking know relations.

A relation is a stateless object. What spans windows travels in an explicit ``carry`` that only the relation reads; what
it saw of a window comes back as a ``Judgement``, two frames that add up (``merge``): over windows, over the ranks of a
run, over machines. Sentences are made last, by ``describe`` and ``explain``, from rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import polars as pl

from traincheck.invariants import Invariant
from traincheck.relations.tables import Tables, Watch, Window

COUNTS: Final = pl.Schema(
    {
        "invariant": pl.UInt32(),
        "process": pl.UInt32(),
        "rank": pl.Int32(),
        "step": pl.Int32(),
        "called": pl.Int64(),  # the functions or variables it speaks of occurred
        "observed": pl.Int64(),  # … and what it needs to be judged was recorded
        "applied": pl.Int64(),  # … and the precondition held
        "violated": pl.Int64(),
    }
)
"""How often each invariant got how far, by process and step."""

VIOLATIONS: Final = pl.Schema(
    {
        "invariant": pl.UInt32(),
        "process": pl.UInt32(),
        "rank": pl.Int32(),
        "step": pl.Int32(),
        "stage": pl.String(),
        "seq": pl.UInt64(),
        "time_ns": pl.Int64(),
        "call": pl.UInt64(),
        "function": pl.String(),
        "location": pl.String(),
        "variable": pl.String(),
        "attribute": pl.String(),
        "before": pl.String(),
        "after": pl.String(),
        "other_process": pl.UInt32(),
        "other_rank": pl.Int32(),
        "other_variable": pl.String(),
        "other_seq": pl.UInt64(),
    }
)
"""One failed application a row. ``seq``: the event at which it is known. ``before``, ``after``: canonical texts."""

_NO_COUNTS: Final = pl.DataFrame(schema=COUNTS)
_NO_VIOLATIONS: Final = pl.DataFrame(schema=VIOLATIONS)

MOST_VIOLATIONS: Final = 2000
"""Rows of evidence kept per invariant and window; the counts are complete."""


class Numbered(NamedTuple):
    """An invariant with its position in the set being checked."""

    number: int
    invariant: Invariant


@dataclass(frozen=True)
class Judgement:
    """What was found in some windows: ``counts`` (schema ``COUNTS``) and ``violations`` (schema ``VIOLATIONS``)."""

    counts: pl.DataFrame = field(default_factory=lambda: _NO_COUNTS)
    violations: pl.DataFrame = field(default_factory=lambda: _NO_VIOLATIONS)


def merge(judgements: Iterable[Judgement]) -> Judgement:
    """One judgement of all: counts added, violations in one order, whatever the order of the parts."""
    parts = list(judgements)
    if not parts:
        return Judgement()
    counts = (
        pl.concat([part.counts for part in parts])
        .group_by("invariant", "process", "rank", "step")
        .agg(pl.col("called", "observed", "applied", "violated").sum())
        .sort("invariant", "process", "step")
    )
    violations = pl.concat([part.violations for part in parts]).sort(
        "invariant", "step", "process", "seq", "variable", "other_process", "other_variable"
    )
    return Judgement(counts, violations)


def unwatched(relation: Relation, invariant: Invariant, watch: Watch) -> str | None:
    """Why the invariant cannot be judged on a run of which only so much was watched, or None."""
    if watch.unobservable and invariant.key in watch.unobservable:
        return watch.unobservable[invariant.key]
    needs = relation.needs(invariant)
    around = {need.function for need in needs.states if need.function is not None}
    missing = sorted(function for function in needs.functions | around if not watch.watches(function))
    if missing:
        return f"{', '.join(missing)} was not watched in this run ({watch.scope} scope)"
    lost = sorted((needs.functions | around) & watch.missing)
    if lost:
        return f"{', '.join(lost)} was not found in the program"
    blank = sorted(f"{path} of {function}" for function, path in needs.captures if not watch.captured(function, path))
    if blank:
        return f"{', '.join(blank)} was not captured in this run ({watch.scope} scope)"
    if needs.states and not watch.state:
        return "state was not observed in this run"
    if watch.scope is not None and needs.states:  # a run of ours
        from traincheck.relations.state_needs import never_observed

        stranger = never_observed(needs)
        if stranger is not None:
            return stranger
    if watch.parts is not None:
        from traincheck.relations.state_needs import covers

        if not covers(watch.parts, needs):
            what = sorted({f"{need.variable_type}.{need.attribute}" for need in needs.states} | needs.facts)
            return f"{', '.join(what)} was not observed as needed in this run ({watch.scope} scope)"
    return None


def fit(frame: pl.DataFrame, wanted: pl.Schema) -> pl.DataFrame:
    """``frame`` with exactly these columns; missing ones are null."""
    return frame.select(
        pl.col(name).cast(dtype) if name in frame.columns else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in wanted.items()
    )


PRESENT: Final = ".present"
"""Ending of a fact of which only matters whether it is None."""


@dataclass(frozen=True)
class StateNeed:
    """An attribute of the variables of a type, looked at around calls of ``function`` (None: at every observation)."""

    function: str | None
    variable_type: str
    attribute: str
    content: bool = True
    """False: whether there is a value, or None, says it all."""


@dataclass(frozen=True)
class Needs:
    """What must be observed so that an invariant is judged as on the full trace. Needs add up with ``|``."""

    functions: frozenset[str] = frozenset()
    captures: frozenset[tuple[str, str]] = frozenset()
    """(function, path or parameter name)"""
    states: frozenset[StateNeed] = frozenset()
    facts: frozenset[str] = frozenset()
    """Attributes whose value must be known, not watched: ``requires_grad``, ``in_optimizer``, ``optimizer.lr``.

    With the ending ``PRESENT``: whether there is one.
    """
    stages: bool = False
    consecutive_steps: bool = False
    """Needs two steps in a row, and so says what sampling may skip."""

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            self.functions | other.functions,
            self.captures | other.captures,
            self.states | other.states,
            self.facts | other.facts,
            self.stages or other.stages,
            self.consecutive_steps or other.consecutive_steps,
        )


class Place(NamedTuple):
    """A call in the references, by their number: where a counter-example stands."""

    reference: int
    process: int
    step: int
    call: int

    def __str__(self) -> str:
        return f"call {self.call} of process {self.process} in step {self.step} of reference {self.reference}"


@dataclass(frozen=True)
class Candidate:
    """What a relation saw in the references: an invariant, or why it is none."""

    invariant: Invariant
    rejected: str | None = None
    counterexample: str | None = None
    """In words; ``place`` is the call in it, where there is one."""
    place: Place | None = None


@dataclass(frozen=True)
class Explanation:
    """One violation in words. ``title`` names what and where; ``kind`` groups what has one likely cause."""

    title: str
    expected: str
    observed: str
    meaning: str
    kind: str
    apis: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    specificity: int = 0
    """Higher is more telling: a named tensor before a missing call."""


Row = Mapping[str, Any]
"""One row of ``VIOLATIONS``."""


class Relation(Protocol):
    """A kind of regularity. All methods are pure: same input, same output, byte for byte."""

    name: str
    """As in the file: ``APIContainRelation``."""

    scope: Literal["process", "run"]
    """``process``: processes can be judged apart and merged. ``run``: a window must hold all processes."""

    def supports(self, invariant: Invariant) -> str | None:
        """None, or why this version cannot judge it."""

    def needs(self, invariant: Invariant) -> Needs:
        """What must be observed."""

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """Candidates seen in healthy runs, sorted, already guarded against accident; rejected ones with the reason."""

    def fold(self, invariants: Sequence[Invariant]) -> list[Invariant]:
        """Without those that others of the set imply."""

    def evaluate(self, invariants: Sequence[Numbered], window: Window, carry: Any | None) -> tuple[Judgement, Any]:
        """Judge the events of a window. ``carry`` is None at the first window, then what was returned for the last."""

    def describe(self, invariant: Invariant) -> str:
        """One sentence: function, attribute, condition."""

    def dormant(self, invariant: Invariant, called: int, observed: int) -> str:
        """Why it never applied."""

    def explain(self, invariant: Invariant, rows: Sequence[Row]) -> Explanation:
        """Words for violations of one invariant at one step (at least one row)."""


@runtime_checkable
class ReadsValues(Protocol):
    """A relation about values that a run may not have recorded although the function was called.

    Where nothing it needs was, the outcome is *not observable*, not *dormant*.
    """

    def unobserved(self, invariant: Invariant) -> str | None:
        """What was not recorded; None when that is no reason of this invariant."""
