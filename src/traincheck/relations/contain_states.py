"""APIContain with a variable child: what calls of P change, or leave variables at.

Judging, on arrays; learning is in ``contain_states_learn``, the sentences are in ``contain``. A call or variable of
which the value at the end or at the start is not known is not judged (see ``state_changes``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from traincheck.invariants import APIParam, Clause, Group, Invariant, VarNameParam, VarParam, VarTypeParam
from traincheck.preconditions import Records, holds
from traincheck.relations.base import MOST_VIOLATIONS, PRESENT, Numbered
from traincheck.relations.call_arrays import CallTable, Tally, call_keys, signature
from traincheck.relations.contain_calls import PARENT
from traincheck.relations.contain_related import Related
from traincheck.relations.names import as_recorded
from traincheck.relations.numbers import MOMENT, Ints, Mask, Table, code, dense, find, member, stack, texts
from traincheck.relations.rounding import CONTENT, FACTS, swallowed
from traincheck.relations.state_changes import CallAndOptimizerValues, Changes, VariableValues, changes
from traincheck.relations.values import fits
from traincheck.relations.wording import asks_captures

VARIABLE: Final = "var_events"

_WAITING: Final = 8
"""Ended calls per process that are kept while the observation after them has not come."""


class Rule(NamedTuple):
    """One invariant, ready to be evaluated. ``each``: every variable of the condition, else at least one."""

    number: int
    child: VarParam
    each: bool
    group: Group | None
    variables: Group | None


@dataclass(frozen=True)
class Program:
    """Rules by the signature of their parent, and what must be looked at for them."""

    rules: tuple[tuple[int, tuple[Rule, ...]], ...]
    functions: frozenset[int]
    watched: tuple[tuple[str, frozenset[int] | None, frozenset[int]], ...]
    captured: frozenset[int]
    """Functions of which captures are needed."""
    each: frozenset[int]
    """Functions of which some rule speaks of every variable."""

    @classmethod
    def of(cls, invariants: Sequence[Numbered]) -> Program:
        """From the invariants whose child is a variable."""
        by_parent: dict[int, list[Rule]] = {}
        functions: set[int] = set()
        types: set[int] = set()
        attributes: set[int] = set()
        options: set[int] = set()
        captured: set[int] = set()
        each_of: set[int] = set()
        for number, invariant in invariants:
            parent, child = invariant.params[0], invariant.params[1]
            if not (isinstance(parent, APIParam) and isinstance(child, (VarTypeParam, VarNameParam))):
                continue
            variables = invariant.precondition.get(VARIABLE)
            each = variables is not None and bool(variables.preconditions)
            group = invariant.precondition.get(PARENT)
            rule = Rule(number, child, each, group, variables if each else None)
            by_parent.setdefault(signature(parent.api_full_name, parent.exception), []).append(rule)
            functions.add(code(parent.api_full_name))
            types.add(code(child.var_type))
            attributes |= {code(name) for name in (as_recorded(child.attr_name), *asked(rule.variables))}
            attributes |= {code(name) for name in beside(child, each)}
            options |= {code(option) for option in asked(group, "optimizer.")}
            if asks_captures(group):
                captured.add(code(parent.api_full_name))
            if each:
                each_of.add(code(parent.api_full_name))
        watched = (
            ("variable_type", frozenset(types), frozenset(attributes)),
            ("role", frozenset((code("optimizer_group"),)), frozenset(options)),
        )
        rules = tuple((parent, tuple(rules)) for parent, rules in sorted(by_parent.items()))
        return cls(rules, frozenset(functions), watched, frozenset(captured), frozenset(each_of))


def asked(group: Group | None, prefix: str = "attributes.") -> set[str]:
    """What of these properties a precondition asks for, without the prefix."""
    found = set()
    for conj in group.preconditions if group else ():
        for clause in conj.clauses:
            if isinstance(clause, Clause) and clause.prop_name.startswith(prefix):
                found.add(as_recorded(clause.prop_name.removeprefix(prefix)))
    return found


def beside(child: VarParam, each: bool) -> frozenset[str]:
    """What else must be known of variables to judge them: whether an update was lost in rounding."""
    moves = each and as_recorded(child.attr_name) == CONTENT and not child.is_set("const_value")
    return FACTS if moves else frozenset()


def beside_facts(child: VarParam, each: bool) -> frozenset[str]:
    """The same, as what must be observed: of a gradient, whether there is one."""
    return frozenset(name + PRESENT if name == "grad" else name for name in beside(child, each))


def compares_content(child: VarParam) -> bool:
    """Whether a change can't be told from values being None or not: it always can between the two."""
    ends = {str(child.pre_value), str(child.post_value)}
    return not (child.is_set("pre_value") and child.is_set("post_value") and ends == {"None", "non_none"})


def facts(invariant: Invariant) -> frozenset[str]:
    """Attributes that the precondition asks for; with the ending ``PRESENT`` where only being None matters."""
    content: dict[str, bool] = {}
    for group in invariant.precondition.values():
        for conj in group.preconditions:
            for clause in conj.clauses:
                if isinstance(clause, Clause) and clause.prop_name.startswith("attributes."):
                    name = clause.prop_name.removeprefix("attributes.")
                    content[name] = content.get(name, False) or not _is_about_none(clause)
    return frozenset(name if compared else name + PRESENT for name, compared in content.items())


def _is_about_none(clause: Clause) -> bool:
    if clause.type == "exist":
        return True
    known = {"constant": [None], "generalised": ["non_none"]}
    return clause.values is not None and clause.values == known.get(clause.type)


@dataclass(frozen=True)
class StateCarry:
    """Last values before the first call that is not done, all values since, and those calls."""

    history: Table | None = None
    pending: Table | None = None


def evaluate(
    program: Program,
    tree: CallTable,
    captures: Table,
    states: Table,
    carry: StateCarry,
    related: Related | None = None,
) -> tuple[list[Tally], StateCarry]:
    """Judge each observed call of a watched parent when the observation after it has come.

    ``states``: new rows, as ``state_changes.look`` gives them. ``related``: what 0.x knew of objects and variables.
    """
    history = states if carry.history is None else stack([carry.history, states])
    fresh = np.arange(history.height) >= history.height - states.height
    ended_now = call_keys(tree.calls.take(tree.new))
    new = np.flatnonzero(fresh | np.isin(call_keys(history), ended_now))  # 0.x also looked while calls went on
    calls = _calls(program, tree, carry.pending)
    found = changes(history, new, calls)
    counted, judged = Tally(tree.calls), Tally(found.examples)
    ended = np.where(tree.new, tree.calls["signature"], -2)
    for parent, rules in program.rules:
        # Counted where they end, judged where the observation after them is.
        called = np.flatnonzero(ended == parent)
        rows = np.flatnonzero(found.examples["signature"] == parent)
        for rule in rules:
            if len(called):
                counted.add(rule.number, called=called)
        if len(rows):
            _judge(rules, found.take(rows), rows, captures, judged, related)
    return [counted, judged], _carry(history, calls, states)


def around(states: Table, tree: CallTable, program: Program) -> Table:
    """``states`` of 0.x, told also of every watched call they were recorded inside of.

    0.x looked inside the functions it followed, and when an attribute was set: what was seen in a call is what the call
    left, unless it was seen before something else in it.
    """
    row = find(call_keys(tree.calls), call_keys(states)) if tree.calls.height else np.full(states.height, -1)
    watched = member(tree.calls["function"], program.functions)
    parts = [states]
    inside = np.flatnonzero(row >= 0)
    own = inside[watched[row[inside]] & (states["moment"][inside] == MOMENT["alone"])]
    pairs = [(row[own], own)]
    at, above = inside, tree.parents[row[inside]]
    while (above >= 0).any():
        at, above = at[above >= 0], above[above >= 0]
        pairs.append((above[watched[above]], at[watched[above]]))
        above = tree.parents[above]
    for call, rows in pairs:
        moment = np.where(states["moment"][rows] == MOMENT["before"], MOMENT["before"], MOMENT["after"])
        parts.append(states.take(rows).having(call=tree.calls["call"][call], moment=moment))
    every = stack(parts)
    return every.take(np.lexsort((every["seq"], every["process"])))


def _calls(program: Program, tree: CallTable, pending: Table | None) -> Table:
    rows = np.flatnonzero(member(tree.calls["function"], program.functions))
    calls = tree.calls.take(rows).having(location=tree.locations(rows))
    if pending is not None and pending.height:
        calls = stack([pending.take(~np.isin(call_keys(pending), call_keys(calls))), calls])
        calls = calls.take(np.argsort(call_keys(calls), kind="stable"))
    return calls


def _judge(
    rules: Sequence[Rule], found: Changes, rows: Ints, captures: Table, tally: Tally, related: Related | None
) -> None:
    """Rules of one parent over what its calls left (``rows``: of the tally's table)."""
    call_records = Records(len(rows), [CallAndOptimizerValues(found, captures)])
    variable_records = Records(len(rows), [VariableValues(found)])
    masks: dict[str, Mask] = {}
    for rule in rules:
        mine = _is_variable(rule.child, found.examples)
        constant = rule.child.is_set("const_value")
        judged = mine if constant else mine & found.changing
        if rule.each and related is not None:
            judged = judged & related.to_calls(found.examples, captures)
        if not judged.any():
            continue
        applied = judged.copy()
        for group, records in ((rule.group, call_records), (rule.variables, variable_records)):
            key = f"{id(records)} {group.model_dump_json() if group else ''}"
            if key not in masks:
                masks[key] = holds(group, records)
            applied &= masks[key]
        if beside(rule.child, rule.each):
            applied &= ~swallowed(found, judged)
        bad = applied & ~held(rule.child, found)
        if rule.each:
            at = np.flatnonzero(bad)
            tally.add(rule.number, observed=rows[judged], applied=rows[applied], violated=rows[at])
            named = True
        else:
            seen = np.flatnonzero(judged)
            call, count = dense(call_keys(found.examples)[seen])
            first = np.zeros(count, dtype=np.int64)
            first[call[::-1]] = seen[::-1]
            some, good = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
            np.logical_or.at(some, call, applied[seen])
            np.logical_or.at(good, call, (applied & ~bad)[seen])
            at = first[some & ~good]
            tally.add(rule.number, observed=rows[first], applied=rows[first[some]], violated=rows[at])
            named = False
        if len(at):
            _evidence(tally, rule, found, np.sort(at)[:MOST_VIOLATIONS], named)


def _is_variable(child: VarParam, examples: Table) -> Mask:
    mine: Mask = (examples["variable_type"] == code(child.var_type)) & (
        examples["attribute"] == code(as_recorded(child.attr_name))
    )
    if isinstance(child, VarNameParam):
        mine = mine & (examples["variable"] == code(child.var_name))
    return mine


def held(child: VarParam, found: Changes) -> Mask:
    """Which examples are what the child says: left at the constant; or changed, from such a value, to such a value."""
    if child.is_set("const_value"):
        return fits(child.const_value, found.after)
    result: Mask = np.asarray(found.after.key != found.before.key, dtype=bool)
    if child.is_set("pre_value"):
        result &= fits(child.pre_value, found.before)
    if child.is_set("post_value"):
        result &= fits(child.post_value, found.after)
    return result


def _evidence(tally: Tally, rule: Rule, found: Changes, at: Ints, named: bool) -> None:
    bad = found.examples.take(at)
    nothing = np.full(len(at), None, dtype=object)
    attribute = np.full(len(at), rule.child.attr_name, dtype=object)
    tally.evidence(
        rule.number,
        len(at),
        **{name: bad[name] for name in ("process", "rank", "step", "seq", "time_ns", "call", "location")},
        stage=texts(bad["stage"]),
        function=texts(bad["function"]),
        variable=texts(bad["variable"]) if named else nothing,
        attribute=attribute,
        before=np.where(found.changing[at], found.before[at].value, nothing),
        after=found.after[at].value,
    )


def _carry(history: Table, calls: Table, states: Table) -> StateCarry:
    pending = _pending(calls, states)
    floors = np.full(int(max(history["process"].max(initial=0), pending["process"].max(initial=0))) + 1, 2**62)
    np.minimum.at(floors, pending["process"], pending["begin_seq"])
    early = history["seq"] < floors[history["process"]]
    what, _ = dense(*(history[name] for name in ("process", "span", "owner", "variable", "attribute")))
    last = np.zeros(history.height, dtype=bool)
    rows = np.flatnonzero(early)
    _, reverse = np.unique(what[rows][::-1], return_index=True)
    last[rows[len(rows) - 1 - reverse]] = True
    keep = last & _reachable(history, pending) | ~early
    kept = history.take(np.flatnonzero(keep))
    order = np.lexsort((kept["seq"], kept["process"]))
    return StateCarry(kept.take(order), pending)


def _pending(calls: Table, states: Table) -> Table:
    """Calls that go on, and per process the last ones that ended and whose observation may still come."""
    seen = call_keys(states)[states["moment"] == MOMENT["after"]] if states.height else np.empty(0, dtype=np.int64)
    ended = calls["end_seq"] >= 0
    waiting = np.flatnonzero(ended & ~np.isin(call_keys(calls), seen))
    waiting = waiting[np.lexsort((calls["end_seq"][waiting], calls["process"][waiting]))]
    process = calls["process"][waiting]
    from_end = np.searchsorted(process, process, side="right") - 1 - np.arange(len(waiting))
    rows = np.concatenate([np.flatnonzero(~ended), waiting[from_end < _WAITING]])
    return calls.take(rows[np.argsort(call_keys(calls)[rows], kind="stable")])


def _reachable(history: Table, pending: Table) -> Mask:
    """Rows in a span of observation that is not over: nothing later is compared with what lies before a gap."""
    newest = np.zeros(
        int(max(history["process"].max(initial=0), pending["process"].max(initial=0))) + 1, dtype=np.int64
    )
    np.maximum.at(newest, history["process"], history["span"])
    np.minimum.at(newest, pending["process"], pending["span"])
    reachable: Mask = history["span"] >= newest[history["process"]]
    return reachable
