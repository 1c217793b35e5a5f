"""``traincheck pilot deviation``: record what was done otherwise than planned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="deviation",
        epilog=examples(
            "traincheck pilot deviation out/tiny --what package --why 'the collector lost links; no snapshot changed'",
            "traincheck pilot deviation out/tiny --what 'not run' --trial t-bcdfghjk --why 'the provider was down'",
            "traincheck pilot deviation out/tiny",
        ),
    )(deviation)


def deviation(
    pilot: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a pilot.", show_default=False)],
    what: Annotated[
        str | None,
        typer.Option("--what", metavar="NAME", help="What is otherwise, as a refusal names it.", show_default=False),
    ] = None,
    why: Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason.", show_default=False)] = None,
    trial: Annotated[
        str | None, typer.Option("--trial", metavar="ID", help="The trial it concerns.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Record a deviation from the plan, or list those recorded.

    A change of something frozen (package, grader, a case, a version) is refused by run, grade and report
    until it is recorded; what it is now is recorded with it. Nothing is ever taken back, and the report lists all.
    """
    from traincheck.cli._paths import input_file
    from traincheck.errors import TraincheckError
    from traincheck.pilot import planning
    from traincheck.pilot.layout import Layout
    from traincheck.pilot.planning import deviations
    from traincheck.pilot.planning.verifying import differences

    layout = Layout(pilot)
    plan = planning.load(input_file(layout.plan, "the plan of a pilot"))
    if (what is None) != (why is None):
        raise TraincheckError("expected --what and --why, found one of them", "both, or none to list what is recorded")
    if trial is not None and trial not in {one.id for one in plan.order}:
        raise TraincheckError(f"the plan has no trial {trial}", "an id of `traincheck pilot plan`'s table")
    if what is not None and why is not None:
        changed = differences(plan, pilot).get(what)
        found = changed.now if changed else None
        one = deviations.Deviation(what=what, why=why, trial=trial, found=found, plan=plan.hash)
        deviations.record(layout.deviations, one)
    held = deviations.load(layout.deviations)
    if as_json:
        _output.print_json({"plan": plan.hash, "deviations": [one.model_dump(mode="json") for one in held]})
        return
    _output.table(("what", "trial", "why"), [(one.what, one.trial or "all", one.why) for one in held])
