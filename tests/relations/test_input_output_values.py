"""Arguments against results: like with like, and only what is no accident."""

from __future__ import annotations

import pytest

from traincheck.infer import Inference, infer
from traincheck.trace import Trace
from traincheck.trace.build import TraceBuilder
from traincheck.trace.values import Object, Tensor

from .rules import input_output, judged
from .values_world import Layers

F = "torch.nn.functional.gelu"
RELATION = ["ConsistentInputOutputRelation"]


def calls(*pairs: tuple[object, object], params: list[str] | None = None, keyword: bool = False) -> Trace:
    b = TraceBuilder()
    b.function(F, params)
    b.stage("training")
    for given, back in pairs:
        b.step()
        with b.call(F, [] if keyword else [given], {"input": given} if keyword else {}) as call:
            call.returns(back)
    b.mark(8, 0)
    return b.trace()


def texts(found: Inference) -> list[str]:
    return [item.text_description.removeprefix("functional.gelu(): ") for item in found]


def test_equal_unequal_and_unknown() -> None:
    one, two = Tensor(shape=(2, 3)), Tensor("torch.int64", (2, 4))
    trace = calls((one, two))
    assert judged(trace, input_output(F, ["shape", 0], ["shape", 0])).outcome == "passed"
    bad = judged(trace, input_output(F, ["dtype"], ["dtype"]))
    assert (bad.outcome, bad.evidence[0]["before"], bad.evidence[0]["after"]) == (
        "violated",
        "torch.float32",
        "torch.int64",
    )
    assert judged(trace, input_output(F, ["shape", 7], ["shape", 0])).outcome == "not_observable"
    assert judged(trace, input_output(F, ["dtype"], ["dtype"], out=1)).outcome == "not_observable"
    assert judged(trace, input_output(F, ["grad"], ["grad"])).outcome == "not_observable"


def test_true_is_not_one() -> None:
    trace = calls((Tensor(shape=(1,), requires_grad=True), Tensor(shape=(1,))))
    assert judged(trace, input_output(F, ["requires_grad"], ["shape", 0])).outcome == "violated"


def test_rules_of_numbers_are_judged_as_they_stand() -> None:
    trace = calls((Tensor(shape=(4,)), Tensor(shape=(4,))))
    assert judged(trace, input_output(F, ["itemsize"], ["shape", 0])).outcome == "passed"


@pytest.mark.parametrize("path", [[], ["shape", "x"], ["shape", 0, 1], ["grad", 0]])
def test_places_nobody_can_follow(path: list[object]) -> None:
    assert judged(calls((Tensor(), Tensor())), input_output(F, path, ["dtype"])).outcome == "not_observable"


def test_one_size_is_an_accident_two_are_a_rule() -> None:
    same = Tensor(shape=(8, 4))
    assert texts(infer([calls(*[(same, same)] * 6)], relations=RELATION)) == [
        "input[0].dtype consistent with output[0].dtype when stage is training"
    ]
    other = Tensor(shape=(5, 4))
    both = infer([calls(*[(same, same)] * 3), calls(*[(other, other)] * 3)], relations=RELATION)
    assert "input[0].shape consistent with output[0].shape when stage is training" in texts(both)
    assert not any("shape[" in text for text in texts(both))


def test_sizes_that_agree_only_sometimes_are_no_rule() -> None:
    pairs = [(Tensor(shape=(n, 4)), Tensor(shape=(n, 4 + n % 2))) for n in range(2, 12)]
    found = texts(infer([calls(*pairs)], relations=RELATION))
    assert "input[0].shape[0] consistent with output[0].shape[0] when stage is training" in found
    assert not any("shape[1]" in text for text in found)


def test_a_named_argument_is_one_however_it_is_passed() -> None:
    pairs = [(Tensor(shape=(n, 4)), Tensor(shape=(n, 2))) for n in range(2, 8)]
    found = infer([calls(*pairs, params=["input"])], relations=RELATION)
    assert any("input.dtype" in text for text in texts(found))
    changed = [(given, Tensor("torch.float16", (1, 2))) for given, _ in pairs]
    trace = calls(*changed, params=["input"], keyword=True)
    for invariant in found:
        assert judged(trace, invariant).outcome == "violated"


def test_order_of_tensors_leaves_out_what_is_none() -> None:
    b = TraceBuilder()
    b.step()
    with b.call(F, [Object("user.Thing", 3), None, Tensor("torch.int8")], {"mask": Tensor("torch.bool")}) as call:
        call.returns(Tensor("torch.bool"))
    b.mark(8, 0)
    assert judged(b.trace(), input_output(F, ["dtype"], ["dtype"], at=1)).outcome == "passed"
    assert judged(b.trace(), input_output(F, ["dtype"], ["dtype"], at=0)).outcome == "violated"


def test_autocast_makes_no_rule_of_equal_dtypes() -> None:
    found = infer([Layers().trace()], relations=RELATION)
    assert not any("Linear.forward(): input.dtype" in item.text_description for item in found)
