"""APIContain with a variable child: what calls of P change. The arrays; the sentences are in ``contain``.

A call changes an attribute when its value at the end of the call (the observation after it) differs from its value at
the start (the observation before it, else the last one before the call, in the same span of observation). A call or
variable of which one of the two is not known is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from traincheck.invariants import (
    ALWAYS,
    APIParam,
    Clause,
    Conjunction,
    Group,
    Invariant,
    Support,
    VarNameParam,
    VarParam,
    VarTypeParam,
)
from traincheck.preconditions import Prop, Records, Unexplained, deduce, holds, propose, text_column
from traincheck.relations.base import COUNTS, MOST_VIOLATIONS, VIOLATIONS, Candidate, Judgement, Numbered, fit
from traincheck.relations.calltree import CallSource, capture_props, located, signature
from traincheck.relations.contain_calls import MIN_CALLS, MIN_STEPS, PARENT, CallTable
from traincheck.relations.names import as_recorded, learnable
from traincheck.relations.tables import Tables, key_text
from traincheck.relations.values import Column, generalise, matches

VARIABLE: Final = "var_events"

_KEY: Final = ["process", "span", "owner", "variable", "attribute"]
_WAITING: Final = 8
"""Ended calls per process that are kept while the observation after them has not come."""

_LEARNED_KINDS: Final = ("digest", "none")
"""Kinds of values about whose change rules are learned: content. What a run was configured with is none of them."""

_LEARNED_ROLES: Final = ("parameter", "buffer", "optimizer_state")


class Rule(NamedTuple):
    """One invariant, ready to be evaluated. ``each``: every variable of the condition, else at least one."""

    number: int
    parent: str
    child: VarParam
    each: bool
    group: Group | None
    variables: Group | None


@dataclass(frozen=True)
class StateCarry:
    """Last values before the first call that is not done, all values since, and those calls."""

    history: pl.DataFrame
    pending: pl.DataFrame


def rules(invariants: Sequence[Numbered]) -> list[Rule]:
    """Rules of the invariants whose child is a variable."""
    result = []
    for index, invariant in invariants:
        parent, child = invariant.params[0], invariant.params[1]
        if isinstance(parent, APIParam) and isinstance(child, (VarTypeParam, VarNameParam)):
            variables = invariant.precondition.get(VARIABLE)
            each = variables is not None and bool(variables.preconditions)
            name = signature(parent.api_full_name, parent.exception)
            result.append(
                Rule(index, name, child, each, invariant.precondition.get(PARENT), variables if each else None)
            )
    return result


def asked(group: Group | None, prefix: str = "attributes.") -> set[str]:
    """What of these properties a precondition asks for, without the prefix."""
    found = set()
    for conj in group.preconditions if group else ():
        for clause in conj.clauses:
            if isinstance(clause, Clause) and clause.prop_name.startswith(prefix):
                found.add(as_recorded(clause.prop_name.removeprefix(prefix)))
    return found


def evaluate(
    todo: Sequence[Rule], tree: CallTable, captures: pl.DataFrame, all_states: pl.DataFrame, carry: StateCarry | None
) -> tuple[Judgement, StateCarry]:
    """Judge each observed call of a watched parent when the observation after it has come."""
    functions = sorted({rule.parent.partition("\0")[0] for rule in todo})
    types = sorted({rule.child.var_type for rule in todo})
    attributes = sorted({rule.child.attr_name for rule in todo}.union(*(asked(rule.variables) for rule in todo)))
    attribute = pl.col("attribute").cast(pl.String)
    options = sorted({option for rule in todo for option in asked(rule.group, "optimizer.")})
    watched = pl.col("variable_type").cast(pl.String).is_in(types) & attribute.is_in(attributes)
    group = (pl.col("role").cast(pl.String) == "optimizer_group") & attribute.is_in(options)
    states = slim_states(all_states.filter(watched | group))
    history = states if carry is None else pl.concat([carry.history, states])
    rows = np.flatnonzero(tree.calls["function"].is_in(functions).to_numpy())
    calls = tree.calls[rows].with_columns(
        pl.Series("location", located(tree.calls, tree.parents, rows), dtype=pl.String)
    )
    if carry is not None and carry.pending.height:
        known = calls.select("process", "call")
        calls = pl.concat([carry.pending.join(known, on=["process", "call"], how="anti"), calls])
    calls = calls.sort("process", "call")

    changed = changes(history, states, calls)
    parts: list[pl.DataFrame] = []
    violations: list[pl.DataFrame] = []
    by_parent: dict[str, list[Rule]] = {}
    for rule in todo:
        by_parent.setdefault(rule.parent, []).append(rule)
    ended = calls.filter(pl.col("end_seq").is_not_null())
    new = tree.calls.filter(pl.Series(tree.new)).select("process", "call")
    for parent, mine in by_parent.items():
        # Counted where they end, judged where the observation after them is.
        called = ended.filter(pl.col("signature") == parent).join(new, on=["process", "call"], how="semi")
        seen = changed.filter(pl.col("signature") == parent)
        for rule in mine:
            examples = seen.filter(_is_variable(rule.child))
            if called.height:
                parts.append(_called(rule.number, called))
            if not examples.height:
                continue
            call_records = Records(examples.height, [CallAndOptimizerSource(examples, captures, history)])
            applied = holds(rule.group, call_records)
            applied &= holds(rule.variables, Records(examples.height, [VariableSource(examples, history)]))
            held = examples.select(_matches(rule.child).alias("held"))["held"].to_numpy()
            frame = examples.with_columns(pl.Series("applied", applied), pl.Series("bad", applied & ~held))
            if not rule.each:
                frame = _any_of(frame)
            parts.append(_counts(rule.number, frame))
            bad = frame.filter("bad").head(MOST_VIOLATIONS)
            if bad.height:
                violations.append(_violations(rule, bad))
    judgement = Judgement(
        pl.concat(parts) if parts else pl.DataFrame(schema=COUNTS),
        pl.concat(violations) if violations else pl.DataFrame(schema=VIOLATIONS),
    )
    return judgement, _carry(history, calls, states)


def slim_states(states: pl.DataFrame) -> pl.DataFrame:
    """State rows as plain texts and numbers, with ``key`` (what is compared) and ``obs_end`` (last row of the look)."""
    names = ("moment", "variable", "owner", "role", "variable_type", "attribute", "kind")
    return states.select(
        "process",
        "span",
        "seq",
        "time_ns",
        "observation",
        "call",
        *(pl.col(name).cast(pl.String) for name in names),
        "int",
        "float",
        "value",
        key_text().alias("key"),
        pl.col("seq").max().over("process", "observation").alias("obs_end"),
    ).with_columns(pl.col("owner").fill_null(""))


def changes(history: pl.DataFrame, new: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """One row per (call, variable, attribute) whose value at the end and at the start of the call are known.

    Columns: those of the call (process, rank, call, signature, step, stage, location, …), of the variable, ``kind``,
    ``int``, ``float``, ``value``, ``key`` at the end, ``old_kind``, … at the start, ``at`` (the start, a ``seq``).
    """
    after = new.filter(pl.col("moment") == "after", pl.col("call") > 0, ~pl.col("kind").is_in(["missing", "error"]))
    # The value at the end is that of the last observation after the call.
    after = after.unique([*_KEY, "call"], keep="last", maintain_order=True)
    columns = ("rank", "thread", "signature", "function", "step", "stage", "location", "begin_seq", "exception", "meta")
    after = after.join(
        calls.filter(pl.col("signature").is_not_null()).select("process", "call", *columns),
        on=["process", "call"],
        how="inner",
    )
    before = (
        history.filter(pl.col("moment") == "before", pl.col("call") > 0)
        .group_by([*_KEY, "call"])
        .agg((pl.col("obs_end").max() + 1).alias("at"))
    )
    after = (
        after.join(before, on=[*_KEY, "call"], how="left")
        .with_columns(pl.coalesce("at", "begin_seq").alias("at"))
        .sort("process", "seq")
    )
    return last_before(history, after, _KEY).filter(
        pl.col("old_key").is_not_null(), ~pl.col("old_kind").is_in(["missing", "error"]), pl.col("key").is_not_null()
    )


def last_before(history: pl.DataFrame, examples: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """``examples`` with the last value in ``history`` before ``at``, as ``old_kind``, ``old_int``, …; order is kept."""
    values = history.sort("seq").select(
        *by,
        pl.col("seq").alias("_at"),
        *(pl.col(name).alias(f"old_{name}") for name in ("kind", "int", "float", "value", "key")),
    )
    return (
        examples.with_row_index("_row")
        .sort("at")
        .join_asof(
            values,
            left_on="at",
            right_on="_at",
            by=by,
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .sort("_row")
        .drop("_row", "_at")
    )


class OptimizerSource:
    """``optimizer.<option>`` at the start of a call: the largest value in any optimizer group of the process."""

    def __init__(self, examples: pl.DataFrame, history: pl.DataFrame) -> None:
        self._examples = examples
        self._history = history

    def __call__(self, prop: str) -> pl.DataFrame | None:
        """Column of a property, None when it is not an option, or was observed of no group."""
        if not prop.startswith("optimizer."):
            return None
        option = prop.removeprefix("optimizer.")
        mine = self._history.filter(pl.col("role") == "optimizer_group", pl.col("attribute") == option)
        numbers: list[pl.Series] = []
        for _, group in mine.group_by(["owner", "variable"], maintain_order=True):
            found = last_before(group, self._examples.select("process", "span", "at"), ["process", "span"])
            number = pl.coalesce("old_float", pl.col("old_int").cast(pl.Float64)).alias(str(len(numbers)))
            numbers.append(found.select(number).to_series())
        if not numbers:
            return None
        largest = pl.DataFrame(numbers).select(pl.max_horizontal(pl.all()).alias("float"))
        kind = pl.when(pl.col("float").is_null()).then(pl.lit("missing")).otherwise(pl.lit("float"))
        text = pl.col("float").cast(pl.String)
        return largest.select(
            kind.alias("kind"),
            pl.lit(None, dtype=pl.Int64).alias("int"),
            "float",
            text.alias("value"),
            text.alias("key"),
        )


class CallAndOptimizerSource:
    """Properties of calls, and of the optimizers when they began."""

    def __init__(self, examples: pl.DataFrame, captures: pl.DataFrame, history: pl.DataFrame) -> None:
        self._call = CallSource(examples, captures)
        self._optimizer = OptimizerSource(examples, history)

    def __call__(self, prop: str) -> pl.DataFrame | None:
        """Column of a property, None when it is neither."""
        return self._optimizer(prop) if prop.startswith("optimizer.") else self._call(prop)


class VariableSource:
    """Properties of variables at the start of a call: name, type, role, owner, ``attributes.<a>`` as last observed."""

    def __init__(self, examples: pl.DataFrame, history: pl.DataFrame) -> None:
        self._examples = examples
        self._history = history

    def __call__(self, prop: str) -> pl.DataFrame | None:
        """Column of a property, None when it is not one of a variable."""
        columns = {"var_name": "variable", "var_type": "variable_type", "role": "role", "owner": "owner"}
        if prop in columns:
            return text_column(self._examples[columns[prop]])
        if not prop.startswith("attributes."):
            return None
        attribute = as_recorded(prop.removeprefix("attributes."))
        mine = self._history.filter(pl.col("attribute") == attribute)
        if mine.is_empty():
            return None
        by = ["process", "span", "owner", "variable"]
        found = last_before(mine, self._examples.select(*by, "at"), by)
        return found.select(
            pl.col("old_kind").fill_null("missing").alias("kind"),
            pl.col("old_int").alias("int"),
            pl.col("old_float").alias("float"),
            pl.col("old_value").alias("value"),
            pl.col("old_key").alias("key"),
        )


def _is_variable(child: VarParam) -> pl.Expr:
    mine = (pl.col("variable_type") == child.var_type) & (pl.col("attribute") == child.attr_name)
    return mine & (pl.col("variable") == child.var_name) if isinstance(child, VarNameParam) else mine


def _column(frame: pl.DataFrame, prefix: str = "") -> Column:
    return Column.of(frame.select(pl.col(f"{prefix}{n}").alias(n) for n in ("kind", "int", "float", "value", "key")))


def _matches(child: VarParam) -> pl.Expr:
    """Whether the change of a row is the child's: it is a change, from such a value, to such a value."""
    result = pl.col("key") != pl.col("old_key")
    if child.is_set("pre_value"):
        result &= matches(child.pre_value, "old_")
    if child.is_set("post_value"):
        result &= matches(child.post_value)
    return result


def _any_of(frame: pl.DataFrame) -> pl.DataFrame:
    """One row per call: it applied if some variable was judged, and is bad if none changed so."""
    return (
        frame.with_columns((pl.col("applied") & ~pl.col("bad")).alias("good"))
        .group_by("process", "call", maintain_order=True)
        .agg(
            pl.col("rank", "step", "stage", "seq", "time_ns", "function", "location", "attribute", "signature").first(),
            pl.col("applied").any(),
            (pl.col("applied").any() & ~pl.col("good").any()).alias("bad"),
            pl.lit(None, dtype=pl.String).alias("variable"),
            pl.col("old_value").first(),
            pl.col("value").first(),
        )
    )


def _called(index: int, calls: pl.DataFrame) -> pl.DataFrame:
    grouped = calls.group_by("process", "rank", "step").agg(pl.len().cast(pl.Int64).alias("called"))
    zero = [pl.lit(0, dtype=pl.Int64).alias(name) for name in ("observed", "applied", "violated")]
    return fit(grouped.with_columns(pl.lit(index).alias("invariant"), *zero), COUNTS)


def _counts(index: int, frame: pl.DataFrame) -> pl.DataFrame:
    grouped = frame.group_by("process", "rank", "step").agg(
        pl.lit(0, dtype=pl.Int64).alias("called"),
        pl.len().cast(pl.Int64).alias("observed"),
        pl.col("applied").cast(pl.Int64).sum(),
        pl.col("bad").cast(pl.Int64).sum().alias("violated"),
    )
    return fit(grouped.with_columns(pl.lit(index).alias("invariant")), COUNTS)


def _violations(rule: Rule, bad: pl.DataFrame) -> pl.DataFrame:
    return fit(
        bad.with_columns(
            pl.lit(rule.number).alias("invariant"),
            pl.col("old_value").alias("before"),
            pl.col("value").alias("after"),
            pl.lit(rule.child.attr_name).alias("attribute"),
        ),
        VIOLATIONS,
    )


def _carry(history: pl.DataFrame, calls: pl.DataFrame, states: pl.DataFrame) -> StateCarry:
    after = states.filter(pl.col("moment") == "after").select("process", "call").unique()
    still = calls.filter(pl.col("end_seq").is_null())
    waiting = (
        calls.filter(pl.col("end_seq").is_not_null())
        .join(after, on=["process", "call"], how="anti")
        .sort("process", "end_seq")
        .group_by("process", maintain_order=True)
        .tail(_WAITING)
        .select(calls.columns)
    )
    pending = pl.concat([still, waiting]).sort("process", "call")
    floors = pending.group_by("process").agg(pl.col("begin_seq").min().alias("_floor"))
    marked = history.sort("process", "seq").join(floors, on="process", how="left", maintain_order="left")
    early = pl.col("_floor").is_null() | (pl.col("seq") < pl.col("_floor"))
    kept = pl.concat([marked.filter(early).unique(_KEY, keep="last", maintain_order=True), marked.filter(~early)]).sort(
        "process", "seq"
    )
    return StateCarry(kept.drop("_floor"), pending)


# --- learning ----------------------------------------------------------------------------------------------------


def hypothesize(references: Sequence[Tables], apart: int = 1 << 20) -> list[Candidate]:
    """What calls change, by function, variable type, role and attribute: each variable, else one, else nothing."""
    histories, calls, captures = [], [], []
    for number, reference in enumerate(references):
        shift = (pl.col("process") + number * apart).cast(pl.UInt32).alias("process")
        tree = CallTable.of(reference.window(), None)
        states = slim_states(reference.states).with_columns(shift)
        histories.append(states)
        calls.append(tree.calls.with_columns(shift, pl.lit(number).alias("reference")))
        captures.append(reference.captures.with_columns(shift))
    history = pl.concat(histories)
    news = history.filter(pl.col("role").is_in(_LEARNED_ROLES), pl.col("kind").is_in(_LEARNED_KINDS))
    found = changes(history, news, pl.concat(calls)).filter(pl.col("old_kind").is_in(_LEARNED_KINDS))
    found = found.with_columns((pl.col("process") // apart).alias("reference"))
    every = pl.concat(captures)
    result: list[Candidate] = []
    keys = ["signature", "variable_type", "role", "attribute"]
    for (name, kind, role, attribute), examples in found.sort(*keys, "process", "seq").group_by(
        keys, maintain_order=True
    ):
        if "\0" in str(name) or not learnable(str(name)):
            continue
        result += _learn(_Subject(str(name), str(kind), str(role), str(attribute)), examples, history, every)
    return result


class _Subject(NamedTuple):
    function: str
    variable_type: str
    role: str
    attribute: str


def _learn(subject: _Subject, examples: pl.DataFrame, history: pl.DataFrame, captures: pl.DataFrame) -> list[Candidate]:
    changed = (examples["key"] != examples["old_key"]).to_numpy()
    if not changed.any():
        return []
    good = examples.filter(pl.Series(changed))
    pre, post = generalise(_column(good, "old_")), generalise(_column(good))
    child = VarTypeParam(
        param_type="VarTypeParam",
        var_type=subject.variable_type,
        attr_name=subject.attribute,
        pre_value=pre,
        post_value=post,
    )
    positive = examples.select(_matches(child).alias("m"))["m"].to_numpy()
    mine = captures.filter(pl.col("function") == subject.function)
    call_props = [
        Prop("meta_vars.stage", True),
        Prop("optimizer.lr", True),
        *map(Prop, capture_props(mine, subject.function)),
    ]

    variable_records = Records(examples.height, [VariableSource(examples, history)])
    own = f"attributes.{subject.attribute}"
    attributes = [own, "attributes.grad", "attributes.requires_grad", "attributes.in_optimizer"]
    variable_props = [Prop(name, natural=True) for name in dict.fromkeys(attributes)]
    features = propose(
        PARENT, Records(examples.height, [CallAndOptimizerSource(examples, mine, history)]), positive, call_props
    )
    variable_features = propose(VARIABLE, variable_records, positive, variable_props)
    others = history.filter(pl.col("variable_type") == subject.variable_type)["role"].unique().to_list()
    units = (examples["process"].cast(pl.Int64) * (1 << 40) + examples["call"].cast(pl.Int64)).to_numpy()
    # What the variable itself was says more than the stage: of two that explain as much, the earlier one is taken.
    answer = deduce(positive, [*variable_features, *features], [PARENT, VARIABLE], units)
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
        return [_candidate(subject, child, answer, examples, positive)]

    rejected = _rejected(subject, child, answer, examples, positive)
    calls = (
        examples.with_columns(pl.Series("positive", positive))
        .group_by("process", "call", maintain_order=True)
        .agg(pl.all().exclude("positive").first(), pl.col("positive").any())
    )
    some = calls["positive"].to_numpy()
    if len(others) > 1:
        return [rejected]
    source = Records(calls.height, [CallAndOptimizerSource(calls, mine, history)])
    weaker = deduce(some, propose(PARENT, source, some, call_props), [PARENT], np.arange(calls.height))
    if isinstance(weaker, Unexplained):
        return [rejected]
    return [rejected, _candidate(subject, child, weaker, calls, some)]


def _and(group: Group, clause: Clause) -> Group:
    rest = [c for conj in group.preconditions for c in conj.clauses if isinstance(c, Clause)]
    return Group(inverted=False, preconditions=[Conjunction(clauses=[clause, *rest])])


def _candidate(
    subject: _Subject, child: VarTypeParam, groups: dict[str, Group], examples: pl.DataFrame, positive: Any
) -> Candidate:
    good = examples.filter(pl.Series(positive))
    calls = good.select("process", "call").n_unique()
    steps = good.filter(pl.col("step") > 0).select("reference", "step").n_unique()
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
            ranks=good["process"].n_unique(),
            references=good["reference"].n_unique(),
        ),
    )
    few = calls < MIN_CALLS or steps < MIN_STEPS
    return Candidate(invariant, f"held in {calls} calls and {steps} training steps only" if few else None)


def _rejected(
    subject: _Subject, child: VarTypeParam, why: Unexplained, examples: pl.DataFrame, positive: Any
) -> Candidate:
    row = examples.row(why.example, named=True)
    place = (
        f"{row['variable']}.{subject.attribute} in call {row['call']} of process {row['process'] % (1 << 20)}, "
        f"step {row['step']} of reference {row['reference']}: {row['old_value']} -> {row['value']}"
    )
    candidate = _candidate(subject, child, {PARENT: ALWAYS, VARIABLE: ALWAYS}, examples, positive)
    return Candidate(candidate.invariant, why.reason, place)
