"""ConsistentInputOutputRelation: an attribute of what F is given equals an attribute of what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.invariants import ALWAYS, APIParam, Invariant
from traincheck.relations import call_values_rules as rules
from traincheck.relations.base import Candidate, Explanation, Judgement, Needs, Numbered, Row
from traincheck.relations.call_values import PRE_EVENT, ValueCarry
from traincheck.relations.call_values_names import computes
from traincheck.relations.call_values_places import places_of, say_place, tensor_place, unfollowable, value_at
from traincheck.relations.call_values_rules import Example, Seen
from traincheck.relations.call_values_table import Column, Mask, Values
from traincheck.relations.tables import Tables, Window
from traincheck.relations.wording import condition

MOST_DIMENSIONS: Final = 5
MIN_SIZES: Final = 2
"""Different sizes that must have been seen: that two sizes are both 32 in one run says nothing."""


class ConsistentInputOutput:
    """See docs/relations.md, *ConsistentInputOutput*."""

    name: str = "ConsistentInputOutputRelation"
    scope: Literal["process", "run"] = "process"

    def supports(self, invariant: Invariant) -> str | None:
        """Both places must be found in a call that returned."""
        given, back = places_of(invariant)
        if not given.is_input or back.is_input:
            return "expected a place in the arguments, then one in the results"
        return unfollowable(given) or unfollowable(back) or rules.unsupported(invariant)

    def needs(self, invariant: Invariant) -> Needs:
        """The function with its arguments and result, and what the precondition asks for."""
        return rules.needs(invariant, ["*"])

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """dtype and sizes of the first tensor passed to layers and losses, against what they give back."""
        result: list[Candidate] = []
        examples = rules.examples(references, computes)
        for function, found in examples.items():
            result += _candidates(function, Example(found, function))
        return rules.told_by_callers(result, examples, references, inputs_too=True)

    def fold(self, invariants: Sequence[Invariant]) -> list[Invariant]:
        """Without single dimensions where the whole shape is preserved."""
        whole = {_but_path(invariant) for invariant in invariants if _paths(invariant) == (["shape"], ["shape"])}
        return [
            invariant
            for invariant in invariants
            if not (_but_path(invariant) in whole and all(len(p) == 2 for p in _paths(invariant)))
        ]

    def evaluate(
        self, invariants: Sequence[Numbered], window: Window, carry: ValueCarry | None
    ) -> tuple[Judgement, ValueCarry]:
        """Judge calls in the window in which they end."""
        return rules.evaluate(_judge, invariants, window, carry)

    def describe(self, invariant: Invariant) -> str:
        """As 0.x labels it, with the condition."""
        given, back = places_of(invariant)
        when = condition(invariant, PRE_EVENT)
        return f"{rules.spoken(invariant)}: {say_place(given)} consistent with {say_place(back)}{when}"

    def dormant(self, invariant: Invariant, called: int, observed: int) -> str:
        """Why it never applied."""
        return rules.silence(invariant, called, observed, self.unobserved)

    def unobserved(self, invariant: Invariant) -> str:
        """What was not recorded."""
        given, back = places_of(invariant)
        return (
            f"{say_place(given)} and {say_place(back)} were not both recorded in any call of {rules.spoken(invariant)}"
        )

    def explain(self, invariant: Invariant, rows: Sequence[Row]) -> Explanation:
        """Both values, and what it usually means that they differ."""
        given, back = places_of(invariant)
        first = rows[0]
        attribute = str((back.additional_path or ["value"])[0])
        return Explanation(
            title=f"{rules.spoken(invariant)} changed {attribute} from {first['before']} to {first['after']}",
            expected=self.describe(invariant),
            observed=f"{rules.spoken(invariant)}: {say_place(given)} is {first['before']}, "
            f"{say_place(back)} is {first['after']}",
            meaning=_MEANINGS.get(attribute, "The function does not treat its input as in the reference runs."),
            kind=f"input output {attribute}",
            apis=(rules.function_of(invariant),),
            specificity=35,
        )


_MEANINGS: Final = {
    "dtype": "The result is in another precision than the input: autocast is on where it was off, or the parameters "
    "were cast to another dtype than the data.",
    "shape": "The result has another shape than the reference runs make of such an input: a dimension was dropped, "
    "broadcast or mixed up with another.",
}


def _paths(invariant: Invariant) -> tuple[list[str | int], list[str | int]]:
    given, back = places_of(invariant)
    return given.additional_path or [], back.additional_path or []


def _but_path(invariant: Invariant) -> tuple[object, ...]:
    given, back = places_of(invariant)
    where = tuple((place.name, place.index, str((place.additional_path or [""])[0])) for place in (given, back))
    return rules.function_of(invariant), where, str(invariant.precondition)


def _judge(invariant: Invariant, values: Values) -> Seen:
    given, back = places_of(invariant)
    function = rules.function_of(invariant)
    one, two = value_at(given, function, values), value_at(back, function, values)
    observed, same = _compared(one, two)

    def evidence(rows: npt.NDArray[np.int64]) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "variable": two.paths[rows],
                "attribute": say_place(back).rpartition(".")[2],
                "before": one.texts[rows],
                "after": two.texts[rows],
            },
            schema=rules.EVIDENCE,
        )

    return Seen(observed, ~same, evidence)


def _compared(one: Column, two: Column) -> tuple[Mask, Mask]:
    """Where both are known, and where they are equal: numbers as numbers, else by text or identity."""
    same = (one.keys == two.keys) | (one.numbers == two.numbers)
    return one.comparable & two.comparable, same.astype(bool)


def _candidates(function: str, example: Example) -> list[Candidate]:
    values = example.values
    tensors = values.given.frame.filter(pl.col("index") == 0)
    if tensors.is_empty() or values.returned.frame.is_empty():
        return []
    names = tensors["name"].drop_nulls().unique().to_list()
    # One name in all calls: the rule then holds however the argument is passed.
    name = str(names[0]) if len(names) == 1 and not tensors["name"].null_count() else None
    dimensions = min(int(str(tensors["shape"].list.len().max() or 0)), MOST_DIMENSIONS)
    paths: list[list[str | int]] = [["dtype"], ["device"], ["shape"]]
    for dimension in range(dimensions):
        paths.append(["shape", dimension])
    outs = sorted(int(n) for n in values.returned.frame["index"].unique().to_list() if n < 2)
    result = []
    for path in paths:
        for out in outs:
            invariant = _invariant(function, name, path, out)
            given, back = places_of(invariant)
            one, two = value_at(given, function, values), value_at(back, function, values)
            observed, same = _compared(one, two)
            sized = path != ["dtype"]
            if sized and len(set(one.keys[observed])) < MIN_SIZES:
                continue
            # That sizes agree in some calls is geometry of those layers, no rule: no condition is looked for.
            candidate = example.candidate(invariant, same, observed, conditional=not sized)
            if candidate is not None:
                result.append(candidate)
    return result


def _invariant(function: str, name: str | None, path: list[str | int], out: int) -> Invariant:
    return Invariant(
        text_description="",
        relation=ConsistentInputOutput.name,
        params=[
            tensor_place(function, name, 0, path, True),
            APIParam(param_type="APIParam", api_full_name=function),
            tensor_place(function, None, out, path, False),
        ],
        precondition={PRE_EVENT: ALWAYS},
    )
