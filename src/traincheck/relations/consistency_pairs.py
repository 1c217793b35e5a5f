"""Pairs of variables seen at one place of the run, as arrays: what ConsistencyRelation compares.

A place is a step, reason and moment, and the number of such observations before in the step. Texts are numbers, as in
``numbers``; owners and reasons that were not recorded are the empty text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from traincheck.relations import numbers
from traincheck.relations.call_arrays import context
from traincheck.relations.names import as_recorded
from traincheck.relations.numbers import Array, Ints, Mask, Table, code, dense, packed, stack, text
from traincheck.relations.state_changes import History, column
from traincheck.relations.values import Column
from traincheck.trace import schema

PLACE: Final = ("step", "reason", "moment", "number")
NAMES: Final[Mapping[str, str]] = {
    "var_name": "variable",
    "var_type": "variable_type",
    "owner": "owner",
    "role": "role",
}
"""Properties that say which variable it is, and their columns."""

OBSERVATION: Final = "observation."
"""Properties of the observation begin so."""

_COLUMNS: Final = (
    "process",
    "rank",
    "seq",
    "time_ns",
    "observation",
    "call",
    "step",
    "stage",
    "reason",
    "moment",
    "function",
    "variable",
    "owner",
    "role",
    "variable_type",
    "attribute",
)
_LAST_RANK: Final = 2**31 - 1

Looks = Mapping[tuple[int, int, int, int], int]
"""(process, step, reason, moment) -> observations so far."""


def rows_of(frame: pl.DataFrame) -> Table:
    """Rows of ``states`` as arrays, with ``kind``, ``number``, ``value``, ``key`` and ``meta``."""
    rows = numbers.table(frame, _COLUMNS)
    filled = {name: np.where(rows[name] < 0, code(""), rows[name]) for name in ("owner", "reason")}
    return rows.having(**filled, **numbers.values(frame), meta=numbers.objects(frame["meta"]))


def numbered(rows: Table, before: Looks) -> tuple[Table, Looks]:
    """With ``number``: how many observations of the same reason and moment the process made before in the step."""
    by = [rows[name] for name in ("process", "step", "reason", "moment")]
    place, count = dense(*by)
    looks, first, of = np.unique(packed(place, rows["observation"]), return_index=True, return_inverse=True)
    at = place[first]
    start = np.searchsorted(at, np.arange(count))
    number = np.arange(len(looks)) - start[at]
    known = dict(before)
    if rows.height:
        keys = list(zip(*(column[first[start]].tolist() for column in by), strict=True))
        number += np.array([known.get(key, 0) for key in keys], dtype=np.int64)[at]
        made = np.diff(start, append=len(looks)).tolist()
        known.update({key: known.get(key, 0) + more for key, more in zip(keys, made, strict=True)})
    newest: dict[int, int] = {}
    for process, step, _, _ in known:
        newest[process] = max(newest.get(process, step), step)
    left = {key: seen for key, seen in known.items() if key[1] >= newest[key[0]] - 1}
    return rows.having(number=number[of]), left


@dataclass(frozen=True)
class Pairs:
    """Rows ``left`` and ``right`` of a table, of variables that are alive together."""

    rows: Table
    left: Ints
    right: Ints

    def __len__(self) -> int:
        return len(self.left)

    def take(self, which: Array) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.rows, self.left[which], self.right[which])

    def in_order(self) -> Pairs:
        """By step, process and seq of the one, process and seq of the other."""
        rows = self.rows
        keys = [rows[name][self.right] for name in ("seq", "process")]
        keys += [rows[name][self.left] for name in ("seq", "process", "step")]
        return self.take(np.lexsort(keys))

    @property
    def equal(self) -> Mask:
        """Which have the same value."""
        key = self.rows["key"]
        return np.asarray(key[self.left] == key[self.right], dtype=np.bool_)


def places(rows: Table, equal: Sequence[str]) -> tuple[Ints, int]:
    """A number for each row, the same for rows at one place that are equal in these columns, too; how many numbers."""
    return dense(*(rows[name] for name in dict.fromkeys((*PLACE, *equal))))


def pairs_of(rows: Table, new: Mask, left: Mask, right: Mask, at: tuple[Ints, int], same: bool) -> Pairs:
    """Pairs of rows at one place (``at``), of different variables, at least one of them new; each pair once.

    ``same``: ``left`` and ``right`` are the same rows. Then the variable on the lower rank comes first, and the pair
    counts as that rank's. Numbers of processes say nothing: they are given in the order in which processes happened to
    begin.
    """
    place, count = at
    fresh = np.zeros(count, dtype=np.bool_)
    fresh[place[new & (left | right)]] = True
    one, two = (np.flatnonzero(side & fresh[place]) for side in (left, right))
    two = two[np.argsort(place[two], kind="stable")]
    low, high = (np.searchsorted(place[two], place[one], side) for side in ("left", "right"))
    many = high - low
    first = np.repeat(one, many)
    second = two[np.repeat(low - np.cumsum(many) + many, many) + np.arange(len(first))]
    keep = new[first] | new[second]
    if same:
        keep &= _before(rows, first, second)
    else:
        names = ("process", "owner", "variable")
        keep &= np.logical_or.reduce([rows[name][first] != rows[name][second] for name in names])
    return Pairs(rows, first[keep], second[keep])


def _before(rows: Table, one: Ints, two: Ints) -> Mask:
    """Which rows come before others: by rank, process, owner and name."""
    rank = np.where(rows["rank"] < 0, _LAST_RANK, rows["rank"])
    order: Mask = rank[one] < rank[two]
    tied = np.flatnonzero(rank[one] == rank[two])
    process = rows["process"]
    order[tied] = process[one[tied]] < process[two[tied]]
    tied = tied[process[one[tied]] == process[two[tied]]]
    if len(tied):  # within a process
        owner, variable = alphabetical(rows["owner"]), alphabetical(rows["variable"])
        one, two = one[tied], two[tied]
        order[tied] = (owner[one] < owner[two]) | ((owner[one] == owner[two]) & (variable[one] < variable[two]))
    return order


def alphabetical(codes: Ints) -> Ints:
    """Numbers that grow with the texts."""
    known, place = np.unique(codes, return_inverse=True)
    order = np.argsort(np.array([text(int(number)) or "" for number in known], dtype=object), kind="stable")
    ranks = np.empty(len(known), dtype=np.int64)
    ranks[order] = np.arange(len(known))
    found: Ints = ranks[place]
    return found


class PairValues:
    """Properties of one side of pairs; ``attributes.<a>`` from ``facts``, as last observed when the side was seen."""

    def __init__(self, pairs: Pairs, side: Ints, facts: Table) -> None:
        self._pairs = pairs
        self._side = side
        self._facts = facts

    def __call__(self, prop: str) -> Column | None:
        """Column of a property, None when it is not one of a variable."""
        rows, side, left = self._pairs.rows, self._side, self._pairs.left
        if prop in NAMES:
            return Column.of_codes(rows[NAMES[prop]][side])
        if prop == "meta_vars.step":
            return Column.of_numbers(rows["step"][left])
        if prop == "meta_vars.stage":
            return Column.of_codes(rows["stage"][left])
        if prop == f"{OBSERVATION}reason":
            return Column.of_codes(rows["reason"][left])
        if prop == f"{OBSERVATION}moment":
            return Column.of_texts(_MOMENTS[rows["moment"][left]])
        if prop in ("process_id", "thread_id"):  # states of 0.x come one thread a process
            return Column.of_numbers(rows["process"][side], identity=True)
        if prop == "rank":
            return Column.of_numbers(rows["rank"][side], identity=True)
        if prop.startswith("meta_vars."):
            return context(rows["meta"][side], prop.removeprefix("meta_vars."))
        if prop.startswith("attributes."):
            return self._fact(as_recorded(prop.removeprefix("attributes.")))
        return None

    def _fact(self, attribute: str) -> Column | None:
        facts = self._facts.take(self._facts["attribute"] == code(attribute))
        if not facts.height:
            return None
        seen = self._pairs.rows.take(self._side)
        of, _ = dense(*(np.concatenate([facts[name], seen[name]]) for name in ("process", "owner", "variable")))
        known = History(of[: facts.height], facts["observation"], np.arange(facts.height))
        return column(facts).at(known.before(of[facts.height :], seen["observation"] + 1))


_MOMENTS: Final[Array] = np.array([*schema.MOMENT.categories, None], dtype=object)


def newest_facts(facts: Table, done: int) -> Table:
    """What may still be asked for: all that was seen since the step ``done`` began, and the last one before it."""
    early = np.flatnonzero(facts["step"] < done)
    what, _ = dense(*(facts[name][early] for name in ("process", "owner", "variable", "attribute")))
    _, reverse = np.unique(what[::-1], return_index=True)
    last = early[len(early) - 1 - reverse] if len(early) else early
    return facts.take(np.sort(np.concatenate([last, np.flatnonzero(facts["step"] >= done)])))


def together(old: Table | None, new: Table) -> tuple[Table, Mask]:
    """Earlier rows and new ones, and which are new."""
    rows = new if old is None else stack([old, new])
    return rows, np.arange(rows.height) >= rows.height - new.height
