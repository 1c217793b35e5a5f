"""APIContain with an API child: every call of P contains a call of C. The arrays; the sentences are in ``contain``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from traincheck.invariants import ALWAYS, APIParam, Clause, Conjunction, Group, Invariant, Support
from traincheck.preconditions import Prop, Records, Unexplained, deduce, holds, propose
from traincheck.relations.base import COUNTS, MOST_VIOLATIONS, VIOLATIONS, Candidate, Judgement, Numbered, fit
from traincheck.relations.calltree import (
    CallSource,
    Ints,
    ancestors,
    capture_props,
    located,
    parent_rows,
    signature,
    slim,
)
from traincheck.relations.names import learnable
from traincheck.relations.tables import Tables, Window

PARENT = "parent_func_call_pre"

MIN_CALLS = 3
"""Calls of the parent that must have held, and …"""

MIN_STEPS = 2
"""… the training steps they must be spread over, before anything is learned. Step 0 is set-up and does not count."""


class Rule(NamedTuple):
    """One invariant, ready to be evaluated."""

    number: int
    parent: str
    child: str
    group: Group | None


@dataclass(frozen=True)
class CallCarry:
    """Calls still open at the end of a window, and which watched children they contain so far."""

    open: pl.DataFrame
    found: pl.DataFrame


def rules(invariants: Sequence[Numbered]) -> list[Rule]:
    """Rules of the invariants whose child is an API."""
    result = []
    for index, invariant in invariants:
        parent, child = invariant.params[0], invariant.params[1]
        if isinstance(parent, APIParam) and isinstance(child, APIParam):
            result.append(
                Rule(
                    index,
                    signature(parent.api_full_name, parent.exception),
                    signature(child.api_full_name, child.exception),
                    invariant.precondition.get(PARENT),
                )
            )
    return result


@dataclass(frozen=True)
class CallTable:
    """The calls of a window with those open before it. ``new``: ended in this window. ``parents``: rows, -1 none."""

    calls: pl.DataFrame
    parents: Ints
    new: np.ndarray

    @classmethod
    def of(cls, window: Window, still_open: pl.DataFrame | None) -> CallTable:
        """From a window and the calls that were open when it began. What ends later is open here."""
        calls = slim(
            window.calls.with_columns(
                pl.when("ended").then(pl.col("outcome").cast(pl.String)).otherwise(pl.lit("open")).alias("outcome"),
                pl.when("ended").then("end_seq").otherwise(None).alias("end_seq"),
            )
        )
        if still_open is not None and still_open.height:
            known = calls.select("process", "call")
            calls = pl.concat([still_open.join(known, on=["process", "call"], how="anti"), calls])
        calls = calls.sort("process", "call")
        return cls(calls, parent_rows(calls), calls["end_seq"].is_not_null().to_numpy())


def evaluate(
    todo: Sequence[Rule], tree: CallTable, captures: pl.DataFrame, carry: CallCarry | None
) -> tuple[Judgement, CallCarry]:
    """Judge each call of a watched parent in the window in which it ends."""
    table, parents, new = tree.calls, tree.parents, tree.new
    parent_codes = _codes([rule.parent for rule in todo])
    child_codes = _codes([rule.child for rule in todo])
    found = _found(table, parents, new, todo, child_codes, carry)
    parent_code = _lookup(table["signature"], parent_codes)
    parent_code[~new] = -1  # judged where they end, once
    parts: list[pl.DataFrame] = []
    violations: list[pl.DataFrame] = []
    by_parent: dict[str, list[Rule]] = {}
    for rule in todo:
        by_parent.setdefault(rule.parent, []).append(rule)
    for parent, mine in by_parent.items():
        rows = np.flatnonzero(parent_code == parent_codes[parent])
        if not len(rows):
            continue
        calls = table[rows]
        records = Records(len(rows), [CallSource(calls, captures)])
        masks: dict[str, np.ndarray] = {}
        for rule in mine:
            text = "" if rule.group is None else rule.group.model_dump_json()
            if text not in masks:
                masks[text] = holds(rule.group, records)
            applied = masks[text]
            held = np.isin(rows * len(child_codes) + child_codes[rule.child], found)
            bad = applied & ~held
            parts.append(_counts(rule.number, calls, applied, bad))
            if bad.any():
                violations.append(_violations(rule, table, parents, rows[bad][:MOST_VIOLATIONS]))
    counts = pl.concat(parts) if parts else pl.DataFrame(schema=COUNTS)
    judgement = Judgement(counts, pl.concat(violations) if violations else pl.DataFrame(schema=VIOLATIONS))
    return judgement, _carry(table, found, child_codes)


def _codes(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def _lookup(series: pl.Series, codes: Mapping[str, int]) -> Ints:
    """Code of each text, -1 for others."""
    return (
        series.replace_strict(list(codes), list(codes.values()), default=-1, return_dtype=pl.Int64)
        .fill_null(-1)
        .to_numpy()
        .copy()
        if codes
        else np.full(len(series), -1, dtype=np.int64)
    )


def _found(
    table: pl.DataFrame,
    parents: Ints,
    new: np.ndarray,
    todo: Sequence[Rule],
    child_codes: Mapping[str, int],
    carry: CallCarry | None,
) -> Ints:
    """Sorted keys (row of a parent * children + code of the child) of what is contained in what."""
    width = max(len(child_codes), 1)
    functions = _codes([rule.parent.partition("\0")[0] for rule in todo])
    wanted = np.zeros((len(functions), width), dtype=bool)
    for rule in todo:
        wanted[functions[rule.parent.partition("\0")[0]], child_codes[rule.child]] = True
    function_code = _lookup(table["function"], functions)
    child_code = _lookup(table["signature"], child_codes)
    child_code[~new] = -1
    keys: list[Ints] = []
    for above, below in ancestors(parents, np.flatnonzero(child_code >= 0)):
        function = function_code[above]
        known = function >= 0
        above, code, function = above[known], child_code[below[known]], function[known]
        hit = wanted[function, code] if len(function) else np.zeros(0, dtype=bool)
        keys.append(np.unique(above[hit] * width + code[hit]))
    if carry is not None and carry.found.height:
        earlier = carry.found.join(
            table.select("process", "call").with_row_index("row"), on=["process", "call"], how="inner"
        )
        code = _lookup(earlier["child"], child_codes)
        keys.append(earlier["row"].to_numpy().astype(np.int64) * width + code)
    return np.unique(np.concatenate(keys)) if keys else np.empty(0, dtype=np.int64)


def _carry(table: pl.DataFrame, found: Ints, child_codes: Mapping[str, int]) -> CallCarry:
    width = max(len(child_codes), 1)
    still = table.filter(pl.col("end_seq").is_null())
    names = list(child_codes)
    inside = pl.DataFrame(
        {"row": found // width, "child": [names[int(code)] for code in found % width]},
        schema={"row": pl.Int64, "child": pl.String},
    )
    keyed = table.select("process", "call", "end_seq").with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    kept = (
        inside.join(keyed.filter(pl.col("end_seq").is_null()), on="row", how="inner")
        .select("process", "call", "child")
        .sort("process", "call", "child")
    )
    return CallCarry(still, kept)


def _counts(index: int, calls: pl.DataFrame, applied: np.ndarray, bad: np.ndarray) -> pl.DataFrame:
    frame = calls.select("process", "rank", "step").with_columns(
        pl.Series("applied", applied).cast(pl.Int64), pl.Series("violated", bad).cast(pl.Int64)
    )
    grouped = frame.group_by("process", "rank", "step").agg(
        pl.len().cast(pl.Int64).alias("called"),
        pl.len().cast(pl.Int64).alias("observed"),
        pl.col("applied", "violated").sum(),
    )
    return fit(grouped.with_columns(pl.lit(index).alias("invariant")), COUNTS)


def _violations(rule: Rule, table: pl.DataFrame, parents: Ints, rows: Ints) -> pl.DataFrame:
    frame = table[rows].with_columns(
        pl.lit(rule.number).alias("invariant"),
        pl.col("end_seq").alias("seq"),
        pl.col("end_ns").alias("time_ns"),
        pl.Series("location", located(table, parents, rows), dtype=pl.String),
    )
    return fit(frame, VIOLATIONS)


# --- learning ----------------------------------------------------------------------------------------------------


def hypothesize(references: Sequence[Tables]) -> list[Candidate]:
    """Pairs (P, C) such that calls of P contain C, in all references together, with their precondition."""
    tables = [slim(reference.calls).sort("process", "call") for reference in references]
    pairs = _pairs(tables)
    if pairs.is_empty():
        return []
    totals = _totals(tables)
    # Only references that watched the child can say that a call did not contain it.
    children = pairs["child"].unique().sort().to_list()
    watched = pl.DataFrame(
        [(n, child) for n, reference in enumerate(references) for child in children if reference.watch.watches(child)],
        schema={"reference": pl.Int32, "child": pl.String},
        orient="row",
    )
    held = pairs.group_by("parent", "child").agg(pl.len().alias("held"))
    counted = (
        held.select("parent", "child")
        .join(watched, on="child")
        .join(totals, on=["parent", "reference"])
        .group_by("parent", "child")
        .agg(pl.col("calls", "steps", "ranks").sum(), pl.col("reference").n_unique().alias("references"))
        .join(held, on=["parent", "child"])
        .filter(pl.col("held") >= MIN_CALLS)
        .sort("parent", "child")
    )
    known = _stages(tables)
    candidates: list[Candidate] = []
    for row in counted.filter(pl.col("held") == pl.col("calls")).iter_rows(named=True):
        if row["steps"] >= MIN_STEPS:
            candidates.append(
                Candidate(_invariant(row, known, row["held"], 0, row["steps"], row["ranks"], row["references"]))
            )
    mixed = counted.filter(pl.col("held") < pl.col("calls"))
    for (parent,), rows in mixed.group_by(["parent"], maintain_order=True):
        candidates += _conditional(str(parent), rows, pairs, tables, references, known)
    return candidates


def _pairs(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Each returned call of a learnable function with each function that returned inside it."""
    parts = []
    for number, table in enumerate(tables):
        names = table["signature"].unique().drop_nulls().to_list()
        codes = _codes(sorted(name for name in names if "\0" not in name and learnable(name)))
        if not codes:
            continue
        code = _lookup(table["signature"], codes)
        parents = parent_rows(table)
        width = len(codes)
        keys = [
            np.unique(above[code[above] >= 0] * width + code[below[code[above] >= 0]])
            for above, below in ancestors(parents, np.flatnonzero(code >= 0))
        ]
        if not keys:
            continue
        found = np.unique(np.concatenate(keys))
        listed = list(codes)
        above = found // width
        parts.append(
            table[above]
            .select("process", "call", pl.col("function").alias("parent"))
            .with_columns(
                pl.lit(number).alias("reference"),
                pl.Series("child", np.array(listed, dtype=object)[found % width], dtype=pl.String),
            )
        )
    empty = {"process": pl.UInt32, "call": pl.UInt64, "parent": pl.String, "reference": pl.Int32, "child": pl.String}
    pairs = pl.concat(parts) if parts else pl.DataFrame(schema=empty)
    return pairs.filter(pl.col("parent") != pl.col("child"))


def _totals(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """parent, reference -> its returned calls there, and over how many training steps and processes they are spread."""
    every = pl.concat(
        [
            table.select("signature", "process", "step").with_columns(pl.lit(n).alias("reference"))
            for n, table in enumerate(tables)
        ]
    ).drop_nulls("signature")
    return every.group_by(pl.col("signature").alias("parent"), "reference").agg(
        pl.len().alias("calls"),
        pl.col("step").filter(pl.col("step") > 0).n_unique().alias("steps"),
        pl.col("process").n_unique().alias("ranks"),
    )


def _conditional(
    parent: str,
    rows: pl.DataFrame,
    pairs: pl.DataFrame,
    tables: Sequence[pl.DataFrame],
    references: Sequence[Tables],
    known: Group,
) -> list[Candidate]:
    """Candidates for the children that only some calls of the parent contain."""
    calls, captures = _examples(parent, tables, references)
    source = CallSource(calls, captures)
    records = Records(calls.height, [source])
    props = [Prop("meta_vars.stage", natural=True), *map(Prop, capture_props(captures, parent))]
    units = np.arange(calls.height)
    here = pairs.filter(pl.col("parent") == parent)
    result = []
    for row in rows.iter_rows(named=True):
        inside = here.filter(pl.col("child") == row["child"]).select("reference", "process", "call")
        keyed = calls.select("reference", pl.col("process") % _APART, "call").join(
            inside.with_columns(pl.lit(True).alias("in")),
            on=["reference", "process", "call"],
            how="left",
            maintain_order="left",
        )
        positive = keyed["in"].fill_null(False).to_numpy()
        able = [n for n, reference in enumerate(references) if reference.watch.watches(row["child"])]
        positive |= ~calls["reference"].is_in(able).to_numpy()  # says nothing against it
        answer = deduce(positive, propose(PARENT, records, positive, props), [PARENT], units)
        if isinstance(answer, Unexplained):
            bad = calls.row(answer.example, named=True)
            process = bad["process"] % _APART
            where = f"call {bad['call']} of process {process} in step {bad['step']} of reference {bad['reference']}"
            result.append(
                Candidate(
                    _invariant(row, ALWAYS, row["held"], row["calls"] - row["held"], 0, 0, 0), answer.reason, where
                )
            )
            continue
        good = calls.filter(pl.Series(positive))
        steps = good.filter(pl.col("step") > 0).select("reference", "step").n_unique()
        ranks = good.select("reference", "process").n_unique()
        condition = (
            answer[PARENT] if "meta_vars.stage" in answer[PARENT].model_dump_json() else _both(answer[PARENT], known)
        )
        invariant = _invariant(
            row, condition, int(positive.sum()), int((~positive).sum()), steps, ranks, good["reference"].n_unique()
        )
        result.append(Candidate(invariant, None if steps >= MIN_STEPS else "held in fewer than two training steps"))
    return result


def _stages(tables: Sequence[pl.DataFrame]) -> Group:
    """The condition that the references demand of all: they cannot speak of evaluation if they never evaluated."""
    seen = sorted({stage for table in tables for stage in table["stage"].unique().drop_nulls().to_list()})
    if "evaluation" in seen or seen in ([], ["init"]):
        return ALWAYS
    clause = Clause(
        type="constant", prop_name="meta_vars.stage", additional_path="None", prop_dtype="str", values=list(seen)
    )
    return Group(inverted=False, preconditions=[Conjunction(clauses=[clause])])


def _both(one: Group, two: Group) -> Group:
    """Both of two groups that have one conjunction each."""
    clauses = [c for group in (one, two) for c in group.preconditions[0].clauses if isinstance(c, Clause)]
    return Group(inverted=False, preconditions=[Conjunction(clauses=clauses)]) if clauses else ALWAYS


_APART = 1 << 20
"""Processes of different references are told apart by this distance."""


def _examples(
    parent: str, tables: Sequence[pl.DataFrame], references: Sequence[Tables]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    calls, captures = [], []
    for number, (table, reference) in enumerate(zip(tables, references, strict=True)):
        shift = pl.col("process") + number * _APART
        calls.append(
            table.filter(pl.col("signature") == parent).with_columns(
                shift.cast(pl.UInt32).alias("process"), pl.lit(number).alias("reference")
            )
        )
        captures.append(
            reference.captures.filter(pl.col("function") == parent).with_columns(shift.cast(pl.UInt32).alias("process"))
        )
    return pl.concat(calls), pl.concat(captures)


def _invariant(
    row: Mapping[str, object], group: Group, held: int, excluded: int, steps: int, ranks: int, references: int
) -> Invariant:
    parent, child = str(row["parent"]), str(row["child"])
    return Invariant(
        text_description="",
        relation="APIContainRelation",
        params=[
            APIParam(param_type="APIParam", api_full_name=parent),
            APIParam(param_type="APIParam", api_full_name=child),
        ],
        precondition={PARENT: group},
        num_positive_examples=held,
        num_negative_examples=excluded,
        support=Support(applications=held, excluded=excluded, steps=steps, ranks=ranks, references=references),
    )


def fold(invariants: Sequence[Invariant]) -> list[Invariant]:
    """Without P > C where P > Q and Q > C are there too: a run that breaks the first breaks one of the others."""
    edges: dict[str, dict[str, str]] = {}
    for invariant in invariants:
        parent, child = invariant.params[0], invariant.params[1]
        if isinstance(parent, APIParam) and isinstance(child, APIParam):
            edges.setdefault(parent.api_full_name, {})[child.api_full_name] = _condition(invariant)
    always = _condition_text(ALWAYS)

    def implied(invariant: Invariant) -> bool:
        parent, child = invariant.params[0], invariant.params[1]
        if not (isinstance(parent, APIParam) and isinstance(child, APIParam)):
            return False
        condition = _condition(invariant)
        # A stage is the same for a call and what it contains; other conditions say something of their own call only.
        inherited = (always, condition) if _only_stage(invariant.precondition.get(PARENT, ALWAYS)) else (always,)
        for middle, when in edges.get(parent.api_full_name, {}).items():
            if middle == child.api_full_name or middle == parent.api_full_name:
                continue
            if when in (always, condition) and edges.get(middle, {}).get(child.api_full_name) in inherited:
                return True
        return False

    return [invariant for invariant in invariants if not implied(invariant)]


def _only_stage(group: Group) -> bool:
    return all(
        isinstance(clause, Clause) and clause.prop_name == "meta_vars.stage"
        for conj in group.preconditions
        for clause in conj.clauses
    )


def _condition(invariant: Invariant) -> str:
    return _condition_text(invariant.precondition.get(PARENT, ALWAYS))


def _condition_text(group: Group) -> str:
    return group.model_dump_json()
