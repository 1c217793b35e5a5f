"""ConsistencyRelation: an attribute of two variables that are alive together has the same value.

Alive together: seen in one observation of a process, or, in different processes, in observations that stand at the
same place of the run: same step, same reason, same moment, same number within the step. What ranks see is aligned by
that place, never by clocks. ``baseline`` observations (before the first update) are not judged: replicas may not have
met yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from traincheck.invariants import Clause, Conjunction, Group, Invariant, Support, VarNameParam, VarParam, VarTypeParam
from traincheck.preconditions import Prop, Records, Unexplained, clause_holds, deduce, holds, propose
from traincheck.relations.base import (
    MOST_VIOLATIONS,
    Candidate,
    Explanation,
    Judgement,
    Needs,
    Numbered,
    Row,
    StateNeed,
)
from traincheck.relations.call_arrays import Tally, judgement
from traincheck.relations.consistency_pairs import (
    NAMES,
    OBSERVATION,
    Looks,
    Pairs,
    PairValues,
    alphabetical,
    newest_facts,
    numbered,
    pairs_of,
    places,
    rows_of,
    together,
)
from traincheck.relations.names import as_recorded, last, short
from traincheck.relations.numbers import KIND, Ints, Mask, Table, code, member, stack, table, text, texts
from traincheck.relations.tables import Tables, Window
from traincheck.relations.wording import condition, kind_of, names, properties
from traincheck.trace import schema

GROUP: Final = "var"
BASELINE: Final = "baseline"
MIN_PAIRS: Final = 3
MIN_STEPS: Final = 2

SPLIT: Final = "tensor_model_parallel"
"""Fact of a parameter: whether ranks hold parts of it. Megatron's mark, and the name of 0.x traces."""

WHOLE: Final = Clause(
    type="constant", prop_name=f"attributes.{SPLIT}", additional_path="None", prop_dtype="bool", values=[False]
)

LEARNED_ROLES: Final = ("parameter", "buffer", "optimizer_state")
"""Whose content may be replicated. That ranks share a seed or a batch in one run is no rule."""


class Rule(NamedTuple):
    """One invariant, ready to be evaluated."""

    number: int
    one: VarParam
    two: VarParam
    same: bool
    """Both parameters speak of the same variables."""
    equal: tuple[str, ...]
    """Columns that the precondition demands to be equal: pairs are joined on them instead of filtered afterwards."""
    group: Group | None


@dataclass(frozen=True)
class Program:
    """The rules, and numbers of the types and attributes that must be looked at for them."""

    rules: tuple[Rule, ...]
    types: frozenset[int]
    attributes: frozenset[int]
    facts: frozenset[int]
    """Attributes that preconditions ask for."""

    @classmethod
    def of(cls, invariants: Sequence[Numbered]) -> Program:
        """From the invariants."""
        rules = []
        asked: set[str] = set()
        for number, invariant in invariants:
            one, two = _params(invariant)
            group = invariant.precondition.get(GROUP)
            rules.append(Rule(number, one, two, _named(one) == _named(two), _join_on(group), group))
            asked |= {
                as_recorded(p.removeprefix("attributes.")) for p in properties(invariant) if p.startswith("attributes.")
            }
        params = [param for rule in rules for param in (rule.one, rule.two)]
        facts = frozenset(code(name) for name in asked)
        return cls(
            tuple(rules),
            frozenset(code(param.var_type) for param in params),
            frozenset(code(param.attr_name) for param in params) | facts,
            facts,
        )


@dataclass(frozen=True)
class ConsistencyCarry:
    """Rows of steps that not all processes have left, observations counted so far, last facts of variables."""

    program: Program
    rows: Table | None = None
    looks: Looks = field(default_factory=dict)
    facts: Table | None = None
    newest: Mapping[int, int] = field(default_factory=dict)


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
        carry = ConsistencyCarry(Program.of(invariants)) if carry is None else carry
        program = carry.program
        place = table(window.states, ("process", "step", "variable_type", "attribute"))
        watched = member(place["variable_type"], program.types) & member(place["attribute"], program.attributes)
        states, looks = numbered(rows_of(window.states[np.flatnonzero(watched)]), carry.looks)
        facts, _ = together(carry.facts, states.take(member(states["attribute"], program.facts)))
        both, new = together(carry.rows, states.take(_judged(states)))
        tally = _judge(program, both, new, facts)
        newest = dict(carry.newest)
        for process in np.unique(place["process"]).tolist():
            highest = int(place["step"][place["process"] == process].max())
            newest[process] = max(newest.get(process, 0), highest)
        # Without a process that goes on, nothing comes that could be compared with what was.
        done = min((newest.get(process, 0) for process in window.processes), default=2**31 - 1)
        kept = both.take(both["step"] >= done)
        return judgement(tally), ConsistencyCarry(program, kept, looks, newest_facts(facts, done), newest)

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """Content of the same variable on different ranks, per (type, role, attribute)."""
        parts = []
        for number, reference in enumerate(references):
            states, _ = numbered(rows_of(reference.states), {})
            parts.append(states.having(reference=np.full(states.height, number, dtype=np.int64)))
        states = stack(parts)
        facts = states.take(states["attribute"] == code(SPLIT))
        learned = _judged(states) & member(states["role"], [code(role) for role in LEARNED_ROLES])
        states = states.take(learned & member(states["kind"], (KIND["digest"], KIND["none"])))
        keys = [states[name] for name in ("variable_type", "role", "attribute")]
        kinds = sorted(
            (tuple(str(text(n)) for n in key), key) for key in set(zip(*(k.tolist() for k in keys), strict=True))
        )
        result: list[Candidate] = []
        for (kind, role, attribute), codes in kinds:
            mine = np.logical_and.reduce([key == number for key, number in zip(keys, codes, strict=True)])
            found = _learn(kind, role, attribute, states.take(mine), states, facts)
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
        if any(WHOLE.prop_name == prop for prop in properties(invariant)):
            meaning = _TENSOR_PARALLEL
        else:
            meaning = _MEANING.get(
                attribute, "Something that the ranks shared in the reference runs is no longer shared."
            )
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


_MEANING: Final = {
    "data": "The replicas have parted: gradients were not averaged over the ranks (the wrapped module was bypassed, "
    "no_sync, or a parameter outside the wrapper), the ranks started from different weights, or a seed differs.",
    "grad": "Gradients were not averaged over the ranks: the DDP module was bypassed, no_sync() was left on, or the "
    "parameter is outside the wrapper.",
}
_TENSOR_PARALLEL: Final = (
    "Tensor-parallel ranks hold these parameters whole and have to treat them alike: on some ranks they are left out "
    "of gradient clipping or of an all-reduce, or the ranks started from different weights."
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


def _named(param: VarParam) -> tuple[str, str, str | None]:
    return param.var_type, param.attr_name, param.var_name if isinstance(param, VarNameParam) else None


def _join_on(group: Group | None) -> tuple[str, ...]:
    if group is None or group.inverted or len(group.preconditions) != 1:
        return ()
    return tuple(
        NAMES[clause.prop_name]
        for clause in group.preconditions[0].clauses
        if isinstance(clause, Clause) and clause.type == "consistent" and clause.prop_name in NAMES
    )


def _judged(rows: Table) -> Mask:
    """Rows that are compared: with a value, and not of a baseline."""
    absent = member(rows["kind"], (KIND["missing"], KIND["error"]))
    known = np.fromiter((key is not None for key in rows["key"]), dtype=np.bool_, count=rows.height)
    return np.asarray((rows["reason"] != code(BASELINE)) & ~absent & known)


def _judge(program: Program, rows: Table, new: Mask, facts: Table) -> Tally:
    tally = Tally(rows)
    at: dict[tuple[str, ...], tuple[Ints, int]] = {}
    if not new.any():
        return tally
    for rule in program.rules:
        left, right = _is(rule.one, rows), _is(rule.two, rows)
        if not (new & (left | right)).any():
            continue
        if rule.equal not in at:
            at[rule.equal] = places(rows, rule.equal)
        pairs = pairs_of(rows, new, left, right, at[rule.equal], rule.same)
        sides = [PairValues(pairs, side, facts) for side in (pairs.left, pairs.right)]
        applied = holds(rule.group, Records(len(pairs), sides))
        bad = pairs.take(applied & ~pairs.equal)
        tally.add(
            rule.number,
            called=np.flatnonzero(left & new),
            observed=pairs.left,
            applied=pairs.left[applied],
            violated=bad.left,
        )
        if len(bad):
            _evidence(tally, rule.number, bad)
    return tally


def _evidence(tally: Tally, number: int, bad: Pairs) -> None:
    variable, process = alphabetical(bad.rows["variable"]), bad.rows["process"]
    keys = [variable[bad.right], process[bad.right], variable[bad.left]]
    keys += [bad.rows[name][bad.left] for name in ("seq", "process", "step")]
    bad = bad.take(np.lexsort(keys)[:MOST_VIOLATIONS])
    one, two = bad.rows.take(bad.left), bad.rows.take(bad.right)
    tally.evidence(
        number,
        len(bad),
        **{name: one[name] for name in ("process", "rank", "step", "seq", "time_ns", "call")},
        **{name: texts(one[name]) for name in ("stage", "function", "variable", "attribute")},
        before=one["value"],
        after=two["value"],
        other_process=two["process"],
        other_rank=two["rank"],
        other_variable=texts(two["variable"]),
        other_seq=two["seq"],
    )


def _is(param: VarParam, rows: Table) -> Mask:
    mine: Mask = (rows["variable_type"] == code(param.var_type)) & (rows["attribute"] == code(param.attr_name))
    return mine & (rows["variable"] == code(param.var_name)) if isinstance(param, VarNameParam) else mine


# --- learning ----------------------------------------------------------------------------------------------------


def _learn(kind: str, role: str, attribute: str, rows: Table, states: Table, facts: Table) -> Candidate | None:
    """Whether this content is the same on all ranks, and where (at which observations, in which stage)."""
    parts = []
    for reference in np.unique(rows["reference"]):
        mine = rows["reference"] == reference
        if len(np.unique(rows["process"][mine])) > 1:
            parts.append(_same_on_others(rows, mine))
    if not parts or not any(len(part) for part in parts):
        return None
    pairs = Pairs(rows, *(np.concatenate([getattr(part, side) for part in parts]) for side in ("left", "right")))
    whole = _whole(pairs, facts) if role == "parameter" else None
    if whole is not None:
        # Parts that are equal on all ranks, like biases that start as zeros, are so by chance.
        pairs = Pairs(rows, pairs.left[whole], pairs.right[whole])
    equal = pairs.equal
    one = rows.take(pairs.left)
    content = one["kind"] == KIND["digest"]
    if not (equal & content).any():
        return None
    props = [Prop(f"{OBSERVATION}moment", True), Prop(f"{OBSERVATION}reason", True), Prop("meta_vars.stage", True)]
    # Both sides agree on these by the place they share: one record says it.
    single = Records(len(pairs), [PairValues(pairs, pairs.left, states)])
    answer = deduce(equal, propose(GROUP, single, equal, props), [GROUP], np.arange(len(pairs)))
    roles = len(np.unique(states["role"][states["variable_type"] == code(kind)]))
    fixed = [
        Clause(type="consistent", prop_name="var_name", additional_path="None", prop_dtype="str"),
        Clause(type="consistent", prop_name="owner", additional_path="None", prop_dtype="str"),
        Clause(type="unequal", prop_name="process_id", additional_path="None", prop_dtype="int"),
    ]
    if whole is not None:
        fixed.append(WHOLE)
    if roles > 1 or role != "parameter":
        fixed.append(Clause(type="constant", prop_name="role", additional_path="None", prop_dtype="str", values=[role]))
    more: list[Clause] = []
    reason, counterexample = None, None
    if isinstance(answer, Unexplained):
        reason = answer.reason
        row = one.take(np.array([answer.example]))
        moment = schema.MOMENT.categories[int(row["moment"][0])]
        where = f"in step {row['step'][0]}, {moment} {short(str(text(row['reason'][0])))}"
        counterexample = f"{text(row['variable'][0])}.{attribute} {where}"
    else:
        more = [c for conj in answer[GROUP].preconditions for c in conj.clauses if isinstance(c, Clause)]
    good = np.flatnonzero(equal & content)
    held = one.take(good)
    training = held["step"] > 0
    steps = len(set(zip(held["reference"][training].tolist(), held["step"][training].tolist(), strict=True)))
    if reason is None and (len(good) < MIN_PAIRS or steps < MIN_STEPS):
        reason = f"held in {len(good)} pairs and {steps} training steps only"
    param = VarTypeParam(param_type="VarTypeParam", var_type=kind, attr_name=attribute)
    support = Support(
        applications=len(good),
        excluded=len(pairs) - len(good),
        steps=steps,
        ranks=len(np.unique(rows["process"][np.concatenate([pairs.left[good], pairs.right[good]])])),
        references=len(np.unique(held["reference"])),
    )
    invariant = Invariant(
        text_description="",
        relation=Consistency.name,
        params=[param, param],
        precondition={GROUP: Group(inverted=False, preconditions=[Conjunction(clauses=[*fixed, *more])])},
        num_positive_examples=len(good),
        num_negative_examples=len(pairs) - len(good),
        support=support,
    )
    return Candidate(invariant, reason, counterexample)


def _same_on_others(rows: Table, mine: Mask) -> Pairs:
    """Pairs of the same variable in different processes, of the rows of one reference."""
    every = np.ones(rows.height, dtype=np.bool_)
    at = places(rows, ("variable", "owner", "role"))
    return pairs_of(rows, every, mine, mine, at, same=True).in_order()


def _whole(pairs: Pairs, facts: Table) -> Mask | None:
    """Pairs of parameters that ranks hold whole; None where nothing is known to be split."""
    if not facts.height:
        return None
    records = Records(len(pairs), [PairValues(pairs, side, facts) for side in (pairs.left, pairs.right)])
    parts = clause_holds(WHOLE.model_copy(update={"values": [True]}), records)
    return clause_holds(WHOLE, records) if parts.any() else None
