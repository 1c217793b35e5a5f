"""Short names for people, and which functions rules are learned about."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PRIVATE_BUT_OPEN: Final = frozenset(
    ("_tensor", "_C", "_nn", "_VariableFunctionsClass", "_ops", "_functions", "_functional_collectives")
)
"""Private modules and classes of torch in which public functions live."""

_NOT_TRAINING: Final = (
    "torch.overrides",
    "torch._C._get_",
    "torch._C._is_",
    "torch._C._log_",
    "torch.utils._",
    "torch.jit",
    "torch.fx",
    "torch.package",
    "torch.hub",
    "torch.testing",
    "torch.version",
    "torch.serialization._",
    "logging.",
    "warnings.",
    "builtins.",
)
"""Beginnings of names of functions that are not training: nothing is learned about them."""

_SPOKEN: Final = (
    ("torch._VariableFunctionsClass.", "torch."),
    ("torch._C.TensorBase.", "Tensor."),
    ("torch._C._nn.", "functional."),
)
"""Where torch's own home of a function is not the name people call it by."""

_DUNDER: Final = re.compile(r"__\w+__")
_ASKS: Final = re.compile(r"(^|\.)(is|are|has|get|can|should|current)_\w+$")


@lru_cache(maxsize=65536)
def short(name: str) -> str:
    """From the first capitalised part on, else the last two parts: ``Optimizer.step``, ``functional.dropout``."""
    for full, spoken in _SPOKEN:
        if name.startswith(full):
            return spoken + name[len(full) :]
    parts = name.split(".")
    for position, part in enumerate(parts):
        if part[:1].isupper():
            return ".".join(parts[position:])
    return ".".join(parts[-2:])


def as_recorded(attribute: str) -> str:
    """Name of an attribute as the importer gives it: the prefix of 0.x as its later versions wrote it."""
    return attribute.replace("_ML_DAIKON_", "_TRAINCHECK_", 1) if attribute.startswith("_ML_DAIKON_") else attribute


def last(name: str) -> str:
    """Last part of a dotted name: ``torch.nn.Parameter`` -> ``Parameter``."""
    return name.rpartition(".")[2]


@lru_cache(maxsize=65536)
def learnable(name: str) -> bool:
    """Whether rules are learned about the function: public, defined in the open, part of training.

    Questions (``is_…``, ``get_…``) are not: whether they are asked says nothing about training. Nor is leaving a
    context that was entered.
    """
    if "<" in name or name.endswith(".__exit__") or name.startswith(_NOT_TRAINING) or _ASKS.search(name):
        return False
    return not any(
        part.startswith("_") and part not in _PRIVATE_BUT_OPEN and not _DUNDER.fullmatch(part)
        for part in name.split(".")
    )
