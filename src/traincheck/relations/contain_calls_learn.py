"""APIContain with an API child: learning which calls contain which. Judging is in ``contain_calls``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from traincheck.invariants import ALWAYS, APIParam, Clause, Conjunction, Group, Invariant, Support
from traincheck.preconditions import Prop, Records, Unexplained, deduce, propose
from traincheck.relations.base import Candidate, Place
from traincheck.relations.calltree import CallSource, Ints, ancestors, capture_props, parent_rows, slim
from traincheck.relations.contain_calls import PARENT
from traincheck.relations.names import learnable
from traincheck.relations.tables import Tables

MIN_CALLS = 3
"""Calls of the parent that must have held, and …"""

MIN_STEPS = 2
"""… the training steps they must be spread over, before anything is learned. Step 0 is set-up and does not count."""


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
    known = stages_known(tables)
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
            where = Place(bad["reference"], bad["process"] % _APART, bad["step"], bad["call"])
            result.append(
                Candidate(
                    _invariant(row, ALWAYS, row["held"], row["calls"] - row["held"], 0, 0, 0),
                    answer.reason,
                    str(where),
                    where,
                )
            )
            continue
        good = calls.filter(pl.Series(positive))
        steps = good.filter(pl.col("step") > 0).select("reference", "step").n_unique()
        ranks = good.select("reference", "process").n_unique()
        condition = (
            answer[PARENT] if "meta_vars.stage" in answer[PARENT].model_dump_json() else both(answer[PARENT], known)
        )
        invariant = _invariant(
            row, condition, int(positive.sum()), int((~positive).sum()), steps, ranks, good["reference"].n_unique()
        )
        result.append(Candidate(invariant, None if steps >= MIN_STEPS else "held in fewer than two training steps"))
    return result


def stages_known(tables: Sequence[pl.DataFrame]) -> Group:
    """The condition that the references demand of all: they cannot speak of evaluation if they never evaluated."""
    seen = sorted({stage for table in tables for stage in table["stage"].unique().drop_nulls().to_list()})
    if "evaluation" in seen or seen in ([], ["init"]):
        return ALWAYS
    clause = Clause(
        type="constant", prop_name="meta_vars.stage", additional_path="None", prop_dtype="str", values=list(seen)
    )
    return Group(inverted=False, preconditions=[Conjunction(clauses=[clause])])


def both(one: Group, two: Group) -> Group:
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
    edges: dict[str, dict[str, set[str]]] = {}
    for invariant in invariants:
        pair = _plain(invariant)
        if pair is not None:
            edges.setdefault(pair[0], {}).setdefault(pair[1], set()).add(_condition(invariant))
    always = _condition_text(ALWAYS)

    def implied(invariant: Invariant) -> bool:
        pair = _plain(invariant)
        if pair is None:
            return False
        parent, child = pair
        condition = _condition(invariant)
        # A stage is the same for a call and what it contains; other conditions say something of their own call only.
        inherited = {always, condition} if _only_stage(invariant.precondition.get(PARENT, ALWAYS)) else {always}
        return any(
            middle not in pair and when & {always, condition} and edges.get(middle, {}).get(child, set()) & inherited
            for middle, when in edges.get(parent, {}).items()
        )

    return [invariant for invariant in invariants if not implied(invariant)]


def _plain(invariant: Invariant) -> tuple[str, str] | None:
    """Parent and child of a rule about a contained call, whatever its arguments."""
    parent, child = invariant.params[0], invariant.params[1]
    if not (isinstance(parent, APIParam) and isinstance(child, APIParam)):
        return None
    return None if child.arguments is not None else (parent.api_full_name, child.api_full_name)


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
