"""The tree of calls as arrays: who is inside whom, without a Python loop over calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.preconditions import meta_column, text_column
from traincheck.relations.numbers import objects
from traincheck.relations.tables import key_text
from traincheck.relations.values import Column

Ints = npt.NDArray[np.int64]

SLIM = (
    "process",
    "rank",
    "thread",
    "call",
    "parent",
    "function",
    "begin_seq",
    "end_seq",
    "end_ns",
    "outcome",
    "exception",
    "step",
    "stage",
    "location",
    "span",
    "meta",
)
"""Columns of a call that relations use."""


def slim(calls: pl.DataFrame) -> pl.DataFrame:
    """The columns ``SLIM`` as plain texts and numbers, and ``signature``.

    The signature is the function if the call returned, function and exception if it raised, null while it is open.
    """
    table = calls.select(
        pl.col(name).cast(pl.String) if name in ("function", "outcome", "exception", "stage") else pl.col(name)
        for name in SLIM
    )
    return table.with_columns(
        pl.when(pl.col("outcome") == "returned")
        .then(pl.col("function"))
        .when(pl.col("outcome") == "raised")
        .then(pl.concat_str(pl.col("function"), pl.lit("\0"), pl.col("exception").fill_null("")))
        .alias("signature")
    )


def signature(function: str, exception: str | None) -> str:
    """What an API parameter is matched by."""
    return function if exception is None else f"{function}\0{exception}"


def parent_rows(table: pl.DataFrame) -> Ints:
    """Row of each call's parent in the table, -1 when it has none there. ``table`` has process, call, parent."""
    process = table["process"].to_numpy().astype(np.int64) << 44
    key = process | table["call"].to_numpy().astype(np.int64)
    wanted = process | table["parent"].to_numpy().astype(np.int64)
    order = np.argsort(key, kind="stable")
    if not len(order):
        return np.empty(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(key[order], wanted), len(order) - 1)
    row = order[at]
    return np.where(key[row] == wanted, row, -1).astype(np.int64)


def ancestors(parents: Ints, rows: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(ancestor row, row), one level of ancestry at a time."""
    above = parents[rows]
    for _ in range(100_000):  # a damaged trace may hold a circle
        inside = above >= 0
        if not inside.any():
            return
        rows, above = rows[inside], above[inside]
        yield above, rows
        above = parents[above]


def located(table: pl.DataFrame, parents: Ints, rows: Ints) -> list[str | None]:
    """Location of each of the rows: its own, else that of its nearest ancestor that has one."""
    known = table["location"].is_not_null().to_numpy()
    at = rows.copy()
    for _ in range(1000):
        lost = (at >= 0) & ~known[at]
        if not lost.any():
            break
        at = np.where(lost, parents[at], at)
    locations = table["location"].to_list()
    return [locations[int(row)] if row >= 0 else None for row in at]


class CallSource:
    """Properties of calls: stage, step, process, exception, ``captures.<path>`` (``….@type``: the type of objects)."""

    def __init__(self, calls: pl.DataFrame, captures: pl.DataFrame) -> None:
        self._calls = calls
        self._captures = captures

    def __call__(self, prop: str) -> pl.DataFrame | Column | None:
        """Column of a property, None when it is not one of a call."""
        if prop in ("function", "exception"):
            return _texts(self._calls[prop])
        if prop == "meta_vars.stage":
            return _texts(self._calls["stage"])
        if prop == "meta_vars.step":
            return _integers(self._calls["step"])
        identities = {"rank": "rank", "process_id": "process", "thread_id": "thread"}
        if prop in identities:
            return _integers(self._calls[identities[prop]], identity=True)
        if prop.startswith("meta_vars."):
            return meta_column(self._calls["meta"], prop.removeprefix("meta_vars."))
        if prop.startswith("captures."):
            return self._capture(prop.removeprefix("captures."))
        return None

    def _capture(self, path: str) -> pl.DataFrame | None:
        path, _, aspect = path.partition("@")
        mine = self._captures.filter(pl.col("moment") == "in", (pl.col("name") == path) | (pl.col("path") == path))
        if mine.is_empty():
            return None
        joined = self._calls.select("process", "call").join(
            mine.unique(["process", "call"], keep="first", maintain_order=True),
            on=["process", "call"],
            how="left",
            maintain_order="left",
        )
        if aspect == "type":
            return text_column(joined["type"])
        return joined.select(
            pl.col("kind").cast(pl.String).fill_null("missing"), "int", "float", "value", key_text().alias("key")
        )


def _texts(series: pl.Series) -> Column:
    return Column.of_texts(objects(series.cast(pl.String)))


def _integers(series: pl.Series, identity: bool = False) -> Column:
    return Column.of_numbers(series.cast(pl.Int64).fill_null(-1).to_numpy(), identity)


def capture_props(captures: pl.DataFrame, function: str) -> list[str]:
    """Names of the properties that the captures of a function's calls give, in order."""
    mine = captures.filter(pl.col("function") == function, pl.col("moment") == "in").select(
        pl.coalesce(pl.col("name").cast(pl.String), pl.col("path").cast(pl.String)).alias("name"),
        pl.col("kind").cast(pl.String),
    )
    names = []
    for name, kind in sorted(mine.unique().iter_rows()):
        if name is None or name.startswith("@"):
            continue
        if kind in ("bool", "none", "symbol"):
            names.append(f"captures.{name}")
        elif kind in ("object", "tensor"):
            names.append(f"captures.{name}@type")
    return sorted(set(names))
