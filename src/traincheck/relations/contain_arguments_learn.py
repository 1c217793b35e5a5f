"""Learning constant arguments: calls of P call C with this value.

Only of the innermost learnable P, because what holds there holds further out as well, and only values that say what
kind of thing was asked for: flags, dtypes, words of an enumeration. Numbers and None are what a run was configured
with; they become constants when references that were configured differently agree on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from traincheck.invariants import ALWAYS, APIParam, Arguments, Group, Invariant, Support
from traincheck.preconditions import Prop, Records, Unexplained, deduce, propose
from traincheck.relations.base import Candidate, Place
from traincheck.relations.calltree import CallSource, Ints, capture_props, parent_rows, slim
from traincheck.relations.contain_calls import PARENT
from traincheck.relations.contain_calls_learn import MIN_CALLS, MIN_STEPS, both, stages_known
from traincheck.relations.names import learnable
from traincheck.relations.tables import Tables

MOST_VALUES: Final = 4
"""An argument that took more values than this is none that selects something."""

_FLAGS: Final = frozenset(("bool", "torch.dtype", "torch.layout", "torch.memory_format", "enum"))
_CONFIGURED: Final = frozenset(("int", "float", "NoneType"))
_WORD: Final = re.compile(r"[a-z][a-z_]{1,23}")
_NAMES_SOMETHING: Final = re.compile(r"name|path|file|msg|message|prefix|suffix|key|tag|device|backend|dir|text|url")

_PLACE: Final = ["reference", "process", "caller"]
_WHAT: Final = ["parent", "child", "name"]


class _Argument(NamedTuple):
    parent: str
    child: str
    name: str
    type: str
    value: str


def hypothesize(references: Sequence[Tables]) -> list[Candidate]:
    """Candidates ``P > C(argument=value, …)``, one for each P, C and condition."""
    tables = [slim(reference.calls).sort("process", "call") for reference in references]
    known = stages_known(tables)
    calls = pl.concat([_inside(number, table) for number, table in enumerate(tables)])
    if calls.is_empty():
        return []
    given = pl.concat([_given(number, reference) for number, reference in enumerate(references)])
    per_call = _constant_in_call(calls, given)
    found = (
        per_call.group_by(*_WHAT, "type", "value")
        .agg(
            pl.len().alias("held"),
            pl.struct("reference", "step").filter(pl.col("step") > 0).n_unique().alias("steps"),
            pl.col("reference").unique().sort().alias("references"),
        )
        .filter(pl.col("held") >= MIN_CALLS, pl.col("steps") >= MIN_STEPS)
        .filter(pl.len().over(_WHAT) <= MOST_VALUES)
        .sort(*_WHAT, "type", "value")
    )
    apart = _configurations(given)
    grouped: dict[tuple[str, str], list[tuple[_Argument, pl.DataFrame]]] = {}
    for row in found.iter_rows(named=True):
        about = _Argument(row["parent"], row["child"], row["name"], row["type"], row["value"])
        if _may_be_constant(about, row["references"], apart):
            mine = per_call.filter(
                pl.col("parent") == about.parent,
                pl.col("child") == about.child,
                pl.col("name") == about.name,
                pl.col("type") == about.type,
                pl.col("value") == about.value,
            )
            grouped.setdefault((about.parent, about.child), []).append((about, mine.select(_PLACE)))
    return [
        candidate
        for (parent, child), arguments in sorted(grouped.items())
        for candidate in _of_pair(_Callers.of(parent, child, references, tables), arguments, known)
    ]


def _inside(number: int, table: pl.DataFrame) -> pl.DataFrame:
    """Returned calls of learnable functions with the innermost learnable call around them."""
    names = table["signature"].to_list()
    fine = {name for name in set(names) if name is not None and "\0" not in name and learnable(name)}
    good = np.fromiter((name in fine for name in names), dtype=bool, count=len(names))
    parents = parent_rows(table)
    above: Ints = parents.copy()
    for _ in range(10_000):
        wrong = (above >= 0) & ~good[above]
        if not wrong.any():
            break
        above = np.where(wrong, parents[above], above)
    rows = np.flatnonzero(good & (above >= 0))
    caller = table[above[rows]]
    return (
        table[rows]
        .select("process", "call", pl.col("signature").alias("child"))
        .with_columns(
            pl.lit(number).alias("reference"),
            caller["call"].alias("caller"),
            caller["signature"].alias("parent"),
            caller["step"].alias("step"),
        )
        .filter(pl.col("parent") != pl.col("child"))
    )


def _given(number: int, reference: Tables) -> pl.DataFrame:
    """Named scalar arguments of calls: reference, process, call, function, name, type, value."""
    plain = ["none", "bool", "int", "float", "symbol"]
    return (
        reference.captures.filter(pl.col("moment") == "in", pl.col("kind").is_in(plain), pl.col("value").is_not_null())
        .select("process", "call", *(pl.col(n).cast(pl.String) for n in ("function", "name", "type", "value")))
        .filter(pl.col("name").is_not_null(), ~pl.col("name").str.contains(r"[.\[@]"))
        .with_columns(pl.lit(number).alias("reference"))
    )


def _constant_in_call(calls: pl.DataFrame, given: pl.DataFrame) -> pl.DataFrame:
    """Calls of P all of whose calls of C got one value, with it."""
    occurrences = calls.group_by("parent", "child", *_PLACE).agg(pl.len().alias("times"))
    return (
        calls.join(given.drop("function"), on=["reference", "process", "call"])
        .group_by(*_WHAT, *_PLACE)
        .agg(
            pl.len().alias("told"),
            pl.struct("type", "value").n_unique().alias("different"),
            pl.col("type", "value", "step").first(),
        )
        .join(occurrences, on=["parent", "child", *_PLACE])
        .filter(pl.col("different") == 1, pl.col("told") == pl.col("times"))
    )


def _may_be_constant(about: _Argument, references: Sequence[int], apart: Mapping[tuple[int, int], bool]) -> bool:
    if about.type == "str":
        return bool(_WORD.fullmatch(about.value)) and not _NAMES_SOMETHING.search(about.name)
    if about.type in _CONFIGURED:
        return any(apart[one, two] for one in references for two in references if one < two)
    return about.type in _FLAGS


def _configurations(given: pl.DataFrame) -> dict[tuple[int, int], bool]:
    """Whether two references were given different numbers somewhere."""
    numbers = (
        given.filter(pl.col("type").is_in(["int", "float"]))
        .group_by("reference", "function", "name")
        .agg(pl.col("value").n_unique().alias("values"), pl.col("value").first())
        .filter(pl.col("values") == 1)
        .sort("reference", "function", "name")
    )
    of: dict[int, dict[tuple[str, str], str]] = {}
    for row in numbers.iter_rows(named=True):
        of.setdefault(row["reference"], {})[row["function"], row["name"]] = row["value"]
    count = int(given["reference"].max() or 0) + 1 if given.height else 0  # type: ignore[arg-type]
    return {
        (one, two): any(of.get(two, {}).get(key, value) != value for key, value in of.get(one, {}).items())
        for one in range(count)
        for two in range(one + 1, count)
    }


class _Callers(NamedTuple):
    """All calls of P in the references that can tell how C was called."""

    parent: str
    child: str
    calls: pl.DataFrame
    records: Records
    props: list[Prop]

    @classmethod
    def of(cls, parent: str, child: str, references: Sequence[Tables], tables: Sequence[pl.DataFrame]) -> _Callers:
        calls, captures = [], []
        apart = max(max(reference.processes, default=0) + 1 for reference in references)
        for number, (table, reference) in enumerate(zip(tables, references, strict=True)):
            if not reference.watch.watches(child):
                continue
            shift = (pl.col("process") + number * apart).cast(pl.UInt32)
            of = table.filter(pl.col("signature") == parent)
            calls.append(
                of.with_columns(
                    pl.lit(number).alias("reference"), pl.col("process").alias("own"), shift.alias("process")
                )
            )
            captures.append(
                reference.captures.filter(pl.col("function") == parent).with_columns(shift.alias("process"))
            )
        every, told = pl.concat(calls), pl.concat(captures)
        props = [Prop("meta_vars.stage", natural=True), *map(Prop, capture_props(told, parent))]
        return cls(parent, child, every, Records(every.height, [CallSource(every, told)]), props)

    def where(self, row: int) -> Place:
        """Which call it is."""
        bad = self.calls.row(row, named=True)
        return Place(bad["reference"], bad["own"], bad["step"], bad["call"])


def _of_pair(callers: _Callers, arguments: Sequence[tuple[_Argument, pl.DataFrame]], known: Group) -> list[Candidate]:
    """One candidate for each condition under which some arguments are constant; what nothing explains is rejected."""
    together: dict[str, tuple[Group, list[_Argument], np.ndarray]] = {}
    result: list[Candidate] = []
    for about, places in arguments:
        held = callers.calls.select("reference", pl.col("own").alias("process"), pl.col("call").alias("caller")).join(
            places.with_columns(pl.lit(True).alias("held")), on=_PLACE, how="left", maintain_order="left"
        )
        positive = held["held"].fill_null(False).to_numpy()
        features = propose(PARENT, callers.records, positive, callers.props)
        # That P passes on what it was given says nothing.
        features = [f for f in features if f.clause.prop_name != f"captures.{about.name}"]
        answer = deduce(positive, features, [PARENT], np.arange(len(positive)))
        if isinstance(answer, Unexplained):
            candidate = _invariant(callers, [about], ALWAYS, positive)
            where = callers.where(answer.example)
            result.append(Candidate(candidate, answer.reason, str(where), where))
            continue
        group = answer[PARENT]
        if "meta_vars.stage" not in group.model_dump_json():
            group = known if group == ALWAYS else both(group, known)
        text = group.model_dump_json()
        _, some, every = together.get(text, (group, [], np.ones(len(positive), dtype=bool)))
        together[text] = (group, [*some, about], every & positive)
    for group, some, positive in together.values():
        steps = callers.calls.filter(pl.Series(positive), pl.col("step") > 0).select("reference", "step").n_unique()
        few = f"held in {steps} training steps only" if steps < MIN_STEPS else None
        result.append(Candidate(_invariant(callers, some, group, positive), few))
    return result


def _invariant(callers: _Callers, arguments: Sequence[_Argument], group: Group, positive: np.ndarray) -> Invariant:
    good = callers.calls.filter(pl.Series(positive))
    held, excluded = good.height, callers.calls.height - good.height
    constants = {about.name: {about.type: _payload(about)} for about in arguments}
    return Invariant(
        text_description="",
        relation="APIContainRelation",
        params=[
            APIParam(param_type="APIParam", api_full_name=callers.parent),
            APIParam(
                param_type="APIParam",
                api_full_name=callers.child,
                arguments=Arguments(args=constants, func_name=callers.child),
            ),
        ],
        precondition={PARENT: group},
        num_positive_examples=held,
        num_negative_examples=excluded,
        support=Support(
            applications=held,
            excluded=excluded,
            steps=good.filter(pl.col("step") > 0).select("reference", "step").n_unique(),
            ranks=good.select("reference", "own").n_unique(),
            references=good["reference"].n_unique(),
        ),
    )


def _payload(about: _Argument) -> Any:
    if about.type == "NoneType":
        return None
    if about.type == "bool":
        return about.value == "True"
    if about.type == "int":
        return int(about.value)
    return float(about.value) if about.type == "float" else about.value
