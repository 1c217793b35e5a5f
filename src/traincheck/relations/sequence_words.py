"""What FunctionLead and FunctionCover share besides the arrays: parameters, needs, sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from traincheck.invariants import APIParam, Invariant
from traincheck.relations import sequence, sequence_learn
from traincheck.relations.base import Candidate, Explanation, Judgement, Needs, Numbered, Row
from traincheck.relations.calltree import signature
from traincheck.relations.names import short
from traincheck.relations.sequence import Program, Rule, SequenceCarry
from traincheck.relations.sequence_roles import CORE, Role, role_of
from traincheck.relations.tables import Tables, Window
from traincheck.relations.wording import condition, properties


class Ordered:
    """A relation between functions that are called in turn. ``first``, ``group``: see ``Lead`` and ``Cover``."""

    name: str
    scope: Literal["process", "run"] = "process"
    group: str
    first: bool

    def supports(self, invariant: Invariant) -> str | None:
        """Constant arguments of the calls are not compared."""
        if any(param.arguments is not None for param in _functions(invariant)):
            return "constant arguments of calls in an order are not judged by this version"
        return None

    def needs(self, invariant: Invariant) -> Needs:
        """All its functions; what the precondition asks for."""
        asked = properties(invariant)
        names = frozenset(param.api_full_name for param in _functions(invariant))
        captures = frozenset(
            (name, prop.removeprefix("captures.").partition("@")[0])
            for name in names
            for prop in asked
            if prop.startswith("captures.")
        )
        return Needs(names, captures, stages="meta_vars.stage" in asked)

    def hypothesize(self, references: Sequence[Tables]) -> list[Candidate]:
        """Orders between the parts of the training loop."""
        return sequence_learn.hypothesize(references, self.name)

    def fold(self, invariants: Sequence[Invariant]) -> list[Invariant]:
        """Without what follows from two others."""
        return sequence_learn.fold(invariants)

    def evaluate(
        self, invariants: Sequence[Numbered], window: Window, carry: SequenceCarry | None
    ) -> tuple[Judgement, SequenceCarry]:
        """Judge each call of an anchor in the window in which it ends."""
        if carry is None:
            carry = SequenceCarry(Program.of(self._rules(invariants)))
        return sequence.evaluate(window, carry)

    def _rules(self, invariants: Sequence[Numbered]) -> list[Rule]:
        """One rule for each two functions that follow one another in the chain."""
        rules = []
        for number, invariant in invariants:
            group = invariant.precondition.get(self.group)
            for one, two in pairwise(_functions(invariant)):
                anchor, witness = (two, one) if self.first else (one, two)
                rules.append(
                    Rule(
                        number,
                        signature(anchor.api_full_name, anchor.exception),
                        signature(witness.api_full_name, witness.exception),
                        group,
                        self.first,
                    )
                )
        return rules

    def describe(self, invariant: Invariant) -> str:
        """One sentence with all functions and the condition."""
        names = [f"{short(param.api_full_name)}()" for param in _functions(invariant)]
        when = condition(invariant, self.group)
        if self.first:
            head, rest = names[0], names[1:]
            return f"{head} always comes before {', before '.join(rest)}, anew for every call{when}"
        return f"{names[0]} always leads to {', then to '.join(names[1:])}, before it is called again{when}"

    def dormant(self, invariant: Invariant, called: int, observed: int) -> str:
        """Why it never applied."""
        functions = _functions(invariant)
        anchors = functions[1:] if self.first else functions[:-1]
        names = " or ".join(dict.fromkeys(f"{short(param.api_full_name)}()" for param in anchors))
        if not called:
            return f"{names} was never called (and finished)"
        if not observed:
            return f"no two calls of {names} on one thread were observed with all that lies between them"
        when = condition(invariant, self.group).strip()
        return f"its precondition was never met by two calls in a row ({when or 'none'})"

    def explain(self, invariant: Invariant, rows: Sequence[Row]) -> Explanation:
        """Which call is missing, before which, and what that usually means."""
        first = rows[0]
        anchor, missing = str(first["function"]), str(first["other_variable"])
        a, m = short(anchor), short(missing)
        early = first["other_seq"] is None
        times = "once" if len(rows) == 1 else f"{len(rows)} times"
        if early:
            title = f"{a}() was called before the first {m}()"
            observed = f"no {m}() ended before the first {a}()"
        else:
            title = f"{a}() was called again without {m}() in between"
            observed = f"{times}, no {m}() lies between two calls of {a}()"
        return Explanation(
            title=title,
            expected=self.describe(invariant),
            observed=observed,
            meaning=meaning(role_of(anchor), role_of(missing), a, m),
            kind=f"order {missing}",
            apis=(anchor, missing),
            specificity=32 if role_of(missing) in CORE else 30,
        )


def _functions(invariant: Invariant) -> list[APIParam]:
    params = [param for param in invariant.params if isinstance(param, APIParam)]
    if len(params) != len(invariant.params):
        raise TypeError(f"not parameters of {invariant.relation}")  # the model has made sure
    return params


def meaning(anchor: Role | None, missing: Role | None, a: str, m: str) -> str:
    """What it usually means that the anchor was called (again) without the other function before it."""
    if anchor is Role.SCHEDULE:
        return (
            f"{a}() is called more often than {m}(), or before it: the learning rate runs ahead of its schedule, and "
            "its first value is skipped."
        )
    meanings: dict[Role | None, str] = {
        Role.ZERO: f"Gradients of an earlier step were not cleared when {a}() was called: {m}() is missing or comes at "
        "the wrong place. Gradients add up and the updates are wrong.",
        Role.BACKWARD: f"No new gradients were computed before {a}(): {m}() is missing or comes after it.",
        Role.STEP: f"Gradients were computed and never applied: {m}() is missing, or another optimizer is stepped.",
        Role.SCHEDULE: f"The learning rate does not follow its schedule: {m}() is missing, or is called less often.",
        Role.SCALE: f"The loss was not scaled: {m}() is missing, so small gradients are lost in half precision.",
        Role.UNSCALE: f"{a}() worked on scaled gradients: {m}() is missing or comes after it.",
        Role.SCALER_STEP: f"The optimizer was not stepped through its scaler: {m}() is missing.",
        Role.SCALER_UPDATE: f"The scale is never adapted: {m}() is missing, so overflows repeat.",
        Role.CLIP: f"Gradients were not clipped before {a}(): {m}() is missing or comes after it.",
        Role.FORWARD: f"No forward pass came before {a}(): the same outputs were used again.",
        Role.DATA: f"No new batch was taken before {a}(): the same data was used again.",
        Role.AUTOCAST: f"Autocast was not entered before {a}(): the forward pass ran in another precision.",
        Role.COLLECTIVE: f"Ranks did not exchange what they did in the reference runs before {a}().",
    }
    return meanings.get(missing) or f"{m}() is missing, comes at another place, or {a}() is called once too often."
