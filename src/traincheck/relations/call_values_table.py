"""The calls of a window as arrays: their tensors and attributes, read once for all rules and all functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.invariants import GENERALISED
from traincheck.relations.call_values import Ended, argument, attribute, inputs, outputs, without_tensor
from traincheck.relations.calltree import Ints
from traincheck.relations.numbers import table, text, texts
from traincheck.relations.values import among, constants, matches

Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]
Floats = npt.NDArray[np.float64]

_DESCRIBED: Final = ("dtype", "device", "layout")
_FLAGS: Final = ("requires_grad", "is_leaf")
_NOWHERE: Final[Ints] = np.empty(0, dtype=np.int64)


class Column(NamedTuple):
    """Values, one entry a call or a tensor.

    ``known``: whether there is one. ``keys``: what it is compared by, None for objects. ``numbers``: NaN where it is
    none (see ``numeric``). ``texts``: for people. ``paths``: where it was captured.
    """

    known: Mask
    keys: Texts
    numbers: Floats
    numeric: Mask
    texts: Texts
    paths: Texts

    @property
    def comparable(self) -> Mask:
        """Whether there is one that can be compared."""
        there: Mask = np.array([key is not None for key in self.keys], dtype=bool)
        both: Mask = self.known & there
        return both

    @classmethod
    def of(cls, value: pl.DataFrame, paths: Texts) -> Column:
        """From a frame of kind, int, float, value and key."""
        kind = pl.col("kind")
        number = pl.when(kind.is_in(["int", "float"])).then(pl.coalesce("float", pl.col("int").cast(pl.Float64)))
        told = value.select(
            (~kind.is_in(["missing", "error"])).fill_null(False).alias("known"),
            "key",
            number.alias("number"),
            pl.coalesce("value", "kind").alias("text"),
        )
        return cls(
            told["known"].to_numpy(),
            _objects(told["key"]),
            told["number"].fill_null(np.nan).to_numpy(),
            told["number"].is_not_null().to_numpy(),
            _objects(told["text"]),
            paths,
        )

    def at(self, spots: Ints) -> Column:
        """The entries at these places; a place of -1 is not known."""
        if not len(self.known):
            return Column.none(len(spots))
        inside = spots >= 0
        return Column(
            self.known[spots] & inside,
            self.keys[spots],
            self.numbers[spots],
            self.numeric[spots] & inside,
            self.texts[spots],
            self.paths[spots],
        )

    @classmethod
    def none(cls, height: int) -> Column:
        """Nothing known."""
        no, text = np.zeros(height, dtype=bool), np.full(height, None, dtype=object)
        return cls(no, text, np.full(height, np.nan), no, text, text)


class Tensors:
    """The tensors of one side of the calls: arguments or results. ``frame``: as ``call_values.outputs``."""

    def __init__(self, frame: pl.DataFrame, captures: pl.DataFrame, calls: pl.DataFrame) -> None:
        self.frame = frame
        self._captures = captures
        self.row: Ints = frame["row"].to_numpy().astype(np.int64)
        self.index: Ints = frame["index"].to_numpy()
        self._of = _by(calls["function"].gather(self.row))
        self._columns: dict[tuple[str | int, ...], Column] = {}
        self._frames: dict[tuple[str | int, ...], pl.DataFrame] = {}
        self._held: dict[tuple[str, str], Mask] = {}

    @cached_property
    def names(self) -> Texts:
        """By parameter, None where unknown."""
        return _objects(self.frame["name"])

    @cached_property
    def paths(self) -> Texts:
        """As captured."""
        return _objects(self.frame["path"])

    @cached_property
    def types(self) -> Texts:
        """Python types."""
        return _objects(self.frame["type"].cast(pl.String))

    def of(self, function: str) -> Ints:
        """Rows of the frame that belong to calls of the function."""
        return self._of.get(function, _NOWHERE)

    def values(self, path: Sequence[str | int]) -> pl.DataFrame:
        """An attribute of each, see ``call_values.attribute``."""
        key = tuple(path)
        if key not in self._frames:
            self._frames[key] = attribute(self.frame, self._captures, path)
        return self._frames[key]

    def column(self, path: Sequence[str | int]) -> Column:
        """An attribute of each."""
        key = tuple(path)
        if key not in self._columns:
            self._columns[key] = self._plain(key) or Column.of(self.values(path), self.paths)
        return self._columns[key]

    def _plain(self, path: tuple[str | int, ...]) -> Column | None:
        """What ``values`` says, of attributes of the descriptor that were not recorded otherwise; else None."""
        name = str(path[0])
        if len(path) > 1 or name not in (*_DESCRIBED, *_FLAGS) or self._recorded(name):
            return None
        if name in _FLAGS:
            flags = self.frame[name].to_list()
            found = np.array([None if flag is None else str(flag) for flag in flags], dtype=object)
        else:
            found = texts(table(self.frame, (name,))[name])
        known = found != None  # noqa: E711 - of each element
        nothing = np.zeros(len(found), dtype=bool)
        return Column(known, found, np.full(len(found), np.nan), nothing, found, self.paths)

    def _recorded(self, name: str) -> bool:
        return any(path.endswith(f".{name}") for path in self._all_paths)

    @cached_property
    def _all_paths(self) -> list[str]:
        every = np.unique(table(self._captures, ("path",))["path"])
        return [path for path in texts(every).tolist() if path is not None]

    def held(self, name: str, constant: Any) -> Mask:
        """Whether the attribute is the constant."""
        key = (name, json.dumps(constant))
        if key not in self._held:
            general = isinstance(constant, str) and constant in GENERALISED
            plain = None if general else self._plain((name,))
            if plain is not None:
                self._held[key] = among(plain.keys, constants(constant))
            else:
                self._held[key] = self.values([name]).select(matches(constant).alias("held"))["held"].to_numpy()
        return self._held[key]


class Values:
    """Calls, by function, with the tensors they were given and gave back."""

    def __init__(self, found: Ended) -> None:
        self.found = found
        self._rows = _by(found.calls["function"])
        self._arguments: dict[tuple[str, str], Column] = {}

    def rows(self, function: str) -> Ints:
        """Rows of ``found.calls`` that are calls of the function, ascending."""
        return self._rows.get(function, _NOWHERE)

    @cached_property
    def given(self) -> Tensors:
        """Tensors among the arguments."""
        return Tensors(inputs(self.found), self.found.captures, self.found.calls)

    @cached_property
    def returned(self) -> Tensors:
        """Tensors among the results."""
        return Tensors(outputs(self.found), self.found.captures, self.found.calls)

    @cached_property
    def nothing(self) -> Mask:
        """Which calls certainly gave back no tensor."""
        return without_tensor(self.found)

    def argument(self, function: str, name: str) -> Column:
        """An argument or result that is no tensor, one entry a call of the function."""
        key = (function, name)
        if key not in self._arguments:
            value = argument(self.found.of(function), name)
            self._arguments[key] = Column.of(value, np.full(value.height, name, dtype=object))
        return self._arguments[key]

    def local(self, function: str, tensors: Tensors, at: Ints) -> Ints:
        """Position among the calls of the function of the call that each tensor belongs to."""
        positions: Ints = np.searchsorted(self.rows(function), tensors.row[at])
        return positions


def _by(names: pl.Series) -> dict[str, Ints]:
    """Where each of the names stands, ascending."""
    number = names.cast(pl.Categorical).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    order = np.argsort(number, kind="stable")
    known, first = np.unique(number[order], return_index=True)
    parts = np.split(order, first[1:]) if len(known) else []
    return {str(text(int(n))): rows for n, rows in zip(known, parts, strict=True)}


def _objects(texts: pl.Series) -> Texts:
    result: Texts = np.array(texts.to_list(), dtype=object)
    return result
