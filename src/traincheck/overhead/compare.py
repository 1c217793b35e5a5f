"""Whether two trainings were the same, bit by bit; where not, the first difference by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rank = Mapping[str, Any]
"""Content of a ``rank-<N>.json``."""


def first_difference(plain: Sequence[Rank], watched: Sequence[Rank]) -> str | None:
    """What differs first, in the order in which training goes; None when all evidence is equal."""
    if len(plain) != len(watched):
        return f"the plain run has {len(plain)} ranks, the watched one {len(watched)}"
    for number, (one, other) in enumerate(zip(plain, watched, strict=True)):
        found = _of_rank(one, other)
        if found is not None:
            return f"rank {number}: {found}" if len(plain) > 1 else found
    return None


def compared(rank: Rank) -> int:
    """How many facts of a rank are compared."""
    evidence = rank["evidence"]
    parts = [evidence[when][part] for when in ("initial", "final") for part in ("parameters", "gradients", "buffers")]
    parts += [evidence["optimizers"], evidence["rng_before"], evidence["rng_after"]]
    return sum(map(len, parts)) + sum(2 + len(step["rng"]) for step in rank["steps"])


def _of_rank(one: Rank, other: Rank) -> str | None:
    a, b = one["evidence"], other["evidence"]
    return (
        _state("initial", a["initial"], b["initial"])
        or _flat("generator before training", a["rng_before"], b["rng_before"])
        or _steps(one["steps"], other["steps"])
        or _state("final", a["final"], b["final"])
        or _flat("optimizer value after training", a["optimizers"], b["optimizers"])
        or _flat("generator after training", a["rng_after"], b["rng_after"])
    )


def _steps(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> str | None:
    for a, b in zip(one, other, strict=False):
        where = f"step {a['step']}"
        if a.get("batch") != b.get("batch"):
            return f"{where}: the batch differs"
        if a.get("loss") != b.get("loss"):
            return f"{where}: the loss is {_loss(a)} without and {_loss(b)} with"
        found = _flat("generator", a["rng"], b["rng"])
        if found is not None:
            return f"{where}: {found}"
    if len(one) != len(other):
        return f"{len(one)} steps without and {len(other)} with"
    return None


def _loss(step: Mapping[str, Any]) -> str:
    loss = step.get("loss")
    return f"{loss['value']} ({loss['bits']})" if loss else "missing"


def _state(when: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    for part in ("parameters", "gradients", "buffers"):
        found = _flat(f"{when} {part[:-1]}", one[part], other[part])
        if found is not None:
            return found
    return None


def _flat(what: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    for name in sorted({*one, *other}):
        a, b = one.get(name, "absent"), other.get(name, "absent")
        if a != b:
            return f"{what} {name} differs{_how(a, b)}"
    return None


def _how(a: Any, b: Any) -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        fields = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
        return f" in {', '.join(fields)}"
    return ": it is there only once" if "absent" in (a, b) else ""
