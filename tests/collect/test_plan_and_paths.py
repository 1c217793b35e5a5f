"""The plan as data, and capture paths."""

from __future__ import annotations

import pytest

from traincheck.collect.paths import compile_path
from traincheck.collect.plan import Plan


def test_plan_round_trip_and_hash() -> None:
    plan = Plan(
        scope="selective", functions={"torch.relu": ["args[0].dtype"]}, every=10, warmup=3, stages=("training",)
    )
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).digest() == plan.digest()
    assert Plan().digest() != plan.digest()


@pytest.mark.parametrize(
    ("data", "says"),
    [({"scope": "all"}, "full, boundary, selective"), ({"every": 0}, "at least 1"), ({"colour": 1}, "colour")],
)
def test_a_wrong_plan_is_refused(data: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Plan.from_json(data)


def test_sampled_steps() -> None:
    plan = Plan(every=10, warmup=3)
    assert [step for step in range(1, 30) if plan.observes(step)] == [1, 2, 3, 13, 23]
    assert all(Plan().observes(step) for step in range(1, 5))


@pytest.mark.parametrize(
    ("path", "moment", "steps"),
    [
        ("args[0].dtype", "in", (("arg", 0, "input"), ("attr", "dtype"))),
        ("args[7]", "in", (("arg", 7, None),)),
        ("kwargs.lr", "in", (("kw", "lr"),)),
        ("kwargs.weight.shape", "in", (("arg", 1, "weight"), ("attr", "shape"))),
        ("weight.requires_grad", "in", (("arg", 1, "weight"), ("attr", "requires_grad"))),
        ("self", "in", (("self",),)),
        ("ret[1].shape", "out", (("ret",), ("item", 1), ("attr", "shape"))),
        ("ret['loss']", "out", (("ret",), ("item", "loss"))),
    ],
)
def test_capture_paths(path: str, moment: str, steps: tuple) -> None:
    assert compile_path(path, ["input", "weight", "*rest"]) == (moment, steps)


def test_what_comes_after_the_stars_has_no_position() -> None:
    """checkpoint(function, *args, use_reentrant=None): the second argument passed is never use_reentrant."""
    params = ["function", "*args", "use_reentrant", "**kwargs"]
    assert compile_path("use_reentrant", params) == ("in", (("kw", "use_reentrant"),))
    assert compile_path("kwargs.use_reentrant", params) == ("in", (("kw", "use_reentrant"),))
    assert compile_path("args[1].dtype", params) == ("in", (("arg", 1, None), ("attr", "dtype")))
    assert compile_path("function", params) == ("in", (("arg", 0, "function"),))


@pytest.mark.parametrize("path", ["", "[0]", "args[0]..x", "args[0]()", "1st"])
def test_a_wrong_capture_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="capture path"):
        compile_path(path, None)
