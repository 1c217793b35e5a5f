"""ConsistencyRelation: an attribute of two variables that are alive together has the same value.

Alive together: seen in one observation of a process, or, in different processes, in observations that stand at the
same place of the run: same step, same reason, same moment, same number within the step. What ranks see is aligned by
that place, never by clocks. ``baseline`` observations (before the first update) are not judged: replicas may not have
met yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

from traincheck.invariants import Clause, Conjunction, Group, Invariant, Support, VarNameParam, VarParam, VarTypeParam
from traincheck.preconditions import (
    Prop,
    Records,
    Unexplained,
    deduce,
    holds,
    meta_column,
    number_column,
    propose,
    text_column,
)
from traincheck.relations.base import (
    COUNTS,
    MOST_VIOLATIONS,
    VIOLATIONS,
    Candidate,
    Explanation,
    Judgement,
    Needs,
    Numbered,
    Row,
    StateNeed,
    fit,
)
from traincheck.relations.names import as_recorded, last, short
from traincheck.relations.tables import Tables, Window, key_text
from traincheck.relations.wording import condition, kind_of, names, properties

GROUP: Final = "var"
BASELINE: Final = "baseline"
MIN_PAIRS: Final = 3
MIN_STEPS: Final = 2

LEARNED_ROLES: Final = ("parameter", "buffer", "optimizer_state")
"""Whose content may be replicated. That ranks share a seed or a batch in one run is no rule."""

_PLACE: Final = ["step", "reason", "moment", "number"]
_COLUMNS: Final = {"var_name": "variable", "var_type": "variable_type", "owner": "owner", "role": "role"}
_FROM: Final = "observation."


@dataclass(frozen=True)
class ConsistencyCarry:
    """Rows of steps that not all processes have left, observations counted so far, last facts of variables."""

    rows: pl.DataFrame
    counts: pl.DataFrame
    facts: pl.DataFrame
    newest: dict[int, int]


class Consistency:
    """See docs/relations.md, *Consistency*."""

    name: str = "ConsistencyRelation"
    scope: Literal["process", "run"] = "run"

    def supports(self, invariant: Invariant) -> str | None:
        """Values of the parameters have no meaning here."""
        for param in invariant.params:
            if isinstance(param, (VarTypeParam, VarNameParam)) and any(
                param.is_set(name) for name in ("pre_value", "post_value", "const_value")
            ):
                return "values of variables have no meaning in a consistency"
        return None

    def needs(self, invariant: Invariant) -> Needs:
        """The attributes wherever they are observed, and what the precondition asks for."""
        one, two = _params(invariant)
        asked = properties(invariant)
        return Needs(
            states=frozenset(StateNeed(None, param.var_type, param.attr_name) for param in (one, two)),
            facts=frozenset(prop.removeprefix("attributes.") for prop in asked if prop.startswith("attributes.")),
            stages="meta_vars.stage" in asked,
        )

    def fold(self, invariants: Sequence[Invariant]) -> list[Invariant]:
        """Nothing follows from anything here."""
        return list(invariants)

    def evaluate(
        self, invariants: Sequence[Numbered], window: Window, carry: ConsistencyCarry | None
    ) -> tuple[Judgement, ConsistencyCarry]:
        """Judge each pair when its second variable is seen."""
        wanted: set[tuple[str, str]] = set()
        asked: set[str] = set()
        for _, invariant in invariants:
            wanted |= {(param.var_type, param.attr_name) for param in _params(invariant)}
            asked |= {
                as_recorded(p.removeprefix("attributes.")) for p in properties(invariant) if p.startswith("attributes.")
            }
        types = sorted({kind for kind, _ in wanted})
        attributes = sorted({attribute for _, attribute in wanted} | asked)
        states = _slim(
            window.states.filter(
                pl.col("variable_type").cast(pl.String).is_in(types),
                pl.col("attribute").cast(pl.String).is_in(attributes),
            )
        )
        states, counts = _numbered(states, None if carry is None else carry.counts)
        facts = states if carry is None else pl.concat([carry.facts, states], how="diagonal_relaxed")
        old = states.clear() if carry is None else carry.rows
        both = pl.concat([old.with_columns(pl.lit(False).alias("new")), states.with_columns(pl.lit(True).alias("new"))])
        both = both.filter(
            pl.col("reason") != BASELINE, pl.col("key").is_not_null(), ~pl.col("kind").is_in(["missing", "error"])
        )
        parts, violations = [], []
        for index, invariant in invariants:
            judged, bad = _judge(index, invariant, both, facts)
            parts.append(judged)
            violations.append(bad)
        newest = dict(carry.newest) if carry is not None else {}
        for process, step in window.states.group_by("process").agg(pl.col("step").max()).sort("process").iter_rows():
            newest[process] = max(newest.get(process, 0), step or 0)
        done = min((newest.get(process, 0) for process in window.processes), default=2**31 - 1)
        kept = both.filter(pl.col("step") >= done).drop("new") if window.processes else both.clear().drop("new")
        last_facts = facts.unique(["process", "owner", "variable", "attribute"], keep="last", maintain_order=True)
        early = facts.filter(pl.col("step") >= done) if window.processes else facts.clear()
        facts = pl.concat([last_facts, early]).unique(maintain_order=True).sort("process", "seq")
        judgement = Judgement(
            pl.concat(parts) if parts else pl.DataFrame(schema=COUNTS),
            pl.concat(violations) if violations else pl.DataFrame(schema=VIOLATIONS),
        )
        return judgement, ConsistencyCarry(kept, counts, facts, newest)

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """Content of the same variable on different ranks, per (type, role, attribute)."""
        frames = []
        for number, reference in enumerate(references):
            states, _ = _numbered(_slim(reference.states), None)
            frames.append(states.with_columns(pl.lit(number).alias("reference")))
        states = pl.concat(frames).filter(
            pl.col("role").is_in(LEARNED_ROLES),
            pl.col("kind").is_in(["digest", "none"]),
            pl.col("reason") != BASELINE,
            pl.col("key").is_not_null(),
        )
        result: list[Candidate] = []
        keys = ["variable_type", "role", "attribute"]
        for (kind, role, attribute), rows in states.sort(*keys, "reference", "process", "seq").group_by(
            keys, maintain_order=True
        ):
            found = _learn(str(kind), str(role), str(attribute), rows, states)
            if found is not None:
                result.append(found)
        return result

    def describe(self, invariant: Invariant) -> str:
        """The attribute and the condition."""
        one, two = _params(invariant)
        first = f"{kind_of(invariant, GROUP, one.var_type)}.{_attribute(one.attr_name)}"
        second = f"{kind_of(invariant, GROUP, two.var_type)}.{_attribute(two.attr_name)}"
        both = first if first == second else f"{first} and {second}"
        shared = condition(invariant, GROUP, "", without="role").strip()
        return f"{both} is equal for two variables with {shared or 'anything'}"

    def dormant(self, invariant: Invariant, called: int, observed: int) -> str:
        """Why it never applied."""
        one, _ = _params(invariant)
        if not called:
            return f"no {last(one.var_type)}.{one.attr_name} was observed"
        return "no two variables that were seen at the same place of the run met its precondition (one process only?)"

    def explain(self, invariant: Invariant, rows: Sequence[Row]) -> Explanation:
        """Which tensors differ between which ranks."""
        one, _ = _params(invariant)
        attribute = _attribute(one.attr_name)
        tensors = tuple(sorted({str(row["variable"]) for row in rows} | {str(row["other_variable"]) for row in rows}))
        sides = sorted({_rank(row, side) for row in rows for side in ("", "other_")})
        across = len({row["process"] for row in rows} | {row["other_process"] for row in rows}) > 1
        who = f"{names(tensors)}.{attribute}" if len(tensors) == 1 else f"{attribute} of {names(tensors)}"
        between = f"differs between {names(sides, 8)}" if across else "differs"
        first = rows[0]
        meaning = {
            "data": "The replicas have parted: gradients were not averaged over the ranks (the wrapped module was "
            "bypassed, no_sync, or a parameter outside the wrapper), the ranks started from different weights, or a "
            "seed differs.",
            "grad": "Gradients were not averaged over the ranks: the DDP module was bypassed, no_sync() was left on, "
            "or the parameter is outside the wrapper.",
        }.get(attribute, "Something that the ranks shared in the reference runs is no longer shared.")
        return Explanation(
            title=f"{who} {between}",
            expected=self.describe(invariant),
            observed=f"{first['variable']}.{attribute} on {_rank(first, '')}: {str(first['before'])[:12]}, "
            f"{first['other_variable']}.{attribute} on {_rank(first, 'other_')}: {str(first['after'])[:12]}",
            meaning=meaning,
            kind=f"consistency {attribute}",
            apis=(str(first["function"]),) if first["function"] else (),
            tensors=tensors,
            specificity=100,
        )


def _rank(row: Row, side: str) -> str:
    rank = row[f"{side}rank"]
    return f"rank {rank}" if rank is not None else f"process {row[f'{side}process']}"


def _params(invariant: Invariant) -> tuple[VarParam, VarParam]:
    one, two = invariant.params[0], invariant.params[1]
    if not isinstance(one, (VarTypeParam, VarNameParam)) or not isinstance(two, (VarTypeParam, VarNameParam)):
        raise TypeError("not parameters of ConsistencyRelation")  # the model has made sure
    return one, two


def _attribute(name: str) -> str:
    return name.removeprefix("_TRAINCHECK_").removeprefix("_ML_DAIKON_")


def _slim(states: pl.DataFrame) -> pl.DataFrame:
    texts = ("reason", "moment", "function", "variable", "owner", "role", "variable_type", "attribute", "kind", "stage")
    return states.select(
        "process",
        "rank",
        "span",
        "seq",
        "time_ns",
        "observation",
        "call",
        "step",
        *(pl.col(name).cast(pl.String) for name in texts),
        "int",
        "float",
        "value",
        "meta",
        key_text().alias("key"),
    ).with_columns(pl.col("owner", "reason").fill_null(""))


def _numbered(states: pl.DataFrame, counts: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """With ``number``: how many observations of the same reason and moment the process made before in the step."""
    by = ["process", "step", "reason", "moment"]
    looks = states.select(*by, "observation").unique(maintain_order=True)
    looks = looks.with_columns((pl.col("observation").rank("dense").over(by) - 1).cast(pl.Int64).alias("number"))
    if counts is not None and counts.height:
        looks = (
            looks.join(counts, on=by, how="left", nulls_equal=True, maintain_order="left")
            .with_columns((pl.col("number") + pl.col("before").fill_null(0)).alias("number"))
            .drop("before")
        )
    total = looks.group_by(by).agg((pl.col("number").max() + 1).alias("before"))
    if counts is not None:
        total = pl.concat([counts, total]).group_by(by).agg(pl.col("before").max())
        newest = total.group_by("process").agg(pl.col("step").max().alias("_newest"))
        # One step back is enough: a step's observations stand together.
        total = total.join(newest, on="process").filter(pl.col("step") >= pl.col("_newest") - 1).drop("_newest")
    joined = states.join(looks, on=[*by, "observation"], how="left", nulls_equal=True, maintain_order="left")
    return joined, total.sort(by)


def _judge(
    index: int, invariant: Invariant, rows: pl.DataFrame, facts: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    one, two = _params(invariant)
    left, right = rows.filter(_is(one)), rows.filter(_is(two))
    called = left.filter("new").group_by("process", "rank", "step").agg(pl.len().cast(pl.Int64).alias("called"))
    zero = [pl.lit(0, dtype=pl.Int64).alias(name) for name in ("observed", "applied", "violated")]
    counts = [fit(called.with_columns(pl.lit(index).alias("invariant"), *zero), COUNTS)]
    same = (one.var_type, one.attr_name, getattr(one, "var_name", None)) == (
        two.var_type,
        two.attr_name,
        getattr(two, "var_name", None),
    )
    pairs = _pairs(left, right, _join_on(invariant), same)
    bad = pl.DataFrame(schema=VIOLATIONS)
    if pairs.height:
        applied = holds(invariant.precondition.get(GROUP), _records(pairs, facts))
        broken = applied & (pairs["key"] != pairs["other_key"]).to_numpy()
        frame = pairs.with_columns(pl.Series("applied", applied), pl.Series("bad", broken))
        grouped = frame.group_by("process", "rank", "step").agg(
            pl.lit(0, dtype=pl.Int64).alias("called"),
            pl.len().cast(pl.Int64).alias("observed"),
            pl.col("applied").cast(pl.Int64).sum(),
            pl.col("bad").cast(pl.Int64).sum().alias("violated"),
        )
        counts.append(fit(grouped.with_columns(pl.lit(index).alias("invariant")), COUNTS))
        bad = fit(
            frame.filter("bad")
            .sort("step", "process", "seq", "variable", "other_process", "other_variable")
            .head(MOST_VIOLATIONS)
            .with_columns(
                pl.lit(index).alias("invariant"), pl.col("value").alias("before"), pl.col("other_value").alias("after")
            ),
            VIOLATIONS,
        )
    return pl.concat(counts), bad


def _is(param: VarParam) -> pl.Expr:
    mine = (pl.col("variable_type") == param.var_type) & (pl.col("attribute") == param.attr_name)
    return mine & (pl.col("variable") == param.var_name) if isinstance(param, VarNameParam) else mine


def _join_on(invariant: Invariant) -> list[str]:
    """Columns that the precondition demands to be equal: pairs are joined on them instead of filtered afterwards."""
    group = invariant.precondition.get(GROUP)
    if group is None or group.inverted or len(group.preconditions) != 1:
        return []
    clauses = group.preconditions[0].clauses
    return [
        _COLUMNS[clause.prop_name]
        for clause in clauses
        if isinstance(clause, Clause) and clause.type == "consistent" and clause.prop_name in _COLUMNS
    ]


_OTHER: Final = (
    "process",
    "rank",
    "seq",
    "span",
    "owner",
    "variable",
    "variable_type",
    "role",
    "value",
    "key",
    "new",
    "observation",
    "meta",
)


def _pairs(left: pl.DataFrame, right: pl.DataFrame, equal: list[str], same: bool) -> pl.DataFrame:
    """Pairs of rows at one place of the run, of different variables, at least one of them new; each pair once.

    Of two variables alike the one on the lower rank comes first, and the pair counts as that rank's. Numbers of
    processes say nothing: they are given in the order in which processes happened to begin.
    """
    on = list(dict.fromkeys([*_PLACE, *equal]))
    others = right.select(*on, *(pl.col(name).alias(f"other_{name}") for name in _OTHER))
    pairs = left.join(others, on=on, how="inner", nulls_equal=True).filter(pl.col("new") | pl.col("other_new"))
    different = (
        (pl.col("process") != pl.col("other_process"))
        | (pl.col("owner") != pl.col("other_owner"))
        | (pl.col("variable") != pl.col("other_variable"))
    )
    if same:
        before = _lower("owner") | (_equal("owner") & _lower("variable"))
        for name in ("process", "_rank"):
            before = _lower(name) | (_equal(name) & before)
        known = [pl.col(f"{side}rank").fill_null(2**31 - 1).alias(f"{side}_rank") for side in ("", "other_")]
        pairs = pairs.with_columns(known).filter(before).drop("_rank", "other__rank")
    else:
        pairs = pairs.filter(different)
    return pairs.sort("step", "process", "seq", "other_process", "other_seq")


def _lower(name: str) -> pl.Expr:
    return pl.col(name) < pl.col(f"other_{name}")


def _equal(name: str) -> pl.Expr:
    return pl.col(name) == pl.col(f"other_{name}")


def _records(pairs: pl.DataFrame, facts: pl.DataFrame) -> Records:
    return Records(pairs.height, [_PairSource(pairs, facts, ""), _PairSource(pairs, facts, "other_")])


class _PairSource:
    """Properties of one side of pairs."""

    def __init__(self, pairs: pl.DataFrame, facts: pl.DataFrame, side: str) -> None:
        self._pairs = pairs
        self._facts = facts
        self._side = side

    def __call__(self, prop: str) -> pl.DataFrame | None:
        side = self._side
        if prop in _COLUMNS:
            return text_column(self._pairs[f"{side}{_COLUMNS[prop]}"])
        if prop == "meta_vars.step":
            return number_column(self._pairs["step"])
        if prop == "meta_vars.stage":
            return text_column(self._pairs["stage"])
        if prop == f"{_FROM}reason":
            return text_column(self._pairs["reason"])
        if prop == f"{_FROM}moment":
            return text_column(self._pairs["moment"])
        if prop in ("process_id", "thread_id"):  # states of 0.x come one thread a process
            return number_column(self._pairs[f"{side}process"], identity=True)
        if prop == "rank":
            return number_column(self._pairs[f"{side}rank"], identity=True)
        if prop.startswith("meta_vars."):
            return meta_column(self._pairs[f"{side}meta"], prop.removeprefix("meta_vars."))
        if prop.startswith("attributes."):
            return self._fact(as_recorded(prop.removeprefix("attributes.")))
        return None

    def _fact(self, attribute: str) -> pl.DataFrame | None:
        """Value of the attribute when the pair's side was seen: in that observation or the last before it."""
        side = self._side
        mine = self._facts.filter(pl.col("attribute") == attribute)
        if mine.is_empty():
            return None
        by = ["process", "owner", "variable"]
        wanted = self._pairs.select(
            *(pl.col(f"{side}{name}").alias(name) for name in (*by, "observation"))
        ).with_row_index("_row")
        known = mine.sort("observation").select(*by, "observation", "kind", "int", "float", "value", "key")
        found = wanted.sort("observation").join_asof(
            known, on="observation", by=by, strategy="backward", check_sortedness=False
        )
        return found.sort("_row").select(pl.col("kind").fill_null("missing"), "int", "float", "value", "key")


# --- learning ----------------------------------------------------------------------------------------------------


def _learn(kind: str, role: str, attribute: str, rows: pl.DataFrame, states: pl.DataFrame) -> Candidate | None:
    """Whether this content is the same on all ranks, and where (at which observations, in which stage)."""
    if rows.select("reference", "process").unique().group_by("reference").len()["len"].max() in (None, 1):
        return None
    rows = rows.with_columns(pl.lit(True).alias("new"))
    pairs = pl.concat(
        [
            _pairs(mine, mine, ["variable", "owner", "role"], True)
            for _, mine in rows.group_by(["reference"], maintain_order=True)
        ]
    )
    if pairs.is_empty():
        return None
    equal = (pairs["key"] == pairs["other_key"]).to_numpy()
    content = (pairs["kind"] == "digest").to_numpy()
    if not (equal & content).any():
        return None
    props = [Prop(f"{_FROM}moment", True), Prop(f"{_FROM}reason", True), Prop("meta_vars.stage", True)]
    # Both sides agree on these by the place they share: one record says it.
    single = Records(pairs.height, [_PairSource(pairs, states, "")])
    answer = deduce(equal, propose(GROUP, single, equal, props), [GROUP], np.arange(pairs.height))
    roles = states.filter(pl.col("variable_type") == kind)["role"].n_unique()
    fixed = [
        Clause(type="consistent", prop_name="var_name", additional_path="None", prop_dtype="str"),
        Clause(type="consistent", prop_name="owner", additional_path="None", prop_dtype="str"),
        Clause(type="unequal", prop_name="process_id", additional_path="None", prop_dtype="int"),
    ]
    if roles > 1 or role != "parameter":
        fixed.append(Clause(type="constant", prop_name="role", additional_path="None", prop_dtype="str", values=[role]))
    more: list[Clause] = []
    reason, counterexample = None, None
    if isinstance(answer, Unexplained):
        row = pairs.row(answer.example, named=True)
        reason = answer.reason
        counterexample = f"{row['variable']}.{attribute} in step {row['step']}, {row['moment']} {short(row['reason'])}"
    else:
        more = [c for conj in answer[GROUP].preconditions for c in conj.clauses if isinstance(c, Clause)]
    good = pairs.filter(pl.Series(equal & content))
    steps = good.filter(pl.col("step") > 0).select("reference", "step").n_unique()
    if reason is None and (good.height < MIN_PAIRS or steps < MIN_STEPS):
        reason = f"held in {good.height} pairs and {steps} training steps only"
    param = VarTypeParam(param_type="VarTypeParam", var_type=kind, attr_name=attribute)
    support = Support(
        applications=good.height,
        excluded=pairs.height - good.height,
        steps=steps,
        ranks=pl.concat([good["process"], good["other_process"]]).n_unique(),
        references=good["reference"].n_unique(),
    )
    invariant = Invariant(
        text_description="",
        relation=Consistency.name,
        params=[param, param],
        precondition={GROUP: Group(inverted=False, preconditions=[Conjunction(clauses=[*fixed, *more])])},
        num_positive_examples=good.height,
        num_negative_examples=pairs.height - good.height,
        support=support,
    )
    return Candidate(invariant, reason, counterexample)
