"""Classes of values: what a generalised value covers, and which one covers the values seen.

One total order of classes with a flag for None, so that no mixture of None, ints, floats and digests is an error. A
digest is content: it is neither None nor zero, and satisfies what a non-zero positive number would (0.x digests were
positive numbers, and its rules ``non_zero`` and ``above_zero`` on tensors mean just "there is content").
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from traincheck.invariants import GENERALISED
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


def generalise(frame: pl.DataFrame, prefix: str = "") -> Any:
    """The narrowest spec that may stand in an invariant for the values in the columns: None, True, False or a class.

    Numbers never become constants: that a run counted to 8 says nothing about the next.
    """
    kinds = set(frame[f"{prefix}kind"].cast(pl.String).unique().to_list())
    none = "none" in kinds
    kinds -= {"none"}
    if not kinds:
        return None if none else "anything"
    if none:
        return "anything"
    if kinds == {"bool"}:
        seen = frame[f"{prefix}int"].unique().to_list()
        return bool(seen[0]) if len(seen) == 1 else "non_none"
    if kinds <= set(_NUMERIC):
        number = frame.select(
            pl.coalesce(pl.col(f"{prefix}float"), pl.col(f"{prefix}int").cast(pl.Float64)).alias("n")
        )["n"]
        low, high = number.min(), number.max()
        if isinstance(low, (int, float)) and isinstance(high, (int, float)):
            if low > 0:
                return "above_zero"
            if high < 0:
                return "below_zero"
    return "non_none"


def say(spec: Any) -> str:
    """A spec in words: ``None``, ``non-None``, ``anything``."""
    return str(spec).replace("_", "-").replace("none", "None") if isinstance(spec, str) else str(spec)
