"""From a need of state to what the observer must look at: which parts (content, gradients, …) at which reasons.

What a rule about a call compares is the value after the call with the last one before it. Where the function is
observed on both sides that is all that is needed; otherwise the last value may stem from any observation, and all of
them are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from traincheck.collect.observe.policy import (
    DATA,
    FACT_NAMES,
    FACTS,
    FULL,
    GRAD,
    GROUPS,
    HAS_GRAD,
    MODE,
    OTHER_NAMES,
    STATE,
    VALUE,
)
from traincheck.relations.base import PRESENT, Needs, StateNeed
from traincheck.relations.names import as_recorded

Parts = Mapping[str, frozenset[str]]
"""Reason -> parts, as the observer's policy has them."""

_AROUND: Final = {
    "step": ("step:before", "step:after", "scheduler"),
    "zero_grad": ("zero_grad:before", "zero_grad:after"),
}
"""Last part of a function's name -> reasons of the observations before and after its calls."""

_OPTION: Final = "optimizer."
ALWAYS: Final[Parts] = {"process": frozenset({VALUE})}
"""What every run says of itself."""


def parts_of(needs: Needs) -> dict[str, frozenset[str]]:
    """What must be observed so that what the needs speak of is known as on the full trace."""
    reasons = _reasons(needs.states)
    found: dict[str, frozenset[str]] = {}
    for need in needs.states:
        for part, where in _where(need.variable_type, need.attribute):
            _add(found, part if need.content else _PRESENCE.get(part, part), reasons if where is None else where)
    for fact in needs.facts:
        part = GROUPS if fact.startswith(_OPTION) else _part(fact.removesuffix(PRESENT))
        part = _PRESENCE.get(part, part) if fact.endswith(PRESENT) else part
        _add(found, part, FULL if fact.startswith(_OPTION) else reasons)
    return _without_what_is_implied(found)


_PRESENCE: Final[Mapping[str, str]] = {GRAD: HAS_GRAD}
"""Part of content -> the part that says whether there is any."""


def _without_what_is_implied(parts: Parts) -> dict[str, frozenset[str]]:
    implied = {content: frozenset((presence,)) for content, presence in _PRESENCE.items()}
    return {
        reason: some - frozenset().union(*(implied.get(part, frozenset()) for part in some))
        for reason, some in parts.items()
    }


_OBSERVED: Final[Mapping[str, frozenset[str]]] = {
    "input": frozenset({"data", "size", "tensors", "supervised"}),
    "generator": frozenset({"data"}),
}
"""Types of variables of which no more is ever recorded."""


def never_observed(needs: Needs) -> str | None:
    """What of the needs no run of this version records, in full or selective form; None if there is nothing."""
    for need in sorted(needs.states, key=lambda need: (need.variable_type, need.attribute)):
        kind, name = need.variable_type, as_recorded(need.attribute).removesuffix(".missing")
        part = _part(name)
        known = _OBSERVED.get(kind)
        if known is not None:
            lost = name not in known
        elif _is_tensor(kind):
            lost = part == STATE or (part == VALUE and kind.endswith("Parameter"))
            known = frozenset({"data", "grad"}) | FACT_NAMES
        else:
            lost, known = False, frozenset()
        if lost:
            return (
                f"{need.attribute} is not observed of variables of type {kind} (observed: {', '.join(sorted(known))})"
            )
    return None


def covers(parts: Parts, needs: Needs) -> bool:
    """Whether what was observed is enough."""
    return all(
        wanted <= _with_what_is_implied(parts.get(reason, _NOTHING)) for reason, wanted in parts_of(needs).items()
    )


_NOTHING: Final[frozenset[str]] = frozenset()


def _with_what_is_implied(parts: frozenset[str]) -> frozenset[str]:
    return parts | {_PRESENCE[part] for part in parts if part in _PRESENCE}


def together(all_parts: Iterable[Parts]) -> dict[str, frozenset[str]]:
    """What all of these look at."""
    result: dict[str, frozenset[str]] = {}
    for parts in all_parts:
        for reason, some in parts.items():
            result[reason] = result.get(reason, frozenset()) | some
    return _without_what_is_implied(dict(sorted(result.items())))


def _reasons(states: Iterable[StateNeed]) -> tuple[str, ...]:
    reasons: set[str] = {"baseline"}
    for need in states:
        around = _AROUND.get((need.function or "").rpartition(".")[2])
        if around is None:
            return tuple(FULL)
        reasons.update(around)
    return tuple(sorted(reasons)) if len(reasons) > 1 else tuple(FULL)


def _add(found: dict[str, frozenset[str]], part: str, reasons: Iterable[str]) -> None:
    for reason in reasons:
        if part in FULL[reason] or part in _with_what_is_implied(FULL[reason]):
            found[reason] = found.get(reason, frozenset()) | {part}


_ALONE: Final = {"input": ("input",), "generator": ("rng",), "process": ("process",)}
"""Types of variables that are looked at for one reason only."""


def _where(variable_type: str, attribute: str) -> list[tuple[str, tuple[str, ...] | None]]:
    """Parts that hold an attribute of variables of a type, and the reasons (None: those of the function)."""
    if variable_type in _ALONE:
        return [(VALUE, _ALONE[variable_type])]
    part = _part(attribute)
    if part == MODE:
        return [(MODE, tuple(FULL))]
    if _is_tensor(variable_type):
        loss: list[tuple[str, tuple[str, ...] | None]] = [(VALUE, ("loss",))]
        return [(part, None), *(loss if attribute in ("value", "dtype", "requires_grad") else [])]
    if part in (DATA, VALUE):  # a batch
        return [(VALUE, ("batch", "input"))]
    return [(STATE, None), (GROUPS, tuple(FULL))]  # an optimizer's


def _is_tensor(variable_type: str) -> bool:
    """Or a module of torch's own; these have other attributes."""
    own = variable_type.startswith("torch.") and not variable_type.startswith("torch.optim.")
    return own or variable_type.endswith(("Parameter", "Tensor"))


def _part(attribute: str) -> str:
    name = as_recorded(attribute)
    if name in ("data", "grad", "main_grad"):
        return DATA if name == "data" else GRAD
    if name in FACT_NAMES or name.startswith("mesh"):
        return FACTS
    if name in ("training", "training_modules", "modules"):
        return MODE
    return VALUE if name in OTHER_NAMES and name != "lr" else STATE
