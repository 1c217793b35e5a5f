"""Reading a draft: the TOML file in which people write a plan."""

from __future__ import annotations

from pathlib import Path

from traincheck.errors import TraincheckError
from traincheck.pilot.plan import SCHEMA, Draft
from traincheck.studykit import toml


def read_draft(path: Path) -> Draft:
    """The draft at ``path``.

    Raises TraincheckError naming every field that is wrong, and what is named twice; OSError.
    """
    data = toml.read(path, "a draft of a plan", "see docs/pilot.md for its fields")
    draft = toml.validated(Draft, data, str(path), newest=SCHEMA, see="docs/pilot.md")
    for what, names in (
        ("arms", draft.arms),
        ("solvers", tuple(solver.name for solver in draft.solvers)),
        ("cases", draft.cases),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TraincheckError(f"{path}: {what}: {', '.join(twice)} is there twice", "leave one out")
    if not draft.arms:
        raise TraincheckError(f"{path}: arms: there is none", 'arms = ["control", "optional"]')
    if len(draft.turns) > draft.budgets.turns - 1:
        raise TraincheckError(
            f"{path}: turns: {len(draft.turns)} later messages, but budgets.turns is {draft.budgets.turns}, "
            "the task included",
            "fewer messages, or more turns",
        )
    return draft
