"""Limits that bind."""

from __future__ import annotations

import math

import pytest

from traincheck.infer import Inference, infer
from traincheck.trace import Trace
from traincheck.trace.build import TraceBuilder
from traincheck.trace.values import Tensor

from .rules import at_least, at_most, judged

F = "user.texts.cut"


def calls(argument: str, *pairs: tuple[object, object]) -> Trace:
    b = TraceBuilder()
    b.stage("training")
    for limit, result in pairs:
        b.step()
        with b.call(F, [], {argument: limit}) as call:
            call.returns(result)
    b.mark(8, 0)
    return b.trace()


def texts(found: Inference) -> list[str]:
    return [item.text_description for item in found]


def learned(argument: str, *pairs: tuple[object, object]) -> list[str]:
    return texts(infer([calls(argument, *pairs)], relations=["ThresholdRelation"]))


@pytest.mark.parametrize(
    ("limit", "result", "outcome"),
    [
        (1.0, 0.5, "passed"),
        (1.0, 1.0, "passed"),
        (1.0, 1.0000001, "passed"),
        (1.0, 1.001, "violated"),
        (0, 0.0, "passed"),
        (0.0, 1e-6, "violated"),
        (-2, -2.5, "passed"),
        (math.inf, math.inf, "passed"),
        (math.inf, 3, "passed"),
        (1.0, math.nan, "violated"),
        (1.0, None, "not_observable"),
        (True, 1, "not_observable"),
    ],
)
def test_at_most(limit: object, result: object, outcome: str) -> None:
    assert judged(calls("max_norm", (limit, result)), at_most(F, [], "max_norm")).outcome == outcome


def test_at_least_and_sizes() -> None:
    rule = at_least(F, ["shape", 1], "min_length")
    assert judged(calls("min_length", (3, Tensor(shape=(2, 4)))), rule).outcome == "passed"
    bad = judged(calls("min_length", (3, Tensor(shape=(2, 2)))), rule)
    assert (bad.outcome, bad.evidence[0]["before"], bad.evidence[0]["after"]) == ("violated", "3", "2")
    assert judged(calls("other", (3, Tensor(shape=(2, 2)))), rule).outcome == "not_observable"


def test_learned_where_the_limit_is_nearly_reached() -> None:
    pairs = [(12, Tensor(shape=(2, n))) for n in (7, 9, 11, 8)]
    assert learned("max_length", *pairs) == ["texts.cut(): output[0].shape[1] ≤ max_length when stage is training"]
    assert learned("length", *pairs) == []
    assert learned("max_length", *[(100, result) for _, result in pairs]) == []
    assert learned("max_length", *[(12, Tensor(shape=(2, 11)))] * 5) == []
    assert learned("max_length", *pairs, (12, Tensor(shape=(2, 13)))) == []


def test_numbers_and_a_limit_of_zero() -> None:
    pairs = [(0.0, value) for value in (0.01, 0.4, 0.9, 2.0)]
    assert learned("min_value", *pairs) == ["texts.cut(): ret ≥ min_value when stage is training"]
