"""What FunctionLead and FunctionCover mean: against a plain walk over any calls, and case by case."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traincheck.check import check, judge
from traincheck.invariants import Invariant, parse_invariant
from traincheck.relations.base import Judgement, Numbered, merge
from traincheck.relations.tables import Tables, Watch
from traincheck.trace import Trace
from traincheck.trace.build import ProcessBuilder, TraceBuilder

from .kit import same

LEAD, COVER = "FunctionLeadRelation", "FunctionCoverRelation"
GROUP = {LEAD: "func_lead", COVER: "func_cover"}
FUNCTIONS = ("m.a", "m.b", "m.c")


def order(
    relation: str, *functions: str, clauses: Any = "Unconditional", exception: str | None = None, inverted: bool = False
) -> Invariant:
    """An invariant as a line of a file gives it."""
    params: list[dict[str, Any]] = [{"param_type": "APIParam", "api_full_name": name} for name in functions]
    if exception is not None:
        params[0]["exception"] = exception
    group = {"inverted": inverted, "preconditions": [{"clauses": clauses}]}
    return parse_invariant(
        json.dumps(
            {
                "text_description": "",
                "relation": relation,
                "params": params,
                "precondition": {GROUP[relation]: group},
                "num_positive_examples": 1,
                "num_negative_examples": 0,
            }
        )
    )


def stage(name: str) -> list[dict[str, Any]]:
    return [{"type": "constant", "prop_name": "meta_vars.stage", "prop_dtype": "str", "values": [name]}]


# --- a plain walk ------------------------------------------------------------------------------------------------


def walk(relation: str, one: str, two: str, tables: Tables, only: str | None = None) -> Counter[str]:
    """Applied and violated, by the definition in docs/relations.md, one call at a time."""
    anchor, witness = (one, two) if relation == LEAD else (two, one)
    result: Counter[str] = Counter()
    for _, thread in tables.calls.group_by("process", "thread"):
        calls = thread.sort("begin_seq").to_dicts()
        known: list[dict[str, Any]] = []
        for call in calls:
            inside = any(
                other["function"] == anchor
                and other["begin_seq"] < call["begin_seq"]
                and (other["end_seq"] is None or other["end_seq"] > call["begin_seq"])
                for other in calls
            )
            chosen = call["function"] == anchor and call["outcome"] == "returned" and only in (None, call["stage"])
            if chosen and not inside:
                known.append(call)
        if relation == COVER and known and known[0]["span"] == 0:
            result["applied"] += 1
            result["violated"] += not _between(calls, witness, -1, known[0]["begin_seq"])
        for before, after in pairwise(known):
            if before["span"] == after["span"]:
                result["applied"] += 1
                result["violated"] += not _between(calls, witness, before["end_seq"], after["begin_seq"])
    return result


def _between(calls: Sequence[dict[str, Any]], function: str, low: int, high: int) -> bool:
    return any(
        call["function"] == function
        and call["outcome"] == "returned"
        and call["begin_seq"] > low
        and call["end_seq"] < high
        for call in calls
    )


actions = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(FUNCTIONS)),
        st.tuples(st.just("begin"), st.sampled_from(FUNCTIONS)),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("thread"), st.sampled_from(("one", "two"))),
        st.tuples(st.just("stage"), st.sampled_from(("training", "evaluation"))),
        st.tuples(st.just("step"), st.none()),
        st.tuples(st.just("observing"), st.booleans()),
    ),
    max_size=40,
)


def play(process: ProcessBuilder, script: Sequence[tuple[str, Any]]) -> None:
    thread, depth, off = "one", Counter[str](), False
    for verb, what in script:
        with process.thread(thread):
            if verb == "observing":
                off = not what
                process.mark(7, int(what))
            elif verb == "step":
                process.step()
            elif verb == "stage":
                process.stage(what)
            elif verb == "thread":
                thread = what
            elif verb == "end" and depth[thread]:
                depth[thread] -= 1
                process.end("builtins.ValueError" if what else None)
            elif verb in ("call", "begin") and not off:
                process.begin(what)
                if verb == "begin":
                    depth[thread] += 1
                else:
                    process.end()
    process.mark(8, 0)


def invariants() -> list[Numbered]:
    pairs = [(one, two) for one in FUNCTIONS for two in FUNCTIONS]
    every = [order(relation, one, two) for relation in (LEAD, COVER) for one, two in pairs]
    some = [order(relation, one, two, clauses=stage("training")) for relation in (LEAD, COVER) for one, two in pairs]
    return [Numbered(number, invariant) for number, invariant in enumerate([*every, *some])]


def judged(items: Sequence[Numbered], windows: Sequence[Any]) -> Judgement:
    found, faults = judge(items, windows)
    assert not faults
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts=st.lists(actions, min_size=1, max_size=2), data=st.data())
def test_any_calls_any_cut(scripts: list[list[tuple[str, Any]]], data: st.DataObject) -> None:
    builder = TraceBuilder()
    for process, script in zip([builder, *(builder.process() for _ in scripts[1:])], scripts, strict=True):
        play(process, script)
    tables = Tables.of(builder.trace())
    items = invariants()
    whole = judged(items, [tables.window()])
    totals = {
        int(row["invariant"]): row
        for row in whole.counts.group_by("invariant").agg(pl.col("applied", "violated").sum()).iter_rows(named=True)
    }
    for number, invariant in items:
        one, two = (getattr(param, "api_full_name", "") for param in invariant.params)
        wanted = walk(invariant.relation, one, two, tables, "training" if number >= 18 else None)
        seen = totals.get(number, {"applied": 0, "violated": 0})
        assert (seen["applied"], seen["violated"]) == (wanted["applied"], wanted["violated"]), invariant
    last = [len(process.records()) for process in builder.processes]
    count = data.draw(st.integers(1, 8))
    points = {
        number: sorted(data.draw(st.lists(st.integers(0, end), min_size=count, max_size=count)))
        for number, end in enumerate(last)
    }
    cuts = [{process: points[process][n] for process in points} for n in range(count)]
    same(whole, judged(items, tables.cut(cuts)))
    same(whole, merge([judged(items, [tables.only(process).window()]) for process in tables.processes]))


# --- case by case ------------------------------------------------------------------------------------------------


def calls(text: str) -> Trace:
    """``a b(c) a!`` : a, then b with c inside, then an a that raises; ``|`` begins a step, ``/`` is a sampling gap."""
    builder = TraceBuilder()
    for letter in text.replace(" ", ""):
        if letter == "|":
            builder.step()
        elif letter == "/":
            builder.mark(7, 0)
            builder.mark(7, 1)
        elif letter == "(":
            pass
        elif letter in "!.":
            builder.end("builtins.ValueError" if letter == "!" else None)
        elif letter == ")":
            continue
        else:
            builder.begin(f"m.{letter}")
    builder.mark(8, 0)
    return builder.trace()


@pytest.mark.parametrize(
    ("script", "lead", "cover"),
    [
        # every call ends with ``.`` (returned) or ``!`` (raised); nesting is begin before the other's end
        ("a. b. a. b.", "passed", "passed"),
        ("a.", "dormant", "dormant"),
        ("a. b.", "dormant", "passed"),  # the last a is not judged; the first b is
        ("b. a. b. a.", "passed", "violated"),  # b before the first a
        ("a. a. b.", "violated", "passed"),
        ("a. b. b. a.", "passed", "violated"),
        ("a. b! a. b.", "violated", "passed"),  # a b that raised is none
        ("a. b. a! b. a. b.", "passed", "violated"),  # nor is an a that raised
        ("ab.. ab..", "violated", "violated"),  # inside is not between
        ("aa.. b. aa.. b.", "passed", "passed"),  # an a within an a is part of it
        ("a. ba.. b.", "violated", "violated"),  # a whole b must lie between
        ("a. / a. b.", "dormant", "dormant"),  # not over a gap; nor the first b after one
        ("a. b. / b. a. a. b.", "violated", "passed"),
        ("c. c.", "dormant", "dormant"),
    ],
)
def test_what_counts(script: str, lead: str, cover: str) -> None:
    result = check(calls(script), [order(LEAD, "m.a", "m.b"), order(COVER, "m.a", "m.b")])
    assert [outcome.outcome for outcome in result.outcomes] == [lead, cover]


def test_chains_are_judged_link_by_link() -> None:
    chain = [order(LEAD, "m.a", "m.b", "m.c"), order(COVER, "m.a", "m.b", "m.c")]
    healthy = check(calls("|a.b.c. |a.b.c. |a.b.c."), chain)
    assert [(o.outcome, o.applications) for o in healthy.outcomes] == [("passed", 4), ("passed", 6)]
    broken = check(calls("|a.b.c. |a.b. |a.b.c."), chain)
    assert [(o.outcome, o.violated_steps) for o in broken.outcomes] == [("violated", (3,)), ("passed", ())]
    assert broken.outcomes[0].evidence[0]["function"] == "m.b"
    assert broken.outcomes[0].evidence[0]["other_variable"] == "m.c"
    missing = check(calls("|a.b.c. |a.c. |a.b.c."), chain)
    assert [o.outcome for o in missing.outcomes] == ["violated", "violated"]
    assert [o.violated_steps for o in missing.outcomes] == [(3,), (2,)]


def test_a_passing_cover_has_applied() -> None:
    """In 0.x it was always reported as never triggered."""
    (outcome,) = check(calls("|a.b. |a.b."), [order(COVER, "m.a", "m.b")]).outcomes
    assert (outcome.outcome, outcome.applications, outcome.steps) == ("passed", 2, (1, 2))


def test_an_exception_may_be_what_leads() -> None:
    rule = [order(LEAD, "m.a", "m.b", exception="builtins.ValueError")]
    assert check(calls("a! b. a. a! b."), rule).outcomes[0].outcome == "passed"
    assert check(calls("a! a. a!"), rule).outcomes[0].outcome == "violated"


def test_a_precondition_chooses_calls_before_they_are_walked() -> None:
    builder = TraceBuilder()
    for name in ("training", "evaluation", "training"):
        builder.stage(name)
        for function in ("m.a", "m.b") if name == "training" else ("m.a",):
            with builder.call(function):
                pass
    rules = [order(LEAD, "m.a", "m.b", clauses=stage("training")), order(LEAD, "m.a", "m.b")]
    result = check(builder.trace(), rules)
    assert [(o.outcome, o.applications) for o in result.outcomes] == [("passed", 1), ("violated", 2)]


def test_captures_of_a_call_that_spans_windows() -> None:
    builder = TraceBuilder()
    for value in (True, False, True):
        builder.begin("m.a", kwargs={"train": value})
        builder.step()
        builder.end()
    tables = Tables.of(builder.trace())
    clause = {"type": "constant", "prop_name": "captures.kwargs.train", "prop_dtype": "bool", "values": [True]}
    items = [Numbered(0, order(LEAD, "m.a", "m.b", clauses=[clause]))]
    whole = judged(items, [tables.window()])
    assert whole.counts["applied"].sum() == 1
    same(whole, judged(items, tables.steps()))


def test_each_thread_is_its_own() -> None:
    builder = TraceBuilder()
    for name in ("one", "two"):
        with builder.thread(name):
            for function in ("m.a", "m.b") if name == "one" else ("m.b",):
                with builder.call(function):
                    pass
    (outcome,) = check(builder.trace(), [order(COVER, "m.a", "m.b")]).outcomes
    assert (outcome.outcome, outcome.applications, outcome.violations) == ("violated", 2, 1)


def test_reasons_for_never_applying() -> None:
    rules = [
        order(LEAD, "m.x", "m.b"),
        order(LEAD, "m.a", "m.b"),
        order(COVER, "m.a", "m.b", clauses=stage("testing")),
    ]
    reasons = [outcome.reason or "" for outcome in check(calls("a. b."), rules).outcomes]
    assert "m.x() was never called" in reasons[0]
    assert "no two calls of m.a()" in reasons[1]
    assert "stage is testing" in reasons[2]


def test_not_watched_is_not_observable() -> None:
    tables = Tables.of(calls("a. b. a. b."))
    watch = Watch("boundary", frozenset(), frozenset({"m.a"}))
    _, unable = judge([Numbered(0, order(LEAD, "m.a", "m.b"))], [tables.window()], watch)
    assert unable[0][0] == "not_observable"
    assert "m.b" in unable[0][1]
