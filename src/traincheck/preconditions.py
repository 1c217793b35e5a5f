"""When an invariant applies: evaluating preconditions, and finding them from examples.

An example is one record (a call, a variable at a call) or several (two variables alive together). Properties of records
are columns, one row an example; a clause over them is a boolean column; finding a precondition is choosing columns.
It is deterministic, never turns identities, numbers, times or step numbers into constants, and refuses what a handful
of examples would show by accident (``CHANCE_BITS``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb, log2
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.invariants import ALWAYS, UNCONDITIONAL, Clause, Conjunction, Group
from traincheck.relations.numbers import KIND
from traincheck.relations.values import Column, among, constants, fits, generalise

Mask = npt.NDArray[np.bool_]

CHANCE_BITS: Final = 6.0
"""A clause that is not natural must agree with the examples as by accident it would once in 2**6 trials at most."""

MOST_CONSTANTS: Final = 4
"""Most values in one constant clause."""

MOST_CLAUSES: Final = 3

_CONSTANT_KINDS: Final = frozenset(KIND[name] for name in ("bool", "none", "symbol"))
_ABSENT: Final = frozenset((KIND["missing"], KIND["error"], -1))


class Records:
    """Examples: per record of an example, a way to get the column of a property.

    A source gives a ``Column``, or a frame of ``kind``, ``int``, ``float``, ``value`` (canonical text) and ``key``
    (what is compared: the text, or the identity), one row an example; ``key`` is null where the property is missing.
    """

    def __init__(self, height: int, sources: Sequence[Callable[[str], pl.DataFrame | Column | None]]) -> None:
        self.height = height
        self._sources = sources
        self._cache: dict[str, list[Column] | None] = {}

    def columns(self, prop: str) -> list[Column] | None:
        """The column of each record, or None when the property is not known to any."""
        if prop not in self._cache:
            found = [source(prop) for source in self._sources]
            known = [Column.of(one) if isinstance(one, pl.DataFrame) else one for one in found if one is not None]
            self._cache[prop] = known if len(known) == len(found) else None
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
        present &= column.known
    if clause.type == "exist":
        return present
    if clause.type == "generalised":
        for column in columns:
            fitting = nothing.copy()
            for value in clause.values or []:
                fitting |= fits(value, column)
            present &= fitting
        return present
    keys = [column.key for column in columns]
    if clause.type == "constant":
        present &= among(columns[0].value, [text for value in clause.values or [] for text in constants(value)])
        return present & _all_equal(keys)
    if clause.type == "consistent":
        return present & _all_equal(keys)
    return present & _all_different(keys)


def _all_equal(keys: Sequence[npt.NDArray[Any]]) -> Mask:
    mask = np.ones(len(keys[0]), dtype=bool)
    for other in keys[1:]:
        mask &= np.asarray(keys[0] == other, dtype=bool)
    return mask


def _all_different(keys: Sequence[npt.NDArray[Any]]) -> Mask:
    mask = np.ones(len(keys[0]), dtype=bool)
    for i, one in enumerate(keys):
        for other in keys[i + 1 :]:
            mask &= np.asarray(one != other, dtype=bool)
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
        clause = _clause_for(prop.name, columns[0][positive])
        if clause is None:
            continue
        mask = clause_holds(clause, records)
        if mask[positive].all() and not mask.all():
            features.append(Feature(group, clause, mask, prop.natural))
    return features


def _clause_for(prop: str, column: Column) -> Clause | None:
    """The narrowest clause that covers the column's values and may be learned."""
    kinds = set(np.unique(column.kind).tolist())
    if not kinds or kinds & _ABSENT or not column.known.all():
        return None
    if kinds <= _CONSTANT_KINDS and all(text is not None for text in column.value):
        seen = sorted(set(zip(column.value.tolist(), column.kind.tolist(), strict=True)))
        if len(seen) <= MOST_CONSTANTS:
            values = [_json(text, kind) for text, kind in seen]
            dtype = {bool: "bool", type(None): "NoneType"}.get(type(values[0]), "str")
            return Clause(type="constant", prop_name=prop, additional_path="None", prop_dtype=dtype, values=values)
    if KIND["none"] in kinds:
        return None
    covering = generalise(column) if prop.startswith("optimizer.") else "non_none"
    return Clause(type="generalised", prop_name=prop, values=[covering])


def _json(text: str, kind: int) -> Any:
    if kind == KIND["none"]:
        return None
    return text == "True" if kind == KIND["bool"] else text


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
