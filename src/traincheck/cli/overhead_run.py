"""``traincheck overhead run``: measure what watching costs, and prove that training stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json, StudyFile, TrainingPython


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="run",
        epilog=examples(
            "traincheck overhead run studies/digits-cnn.toml --quick -o out/digits",
            "traincheck overhead run studies/torchtitan-llama-debug.toml -o out/titan --python titan/bin/python",
            "traincheck overhead run studies/digits-cnn.toml -o out/digits --peer-python old/bin/python",
        ),
    )(run)


def run(
    study: StudyFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of the study.", show_default=False)
    ],
    quick: Annotated[bool, typer.Option("--quick", help="The short form that the study file gives.")] = False,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", metavar="NAME", help="Only this mode of the study. Repeatable.", show_default=False),
    ] = None,
    python: TrainingPython = None,
    peer_python: Annotated[
        str | None,
        typer.Option(
            "--peer-python",
            metavar="PYTHON",
            envvar="TRAINCHECK_PEER_PYTHON",
            help="Python of an environment with TrainCheck 0.x, for the peer modes.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted study; finished trials are kept.")
    ] = False,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Train plain and watched, in pairs of fresh processes, and compare both cost and training bit by bit.

    Ends with 0 when every pair counts, 3 when one does not (training differed,
    a step failed, a trace is faulty), 2 on a study that can't be run.
    """
    import sys

    from traincheck.cli._paths import executable, fresh_folder, input_file
    from traincheck.errors import VIOLATIONS, TraincheckError
    from traincheck.overhead import artifacts, summary
    from traincheck.overhead.policy import load_policy
    from traincheck.overhead.study import Study
    from traincheck.overhead.trial import Place

    policy = load_policy(input_file(study, "a study file"))
    if quick:
        policy = policy.quickened()
    if mode:
        policy = policy.only(tuple(mode))
    if resume and not (output / artifacts.STUDY).exists():
        raise TraincheckError(f"there is no study to go on with in {output}", "leave out --resume")
    place = Place(
        folder=output.resolve(),
        policy=policy,
        python=str(executable(python or sys.executable)),
        peer_python=str(executable(peer_python)) if peer_python else None,
        workload_path=str(study.resolve().parent),
    )
    with _output.progress("study") as bar:

        def say(what: str, done: int, total: int) -> None:
            bar(what, done, total)
            if not sys.stderr.isatty():  # minutes lie between them: a log wants a line each
                _output.note(f"{done}/{total} {what}")

        whole = Study(place, study, say, quick=quick)
        whole.refuse()
        if not resume:
            fresh_folder(output, force, artifacts.FILES)
        try:
            result = whole.run(resume)
        except KeyboardInterrupt:
            _output.note(f"what was measured so far is in {output}; --resume goes on")
            raise
    if as_json:
        _output.print_json(result)
    else:
        summary.render(result, _output.say, _output.table)
        _output.say(f"study: {output}")
    raise typer.Exit(0 if result["valid"] else VIOLATIONS)
