"""APIContain with an API child: every call of P contains a call of C, perhaps with constant arguments.

Judging, on arrays; learning is in ``contain_calls_learn``, the sentences are in ``contain``. A call of P is judged in
the window in which it ends. When C may have been called as asked (an argument was not recorded), nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from traincheck.invariants import APIParam, Group
from traincheck.preconditions import Records, holds
from traincheck.relations.base import MOST_VIOLATIONS, Numbered
from traincheck.relations.call_arrays import CallTable, CallValues, Tally, call_keys, signature
from traincheck.relations.contain_arguments import Wanted, match, wanted
from traincheck.relations.numbers import Array, Ints, Mask, Table, code, find, texts
from traincheck.relations.wording import asks_captures

PARENT: Final = "parent_func_call_pre"


class Rule(NamedTuple):
    """One invariant. ``child``: number of what is looked for inside, see ``Program``."""

    number: int
    child: int
    mask: int
    """Number of its condition."""


@dataclass(frozen=True)
class _Child:
    signature: int
    arguments: tuple[Wanted, ...]


@dataclass(frozen=True)
class Program:
    """Rules, ready to be evaluated: grouped by parent, with every function, child and condition numbered."""

    parents: Ints
    """Sorted signatures of parents."""
    rules: tuple[tuple[Rule, ...], ...]
    """By parent."""
    conditions: tuple[Group | None, ...]
    children: tuple[_Child, ...]
    functions: Ints
    """Sorted numbers of the parents' functions, whatever becomes of their calls."""
    looked_for: Mask
    """Function x child: what is looked for inside of what."""
    captured: frozenset[int]
    """Functions of which captures are needed."""

    @classmethod
    def of(cls, invariants: Sequence[Numbered]) -> Program:
        """From the invariants whose child is an API."""
        children: dict[tuple[int, str], int] = {}
        described: list[_Child] = []
        conditions: dict[str, int] = {}
        groups: list[Group | None] = []
        by_parent: dict[int, list[Rule]] = {}
        pairs: list[tuple[int, int]] = []
        captured: set[int] = set()
        for number, invariant in invariants:
            parent, child = invariant.params[0], invariant.params[1]
            if not (isinstance(parent, APIParam) and isinstance(child, APIParam)):
                continue
            inside = signature(child.api_full_name, child.exception)
            arguments = wanted(child.arguments)
            key = (inside, repr(arguments))
            if key not in children:
                children[key] = len(children)
                described.append(_Child(inside, arguments))
            group = invariant.precondition.get(PARENT)
            text = "" if group is None else group.model_dump_json()
            if text not in conditions:
                conditions[text] = len(conditions)
                groups.append(group)
            rule = Rule(number, children[key], conditions[text])
            by_parent.setdefault(signature(parent.api_full_name, parent.exception), []).append(rule)
            pairs.append((code(parent.api_full_name), rule.child))
            if arguments:
                captured.add(code(child.api_full_name))
            if asks_captures(group):
                captured.add(code(parent.api_full_name))
        parents = sorted(by_parent)
        functions = sorted({function for function, _ in pairs})
        looked_for = np.zeros((max(len(functions), 1), max(len(children), 1)), dtype=bool)
        for function, child_number in pairs:
            looked_for[functions.index(function), child_number] = True
        return cls(
            np.array(parents, dtype=np.int64),
            tuple(tuple(by_parent[parent]) for parent in parents),
            tuple(groups),
            tuple(described),
            np.array(functions, dtype=np.int64),
            looked_for,
            frozenset(captured),
        )


@dataclass(frozen=True)
class Inside:
    """What open calls contain so far: ``keys`` of calls, ``children``, and how (``_YES``, ``_MAYBE``, ``_OTHER``).

    ``seen`` says of ``_OTHER`` what the first such call was made with, ``nth`` which call that was.
    """

    keys: Ints
    children: Ints
    how: Ints
    nth: Ints
    seen: Array

    @classmethod
    def nothing(cls) -> Inside:
        """Nothing yet."""
        none = np.empty(0, dtype=np.int64)
        return cls(none, none, none, none, np.empty(0, dtype=object))


_YES, _MAYBE, _OTHER = 0, 1, 2
_WAYS: Final = 3


def evaluate(program: Program, tree: CallTable, captures: Table, before: Inside) -> tuple[Tally, Inside]:
    """Judge each call of a watched parent in the window in which it ends."""
    tally = Tally(tree.calls)
    inside = _inside(program, tree, captures, before)
    found = np.unique(inside.keys * len(program.children) * _WAYS + inside.children * _WAYS + inside.how)
    width = len(program.children) * _WAYS
    of_parent = find(program.parents, np.where(tree.new, tree.calls["signature"], -2))
    rows_by_parent = np.flatnonzero(of_parent >= 0)
    rows_by_parent = rows_by_parent[np.argsort(of_parent[rows_by_parent], kind="stable")]
    starts = np.searchsorted(of_parent[rows_by_parent], np.arange(len(program.parents) + 1))
    for parent, rules in enumerate(program.rules):
        rows = rows_by_parent[starts[parent] : starts[parent + 1]]
        if not len(rows):
            continue
        records = Records(len(rows), [CallValues(tree.calls.take(rows), captures)])
        masks: dict[int, Mask] = {}
        for rule in rules:
            if rule.mask not in masks:
                masks[rule.mask] = holds(program.conditions[rule.mask], records)
            key = rows * width + rule.child * _WAYS
            held = find(found, key + _YES) >= 0
            judged = held
            if program.children[rule.child].arguments:
                judged = held | ~(find(found, key + _MAYBE) >= 0)
            else:
                judged = np.ones(len(rows), dtype=bool)
            applied = masks[rule.mask] & judged
            bad = rows[applied & ~held]
            tally.add(rule.number, called=rows, observed=rows[judged], applied=rows[applied], violated=bad)
            if len(bad):
                _evidence(tally, program, rule, tree, bad[:MOST_VIOLATIONS], inside)
    return tally, _still_open(tree, inside)


def _inside(program: Program, tree: CallTable, captures: Table, before: Inside) -> Inside:
    """Which calls of watched parents contain which children; ``keys`` are rows of the table."""
    hits, children, how, seen = _children(program, tree, captures)
    function = find(program.functions, tree.calls["function"])
    parts: list[tuple[Ints, Ints, Ints, Ints, Array]] = []
    nth = tree.calls["call"][hits]
    for above, places in tree.ancestors(hits):
        known = function[above] >= 0
        above, places = above[known], places[known]
        wanted_here = program.looked_for[function[above], children[places]]
        above, places = above[wanted_here], places[wanted_here]
        if len(above):
            parts.append((above, children[places], how[places], nth[places], seen[places]))
    if len(before.keys):
        rows = find(call_keys(tree.calls), before.keys)
        known = rows >= 0
        parts.append((rows[known], before.children[known], before.how[known], before.nth[known], before.seen[known]))
    if not parts:
        return Inside.nothing()
    columns = [np.concatenate([part[n] for part in parts]) for n in range(5)]
    order = np.lexsort((columns[3], columns[2], columns[1], columns[0]))
    columns = [column[order] for column in columns]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (np.diff(columns[0]) != 0) | (np.diff(columns[1]) != 0) | (np.diff(columns[2]) != 0)
    return Inside(*(column[first] for column in columns))


def _children(program: Program, tree: CallTable, captures: Table) -> tuple[Ints, Ints, Ints, Array]:
    """Rows of calls that are (or may be, or are almost) a child, with its number, how, and with what."""
    ended = np.where(tree.new, tree.calls["signature"], -2)
    rows, children, how, seen = [], [], [], []
    wanted_signatures = np.array(sorted({child.signature for child in program.children}), dtype=np.int64)
    of = find(wanted_signatures, ended)
    candidates = np.flatnonzero(of >= 0)
    by_signature = {
        int(wanted_signatures[number]): candidates[of[candidates] == number]
        for number in np.unique(of[candidates]).tolist()
    }
    for number, child in enumerate(program.children):
        mine = by_signature.get(child.signature)
        if mine is None:
            continue
        ways = np.zeros(len(mine), dtype=np.int64)
        with_what = np.full(len(mine), None, dtype=object)
        if child.arguments:
            found = match(tree.calls.take(mine), captures, child.arguments)
            ways = np.where(found.yes, _YES, np.where(found.maybe, _MAYBE, _OTHER))
            with_what = found.seen
        rows.append(mine)
        children.append(np.full(len(mine), number, dtype=np.int64))
        how.append(ways)
        seen.append(with_what)
    if not rows:
        none = np.empty(0, dtype=np.int64)
        return none, none, none, np.empty(0, dtype=object)
    return np.concatenate(rows), np.concatenate(children), np.concatenate(how), np.concatenate(seen)


def _still_open(tree: CallTable, inside: Inside) -> Inside:
    going_on = ~tree.new[inside.keys]
    keys = call_keys(tree.calls)[inside.keys[going_on]]
    return Inside(keys, *(column[going_on] for column in (inside.children, inside.how, inside.nth, inside.seen)))


def _evidence(tally: Tally, program: Program, rule: Rule, tree: CallTable, rows: Ints, inside: Inside) -> None:
    calls = tree.calls.take(rows)
    more: dict[str, Any] = {}
    arguments = program.children[rule.child].arguments
    if arguments:
        with_what = np.full(len(rows), None, dtype=object)
        other = (inside.children == rule.child) & (inside.how == _OTHER)
        at = find(inside.keys[other], rows)
        with_what[at >= 0] = inside.seen[other][at[at >= 0]]
        before = np.full(len(rows), None, dtype=object)
        before[:] = ", ".join(f"{one.name}={one.text}" for one in arguments)
        more = {"before": before, "after": with_what}
    tally.evidence(
        rule.number,
        len(rows),
        process=calls["process"],
        rank=calls["rank"],
        step=calls["step"],
        stage=texts(calls["stage"]),
        seq=calls["end_seq"],
        time_ns=calls["end_ns"],
        call=calls["call"],
        function=texts(calls["function"]),
        location=tree.locations(rows),
        **more,
    )
