"""APIContain: constant arguments of the contained call, constant values of variables, variables of an object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from traincheck.check import Outcome, Result, check
from traincheck.infer import infer
from traincheck.invariants import Invariant, parse_invariant
from traincheck.relations.tables import Tables
from traincheck.trace import Trace
from traincheck.trace.build import TraceBuilder, digest
from traincheck.trace.values import Object, Symbol, Tensor

from .worlds import STEP, ZERO, World, texts

LAYER, DROP = "m.Layer.forward", "m.functional.drop"
PARAMS = ("input", "p", "training", "mode", "dtype", "generator")


def program(
    steps: int = 6, p: float = 0.1, training: bool = True, wrong_from: int | None = None, evaluate: bool = True
) -> TraceBuilder:
    """A layer that calls ``drop(input, p, training, mode=…)``; from ``wrong_from`` on in the wrong mode."""
    b = TraceBuilder()
    b.stage("training")
    for step in range(1, steps + 1):
        b.step()
        flag = training if wrong_from is None or step < wrong_from else not training
        for stage, mode in (("training", flag), *([("evaluation", False)] if evaluate else [])):
            b.stage(stage)
            with b.call(LAYER, location=("model.py", 7, "forward")):
                rest = {"mode": "same", "dtype": Symbol("dtype", "torch.float32"), "generator": None}
                with b.call(DROP, args=(Tensor(), p, mode), kwargs=rest, params=PARAMS):
                    pass
    return b


def ended(b: TraceBuilder) -> Trace:
    b.mark(8, 0)
    return b.trace()


def rule(arguments: dict[str, Any], stage: str | None = None) -> Invariant:
    clause = {"type": "constant", "prop_name": "meta_vars.stage", "prop_dtype": "str", "values": [stage]}
    clauses: Any = "Unconditional" if stage is None else [clause]
    return parse_invariant(
        json.dumps(
            {
                "text_description": "",
                "relation": "APIContainRelation",
                "params": [
                    {"param_type": "APIParam", "api_full_name": LAYER},
                    {
                        "param_type": "APIParam",
                        "api_full_name": DROP,
                        "arguments": {"args": arguments, "func_name": DROP},
                    },
                ],
                "precondition": {"parent_func_call_pre": {"inverted": False, "preconditions": [{"clauses": clauses}]}},
            }
        )
    )


def only(result: Result) -> Outcome:
    assert len(result.outcomes) == 1
    return result.outcomes[0]


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ({"p": {"float": 0.1}}, "passed"),
        ({"p": {"float": 0.2}}, "violated"),
        ({"p": {"int": 0}}, "violated"),
        ({"mode": {"str": "same"}, "p": {"float": 0.1}}, "passed"),
        ({"mode": {"str": "other"}, "p": {"float": 0.1}}, "violated"),
        ({"dtype": {"torch.dtype": "torch.float32"}}, "passed"),
        ({"dtype": {"dtype": "torch.float32"}}, "passed"),
        ({"dtype": {"torch.dtype": "torch.float16"}}, "violated"),
        ({"generator": {"NoneType": None}}, "passed"),
        ({"generator": {"torch._C.Generator": {}}}, "violated"),
        ({"input": {"torch.FloatTensor": {}}}, "passed"),
        ({"input": {"torch.FloatTensor": {"ndim": 2}}}, "not_observable"),
        ({"input": {"list": [1]}}, "violated"),
        ({"not_given": {"bool": True}}, "not_observable"),
    ],
)
def test_value_objects_are_compared_by_type_and_value(arguments: dict[str, Any], outcome: str) -> None:
    found = only(check(ended(program()), [rule(arguments)]))
    assert found.outcome == outcome
    if outcome == "not_observable":
        assert "was not recorded what functional.drop was called with" in str(found.reason)
        assert not found.applications


def test_what_it_was_called_with_is_told() -> None:
    wrong = ended(program(wrong_from=4))
    result = check(wrong, [rule({"training": {"bool": True}}, "training")])
    assert only(result).violated_steps == (4, 5, 6)
    finding = result.findings[0]
    assert finding.title == "Layer.forward() called functional.drop() with training=False"
    assert finding.expected == "Layer.forward() always calls functional.drop(training=True) when stage is training"
    assert "eval()" in finding.meaning
    assert finding.location is not None
    assert "model.py:7" in finding.location
    assert only(result).evidence[0]["before"] == "training=True"


def test_one_fitting_call_among_others_is_enough() -> None:
    b = TraceBuilder()
    b.step()
    with b.call(LAYER):
        for mode in (False, True, False):
            with b.call(DROP, kwargs={"training": mode}, params=PARAMS):
                pass
    with b.call(LAYER), b.call(DROP, kwargs={"training": False}, params=PARAMS):
        pass
    found = only(check(ended(b), [rule({"training": {"bool": True}})]))
    assert (found.applications, found.violations) == (2, 1)


def test_any_cut_gives_the_same() -> None:
    from .kit import _judged, same

    tables = Tables.of(ended(program(wrong_from=3)))
    from traincheck.relations.base import Numbered

    items = [Numbered(0, rule({"training": {"bool": True}}, "training")), Numbered(1, rule({"p": {"float": 0.2}}))]
    whole = _judged(items, [tables.window()])
    assert whole.violations.height
    for step in (1, 2, 5, 7):
        same(whole, _judged(items, tables.cut([{0: seq} for seq in range(0, 140, step)])))


def test_positional_arguments_of_old_traces_have_no_name() -> None:
    """Without parameter names a positional argument fits any name; two that want one value need two."""
    b = TraceBuilder()
    b.step()
    with b.call(LAYER), b.call(DROP, args=(Tensor(), 0.1, True, False)):
        pass

    def outcome(**arguments: Any) -> str:
        return only(check(ended(b), [rule({name: {type(v).__name__: v} for name, v in arguments.items()})])).outcome

    assert outcome(p=0.1, training=True, inplace=False) == "passed"
    assert outcome(p=0.1, training=True, inplace=True) == "violated"
    assert outcome(p=0.2) == "violated"


def test_what_0x_could_not_write_is_not_judged() -> None:
    found = only(check(ended(program()), [rule({"p": {"float": "NOT SERIALIZABLE: <NA>"}})]))
    assert found.outcome == "not_observable"
    assert "argument p" in str(found.reason)


# --- learning ----------------------------------------------------------------------------------------------------


def learned(*builders: TraceBuilder) -> list[str]:
    found = infer([ended(b) for b in builders], relations=["APIContainRelation"])
    return [text for text in texts(found.invariants) if "=" in text]


def test_flags_and_words_are_learned_numbers_are_not() -> None:
    assert learned(program()) == [
        "Layer.forward() always calls functional.drop(dtype=torch.float32, mode=same)",
        "Layer.forward() always calls functional.drop(training=False) when stage is evaluation",
        "Layer.forward() always calls functional.drop(training=True) when stage is training",
    ]


def test_numbers_become_constants_when_runs_that_differ_agree() -> None:
    same = "Layer.forward() always calls functional.drop(dtype=torch.float32, mode=same)"
    assert same in learned(program(), program())
    one, two = program(), program()
    for rate, b in ((0.5, one), (0.25, two)):
        with b.call("m.Optimizer.step", kwargs={"lr": rate}, params=("self", "lr")):
            pass
    both = "drop(dtype=torch.float32, generator=None, mode=same, p=0.1)"
    assert both in learned(one, two)[0]
    assert "p=" not in " ".join(learned(program(p=0.1), program(p=0.2)))


def test_a_mode_that_was_wrong_is_found() -> None:
    good = infer([ended(program())])
    assert check(ended(program(steps=9)), good).summary["violated"] == 0
    result = check(ended(program(wrong_from=3)), good)
    assert result.findings[0].first_step == 3
    assert "training=False" in result.findings[0].title


def test_paths_and_names_are_no_constants() -> None:
    b = TraceBuilder()
    for _ in range(5):
        b.step()
        with b.call(LAYER):
            given = {"filename": "weights", "where": "a/b.pt", "reduction": "mean"}
            with b.call("m.functional.load", kwargs=given, params=("filename", "where", "reduction")):
                pass
    assert learned(b) == ["Layer.forward() always calls functional.load(reduction=mean)"]


def test_passing_on_what_was_given_says_nothing() -> None:
    b = TraceBuilder()
    for step in range(12):
        b.step()
        for flag in (step % 3 == 0, step % 2 == 0):
            outer = b.call("m.functional.outer", kwargs={"flag": flag}, params=("flag",))
            with outer, b.call("m.functional.inner", kwargs={"flag": flag}, params=("flag",)):
                pass
    assert learned(b) == []


# --- constant values, variables of an object ---------------------------------------------------------------------


def variable(function: str, groups: dict[str, Any] | None = None, **values: Any) -> Invariant:
    always = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}
    child = {"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter", "attr_name": "grad", **values}
    return parse_invariant(
        json.dumps(
            {
                "text_description": "",
                "relation": "APIContainRelation",
                "params": [{"param_type": "APIParam", "api_full_name": function}, child],
                "precondition": {"parent_func_call_pre": always, **(groups or {})},
            }
        )
    )


EVERY = {"var_events": {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}}


def test_a_constant_value_is_what_the_call_leaves() -> None:
    none = variable(ZERO, EVERY, const_value=None)
    assert only(check(World().trace(), [none])).outcome == "passed"
    wrong = check(World(not_in_optimizer=("fc.weight",)).trace(), [none])
    assert wrong.findings[0].title == "fc.weight.grad was not None after Optimizer.zero_grad()"
    assert wrong.findings[0].expected == "Optimizer.zero_grad() leaves every Parameter.grad at None"
    some = variable(ZERO, const_value=None)
    assert only(check(World(not_in_optimizer=("fc.weight",)).trace(), [some])).outcome == "passed"
    content = variable(ZERO, const_value="non_none")
    assert only(check(World().trace(), [content])).outcome == "violated"


def old_run(names_of_second: tuple[str, ...]) -> Trace:
    """Two optimizers over one parameter each, as 0.x recorded it: each step changes its own parameter."""
    b = TraceBuilder()
    given = {1: ("model.a",), 2: names_of_second}
    content = {"model.a": 0, "model.b": 0}
    for number, names in given.items():
        more = {f"@variables[{n}]": Symbol("variable", name) for n, name in enumerate(names)}
        with b.call("o.Optimizer.__init__", captures={"self": Object("o.Optimizer", identity=number), **more}):
            pass
    for _ in range(3):
        b.step()
        for number, own in ((1, "model.a"), (2, "model.b")):
            call = b.begin("o.Optimizer.step", captures={"self": Object("o.Optimizer", identity=number)})
            for moment in ("before", "after"):
                if moment == "after":
                    content[own] += 1
                    b.end()
                with b.observe("step", moment, call.number):
                    for name, version in content.items():
                        b.state(name, grad=digest((name, version)))
    trace = ended(b)
    trace.source = "traincheck-0.x"
    return trace


def test_a_rule_about_every_variable_speaks_of_those_of_the_object() -> None:
    every = variable("o.Optimizer.step", EVERY)
    found = only(check(old_run(("model.b",)), [every]))
    assert (found.outcome, found.applications) == ("passed", 6)
    found = only(check(old_run(("model.a", "model.b")), [every]))
    assert (found.outcome, found.violations) == ("violated", 3)
    assert only(check(old_run(()), [every])).applications == 3
    assert STEP
