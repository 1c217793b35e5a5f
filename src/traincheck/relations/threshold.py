"""ThresholdRelation: what F gives back is at most, or at least, one of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.invariants import ALWAYS, APIParam, InputOutputParam, Invariant
from traincheck.relations import call_values_rules as rules
from traincheck.relations.base import Candidate, Explanation, Judgement, Needs, Numbered, Row
from traincheck.relations.call_values import PRE_EVENT, ValueCarry
from traincheck.relations.call_values_places import places_of, say_place, tensor_place, unfollowable, value_at
from traincheck.relations.call_values_rules import Example, Seen
from traincheck.relations.call_values_table import Floats, Values
from traincheck.relations.tables import Tables, Window
from traincheck.relations.wording import condition

NEAR: Final = 0.2
"""Part of the threshold within which a result must have come in some call, for a candidate; and …"""

NEAR_ZERO: Final = 0.05
"""… how near where the threshold is about 0."""

SLACK: Final = (1e-9, 1e-6)
"""Absolute and relative: what a result may be beyond the threshold and still count as on it."""

MIN_RESULTS: Final = 2
"""Different results that must have been seen: one size that happens to be near an argument says nothing."""

MOST_DIMENSIONS: Final = 5

_MAXIMA: Final = frozenset(("k", "limit", "top_k", "topk", "num_samples"))

Side = Literal["least", "most"]


class Threshold:
    """See docs/relations.md, *Threshold*."""

    name: str = "ThresholdRelation"
    scope: Literal["process", "run"] = "process"

    def supports(self, invariant: Invariant) -> str | None:
        """One place is an argument, the other in the results."""
        greater, smaller = places_of(invariant)
        if greater.is_input == smaller.is_input:
            return "expected one place in the arguments and one in the results"
        return unfollowable(greater) or unfollowable(smaller) or rules.unsupported(invariant)

    def needs(self, invariant: Invariant) -> Needs:
        """The function with its arguments and result, and what the precondition asks for."""
        return rules.needs(invariant, ["*"])

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """Sizes of tensors and numbers given back, against arguments with ``min`` or ``max`` in their name."""
        named = {
            name
            for reference in references
            for name in reference.captures.filter(pl.col("moment") == "in", pl.col("kind").is_in(["int", "float"]))[
                "name"
            ]
            .unique()
            .cast(pl.String)
            .to_list()
            if name is not None and _side_of(name) is not None
        }
        if not named:
            return []
        functions = {
            function
            for reference in references
            for function in reference.captures.filter(pl.col("name").is_in(sorted(named)))["function"]
            .unique()
            .cast(pl.String)
            .to_list()
        }
        result: list[Candidate] = []
        for function, found in rules.examples(references, functions.__contains__).items():
            result += _candidates(function, Example(found, function), sorted(named))
        return result

    def fold(self, invariants: Sequence[Invariant]) -> list[Invariant]:
        """Nothing follows from anything here."""
        return list(invariants)

    def evaluate(
        self, invariants: Sequence[Numbered], window: Window, carry: ValueCarry | None
    ) -> tuple[Judgement, ValueCarry]:
        """Judge calls in the window in which they end."""
        return rules.evaluate(_judge, invariants, window, carry)

    def describe(self, invariant: Invariant) -> str:
        """As 0.x labels it, with the condition."""
        greater, smaller = places_of(invariant)
        when = condition(invariant, PRE_EVENT)
        if smaller.is_input:
            return f"{rules.spoken(invariant)}: {say_place(greater)} ≥ {say_place(smaller)}{when}"
        return f"{rules.spoken(invariant)}: {say_place(smaller)} ≤ {say_place(greater)}{when}"

    def dormant(self, invariant: Invariant, called: int, observed: int) -> str:
        """Why it never applied."""
        return rules.silence(invariant, called, observed, self.unobserved)

    def unobserved(self, invariant: Invariant) -> str:
        """What was not recorded."""
        greater, smaller = places_of(invariant)
        both = f"{say_place(greater)} and {say_place(smaller)}"
        return f"{both} were not both recorded as numbers in any call of {rules.spoken(invariant)}"

    def explain(self, invariant: Invariant, rows: Sequence[Row]) -> Explanation:
        """Both numbers."""
        greater, smaller = places_of(invariant)
        limit, found = (smaller, greater) if smaller.is_input else (greater, smaller)
        first = rows[0]
        beyond = "below" if smaller.is_input else "above"
        return Explanation(
            title=f"{rules.spoken(invariant)} gave {say_place(found)} {beyond} {say_place(limit)}",
            expected=self.describe(invariant),
            observed=f"{say_place(found)} is {first['after']}, {beyond} {say_place(limit)} = {first['before']}",
            meaning="A limit that held in the reference runs does not bind: it is ignored, applied to something else, "
            "or undone afterwards.",
            kind=f"threshold {say_place(limit)}",
            apis=(rules.function_of(invariant),),
            specificity=45,
        )


def _judge(invariant: Invariant, values: Values) -> Seen:
    greater, smaller = places_of(invariant)
    function = rules.function_of(invariant)
    high, low = value_at(greater, function, values), value_at(smaller, function, values)
    limit, found = (low, high) if smaller.is_input else (high, low)
    # NaN is on no side of a limit, and infinity minus infinity is NaN: neither is beyond the other.
    with np.errstate(invalid="ignore"):
        held = high.numbers - low.numbers >= -(SLACK[0] + SLACK[1] * np.abs(limit.numbers))
    held |= high.numbers == low.numbers

    def evidence(rows: npt.NDArray[np.int64]) -> pl.DataFrame:
        place = greater if smaller.is_input else smaller
        return pl.DataFrame(
            {
                "variable": found.paths[rows],
                "attribute": say_place(place).rpartition(".")[2],
                "before": limit.texts[rows],
                "after": found.texts[rows],
            },
            schema=rules.EVIDENCE,
        )

    return Seen(high.numeric & low.numeric, ~held, evidence)


def _side_of(name: str) -> Side | None:
    """Whether an argument of this name is a least or a most."""
    parts = name.lower().split("_")
    if "min" in parts or "minimum" in parts:
        return "least"
    return "most" if "max" in parts or "maximum" in parts or name in _MAXIMA else None


def _candidates(function: str, example: Example, named: Sequence[str]) -> list[Candidate]:
    values = example.values
    outs = _results(function, values)
    result = []
    for name in named:
        limit = values.argument(function, name)
        if not limit.numeric.any():
            continue
        argument_place = InputOutputParam(
            param_type="InputOutputParam",
            name=name,
            index=None,
            type="number",
            additional_path=None,
            api_name=function,
            is_input=True,
        )
        for out in outs:
            found = value_at(out, function, values)
            both = limit.numeric & found.numeric
            if len(np.unique(found.numbers[both])) < MIN_RESULTS or not _near(limit.numbers[both], found.numbers[both]):
                continue
            order = (out, argument_place) if _side_of(name) == "least" else (argument_place, out)
            invariant = Invariant(
                text_description="",
                relation=Threshold.name,
                params=[order[0], APIParam(param_type="APIParam", api_full_name=function), order[1]],
                precondition={PRE_EVENT: ALWAYS},
            )
            seen = _judge(invariant, values)
            candidate = example.candidate(invariant, ~seen.bad, seen.observed, conditional=False)
            if candidate is not None:
                result.append(candidate)
    return result


def _near(limit: Floats, found: Floats) -> bool:
    with np.errstate(invalid="ignore"):
        return bool((np.abs(found - limit) <= NEAR * np.abs(limit) + NEAR_ZERO).any())


def _results(function: str, values: Values) -> list[InputOutputParam]:
    """Places in the results that may be numbers: dimensions of tensors, and numbers themselves."""
    tensors = values.returned.frame.filter(pl.col("index") < 2)
    result = []
    for index, shapes in sorted(tensors.group_by("index").agg(pl.col("shape").list.len().max()).iter_rows()):
        for dimension in range(min(int(shapes or 0), MOST_DIMENSIONS)):
            result.append(tensor_place(function, None, int(index), ["shape", dimension], False))
    plain = values.found.captures.filter(pl.col("moment") == "out", pl.col("kind").is_in(["int", "float"]))
    for path in sorted(plain["path"].unique().cast(pl.String).to_list()):
        if path == "ret" or (path.startswith("ret[") and "." not in path):
            result.append(
                InputOutputParam(
                    param_type="InputOutputParam",
                    name=path,
                    index=None,
                    type="number",
                    additional_path=None,
                    api_name=function,
                    is_input=False,
                )
            )
    return result
