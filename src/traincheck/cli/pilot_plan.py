"""``traincheck pilot plan``: freeze a draft before the first trial."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="plan",
        epilog=examples(
            "traincheck pilot plan pilots/offline.toml -o plan.json",
            "traincheck pilot plan pilots/offline.toml -o plan.json --json",
        ),
    )(plan)


def plan(
    draft: Annotated[Path, typer.Argument(metavar="DRAFT", help="Draft of a plan (TOML).", show_default=False)],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="PLAN", help="File for the plan (JSON).", show_default=False)
    ],
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Freeze cases, arms, order, budgets, grader and manual under one hash, and say what the trials can show.

    The order of trials comes from the draft's seed: randomised blocks that hold every arm once.
    Running, grading and reporting refuse when anything that the plan froze has changed.
    """
    from traincheck.cli._paths import fresh_file, input_file
    from traincheck.pilot import planning
    from traincheck.pilot.planning import advice, power

    input_file(draft, "a draft of a plan")
    fresh_file(output, force)
    frozen = planning.write(planning.freeze(planning.read_draft(draft), draft.parent), draft.parent, output)
    if as_json:
        _output.print_json({"hash": frozen.hash, **frozen.model_dump(mode="json", by_alias=True)})
        return
    _output.table(
        (">position", "trial", ">block", "case", "arm", "solver"),
        [(trial.position, trial.id, trial.block, trial.case, trial.arm, trial.solver) for trial in frozen.order],
    )
    for text in power.sentences(frozen.detectable):
        _output.say(text)
    for text in advice.lacks(frozen):
        _output.note(f"note: {text}")
    _output.say(f"plan: {output}, hash {frozen.hash}")
