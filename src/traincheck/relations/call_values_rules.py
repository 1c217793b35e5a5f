"""Rules about what single calls were given and gave back: judging them, and learning when they hold.

The shared half of ConsistentOutput, ConsistentInputOutput and Threshold. Each of them only says, for all calls of one
function at once, which calls it can be judged on and which of those break it (``Seen``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.invariants import (
    ALWAYS,
    APIParam,
    Clause,
    Conjunction,
    Group,
    InputOutputParam,
    Invariant,
    Support,
)
from traincheck.preconditions import Prop, Records, Unexplained, deduce, holds, propose
from traincheck.relations.base import (
    MOST_VIOLATIONS,
    VIOLATIONS,
    Candidate,
    Judgement,
    Needs,
    Numbered,
    Place,
    fit,
)
from traincheck.relations.call_arrays import Tally, judgement
from traincheck.relations.call_values import (
    PRE_EVENT,
    Ended,
    ValueCarry,
    ended,
    inputs,
    of_reference,
    outputs,
)
from traincheck.relations.call_values_names import serves, wraps
from traincheck.relations.call_values_table import Mask, Values
from traincheck.relations.calltree import CallSource, capture_props
from traincheck.relations.names import learnable, short
from traincheck.relations.numbers import table
from traincheck.relations.tables import Tables, Window
from traincheck.relations.values import Column
from traincheck.relations.wording import condition, properties

MIN_CALLS: Final = 3
"""Calls that must have held, and …"""

MIN_STEPS: Final = 2
"""… the training steps they must be spread over, before anything is learned."""

EVIDENCE: Final = {"variable": pl.String, "attribute": pl.String, "before": pl.String, "after": pl.String}
"""What a rule tells of a call that breaks it: where, what, expected, found."""

_STAGE: Final = "meta_vars.stage"
_OWNERS: Final = ("captures.self@type", "captures.args[0]@type")
_APART: Final = 1 << 20
"""Processes of different references are told apart by this distance."""


class Seen(NamedTuple):
    """What one rule says of the calls of its function. Masks have one entry a call of it.

    ``evidence`` gives, for positions of calls that break it, a frame of ``EVIDENCE``.
    """

    observed: Mask
    bad: Mask
    evidence: Callable[[npt.NDArray[np.int64]], pl.DataFrame]


class Judge(Protocol):
    """How one invariant sees the calls of its function."""

    def __call__(self, invariant: Invariant, values: Values) -> Seen:
        """Which calls can be judged, which are bad."""


def spoken(invariant: Invariant) -> str:
    """That function as people call it: ``Linear.forward()``."""
    return f"{short(function_of(invariant))}()"


def silence(invariant: Invariant, called: int, observed: int, unobserved: Callable[[Invariant], str]) -> str:
    """Why a rule about the values of a function's calls never applied."""
    if not called:
        return f"{spoken(invariant)} was never called (and returned)"
    if not observed:
        return unobserved(invariant)
    return f"its precondition was never met ({condition(invariant, PRE_EVENT).strip() or 'none'})"


def function_of(invariant: Invariant) -> str:
    """The function the rule speaks of: its one API parameter."""
    return next(param.api_full_name for param in invariant.params if isinstance(param, APIParam))


def unsupported(invariant: Invariant) -> str | None:
    """None, or why the API parameter asks for more than a call that returned."""
    for param in invariant.params:
        if isinstance(param, APIParam) and param.exception is not None:
            return "a call that raised gave nothing back"
        if isinstance(param, APIParam) and param.arguments is not None:
            return "constant arguments are not judged by this version"
    return None


def needs(invariant: Invariant, paths: Sequence[str] = ()) -> Needs:
    """The function, the captures ``paths``, and what the precondition asks for."""
    asked = properties(invariant)
    function = function_of(invariant)
    conditions = {prop.removeprefix("captures.").partition("@")[0] for prop in asked if prop.startswith("captures.")}
    return Needs(
        functions=frozenset((function,)),
        captures=frozenset((function, path) for path in {*paths, *conditions}),
        stages=_STAGE in asked,
    )


def evaluate(
    judge: Judge, invariants: Sequence[Numbered], window: Window, carry: ValueCarry | None
) -> tuple[Judgement, ValueCarry]:
    """Judge each call in the window in which it ends."""
    plan: _Plan = _Plan.of(invariants) if carry is None else carry.plan
    found, later = ended(window, plan.functions, carry)
    later = replace(later, plan=plan)
    if found.calls.is_empty():
        return Judgement(), later
    values = Values(found)
    records = Records(found.calls.height, [CallSource(found.calls, found.captures)])
    masks: dict[str, Mask] = {}
    tally = Tally(table(found.calls, ("process", "rank", "step")))
    violations: list[pl.DataFrame] = []
    for function, mine in plan.rules.items():
        rows = values.rows(function)
        if not len(rows):
            continue
        for number, invariant, text in mine:
            if text not in masks:
                masks[text] = holds(invariant.precondition.get(PRE_EVENT), records)
            seen = judge(invariant, values)
            applied = masks[text][rows] & seen.observed
            bad = applied & seen.bad
            tally.add(number, called=rows, observed=rows[seen.observed], applied=rows[applied], violated=rows[bad])
            if bad.any():
                which = np.flatnonzero(bad)[:MOST_VIOLATIONS]
                violations.append(_violations(number, found, rows[which], seen.evidence(which)))
    judged = judgement(tally)
    return replace(judged, violations=pl.concat(violations)) if violations else judged, later


class _Plan(NamedTuple):
    """Invariants by function, each with its number and the text of its precondition."""

    functions: tuple[str, ...]
    rules: dict[str, list[tuple[int, Invariant, str]]]

    @classmethod
    def of(cls, invariants: Sequence[Numbered]) -> _Plan:
        rules: dict[str, list[tuple[int, Invariant, str]]] = {}
        for number, invariant in invariants:
            group = invariant.precondition.get(PRE_EVENT)
            text = "" if group is None else group.model_dump_json()
            rules.setdefault(function_of(invariant), []).append((number, invariant, text))
        return cls(tuple(rules), rules)


def _violations(number: int, found: Ended, rows: npt.NDArray[np.int64], evidence: pl.DataFrame) -> pl.DataFrame:
    calls = found.calls[rows]
    frame = pl.concat([calls.drop("location", "meta"), evidence], how="horizontal").with_columns(
        pl.lit(number).alias("invariant"),
        pl.col("end_seq").alias("seq"),
        pl.col("end_ns").alias("time_ns"),
        pl.Series("location", found.locations(calls), dtype=pl.String),
    )
    return fit(frame, VIOLATIONS)


# --- learning ----------------------------------------------------------------------------------------------------


def examples(references: Sequence[Tables], wanted: Callable[[str], bool]) -> dict[str, Ended]:
    """Calls of the learnable functions that are ``wanted``, over all references.

    Their processes are told apart; ``calls`` has a column ``reference``.
    """
    names = sorted(
        {
            name
            for reference in references
            for name in reference.calls["function"].unique().cast(pl.String).to_list()
            if name is not None and learnable(name) and wanted(name)
        }
    )
    calls, captures = [], []
    for number, reference in enumerate(references):
        found = of_reference(reference, names)
        shift = (pl.col("process") + number * _APART).cast(pl.UInt32)
        calls.append(found.calls.with_columns(shift, pl.lit(number).alias("reference")))
        captures.append(found.captures.with_columns(shift))
    both = Ended(pl.concat(calls), pl.concat(captures), found.above.clear()) if calls else None
    return {} if both is None else {name: both.of(name) for name in names}


class Example:
    """Calls of one function in all references, for the candidates about it."""

    def __init__(self, found: Ended, function: str) -> None:
        self.values = Values(found)
        self.calls = found.calls
        self._records = Records(found.calls.height, [CallSource(found.calls, found.captures)])
        # What a result is may depend on the object asked; flags and missing arguments go along with it by accident.
        owners = [p for p in capture_props(found.captures, function) if p in _OWNERS]
        self._props = [Prop(_STAGE, natural=True), *map(Prop, owners)]

    def candidate(
        self, invariant: Invariant, positive: Mask, observed: Mask, *, conditional: bool = True, stages: bool = True
    ) -> Candidate | None:
        """The invariant with its precondition and support, or why it is none; None: too little to speak of.

        ``positive`` are the observed calls on which it holds. ``stages``: what was never seen outside some stages is
        only said of them (a reference that never evaluates says nothing about evaluation).
        """
        positive = positive & observed
        steps = self._steps(positive)
        if positive.sum() < MIN_CALLS or steps < MIN_STEPS:
            return None
        group: Group | None = ALWAYS
        reason, example = None, -1
        if not positive[observed].all():
            rows = np.flatnonzero(observed)
            records = _Part(self._records, rows)
            features = propose(PRE_EVENT, records, positive[observed], self._props if conditional else [])
            answer = deduce(positive[observed], features, [PRE_EVENT], np.arange(len(rows)))
            if isinstance(answer, Unexplained):
                reason, example = answer.reason, int(rows[answer.example])
            else:
                group = answer[PRE_EVENT]
        if stages:
            group = self._within_stages(group or ALWAYS, positive)
        held = self.calls.filter(pl.Series(positive))
        support = Support(
            applications=held.height,
            excluded=int((observed & ~positive).sum()),
            steps=steps,
            ranks=held.select("reference", "process").n_unique(),
            references=held["reference"].n_unique(),
        )
        found = invariant.model_copy(
            update={
                "precondition": {PRE_EVENT: group},
                "num_positive_examples": support.applications,
                "num_negative_examples": support.excluded,
                "support": support,
            }
        )
        where = None if reason is None else self._where(example)
        return Candidate(found, reason, None if where is None else str(where), where)

    def in_stage(self, stage: str) -> Mask:
        """Calls made in that stage."""
        return (self.calls["stage"] == stage).fill_null(False).to_numpy()

    def _steps(self, mask: Mask) -> int:
        rows = self.calls.filter(pl.Series(mask), pl.col("step") > 0)
        return rows.select("reference", "step").n_unique() if rows.height else 0

    def _within_stages(self, group: Group, positive: Mask) -> Group:
        stages = sorted(self.calls.filter(pl.Series(positive))["stage"].drop_nulls().unique().to_list())
        told = any(
            isinstance(clause, Clause) and clause.prop_name == _STAGE
            for conj in group.preconditions
            for clause in conj.clauses
        )
        if told or not stages or {"training", "evaluation"} <= set(stages):
            return group
        clause = stage_clause(stages)
        if group.unconditional:
            return Group(inverted=False, preconditions=[Conjunction(clauses=[clause])])
        parts = [
            Conjunction(clauses=[clause, *(c for c in conj.clauses if isinstance(c, Clause))])
            for conj in group.preconditions
        ]
        return Group(inverted=False, preconditions=parts)

    def _where(self, row: int) -> Place:
        bad = self.calls.row(row, named=True)
        return Place(bad["reference"], bad["process"] % _APART, bad["step"], bad["call"])


class _Part(Records):
    """Some rows of records."""

    def __init__(self, whole: Records, rows: npt.NDArray[np.int64]) -> None:
        super().__init__(len(rows), [])
        self._whole = whole
        self._rows = rows

    def columns(self, prop: str) -> list[Column] | None:
        """The columns of these rows."""
        found = self._whole.columns(prop)
        return None if found is None else [column[self._rows] for column in found]


def stage_clause(stages: Sequence[str]) -> Clause:
    """``stage is training or evaluation``."""
    return Clause(
        type="constant", prop_name=_STAGE, additional_path="None", prop_dtype="str", values=[str(s) for s in stages]
    )


def told_by_callers(
    candidates: Sequence[Candidate], found: dict[str, Ended], references: Sequence[Tables], inputs_too: bool
) -> list[Candidate]:
    """Rejects what is said of an operator when the same is said of the function whose result it is.

    ``ReLU.forward`` gives back what ``functional.relu`` gave back: one of the two rules is enough, and the probes of
    the other are saved. ``inputs_too``: only where the first tensor passed in is the same as well.
    """
    callers = {name: _caller(name, found, references, inputs_too) for name in found if serves(name)}
    said = {(function_of(c.invariant), _without_function(c.invariant)) for c in candidates if c.rejected is None}
    result = []
    for candidate in candidates:
        name = function_of(candidate.invariant)
        text = _without_function(candidate.invariant)
        caller = callers.get(name)
        if candidate.rejected is None and caller is not None and (caller, text) in said:
            reason = f"the same is said of {short(caller)}(), whose result it is"
            candidate = replace(candidate, rejected=reason)
        result.append(candidate)
    return result


def _without_function(invariant: Invariant) -> str:
    told = []
    for param in invariant.params:
        given = isinstance(param, InputOutputParam) and param.is_input  # whatever the first tensor is called there
        left_out = {"api_full_name", "api_name", *(("name", "index") if given else ())}
        told.append(param.model_dump_json(exclude=left_out, exclude_unset=True))
    return "\n".join([*told, *(f"{name} {group.model_dump_json()}" for name, group in invariant.precondition.items())])


def _caller(name: str, found: dict[str, Ended], references: Sequence[Tables], inputs_too: bool) -> str | None:
    """The one function that calls this one and gives back its result, always; None when there is none."""
    callers: set[str | None] = set()
    for number, reference in enumerate(references):
        mine = found[name].calls.filter(pl.col("reference") == number)
        if mine.is_empty():
            continue
        back = (pl.col("process") - number * _APART).cast(pl.UInt32)
        above = reference.calls.select(
            "process", pl.col("call").alias("parent"), pl.col("function").cast(pl.String).alias("caller")
        )
        callers |= set(
            mine.select(back, "call", "parent").join(above, on=["process", "parent"], how="left")["caller"].to_list()
        )
        if len(callers) != 1 or None in callers:
            return None
    caller = next(iter(callers), None)
    if caller is None or caller not in found or not (wraps(caller) or serves(caller)):
        return None
    for side in (outputs, inputs) if inputs_too else (outputs,):
        one, two = (_first(side(found[function])) for function in (name, caller))
        calls = found[name].calls.select("process", "call", "parent").join(one, on=["process", "call"], how="left")
        both = calls.join(two.rename({"identity": "same"}), left_on=["process", "parent"], right_on=["process", "call"])
        if both.height < calls.height or not (both["identity"] == both["same"]).fill_null(False).all():
            return None
    return caller


def _first(tensors: pl.DataFrame) -> pl.DataFrame:
    return tensors.filter(pl.col("index") == 0).select("process", "call", "identity")
