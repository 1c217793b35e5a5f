"""ConsistentOutputRelation: every tensor that calls of F give back has an attribute of one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.invariants import ALWAYS, APIParam, Invariant, VarNameParam, VarParam, VarTypeParam
from traincheck.relations import call_values_rules as rules
from traincheck.relations.base import Candidate, Explanation, Judgement, Needs, Numbered, Row
from traincheck.relations.call_values import PRE_EVENT, ValueCarry, readable
from traincheck.relations.call_values_names import computes
from traincheck.relations.call_values_rules import Example, Seen
from traincheck.relations.call_values_table import Values
from traincheck.relations.tables import Tables, Window
from traincheck.relations.values import say
from traincheck.relations.wording import condition

NOTHING: Final = "no tensor"
_UNKNOWN_OF_OLD: Final = "NOT SERIALIZABLE: "


class ConsistentOutput:
    """See docs/relations.md, *ConsistentOutput*."""

    name: str = "ConsistentOutputRelation"
    scope: Literal["process", "run"] = "process"

    def supports(self, invariant: Invariant) -> str | None:
        """A constant must be a value, the variables tensors that a call gave back."""
        param = _param(invariant)
        if not isinstance(param, VarTypeParam):
            return "what a call gives back has no name"
        if param.is_set("pre_value") or param.is_set("post_value"):
            return "what a call gives back has one value, not one before and one after"
        if not param.is_set("const_value"):
            return "no constant is given that the attribute should have"
        if isinstance(param.const_value, str) and param.const_value.startswith(_UNKNOWN_OF_OLD):
            return "the constant is 0.x's mark of a missing value, not a value (W-B4)"
        return readable([param.attr_name]) or rules.unsupported(invariant)

    def needs(self, invariant: Invariant) -> Needs:
        """The function with what it gives back, and what the precondition asks for."""
        return rules.needs(invariant, ["ret"])

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """dtype of what layers and losses compute; that it requires grad while training."""
        result: list[Candidate] = []
        examples = rules.examples(references, computes)
        for function, found in examples.items():
            example = Example(found, function)
            training = example.in_stage("training")
            for attribute in ("dtype", "requires_grad"):
                column = example.values.returned.values([attribute])
                if attribute == "dtype":
                    constants: list[object] = sorted(column["value"].drop_nulls().unique().to_list())
                else:  # in evaluation it depends on no_grad(), which is a choice
                    constants = [True] if (column["value"] == "True").any() else []
                for constant in constants:
                    invariant = _invariant(function, attribute, constant)
                    seen = _judge(invariant, example.values)
                    observed = seen.observed & training if attribute == "requires_grad" else seen.observed
                    candidate = example.candidate(invariant, ~seen.bad, observed)
                    if candidate is not None:
                        result.append(candidate)
        return rules.told_by_callers(result, examples, references, inputs_too=False)

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
        param = _param(invariant)
        when = condition(invariant, PRE_EVENT)
        returns = f"returns tensors with {param.attr_name}={say(param.const_value)}"
        return f"{rules.spoken(invariant)} consistently {returns}{when}"

    def dormant(self, invariant: Invariant, called: int, observed: int) -> str:
        """Why it never applied."""
        return rules.silence(invariant, called, observed, self.unobserved)

    def unobserved(self, invariant: Invariant) -> str:
        """What was not recorded."""
        return f"{_param(invariant).attr_name} of what {rules.spoken(invariant)} returned was not recorded"

    def explain(self, invariant: Invariant, rows: Sequence[Row]) -> Explanation:
        """What came back instead, and what that usually means."""
        param, first = _param(invariant), rows[0]
        function = rules.function_of(invariant)
        if first["after"] == NOTHING:
            found = "no tensor"
        else:
            found = f"{_tensor(first['variable'])} with {param.attr_name}={first['after']}"
        return Explanation(
            title=f"{rules.spoken(invariant)} returned {found}",
            expected=self.describe(invariant),
            observed=f"{rules.spoken(invariant)} returned {found} instead of {param.attr_name}={first['before']}",
            meaning=_meaning(param.attr_name, str(first["before"]), str(first["after"])),
            kind=f"output {param.attr_name} {first['before']} {first['after']}",
            apis=(function,),
            tensors=(),
            specificity=60 if param.attr_name == "requires_grad" else 40,
        )


def _param(invariant: Invariant) -> VarParam:
    param = invariant.params[1]
    if not isinstance(param, (VarTypeParam, VarNameParam)):
        raise TypeError("not parameters of ConsistentOutputRelation")  # the model has made sure
    return param


def _tensor(path: object) -> str:
    return "a tensor" if path == "ret" else f"a tensor ({path})"


def _judge(invariant: Invariant, values: Values) -> Seen:
    param, function = _param(invariant), rules.function_of(invariant)
    tensors = values.returned
    at = tensors.of(function)
    if param.var_type != "torch.Tensor":
        at = at[tensors.types[at] == param.var_type]
    call = values.local(function, tensors, at)
    column = tensors.column([param.attr_name])
    known = column.known[at]
    broken = known & ~tensors.held(param.attr_name, param.const_value)[at]
    height = len(values.rows(function))
    some = np.bincount(call, minlength=height) > 0
    unknown, bad = (np.bincount(call[mask], minlength=height) > 0 for mask in (~known, broken))
    nothing = values.nothing[values.rows(function)]

    def evidence(wanted: npt.NDArray[np.int64]) -> pl.DataFrame:
        first = np.full(height, -1, dtype=np.int64)
        first[call[broken][::-1]] = at[broken][::-1]
        found = column.at(first[wanted])
        return pl.DataFrame(
            {
                "variable": [path if known else "ret" for path, known in zip(found.paths, found.known, strict=True)],
                "attribute": param.attr_name,
                "before": str(param.const_value),
                "after": [text if known else NOTHING for text, known in zip(found.texts, found.known, strict=True)],
            },
            schema=rules.EVIDENCE,
        )

    return Seen(nothing | bad | (some & ~unknown), bad | nothing, evidence)


def _invariant(function: str, attribute: str, constant: object) -> Invariant:
    return Invariant(
        text_description="",
        relation=ConsistentOutput.name,
        params=[
            APIParam(param_type="APIParam", api_full_name=function),
            VarTypeParam.model_validate(
                {
                    "param_type": "VarTypeParam",
                    "var_type": "torch.Tensor",
                    "attr_name": attribute,
                    "const_value": constant,
                }
            ),
        ],
        precondition={PRE_EVENT: ALWAYS},
    )


def _meaning(attribute: str, expected: str, found: str) -> str:
    if found == NOTHING:
        return "A part of the program gave nothing back where the reference runs computed a tensor."
    if attribute == "requires_grad" and expected == "True":
        return (
            "Gradients cannot flow back through this result: the parameters are frozen (requires_grad=False), it was "
            "computed under no_grad() or inference_mode(), or its input was detached. What lies before it is not "
            "trained."
        )
    if attribute == "dtype":
        return (
            f"Computed in {found} where the reference runs computed in {expected}: autocast is missing, has another "
            "dtype, or the model or its input was cast."
        )
    return "The function gives back another kind of tensor than in the reference runs."
