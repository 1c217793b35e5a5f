"""APIContainRelation: every call of P contains a call of C, or changes an attribute of variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from traincheck.invariants import APIParam, Group, Invariant, VarNameParam, VarTypeParam
from traincheck.relations import (
    contain_arguments_learn,
    contain_calls,
    contain_calls_learn,
    contain_states,
    contain_states_learn,
)
from traincheck.relations.base import Candidate, Explanation, Judgement, Needs, Numbered, Row, StateNeed
from traincheck.relations.call_arrays import CallTable, call_keys, captured, judgement
from traincheck.relations.contain_arguments import Wanted, unreadable, wanted
from traincheck.relations.contain_calls import PARENT
from traincheck.relations.contain_related import Related
from traincheck.relations.contain_states import VARIABLE, StateCarry
from traincheck.relations.names import last, short
from traincheck.relations.numbers import Table, stack
from traincheck.relations.state_changes import look
from traincheck.relations.tables import Tables, Window
from traincheck.relations.values import say
from traincheck.relations.wording import condition, kind_of, names, properties

Child = APIParam | VarTypeParam | VarNameParam

_IDENTITIES: Final = ("_TRAINCHECK_data_ID", "_TRAINCHECK_grad_ID", "_ML_DAIKON_data_ID", "_ML_DAIKON_grad_ID")
"""Attributes of 0.x that hold ``id()`` of temporaries."""


@dataclass(frozen=True)
class ContainCarry:
    """What spans windows: open calls, values, and the captures of calls not judged yet."""

    calls: contain_calls.Program
    states: contain_states.Program
    open: Table | None = None
    inside: contain_calls.Inside = field(default_factory=contain_calls.Inside.nothing)
    seen: StateCarry = field(default_factory=StateCarry)
    captures: Table | None = None
    related: Related | None = None

    @classmethod
    def of(cls, invariants: Sequence[Numbered]) -> ContainCarry:
        """Before the first window."""
        return cls(contain_calls.Program.of(invariants), contain_states.Program.of(invariants))


class APIContain:
    """See docs/relations.md, *APIContain*."""

    name: str = "APIContainRelation"
    scope: Literal["process", "run"] = "process"

    def supports(self, invariant: Invariant) -> str | None:
        """What 0.x could not write down cannot be compared."""
        child = invariant.params[1]
        if isinstance(child, APIParam):
            return unreadable(child.arguments)
        if isinstance(child, (VarTypeParam, VarNameParam)) and child.attr_name.endswith(_IDENTITIES):
            return "which object a tensor is, is no property of training (W-B5)"
        return None

    def needs(self, invariant: Invariant) -> Needs:
        """Both functions, or the function and the state around it; what the precondition asks for."""
        parent, child = _params(invariant)
        asked = properties(invariant)
        function = parent.api_full_name
        captures = {
            (function, prop.removeprefix("captures.").partition("@")[0])
            for prop in asked
            if prop.startswith("captures.")
        }
        facts = contain_states.facts(invariant)
        stages = "meta_vars.stage" in asked
        facts |= {prop for prop in asked if prop.startswith("optimizer.")}
        if isinstance(child, APIParam):
            if child.arguments is not None:
                captures |= {(child.api_full_name, name) for name in child.arguments.args}
            functions = frozenset((function, child.api_full_name))
            return Needs(functions, frozenset(captures), facts=facts, stages=stages)
        facts |= contain_states.beside_facts(child, _each(invariant))
        state = StateNeed(function, child.var_type, child.attr_name, contain_states.compares_content(child))
        return Needs(frozenset((function,)), frozenset(captures), frozenset((state,)), facts, stages)

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """API children, those with constant arguments, variable children."""
        return [
            *contain_calls_learn.hypothesize(references),
            *contain_arguments_learn.hypothesize(references),
            *contain_states_learn.hypothesize(references),
        ]

    def fold(self, invariants: Sequence[Invariant]) -> list[Invariant]:
        """Without containment that follows from other containment."""
        return contain_calls_learn.fold(invariants)

    def evaluate(
        self, invariants: Sequence[Numbered], window: Window, carry: ContainCarry | None
    ) -> tuple[Judgement, ContainCarry]:
        """Judge calls in the window in which they (and the observation after them) end."""
        carry = ContainCarry.of(invariants) if carry is None else carry
        tree = CallTable.of(window, carry.open)
        foreign = window.source == "traincheck-0.x" and bool(carry.states.each)
        related = (carry.related or Related()).and_of(window.captures) if foreign else None
        asked = carry.calls.captured | carry.states.captured
        captures = captured(window.captures, asked | carry.states.each if foreign else asked)
        if carry.captures is not None:
            captures = stack([carry.captures, captures])
        tally, inside = contain_calls.evaluate(carry.calls, tree, captures, carry.inside)
        seen, tallies = carry.seen, [tally]
        if carry.states.rules:
            states = look(window.states, carry.states.watched)
            if window.source == "traincheck-0.x":
                states = contain_states.around(states, tree, carry.states)
            more, seen = contain_states.evaluate(carry.states, tree, captures, states, carry.seen, related)
            tallies += more
        waiting = [call_keys(tree.open), *([call_keys(seen.pending)] if seen.pending is not None else [])]
        later = captures.take(np.isin(call_keys(captures), np.concatenate(waiting)))
        return judgement(*tallies), replace(
            carry, open=tree.open, inside=inside, seen=seen, captures=later, related=related
        )

    def describe(self, invariant: Invariant) -> str:
        """As 0.x labels it, with arguments and condition."""
        parent, child = _params(invariant)
        when = condition(invariant, PARENT)
        if isinstance(child, APIParam):
            return f"{_api(parent)} always calls {_call(child)}{when}"
        kind = kind_of(invariant, VARIABLE, child.var_type) if _each(invariant) else last(child.var_type)
        what = f"{kind}.{_attribute(child.attr_name)}"
        if isinstance(child, VarNameParam):
            what = f"{child.var_name}.{_attribute(child.attr_name)}"
        elif _each(invariant):
            what = f"every {what}"
        which = condition(invariant, VARIABLE, "where", without="role") if _each(invariant) else ""
        if child.is_set("const_value"):
            return f"{_api(parent)} leaves {what} at {say(child.const_value)}{which}{when}"
        arrow = ""
        if child.is_set("pre_value") or child.is_set("post_value"):
            pre = say(child.pre_value) if child.is_set("pre_value") else "anything"
            post = say(child.post_value) if child.is_set("post_value") else "anything"
            arrow = f": {pre} --> {post}"
        return f"{_api(parent)} changes {what}{arrow}{which}{when}"

    def dormant(self, invariant: Invariant, called: int, observed: int) -> str:
        """Why it never applied."""
        parent, child = _params(invariant)
        if not called:
            how = f" with {last(parent.exception)}" if parent.exception else ""
            return f"{short(parent.api_full_name)} was never called (and finished{how})"
        if not observed and not isinstance(child, APIParam):
            what = f"{last(child.var_type)}.{child.attr_name}"
            return f"no {what} was observed both before and after {short(parent.api_full_name)}"
        when = (condition(invariant, PARENT) + condition(invariant, VARIABLE, "where")).strip()
        return f"its precondition was never met ({when or 'none'})"

    def unobserved(self, invariant: Invariant) -> str | None:
        """Arguments may not have been recorded."""
        _, child = _params(invariant)
        if isinstance(child, APIParam):
            return f"it was not recorded what {short(child.api_full_name)} was called with"
        return None

    def explain(self, invariant: Invariant, rows: Sequence[Row]) -> Explanation:
        """What did not happen, where, and what that usually means."""
        parent, child = _params(invariant)
        if isinstance(child, APIParam):
            return _explain_call(parent, child, rows, self.describe(invariant))
        return _explain_state(parent, child, rows, self.describe(invariant))


def _params(invariant: Invariant) -> tuple[APIParam, Child]:
    parent, child = invariant.params[0], invariant.params[1]
    if not isinstance(parent, APIParam) or not isinstance(child, (APIParam, VarTypeParam, VarNameParam)):
        raise TypeError("not parameters of APIContainRelation")  # the model has made sure
    return parent, child


def _each(invariant: Invariant) -> bool:
    group: Group | None = invariant.precondition.get(VARIABLE)
    return group is not None and bool(group.preconditions)


def _attribute(name: str) -> str:
    return name.removeprefix("_TRAINCHECK_").removeprefix("_ML_DAIKON_")


def _api(param: APIParam) -> str:
    return f"{short(param.api_full_name)}()"


def _call(param: APIParam) -> str:
    arguments = [f"{one.name}={_value(one)}" for one in wanted(param.arguments)]
    return f"{short(param.api_full_name)}({', '.join(arguments)})"


def _value(one: Wanted) -> str:
    return last(one.type) if isinstance(one.payload, dict) else one.text


def _explain_call(parent: APIParam, child: APIParam, rows: Sequence[Row], expected: str) -> Explanation:
    p, c = short(parent.api_full_name), short(child.api_full_name)
    seen = next((str(row["after"]) for row in rows if row["after"]), None)
    apis = (parent.api_full_name, child.api_full_name)
    if seen is not None:
        return Explanation(
            title=f"{p}() called {c}() with {seen}",
            expected=expected,
            observed=f"{_times(len(rows))} {p}() called {c}() with {seen}, and never with what was expected",
            meaning=f"{c}() was told to do something else than in the reference runs: a module is in the other mode "
            "(train() or eval() missing), a dtype or an option differs.",
            kind=f"arguments {parent.api_full_name} {child.api_full_name}",
            apis=apis,
            specificity=30,
        )
    return Explanation(
        title=f"{p}() did not call {c}()",
        expected=expected,
        observed=f"{_times(len(rows))} {p}() ended without a call of {_call(child)} that returned",
        meaning=f"{p}() took another path than in the reference runs: another configuration, a missing part, or an "
        "error that was swallowed.",
        kind=f"call {parent.api_full_name}",
        apis=apis,
        specificity=10,
    )


def _explain_state(
    parent: APIParam, child: VarTypeParam | VarNameParam, rows: Sequence[Row], expected: str
) -> Explanation:
    p, attribute = short(parent.api_full_name), _attribute(child.attr_name)
    tensors = tuple(sorted({str(row["variable"]) for row in rows if row["variable"]}))
    who = f"{names(tensors)}.{attribute}" if len(tensors) == 1 else f"{attribute} of {names(tensors)}"
    if not tensors:
        who = f"{last(child.var_type)}.{attribute}"
    first = rows[0]
    case = _case(first, child)
    verb = {
        "kept": f"was not {say(child.const_value)} after {p}()",
        "early": f"was already set before {p}()",
        "same": f"did not change in {p}()",
        "left": f"was not cleared by {p}()",
        "other": f"did not change as expected in {p}()",
    }[case]
    if not tensors:
        verb = {
            "early": f"was already set before {p}() for all variables",
            "same": f"of no variable changed in {p}()",
        }.get(case, verb)
    seen = f"{_short(first['before'])} --> {_short(first['after'])}"
    example = f" ({first['variable']}: {seen})" if first["variable"] else ""
    return Explanation(
        title=f"{who} {verb}",
        expected=expected,
        observed=f"{who} {verb}{example}",
        meaning=_meaning(parent.api_full_name, attribute, case),
        kind=f"state {attribute} {case}",
        apis=(parent.api_full_name,),
        tensors=tensors,
        specificity=100 if tensors else 50,
    )


def _case(row: Row, child: VarTypeParam | VarNameParam) -> Literal["kept", "early", "same", "left", "other"]:
    before, after = row["before"], row["after"]
    if child.is_set("const_value"):
        return "kept"
    if child.is_set("pre_value") and child.pre_value is None and before != "None":
        return "early"
    if before == after:
        clears = child.is_set("post_value") and child.post_value is None
        return "left" if clears and before != "None" else "same"
    return "other"


def _meaning(function: str, attribute: str, case: str) -> str:
    if attribute == "grad" and case == "early":
        return (
            "Gradients of an earlier step were not cleared: zero_grad() is missing, comes too late, or belongs to an "
            "optimizer over other parameters. Gradients add up and the updates are wrong."
        )
    if attribute == "grad" and case == "left":
        return (
            "zero_grad() does not reach these parameters: the optimizer was built over others, or they were replaced "
            "afterwards."
        )
    if attribute == "grad" and case == "same":
        return (
            "The loss does not reach these parameters: they are frozen (requires_grad=False), detached, unused in "
            "forward, or the model that is trained is another one."
        )
    if attribute == "data" and case == "same":
        return (
            "These parameters are not trained: not in the optimizer (built over other parameters, or before the model "
            "was changed), frozen, without gradient, already NaN, or the learning rate is 0."
        )
    return f"{short(function)}() does not do to these tensors what it did in the reference runs."


def _short(text: Any) -> str:
    value = str(text)
    return f"content {value[:8]}" if len(value) == 32 and all(c in "0123456789abcdef" for c in value) else value


def _times(count: int) -> str:
    return "once," if count == 1 else f"{count} times,"
