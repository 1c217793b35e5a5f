"""Values of a TrainCheck 0.x trace as rows: value objects of calls, attribute maps of variables.

A value object is ``{"<type name>": payload}``. Both prefixes of 0.x bookkeeping names (``_TRAINCHECK_``,
``_ML_DAIKON_``) read the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from traincheck.trace.values import TYPE_NAMES, canonical, canonical_float, canonical_str

OLD_PREFIX: Final = "_ML_DAIKON_"
PREFIX: Final = "_TRAINCHECK_"

_ID: Final = re.compile(rf"{PREFIX}(.+)_ID")
_LEGACY_TENSOR: Final = re.compile(r"torch\.(\w+\.)*\w*Tensor")
_TENSOR_TYPES: Final = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})
_SEQUENCES: Final = frozenset({"tuple", "list", "Size", "torch.Size", "builtins.tuple", "builtins.list"})
_DTYPE_ATTRIBUTES: Final = frozenset({"dtype", "grad_dtype"})
_SHAPE_ATTRIBUTES: Final = frozenset({"shape", "_shape"})

_Int = int
_Float = float


@dataclass
class Value:
    """One value as the columns of the frames say it; see ``schema.py``."""

    kind: str
    type: str | None = None
    int: _Int | None = None
    float: _Float | None = None
    text: str | None = None
    identity: _Int | None = None
    value: str | None = None
    digest: str | None = None
    dtype: str | None = None
    shape: list[_Int] | None = None
    device: str | None = None
    requires_grad: bool | None = None
    is_leaf: bool | None = None
    layout: str | None = None


_known: dict[Any, Value] = {}


def plain(value: Any, type: str | None = None) -> Value:
    """A JSON value. ``type`` is the type 0.x gave it; a text of another type than ``str`` stands for itself.

    The same value gives the same object (small ones are kept), which makes a row of a large trace cheap.
    """
    kind = value.__class__
    if kind is list or kind is dict:
        return _plain(value, type)
    key = (kind, repr(value) if kind is float else value, type)
    found = _known.get(key)
    if found is None:
        if len(_known) > 100_000:
            _known.clear()
        found = _known[key] = _plain(value, type)
    return found


def _plain(value: Any, type: str | None) -> Value:
    if value is None:
        return Value("none", "NoneType", value="None")
    if isinstance(value, bool):
        return Value("bool", "bool", int=int(value), value=str(value))
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return Value("int", _named(type, "int"), int=value, value=str(value))
        return Value("symbol", _named(type, "int"), text=str(value), value=str(value))
    if isinstance(value, float):
        return Value("float", _named(type, "float"), float=value, value=canonical_float(value))
    if isinstance(value, str):
        name = _named(type, "str")
        return Value("symbol", name, text=value, value=canonical_str(value) if name == "str" else value)
    text = canonical(value)
    return Value("symbol", _named(type, "list" if isinstance(value, list) else "dict"), text=text, value=text)


def identity(number: Any) -> Value:
    """An ``id()`` that 0.x recorded."""
    if type(number) is int and 0 <= number < 2**64:
        return Value("identity", identity=number)
    return Value("none", "NoneType", value="None") if number is None else Value("error", "ValueError", text=str(number))


def tensor_summary(value: Any) -> Value:
    """Content of a tensor as 0.x dumped it: a 64-bit hash (16 hex digits), statistics, or the numbers themselves."""
    if type(value) is int and -(2**63) <= value < 2**63:
        digest = f"{value & (2**64 - 1):016x}"
        return Value("digest", digest=digest, value=digest)
    return plain(value)


@lru_cache(maxsize=10_000)
def _read(name: str) -> tuple[str, str | None]:
    """(an attribute's name with the old prefix replaced, the attribute whose identity it holds if it holds one)."""
    name = PREFIX + name[len(OLD_PREFIX) :] if name.startswith(OLD_PREFIX) else name
    match = _ID.fullmatch(name)
    return name, match.group(1) if match else None


def attributes(values: dict[str, Any], contents: bool) -> Iterator[tuple[str, Value]]:
    """(name, value) of an attribute map. With ``contents`` tensor-valued attributes hold summaries (variable dumps)."""
    names = [_read(name) for name in values]
    tensors = {of for _, of in names if of is not None} if contents else ()
    for (name, of), value in zip(names, values.values(), strict=True):
        if of is not None:
            yield name, identity(value)
        elif name in tensors and value is not None:
            yield name, tensor_summary(value)
        elif name in _DTYPE_ATTRIBUTES and isinstance(value, str):
            yield name, plain(value, "torch.dtype")
        elif name in _SHAPE_ATTRIBUTES and isinstance(value, list):
            yield name, plain(value, "torch.Size")
        else:
            yield name, plain(value)


def value_rows(path: str, value: Any) -> Iterator[tuple[str, Value]]:
    """(path, value) rows of a value object: the value itself, then its attributes as ``path.name``."""
    if not isinstance(value, dict) or len(value) != 1:
        yield path, plain(value)
        return
    [(type_name, payload)] = value.items()
    if not isinstance(payload, dict):
        if payload is None and type_name not in ("NoneType", "builtins.NoneType"):
            yield path, Value("object", type_name, text=type_name)  # 0.x gave up reading its attributes
        elif isinstance(payload, list) and type_name not in _SEQUENCES:
            yield path, plain(payload, type_name)
        else:
            yield path, plain(payload, TYPE_NAMES.get(type_name, "torch.Size" if type_name == "Size" else type_name))
        return
    if type_name in _TENSOR_TYPES or _LEGACY_TENSOR.fullmatch(type_name):
        yield path, _tensor(type_name, payload)
    else:
        yield path, Value("object", type_name, text=type_name)
    for name, item in attributes(payload, contents=False):
        yield f"{path}.{name}", item


def _tensor(type_name: str, payload: dict[str, Any]) -> Value:
    shape = payload.get("shape")
    sizes = shape if isinstance(shape, list) and all(type(n) is int and abs(n) < 2**63 for n in shape) else None
    device = next(
        (name for name in ("cpu", "cuda", "mps", "xpu", "xla", "meta") if payload.get(f"is_{name}") is True), None
    )
    return Value(
        "tensor",
        type_name,
        dtype=dtype if isinstance(dtype := payload.get("dtype"), str) else None,
        shape=sizes,
        device=device,  # 0.x kept no index
        requires_grad=flag if isinstance(flag := payload.get("requires_grad"), bool) else None,
        is_leaf=flag if isinstance(flag := payload.get("is_leaf"), bool) else None,
    )


def _named(type: str | None, default: str) -> str:
    if type is None:
        return default
    return type.removeprefix("builtins.")


def meta_text(meta: dict[str, Any]) -> str | None:
    """Context as JSON text; None when there is none."""
    return json.dumps(meta, sort_keys=True, ensure_ascii=False) if meta else None
