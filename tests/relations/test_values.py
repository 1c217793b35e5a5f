from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from traincheck.relations.values import Column, constants, fits, generalise, matches, say

NONE = ("none", None, None, "None")
DIGEST = ("digest", None, None, "ab" * 16)
YES = ("bool", 1, None, "True")
MISSING = ("missing", None, None, None)


def number(value: float) -> tuple[str, int | None, float | None, str]:
    return ("int", value, None, str(value)) if isinstance(value, int) else ("float", None, value, str(value))


def frame(*rows: tuple[Any, ...]) -> pl.DataFrame:
    schema = {"kind": pl.String, "int": pl.Int64, "float": pl.Float64, "value": pl.String}
    return pl.DataFrame(list(rows), schema=schema, orient="row").with_columns(pl.col("value").alias("key"))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, [True, False, False, False, False, False]),
        ("anything", [True, True, True, True, True, False]),
        ("non_none", [False, True, True, True, True, False]),
        ("non_zero", [False, True, True, False, True, False]),
        ("above_zero", [False, True, False, False, True, False]),
        ("non_negative", [True, True, False, True, True, False]),
        ("below_zero", [False, False, True, False, False, False]),
        ("non_positive", [True, False, True, True, False, False]),
        (3, [False, True, False, False, False, False]),
        (3.0, [False, True, False, False, False, False]),
        (-0.5, [False, False, True, False, False, False]),
    ],
)
def test_what_a_spec_covers(spec: Any, expected: list[bool]) -> None:
    data = frame(NONE, number(3), number(-0.5), number(0), DIGEST, MISSING)
    assert data.select(matches(spec).alias("m"))["m"].to_list() == expected
    assert fits(spec, Column.of(data)).tolist() == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([NONE, NONE], None),
        ([DIGEST, DIGEST], "non_none"),
        ([NONE, DIGEST], "anything"),
        ([YES, YES], True),
        ([number(1), number(2.5)], "above_zero"),
        ([number(-1)], "below_zero"),
        ([number(0), number(1)], "non_none"),
        ([NONE, number(1)], "anything"),
        ([DIGEST, number(1), YES], "non_none"),
    ],
)
def test_the_narrowest_spec_that_may_be_learned(rows: list[tuple[Any, ...]], expected: Any) -> None:
    assert generalise(Column.of(frame(*rows))) == expected


def test_numbers_have_two_spellings() -> None:
    assert constants(3) == constants(3.0) == ["3", "3.0"]
    assert constants(True) == ["True"]
    assert constants("3") == ['"3"']
    assert constants(None) == ["None"]


def test_specs_in_words() -> None:
    assert [say("non_none"), say("above_zero"), say(None), say(3)] == ["non-None", "above-zero", "None", "3"]
