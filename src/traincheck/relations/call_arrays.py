"""The calls of a window as arrays: who is inside whom, what they are, and what was captured of them.

What ``calltree`` says as frames (for learning over whole runs), this says as numpy arrays (for windows, which are small
and many). Calls that were open when the window began are in the table too; those still open have ``end_seq`` -1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl

from traincheck.relations import numbers
from traincheck.relations.base import COUNTS, VIOLATIONS, Judgement
from traincheck.relations.numbers import OUTCOME, SIDE, Array, Ints, Mask, Table, code, dense, find, stack
from traincheck.relations.tables import Window
from traincheck.relations.values import Column

_COLUMNS: Final = (
    "process",
    "rank",
    "thread",
    "call",
    "parent",
    "function",
    "begin_seq",
    "end_seq",
    "end_ns",
    "outcome",
    "exception",
    "step",
    "stage",
    "span",
)
_CAPTURED: Final = ("process", "call", "seq", "moment", "name", "path", "type")
_EXCEPTION: Final = 32


def signature(function: str, exception: str | None) -> int:
    """What an API parameter is matched by: the function if the call returned, with the exception if it raised."""
    return code(function) if exception is None else code(function) | (code(exception) + 1) << _EXCEPTION


def call_keys(table: Table) -> Ints:
    """One number per call of the run; grows with process and call."""
    key: Ints = table["process"] << 44 | table["call"]
    return key


@dataclass(frozen=True)
class CallTable:
    """Calls sorted by process and call, with ``signature`` (-1 while open). ``parents``: rows, -1 none.

    ``new``: those that ended in this window.
    """

    calls: Table
    parents: Ints
    new: Mask

    @classmethod
    def of(cls, window: Window, still_open: Table | None) -> CallTable:
        """From a window and the calls that were open when it began. What ends later is open here."""
        calls = _table(window.calls)
        if still_open is not None and still_open.height:
            again = np.isin(call_keys(still_open), call_keys(calls))
            calls = stack([still_open.take(~again), calls])
        key = call_keys(calls)
        if len(key) and (np.diff(key) <= 0).any():
            order = np.argsort(key, kind="stable")
            calls, key = calls.take(order), key[order]
        parents = find(key, calls["process"] << 44 | calls["parent"])
        return cls(calls, parents, calls["end_seq"] >= 0)

    @property
    def open(self) -> Table:
        """Calls that go on after the window."""
        return self.calls.take(~self.new)

    def locations(self, rows: Ints) -> Array:
        """Location of each of these calls: its own, else that of its nearest ancestor that has one."""
        known = self.calls["location"] != None  # noqa: E711 - of each element
        at = rows.copy()
        for _ in range(1000):
            lost = (at >= 0) & ~known[at]
            if not lost.any():
                break
            at = np.where(lost, self.parents[at], at)
        found: Array = self.calls["location"][at]
        found[at < 0] = None
        return found

    def ancestors(self, rows: Ints) -> Iterator[tuple[Ints, Ints]]:
        """(ancestor row, place in ``rows``), one level of ancestry at a time."""
        places = np.arange(len(rows))
        above = self.parents[rows]
        for _ in range(100_000):  # a damaged trace may hold a circle
            inside = above >= 0
            if not inside.any():
                return
            places, above = places[inside], above[inside]
            yield above, places
            above = self.parents[above]


def _table(frame: pl.DataFrame) -> Table:
    found = numbers.table(frame, (*_COLUMNS, "ended"))
    ended = found["ended"] == 1
    outcome = np.where(ended, found["outcome"], OUTCOME["open"])
    named = np.where(outcome == OUTCOME["returned"], found["function"], -1)
    exception = np.where(found["exception"] < 0, code(""), found["exception"])
    raised = found["function"] | (exception + 1) << _EXCEPTION
    columns = {name: found[name] for name in _COLUMNS}
    columns["outcome"] = outcome
    columns["end_seq"] = np.where(ended, found["end_seq"], -1)
    columns["signature"] = np.where(outcome == OUTCOME["raised"], raised, named)
    columns["location"] = numbers.objects(frame["location"])
    columns["meta"] = numbers.objects(frame["meta"])
    return Table(columns, frame.height)


def captured(frame: pl.DataFrame, functions: Iterable[int]) -> Table:
    """What was captured of calls of these functions (their numbers)."""
    wanted = sorted(set(functions))
    if not wanted or not frame.height:
        return _NOTHING
    of = numbers.table(frame, ("function",))["function"]
    frame = frame[np.flatnonzero(numbers.member(of, wanted))]
    return Table({**numbers.table(frame, _CAPTURED).columns, **numbers.values(frame)}, frame.height)


_NOTHING: Final = Table(
    {
        **{name: np.empty(0, dtype=np.int64) for name in (*_CAPTURED, "kind")},
        "number": np.empty(0),
        **{name: np.empty(0, dtype=object) for name in ("value", "key")},
    }
)


class CallValues:
    """Properties of calls: stage, step, process, exception, ``captures.<path>`` (``….@type``: the type of objects)."""

    def __init__(self, calls: Table, captures: Table) -> None:
        self._calls = calls
        self._captures = captures

    def __call__(self, prop: str) -> Column | None:
        """Column of a property, None when it is not one of a call."""
        calls = self._calls
        plain = {"function": "function", "exception": "exception", "meta_vars.stage": "stage"}
        if prop in plain:
            return Column.of_codes(calls[plain[prop]])
        if prop == "meta_vars.step":
            return Column.of_numbers(calls["step"])
        identities = {"rank": "rank", "process_id": "process", "thread_id": "thread"}
        if prop in identities:
            return Column.of_numbers(calls[identities[prop]], identity=True)
        if prop.startswith("meta_vars."):
            return context(calls["meta"], prop.removeprefix("meta_vars."))
        if prop.startswith("captures."):
            path, _, aspect = prop.removeprefix("captures.").partition("@")
            return argument(calls, self._captures, path, of_type=aspect == "type")
        return None


def context(meta: Array, name: str) -> Column | None:
    """A key of the JSON objects that imported traces keep as context; None when no call has it."""
    known: dict[str, Any] = {}
    found = np.full(len(meta), None, dtype=object)
    for row, text in enumerate(meta):
        if text is not None:
            if text not in known:
                value = json.loads(text).get(name)
                known[text] = None if value is None else value if isinstance(value, str) else json.dumps(value)
            found[row] = known[text]
    return None if all(text is None for text in found) else Column.of_texts(found)


def argument(calls: Table, captures: Table, path: str, of_type: bool = False) -> Column | None:
    """What was captured under a path or parameter name when the calls began; None when nothing was, of any."""
    mine = (captures["moment"] == SIDE["in"]) & ((captures["name"] == code(path)) | (captures["path"] == code(path)))
    if not mine.any():
        return None
    rows = captures.take(mine)
    key, first = np.unique(call_keys(rows), return_index=True)
    at = find(key, call_keys(calls))
    rows = rows.take(first)
    if of_type:
        return Column.of_codes(np.where(at >= 0, rows["type"][at], -1))
    return Column(rows["kind"], rows["number"], rows["value"], rows["key"]).at(at)


class Tally:
    """Counts and violations while they are found, over a table of calls or the like (process, rank, step)."""

    def __init__(self, table: Table) -> None:
        self._places, self._size = dense(table["process"], table["step"])
        first = np.zeros(self._size, dtype=np.int64)
        first[self._places[::-1]] = np.arange(table.height)[::-1]
        self._where = {name: table[name][first] if table.height else first[:0] for name in ("process", "rank", "step")}
        self._numbers: list[int] = []
        self._counts: list[Ints] = []
        self._violations: list[dict[str, Array]] = []

    def add(self, number: int, **counted: Ints) -> None:
        """Rows of the table to count for an invariant as ``called``, ``observed``, ``applied``, ``violated``."""
        counts = np.zeros((len(_COUNTED), self._size), dtype=np.int64)
        for at, name in enumerate(_COUNTED):
            if name in counted:
                counts[at] = np.bincount(self._places[counted[name]], minlength=self._size)
        self._numbers.append(number)
        self._counts.append(counts)

    def evidence(self, number: int, height: int, **columns: Array) -> None:
        """One row a failed application; columns as in ``VIOLATIONS`` (texts as objects, -1 is null)."""
        self._violations.append({"invariant": np.full(height, number, dtype=np.int64), **columns})

    def counts(self) -> dict[str, Array] | None:
        """The counts that are not all zero, as columns; None when there are none."""
        if not self._counts:
            return None
        counts = np.stack(self._counts)  # invariant, what, place
        rule, place = np.nonzero(counts.any(axis=1))
        return {
            "invariant": np.array(self._numbers, dtype=np.int64)[rule],
            **{name: self._where[name][place] for name in ("process", "rank", "step")},
            **{name: counts[rule, at, place] for at, name in enumerate(_COUNTED)},
        }

    @property
    def violations(self) -> list[dict[str, Array]]:
        """All evidence."""
        return self._violations


def judgement(*tallies: Tally) -> Judgement:
    """What was found, as frames."""
    counted = [counts for tally in tallies if (counts := tally.counts()) is not None]
    found = Judgement()
    if counted:
        columns = {name: np.concatenate([part[name] for part in counted]) for name in COUNTS}
        found = replace(found, counts=pl.DataFrame([_series(columns, name, dtype) for name, dtype in COUNTS.items()]))
    violations = [part for tally in tallies for part in tally.violations]
    if violations:
        found = replace(found, violations=_frame(violations, VIOLATIONS))
    return found


_COUNTED: Final = ("called", "observed", "applied", "violated")


def _frame(parts: list[dict[str, Array]], wanted: pl.Schema) -> pl.DataFrame:
    return pl.concat([pl.DataFrame([_series(part, name, dtype) for name, dtype in wanted.items()]) for part in parts])


_SIGNED: Final = {pl.UInt32(): np.uint32, pl.UInt64(): np.uint64, pl.Int32(): np.int32, pl.Int64(): np.int64}


def _series(part: dict[str, Array], name: str, dtype: Any) -> pl.Series:
    column = part.get(name)
    if column is None:
        return pl.Series(name, [None] * len(part["invariant"]), dtype=dtype)
    if column.dtype == object:
        return pl.Series(name, column.tolist(), dtype=dtype)
    if len(column) and column.min() < 0:
        return pl.Series(name, [value if value >= 0 else None for value in column.tolist()], dtype=dtype)
    return pl.Series(name, column.astype(_SIGNED[dtype]))
