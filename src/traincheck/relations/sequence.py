"""Calls one after the other on a thread: whether between two calls of one function (the anchor) lies one of another.

This is all that FunctionLead and FunctionCover judge; they differ in which of their functions is the anchor and in
whether the first call of it is judged too. The arrays are here, the sentences in ``sequence_words``.

Any cut into windows gives the same: a call is judged in the window in which it ends, against the last call of the
anchor before it and against what ended between the two. Both travel in the carry, a few rows a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from traincheck.invariants import Clause, Group
from traincheck.preconditions import Mask, Records, holds
from traincheck.relations.base import MOST_VIOLATIONS, Judgement
from traincheck.relations.call_arrays import CallTable, CallValues, Tally, call_keys, captured, judgement, signature
from traincheck.relations.numbers import Array, Ints, Table, code, dense, find, member, stack, texts
from traincheck.relations.tables import Window

_SEQ_BITS: Final = 44
"""A ``seq`` needs fewer bits, so that one integer can hold a thread and a seq and is sorted by both."""

_FAR: Final = (1 << _SEQ_BITS) - 1
_THREAD_BITS: Final = 32


class Rule(NamedTuple):
    """Before each call of ``anchor`` that satisfies ``group``, since the one before it: a call of ``witness``."""

    number: int
    anchor: str
    witness: str
    group: Group | None
    first: bool
    """Whether the first call is judged too: the stretch before it begins with the trace."""


class _Stream(NamedTuple):
    """Calls of an anchor that satisfy a precondition; without one, all of them."""

    signature: str
    text: str


@dataclass(frozen=True)
class Program:
    """The rules, and what must be looked at for them."""

    rules: tuple[Rule, ...]
    streams: Mapping[_Stream, Group | None]
    of_rule: tuple[_Stream, ...]
    """The stream of each rule."""
    signatures: Mapping[str, int]
    anchors: frozenset[int]
    """Functions."""
    relevant: frozenset[int]
    """Functions of anchors and witnesses."""
    witnesses: tuple[str, ...]
    captured: frozenset[int]
    """Functions of which captures are needed."""

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> Program:
        """From the rules (the same in each window of a run)."""
        streams: dict[_Stream, Group | None] = {}
        of_rule = []
        for rule in rules:
            streams.setdefault(_Stream(rule.anchor, ""), None)
            mine = _Stream(rule.anchor, "" if rule.group is None else rule.group.model_dump_json())
            streams.setdefault(mine, rule.group)
            of_rule.append(mine)
        witnesses = tuple(sorted({rule.witness for rule in rules}))
        names = {*(stream.signature for stream in streams), *witnesses}
        anchors = frozenset(_function(stream.signature) for stream in streams)
        return cls(
            tuple(rules),
            streams,
            tuple(of_rule),
            {name: _number(name) for name in sorted(names)},
            anchors,
            anchors | frozenset(_function(name) for name in witnesses),
            witnesses,
            frozenset(_function(stream.signature) for stream, group in streams.items() if _asks(group)),
        )


@dataclass(frozen=True)
class SequenceCarry:
    """What spans windows."""

    program: Program
    open: Table | None = None
    """Calls that have not ended."""
    last: Table | None = None
    """Last call of each stream on each thread: stream, pair (process and thread), span, end."""
    witnesses: Table | None = None
    """Calls that may still lie in a stretch: signature, pair, begin, end."""
    captures: Table | None = None
    """What open calls were called with, where a precondition asks for it."""


@dataclass(frozen=True)
class Stretches:
    """Calls of a stream that ended in the window, and the stretch before each."""

    rows: Ints
    """The calls: rows of the window's table, by process and call."""
    thread: Ints
    """Number of the thread, over all processes."""
    low: Ints
    """Where the stretch begins: the end of the call before it, -1 when there is none."""
    high: Ints
    """Where it ends: the begin of the call."""
    whole: Mask
    """The call before it is known, and all in between was observed."""
    first: Mask
    """There is no call before it since the trace began."""

    def judged(self, rule: Rule) -> Mask:
        """Which of them the rule speaks of."""
        return self.whole | self.first if rule.first else self.whole


@dataclass(frozen=True)
class Walk:
    """The stretches of a window, and the calls that may lie in them."""

    tree: CallTable
    streams: Mapping[_Stream, Stretches]
    witnesses: Mapping[str, _Ends]
    """By signature."""

    def every(self, rule: Rule) -> Stretches:
        """The stretches that the rule speaks of, or would without its precondition."""
        return self.streams[_Stream(rule.anchor, "")]

    def kept(self, rule: Rule, stretches: Stretches) -> Mask:
        """Whether a whole call of the witness lies in each stretch."""
        found = self.witnesses.get(rule.witness)
        if found is None:
            return np.zeros(len(stretches.low), dtype=bool)
        thread = stretches.thread << _SEQ_BITS
        at = found.before(thread + stretches.high)
        return (at >= 0) & (found.latest[np.maximum(at, 0)] > thread + stretches.low)


@dataclass(frozen=True)
class _Ends:
    """Calls of one function in the order in which they ended. A key is a thread and a seq in one integer."""

    order: Ints
    """Their rows, …"""
    keys: Ints
    """… where they ended, …"""
    latest: Ints
    """… and the latest begin among those that had ended by then."""
    begins: Ints

    @classmethod
    def of(cls, thread: Ints, begin: Ints, end: Ints, rows: Ints) -> _Ends:
        """From calls, ``rows`` of some table."""
        ends, begins = (thread << _SEQ_BITS) + end, (thread << _SEQ_BITS) + begin
        order = np.argsort(ends, kind="stable")
        return cls(rows[order], ends[order], np.maximum.accumulate(begins[order]), begins[order])

    def before(self, keys: Ints) -> Ints:
        """Position of the last call that ended before each key, -1 for none."""
        return np.searchsorted(self.keys, keys, side="left") - 1


def walk(window: Window, carry: SequenceCarry) -> tuple[Walk, SequenceCarry]:
    """Lay out the window for the rules of a program."""
    program = carry.program
    tree = CallTable.of(window, carry.open)
    calls = tree.calls
    captures = captured(window.captures, program.captured)
    if carry.captures is not None:
        captures = stack([carry.captures, captures])
    pair = _pair(calls)
    outer, new = _ended(tree, pair, program.relevant)
    found = _witnesses(calls, pair, new, program, carry.witnesses)
    last = _NO_LAST if carry.last is None else carry.last
    threads = np.unique(np.concatenate([pair[outer], last["pair"], found["pair"]]))
    thread = find(threads, pair)
    streams: dict[_Stream, Stretches] = {}
    lasts = []
    for number, (stream, group) in enumerate(program.streams.items()):
        rows = outer[calls["signature"][outer] == program.signatures[stream.signature]]
        if group is not None and len(rows):
            rows = rows[holds(group, Records(len(rows), [CallValues(calls.take(rows), captures)]))]
        before = last.take(last["stream"] == number)
        streams[stream], after = _stretches(calls, rows, thread, before, threads)
        lasts.append(after.having(stream=np.full(after.height, number, dtype=np.int64)))
    ended: dict[str, _Ends] = {}
    at = find(threads, found["pair"])
    for name in program.witnesses:
        rows = np.flatnonzero(found["signature"] == program.signatures[name])
        if len(rows):
            ended[name] = _Ends.of(at[rows], found["begin"][rows], found["end"][rows], rows)
    begun = np.flatnonzero(~tree.new & member(calls["function"], program.anchors) & (thread >= 0))
    begins = (thread[begun] << _SEQ_BITS) + calls["begin_seq"][begun]
    return Walk(tree, streams, ended), SequenceCarry(
        program,
        tree.open,
        stack(lasts) if lasts else _NO_LAST,
        found.take(_reachable(ended, np.unique(at), begins)),
        captures.take(np.isin(call_keys(captures), call_keys(tree.open))),
    )


def evaluate(window: Window, carry: SequenceCarry) -> tuple[Judgement, SequenceCarry]:
    """Judge each call of an anchor in the window in which it ends."""
    laid, after = walk(window, carry)
    tally = Tally(laid.tree.calls)
    for rule, stream in zip(carry.program.rules, carry.program.of_rule, strict=True):
        stretches, every = laid.streams[stream], laid.every(rule)
        if not len(every.rows):
            continue
        judged = stretches.judged(rule)
        bad = np.flatnonzero(judged & ~laid.kept(rule, stretches))
        # How often the anchor was called, the stretch before it was observed whole, and the rule applied.
        tally.add(
            rule.number,
            called=every.rows,
            observed=every.rows[every.judged(rule)],
            applied=stretches.rows[judged],
            violated=stretches.rows[bad],
        )
        if len(bad):
            _evidence(tally, rule, stretches, bad[:MOST_VIOLATIONS], laid.tree)
    return judgement(tally), after


# --- laying out --------------------------------------------------------------------------------------------------

_NO_LAST: Final = Table({name: np.empty(0, dtype=np.int64) for name in ("pair", "end", "span", "stream")})


def _number(name: str) -> int:
    function, raised, exception = name.partition("\0")
    return signature(function, exception if raised else None)


def _function(name: str) -> int:
    return code(name.partition("\0")[0])


def _asks(group: Group | None) -> bool:
    return group is not None and any(
        isinstance(clause, Clause) and clause.prop_name.startswith("captures.")
        for conj in group.preconditions
        for clause in conj.clauses
    )


def _pair(calls: Table) -> Ints:
    """Process and thread in one number."""
    pair: Ints = calls["process"] << _THREAD_BITS | np.maximum(calls["thread"], 0)
    return pair


def _ended(tree: CallTable, pair: Ints, functions: frozenset[int]) -> tuple[Ints, Ints]:
    """Calls of these functions that ended, by thread and begin: outermost ones, and all.

    A call inside another call of the same function (``super().step()``) is part of it.
    """
    calls = tree.calls
    rows = np.flatnonzero(member(calls["function"], functions))
    rows = rows[np.lexsort((calls["begin_seq"][rows], pair[rows]))]
    group, _ = dense(pair[rows], calls["function"][rows])
    order = np.argsort(group, kind="stable")
    end = np.where(calls["end_seq"] >= 0, calls["end_seq"], _FAR)[rows[order]]
    until = np.maximum.accumulate(group[order] << _SEQ_BITS | end)
    begin = group[order] << _SEQ_BITS | calls["begin_seq"][rows[order]]
    outermost = np.ones(len(rows), dtype=np.bool_)
    outermost[order[1:]] = until[:-1] < begin[1:]
    new = calls["signature"][rows] >= 0
    return rows[outermost & new], rows[new]


def _witnesses(calls: Table, pair: Ints, new: Ints, program: Program, carried: Table | None) -> Table:
    wanted = [program.signatures[name] for name in program.witnesses]
    rows = new[member(calls["signature"][new], wanted)]
    columns: dict[str, Array] = {
        "signature": calls["signature"][rows],
        "pair": pair[rows],
        "begin": calls["begin_seq"][rows],
        "end": calls["end_seq"][rows],
    }
    found = Table(columns, len(rows))
    return found if carried is None else stack([carried, found])


def _stretches(calls: Table, rows: Ints, threads: Ints, last: Table, known: Ints) -> tuple[Stretches, Table]:
    """Stretches before the calls (by thread and begin), and the last call of each thread."""
    thread, end, span = threads[rows], calls["end_seq"][rows], calls["span"][rows]
    ends, spans = np.full(len(known), -1, dtype=np.int64), np.full(len(known), -1, dtype=np.int64)
    earlier = find(known, last["pair"])
    ends[earlier], spans[earlier] = last["end"], last["span"]
    low, low_span = ends[thread], spans[thread]
    follows = np.flatnonzero(thread[1:] == thread[:-1]) + 1
    low[follows], low_span[follows] = end[follows - 1], span[follows - 1]
    ends[thread], spans[thread] = end, span  # of several the last one stays
    whole, first = (low >= 0) & (span == low_span), (low < 0) & (span == 0)
    after = np.flatnonzero(ends >= 0)
    return (
        Stretches(rows, thread, low, calls["begin_seq"][rows], whole, first),
        Table({"pair": known[after], "end": ends[after], "span": spans[after]}, len(after)),
    )


def _reachable(ended: Mapping[str, _Ends], threads: Ints, begins: Ints) -> Ints:
    """Witnesses that can still be the latest in a stretch, one that ends where an open anchor began or a later one."""
    at = np.sort(np.concatenate([(threads << _SEQ_BITS) + _FAR, begins]))
    kept = [np.empty(0, dtype=np.int64)]
    for ends in ended.values():
        positions = np.arange(len(ends.order))
        holder = np.maximum.accumulate(np.where(ends.begins == ends.latest, positions, 0))
        place = ends.before(at)
        kept.append(np.unique(ends.order[holder[place[place >= 0]]]))
    return np.concatenate(kept)


def _evidence(tally: Tally, rule: Rule, stretches: Stretches, bad: Ints, tree: CallTable) -> None:
    """The anchor's call; ``other_variable`` is the function that is missing, ``other_seq`` where the stretch began."""
    rows = stretches.rows[bad]
    calls = tree.calls.take(rows)
    tally.evidence(
        rule.number,
        len(rows),
        **{name: calls[name] for name in ("process", "rank", "step", "call")},
        seq=calls["end_seq"],
        time_ns=calls["end_ns"],
        stage=texts(calls["stage"]),
        function=texts(calls["function"]),
        location=tree.locations(rows),
        other_variable=np.full(len(rows), rule.witness.partition("\0")[0], dtype=object),
        other_seq=stretches.low[bad],
    )
