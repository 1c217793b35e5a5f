"""What a plan lacks that a study of this kind should have: said before the first trial, and refused by nobody."""

from __future__ import annotations

from typing import Final

from traincheck.pilot.plan import WITH_PACKAGE, Plan

FEWEST_TRIALS: Final = 5
FEWEST_MODELS: Final = 2


def lacks(plan: Plan) -> list[str]:
    """One sentence on each thing; empty: nothing."""
    draft = plan.draft
    found = []
    if draft.trials < FEWEST_TRIALS:
        found.append(
            f"{draft.trials} trial{'s' if draft.trials > 1 else ''} of each case, arm and solver: fewer than "
            f"{FEWEST_TRIALS}."
        )
    models = {solver.model for solver in draft.solvers if solver.agent != "scripted"}
    if len(models) < FEWEST_MODELS:
        found.append(f"{len(models)} model{'s' if len(models) != 1 else ''}: fewer than {FEWEST_MODELS}.")
    if "control" not in draft.arms:
        found.append("No arm control: there is nothing to compare with.")
    if not any(arm in WITH_PACKAGE for arm in draft.arms):
        found.append("No arm with the package: nothing is learnt of access to it.")
    if "placebo" not in draft.arms:
        found.append("No arm placebo: the effect of reading any manual is in that of reading ours.")
    if len(plan.cases) < 2:
        found.append("One case: nothing is learnt of others.")
    return found
