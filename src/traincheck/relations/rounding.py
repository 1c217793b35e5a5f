"""Updates that rounding swallows: no sign of a parameter that is not trained.

A bias in front of a normalisation has a gradient of mere noise; whether an update of that size moves a float32 depends
on the seed and the learning rate. So a parameter that stays where it was says nothing when the optimizer holds it, it
had a gradient, and others of its parameter group moved in the same call. In narrower formats it does say something:
there, lost updates are a known fault of training.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from traincheck.relations.call_arrays import call_keys
from traincheck.relations.numbers import KIND, Array, Mask, code, dense
from traincheck.relations.state_changes import Changes, VariableValues

CONTENT: Final = "data"
"""The attribute this is about."""

FACTS: Final = frozenset({"grad", "in_optimizer", "dtype"})
"""What must be known of a parameter at the start of the call."""

_PRECISE: Final = ("torch.float32", "torch.float64")


def swallowed(found: Changes, among: Mask) -> Mask:
    """Which examples (of those in ``among``, whose value at both ends is known) are such updates."""
    nothing = np.zeros(found.examples.height, dtype=bool)
    mine = np.flatnonzero(among & (found.examples["attribute"] == code(CONTENT)))
    if not len(mine):
        return nothing
    moved: Mask = np.asarray(found.after.key[mine] != found.before.key[mine], dtype=bool)
    if moved.all() or not moved.any():
        return nothing
    told = VariableValues(found.take(mine))
    facts = {name: told(f"attributes.{name}") for name in FACTS}
    group, grad, dtype = (facts[name] for name in ("in_optimizer", "grad", "dtype"))
    if group is None or grad is None or dtype is None:
        return nothing
    held = group.known & (group.kind != KIND["none"])
    precise = np.fromiter((text in _PRECISE for text in dtype.value), dtype=np.bool_, count=len(mine))
    alive = held & grad.known & (grad.kind != KIND["none"]) & precise
    of_group, count = dense(call_keys(found.examples)[mine], _ranked(group.key))
    others = np.zeros(count, dtype=bool)
    others[of_group[moved & held]] = True
    nothing[mine] = alive & ~moved & others[of_group]
    return nothing


def _ranked(keys: Array) -> Array:
    numbers: dict[object, int] = {}
    return np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), dtype=np.int64, count=len(keys))
