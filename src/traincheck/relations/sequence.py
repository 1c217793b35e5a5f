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
import numpy.typing as npt
import polars as pl

from traincheck.invariants import Clause, Group
from traincheck.preconditions import Mask, Records, holds
from traincheck.relations.base import COUNTS, MOST_VIOLATIONS, VIOLATIONS, Judgement, fit
from traincheck.relations.calltree import CallSource, Ints, slim
from traincheck.relations.tables import Window

_FAR: Final = 2**63 - 1
_SEQ_BITS: Final = 44
"""A ``seq`` needs fewer bits, so that one integer can hold a thread and a seq and is sorted by both."""


class Rule(NamedTuple):
    """Before each call of ``anchor`` that satisfies ``group``, since the one before it: a call of ``witness``."""

    number: int
    anchor: str
    witness: str
    group: Group | None
    first: bool
    """Whether the first call is judged too: the stretch before it begins with the trace."""


@dataclass(frozen=True)
class SequenceCarry:
    """What spans windows."""

    open: pl.DataFrame
    """Calls that have not ended."""
    last: pl.DataFrame
    """Last call of each stream on each thread: stream, process, thread, span, end."""
    witnesses: pl.DataFrame
    """Calls that may still lie in a stretch: signature, process, thread, begin, end."""
    captures: pl.DataFrame
    """What open calls were called with, where a precondition asks for it."""


class _Stream(NamedTuple):
    """Calls of an anchor that satisfy a precondition; without one, all of them."""

    signature: str
    text: str


@dataclass(frozen=True)
class Stretches:
    """Calls of a stream that ended in the window, and the stretch before each."""

    calls: pl.DataFrame
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

    streams: Mapping[_Stream, Stretches]
    witnesses: Mapping[str, _Ends]
    """By signature."""

    def of(self, rule: Rule) -> Stretches | None:
        """The stretches that the rule speaks of."""
        return self.streams.get(_stream(rule))

    def every(self, rule: Rule) -> Stretches | None:
        """The stretches that it would speak of without its precondition."""
        return self.streams.get(_Stream(rule.anchor, ""))

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
    def of(cls, rows: pl.DataFrame) -> _Ends:
        """From calls with ``_thread``, ``begin``, ``end``."""
        thread = rows["_thread"].to_numpy() << _SEQ_BITS
        ends, begins = thread + rows["end"].to_numpy(), thread + rows["begin"].to_numpy()
        order = np.argsort(ends, kind="stable")
        return cls(order, ends[order], np.maximum.accumulate(begins[order]), begins[order])

    def before(self, keys: Ints) -> Ints:
        """Position of the last call that ended before each key, -1 for none."""
        return np.searchsorted(self.keys, keys, side="left") - 1


def walk(todo: Sequence[Rule], window: Window, carry: SequenceCarry | None) -> tuple[Walk, SequenceCarry]:
    """Lay out the window for these rules (the same in each window of a run)."""
    streams = _streams(todo)
    calls = _calls(window, carry)
    anchors = {stream.signature.partition("\0")[0] for stream in streams}
    witnesses = sorted({rule.witness for rule in todo})
    relevant = anchors | {name.partition("\0")[0] for name in witnesses}
    table = calls.filter(pl.col("function").is_in(sorted(relevant))).sort("process", "thread", "begin_seq")
    table = table.with_columns(
        pl.col("end_seq").fill_null(_FAR).cum_max().shift(1).over("process", "thread", "function").alias("_until")
    )
    captures = _captures(streams, window, carry)
    new = table.filter(pl.col("end_seq").is_not_null(), pl.col("signature").is_not_null())
    # A call inside another call of the same function (super().step()) is part of it.
    outer = new.filter(pl.col("_until").is_null() | (pl.col("_until") < pl.col("begin_seq")))
    found = _witnesses(new, witnesses, carry)
    last = pl.DataFrame(schema=_LAST) if carry is None else carry.last
    numbers = pl.concat([frame.select(_THREAD) for frame in (outer, last, found)]).unique().sort(_THREAD)
    numbers = numbers.with_row_index("_thread").with_columns(pl.col("_thread").cast(pl.Int64))
    outer, last, found = (
        frame.join(numbers, on=_THREAD, how="left", maintain_order="left") for frame in (outer, last, found)
    )
    result: dict[_Stream, Stretches] = {}
    lasts = []
    for number, (stream, group) in enumerate(streams.items()):
        mine = outer.filter(pl.col("signature") == stream.signature)
        if group is not None and mine.height:
            mine = mine.filter(pl.Series(holds(group, Records(mine.height, [CallSource(mine, captures)]))))
        result[stream], ends = _stretches(mine, last.filter(pl.col("stream") == number), numbers)
        lasts.append(ends.with_columns(pl.lit(number, dtype=pl.Int64).alias("stream")))
    ended = {str(name): _Ends.of(rows) for (name,), rows in found.group_by(["signature"], maintain_order=True)}
    still = calls.filter(pl.col("end_seq").is_null())
    begun = still.filter(pl.col("function").is_in(sorted(anchors))).join(numbers, on=_THREAD, how="inner")
    later = captures.join(still.select("process", "call"), on=["process", "call"], how="semi", maintain_order="left")
    return Walk(result, ended), SequenceCarry(
        still.drop("signature"),
        fit(pl.concat(lasts), _LAST) if lasts else pl.DataFrame(schema=_LAST),
        _prune(found, ended, begun),
        later,
    )


def evaluate(todo: Sequence[Rule], window: Window, carry: SequenceCarry | None) -> tuple[Judgement, SequenceCarry]:
    """Judge each call of an anchor in the window in which it ends."""
    laid, after = walk(todo, window, carry)
    counts: list[pl.DataFrame] = []
    violations: list[pl.DataFrame] = []
    alike: dict[tuple[_Stream, bool], list[Rule]] = {}
    for rule in todo:
        alike.setdefault((_stream(rule), rule.first), []).append(rule)
    tree: pl.DataFrame | None = None
    for rules in alike.values():
        stretches, every = laid.of(rules[0]), laid.every(rules[0])
        if every is None or stretches is None or not every.calls.height:
            continue
        judged = stretches.judged(rules[0])
        counts += _counts(rules, every, stretches, judged)
        for rule in rules:
            bad = np.flatnonzero(judged & ~laid.kept(rule, stretches))
            if not len(bad):
                continue
            counts.append(_broken(rule, stretches.calls[bad]))
            if tree is None:
                tree = _tree(window, carry)
            violations.append(_evidence(rule, stretches, bad[:MOST_VIOLATIONS], tree))
    return Judgement(
        pl.concat(counts) if counts else pl.DataFrame(schema=COUNTS),
        pl.concat(violations) if violations else pl.DataFrame(schema=VIOLATIONS),
    ), after


# --- laying out --------------------------------------------------------------------------------------------------

_THREAD: Final = ["process", "thread"]
_LAST: Final = pl.Schema(
    {"stream": pl.Int64(), "process": pl.UInt32(), "thread": pl.UInt32(), "span": pl.Int64(), "end": pl.Int64()}
)
_WITNESS: Final = pl.Schema(
    {
        "signature": pl.String(),
        "process": pl.UInt32(),
        "thread": pl.UInt32(),
        "begin": pl.Int64(),
        "end": pl.Int64(),
    }
)


def _stream(rule: Rule) -> _Stream:
    return _Stream(rule.anchor, "" if rule.group is None else rule.group.model_dump_json())


def _streams(todo: Sequence[Rule]) -> dict[_Stream, Group | None]:
    streams: dict[_Stream, Group | None] = {}
    for rule in todo:
        streams.setdefault(_Stream(rule.anchor, ""), None)
        streams.setdefault(_stream(rule), rule.group)
    return streams


def _calls(window: Window, carry: SequenceCarry | None) -> pl.DataFrame:
    """Calls of the window as they are known at its end, with those that were open when it began."""
    calls = window.calls.with_columns(
        pl.when("ended").then(pl.col("outcome").cast(pl.String)).otherwise(pl.lit("open")).alias("outcome"),
        pl.when("ended").then("end_seq").otherwise(None).alias("end_seq"),
    )
    table = slim_with_begin(calls)
    if carry is not None and carry.open.height:
        earlier = carry.open.join(table.select("process", "call"), on=["process", "call"], how="anti")
        table = pl.concat([earlier.with_columns(pl.lit(None, dtype=pl.String).alias("signature")), table])
    return table


def slim_with_begin(calls: pl.DataFrame) -> pl.DataFrame:
    """``slim`` with seqs as signed integers, so that -1 and differences are possible."""
    return slim(calls).with_columns(
        pl.col("begin_seq", "end_seq").cast(pl.Int64), pl.col("thread").cast(pl.UInt32).fill_null(0)
    )


def _captures(streams: Mapping[_Stream, Group | None], window: Window, carry: SequenceCarry | None) -> pl.DataFrame:
    asking = sorted({stream.signature.partition("\0")[0] for stream, group in streams.items() if _asks(group)})
    captures = window.captures.filter(pl.col("function").cast(pl.String).is_in(asking)) if asking else None
    if captures is None:
        return window.captures.clear()
    return captures if carry is None else pl.concat([carry.captures, captures])


def _asks(group: Group | None) -> bool:
    return group is not None and any(
        isinstance(clause, Clause) and clause.prop_name.startswith("captures.")
        for conj in group.preconditions
        for clause in conj.clauses
    )


def _witnesses(new: pl.DataFrame, names: Sequence[str], carry: SequenceCarry | None) -> pl.DataFrame:
    found = fit(
        new.filter(pl.col("signature").is_in(list(names))).rename({"begin_seq": "begin", "end_seq": "end"}), _WITNESS
    )
    return found if carry is None else pl.concat([carry.witnesses, found])


def _stretches(mine: pl.DataFrame, last: pl.DataFrame, numbers: pl.DataFrame) -> tuple[Stretches, pl.DataFrame]:
    """Stretches before the calls (sorted by thread and begin), and the last call of each thread."""
    thread, end, span = (mine[name].to_numpy() for name in ("_thread", "end_seq", "span"))
    ends, spans = np.full(numbers.height, -1, dtype=np.int64), np.full(numbers.height, -1, dtype=np.int64)
    ends[last["_thread"].to_numpy()] = last["end"].to_numpy()
    spans[last["_thread"].to_numpy()] = last["span"].to_numpy()
    low, low_span = ends[thread], spans[thread]
    follows = np.flatnonzero(thread[1:] == thread[:-1]) + 1
    low[follows], low_span[follows] = end[follows - 1], span[follows - 1]
    ends[thread], spans[thread] = end, span  # of several the last one stays
    stretches = Stretches(
        mine, thread, low, mine["begin_seq"].to_numpy(), (low >= 0) & (span == low_span), (low < 0) & (span == 0)
    )
    after = numbers.with_columns(pl.Series("end", ends), pl.Series("span", spans)).filter(pl.col("end") >= 0)
    return stretches, after


def _prune(found: pl.DataFrame, ended: Mapping[str, _Ends], begun: pl.DataFrame) -> pl.DataFrame:
    """Witnesses that can still be the latest in a stretch, one that ends where an open anchor began or a later one."""
    if not found.height:
        return fit(found, _WITNESS)
    now = (found["_thread"].unique().to_numpy() << _SEQ_BITS) + (1 << _SEQ_BITS) - 1
    at = np.sort(np.concatenate([now, (begun["_thread"].to_numpy() << _SEQ_BITS) + begun["begin_seq"].to_numpy()]))
    kept = []
    for (name,), mine in found.group_by(["signature"], maintain_order=True):
        ends = ended[str(name)]
        positions = np.arange(len(ends.order))
        holder = np.maximum.accumulate(np.where(ends.begins == ends.latest, positions, 0))
        place = ends.before(at)
        kept.append(mine[np.unique(ends.order[holder[place[place >= 0]]])])
    return fit(pl.concat(kept).sort("signature", "process", "thread", "end"), _WITNESS)


# --- counting ----------------------------------------------------------------------------------------------------

_PLACE: Final = ("process", "rank", "step")


def _counts(rules: Sequence[Rule], every: Stretches, mine: Stretches, judged: Mask) -> list[pl.DataFrame]:
    """How often the anchor was called, the stretch before it was observed whole, and the rule applied."""
    numbers = pl.DataFrame({"invariant": [rule.number for rule in rules]})
    called = every.calls.select(*_PLACE).with_columns(
        pl.lit(1, dtype=pl.Int64).alias("called"),
        pl.Series("observed", every.judged(rules[0])).cast(pl.Int64),
        pl.lit(0, dtype=pl.Int64).alias("applied"),
    )
    applied = mine.calls.select(*_PLACE).with_columns(
        pl.lit(0, dtype=pl.Int64).alias("called"),
        pl.lit(0, dtype=pl.Int64).alias("observed"),
        pl.Series("applied", judged).cast(pl.Int64),
    )
    total = (
        pl.concat([called, applied])
        .group_by(_PLACE)
        .agg(pl.col("called", "observed", "applied").sum(), pl.lit(0, dtype=pl.Int64).alias("violated"))
    )
    return [fit(numbers.join(total, how="cross"), COUNTS)]


def _broken(rule: Rule, calls: pl.DataFrame) -> pl.DataFrame:
    zero = [pl.lit(0, dtype=pl.Int64).alias(name) for name in ("called", "observed", "applied")]
    grouped = calls.group_by(_PLACE).agg(pl.len().cast(pl.Int64).alias("violated"))
    return fit(grouped.with_columns(pl.lit(rule.number).alias("invariant"), *zero), COUNTS)


def _evidence(rule: Rule, stretches: Stretches, rows: npt.NDArray[np.int64], tree: pl.DataFrame) -> pl.DataFrame:
    """The anchor's call; ``other_variable`` is the function that is missing, ``other_seq`` where the stretch began."""
    low = pl.Series("other_seq", stretches.low[rows], dtype=pl.Int64)
    calls = _located(stretches.calls[rows], tree)
    frame = calls.with_columns(
        pl.lit(rule.number).alias("invariant"),
        pl.col("end_seq").alias("seq"),
        pl.col("end_ns").alias("time_ns"),
        pl.lit(rule.witness.partition("\0")[0]).alias("other_variable"),
        low,
    ).with_columns(pl.when(pl.col("other_seq") >= 0).then("other_seq").otherwise(None).alias("other_seq"))
    return fit(frame, VIOLATIONS)


def _tree(window: Window, carry: SequenceCarry | None) -> pl.DataFrame:
    """Who called whom, from where: of all calls that the window knows."""
    columns = ("process", "call", "parent", "location")
    frames = [window.calls.select(columns)]
    if carry is not None:
        frames.append(carry.open.select(columns))
    return pl.concat(frames).unique(["process", "call"], keep="first")


def _located(calls: pl.DataFrame, tree: pl.DataFrame) -> pl.DataFrame:
    """With the location of the nearest ancestor where a call has none of its own."""
    found = calls.select("process", pl.col("parent").alias("_up"), "location")
    for _ in range(1000):
        if not found.filter(pl.col("location").is_null(), pl.col("_up") > 0).height:
            break
        above = tree.rename({"call": "_up", "parent": "_next", "location": "_place"})
        found = found.join(above, on=["process", "_up"], how="left", maintain_order="left").select(
            "process",
            pl.when(pl.col("location").is_null()).then(pl.col("_next").fill_null(0)).otherwise("_up").alias("_up"),
            pl.coalesce("location", "_place").alias("location"),
        )
    return calls.with_columns(found["location"])
