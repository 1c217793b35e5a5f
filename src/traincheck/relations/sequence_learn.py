"""Learning orders: which parts of a training loop always come between two calls of another part.

Asked is only about functions that play a part (``sequence_roles``) and that the loop itself calls. The answer comes
from the evaluator that also checks, so that both mean the same. Where "W before each X" holds from the first X on, it
is a FunctionCover; where it holds between two X only, a FunctionLead: the two say the same about every later X.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from traincheck.invariants import ALWAYS, APIParam, Group, Invariant, Support
from traincheck.preconditions import Mask, Prop, Records, Unexplained, deduce, propose
from traincheck.relations.base import Candidate, Place
from traincheck.relations.calltree import CallSource, Ints, parent_rows, slim
from traincheck.relations.names import learnable
from traincheck.relations.sequence import Program, Rule, SequenceCarry, Stretches, Walk, walk
from traincheck.relations.sequence_roles import CORE, KNOWN, Role, may_ask, role_of
from traincheck.relations.tables import Tables
from traincheck.relations.transfer import programs

LEAD: Final = "FunctionLeadRelation"
COVER: Final = "FunctionCoverRelation"
GROUPS: Final = {LEAD: "func_lead", COVER: "func_cover"}

MIN_STEPS: Final = 3
"""Training steps in which an order must have held (and as many times), before it is learned."""

MIN_KNOWN: Final = 2
"""Times that an order must have held that PyTorch documents."""


def hypothesize(references: Sequence[Tables], relation: str) -> list[Candidate]:
    """Candidates of one of the two relations, sorted; nothing that the other one already says."""
    loops = [Loop.of(reference) for reference in references]
    functions = sorted({function for loop in loops for function in loop.functions})
    pairs = [
        (anchor, witness)
        for anchor in functions
        for witness in functions
        if may_ask(anchor, witness) and any({anchor, witness} <= loop.functions for loop in loops)
    ]
    rules = [Rule(number, anchor, witness, None, False) for number, (anchor, witness) in enumerate(pairs)]
    program = SequenceCarry(Program.of(rules))
    laid = [Laid.of(reference, program) if rules else None for reference in references]
    different = programs(references) > 1
    candidates = []
    for rule in rules:
        example = _Example.of(rule, references, loops, laid)
        if example is not None:
            found = _candidate(rule, example, different)
            if found is not None and found.invariant.relation == relation:
                candidates.append(found)
    return candidates


# --- the training loop of a reference ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """What the loop of a run calls itself, and in which processes it trains."""

    functions: frozenset[str]
    processes: frozenset[int]
    begun: Mapping[tuple[str, int], int]
    """Function, process -> ``seq`` at which the first call of it by the loop ended. A constructor's is none."""
    exhausted: Mapping[int, int]
    """Process -> ``seq`` at which data first ran out there."""

    @classmethod
    def of(cls, reference: Tables) -> Loop:
        """Functions with a part that are called by the program, or by a call that holds the loop's body.

        Such a call has a backward or an update inside and plays no part itself (``Trainer.training_step``), or is an
        update that does the whole iteration (a closure).
        """
        calls = slim(reference.calls).sort("process", "call")
        if not calls.height:
            return cls(frozenset(), frozenset(), {}, {})
        names = calls["function"].unique().drop_nulls().to_list()
        roles = {
            name: role
            for name in names
            if (role := role_of(name)) is not None and (learnable(name) or role is Role.DATA)
        }
        order = list(Role)
        code = (
            calls["function"]
            .replace_strict(
                list(roles), [order.index(role) for role in roles.values()], default=-1, return_dtype=pl.Int64
            )
            .fill_null(-1)
            .to_numpy()
        )
        inside = _inside(code, parent_rows(calls), order)
        mine = calls.filter(pl.Series((code >= 0) & inside))
        finished = mine.filter(pl.col("outcome") == "returned")
        begun = {
            (str(function), int(process)): int(seq)
            for function, process, seq in finished.group_by("function", "process")
            .agg(pl.col("end_seq").min())
            .iter_rows()
        }
        mine, done = mine.filter(pl.col("step") > 0), finished.filter(pl.col("step") > 0)
        core = [name for name, role in roles.items() if role in (Role.BACKWARD, Role.STEP)]
        data = [name for name, role in roles.items() if role is Role.DATA]
        processes = done.filter(pl.col("function").is_in(core))["process"].unique().to_list()
        ends = mine.filter(pl.col("outcome") == "raised", pl.col("function").is_in(data))
        exhausted = {
            int(process): int(seq)
            for process, seq in ends.group_by("process").agg(pl.col("begin_seq").min()).iter_rows()
        }
        everywhere = (
            done.filter(pl.col("process").is_in(processes))
            .group_by("function")
            .agg(pl.col("process").n_unique().alias("n"))
            .filter(pl.col("n") == len(processes))
        )
        return cls(frozenset(everywhere["function"].to_list()), frozenset(processes), begun, exhausted)


def _inside(code: Ints, parents: Ints, order: Sequence[Role]) -> Mask:
    """Which calls have only holders of the loop's body above them."""
    backward, step = order.index(Role.BACKWARD), order.index(Role.STEP)
    holds_backward = _above(parents, np.flatnonzero(code == backward), len(code))
    holds_step = _above(parents, np.flatnonzero(code == step), len(code))
    holder = ((code < 0) & (holds_backward | holds_step)) | ((code == step) & holds_backward)
    inside = np.ones(len(code), dtype=bool)
    for row in np.flatnonzero(parents >= 0):  # parents come before children
        up = parents[row]
        inside[row] = inside[up] and holder[up]
    return inside


def _above(parents: Ints, rows: Ints, height: int) -> Mask:
    """Which rows are ancestors of these."""
    marked = np.zeros(height, dtype=bool)
    above = parents[rows]
    while True:
        above = np.unique(above[above >= 0])
        above = above[~marked[above]]
        if not len(above):
            return marked
        marked[above] = True
        above = parents[above]


# --- from examples to candidates ---------------------------------------------------------------------------------


class Laid(NamedTuple):
    """A reference laid out, and its calls, of which stretches name the rows."""

    walk: Walk
    calls: pl.DataFrame

    @classmethod
    def of(cls, reference: Tables, program: SequenceCarry) -> Laid:
        """The whole run as one window."""
        return cls(walk(reference.window(), program)[0], slim(reference.calls).sort("process", "call"))


@dataclass(frozen=True)
class _Example:
    """All stretches of one anchor in all references that can tell."""

    calls: pl.DataFrame
    """The anchor's calls, with ``reference``."""
    whole: Mask
    first: Mask
    kept: Mask
    begun: Mask
    """Whether the loop had called the witness before."""

    @classmethod
    def of(
        cls, rule: Rule, references: Sequence[Tables], loops: Sequence[Loop], walks: Sequence[Laid | None]
    ) -> _Example | None:
        """None when some process that trains does not show it."""
        parts: list[tuple[pl.DataFrame, Stretches, Mask, Mask]] = []
        for number, (reference, loop, laid) in enumerate(zip(references, loops, walks, strict=True)):
            if laid is None or rule.anchor not in loop.functions:
                continue
            if not reference.watch.watches(rule.witness):
                continue
            stretches = laid.walk.every(rule)
            calls = laid.calls[stretches.rows]
            if role_of(rule.witness) is Role.DATA and not _outlives(calls, loop):
                return None
            shown = set(calls.filter(pl.Series(stretches.whole))["process"].unique().to_list())
            if not loop.processes <= shown:
                return None
            calls = calls.with_columns(pl.lit(number, dtype=pl.Int64).alias("reference"))
            since = [loop.begun.get((rule.witness, process)) for process in calls["process"].to_list()]
            begun = np.array(
                [at is not None and at < high for at, high in zip(since, stretches.high, strict=True)], dtype=bool
            )
            parts.append((calls, stretches, laid.walk.kept(rule, stretches), begun))
        if not parts:
            return None
        return cls(
            pl.concat([part[0] for part in parts]),
            np.concatenate([part[1].whole for part in parts]),
            np.concatenate([part[1].first for part in parts]),
            np.concatenate([part[2] for part in parts]),
            np.concatenate([part[3] for part in parts]),
        )


def _outlives(calls: pl.DataFrame, loop: Loop) -> bool:
    """Whether the anchor was called after data had run out: loaders that look ahead take no batch for their last."""
    last = calls.group_by("process").agg(pl.col("begin_seq").max())
    return all(int(seq) > loop.exhausted.get(int(process), int(seq)) for process, seq in last.iter_rows())


def _candidate(rule: Rule, example: _Example, different: bool) -> Candidate | None:
    """The strongest form that holds; None when nothing like it does. ``different``: references of several programs."""
    whole, first, kept = example.whole, example.first, example.kept
    enough = MIN_KNOWN if _known(rule) else MIN_STEPS
    if int((whole & kept).sum()) < enough:
        return None
    if kept[whole].all():
        cover = bool(first.any() and (kept & example.begun)[first].all())
        if different and role_of(rule.witness) is Role.ZERO:
            cover = False  # whether a loop clears gradients first or last is its own affair
        judged = whole | first if cover else whole
        relation = COVER if cover else LEAD
        invariant = _invariant(relation, rule, ALWAYS, example, judged, 0)
        few = _few(rule, invariant)
        return Candidate(invariant, few)
    if kept[whole].mean() < 0.5:
        return None
    judged = whole | first
    positive = (kept | ~judged)[judged]
    calls = example.calls.filter(pl.Series(judged))
    records = Records(calls.height, [CallSource(calls, pl.DataFrame())])
    features = propose(GROUPS[LEAD], records, positive, [Prop("meta_vars.stage", natural=True)])
    answer = deduce(positive, features, [GROUPS[LEAD]], np.arange(calls.height))
    if isinstance(answer, Unexplained):
        row = calls.row(answer.example, named=True)
        where = Place(row["reference"], row["process"], row["step"], row["call"])
        against = _invariant(LEAD, rule, ALWAYS, example, whole & kept, int((whole & ~kept).sum()))
        return Candidate(against, answer.reason, str(where), where)
    group = answer[GROUPS[LEAD]]
    invariant = _invariant(LEAD, rule, group, example, whole & kept, int((~positive).sum()))
    return Candidate(invariant, _few(rule, invariant))


def _known(rule: Rule) -> bool:
    return (role_of(rule.anchor), role_of(rule.witness)) in KNOWN


def _few(rule: Rule, invariant: Invariant) -> str | None:
    support = invariant.support
    if support is None or _known(rule) or support.steps >= MIN_STEPS:
        return None
    return f"held in {support.steps} training steps only"


def _invariant(relation: str, rule: Rule, group: Group, example: _Example, held: Mask, excluded: int) -> Invariant:
    good = example.calls.filter(pl.Series(held))
    pair = (rule.witness, rule.anchor) if relation == COVER else (rule.anchor, rule.witness)
    return Invariant(
        text_description="",
        relation=relation,
        params=[APIParam(param_type="APIParam", api_full_name=name) for name in pair],
        precondition={GROUPS[relation]: group},
        num_positive_examples=good.height,
        num_negative_examples=excluded,
        support=Support(
            applications=good.height,
            excluded=excluded,
            steps=good.filter(pl.col("step") > 0).select("reference", "step").n_unique(),
            ranks=good.select("reference", "process").n_unique(),
            references=good["reference"].n_unique(),
        ),
    )


# --- folding -----------------------------------------------------------------------------------------------------

_Edge = tuple[str, str, str]
"""From, to, condition."""

_ALWAYS: Final = ALWAYS.model_dump_json()


def fold(invariants: Sequence[Invariant]) -> list[Invariant]:
    """Without A, C where A, B and B, C are there too: a loop that breaks the first breaks one of the others.

    What clearing, backward and update have to do with one another is told as it is, unless it goes over one of them.
    """
    edges = {edge for invariant in invariants if (edge := _edge(invariant)) is not None}
    gone: set[_Edge] = set()
    for edge in sorted(edges, key=_worth):
        if _implied(edge, edges - gone - {edge}):
            gone.add(edge)
    return [invariant for invariant in invariants if _edge(invariant) not in gone]


def _edge(invariant: Invariant) -> _Edge | None:
    names = [param.api_full_name for param in invariant.params if isinstance(param, APIParam)]
    if len(names) != 2 or len(invariant.params) != 2:
        return None
    group = next(iter(invariant.precondition.values()), ALWAYS)
    return names[0], names[1], group.model_dump_json()


def _roles(edge: _Edge) -> tuple[Role | None, Role | None]:
    return role_of(edge[0]), role_of(edge[1])


def _core(edge: _Edge) -> bool:
    return all(role in CORE for role in _roles(edge))


def _worth(edge: _Edge) -> tuple[bool, _Edge]:
    """What is folded away first: core orders are last."""
    return _core(edge), edge


def _implied(edge: _Edge, others: Iterable[_Edge]) -> bool:
    """Whether a way of other orders of the same condition leads from one to the other."""
    if _roles(edge) in KNOWN:
        return False
    # A known order leads from the end of an iteration into the next: that explains nothing before it.
    ways = [other for other in others if other[2] in (edge[2], _ALWAYS) and _roles(other) not in KNOWN]
    if _core(edge):
        ways = [other for other in ways if _core(other)]
    reached, ahead = {edge[0]}, [edge[0]]
    while ahead:
        here = ahead.pop()
        following = {other[1] for other in ways if other[0] == here} - reached
        if edge[1] in following:
            return True
        reached |= following
        ahead += following
    return False
