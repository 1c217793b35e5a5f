"""What a selective run would have seen of a full one: the law *selective = full* without running a program again.

Used to check every invariant on its own references in selective form before it is written, and in tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from traincheck.collect.observe.policy import (
    DATA,
    FACTS,
    FULL,
    GRAD,
    GROUPS,
    HAS_GRAD,
    MODE,
    PRESENT,
    STATE,
    VALUE,
)
from traincheck.collect.plan import Plan
from traincheck.relations.calltree import parent_rows
from traincheck.relations.tables import Tables, Watch

_SPLIT: Final = ("step", "zero_grad")
"""Reasons that the policy splits by moment."""


def project(tables: Tables, plan: Plan) -> Tables:
    """The part of a full run that ``plan`` (selective) observes.

    Raises ValueError for a run that no plan of ours observed (imported from 0.x).
    """
    if tables.source == "traincheck-0.x":
        raise ValueError("a trace of TrainCheck 0.x was observed in its own way")
    calls = _calls(tables.calls, plan.functions)
    kept = calls.select("process", "call")
    captures = _captures(tables.captures, plan.functions).join(
        kept, on=["process", "call"], how="semi", maintain_order="left"
    )
    states = _states(tables.states, {reason: frozenset(parts) for reason, parts in plan.observe.items()}, kept)
    watch = Watch(
        "selective",
        frozenset(plan.packages),
        frozenset(plan.functions),
        plan.state,
        captures={name: frozenset(paths) for name, paths in plan.functions.items()},
        parts={reason: frozenset(parts) for reason, parts in plan.observe.items()},
        missing=tables.watch.missing,
    )
    return replace(tables, calls=calls, captures=captures, states=states, watch=watch)


def _whether(states: pl.DataFrame) -> pl.DataFrame:
    """Content that was not asked for, only whether there is any, becomes what is recorded then."""
    told = {"kind": "symbol", "type": "str", "text": PRESENT, "value": PRESENT, "digest": None}
    only = pl.col("_only_whether").fill_null(False) & (pl.col("kind") == "digest")
    return states.with_columns(
        pl.when(only).then(pl.lit(value).cast(states.schema[name])).otherwise(pl.col(name)).alias(name)
        for name, value in told.items()
    )


def _calls(calls: pl.DataFrame, functions: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Calls of these functions; each one's parent is its innermost ancestor among them."""
    if calls.is_empty():
        return calls
    kept = calls["function"].is_in(list(functions)).fill_null(value=False).to_numpy()  # null: its name was lost
    parents = parent_rows(calls)
    above = parents.copy()
    for _ in range(100_000):
        lost = (above >= 0) & ~kept[above]
        if not lost.any():
            break
        above = np.where(lost, parents[above], above)
    number = calls["call"].to_numpy()
    parent = np.where(above >= 0, number[above], 0)
    return calls.with_columns(pl.Series("parent", parent, dtype=calls.schema["parent"])).filter(pl.Series(kept))


def _captures(captures: pl.DataFrame, functions: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    whole = [name for name, paths in functions.items() if "*" in paths]
    pairs = pl.DataFrame(
        [(name, path) for name, paths in functions.items() for path in paths if path != "*"],
        schema={"function": pl.Categorical, "wanted": pl.Categorical},
        orient="row",
    )
    rows = captures.with_row_index("_row")
    by_name = rows.join(pairs, left_on=["function", "name"], right_on=["function", "wanted"], how="semi")
    by_path = rows.join(pairs, left_on=["function", "path"], right_on=["function", "wanted"], how="semi")
    everything = rows.filter(pl.col("function").is_in(whole) | (pl.col("path") == "@location"))
    chosen = pl.concat([by_name, by_path, everything])["_row"].unique()
    return rows.filter(pl.col("_row").is_in(chosen.implode())).drop("_row")


def _states(states: pl.DataFrame, observe: Mapping[str, frozenset[str]], kept: pl.DataFrame) -> pl.DataFrame:
    attribute = pl.col("attribute").cast(pl.String).str.strip_suffix(".missing")
    role = pl.col("role").cast(pl.String)
    tensor = role.is_in(["parameter", "buffer", "gradient"])
    part = (
        pl.when(role == "optimizer_state")
        .then(pl.lit(STATE))
        .when(role == "optimizer_group")
        .then(pl.lit(GROUPS))
        .when(role.is_in(["model", "optimizer"]))
        .then(pl.lit(MODE))
        .when(tensor & (attribute == "data"))
        .then(pl.lit(DATA))
        .when(tensor & attribute.is_in(["grad", "main_grad"]))
        .then(pl.lit(GRAD))
        .when(tensor)
        .then(pl.lit(FACTS))
        .otherwise(pl.lit(VALUE))
    )
    reason = pl.col("reason").cast(pl.String)
    moment = pl.col("moment").cast(pl.String)
    at = pl.when(reason.is_in(_SPLIT)).then(pl.concat_str(reason, pl.lit(":"), moment)).otherwise(reason)
    wanted = pl.DataFrame(
        [
            (reason, GRAD if part == HAS_GRAD else part, part == HAS_GRAD)
            for reason, parts in observe.items()
            for part in sorted(parts)
        ],
        schema={"_at": pl.String, "_part": pl.String, "_only_whether": pl.Boolean},
        orient="row",
    )
    marked = states.with_columns(at.alias("_at"), part.alias("_part")).join(
        wanted, on=["_at", "_part"], how="left", maintain_order="left"
    )
    # Traces built by others may have reasons that no plan of ours knows: those are nobody's to leave out.
    seen = marked.filter(pl.col("_only_whether").is_not_null() | ~pl.col("_at").is_in(list(FULL)))
    seen = _whether(seen).drop("_at", "_part", "_only_whether")
    # An observation around a call that is not recorded belongs to none.
    known = seen.join(kept.with_columns(pl.lit(True).alias("_known")), on=["process", "call"], how="left")
    known = known.sort("process", "seq").with_columns(pl.col("_known").fill_null(False))
    return known.with_columns(
        pl.when("_known").then("call").otherwise(0).cast(states.schema["call"]).alias("call"),
        pl.when("_known").then("function").otherwise(None).alias("function"),
    ).select(states.columns)
