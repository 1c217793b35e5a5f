"""The conformance kit: laws that every relation keeps. A relation takes part by giving a ``Subject``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from polars.testing import assert_frame_equal

from traincheck.check import check, judge
from traincheck.infer import Inference, infer
from traincheck.invariants import Invariant, dump_invariants, parse_invariant
from traincheck.relations.base import Judgement, Numbered, Relation, merge
from traincheck.relations.registry import relation_of
from traincheck.relations.tables import Tables, Window, concat
from traincheck.trace import Trace


@dataclass(frozen=True)
class Fault:
    """A run with a planted fault: what a finding must name, and since when."""

    trace: Callable[[], Trace]
    first_step: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """A relation with runs that show it. ``healthy`` takes a seed; ``like``: other healthy runs of the same program."""

    relation: str
    healthy: Callable[[int], Trace]
    like: Mapping[str, Callable[[], Trace]]
    faults: Mapping[str, Fault]
    speaks_of: tuple[str, ...]
    """What descriptions of the learned invariants must mention between them."""


def learned(subject: Subject, seed: int = 0) -> Inference:
    found = infer([subject.healthy(seed)], relations=[subject.relation])
    assert len(found), f"nothing was learned of {subject.relation}"
    return found


def relation(subject: Subject) -> Relation:
    found = relation_of(subject.relation)
    assert found is not None
    return found


def healthy_is_silent(subject: Subject) -> None:
    """Invariants of a healthy run are not violated by it, nor by a clean rerun; and each of them applies to it."""
    for seed in (0, 1):
        invariants = learned(subject, seed)
        result = check(subject.healthy(seed), invariants)
        assert {outcome.outcome for outcome in result.outcomes} == {"passed"}
        for name, trace in subject.like.items():
            result = check(trace(), invariants)
            wrong = [outcome.text for outcome in result.outcomes if outcome.outcome in ("violated", "error")]
            assert not wrong, f"{name}: {wrong}"


def fault_is_named(subject: Subject, fault: Fault) -> None:
    """A planted fault gives a finding that names function and tensor, at its first step."""
    result = check(fault.trace(), learned(subject))
    assert result.findings, "not found"
    assert result.exit_code == 3
    finding = result.findings[0]
    assert finding.first_step == fault.first_step
    told = json.dumps(finding.to_json())
    for name in fault.names:
        assert name in told
    assert finding.meaning
    assert finding.next_command.startswith("traincheck ")


def live_is_offline(subject: Subject, trace: Trace, cuts: Sequence[Mapping[int, int]]) -> None:
    """Any cut into windows gives the same counts and violations as the whole run."""
    tables = Tables.of(trace)
    items = [Numbered(number, invariant) for number, invariant in enumerate(learned(subject))]
    whole = _judged(items, [tables.window()])
    same(whole, _judged(items, tables.cut(cuts)))
    same(whole, _judged(items, tables.steps()))


def split_is_whole(subject: Subject, trace: Trace) -> None:
    """Judged by process and merged, or put together again from pieces: the outcomes of the whole run."""
    tables = Tables.of(trace)
    items = [Numbered(number, invariant) for number, invariant in enumerate(learned(subject))]
    whole = _judged(items, [tables.window()])
    pieces = [tables.only(process) for process in tables.processes]
    same(whole, _judged(items, [concat([piece.window() for piece in pieces])]))
    if relation(subject).scope == "process":
        parts = [_judged(items, [piece.window()]) for piece in pieces]
        same(whole, merge(parts))
        same(whole, merge(parts[::-1]))


def file_round_trip(subject: Subject) -> None:
    """Written and read again, an invariant is the same one and gives the same outcomes."""
    invariants = learned(subject)
    text = dump_invariants(invariants)
    again = [parse_invariant(line) for line in text.splitlines()]
    assert again == list(invariants)
    assert dump_invariants(again) == text
    assert [invariant.key for invariant in again] == [invariant.id for invariant in invariants]
    for fault in subject.faults.values():
        trace = fault.trace()
        assert check(trace, again).to_json() == check(trace, invariants).to_json()


def same_input_same_bytes(subject: Subject) -> None:
    """The same traces give the same file, whatever the order of references."""
    one, two = subject.healthy(0), subject.healthy(1)
    first = infer([one, two], relations=[subject.relation])
    assert dump_invariants(first) == dump_invariants(infer([one, two], relations=[subject.relation]))
    assert dump_invariants(first) == dump_invariants(infer([two, one], relations=[subject.relation]))
    assert [r.to_json() for r in first.rejected] == [
        r.to_json() for r in infer([one, two], relations=[subject.relation]).rejected
    ]


def words_are_useful(subject: Subject) -> None:
    """Descriptions name function, attribute and condition; every invariant says what it needs and why it may sleep."""
    invariants: Sequence[Invariant] = learned(subject).invariants
    told = "\n".join(relation(subject).describe(invariant) for invariant in invariants)
    for word in subject.speaks_of:
        assert word in told
    assert len({invariant.text_description for invariant in invariants}) == len(invariants)
    for invariant in invariants:
        needs = relation(subject).needs(invariant)
        assert needs.functions or needs.states
        for called, observed in ((0, 0), (1, 0), (1, 1)):
            assert relation(subject).dormant(invariant, called, observed)


def _judged(items: Sequence[Numbered], windows: Sequence[Window]) -> Judgement:
    judged, faults = judge(items, windows)
    assert not faults
    return judged


def same(one: Judgement, two: Judgement) -> None:
    """Equal counts (where anything was counted) and equal violations."""
    counted = pl.any_horizontal(pl.col("called", "observed", "applied", "violated") > 0)
    assert_frame_equal(one.counts.filter(counted), two.counts.filter(counted))
    assert_frame_equal(one.violations, two.violations)
