"""``traincheck pilot grade``: judge every distinct source of closed trials in every scenario."""

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
        name="grade",
        epilog=examples(
            "traincheck pilot grade out/tiny",
            "traincheck pilot grade out/tiny --case tiny-accumulation --json",
        ),
    )(grade)


def grade(
    pilot: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the pilot.", show_default=False)],
    case: Annotated[
        list[str] | None,
        typer.Option("--case", metavar="NAME", help="Only this case. Repeatable.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay every distinct source of a case in every scenario, privately, and find first valid submissions.

    Needs all trials of the case to be closed. Can be stopped and started again:
    replays that are done are kept. Ends with 0 when all cases are valid,
    3 when the initial source of one does not behave as registered, 2 on a pilot that can't be graded.
    """
    import sys

    from traincheck.cli._paths import input_folder
    from traincheck.errors import VIOLATIONS
    from traincheck.pilot.grading.grade import grade as work

    input_folder(pilot, "a pilot's folder")
    with _output.progress("grading") as bar:

        def say(what: str, done: int, total: int) -> None:
            bar(what, done, total)
            if not sys.stderr.isatty():
                _output.note(f"{done}/{total} {what}")

        try:
            grades = work(pilot, tuple(case or ()), say=say)
        except KeyboardInterrupt:
            _output.note(f"replays that are done are kept in {pilot / 'grading'}; the same command goes on")
            raise
    if as_json:
        _output.print_json([one.model_dump(mode="json", by_alias=True) for one in grades])
    else:
        for one in grades:
            _output.heading(f"{one.case}: {'valid' if one.valid else 'invalid'}")
            for problem in one.problems:
                _output.say(problem)
            _output.say(", ".join(f"{number} {verdict.replace('_', ' ')}" for verdict, number in one.counts.items()))
            _output.table(
                ("trial", ">submitted", ">distinct", "first valid", ">number", "final"),
                [
                    (name, len(trial.occurrences) - 1, trial.distinct, trial.first_valid.status,
                     trial.first_valid.number, trial.final.verdict)
                    for name, trial in one.trials.items()
                ],
            )  # fmt: skip
    raise typer.Exit(0 if all(one.valid for one in grades) else VIOLATIONS)
