"""What calls were given, as one text a call by which two calls are compared; and which calls are compared.

Content is compared, never the place it lay in: addresses are used again. Known are plain values, a model's input by
its digest (observed state), and in imported 0.x traces, which kept no content, what they recorded of an object. Two
calls were given different things when something known of both differs, the same when all is known and nothing differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from traincheck.relations.call_values import Ended
from traincheck.relations.calltree import Ints
from traincheck.relations.tables import Window

MOST_PAIRS: Final = 1 << 21
"""Pairs held in memory at a time."""

_PLAIN: Final = ("none", "bool", "int", "float", "symbol", "digest")
_TENSOR_ID: Final = "._TRAINCHECK_data_ID"
_KEEP: Final = (
    "process",
    "rank",
    "thread",
    "call",
    "function",
    "exception",
    "end_seq",
    "end_ns",
    "step",
    "stage",
    "location",
    "span",
    "meta",
)

CONTENT: Final = pl.Schema(
    {
        "process": pl.UInt32(),
        "rank": pl.Int32(),
        "thread": pl.UInt32(),
        "call": pl.UInt64(),
        "function": pl.String(),
        "exception": pl.String(),
        "end_seq": pl.UInt64(),
        "end_ns": pl.Int64(),
        "step": pl.Int32(),
        "stage": pl.String(),
        "location": pl.String(),
        "span": pl.Int64(),
        "meta": pl.String(),
        "content": pl.String(),
        "unknown": pl.String(),
        "receiver": pl.UInt64(),
    }
)
"""One call a row. ``content``: what is known of what it was given, by parameter; ``unknown``: names of the parameters
of which it is not, empty when all is; ``receiver``: identity of ``self``, null when not known."""


def digests(window: Window) -> pl.DataFrame:
    """process, call, digest: content of what models were called with."""
    return (
        window.states.filter(
            pl.col("role") == "batch",
            pl.col("attribute") == "data",
            pl.col("moment") == "before",
            pl.col("kind") == "digest",
            pl.col("call") > 0,
        )
        .select("process", "call", "digest")
        .unique(["process", "call"], keep="first", maintain_order=True)
    )


def contents(found: Ended, observed: pl.DataFrame) -> pl.DataFrame:
    """Calls of ``found`` of which something they were given is known, with the columns ``CONTENT``."""
    if found.calls.is_empty():
        return pl.DataFrame(schema=CONTENT)
    keys = ["process", "call"]
    given = found.captures.filter(pl.col("moment") == "in").with_columns(pl.col("path", "name", "type").cast(pl.String))
    given = given.filter(~pl.col("path").str.starts_with("@"))
    mine = (
        ((pl.col("name") == "self") | (pl.col("path") == "self"))
        & (pl.col("kind") == "object")
        & pl.col("identity").is_not_null()
    )
    receivers = (
        given.filter(mine)
        .unique(keys, keep="first", maintain_order=True)
        .select(*keys, pl.col("identity").alias("receiver"), pl.col("type").alias("receiver_type"))
    )
    name, known = pl.coalesce("name", "path"), pl.col("told").is_not_null()
    told = (
        _told(given.filter(~mine))
        .group_by(keys)
        .agg(
            pl.concat_str(name, pl.lit("="), "told").filter(known).sort().str.join("\x1f").alias("plain"),
            name.filter(~known).sort().str.join("\x1f").alias("open"),
            known.any().alias("some"),
        )
    )
    every = (
        found.calls.select(_KEEP)
        .join(receivers, on=keys, how="left", maintain_order="left")
        .join(told, on=keys, how="left", maintain_order="left")
        .join(observed, on=keys, how="left", maintain_order="left")
    )
    whole = pl.col("digest").is_not_null()
    content = pl.coalesce("digest", pl.when("some").then("plain"))
    rows = every.with_columns(
        pl.concat_str(pl.col("receiver_type").fill_null(""), pl.lit("\x1e"), content).alias("content"),
        pl.when(whole).then(pl.lit("")).otherwise("open").alias("unknown"),
    ).filter(pl.col("content").is_not_null())
    nowhere = rows["location"].is_null().to_numpy()
    if nowhere.any():
        calls = found.calls.join(rows.filter(nowhere).select(keys), on=keys, how="semi", maintain_order="left")
        places = calls.select(keys).with_columns(pl.Series("place", found.locations(calls), dtype=pl.String))
        rows = rows.join(places, on=keys, how="left", maintain_order="left").with_columns(
            pl.coalesce("location", "place").alias("location")
        )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in CONTENT.items())


def _told(given: pl.DataFrame) -> pl.DataFrame:
    """With ``told``: text of each captured value, null where its content is not known."""
    kind = pl.col("kind").cast(pl.String)
    # Imported values have no identity. Of objects 0.x recorded attributes, in rows of their own; of lists nothing.
    old = pl.col("identity").is_null()
    keys = ["process", "call", "path"]
    attributes = (
        given.filter(pl.col("path").str.contains(".", literal=True))
        .select(
            "process",
            "call",
            pl.col("path").str.replace(r"\.[^.]*$", "").alias("path"),
            pl.col("path").str.ends_with(_TENSOR_ID).alias("identified"),
        )
        .group_by(keys)
        .agg(pl.col("identified").any())
    )
    known = pl.when(kind == "object").then(pl.col("identified").is_not_null()).otherwise("identified")
    return given.join(attributes, on=keys, how="left", maintain_order="left").with_columns(
        pl.when(kind.is_in(_PLAIN))
        .then(pl.col("value"))
        .when(kind == "identity")
        .then(pl.concat_str(pl.lit("id:"), pl.col("identity").cast(pl.String)))
        .when(kind.is_in(["object", "tensor"]) & old & known)
        .then(pl.col("type"))
        .alias("told")
    )


def in_one_step(rows: pl.DataFrame) -> Iterator[tuple[Ints, Ints]]:
    """Pairs of calls of one function in one step, each once: (row of the later by rank, process, call; the other).

    By rank first: numbers of processes are given in the order in which these happened to begin.
    """
    order = rows.with_row_index("row").sort("function", "step", "rank", "process", "call", nulls_last=True)
    start = _starts(order, ["function", "step"])
    at = np.arange(order.height, dtype=np.int64)
    yield from _pairs(order["row"].to_numpy().astype(np.int64), start, at - start)


def in_neighbouring_steps(rows: pl.DataFrame) -> Iterator[tuple[Ints, Ints]]:
    """(row, row of the step before): calls of one function, process, stage and span of observation.

    The step before is the last earlier one in which such a call ended. A call that ended only in a later step than
    others is left out: what came before it was not known then.
    """
    by = ["function", "process", "stage", "span"]
    order = rows.with_row_index("row").sort(*by, "end_seq", nulls_last=True)
    order = order.filter(pl.col("step") >= pl.col("step").cum_max().over(by))
    group, block = _starts(order, by), _starts(order, [*by, "step"])
    before = np.maximum(block - 1, 0)
    known = block > group
    start = np.where(known, block[before] if len(block) else block, 0)
    yield from _pairs(order["row"].to_numpy().astype(np.int64), start, np.where(known, block - start, 0))


def last_two_steps(rows: pl.DataFrame) -> pl.DataFrame:
    """What ``in_neighbouring_steps`` needs of the past: the newest span and in it the last two steps."""
    by = ["function", "process", "stage"]
    if rows.is_empty():
        return rows
    newest = rows.filter(pl.col("span") == pl.col("span").max().over(by))
    return newest.filter(pl.col("step").rank("dense", descending=True).over(by) <= 2)


def _starts(frame: pl.DataFrame, by: list[str]) -> Ints:
    """Row at which the run of equal keys that each row lies in starts; the frame is sorted by them."""
    if frame.is_empty():
        return np.empty(0, dtype=np.int64)
    number = frame.select(pl.struct(by).rle_id().alias("n"))["n"].to_numpy()
    first = np.flatnonzero(np.diff(number, prepend=-1.0))
    starts: Ints = first[number].astype(np.int64)
    return starts


def _pairs(rows: Ints, start: Ints, count: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Each of ``rows`` with the ``count`` rows from ``start`` on, some million at a time."""
    low = 0
    total = np.cumsum(count)
    while low < len(rows):
        done = int(total[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(total, done + MOST_PAIRS, side="right")))
        here = count[low:high]
        left = np.repeat(np.arange(low, high), here)
        offset = np.arange(len(left)) - np.repeat(np.cumsum(here) - here, here)
        if len(left):
            yield rows[left], rows[start[left] + offset]
        low = high
