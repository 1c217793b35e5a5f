"""An invariant in full: its parameters, its precondition and its support in words, and the row that lists show."""

from __future__ import annotations

from typing import Any, Final

from traincheck.invariants import (
    APIParam,
    InputOutputParam,
    Invariant,
    InvariantSet,
    VarNameParam,
    VarTypeParam,
)
from traincheck.manage.select import references_of, support_of
from traincheck.relations.values import say
from traincheck.relations.wording import condition

_GROUPS: Final = {
    "parent_func_call_pre": "the call",
    "var_events": "each variable, at the start of the call",
    "var": "the two variables",
    "pre_event": "the call",
    "func_lead": "the call",
    "func_cover": "the call",
    "distinct_arg": "the two calls",
}
"""What the groups of a precondition speak of."""


def row(invariants: InvariantSet, number: int) -> dict[str, Any]:
    """One line of a list, for JSON."""
    invariant: Invariant = invariants[number]
    file, line = invariants.places[number] if number < len(invariants.places) else (None, None)
    return {
        "index": number,
        "id": invariant.key,
        "relation": invariant.relation,
        "text": invariant.text_description,
        "support": support_of(invariant),
        "steps": invariant.support.steps if invariant.support is not None else None,
        "references": references_of(invariant),
        "file": file,
        "line": line,
    }


def detail(invariants: InvariantSet, number: int) -> dict[str, Any]:
    """The row, the words, and the invariant as in the file."""
    invariant: Invariant = invariants[number]
    return {
        **row(invariants, number),
        "parameters": parameters(invariant),
        "precondition": [{"of": of, "holds_when": words} for of, words in conditions(invariant)],
        "invariant": invariant.to_json(),
    }


def parameters(invariant: Invariant) -> list[str]:
    """Each parameter in words."""
    return [_parameter(param) for param in invariant.params]


def conditions(invariant: Invariant) -> list[tuple[str, str]]:
    """Each group of the precondition: what it speaks of, and when it holds."""
    return [
        (_GROUPS.get(name, name), "always" if group.unconditional else condition(invariant, name, "").strip())
        for name, group in sorted(invariant.precondition.items())
    ]


def condition_line(invariant: Invariant) -> str:
    """The whole precondition in one line."""
    told = [f"{of}: {words}" for of, words in conditions(invariant) if words != "always"]
    return "; ".join(told) or "always"


def support_line(invariant: Invariant) -> str:
    """How sure it is, in one line."""
    support = invariant.support
    if support is None:
        if invariant.num_positive_examples is None:
            return "the file does not say"
        without = invariant.num_negative_examples
        return f"{invariant.num_positive_examples:,} examples" + (f", {without:,} against" if without else "")
    words = [
        _count(support.applications, "application"),
        _count(support.steps, "step"),
        _count(support.ranks, "rank"),
        _count(support.references, "reference"),
    ]
    if support.excluded:
        words.append(f"{_count(support.excluded, 'counter-example')} kept out by the precondition")
    return ", ".join(words)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _parameter(param: APIParam | VarTypeParam | VarNameParam | InputOutputParam) -> str:
    if isinstance(param, APIParam):
        ending = f" that raise {param.exception}" if param.exception else ""
        if param.arguments is not None:
            given = (f"{name}={_argument(value)}" for name, value in param.arguments.args.items())
            ending += f" with {', '.join(given)}" if param.arguments.args else ""
        return f"calls of {param.api_full_name}{ending}"
    if isinstance(param, InputOutputParam):
        place = "input" if param.is_input else "output"
        where = f" {param.name}" if param.name else ""
        where += f" [{param.index}]" if param.index is not None else ""
        path = "".join(f".{step}" for step in param.additional_path or ())
        return f"{place}{where}{path} of {param.api_name} ({param.type})"
    of = f"variable {param.var_name}" if isinstance(param, VarNameParam) else f"variables of type {param.var_type}"
    values = []
    if param.is_set("const_value"):
        values.append(f"is {say(param.const_value)}")
    if param.is_set("pre_value") or param.is_set("post_value"):
        before = say(param.pre_value) if param.is_set("pre_value") else "anything"
        after = say(param.post_value) if param.is_set("post_value") else "anything"
        values.append(f"{before} --> {after}")
    return f"attribute {param.attr_name} of {of}" + (f": {', '.join(values)}" if values else "")


def _argument(value: dict[str, Any]) -> str:
    # ``{type name: value}``; objects are told by their type, their attributes would fill a page.
    if len(value) != 1:
        return "…"
    ((kind, content),) = value.items()
    return f"{kind}(…)" if isinstance(content, (dict, list)) else repr(content)
