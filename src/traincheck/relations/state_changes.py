"""What calls change: values of variables at the end and at the start of a call, as arrays.

At the end: the observation after the call. At the start: the observation before it, else the last one before the call,
in the same span of observation. A look at the state is never cut by a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from traincheck.relations import numbers
from traincheck.relations.call_arrays import CallValues, call_keys
from traincheck.relations.names import as_recorded
from traincheck.relations.numbers import KIND, MOMENT, Array, Ints, Mask, Table, code, dense, find
from traincheck.relations.values import Column

_COLUMNS: Final = (
    "process",
    "span",
    "seq",
    "time_ns",
    "observation",
    "call",
    "moment",
    "variable",
    "owner",
    "role",
    "variable_type",
    "attribute",
)
_ABSENT: Final = (KIND["missing"], KIND["error"], -1)
_OF_CALL: Final = (
    "rank",
    "thread",
    "signature",
    "function",
    "step",
    "stage",
    "location",
    "begin_seq",
    "exception",
    "meta",
)


def look(frame: pl.DataFrame, watched: Sequence[tuple[str, frozenset[int] | None, frozenset[int]]]) -> Table:
    """Rows of ``states`` that are watched: any of (column, its numbers or None for all, numbers of attributes).

    With ``obs_end``: ``seq`` of the last such row of the same observation.
    """
    states = numbers.table(frame, _COLUMNS)
    wanted = np.zeros(states.height, dtype=bool)
    for column, of, attributes in watched:
        mine = numbers.member(states["attribute"], attributes)
        wanted |= mine if of is None else mine & numbers.member(states[column], of)
    rows = np.flatnonzero(wanted)
    if len(rows) < states.height:
        states, frame = states.take(rows), frame[rows]
    states = states.having(**numbers.values(frame))
    looks, count = dense(states["process"], states["observation"])
    ends = np.zeros(count, dtype=np.int64)
    np.maximum.at(ends, looks, states["seq"])
    return states.having(obs_end=ends[looks])


class History:
    """Values by a number of what they are of, for finding the last one before a ``seq``."""

    def __init__(self, of: Ints, seq: Ints, rows: Ints) -> None:
        highest = int(seq.max()) + 2 if len(seq) else 2
        self._bits = highest.bit_length()
        key = of << self._bits | seq
        order = np.argsort(key, kind="stable")
        self._keys = key[order]
        self._rows = rows[order]

    def before(self, of: Ints, at: Ints) -> Ints:
        """Rows of the last values before ``at``, -1 where there is none."""
        if not len(self._keys):
            return np.full(len(of), -1, dtype=np.int64)
        at = np.minimum(at, (1 << self._bits) - 1)
        place = np.searchsorted(self._keys, of << self._bits | at) - 1
        known = (place >= 0) & (self._keys[np.maximum(place, 0)] >> self._bits == of)
        found: Ints = np.where(known, self._rows[np.maximum(place, 0)], -1)
        return found


@dataclass(frozen=True)
class Changes:
    """One row per (call, variable, attribute) whose value at the end is known, sorted by process and ``seq``.

    ``examples``: columns of the state row, of its call, ``at`` (the start, a ``seq``), ``var`` (number of the
    variable). ``after``, ``before``: values; ``changing``: rows of which both are known.
    """

    states: Table
    var: Ints
    examples: Table
    after: Column
    before: Column
    changing: Mask

    def take(self, rows: Array) -> Changes:
        """Some examples; the states stay."""
        return Changes(
            self.states, self.var, self.examples.take(rows), self.after[rows], self.before[rows], self.changing[rows]
        )


def column(table: Table) -> Column:
    """The values of a table."""
    return Column(table["kind"], table["number"], table["value"], table["key"])


def changes(states: Table, new: Ints, calls: Table) -> Changes:
    """What the calls change that ended, as far as the observation after them is among the rows ``new``.

    ``states``: of everything known so far, by process and ``seq``; ``calls``: sorted by process and call.
    """
    var, _ = dense(states["process"], states["span"], states["owner"], states["variable"])
    what, _ = dense(var, states["attribute"])
    absent = numbers.member(states["kind"], _ABSENT)
    of_call = call_keys(states)
    fresh = np.zeros(states.height, dtype=bool)
    fresh[new] = True
    after = np.flatnonzero(fresh & (states["moment"] == MOMENT["after"]) & (states["call"] > 0) & ~absent)
    call = find(call_keys(calls), of_call[after])
    known = (call >= 0) & (calls["signature"][call] >= 0) if calls.height else np.zeros(len(after), dtype=bool)
    after, call = after[known], call[known]
    # The value at the end is that of the last observation after the call.
    same, _ = dense(what[after], of_call[after]) if len(after) else (after, 0)
    _, reverse = np.unique(same[::-1], return_index=True)
    last = np.sort(len(after) - 1 - reverse)
    after, call = after[last], call[last]

    first = np.flatnonzero((states["moment"] == MOMENT["before"]) & (states["call"] > 0))
    at = _looked_before(states, what, of_call, first, after)
    at = np.where(at >= 0, at, calls["begin_seq"][call] if calls.height else at)
    history = History(what, states["seq"], np.arange(states.height))
    old = history.before(what[after], at)
    examples = states.take(after).having(at=at, var=var[after], **{name: calls[name][call] for name in _OF_CALL})
    now = column(examples)
    usable = now.known
    then = column(states).at(old)
    changing = (old >= 0) & then.known & ~numbers.member(then.kind, _ABSENT)
    found = Changes(states, var, examples, now, then, changing)
    return found if usable.all() else found.take(np.flatnonzero(usable))


def _looked_before(states: Table, what: Ints, of_call: Ints, first: Ints, after: Ints) -> Ints:
    """End of the look before the same call at the same thing, plus one; -1 where there was none."""
    if not len(first) or not len(after):
        return np.full(len(after), -1, dtype=np.int64)
    both, _ = dense(np.concatenate([what[first], what[after]]), np.concatenate([of_call[first], of_call[after]]))
    ends = np.full(int(both.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(ends, both[: len(first)], states["obs_end"][first] + 1)
    found: Ints = ends[both[len(first) :]]
    return found


class VariableValues:
    """Properties of variables at the start of a call: name, type, role, owner, ``attributes.<a>`` as last observed."""

    def __init__(self, found: Changes) -> None:
        self._found = found

    def __call__(self, prop: str) -> Column | None:
        """Column of a property, None when it is not one of a variable."""
        columns = {"var_name": "variable", "var_type": "variable_type", "role": "role", "owner": "owner"}
        examples = self._found.examples
        if prop in columns:
            return Column.of_codes(examples[columns[prop]])
        if not prop.startswith("attributes."):
            return None
        states = self._found.states
        mine = np.flatnonzero(states["attribute"] == code(as_recorded(prop.removeprefix("attributes."))))
        if not len(mine):
            return None
        rows = History(self._found.var[mine], states["seq"][mine], mine).before(examples["var"], examples["at"])
        return column(states).at(rows)


class CallAndOptimizerValues:
    """Properties of calls; ``optimizer.<option>``: the largest value in any optimizer group when the call began."""

    def __init__(self, found: Changes, captures: Table) -> None:
        self._found = found
        self._call = CallValues(found.examples, captures)

    def __call__(self, prop: str) -> Column | None:
        """Column of a property, None when it is neither, or was observed of no group."""
        if not prop.startswith("optimizer."):
            return self._call(prop)
        states, examples = self._found.states, self._found.examples
        option = states["attribute"] == code(prop.removeprefix("optimizer."))
        mine = np.flatnonzero(option & (states["role"] == code("optimizer_group")))
        if not len(mine):
            return None
        place, _ = dense(
            np.concatenate([states["process"][mine], examples["process"]]),
            np.concatenate([states["span"][mine], examples["span"]]),
        )
        here, there = place[: len(mine)], place[len(mine) :]
        groups, count = dense(states["owner"][mine], states["variable"][mine])
        largest = np.full(examples.height, np.nan)
        for group in range(count):
            of = groups == group
            rows = History(here[of], states["seq"][mine[of]], mine[of]).before(there, examples["at"])
            largest = np.fmax(largest, np.where(rows >= 0, states["number"][rows], np.nan))
        return _of_floats(largest)


def _of_floats(found: Array) -> Column:
    lost = np.isnan(found)
    text = np.full(len(found), None, dtype=object)
    text[~lost] = [repr(value) for value in found[~lost].tolist()]
    return Column(np.where(lost, KIND["missing"], KIND["float"]).astype(np.int64), found, text, text)
