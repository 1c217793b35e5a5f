"""The selective plan: the law *selective = full*, what is observed, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from traincheck.check import check, judge
from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError
from traincheck.infer import infer
from traincheck.invariants import Invariant, parse_invariant
from traincheck.projection import project
from traincheck.relations.base import Numbered
from traincheck.relations.registry import BY_NAME
from traincheck.relations.state_needs import covers
from traincheck.relations.tables import Tables, Watch
from traincheck.selective import UnobservableError, selective
from traincheck.trace import Trace, open_trace
from traincheck.trace.manifest import Manifest

from . import kit
from .test_laws import SUBJECTS, worlds
from .worlds import ADAMW, BACKWARD, STEP, ZERO, World

subjects = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=lambda subject: subject.relation)


def same_in_selective_form(invariants: list[Invariant], trace: Trace) -> None:
    """All together, and each alone: the judged counts are those of the whole trace."""
    tables = Tables.of(trace)
    for chosen in (invariants, *([one] for one in invariants)):
        seen = project(tables, selective(Plan(), chosen))
        items = [Numbered(number, invariant) for number, invariant in enumerate(chosen)]
        whole, unable = judge(items, [tables.window()], tables.watch)
        part, lost = judge(items, [seen.window()], seen.watch)
        assert unable == lost == {}
        columns = ["invariant", "process", "rank", "step", "applied", "violated"]
        assert judged(whole.counts.select(columns)) == judged(part.counts.select(columns))


def judged(counts: Any) -> list[tuple[Any, ...]]:
    return sorted((row for row in counts.iter_rows() if row[4]), key=str)


@subjects
def test_selective_is_full(subject: kit.Subject) -> None:
    invariants = list(kit.learned(subject).invariants)
    for make in (lambda: subject.healthy(2), *(fault.trace for fault in subject.faults.values())):
        same_in_selective_form(invariants, make())


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds)
def test_selective_is_full_on_any_run(world: World) -> None:
    learned = infer([World(ranks=2).trace()], relations=["APIContain", "Consistency"])
    same_in_selective_form(list(learned.invariants), world.trace())


# --- what is observed --------------------------------------------------------------------------------------------


def contain(parent: str, child: dict[str, Any], **groups: Any) -> Invariant:
    always = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}
    params = [{"param_type": "APIParam", "api_full_name": parent}, child]
    return parse_invariant(
        json.dumps(
            {
                "text_description": f"{parent} rule",
                "relation": "APIContainRelation",
                "params": params,
                "precondition": {"parent_func_call_pre": always, **groups},
            }
        )
    )


def call(name: str, **arguments: Any) -> dict[str, Any]:
    child: dict[str, Any] = {"param_type": "APIParam", "api_full_name": name}
    return {**child, "arguments": {"args": arguments, "func_name": name}} if arguments else child


def changes(attribute: str) -> dict[str, Any]:
    return {"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter", "attr_name": attribute}


def test_only_functions_that_are_spoken_of() -> None:
    plan = selective(Plan(every=3, warmup=2, packages=("torch", "mine")), [contain(STEP, call(ADAMW))])
    assert (plan.scope, plan.functions) == ("selective", {STEP: [], ADAMW: []})
    assert plan.observe == {"process": ["value"]}
    assert (plan.every, plan.warmup, plan.packages) == (3, 2, ("torch", "mine"))


def test_only_arguments_that_are_compared() -> None:
    plan = selective(Plan(), [contain(STEP, call(ADAMW, amsgrad={"bool": False}, lr={"float": 0.1}))])
    assert plan.functions == {STEP: [], ADAMW: ["amsgrad", "lr"]}


def test_only_state_around_the_call_that_is_observed_on_both_sides() -> None:
    plan = selective(Plan(), [contain(STEP, changes("data"))])
    assert plan.observe == {
        "baseline": ["data"],
        "process": ["value"],
        "step:after": ["data"],
        "step:before": ["data"],
    }
    assert selective(Plan(), [contain(ZERO, changes("grad"))]).observe == {
        "baseline": ["grad"],
        "process": ["value"],
        "zero_grad:after": ["grad"],
        "zero_grad:before": ["grad"],
    }


def test_what_is_seen_on_one_side_needs_all_that_came_before() -> None:
    observe = selective(Plan(), [contain(BACKWARD, changes("grad"))]).observe
    assert [reason for reason, parts in observe.items() if "grad" in parts] == [
        "backward",
        "baseline",
        "step:before",
        "zero_grad:after",
        "zero_grad:before",
    ]
    assert not any("data" in parts for parts in observe.values())


def test_whether_there_is_a_gradient_is_enough_to_tell_that_it_came_or_went() -> None:
    came = {**changes("grad"), "pre_value": None, "post_value": "non_none"}
    went = {**changes("grad"), "pre_value": "non_none", "post_value": None}
    for rule in (contain(BACKWARD, came), contain(ZERO, went), contain(ZERO, went, var_events=where("non_none"))):
        parts = selective(Plan(), [rule]).observe
        assert {part for some in parts.values() for part in some} == {"value", "has_grad"}
    grew = {**changes("grad"), "pre_value": "anything", "post_value": "non_none"}
    for rule in (contain(BACKWARD, grew), contain(ZERO, went, var_events=where("above_zero"))):
        parts = selective(Plan(), [rule]).observe
        assert any("grad" in some for some in parts.values())
    # Where another rule compares content, it is recorded once.
    both = selective(Plan(), [contain(BACKWARD, came), contain(BACKWARD, grew)])
    assert not any("has_grad" in some for some in both.observe.values())
    for one in (came, grew):
        full = {reason: frozenset(some) for reason, some in both.observe.items()}
        assert covers(full, BY_NAME["APIContainRelation"].needs(contain(BACKWARD, one)))
    little = {reason: frozenset(some) for reason, some in selective(Plan(), [contain(BACKWARD, came)]).observe.items()}
    assert not covers(little, BY_NAME["APIContainRelation"].needs(contain(BACKWARD, grew)))


def where(kind: str) -> dict[str, Any]:
    clause = {"type": "generalised", "prop_name": "attributes.grad", "values": [kind]}
    return {"inverted": False, "preconditions": [{"clauses": [clause]}]}


def test_packages_of_functions_are_taken_in() -> None:
    assert "mine" in selective(Plan(), [contain("mine.models.Net.forward", call("mine.layers.Layer.forward"))]).packages


def test_a_plan_survives_its_file() -> None:
    plan = selective(Plan(), infer([World().trace()]).invariants)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


# --- what is refused ---------------------------------------------------------------------------------------------


def test_a_function_that_is_not_there_is_an_error() -> None:
    good, bad = contain(STEP, call(ADAMW)), contain(STEP, call("torch.gone"))
    with pytest.raises(UnobservableError) as caught:
        selective(Plan(), [good, bad], lookup=lambda wanted: {"torch.gone": "torch.gone does not exist in torch 9"})
    assert caught.value.exit_code == 2
    assert f"{STEP} rule: torch.gone does not exist in torch 9" in caught.value.message
    assert "--allow-partial" in str(caught.value.hint)
    assert [one.invariant for one in caught.value.found] == [bad]


def test_partly_is_told_to_the_checker() -> None:
    good, bad = contain(STEP, call(ADAMW)), contain(STEP, call("torch.gone"))
    plan = selective(Plan(), [good, bad], allow_partial=True, lookup=lambda wanted: {"torch.gone": "it is gone"})
    assert plan.functions == {STEP: [], ADAMW: []}
    trace = World().trace()
    trace.manifest = Manifest(plan=plan.to_json())
    result = check(trace, [good, bad])
    assert [(one.outcome, one.reason) for one in result.outcomes] == [
        ("passed", None),
        ("not_observable", "it is gone"),
    ]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (
            {
                "parent_func_call_pre": {
                    "inverted": False,
                    "preconditions": [{"clauses": [{"type": "exist", "prop_name": "captures.1x"}]}],
                }
            },
            "a capture path begins with",
        ),
    ],
)
def test_a_path_that_nobody_can_follow_is_an_error(groups: dict[str, Any], words: str) -> None:
    with pytest.raises(TraincheckError, match=words):
        selective(Plan(), [contain(STEP, call(ADAMW), **groups)])


@pytest.mark.parametrize(
    ("variable_type", "attribute"),
    [
        ("torch.nn.Parameter", "hessian"),
        ("torch.nn.Parameter", "is_cuda"),
        ("torch.nn.Parameter", "value"),
        ("mine.sparse.BlockTensor", "blocks"),
        ("generator", "seed"),
        ("input", "mask"),
    ],
)
def test_state_that_nobody_observes_is_an_error(variable_type: str, attribute: str) -> None:
    good = contain(STEP, changes("data"))
    bad = contain(STEP, {"param_type": "VarTypeParam", "var_type": variable_type, "attr_name": attribute})
    words = f"{attribute} is not observed of variables of type {variable_type} \\(observed: "
    with pytest.raises(UnobservableError, match=words) as caught:
        selective(Plan(), [good, bad])
    assert [one.invariant for one in caught.value.found] == [bad]
    plan = selective(Plan(), [good, bad], allow_partial=True)
    trace = World().trace()
    trace.manifest = Manifest(plan=plan.to_json())
    passed, unseen = check(trace, [good, bad]).outcomes
    assert (passed.outcome, unseen.outcome) == ("passed", "not_observable")
    assert f"{attribute} is not observed" in str(unseen.reason)


@pytest.mark.parametrize(
    ("variable_type", "attribute"),
    [
        ("torch.nn.Parameter", "mesh.dp"),
        ("torch.nn.Parameter", "data.missing"),
        ("torch.distributed.tensor.DTensor", "placements"),
        ("torch.Tensor", "value"),
        ("torch.nn.modules.container.Sequential", "training"),
        ("mine.models.Net", "training_modules"),
        ("dict", "exp_avg"),
        ("list", "supervised"),
        ("process", "rank"),
    ],
)
def test_state_that_runs_have_is_accepted(variable_type: str, attribute: str) -> None:
    rule = contain(STEP, {"param_type": "VarTypeParam", "var_type": variable_type, "attr_name": attribute})
    assert not selective(Plan(), [rule]).unobservable


def watched(of: list[Invariant], change: Callable[[dict[str, Any]], None] = lambda plan: None) -> Trace:
    trace = World().trace()
    plan = selective(Plan(), of).to_json()
    change(plan)
    trace.manifest = Manifest(plan=plan)
    return trace


def test_what_a_selective_run_did_not_observe_is_not_passed() -> None:
    step, data = contain(STEP, call(ADAMW)), contain(STEP, changes("data"))
    flag = contain(STEP, call(ADAMW, amsgrad={"bool": False}))
    for of, asked, words in (
        (step, data, "was not observed as needed"),
        (step, flag, f"amsgrad of {ADAMW} was not captured"),
        (data, step, f"{ADAMW} was not watched in this run (selective scope)"),
    ):
        outcome = check(watched([of]), [asked]).outcomes[0]
        assert outcome.outcome == "not_observable"
        assert words in str(outcome.reason)
        assert check(watched([of, asked]), [step]).outcomes[0].outcome == "passed"


def test_what_the_session_did_not_find_is_not_passed() -> None:
    step = contain(STEP, call(ADAMW))
    trace = watched([step])
    trace.processes[0].raw["missing"] = [ADAMW]
    outcome = check(trace, [step]).outcomes[0]
    assert outcome.outcome == "not_observable"
    assert "was not found in the program" in str(outcome.reason)


def test_a_selective_run_without_its_manifest(tmp_path: Path) -> None:
    """Half copied: the plan stands in plan.json too; without both, only what the run names counts as watched."""
    learned = [one for one in infer([World().trace()]) if one.relation == "FunctionLeadRelation"]
    plan = selective(Plan(), learned)
    run = World().builder().write(tmp_path / "run")
    (run / "plan.json").write_text(json.dumps(plan.to_json()))
    (run / "manifest.json").unlink()
    known = Watch.of(open_trace(run))
    assert (known.scope, known.functions) == ("selective", frozenset(plan.functions))
    (run / "plan.json").unlink()
    unknown = Watch.of(open_trace(run))
    assert unknown.watches(BACKWARD)
    assert not unknown.watches("torch.nn.functional.relu")


@pytest.mark.parametrize("field", ["packages", "functions", "observe", "unobservable", "state"])
@pytest.mark.parametrize("value", [5, "text", [1], None, {"a": 1}])
def test_a_damaged_plan_ends_nothing(tmp_path: Path, field: str, value: object) -> None:
    run = World().builder().write(tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["plan"] = {"scope": "selective", "functions": {}, field: value}
    (run / "manifest.json").write_text(json.dumps(manifest))
    Watch.of(open_trace(run))
