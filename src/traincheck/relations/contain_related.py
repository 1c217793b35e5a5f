"""Which variables belong to the object of a call, as far as TrainCheck 0.x recorded it.

Its traces say which variables a call was given (``proxy_obj_names``) and on which object it was made. A rule about
every variable speaks of those that an earlier call on the same object was given: the parameters of *this* optimizer.
Our own traces need none of this: what is observed around a call is what the call is about.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from traincheck.relations.call_arrays import argument
from traincheck.relations.numbers import Mask, Table, texts

_VARIABLES: Final = "@variables["
_SCHEMA: Final = {"process": pl.Int64, "object": pl.String, "variable": pl.String, "seq": pl.Int64}


class Related:
    """Variables by process and object, with the first time (``seq``) they were given to a call on it."""

    def __init__(self, pairs: pl.DataFrame | None = None) -> None:
        self._pairs = pl.DataFrame(schema=_SCHEMA) if pairs is None else pairs

    def and_of(self, captures: pl.DataFrame) -> Related:
        """With what further captures tell."""
        path = pl.col("path").cast(pl.String)
        given = captures.filter(path.str.starts_with(_VARIABLES)).select(
            pl.col("process").cast(pl.Int64), "call", pl.col("value").alias("variable"), pl.col("seq").cast(pl.Int64)
        )
        owners = captures.filter(path == "self", pl.col("moment") == "in").select(
            pl.col("process").cast(pl.Int64),
            "call",
            pl.concat_str(pl.lit("id:"), pl.col("identity").cast(pl.String)).alias("object"),
        )
        pairs = given.join(owners, on=["process", "call"]).select(list(_SCHEMA))
        known = pl.concat([self._pairs, pairs]).drop_nulls()
        return Related(known.group_by("process", "object", "variable").agg(pl.col("seq").min()))

    def to_calls(self, examples: Table, captures: Table) -> Mask:
        """Which examples are of variables that the object of their call was given before the call."""
        owner = argument(examples, captures, "self")
        if owner is None or self._pairs.is_empty():
            return np.zeros(examples.height, dtype=bool)
        asked = pl.DataFrame(
            {
                "process": pl.Series(examples["process"]),
                "object": pl.Series(owner.key.tolist(), dtype=pl.String),
                "variable": pl.Series(texts(examples["variable"]).tolist(), dtype=pl.String),
                "begin": pl.Series(examples["begin_seq"]),
            }
        )
        found = asked.join(self._pairs, on=["process", "object", "variable"], how="left", maintain_order="left")
        known: Mask = found.select((pl.col("seq") < pl.col("begin")).fill_null(False))["seq"].to_numpy()
        return known
