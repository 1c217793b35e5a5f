"""The order of trials: randomised blocks, drawn from one seed, with names that say nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from traincheck.pilot.canonical import sha256
from traincheck.pilot.plan import Draft, TrialPlan

_LETTERS: Final = "bcdfghjkmnpqrstvwxz"
"""No vowels (no words), nothing that is mistaken for a digit."""
_LENGTH: Final = 8


def trials(draft: Draft, cases: Sequence[str]) -> tuple[TrialPlan, ...]:
    """All trials in the order in which they are done.

    A block holds every arm of one case and solver once, in random order. Blocks come in rounds: each round holds one
    block of every case and solver, in random order, so that a drift of the machine or the model meets all alike.
    The same draft gives the same order and the same names.
    """
    drawing = random.Random(f"order {draft.seed}")
    # A stream of its own: how names come out must not depend on how arms do.
    naming = random.Random(f"names {draft.seed} {sha256(draft.model_dump(mode='json', by_alias=True))}")
    taken: set[str] = set()
    found: list[TrialPlan] = []
    block = 0
    for _ in range(draft.trials):
        pairs = [(case, solver.name) for case in cases for solver in draft.solvers]
        drawing.shuffle(pairs)
        for case, solver in pairs:
            arms = list(draft.arms)
            drawing.shuffle(arms)
            for arm in arms:
                found.append(
                    TrialPlan(
                        id=_name(naming, taken), case=case, arm=arm, solver=solver, block=block, position=len(found)
                    )
                )
            block += 1
    return tuple(found)


def _name(naming: random.Random, taken: set[str]) -> str:
    while True:
        name = "t-" + "".join(naming.choice(_LETTERS) for _ in range(_LENGTH))
        if name not in taken:
            taken.add(name)
            return name
