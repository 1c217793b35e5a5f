"""Values as a trace holds them: canonical text, and the small classes that name what Python values cannot say.

The classes are what ``TraceBuilder`` and the 0.x importer take; ``canonical`` and ``symbol_text`` are the one place
where the text that relations compare is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

TYPE_NAMES: Final = {
    "dtype": "torch.dtype",
    "device": "torch.device",
    "shape": "torch.Size",
    "layout": "torch.layout",
    "memory_format": "torch.memory_format",
}
"""Types of ``value`` symbols that have a longer name in the frames."""

_NOT_PLAIN_FIRST: Final = frozenset('0123456789+-."[{(')
_NOT_PLAIN: Final = frozenset({"", "None", "True", "False", "nan", "inf", "NaN", "Infinity"})


@dataclass(frozen=True)
class Symbol:
    """An interned value with a type of its own: ``Symbol("dtype", "torch.float32")``, ``Symbol("shape", [2, 3])``."""

    type: str
    v: Any


@dataclass(frozen=True)
class Identity:
    """An ``id()`` or pointer: comparable within a process, never a constant."""

    number: int


@dataclass(frozen=True)
class Digest:
    """A content digest: 32 hex digits."""

    hex: str


@dataclass(frozen=True)
class Object:
    """An object of which only the type (full name) and the identity are known."""

    type: str
    identity: int = 0


@dataclass(frozen=True)
class Error:
    """The value could not be read: full name of the exception's type."""

    type: str


@dataclass(frozen=True)
class Missing:
    """The attribute or argument was absent."""


MISSING: Final = Missing()


@dataclass(frozen=True)
class Tensor:
    """A tensor's descriptor, without content. ``extra`` holds a DTensor's ``placements``, ``mesh``, ``local_shape``."""

    dtype: str = "torch.float32"
    shape: tuple[int, ...] = ()
    device: str = "cpu"
    requires_grad: bool = False
    is_leaf: bool = True
    layout: str = "torch.strided"
    type: str = "torch.Tensor"
    identity: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)


def canonical_str(text: str) -> str:
    """Canonical text of a ``str``: itself, JSON-quoted when it could be taken for another kind of value."""
    if text in _NOT_PLAIN or text[0] in _NOT_PLAIN_FIRST:
        return json.dumps(text, ensure_ascii=False)
    return text


def canonical_float(number: float) -> str:
    """Canonical text of a float; every NaN is ``nan``."""
    return "nan" if math.isnan(number) else repr(number)


def canonical(value: Any) -> str:
    """Canonical text of a plain Python value: None, bool, int, float, str, or lists and dicts of them (JSON text)."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return canonical_float(value)
    if isinstance(value, str):
        return canonical_str(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def symbol_text(type: str, v: Any) -> tuple[str, str]:
    """(raw text, canonical text) of a ``value`` symbol. Total: any JSON value gives some text."""
    if isinstance(v, str):
        return v, canonical_str(v) if type == "str" else v
    text = canonical(v)
    return text, text


def type_name(type: str) -> str:
    """Name in the frames of a symbol's type."""
    return TYPE_NAMES.get(type, type)
