"""Classes of values: what a generalised value covers, and which one covers the values seen.

One total order of classes with a flag for None, so that no mixture of None, ints, floats and digests is an error. A
digest is content: it is neither None nor zero, and satisfies what a non-zero positive number would (0.x digests were
positive numbers, and its rules ``non_zero`` and ``above_zero`` on tensors mean just "there is content").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from traincheck.invariants import GENERALISED
from traincheck.relations.numbers import KIND, Array, Ints, Mask, member, texts
from traincheck.trace.values import canonical

_NUMERIC: Final = ("int", "float")
_ABSENT: Final = ("missing", "error")


def constants(value: Any) -> list[str]:
    """Canonical texts of a JSON constant: 3 and 3.0 are one value."""
    texts = [_text(value)]
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and float(value).is_integer()
        and abs(value) < 2**53
    ):
        texts = [str(int(value)), str(float(value))]
    return texts


def _text(value: Any) -> str:
    return canonical(value)


def matches(spec: Any, prefix: str = "") -> pl.Expr:
    """Whether the value in columns ``{prefix}kind``, … is the constant, or of the class, ``spec``."""
    kind = pl.col(f"{prefix}kind").cast(pl.String)
    if not (isinstance(spec, str) and spec in GENERALISED):
        return pl.col(f"{prefix}value").is_in(constants(spec)).fill_null(False)
    present = kind.is_not_null() & ~kind.is_in(_ABSENT)
    none = kind == "none"
    number = pl.when(kind.is_in(_NUMERIC)).then(
        pl.coalesce(pl.col(f"{prefix}float"), pl.col(f"{prefix}int").cast(pl.Float64))
    )
    content = kind == "digest"
    test = {
        "anything": present,
        "non_none": present & ~none,
        "non_zero": (number != 0) | content,
        "above_zero": (number > 0) | content,
        "non_negative": (number >= 0) | content | none,
        "below_zero": number < 0,
        "non_positive": (number <= 0) | none,
    }[spec]
    return test.fill_null(False)


@dataclass(frozen=True)
class Column:
    """One value per row: ``kind`` (number of ``KIND``), ``number`` (nan: none), ``value`` (canonical text) and ``key``.

    ``key`` is what is compared: the text, or the identity; None where the value is missing.
    """

    kind: Ints
    number: Array
    value: Array
    key: Array

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Column:
        """Of a frame with ``kind``, ``int``, ``float``, ``value`` and ``key``."""
        kind = np.array([KIND.get(str(name), -1) for name in frame["kind"].to_list()], dtype=np.int64)
        number = frame.select(
            pl.coalesce(pl.col("float"), pl.col("int").cast(pl.Float64)).fill_null(float("nan")).alias("n")
        )["n"].to_numpy()
        return cls(kind, number, _objects(frame["value"]), _objects(frame["key"]))

    @classmethod
    def of_texts(cls, found: Array) -> Column:
        """Of plain texts, None where missing."""
        missing = np.fromiter((text is None for text in found), dtype=np.bool_, count=len(found))
        kind = np.where(missing, KIND["missing"], KIND["symbol"]).astype(np.int64)
        return cls(kind, np.full(len(found), np.nan), found, found)

    @classmethod
    def of_codes(cls, codes: Ints) -> Column:
        """Of texts by their numbers."""
        return cls.of_texts(texts(codes))

    @classmethod
    def of_numbers(cls, found: Array, identity: bool = False) -> Column:
        """Of whole numbers, -1 where missing; as identities they are compared, but equal no constant."""
        missing = found < 0
        kind = np.where(missing, KIND["missing"], KIND["identity" if identity else "int"]).astype(np.int64)
        known, place = np.unique(found, return_inverse=True)
        names = np.empty(len(known), dtype=object)
        names[:] = [None if number < 0 else str(int(number)) for number in known]
        text = names[place]
        value = np.full(len(found), None, dtype=object) if identity else text
        return cls(kind, np.where(missing, np.nan, found.astype(np.float64)), value, text)

    @classmethod
    def missing(cls, height: int) -> Column:
        """Of nothing."""
        none = np.full(height, None, dtype=object)
        return cls(np.full(height, KIND["missing"], dtype=np.int64), np.full(height, np.nan), none, none)

    def __getitem__(self, rows: Array) -> Column:
        """The values of these rows (numbers or a mask)."""
        return Column(self.kind[rows], self.number[rows], self.value[rows], self.key[rows])

    def __len__(self) -> int:
        return len(self.kind)

    def at(self, rows: Ints) -> Column:
        """The values of these rows; missing where the number is -1."""
        lost = rows < 0
        if not len(self) or lost.all():
            return Column.missing(len(rows))
        found = self[rows]
        if not lost.any():
            return found
        none = Column.missing(len(rows))
        return Column(
            np.where(lost, none.kind, found.kind),
            np.where(lost, none.number, found.number),
            np.where(lost, none.value, found.value),
            np.where(lost, none.key, found.key),
        )

    @property
    def known(self) -> Mask:
        """Where there is something to compare."""
        return np.fromiter((key is not None for key in self.key), dtype=np.bool_, count=len(self.key))


def _objects(series: pl.Series) -> Array:
    result = np.empty(len(series), dtype=object)
    result[:] = series.cast(pl.String).to_list()
    return result


def among(column: Array, wanted: list[str] | set[str]) -> Mask:
    """Which texts are among a few."""
    known = set(wanted)
    return np.fromiter((text in known for text in column), dtype=np.bool_, count=len(column))


def fits(spec: Any, column: Column) -> Mask:
    """What ``matches`` says, of arrays."""
    if not (isinstance(spec, str) and spec in GENERALISED):
        return among(column.value, constants(spec))
    kind = column.kind
    present = ~member(kind, (-1, *(KIND[name] for name in _ABSENT)))
    none = kind == KIND["none"]
    content = kind == KIND["digest"]
    number = np.where(member(kind, (KIND[name] for name in _NUMERIC)), column.number, np.nan)
    if spec == "anything":
        return present
    if spec == "non_none":
        return np.asarray(present & ~none)
    with np.errstate(invalid="ignore"):
        test = {
            "non_zero": ((number != 0) & ~np.isnan(number)) | content,
            "above_zero": (number > 0) | content,
            "non_negative": (number >= 0) | content | none,
            "below_zero": number < 0,
            "non_positive": (number <= 0) | none,
        }[spec]
    return np.asarray(test, dtype=np.bool_)


def generalise(column: Column) -> Any:
    """The narrowest spec that may stand in an invariant for these values: None, True, False or a class.

    Numbers never become constants: that a run counted to 8 says nothing about the next.
    """
    kinds = set(np.unique(column.kind).tolist())
    none = KIND["none"] in kinds
    kinds -= {KIND["none"]}
    if not kinds:
        return None if none else "anything"
    if none:
        return "anything"
    if kinds == {KIND["bool"]}:
        seen = set(column.number.tolist())
        return bool(seen.pop()) if len(seen) == 1 else "non_none"
    if kinds <= {KIND[name] for name in _NUMERIC} and not np.isnan(column.number).all():
        if np.nanmin(column.number) > 0:
            return "above_zero"
        if np.nanmax(column.number) < 0:
            return "below_zero"
    return "non_none"


def say(spec: Any) -> str:
    """A spec in words: ``None``, ``non-None``, ``anything``; a constant as it is."""
    if isinstance(spec, str) and spec in GENERALISED:
        return spec.replace("_", "-").replace("none", "None")
    return str(spec)
