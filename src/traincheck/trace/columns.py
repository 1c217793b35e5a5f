"""From numbers in records to columns: gathers from small tables of symbols, no loop per record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.events import Value
from traincheck.trace import schema
from traincheck.trace.symbols import Symbol, Symbols
from traincheck.trace.values import canonical_float, symbol_text, type_name

Array = npt.NDArray[Any]

_SYMBOLIC: Final = (Value.SYMBOL, Value.ERROR, Value.OBJECT, Value.TENSOR, Value.LOCATION)
_TENSOR_FACTS: Final = frozenset({"k", "id", "type", "dtype", "shape", "device", "requires_grad", "is_leaf", "layout"})
_CODES: Final = {"value": 1, "tensor": 2, "location": 3}
_WANTED: Final = {Value.SYMBOL: 1, Value.ERROR: 1, Value.OBJECT: 1, Value.TENSOR: 2, Value.LOCATION: 3}


def pick(values: Sequence[Any] | pl.Series, positions: Array, dtype: pl.DataType) -> pl.Series:
    """``values[positions]`` as a column of ``dtype``; null where a position is -1."""
    table = values if isinstance(values, pl.Series) else pl.Series(values, dtype=dtype, strict=False)
    table = pl.concat([table, _null(table.dtype)])
    index = np.where(positions < 0, len(table) - 1, positions).astype(np.uint32)
    return table[pl.Series(index)]  # not gather(): that starts a query, dear for small tables


@lru_cache(maxsize=100)
def _null(dtype: pl.DataType) -> pl.Series:
    return pl.Series([None], dtype=dtype)


def text_of(symbol: Symbol, key: str) -> str | None:
    """A field of a symbol if it is text."""
    value = symbol.get(key)
    return value if isinstance(value, str) else None


def location_text(symbol: Symbol) -> str:
    """``file:line in function``."""
    return f"{symbol.get('file')}:{symbol.get('line')} in {symbol.get('function')}"


class ValueTable:
    """Turns (value kind, low, high) into columns. Made once for the symbols of a process."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        entries = symbols.entries
        self._count = len(entries)
        self._code = np.asarray([_CODES.get(e["k"], 0) for e in entries] or [0], dtype=np.uint8)
        as_value = [_value_row(e) for e in entries]
        as_type = [_type_row(e) for e in entries]
        constants: list[tuple[str | None, str | None, str | None]] = [
            ("NoneType", None, "None"),
            ("bool", None, "False"),
            ("bool", None, "True"),
            ("int", None, None),
            ("float", None, None),
        ]
        rows = [*as_value, *as_type, *constants]
        self._types = pl.Series([row[0] for row in rows], dtype=pl.Categorical)
        self._texts = pl.Series([row[1] for row in rows], dtype=pl.String)
        self._values = pl.Series([row[2] for row in rows], dtype=pl.String)
        tensors = [e if e["k"] == "tensor" else {} for e in entries]
        self._tensor_columns = {
            "dtype": pl.Series([text_of(t, "dtype") for t in tensors], dtype=pl.Categorical),
            "shape": pl.Series([_shape(t.get("shape")) for t in tensors], dtype=pl.List(pl.Int64)),
            "device": pl.Series([text_of(t, "device") for t in tensors], dtype=pl.Categorical),
            "requires_grad": pl.Series([_flag(t.get("requires_grad")) for t in tensors], dtype=pl.Boolean),
            "is_leaf": pl.Series([_flag(t.get("is_leaf")) for t in tensors], dtype=pl.Boolean),
            "layout": pl.Series([text_of(t, "layout") for t in tensors], dtype=pl.Categorical),
        }

    def columns(self, kind: Array, low: Array, high: Array, tensors: bool) -> tuple[dict[str, pl.Series], int]:
        """Columns ``kind type int float text identity value digest`` (and a tensor's, if asked for).

        Also how many symbols they refer to that are not there. All kinds must be known ones.
        """
        position = np.full(len(kind), -1, dtype=np.int64)
        symbolic = np.isin(kind, _SYMBOLIC)
        position[symbolic] = self._symbols.lookup(low[symbolic])
        wanted = np.zeros(256, dtype=np.uint8)
        for value_kind, code in _WANTED.items():
            wanted[value_kind] = code
        right = symbolic & (position >= 0)
        right[right] = self._code[position[right]] == wanted[kind[right]]
        unresolved = int(np.count_nonzero(symbolic & ~right))

        base = 2 * self._count
        row = np.full(len(kind), -1, dtype=np.int64)
        row[right] = position[right]
        as_type = right & ((kind == Value.ERROR) | (kind == Value.OBJECT))
        row[as_type] += self._count
        is_bool, is_int, is_float, is_digest = (kind == k for k in (Value.BOOL, Value.INT, Value.FLOAT, Value.DIGEST))
        row[kind == Value.NONE] = base
        row[is_bool] = base + 1 + (low[is_bool] != 0)
        row[is_int] = base + 3
        row[is_float] = base + 4
        types = pick(self._types, row, pl.Categorical())
        texts = pick(self._texts, row, pl.String())

        ints, at_int = np.unique(low[is_int].view(np.int64), return_inverse=True)
        floats, at_float = np.unique(low[is_float], return_inverse=True)  # by bits: NaN and -0.0 are told apart
        digests = _hex(low[is_digest], high[is_digest])
        spelled = pl.concat(
            [
                self._values,
                pl.Series(ints).cast(pl.String),
                pl.Series([canonical_float(x) for x in floats.view(np.float64).tolist()], dtype=pl.String),
                pl.Series(digests, dtype=pl.String),
            ]
        )
        first = len(self._values)
        row[is_int] = first + at_int
        row[is_float] = first + len(ints) + at_float
        row[is_digest] = first + len(ints) + len(floats) + np.arange(len(digests))
        columns = {
            "kind": pick(list(schema.VALUE_KIND.categories), kind.astype(np.int64), schema.VALUE_KIND),
            "type": types,
            "int": _masked(low.view(np.int64), is_int | is_bool),
            "float": _masked(low.view(np.float64), is_float),
            "text": texts,
            "identity": _masked(
                np.where(kind == Value.IDENTITY, low, high),
                (kind == Value.IDENTITY) | (kind == Value.OBJECT) | (kind == Value.TENSOR),
            ),
            "value": pick(spelled, row, pl.String()),
            "digest": pick(digests, _numbered(is_digest), pl.String()),
        }
        if tensors:
            at_tensor = np.where(right & (kind == Value.TENSOR), position, -1)
            for name, table in self._tensor_columns.items():
                columns[name] = pick(table, at_tensor, table.dtype)
        return columns, unresolved


def _value_row(symbol: Symbol) -> tuple[str | None, str | None, str | None]:
    """(type, text, value) of a symbol that stands for a value."""
    if symbol["k"] == "value":
        kind = text_of(symbol, "type") or "object"
        text, value = symbol_text(kind, symbol.get("v"))
        return type_name(kind), text, value
    if symbol["k"] == "tensor":
        extra = {key: value for key, value in symbol.items() if key not in _TENSOR_FACTS}
        return text_of(symbol, "type") or "torch.Tensor", json.dumps(extra, sort_keys=True) if extra else None, None
    if symbol["k"] == "location":
        return None, location_text(symbol), None
    return None, None, None


def _type_row(symbol: Symbol) -> tuple[str | None, str | None, str | None]:
    """(type, text, value) of a symbol that names the type of an object or exception."""
    name = text_of(symbol, "v") if symbol["k"] == "value" else None
    return name, name, None


def _shape(value: Any) -> list[int] | None:
    """Sizes; a size that is not a number (symbolic) is -1."""
    if not isinstance(value, list):
        return None
    return [n if type(n) is int and abs(n) < 2**63 else -1 for n in value]


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _hex(low: Array, high: Array) -> list[str]:
    pairs = np.empty((len(low), 2), dtype=">u8")
    pairs[:, 0] = high
    pairs[:, 1] = low
    text = pairs.tobytes().hex()
    return [text[at : at + 32] for at in range(0, len(text), 32)]


def _masked(numbers: Array, keep: Array) -> pl.Series:
    column = pl.Series(np.ascontiguousarray(numbers))
    masked: pl.Series = column.zip_with(pl.Series(keep), _null(column.dtype).new_from_index(0, len(column)))
    return masked


def _numbered(mask: Array) -> Array:
    """0, 1, 2, … where the mask is true, -1 elsewhere."""
    return np.where(mask, np.cumsum(mask) - 1, -1)
