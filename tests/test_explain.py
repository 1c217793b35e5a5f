"""``infer --explain``: examples of what was learned, counter-examples of what was not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from traincheck.cli.app import app
from traincheck.errors import TraincheckError
from traincheck.explain import Answer, explain
from traincheck.infer import infer, tables_of
from traincheck.trace import Trace
from traincheck.trace.build import TraceBuilder

from .relations.worlds import World


def ask(subject: str, *traces: Trace) -> Answer:
    return explain(infer(traces), tables_of(traces), subject)


def test_an_invariant_shows_calls_and_values() -> None:
    answer = ask("Tensor.backward", World().trace())
    kept = {one.invariant.text_description: one for one in answer.kept}
    rule = kept["Tensor.backward() changes every Parameter.grad: None --> non-None"]
    (example,) = rule.examples
    assert example.step == 1
    assert rule.invariant.support is not None
    assert example.applications == rule.invariant.support.applications
    assert example.steps == rule.invariant.support.steps
    assert example.events[0].startswith("Tensor.backward()")
    assert any("conv.weight.grad: None --> " in event for event in example.events)


def test_each_reference_gives_an_example() -> None:
    answer = ask("zero_grad", World().trace(), World(seed=1).trace())
    assert answer.kept
    assert all([example.reference for example in one.examples] == ["run 0", "run 1"] for one in answer.kept)


def test_a_dropped_candidate_shows_where_it_failed() -> None:
    b = TraceBuilder()
    for step in range(1, 9):
        b.step()
        with b.call("m.work", location=("train.py", 10 + step, "loop")):
            if step not in (4, 5, 6):  # nothing tells these calls from the others
                with b.call("m.part"):
                    pass
    answer = ask("m.part", b.trace())
    assert not answer.kept
    (dropped,) = answer.dropped
    assert dropped.reason
    assert dropped.counterexample is not None
    assert "in step 4 of reference 0" in dropped.counterexample
    assert (dropped.reference, dropped.location) == ("run 0", "train.py:14 in loop")


def test_what_was_folded_says_into_what() -> None:
    b = TraceBuilder()
    for _ in range(4):
        b.step()
        with b.call("m.a"), b.call("m.b"), b.call("m.c"):
            pass
    answer = ask("m.a() always calls m.c()", b.trace())
    assert [one.equivalent.text_description for one in answer.folded] == ["m.a() always calls m.c()"]
    assert answer.folded[0].under.text_description in ("m.a() always calls m.b()", "m.b() always calls m.c()")


def test_what_was_too_seldom_or_private_is_said() -> None:
    b = TraceBuilder()
    for step in range(4):
        b.step()
        with b.call("m._hidden"):
            pass
        if step == 2:
            with b.call("m.save"), b.call("m.write"):
                pass
    (seldom,) = ask("m.save", b.trace()).called
    assert (seldom.calls, seldom.training_steps) == (1, 1)
    assert "fewer than two training steps" in str(seldom.remark)
    (private,) = ask("m._hidden", b.trace()).called
    assert "private" in str(private.remark)


def test_by_id_and_by_relation() -> None:
    trace = World(ranks=2).trace()
    learned = infer([trace])
    for invariant in learned:
        answer = explain(learned, tables_of([trace]), invariant.key)
        assert [one.invariant for one in answer.kept] == [invariant]
        assert answer.kept[0].examples
    answer = explain(learned, tables_of([trace]), "consistency")
    assert {one.invariant.relation for one in answer.kept} == {"ConsistencyRelation"}
    assert not explain(learned, tables_of([trace]), "Threshold").kept


def test_nothing_of_that_name() -> None:
    with pytest.raises(TraincheckError, match=r"found .Adam\.step") as raised:
        ask("Adam.step", World().trace())
    assert "AdamW.step" in str(raised.value.hint)


def test_the_command_prints_and_writes_only_when_asked(tmp_path: Path) -> None:
    run = World().builder().write(tmp_path / "run")
    runner = CliRunner()
    printed = runner.invoke(app, ["infer", str(run), "--explain", "zero_grad"])
    assert printed.exit_code == 0, printed.output
    assert "kept         APIContainRelation, id " in printed.output
    assert "conv.weight.grad: " in printed.output
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    told = runner.invoke(app, ["infer", str(run), "--explain", "zero_grad", "--json", "-o", str(tmp_path / "x.jsonl")])
    answer = json.loads(told.stdout)
    assert answer["schema"] == 1
    assert answer["kept"][0]["examples"][0]["events"]
    assert (tmp_path / "x.jsonl").exists()
    unknown = runner.invoke(app, ["infer", str(run), "--explain", "nonsense"])
    assert unknown.exit_code != 0
