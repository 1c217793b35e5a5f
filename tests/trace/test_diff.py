"""Two traces: where they part, and only there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.trace.builders import everything
from traincheck.trace import Manifest, Trace
from traincheck.trace.build import TraceBuilder, digest
from traincheck.trace.diff import diff
from traincheck.trace.values import Identity, Tensor

STEP = "torch.optim.sgd.SGD.step"


def run(
    weight: str = "w",
    inner: str | None = "torch.relu",
    raises: str | None = None,
    shape: int = 3,
    lr: float = 0.1,
    identity: int = 1,
    ranks: int = 2,
    steps: int = 3,
    lead: int = 0,
) -> Trace:
    """Steps of training; at step 2 and on rank 1 the arguments make a difference. ``lead`` moves all times."""
    builder = TraceBuilder(rank=0)
    builder._now += lead
    for process in [builder, *(builder.process(rank=rank) for rank in range(1, ranks))]:
        for _ in range(steps):
            here = process.step() == 2 and process.rank == ranks - 1
            tensor = Tensor(shape=(2, shape if here else 3), identity=identity)
            with process.call(
                "forward", [tensor, Identity(identity)], {"lr": lr if here else 0.1}, location=("t.py", 3, "f")
            ):
                if inner and here:
                    with process.call(inner, raises=raises):
                        pass
                elif not here:
                    with process.call("torch.relu"):
                        pass
            with process.call(STEP), process.observe(STEP, "after"):
                process.state("model.w", data=digest((process._steps, weight if here else "w")))
                process.state("model.v", data=digest(process._steps))
    return builder.trace()


def test_the_same() -> None:
    found = diff(run(), run(identity=999, lead=123_456))
    assert found.same
    assert found.compared == {"calls": 18, "captures": 18, "states": 12}
    assert "are the same" in found.text()
    assert json.loads(json.dumps(found.to_json()))["same"] is True


@pytest.mark.parametrize(
    ("change", "kind", "what", "a", "b"),
    [
        ({"weight": "z"}, "state", "model.w.data", digest((2, "w")).hex, digest((2, "z")).hex),
        ({"inner": "torch.gelu"}, "call", "call 2 of the step on thread 1", "torch.relu", "torch.gelu"),
        ({"raises": "E"}, "call", "call of torch.relu", "torch.relu", "torch.relu raising E"),
        ({"inner": None}, "call", "call 2 of the step on thread 1", "torch.relu", STEP),
        ({"lr": 0.2}, "capture", "forward kwargs.lr", "0.1", "0.2"),
        (
            {"shape": 4},
            "capture",
            "forward args[0]",
            "torch.Tensor torch.float32 [2, 3] on cpu",
            "torch.Tensor torch.float32 [2, 4] on cpu",
        ),
    ],
)
def test_where_they_part(change: dict[str, Any], kind: str, what: str, a: str, b: str) -> None:
    found = diff(run(), run(**change))
    first = found.first
    assert first is not None
    assert (first.kind, first.step, first.rank, first.what, first.a, first.b) == (kind, 2, 1, what, a, b)
    assert first.text() in found.text()
    assert not diff(run(**change), run()).same


def test_place_in_the_users_code() -> None:
    first = diff(run(), run(shape=5)).first
    assert first is not None
    assert first.where == "t.py:3 in f"


def test_variables_that_differ_first() -> None:
    found = diff(run(), run(weight="z"))
    assert found.variables == ["model.w"]
    assert found.states_differing == 1


def test_calls_out_of_line_are_not_compared() -> None:
    def trace(first: bool) -> Trace:
        builder = TraceBuilder(rank=0)
        builder.step()
        for number in range(0 if first else 1, 4):
            with builder.call("f" if number else "g", [number]):
                pass
        builder.step()
        with builder.call("f", [9]):
            pass
        return builder.trace()

    assert [parting.kind for parting in diff(trace(True), trace(False)).firsts] == ["call"]


def test_function_counts() -> None:
    assert diff(run(), run(inner=None)).function_counts == [("torch.relu", 6, 5)]


def test_fewer_steps() -> None:
    first = diff(run(), run(steps=2)).first
    assert first is not None
    assert (first.kind, first.step, first.a, first.b) == ("step", 3, "begun", None)


def test_fewer_ranks() -> None:
    found = diff(run(ranks=3), run(ranks=2))
    assert found.first is not None
    assert (found.first.kind, found.first.rank, found.first.b) == ("process", 2, None)


def test_other_plan_compares_what_both_know() -> None:
    a, b = run(), run(inner=None)
    b.manifest, a.manifest = Manifest(plan_hash="1"), Manifest(plan_hash="2")
    b.functions = b.functions.filter(b.functions["function"].cast(str) != "torch.relu")
    found = diff(a, b)
    assert found.same, found.text()
    assert "different plans" in found.text()


def test_what_is_lacking_is_noted() -> None:
    a = run()
    from traincheck.trace import Lack

    a.lacks.append(Lack("gaps", 0, "Something is gone."))
    assert "A is not complete: Something is gone." in diff(a, run()).text()


def test_without_ranks_order_of_start_decides() -> None:
    a, b = run(), run()
    a.processes = [replace(process, rank=None) for process in a.processes]
    found = diff(a, b)
    assert found.same
    assert "no distinct ranks" in found.text()


def test_one_of_everything_equals_itself() -> None:
    assert diff(everything().trace(), everything().trace()).same


def test_empty() -> None:
    assert diff(TraceBuilder().trace(), TraceBuilder().trace()).same
