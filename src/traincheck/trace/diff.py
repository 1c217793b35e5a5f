"""Where two runs part: the first step, call, captured value or tensor at which their traces differ.

Processes are matched by rank (by order when there are none); calls by step, thread and order; captures by call and
path; states by variable, attribute, step and observation. Identities and times are never compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import polars as pl

from traincheck.trace.trace import Trace

SCHEMA: Final = 1
MOST: Final = 20
"""How many partings, variables and functions a difference lists."""

_CALL_KEY: Final = ["pair", "step", "thread", "order"]
_CAPTURE_VALUES: Final = ["kind", "type", "value", "dtype", "shape", "device", "requires_grad", "is_leaf", "layout"]
_STATE_KEY: Final = ["pair", "step", "owner", "role", "variable", "attribute", "reason", "moment", "order"]
_STATE_VALUES: Final = ["kind", "value"]
_KINDS: Final = ("process", "step", "call", "capture", "state")


@dataclass(frozen=True)
class Parting:
    """One place at which the runs part. ``a`` and ``b`` say what each did there; None: nothing."""

    kind: str
    """process, step, call, capture or state."""
    step: int
    rank: int | None
    process: int
    seq: int
    what: str
    """The function, ``function path`` or ``variable.attribute``."""
    where: str
    """When it was seen: the observation, or the place in the user's code."""
    a: str | None
    b: str | None

    def text(self) -> str:
        """As a sentence."""
        who = f"process {self.process}" if self.rank is None else f"rank {self.rank}"
        at = f" ({self.where})" if self.where else ""
        return f"step {self.step}, {who}: {self.what}{at}: {_said(self.a)} in A, {_said(self.b)} in B"


@dataclass(frozen=True)
class Diff:
    """Result of ``diff``. ``first`` is where the runs part.

    ``firsts`` are the first of each kind and process, of states also of each role, in order.
    """

    a: str
    b: str
    first: Parting | None
    firsts: list[Parting]
    compared: dict[str, int]
    """How many calls, captures and states were matched or found on one side only."""
    states_differing: int
    variables: list[str]
    """Variables that differ at the first step at which any does (at most 20)."""
    function_counts: list[tuple[str, int, int]]
    """Functions called a different number of times: (name, in A, in B), largest difference first (at most 20)."""
    notes: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Whether nothing that was compared differs."""
        return self.first is None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"schema": SCHEMA, "same": self.same, **asdict(self)}

    def text(self) -> str:
        """As plain text."""
        counted = ", ".join(f"{count} {name}" for name, count in self.compared.items())
        lines = [f"A: {self.a}", f"B: {self.b}"]
        if self.first is None:
            lines.append(f"The runs are the same in everything compared: {counted}.")
        else:
            lines.append(f"The runs part at {self.first.text()}.")
            others = [parting for parting in self.firsts if parting is not self.first]
            if others:
                lines.append("Then:")
                lines.extend(f"  {parting.text()}" for parting in others[:MOST])
                if len(others) > MOST:
                    lines.append(f"  … and {len(others) - MOST} more")
            if self.variables:
                lines.append(f"Variables that differ first: {', '.join(self.variables)}")
            if self.function_counts:
                lines.append("Called a different number of times (A, B):")
                lines.extend(f"  {name}: {a}, {b}" for name, a, b in self.function_counts)
            lines.append(f"Compared: {counted}; {self.states_differing} states differ.")
        lines.extend(f"Note: {note}" for note in self.notes)
        return "\n".join(lines)


def diff(a: Trace, b: Trace) -> Diff:
    """Find where the runs of two traces part."""
    notes = [*_lacking("A", a), *_lacking("B", b)]
    pairs, partings = _pairs(a, b, notes)
    common = None
    if _plan(a) != _plan(b):
        common = pl.Series(sorted(set(a.functions["function"].to_list()) & set(b.functions["function"].to_list())))
        notes.append("The runs were collected with different plans: only functions known to both are compared.")
    partings.extend(_step_partings(a, b, pairs))
    calls_a, calls_b = (_calls(trace, pairs[side], common) for side, trace in enumerate((a, b)))
    calls = calls_a.join(calls_b, on=_CALL_KEY, how="full", coalesce=True, suffix="_b")
    partings.extend(_call_partings(calls))
    captures = _captures(a, b, calls, strict=common is None)
    partings.extend(_capture_partings(captures))
    states_a, states_b = (_states(trace, pairs[side]) for side, trace in enumerate((a, b)))
    states = states_a.join(states_b, on=_STATE_KEY, how="full", coalesce=True, suffix="_b", nulls_equal=True)
    differing = states.filter(_differs(_STATE_VALUES))
    partings.extend(_state_partings(differing))

    partings.sort(key=lambda parting: (parting.step, parting.seq, _KINDS.index(parting.kind), parting.process))
    return Diff(
        a=str(a.path or "(in memory)"),
        b=str(b.path or "(in memory)"),
        first=partings[0] if partings else None,
        firsts=partings,
        compared={"calls": len(calls), "captures": len(captures), "states": len(states)},
        states_differing=len(differing),
        variables=_first_variables(differing),
        function_counts=_function_counts(calls),
        notes=notes,
    )


# --- matching ---------------------------------------------------------------------------------------------------------


def _lacking(name: str, trace: Trace) -> Iterator[str]:
    if trace.lacks:
        more = f" (and {len(trace.lacks) - 1} more)" if len(trace.lacks) > 1 else ""
        yield f"{name} is not complete: {trace.lacks[0].text}{more}"


def _plan(trace: Trace) -> str | None:
    return trace.manifest.plan_hash if trace.manifest else None


def _pairs(a: Trace, b: Trace, notes: list[str]) -> tuple[tuple[pl.DataFrame, pl.DataFrame], list[Parting]]:
    """(process -> number of the pair) for each side, and processes that only one side has."""
    ranks = [[p.rank for p in trace.processes] for trace in (a, b)]
    by_rank = all(None not in side and len(set(side)) == len(side) for side in ranks)
    keys = [side if by_rank else list(range(len(side))) for side in ranks]
    if not by_rank and max(len(side) for side in ranks) > 1:
        notes.append("Processes have no distinct ranks: they are matched in order of their start.")
    common = [key for key in keys[0] if key in keys[1]]
    partings = [
        Parting(
            kind="process",
            step=0,
            rank=process.rank,
            process=process.index,
            seq=0,
            what=f"process {process.name}",
            where="",
            a="present" if side == 0 else None,
            b="present" if side == 1 else None,
        )
        for side, trace in enumerate((a, b))
        for key, process in zip(keys[side], trace.processes, strict=True)
        if key not in common
    ]
    tables = [
        pl.DataFrame(
            [(index, common.index(key)) for index, key in enumerate(side) if key in common],
            schema={"process": pl.UInt32, "pair": pl.UInt32},
            orient="row",
        )
        for side in keys
    ]
    return (tables[0], tables[1]), partings


def _calls(trace: Trace, pairs: pl.DataFrame, functions: pl.Series | None) -> pl.DataFrame:
    calls = trace.calls
    if functions is not None:
        calls = calls.filter(pl.col("function").cast(pl.String).is_in(functions.cast(pl.String).implode()))
    order = pl.int_range(pl.len()).over("process", "step", "thread").alias("order")
    columns = ["process", "rank", "call", "begin_seq", "function", "outcome", "exception", "location"]
    return calls.with_columns(order).join(pairs, on="process").select(*_CALL_KEY, *columns)


def _captures(a: Trace, b: Trace, calls: pl.DataFrame, strict: bool) -> pl.DataFrame:
    """Captures of the calls that are the same function on both sides, side by side.

    After the first call of a step that differs, the rest of that step on that thread is out of line, and left out.
    """
    other = pl.col("function").ne_missing(pl.col("function_b"))
    parted = pl.col("order").filter(other).min().over(["pair", "step", "thread"])
    matched = calls.filter(~other & (parted.is_null() | (pl.col("order") < parted))).with_row_index("match")
    sides = []
    for trace, end in ((a, ""), (b, "_b")):
        keys = matched.select("match", pl.col(f"process{end}").alias("process"), pl.col(f"call{end}").alias("call"))
        order = pl.int_range(pl.len()).over("match", "moment", "path").alias("order")
        found = trace.captures.join(keys, on=["process", "call"]).with_columns(order)
        sides.append(
            found.select(
                "match", "moment", "path", "order", "process", "rank", "seq", "step", "function", *_CAPTURE_VALUES
            )
        )
    # with different plans a capture that one side never asked for is no difference
    how: Any = "full" if strict else "inner"
    both = sides[0].join(
        sides[1], on=["match", "moment", "path", "order"], how=how, coalesce=True, suffix="_b", nulls_equal=True
    )
    return both.join(matched.select("match", "location"), on="match", how="left")


def _states(trace: Trace, pairs: pl.DataFrame) -> pl.DataFrame:
    states = trace.states.join(pairs, on="process")
    order = pl.int_range(pl.len()).over([key for key in _STATE_KEY if key != "order"]).alias("order")
    return states.with_columns(order).select(
        *_STATE_KEY, "process", "rank", "seq", "type", "int", "float", *_STATE_VALUES
    )


def _differs(columns: Sequence[str]) -> pl.Expr:
    return pl.any_horizontal(
        pl.col("seq").is_null() | pl.col("seq_b").is_null(),
        *(pl.col(name).ne_missing(pl.col(f"{name}_b")) for name in columns),
    )


# --- what was found ---------------------------------------------------------------------------------------------------


def _first(frame: pl.DataFrame, seq: str, *of: str) -> Iterator[dict[str, Any]]:
    """The earliest row of each process (and each value of the columns ``of``)."""
    at = pl.coalesce(seq, f"{seq}_b")
    yield from (
        frame.with_columns(at=at, who=pl.coalesce("process", "process_b"), as_rank=pl.coalesce("rank", "rank_b"))
        .sort("step", "at", maintain_order=True)
        .unique(["who", *of], keep="first", maintain_order=True)
        .to_dicts()
    )


def _step_partings(a: Trace, b: Trace, pairs: tuple[pl.DataFrame, pl.DataFrame]) -> Iterator[Parting]:
    sides = [
        trace.marks.filter(pl.col("kind") == "step_begin")
        .unique(["process", "value"], keep="first", maintain_order=True)
        .join(pairs[side], on="process")
        .select("pair", pl.col("value").alias("step"), "process", "rank", "seq")
        for side, trace in enumerate((a, b))
    ]
    both = sides[0].join(sides[1], on=["pair", "step"], how="full", coalesce=True, suffix="_b")
    for row in _first(both.filter(_differs([])), "seq"):
        here = row["seq"] is not None
        yield Parting(
            kind="step",
            step=row["step"],
            rank=row["as_rank"],
            process=row["who"],
            seq=row["at"],
            what=f"step {row['step']}",
            where="",
            a="begun" if here else None,
            b=None if here else "begun",
        )


def _call_partings(calls: pl.DataFrame) -> Iterator[Parting]:
    different = calls.filter(
        pl.col("function").ne_missing(pl.col("function_b"))
        | pl.col("outcome").ne_missing(pl.col("outcome_b"))
        | pl.col("exception").ne_missing(pl.col("exception_b"))
    )
    for row in _first(different, "begin_seq"):
        a, b = (_call_text(row, end) for end in ("", "_b"))
        same = row["function"] is not None and row["function"] == row["function_b"]
        yield Parting(
            kind="call",
            step=row["step"],
            rank=row["as_rank"],
            process=row["who"],
            seq=row["at"],
            what=f"call of {row['function']}"
            if same
            else f"call {row['order'] + 1} of the step on thread {row['thread']}",
            where=row["location"] or row["location_b"] or "",
            a=a,
            b=b,
        )


def _call_text(row: dict[str, Any], end: str) -> str | None:
    if row[f"begin_seq{end}"] is None:
        return None
    outcome = row[f"outcome{end}"]
    raised = (
        f" raising {row[f'exception{end}']}" if outcome == "raised" else " (not ended)" if outcome == "open" else ""
    )
    return f"{row[f'function{end}']}{raised}"


def _capture_partings(captures: pl.DataFrame) -> Iterator[Parting]:
    different = captures.filter(_differs(_CAPTURE_VALUES)).with_columns(step=pl.coalesce("step", "step_b"))
    for row in _first(different, "seq"):
        yield Parting(
            kind="capture",
            step=row["step"],
            rank=row["as_rank"],
            process=row["who"],
            seq=row["at"],
            what=f"{row['function'] or row['function_b']} {row['path']}",
            where=row["location"] or "",
            a=_value_text(row, ""),
            b=_value_text(row, "_b"),
        )


def _state_partings(states: pl.DataFrame) -> Iterator[Parting]:
    for row in _first(states, "seq", "role"):
        yield Parting(
            kind="state",
            step=row["step"],
            rank=row["as_rank"],
            process=row["who"],
            seq=row["at"],
            what=f"{row['variable']}.{row['attribute']}",
            where=f"{row['moment']} {row['reason']}",
            a=_value_text(row, ""),
            b=_value_text(row, "_b"),
        )


def _value_text(row: dict[str, Any], end: str) -> str | None:
    if row[f"seq{end}"] is None:
        return None
    if row[f"kind{end}"] == "tensor" and f"dtype{end}" in row:
        grad = ", requires grad" if row[f"requires_grad{end}"] else ""
        return f"{row[f'type{end}']} {row[f'dtype{end}']} {row[f'shape{end}']} on {row[f'device{end}']}{grad}"
    value = row[f"value{end}"]
    return value if value is not None else f"{row[f'kind{end}']} {row[f'type{end}'] or ''}".strip()


def _said(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value if len(value) <= 80 else value[:77] + "..."


def _first_variables(differing: pl.DataFrame) -> list[str]:
    if differing.is_empty():
        return []
    at_first = differing.filter(pl.col("step") == pl.col("step").min())
    order = at_first.with_columns(at=pl.coalesce("seq", "seq_b")).sort("at")
    names: list[str] = order["variable"].cast(pl.String).drop_nulls().unique(maintain_order=True).head(MOST).to_list()
    return names


def _function_counts(calls: pl.DataFrame) -> list[tuple[str, int, int]]:
    counts = [
        calls.group_by(pl.col(name).cast(pl.String).alias("name")).len(as_).drop_nulls("name")
        for name, as_ in (("function", "a"), ("function_b", "b"))
    ]
    both = counts[0].join(counts[1], on="name", how="full", coalesce=True).fill_null(0)
    different = both.filter(pl.col("a") != pl.col("b")).with_columns(
        by=(pl.col("a").cast(pl.Int64) - pl.col("b").cast(pl.Int64)).abs()
    )
    return different.sort(["by", "name"], descending=[True, False]).select("name", "a", "b").head(MOST).rows()
