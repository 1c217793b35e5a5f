"""When an invariant applies: evaluating preconditions, and finding them from examples.

An example is one record (a call, a variable at a call) or several (two variables alive together). Properties of records
are columns, one row an example; a clause over them is a boolean column; finding a precondition is choosing columns.
It is deterministic, never turns identities, numbers, times or step numbers into constants, and refuses what a handful
of examples would show by accident (``CHANCE_BITS``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, log2
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.invariants import ALWAYS, UNCONDITIONAL, Clause, Conjunction, Group
from traincheck.relations.values import constants, generalise, matches

Mask = npt.NDArray[np.bool_]

CHANCE_BITS: Final = 6.0
"""A clause that is not natural must agree with the examples as by accident it would once in 2**6 trials at most."""

MOST_CONSTANTS: Final = 4
"""Most values in one constant clause."""

MOST_CLAUSES: Final = 3

_CONSTANT_KINDS: Final = ("bool", "none", "symbol")


class Records:
    """Examples: per record of an example, a way to get the column of a property.

    A column is a frame of ``kind``, ``int``, ``float``, ``value`` (canonical text) and ``key`` (what is compared: the
    text, or the identity), one row an example; ``key`` is null where the property is missing.
    """

    def __init__(self, height: int, sources: Sequence[Callable[[str], pl.DataFrame | None]]) -> None:
        self.height = height
        self._sources = sources
        self._cache: dict[str, list[pl.DataFrame] | None] = {}

    def columns(self, prop: str) -> list[pl.DataFrame] | None:
        """The column of each record, or None when the property is not known to any."""
        if prop not in self._cache:
            found = [source(prop) for source in self._sources]
            self._cache[prop] = None if any(column is None for column in found) else [c for c in found if c is not None]
        return self._cache[prop]


def text_column(series: pl.Series) -> pl.DataFrame:
    """A property column of plain texts (function, stage, names)."""
    return pl.DataFrame({"value": series.cast(pl.String)}).select(
        pl.when(pl.col("value").is_null()).then(pl.lit("missing")).otherwise(pl.lit("symbol")).alias("kind"),
        pl.lit(None, dtype=pl.Int64).alias("int"),
        pl.lit(None, dtype=pl.Float64).alias("float"),
        "value",
        pl.col("value").alias("key"),
    )


def meta_column(meta: pl.Series, name: str) -> pl.DataFrame | None:
    """A property column of other context of imported traces: a key of the JSON objects in ``meta``."""
    if meta.null_count() == len(meta) or "'" in name or '"' in name:
        return None
    found = pl.DataFrame({"meta": meta}).select(pl.col("meta").str.json_path_match(f"$['{name}']").alias("value"))
    return None if found["value"].null_count() == len(meta) else text_column(found["value"])


def number_column(series: pl.Series, identity: bool = False) -> pl.DataFrame:
    """A property column of integers; with ``identity`` they are compared, but equal no constant."""
    text = pl.col("int").cast(pl.String)
    return pl.DataFrame({"int": series.cast(pl.Int64)}).select(
        pl.when(pl.col("int").is_null())
        .then(pl.lit("missing"))
        .otherwise(pl.lit("identity" if identity else "int"))
        .alias("kind"),
        "int",
        pl.lit(None, dtype=pl.Float64).alias("float"),
        (pl.lit(None, dtype=pl.String) if identity else text).alias("value"),
        text.alias("key"),
    )


def holds(group: Group | None, records: Records) -> Mask:
    """Which examples satisfy the precondition group (None: no condition)."""
    if group is None:
        return np.ones(records.height, dtype=bool)
    result = np.zeros(records.height, dtype=bool)
    for conj in group.preconditions:
        if conj.clauses == UNCONDITIONAL:
            mask = np.ones(records.height, dtype=bool)
        else:
            mask = np.ones(records.height, dtype=bool)
            for clause in conj.clauses:
                if isinstance(clause, Clause):
                    mask &= clause_holds(clause, records)
        result |= mask
    return ~result if group.inverted else result


def clause_holds(clause: Clause, records: Records) -> Mask:
    """Which examples satisfy one clause. A property that is missing in a record makes it false."""
    nothing = np.zeros(records.height, dtype=bool)
    if clause.additional_path not in (None, "None"):
        return nothing  # context managers of 0.x: we record none
    columns = records.columns(clause.prop_name)
    if columns is None:
        return nothing
    present = np.ones(records.height, dtype=bool)
    for column in columns:
        present &= column["key"].is_not_null().to_numpy()
    if clause.type == "exist":
        return present
    if clause.type == "generalised":
        for column in columns:
            test = pl.any_horizontal([matches(value) for value in clause.values or []])
            present &= column.select(test.alias("t"))["t"].to_numpy()
        return present
    keys = [column["key"] for column in columns]
    if clause.type == "constant":
        texts = [text for value in clause.values or [] for text in constants(value)]
        present &= columns[0]["value"].is_in(texts).fill_null(False).to_numpy()
        return present & _all_equal(keys)
    if clause.type == "consistent":
        return present & _all_equal(keys)
    return present & _all_different(keys)


def _all_equal(keys: Sequence[pl.Series]) -> Mask:
    mask = np.ones(len(keys[0]), dtype=bool)
    for other in keys[1:]:
        mask &= (keys[0] == other).fill_null(False).to_numpy()
    return mask


def _all_different(keys: Sequence[pl.Series]) -> Mask:
    mask = np.ones(len(keys[0]), dtype=bool)
    for i, one in enumerate(keys):
        for other in keys[i + 1 :]:
            mask &= (one != other).fill_null(False).to_numpy()
    return mask


class Prop(NamedTuple):
    """A property that may explain why examples differ. Natural ones say what the example is, and need no statistics."""

    name: str
    natural: bool = False


@dataclass(frozen=True)
class Feature:
    """A clause that all positives satisfy, with what it says of every example."""

    group: str
    clause: Clause
    mask: Mask
    natural: bool


class Unexplained(NamedTuple):
    """Why no precondition was found."""

    reason: str
    example: int
    """Row of a counter-example that nothing told apart."""


def propose(group: str, records: Records, positive: Mask, props: Iterable[Prop]) -> list[Feature]:
    """Clauses over these properties that hold on all positives and not on all examples, in the order of ``props``."""
    features = []
    for prop in props:
        columns = records.columns(prop.name)
        if columns is None or len(columns) != 1:
            continue
        clause = _clause_for(prop.name, columns[0].filter(pl.Series(positive)))
        if clause is None:
            continue
        mask = clause_holds(clause, records)
        if mask[positive].all() and not mask.all():
            features.append(Feature(group, clause, mask, prop.natural))
    return features


def _clause_for(prop: str, column: pl.DataFrame) -> Clause | None:
    """The narrowest clause that covers the column's values and may be learned."""
    kinds = set(column["kind"].cast(pl.String).unique().to_list())
    if not kinds or kinds & {"missing", "error"} or column["key"].null_count():
        return None
    if kinds <= set(_CONSTANT_KINDS) and column["value"].null_count() == 0:
        seen = column.select("kind", "int", "value").unique().sort("value")
        if seen.height <= MOST_CONSTANTS:
            values = [_json(row) for row in seen.iter_rows(named=True)]
            dtype = {bool: "bool", type(None): "NoneType"}.get(type(values[0]), "str")
            return Clause(type="constant", prop_name=prop, additional_path="None", prop_dtype=dtype, values=values)
    if "none" in kinds:
        return None
    covering = generalise(column) if prop.startswith("optimizer.") else "non_none"
    return Clause(type="generalised", prop_name=prop, values=[covering])


def _json(row: Mapping[str, Any]) -> Any:
    if row["kind"] == "none":
        return None
    return bool(row["int"]) if row["kind"] == "bool" else row["value"]


def deduce(
    positive: Mask, features: Sequence[Feature], groups: Sequence[str], units: npt.NDArray[Any]
) -> dict[str, Group] | Unexplained:
    """The fewest clauses that hold on all positives and on no other example; groups without one are unconditional.

    ``units`` says which examples count as one for the chance guard (examples of one call are not independent).
    Deterministic: at each turn the clause that keeps most counter-examples out, the earlier one of equals.
    """
    left = ~positive
    chosen: list[Feature] = []
    while left.any():
        if len(chosen) == MOST_CLAUSES:
            return Unexplained(f"no precondition of at most {MOST_CLAUSES} clauses", int(np.flatnonzero(left)[0]))
        best: Feature | None = None
        gain = 0
        for feature in features:
            out = int((left & ~feature.mask).sum())
            if out > gain and (feature.natural or _surprising(feature, positive, left, units, len(features))):
                best, gain = feature, out
        if best is None:
            return Unexplained(
                "nothing recorded tells it from the examples where it held", int(np.flatnonzero(left)[0])
            )
        chosen.append(best)
        left &= best.mask
    result = {}
    for group in groups:
        clauses = [feature.clause for feature in chosen if feature.group == group]
        result[group] = Group(inverted=False, preconditions=[Conjunction(clauses=clauses)]) if clauses else ALWAYS
    return result


def _surprising(feature: Feature, positive: Mask, left: Mask, units: npt.NDArray[Any], tried: int) -> bool:
    """Whether agreeing on so many examples would be a surprise, had the clause nothing to do with it."""
    with_it = len(np.unique(units[positive]))
    against = len(np.unique(units[left & ~feature.mask]))
    if not with_it or not against:
        return False
    return log2(comb(with_it + against, against)) >= CHANCE_BITS + log2(max(tried, 1))
