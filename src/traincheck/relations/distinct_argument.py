"""DistinctArgumentRelation: no two calls of F are given the same: within a step, over ranks, or from step to step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np
import polars as pl

from traincheck.invariants import APIParam, Clause, Conjunction, Group, Invariant, Support
from traincheck.preconditions import Records, holds
from traincheck.relations import call_values_rules as rules
from traincheck.relations.base import (
    MOST_VIOLATIONS,
    VIOLATIONS,
    Candidate,
    Explanation,
    Judgement,
    Needs,
    Numbered,
    Place,
    Row,
    StateNeed,
    fit,
)
from traincheck.relations.call_arrays import Tally, call_keys
from traincheck.relations.call_arrays import judgement as of_tallies
from traincheck.relations.call_values import MODEL_CALL, ValueCarry, ended
from traincheck.relations.call_values_content import (
    contents,
    digests,
    in_neighbouring_steps,
    in_one_step,
    last_two_steps,
)
from traincheck.relations.calltree import CallSource, Ints
from traincheck.relations.names import learnable, short
from traincheck.relations.numbers import Mask, code, member, objects, table
from traincheck.relations.tables import Tables, Window
from traincheck.relations.wording import condition, properties

GROUP: Final = "distinct_arg"
MIN_PAIRS: Final = 3
MIN_STEPS: Final = 2

_SEEDS: Final = re.compile(r"(^|\.)(manual_seed(_all)?|set_epoch|seed_all|seed_everything)$")
"""Functions whose arguments are meant to be different ones: rules are learned of these, and of a model's input."""

_STEP: Final = "meta_vars.step"
_NO_CAPTURES: Final = pl.DataFrame(
    schema={"process": pl.UInt32, "call": pl.UInt64, "moment": pl.String, "name": pl.String, "path": pl.String}
)

Form = Literal["steps", "step", "ranks"]


@dataclass(frozen=True)
class DistinctCarry:
    """What spans windows: captures and digests of open calls, calls to compare with, where processes are."""

    values: ValueCarry
    digests: pl.DataFrame
    open: pl.DataFrame
    rows: pl.DataFrame
    newest: dict[int, int]


class DistinctArgument:
    """See docs/relations.md, *DistinctArgument*."""

    name: str = "DistinctArgumentRelation"
    scope: Literal["process", "run"] = "run"

    def supports(self, invariant: Invariant) -> str | None:
        """Conditions on captures of the two calls are none that 0.x or we learn."""
        if any(prop.startswith("captures.") for prop in properties(invariant)):
            return "conditions on arguments have no meaning where arguments are compared"
        return rules.unsupported(invariant)

    def needs(self, invariant: Invariant) -> Needs:
        """The function with its arguments; of a model's call the content of its input."""
        function = rules.function_of(invariant)
        found = rules.needs(invariant, ["*"])
        if function != MODEL_CALL:
            return found
        state = Needs(states=frozenset((StateNeed(function, "input", "data"),)), consecutive_steps=_across(invariant))
        return found | state

    def fold(self, invariants: Sequence[Invariant]) -> list[Invariant]:
        """Nothing follows from anything here."""
        return list(invariants)

    def evaluate(
        self, invariants: Sequence[Numbered], window: Window, carry: DistinctCarry | None
    ) -> tuple[Judgement, DistinctCarry]:
        """Judge each pair in the window in which its second call ends."""
        functions = sorted({rules.function_of(invariant) for _, invariant in invariants})
        found, values = ended(window, functions, None if carry is None else carry.values)
        seen = digests(window)
        if carry is not None:
            seen = pl.concat([carry.digests, seen])
        new = contents(found, seen)
        rows = new if carry is None or not carry.rows.height else pl.concat([carry.rows, new])
        calls = _Calls(rows, np.arange(rows.height) >= rows.height - new.height)
        counted, judged = Tally(table(found.calls, ("process", "rank", "step"))), Tally(calls.places)
        returned = _Calls(found.calls, np.isin(_keys(found.calls), _keys(new)))
        violations = [pl.DataFrame(schema=VIOLATIONS)]
        for number, invariant in invariants:
            mine = returned.of(rules.function_of(invariant))
            counted.add(number, called=mine.rows, observed=mine.rows[mine.marked])
            violations.append(_judge(number, invariant, calls, judged))
        judgement = replace(of_tallies(counted, judged), violations=pl.concat(violations))
        still = seen.join(values.above, on=["process", "call"], how="semi", maintain_order="left")
        return judgement, _carry(window, carry, functions, values, still, rows)

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """What models are called with, and seeds: from step to step, within a step, over ranks."""
        names = {
            name
            for reference in references
            for name in reference.calls["function"].unique().cast(pl.String).to_list()
            if name is not None and learnable(name) and (name == MODEL_CALL or _SEEDS.search(name))
        }
        frames = []
        for reference in references:
            window = reference.window()
            frames.append(contents(ended(window, sorted(names), None)[0], digests(window)))
        forms: tuple[Form, ...] = ("steps", "step", "ranks")
        found = (_learn(name, form, frames) for name in sorted(names) for form in forms)
        return [candidate for candidate in found if candidate is not None]

    def describe(self, invariant: Invariant) -> str:
        """As 0.x labels it, with the condition."""
        which = condition(invariant, GROUP, "for calls with")
        return f"{_api(invariant)} receives distinct arguments{which or ' at each step'}"

    def dormant(self, invariant: Invariant, called: int, observed: int) -> str:
        """Why it never applied."""
        if not called:
            return f"{_api(invariant)} was never called (and returned)"
        if not observed:
            return self.unobserved(invariant)
        where = "neighbouring steps" if _across(invariant) else "one step"
        return f"no two calls of {_api(invariant)} in {where} met its precondition and could be told apart"

    def unobserved(self, invariant: Invariant) -> str:
        """What was not recorded."""
        return f"nothing of what {_api(invariant)} was given was recorded with its content"

    def explain(self, invariant: Invariant, rows: Sequence[Row]) -> Explanation:
        """Which two calls were given the same."""
        function, first = rules.function_of(invariant), rows[0]
        what = "input" if function == MODEL_CALL else "arguments"
        ranks = first["other_process"] != first["process"]
        other = f" on {_rank(first)}" if ranks else ""
        where = str(first["other_variable"])
        return Explanation(
            title=f"{_api(invariant)} was given the same {what} twice",
            expected=self.describe(invariant),
            observed=f"{_api(invariant)} in step {first['step']} was given the same {what} as {where}{other}",
            meaning=_MEANINGS["ranks" if ranks else "steps" if _across(invariant) else "step"],
            kind=f"distinct {function}",
            apis=(function,),
            tensors=("input",) if function == MODEL_CALL else (),
            specificity=70,
        )


_MEANINGS: Final[dict[Form, str]] = {
    "steps": "The data does not move on: the same batch at every step (an iterator made anew each time, an index that "
    "is not advanced, a sampler without shuffling or set_epoch), or a seed that is set to the same value again.",
    "step": "The same data is used twice within a step: micro-batches of an accumulation are not different ones, or a "
    "seed is set to the same value again.",
    "ranks": "Ranks see the same data: no DistributedSampler, a sampler that does not know its rank, or one seed for "
    "all ranks. The run is as good as one of a single rank.",
}


def _api(invariant: Invariant) -> str:
    return f"{short(rules.function_of(invariant))}()"


def _rank(row: Row) -> str:
    return f"rank {row['other_rank']}" if row["other_rank"] is not None else f"process {row['other_process']}"


def _across(invariant: Invariant) -> bool:
    """Whether it speaks of calls in different steps; without such a clause it is about the calls of one step."""
    group = invariant.precondition.get(GROUP)
    return group is not None and any(
        isinstance(clause, Clause) and clause.type == "unequal" and clause.prop_name == _STEP
        for conj in group.preconditions
        for clause in conj.clauses
    )


class _Mine(NamedTuple):
    """Calls of one function."""

    frame: pl.DataFrame
    rows: Ints
    """Where they stand among all calls."""
    marked: Mask


class _Calls:
    """Calls, some of them marked, by function."""

    def __init__(self, frame: pl.DataFrame, marked: Mask) -> None:
        self.places = table(frame, ("process", "rank", "step"))
        self._frame = frame
        self._marked = marked
        self._names = objects(frame["function"])
        self._of: dict[str, _Mine] = {}

    def of(self, function: str) -> _Mine:
        """Those of the function."""
        if function not in self._of:
            rows = np.flatnonzero(self._names == function)
            self._of[function] = _Mine(self._frame[rows], rows, self._marked[rows])
        return self._of[function]


def _keys(frame: pl.DataFrame) -> Ints:
    return call_keys(table(frame, ("process", "call")))


def _codes(rows: pl.DataFrame, column: str) -> Ints:
    """Numbers that are equal where the values are; 0 for none."""
    known: dict[object, int] = {}
    values = rows[column].to_list()
    return np.array([0 if one is None else known.setdefault(one, len(known) + 1) for one in values], dtype=np.int64)


def _pairs(rows: pl.DataFrame, across: bool, group: Group | None) -> Iterator[tuple[Ints, Ints, np.ndarray]]:
    """Pairs that meet the precondition and can be told apart or not, and which of them are the same."""
    content, unknown, receiver = (_codes(rows, name) for name in ("content", "unknown", "receiver"))
    process = rows["process"].to_numpy()
    whole = (rows["unknown"] == "").to_numpy()
    for one, two in in_neighbouring_steps(rows) if across else in_one_step(rows):
        if group is not None and not group.unconditional:
            sides = [CallSource(rows[side], _NO_CAPTURES) for side in (one, two)]
            met = holds(group, Records(len(one), sides))
            one, two = one[met], two[met]
        # The same thing given to two different objects of a process is not given twice.
        same = content[one] == content[two]
        same &= (process[one] != process[two]) | (receiver[one] == receiver[two])
        told = (unknown[one] == unknown[two]) & (~same | whole[one])
        yield one[told], two[told], same[told]


def _judge(number: int, invariant: Invariant, calls: _Calls, tally: Tally) -> pl.DataFrame:
    """Counts pairs of which one is new; the violations."""
    mine = calls.of(rules.function_of(invariant))
    bad: list[tuple[Ints, Ints]] = []
    if mine.marked.any():
        for one, two, same in _pairs(mine.frame, _across(invariant), invariant.precondition.get(GROUP)):
            new = mine.marked[one] | mine.marked[two]
            one, two, same = one[new], two[new], same[new]
            tally.add(number, applied=mine.rows[one], violated=mine.rows[one[same]])
            bad.append((one[same], two[same]))
    return _violations(number, mine.frame, bad)


def _violations(number: int, rows: pl.DataFrame, bad: Sequence[tuple[Ints, Ints]]) -> pl.DataFrame:
    one = np.concatenate([np.empty(0, dtype=np.int64), *(pair[0] for pair in bad)])[:MOST_VIOLATIONS]
    two = np.concatenate([np.empty(0, dtype=np.int64), *(pair[1] for pair in bad)])[:MOST_VIOLATIONS]
    if not len(one):
        return pl.DataFrame(schema=VIOLATIONS)
    other = rows[two].select(
        pl.col("process").alias("other_process"),
        pl.col("rank").alias("other_rank"),
        pl.col("end_seq").alias("other_seq"),
        pl.concat_str(
            pl.lit("call "), pl.col("call").cast(pl.String), pl.lit(" in step "), pl.col("step").cast(pl.String)
        ).alias("other_variable"),
    )
    shown = pl.col("content").str.replace_all("[\x1e\x1f]", " ").str.strip_chars().str.slice(0, 120)
    frame = pl.concat([rows[one], other], how="horizontal").with_columns(
        pl.lit(number).alias("invariant"),
        pl.col("end_seq").alias("seq"),
        pl.col("end_ns").alias("time_ns"),
        pl.lit("arguments").alias("attribute"),
        shown.alias("before"),
        shown.alias("after"),
    )
    return fit(frame, VIOLATIONS)


def _carry(
    window: Window,
    carry: DistinctCarry | None,
    functions: Sequence[str],
    values: ValueCarry,
    still: pl.DataFrame,
    rows: pl.DataFrame,
) -> DistinctCarry:
    newest = dict(carry.newest) if carry is not None else {}
    calls = table(window.calls, ("process", "call", "step", "function", "ended"))
    for process in np.unique(calls["process"]).tolist():
        highest = int(calls["step"][calls["process"] == process].max())
        newest[process] = max(newest.get(process, 0), highest)
    going_on = member(calls["function"], (code(name) for name in functions)) & (calls["ended"] != 1)
    unfinished = window.calls[np.flatnonzero(going_on)].select("process", "call", "step")
    if carry is not None and carry.open.height:
        done = call_keys(calls)[calls["ended"] == 1]
        unfinished = pl.concat([carry.open.filter(~np.isin(_keys(carry.open), done)), unfinished])
    horizon = min((newest.get(process, 0) for process in window.processes), default=2**31 - 1)
    late = unfinished["step"].min()
    if isinstance(late, int):
        horizon = min(horizon, late)
    keep = rows.filter(pl.col("step") >= horizon)
    both = pl.concat([keep, last_two_steps(rows)]).unique(["process", "call"], keep="first", maintain_order=True)
    return DistinctCarry(values, still, unfinished, both, newest)


# --- learning ----------------------------------------------------------------------------------------------------


def _learn(function: str, form: Form, frames: Sequence[pl.DataFrame]) -> Candidate | None:
    """Whether pairs of this form were always given different things."""
    # Evaluation sees the same data again each time; seeds are set in any stage.
    group = _group(form, "training" if function == MODEL_CALL else None)
    pairs, same = 0, 0
    steps: set[tuple[int, int]] = set()
    processes: set[tuple[int, int]] = set()
    where, told = None, None
    for number, frame in enumerate(frames):
        rows = frame.filter(pl.col("function") == function)
        for one, two, equal in _pairs(rows, form == "steps", group):
            pairs, same = pairs + len(one), same + int(equal.sum())
            step, process = rows["step"].to_numpy()[one], rows["process"].to_numpy()[one]
            steps |= {(number, int(s)) for s in np.unique(step[step > 0])}
            processes |= {(number, int(p)) for p in np.unique(process)}
            if equal.any() and where is None:
                bad = rows.row(int(one[equal][0]), named=True)
                where = Place(number, bad["process"], bad["step"], bad["call"])
                told = f"{where} was given the same as call {rows['call'][int(two[equal][0])]}"
    if not pairs or same == pairs:
        return None
    support = Support(
        applications=pairs - same,
        excluded=same,
        steps=len(steps),
        ranks=len(processes),
        references=len({n for n, _ in processes}),
    )
    invariant = Invariant(
        text_description="",
        relation=DistinctArgument.name,
        params=[APIParam(param_type="APIParam", api_full_name=function)],
        precondition={GROUP: group},
        num_positive_examples=pairs - same,
        num_negative_examples=same,
        support=support,
    )
    if same:
        return Candidate(invariant, "the same was given again in the references", told, where)
    if pairs < MIN_PAIRS or len(steps) < MIN_STEPS:
        return Candidate(invariant, f"held for {pairs} pairs of calls in {len(steps)} training steps only")
    return Candidate(invariant)


def _group(form: Form, stage: str | None) -> Group:
    def clause(kind: Literal["consistent", "unequal"], prop: str) -> Clause:
        return Clause(type=kind, prop_name=prop, additional_path="None", prop_dtype="int")

    clauses = {
        "steps": [clause("unequal", _STEP)],
        "step": [clause("consistent", _STEP), clause("consistent", "process_id")],
        "ranks": [clause("consistent", _STEP), clause("unequal", "rank")],
    }[form]
    if stage is not None:
        clauses.append(rules.stage_clause([stage]))
    return Group(inverted=False, preconditions=[Conjunction(clauses=clauses)])
