"""APIContain with a variable child: learning what calls change. Judging is in ``contain_states``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from traincheck.invariants import ALWAYS, APIParam, Clause, Conjunction, Group, Invariant, Support, VarTypeParam
from traincheck.preconditions import Prop, Records, Unexplained, deduce, propose
from traincheck.relations.base import Candidate, Place
from traincheck.relations.call_arrays import CallTable, call_keys, captured, signature
from traincheck.relations.calltree import capture_props
from traincheck.relations.contain_calls import PARENT
from traincheck.relations.contain_calls_learn import MIN_CALLS, MIN_STEPS
from traincheck.relations.contain_states import VARIABLE, asked, held
from traincheck.relations.names import learnable
from traincheck.relations.numbers import KIND, Ints, Mask, Table, code, dense, member, stack, text
from traincheck.relations.rounding import swallowed
from traincheck.relations.state_changes import CallAndOptimizerValues, Changes, VariableValues, changes, look
from traincheck.relations.tables import Tables
from traincheck.relations.values import generalise

_LEARNED_KINDS: Final = (KIND["digest"], KIND["none"])
"""Kinds of values about whose change rules are learned: content. What a run was configured with is none of them."""

_LEARNED_ROLES: Final = ("parameter", "buffer", "optimizer_state")
_FACTS: Final = ("grad", "requires_grad", "in_optimizer")
"""Attributes that may tell variables apart, beside the one that changes."""


def hypothesize(references: Sequence[Tables]) -> list[Candidate]:
    """What calls change, by function, variable type, role and attribute: each variable, else one, else nothing."""
    history, calls, captures, apart = _gathered(references)
    news = np.flatnonzero(member(history["role"], map(code, _LEARNED_ROLES)) & member(history["kind"], _LEARNED_KINDS))
    found = changes(history, news, calls)
    usable = found.changing & member(found.before.kind, _LEARNED_KINDS)
    found = found.take(np.flatnonzero(usable))
    if not found.examples.height:
        return []
    examples = found.examples
    subject, count = dense(*(examples[name] for name in ("signature", "variable_type", "role", "attribute")))
    order = np.argsort(subject, kind="stable")
    starts = np.searchsorted(subject[order], np.arange(count + 1))
    subjects: list[tuple[_Subject, Ints]] = []
    for number in range(count):
        rows = order[starts[number] : starts[number + 1]]
        first = rows[0]
        function = text(int(examples["function"][first]))
        if function is None or int(examples["signature"][first]) != signature(function, None):
            continue  # a call that raised
        names = [text(int(examples[name][first])) for name in ("variable_type", "role", "attribute")]
        subjects.append((_Subject(function, *(str(name) for name in names)), rows))
    result: list[Candidate] = []
    for about, rows in sorted(subjects, key=lambda pair: pair[0]):
        if learnable(about.function):
            result += _learn(about, found.take(rows), captures, references, apart)
    return result


def _gathered(references: Sequence[Tables]) -> tuple[Table, Table, list[pl.DataFrame], int]:
    """States, calls and captures of all references; processes are numbered ``reference * apart + process``."""
    apart = max((max(reference.processes, default=0) + 1 for reference in references), default=1)
    histories, calls, captures = [], [], []
    for number, reference in enumerate(references):
        shift = number * apart
        states = look(reference.states, [("role", None, _every_attribute(reference.states))])
        tree = CallTable.of(reference.window(), None)
        located = tree.calls.having(location=tree.locations(np.arange(tree.calls.height)))
        histories.append(states.having(process=states["process"] + shift))
        calls.append(located.having(process=located["process"] + shift))
        captures.append(reference.captures.with_columns((pl.col("process") + shift).cast(pl.UInt32).alias("process")))
    return stack(histories), stack(calls), captures, apart


def _every_attribute(states: pl.DataFrame) -> frozenset[int]:
    known = states["attribute"].unique().cast(pl.String).drop_nulls().to_list()
    return frozenset(map(code, known))


class _Subject(NamedTuple):
    function: str
    variable_type: str
    role: str
    attribute: str


class _Where(NamedTuple):
    """How the processes of references are numbered."""

    apart: int

    def reference(self, process: Ints) -> Ints:
        return process // self.apart


def _learn(
    subject: _Subject, found: Changes, captures: list[pl.DataFrame], references: Sequence[Tables], apart: int
) -> list[Candidate]:
    found = found.take(np.flatnonzero(~swallowed(found, found.changing)))
    examples = found.examples
    changed: Mask = np.asarray(found.after.key != found.before.key, dtype=bool)
    if not changed.any():
        return []
    pre, post = generalise(found.before[changed]), generalise(found.after[changed])
    child = VarTypeParam(
        param_type="VarTypeParam",
        var_type=subject.variable_type,
        attr_name=subject.attribute,
        pre_value=pre,
        post_value=post,
    )
    positive = held(child, found)
    mine = pl.concat([frame.filter(pl.col("function") == subject.function) for frame in captures])
    values = captured(mine, [code(subject.function)])
    call_props = [
        Prop("meta_vars.stage", True),
        Prop("optimizer.lr", True),
        *map(Prop, capture_props(mine, subject.function)),
    ]
    own = f"attributes.{subject.attribute}"
    variable_props = [
        Prop(name, natural=True) for name in dict.fromkeys([own, *(f"attributes.{fact}" for fact in _FACTS)])
    ]
    call_records = Records(examples.height, [CallAndOptimizerValues(found, values)])
    features = propose(PARENT, call_records, positive, call_props)
    variable_records = Records(examples.height, [VariableValues(found)])
    variable_features = propose(VARIABLE, variable_records, positive, variable_props)
    of_type = found.states["variable_type"] == code(subject.variable_type)
    others = np.unique(found.states["role"][of_type])
    units = call_keys(examples)
    # What the variable itself was says more than the stage: of two that explain as much, the earlier one is taken.
    answer = deduce(positive, [*variable_features, *features], [PARENT, VARIABLE], units)
    where = _Where(apart)
    if not isinstance(answer, Unexplained):
        if post is None and pre == "non_none" and subject.attribute not in asked(answer[VARIABLE]):
            # Clearing speaks of what is there to be cleared, also when the references never cleared twice.
            there = Clause(type="generalised", prop_name=own, values=["non_none"])
            answer[VARIABLE] = _and(answer[VARIABLE], there)
        if len(others) > 1 or subject.role != "parameter":  # the type alone does not say which are meant
            role = Clause(
                type="constant", prop_name="role", additional_path="None", prop_dtype="str", values=[subject.role]
            )
            answer[VARIABLE] = _and(answer[VARIABLE], role)
        return [_candidate(subject, child, answer, examples, positive, where)]

    rejected = _rejected(subject, child, answer, found, positive, where)
    if len(others) > 1:
        return [rejected]
    call, count = dense(units)
    first = np.zeros(count, dtype=np.int64)
    first[call[::-1]] = np.arange(len(call))[::-1]
    first = np.sort(first)
    some = np.zeros(count, dtype=bool)
    np.logical_or.at(some, call, positive)
    some = some[call[first]]
    calls = found.take(first)
    source = Records(count, [CallAndOptimizerValues(calls, values)])
    weaker = deduce(some, propose(PARENT, source, some, call_props), [PARENT], np.arange(count))
    if isinstance(weaker, Unexplained):
        return [rejected]
    return [rejected, _candidate(subject, child, weaker, calls.examples, some, where)]


def _and(group: Group, clause: Clause) -> Group:
    rest = [c for conj in group.preconditions for c in conj.clauses if isinstance(c, Clause)]
    return Group(inverted=False, preconditions=[Conjunction(clauses=[clause, *rest])])


def _candidate(
    subject: _Subject, child: VarTypeParam, groups: dict[str, Group], examples: Table, positive: Mask, where: _Where
) -> Candidate:
    good = examples.take(positive)
    calls = len(np.unique(call_keys(good)))
    trained = good.take(good["step"] > 0)
    steps = dense(where.reference(trained["process"]), trained["step"])[1] if trained.height else 0
    invariant = Invariant(
        text_description="",
        relation="APIContainRelation",
        params=[APIParam(param_type="APIParam", api_full_name=subject.function), child],
        precondition=groups,
        num_positive_examples=good.height,
        num_negative_examples=examples.height - good.height,
        support=Support(
            applications=good.height,
            excluded=examples.height - good.height,
            steps=steps,
            ranks=len(np.unique(good["process"])),
            references=len(np.unique(where.reference(good["process"]))),
        ),
    )
    few = calls < MIN_CALLS or steps < MIN_STEPS
    return Candidate(invariant, f"held in {calls} calls and {steps} training steps only" if few else None)


def _rejected(
    subject: _Subject, child: VarTypeParam, why: Unexplained, found: Changes, positive: Mask, where: _Where
) -> Candidate:
    row, at = found.examples, why.example
    reference, process = divmod(int(row["process"][at]), where.apart)
    place = Place(reference, process, int(row["step"][at]), int(row["call"][at]))
    variable = f"{text(int(row['variable'][at]))}.{subject.attribute}"
    told = f"{variable} in {place}: {found.before.value[at]} -> {found.after.value[at]}"
    candidate = _candidate(subject, child, {PARENT: ALWAYS, VARIABLE: ALWAYS}, found.examples, positive, where)
    return Candidate(candidate.invariant, why.reason, told, place)
