from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from traincheck.invariants import ALWAYS, Clause, Conjunction, Group
from traincheck.preconditions import (
    Prop,
    Records,
    Unexplained,
    deduce,
    holds,
    meta_column,
    number_column,
    propose,
    text_column,
)


def records(**columns: list[Any]) -> Records:
    return pairs(columns)


def pairs(*sides: dict[str, list[Any]]) -> Records:
    def column(values: list[Any]) -> pl.DataFrame:
        if all(v is None or isinstance(v, bool) for v in values):
            kind = ["none" if v is None else "bool" for v in values]
            text = [str(v) for v in values]
            ints = [None if v is None else int(v) for v in values]
            data = {"kind": kind, "int": ints, "float": None, "value": text, "key": text}
            return pl.DataFrame(data, schema_overrides={"int": pl.Int64, "float": pl.Float64})
        if all(v is None or isinstance(v, int) for v in values):
            return number_column(pl.Series(values, dtype=pl.Int64))
        return text_column(pl.Series(values, dtype=pl.String))

    built = [{name: column(values) for name, values in side.items()} for side in sides]
    height = len(next(iter(sides[0].values())))
    return Records(height, [side.get for side in built])


def group(*conjunctions: list[Clause], inverted: bool = False) -> Group:
    return Group(inverted=inverted, preconditions=[Conjunction(clauses=list(clauses)) for clauses in conjunctions])


def clause(kind: Any, prop: str, *values: Any) -> Clause:
    return Clause(type=kind, prop_name=prop, values=list(values) or None)


def test_or_of_ands_and_its_opposite() -> None:
    data = records(stage=["init", "training", "training", None], n=[1, 1, 2, 1])
    either = group(
        [clause("constant", "stage", "init")], [clause("constant", "stage", "training"), clause("constant", "n", 2)]
    )
    assert holds(either, data).tolist() == [True, False, True, False]
    opposite = Group(inverted=True, preconditions=either.preconditions)
    assert holds(opposite, data).tolist() == [False, True, False, True]
    assert holds(None, data).all()
    assert holds(ALWAYS, data).all()
    assert not holds(Group(inverted=False, preconditions=[]), data).any()


def test_clauses_over_two_records() -> None:
    data = pairs({"name": ["a", "a", "b", None]}, {"name": ["a", "b", "b", "a"]})
    assert holds(group([clause("consistent", "name")]), data).tolist() == [True, False, True, False]
    assert holds(group([clause("unequal", "name")]), data).tolist() == [False, True, False, False]
    assert holds(group([clause("constant", "name", "a")]), data).tolist() == [True, False, False, False]
    assert holds(group([clause("exist", "name")]), data).tolist() == [True, True, True, False]
    assert not holds(group([clause("exist", "other")]), data).any()


def test_whole_floats_and_integers_are_one_value() -> None:
    data = records(n=[2, 3])
    assert holds(group([clause("constant", "n", 2.0)]), data).tolist() == [True, False]


def test_generalised_values() -> None:
    data = records(grad=[None, True, None])
    assert holds(group([clause("generalised", "grad", "non_none")]), data).tolist() == [False, True, False]
    assert holds(group([clause("generalised", "grad", "anything")]), data).tolist() == [True, True, True]


def test_context_managers_of_old_files_never_hold() -> None:
    old = Clause(type="exist", prop_name="stage", additional_path=["enabled"])
    assert not holds(group([old]), records(stage=["a"])).any()


def test_other_context_of_imported_traces() -> None:
    column = meta_column(pl.Series(['{"_RANK": "0", "a:b.c": 3}', '{"_RANK": "1"}', None]), "_RANK")
    assert column is not None
    assert column["key"].to_list() == ["0", "1", None]
    assert meta_column(pl.Series(['{"a:b.c": 3}']), "a:b.c")["key"].to_list() == ["3"]  # type: ignore[index]
    assert meta_column(pl.Series([None], dtype=pl.String), "x") is None
    assert meta_column(pl.Series(["{}"]), "x'] || '") is None


def learned(
    positive: list[bool], columns: dict[str, list[Any]], natural: bool = True
) -> dict[str, Group] | Unexplained:
    labels = np.array(positive)
    features = propose("g", records(**columns), labels, [Prop(name, natural) for name in columns])
    return deduce(labels, features, ["g"], np.arange(len(labels)))


def test_always_true_needs_no_condition() -> None:
    assert learned([True, True], {"stage": ["a", "b"]}) == {"g": ALWAYS}


def test_the_clause_that_tells_them_apart_is_found() -> None:
    answer = learned([True, False, True], {"noise": ["x", "x", "x"], "stage": ["training", "init", "training"]})
    assert answer == {
        "g": group(
            [Clause(type="constant", prop_name="stage", additional_path="None", prop_dtype="str", values=["training"])]
        )
    }


def test_two_clauses_when_one_is_not_enough() -> None:
    answer = learned([True, False, False], {"a": [True, False, True], "b": [True, True, False]})
    assert not isinstance(answer, Unexplained)
    assert len(answer["g"].preconditions[0].clauses) == 2


def test_numbers_and_steps_never_become_constants() -> None:
    assert isinstance(learned([True, False], {"n": [8, 9]}), Unexplained)


def test_what_nothing_explains_names_a_counter_example() -> None:
    answer = learned([True, True, False], {"stage": ["a", "a", "a"]})
    assert isinstance(answer, Unexplained)
    assert answer.example == 2


@pytest.mark.parametrize(("examples", "accepted"), [(4, False), (40, True)])
def test_a_handful_of_examples_is_chance(examples: int, accepted: bool) -> None:
    """A capture that happens to agree with three calls and a half explains nothing; with forty it does."""
    positive = [n % 4 != 0 for n in range(examples)]
    answer = learned(positive, {"captures.flag": [bool(p) for p in positive]}, natural=False)
    assert isinstance(answer, Unexplained) is not accepted


def test_many_values_are_no_constant() -> None:
    names = [f"name{n}" for n in range(8)]
    answer = learned([True] * 7 + [False], {"name": names})
    assert isinstance(answer, Unexplained)
