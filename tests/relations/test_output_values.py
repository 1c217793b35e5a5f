"""What is told of tensors that calls give back, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traincheck.check import check
from traincheck.infer import infer
from traincheck.trace import Trace, open_trace
from traincheck.trace.build import TraceBuilder
from traincheck.trace.values import Object, Tensor

from .rules import judged, output
from .values_world import DROPOUT, F_DROPOUT, MODEL, Layers

F = "torch.nn.modules.linear.Linear.forward"
TENSOR = Tensor("torch.bfloat16", (2, 3), "cuda:1", requires_grad=True, is_leaf=False)


def returning(*results: object, raises: str | None = None) -> Trace:
    b = TraceBuilder()
    b.stage("training")
    for result in results:
        b.step()
        with b.call(F, [Object("torch.nn.Linear", 1), Tensor()], raises=raises) as call:
            if raises is None:
                call.returns(result)
    b.mark(8, 0)
    return b.trace()


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("dtype", "torch.bfloat16"),
        ("shape", [2, 3]),
        ("ndim", 2),
        ("requires_grad", True),
        ("is_leaf", False),
        ("device", "cuda:1"),
        ("layout", "torch.strided"),
        ("itemsize", 2),
        ("nbytes", 12),
        ("is_cuda", True),
        ("is_cpu", False),
        ("is_sparse", False),
        ("is_quantized", False),
    ],
)
def test_attributes_follow_from_the_descriptor(attribute: str, value: object) -> None:
    assert judged(returning(TENSOR), output(F, attribute, value)).outcome == "passed"
    other = "other" if isinstance(value, str) else [9] if isinstance(value, list) else not value
    assert judged(returning(TENSOR), output(F, attribute, other)).outcome == "violated"


def test_grad_fn_is_none_on_what_asks_for_no_gradient() -> None:
    assert judged(returning(Tensor()), output(F, "grad_fn", None)).outcome == "passed"
    assert judged(returning(TENSOR), output(F, "grad_fn", None)).outcome == "violated"


@pytest.mark.parametrize("attribute", ["grad", "retains_grad", "name", "made_up"])
def test_what_nobody_recorded_is_not_observable(attribute: str) -> None:
    outcome = judged(returning(TENSOR), output(F, attribute, None))
    assert outcome.outcome == "not_observable"
    assert attribute in str(outcome.reason)


def test_mark_of_a_missing_value_is_no_value() -> None:
    outcome = judged(returning(TENSOR), output(F, "grad_fn", "NOT SERIALIZABLE: <NA>"))
    assert outcome.outcome == "not_observable"
    assert "W-B4" in str(outcome.reason)


def test_every_tensor_of_a_tuple_counts() -> None:
    rule = output(F, "dtype", "torch.float32")
    assert judged(returning((Tensor(), Tensor())), rule).outcome == "passed"
    bad = judged(returning((Tensor(), Tensor("torch.int64"))), rule)
    assert bad.outcome == "violated"
    assert (bad.evidence[0]["variable"], bad.evidence[0]["after"]) == ("ret[1]", "torch.int64")


def test_no_tensor_is_a_violation_and_an_unknown_object_is_not() -> None:
    rule = output(F, "dtype", "torch.float32")
    assert judged(returning(None), rule).outcome == "violated"
    assert judged(returning(Object("user.Output", 5)), rule).outcome == "not_observable"
    mixed = judged(returning(Tensor(), Object("user.Output", 5)), rule)
    assert (mixed.outcome, mixed.applications) == ("passed", 1)


def test_calls_that_raised_are_left_out() -> None:
    assert judged(returning(None, raises="builtins.ValueError"), output(F, "dtype", "torch.float32")).outcome == (
        "dormant"
    )


def test_a_model_is_called_in_the_stage_its_mode_tells() -> None:
    b = TraceBuilder()
    b.stage("training")
    b.step()
    with b.call(MODEL, [Object("user.Net", 1), Tensor()]) as call:
        b.stage("evaluation")
        call.returns(Tensor())
    b.mark(8, 0)
    training = [{"type": "constant", "prop_name": "meta_vars.stage", "values": ["training"]}]
    assert judged(b.trace(), output(MODEL, "requires_grad", True, training)).outcome == "dormant"


def test_of_an_operator_nothing_is_said_that_is_said_of_its_layer() -> None:
    found = infer([Layers().trace()], relations=["ConsistentOutputRelation"])
    named = {param.api_full_name for item in found for param in item.params[:1]}
    assert DROPOUT in named
    assert F_DROPOUT not in named
    reasons = {item.reason for item in found.rejected if item.invariant.params[0].api_full_name == F_DROPOUT}
    assert reasons == {"the same is said of Dropout.forward(), whose result it is"}


def test_requires_grad_is_a_rule_of_training_only() -> None:
    found = infer([Layers(evaluate_every=0).trace()], relations=["ConsistentOutputRelation"])
    assert {item.outcome for item in check(Layers(evaluate_every=1).trace(), found).outcomes} == {"passed"}
    texts = [item.text_description for item in found if "requires_grad" in item.text_description]
    assert texts
    assert all(text.endswith("when stage is training") for text in texts)


def test_sizes_devices_and_one_step_make_no_rule() -> None:
    found = infer([Layers().trace()], relations=["ConsistentOutputRelation"])
    assert {item.params[1].attr_name for item in found} == {"dtype", "requires_grad"}
    assert not len(infer([Layers(steps=1, micro=5).trace()], relations=["ConsistentOutputRelation"]))


@pytest.fixture
def old(tmp_path: Path) -> Trace:
    """A 0.x trace of one call."""
    tensor = {"dtype": "torch.float32", "shape": [4, 16], "retains_grad": False, "name": None, "requires_grad": True}
    common = {"func_call_id": "0_1", "thread_id": 1, "process_id": 7, "meta_vars": {"step": 1, "stage": "training"}}
    pre = {**common, "type": "function_call (pre)", "function": F, "is_bound_method": True, "obj_id": 5, "time": 10}
    post = {**common, "type": "function_call (post)", "function": F, "is_bound_method": True, "obj_id": 5, "time": 20}
    lines = [
        {**pre, "args": {"0": {"torch.nn.Linear": {}}, "1": {"torch.FloatTensor": tensor}}, "kwargs": {}},
        {**post, "return_values": {"torch.FloatTensor": tensor}},
    ]
    later = {**pre, "func_call_id": "0_2", "function": "m.next", "time": 30, "meta_vars": {"step": 2}, "args": {}}
    lines.append({**later, "kwargs": {}})
    (tmp_path / "trace_API_7_1.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return open_trace(tmp_path)


def test_what_old_traces_recorded_is_used(old: Trace) -> None:
    assert judged(old, output(F, "retains_grad", False)).outcome == "passed"
    assert judged(old, output(F, "retains_grad", True)).outcome == "violated"
    assert judged(old, output(F, "name", None)).outcome == "passed"
    assert judged(old, output(F, "shape", [4, 16])).outcome == "passed"
    assert judged(old, output(F, "is_nested", False)).outcome == "not_observable"
