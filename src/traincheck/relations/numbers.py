"""Columns of frames as numpy arrays: evaluating a window this way costs no query of some hundred microseconds each.

Texts of categorical columns go by the number Polars gives them in this process (``code``, ``text``), null is -1.
Such numbers may travel in a carry, and must not leave the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.trace import schema

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

_CATEGORIES: Final = pl.Categories()
_HELD: Final = pl.Series(["training"], dtype=pl.Categorical(_CATEGORIES))
"""Keeps the numbering alive, also while no trace is loaded."""

_codes: dict[str, int] = {}
_texts: dict[int, str] = {}

KIND: Final[Mapping[str, int]] = {name: number for number, name in enumerate(schema.VALUE_KIND.categories)}
MOMENT: Final[Mapping[str, int]] = {name: number for number, name in enumerate(schema.MOMENT.categories)}
SIDE: Final[Mapping[str, int]] = {name: number for number, name in enumerate(schema.SIDE.categories)}
OUTCOME: Final[Mapping[str, int]] = {name: number for number, name in enumerate(schema.OUTCOME.categories)}


def code(text: str) -> int:
    """Number of a text in categorical columns."""
    found = _codes.get(text)
    if found is None:
        found = _codes[text] = int(pl.Series([text], dtype=pl.Categorical(_CATEGORIES)).to_physical()[0])
        _texts[found] = text
    return found


def text(number: int) -> str | None:
    """The text of a number; None for -1."""
    if number < 0:
        return None
    found = _texts.get(number)
    if found is None:
        found = _texts[number] = str(_CATEGORIES[number])
    return found


def texts(numbers: Ints) -> Array:
    """The texts of numbers, as objects."""
    if not len(numbers):
        return np.empty(0, dtype=object)
    known, place = np.unique(numbers, return_inverse=True)
    found = np.empty(len(known), dtype=object)
    found[:] = [text(int(number)) for number in known]
    result: Array = found[place]
    return result


class Table:
    """Arrays of one length, by name."""

    __slots__ = ("columns", "height")

    def __init__(self, columns: dict[str, Array], height: int | None = None) -> None:
        self.columns = columns
        self.height = len(next(iter(columns.values()))) if height is None else height

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def take(self, rows: Array) -> Table:
        """The rows of these numbers, or those for which a mask is true."""
        height = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Table({name: column[rows] for name, column in self.columns.items()}, height)

    def having(self, **columns: Array) -> Table:
        """With these columns added or replaced."""
        return Table({**self.columns, **columns}, self.height)


def stack(tables: Sequence[Table]) -> Table:
    """One table below another; they have the same columns."""
    tables = [table for table in tables if table.height] or tables[:1]
    if len(tables) == 1:
        return tables[0]
    return Table(
        {name: np.concatenate([table[name] for table in tables]) for name in tables[0].columns},
        sum(table.height for table in tables),
    )


def table(frame: pl.DataFrame, names: tuple[str, ...]) -> Table:
    """Columns of a frame of the trace as numbers: nulls and no text are -1, booleans 0 and 1."""
    taken = frame.select(_numbers(names))
    return Table({name: taken[name].to_numpy() for name in names}, frame.height)


_WORDS: Final = frozenset(
    column.name
    for columns in schema.FRAMES.values()
    for column in columns
    if isinstance(column.dtype, (pl.Categorical, pl.Enum))
)


@cache
def _numbers(names: tuple[str, ...]) -> list[pl.Expr]:
    columns = ((pl.col(name).to_physical() if name in _WORDS else pl.col(name)) for name in names)
    return [column.cast(pl.Int64).fill_null(-1) for column in columns]


def objects(series: pl.Series) -> Array:
    """A column of texts as Python objects, None for null."""
    result = np.empty(len(series), dtype=object)
    result[:] = series.to_list()
    return result


_VALUES: Final = (
    pl.col("kind").to_physical().cast(pl.Int64).fill_null(-1),
    pl.coalesce(pl.col("float"), pl.col("int").cast(pl.Float64)).fill_null(float("nan")).alias("number"),
    pl.col("value").cast(pl.String),
    pl.coalesce(
        pl.col("value").cast(pl.String), pl.concat_str(pl.lit("id:"), pl.col("identity").cast(pl.String))
    ).alias("key"),
)


def values(frame: pl.DataFrame) -> dict[str, Array]:
    """The value of each row: ``kind`` (number of ``KIND``), ``number`` (nan: none), ``value`` and ``key`` (texts).

    ``key`` is what two values are compared by: the canonical text, for identities one that no text is.
    """
    taken = frame.select(_VALUES)
    return {
        "kind": taken["kind"].to_numpy(),
        "number": taken["number"].to_numpy(),
        "value": objects(taken["value"]),
        "key": objects(taken["key"]),
    }


def packed(*columns: Array) -> Ints:
    """One number for each row, equal where all columns (numbers from -1) are equal."""
    size, result = 1, np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        if size * (high - low + 1) >= 2**62:
            result, size = _ranked(result)
            column, width = _ranked(column)
            low, high = 0, width - 1
        result = result * (high - low + 1) + (column - low)
        size *= high - low + 1
    return result


def dense(*columns: Array) -> tuple[Ints, int]:
    """A number from 0 for each row, equal where all columns are equal; and how many there are."""
    return _ranked(packed(*columns))


def _ranked(column: Ints) -> tuple[Ints, int]:
    seen, numbers = np.unique(column, return_inverse=True)
    return numbers.astype(np.int64), max(len(seen), 1)


def find(sorted_keys: Ints, wanted: Ints) -> Ints:
    """Place of each wanted key among sorted ones, -1 where it is not."""
    if not len(sorted_keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.minimum(np.searchsorted(sorted_keys, wanted), len(sorted_keys) - 1)
    return np.where(sorted_keys[at] == wanted, at, -1).astype(np.int64)


def member(column: Array, numbers: Iterable[int]) -> Mask:
    """Which rows have one of a few numbers."""
    wanted = np.array(sorted(set(numbers)), dtype=np.int64)
    return find(wanted, column) >= 0
