"""Which calls were given the same, and which cannot be told."""

from __future__ import annotations

import pytest

from traincheck.infer import infer
from traincheck.relations import call_values_content
from traincheck.trace import Trace
from traincheck.trace.build import ProcessBuilder, TraceBuilder, digest
from traincheck.trace.values import Identity, Object, Tensor

from .rules import distinct, judged
from .values_world import MODEL, Layers

F = "user.data.sample"
ACROSS = ("unequal", "meta_vars.step")


def sampled(*steps: list[object], more: dict[str, object] | None = None) -> Trace:
    """One step per list, one call per value."""
    b = TraceBuilder()
    b.function(F, ["index", "flag"])
    b.stage("training")
    for step in steps:
        b.step()
        for value in step:
            args = list(value) if isinstance(value, tuple) else [value]
            with b.call(F, args, more or {}):
                pass
    b.mark(8, 0)
    return b.trace()


def model(b: ProcessBuilder, content: object, net: int = 1) -> None:
    b.function(MODEL, ["self", "*args", "**kwargs"])
    with b.call(MODEL, [Object("user.Net", net), Tensor()]) as call:
        with b.observe("input", "before"):
            b.state("input", data=digest(content), role="batch", variable_type="input")
        call.returns(Tensor())


def test_pairs_of_a_step() -> None:
    found = judged(sampled([1, 2, 3], [1, 1, 2], [5]), distinct(F))
    assert (found.outcome, found.applications, found.violations, found.first_step) == ("violated", 6, 1, 2)
    assert judged(sampled([1, 2], [1, 2]), distinct(F)).outcome == "passed"
    assert judged(sampled([1], [1]), distinct(F)).outcome == "dormant"


def test_all_arguments_count_by_name() -> None:
    b = TraceBuilder()
    b.function(F, ["index", "flag"])
    b.step()
    for args, kwargs in (([1, True], {}), ([1], {"flag": False}), ([1], {"flag": True})):
        with b.call(F, args, kwargs):
            pass
    b.mark(8, 0)
    found = judged(b.trace(), distinct(F))
    assert (found.applications, found.violations) == (3, 1)


def test_tensors_without_content_are_not_compared() -> None:
    same = Tensor(shape=(2,), identity=9)
    assert judged(sampled([same, same]), distinct(F)).outcome == "not_observable"
    # What is known of both differs: they are distinct, whatever the tensors hold.
    assert judged(sampled([(1, same), (2, same)]), distinct(F)).outcome == "passed"
    assert judged(sampled([(1, same), (1, same)]), distinct(F)).outcome == "dormant"
    assert judged(sampled([Identity(4), Identity(4)]), distinct(F)).outcome == "violated"


def test_content_of_the_input_and_the_model_it_is_for() -> None:
    b = TraceBuilder()
    b.step()
    for content, net in (("x", 1), ("x", 2), ("y", 1)):
        model(b, content, net)
    b.mark(8, 0)
    found = judged(b.trace(), distinct(MODEL))
    assert (found.outcome, found.applications) == ("passed", 3)


def test_over_ranks_models_are_the_same_by_type() -> None:
    b = TraceBuilder(rank=0)
    other = b.process(rank=1)
    for process, net in ((b, 1), (other, 2)):
        process.step()
        model(process, "x", net)
        process.mark(8, 0)
    found = judged(b.trace(), distinct(MODEL, ("consistent", "meta_vars.step"), ("unequal", "rank")))
    assert (found.outcome, found.evidence[0]["other_rank"]) == ("violated", 0)
    assert judged(b.trace(), distinct(MODEL, ("consistent", "process_id"))).outcome == "dormant"


def test_neighbouring_steps_only_and_per_pair() -> None:
    rule = distinct(F, ACROSS)
    found = judged(sampled([1], [2], [1], [1]), rule)
    assert (found.applications, found.violations, found.first_step) == (3, 1, 4)
    assert judged(sampled([1], [], [1]), rule).first_step == 3  # the last step before in which it was called
    assert judged(sampled([1, 1]), rule).outcome == "dormant"
    both = distinct(F, ACROSS, {"type": "constant", "prop_name": "meta_vars.stage", "values": ["testing"]})
    assert judged(sampled([1], [1]), both).outcome == "dormant"


def test_not_over_a_gap() -> None:
    b = TraceBuilder()
    for step, value in enumerate((1, 2, 3, 1), 1):
        b.mark(7, int(step != 3))
        b.step()
        if step != 3:
            with b.call(F, [1 if step != 2 else value]):
                pass
    b.mark(8, 0)
    found = judged(b.trace(), distinct(F, ACROSS))
    assert (found.outcome, found.applications) == ("passed", 1)


def test_many_pairs_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = sampled([*range(30), 7, 8], list(range(20)))
    whole = judged(trace, distinct(F))
    monkeypatch.setattr(call_values_content, "MOST_PAIRS", 10)
    assert judged(trace, distinct(F)) == whole
    assert (whole.applications, whole.violations) == (32 * 31 // 2 + 20 * 19 // 2, 2)


def test_evaluation_sees_the_same_data_each_time() -> None:
    found = infer([Layers(evaluate_every=1).trace()], relations=["DistinctArgumentRelation"])
    assert len(found) == 2
    assert all("stage is training" in item.text_description for item in found)


def test_the_same_batch_in_the_reference_makes_no_rule() -> None:
    found = infer([Layers(stuck_from=1).trace()], relations=["DistinctArgumentRelation"])
    assert not any("different step" in item.text_description for item in found)
    assert any("given the same as call" in str(item.counterexample) for item in found.rejected)


def test_conditions_on_captures_are_refused() -> None:
    outcome = judged(sampled([1, 1]), distinct(F, ("exist", "captures.index")))
    assert outcome.outcome == "not_observable"
