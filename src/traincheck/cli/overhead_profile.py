"""``traincheck overhead profile``: where the cost of watching goes, by component."""

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
        name="profile",
        epilog=examples(
            "traincheck overhead profile studies/digits-cnn.toml --mode full -o out/profile",
            "traincheck overhead profile studies/torchtitan-llama-debug.toml -o out/profile --python titan/bin/python",
        ),
    )(profile)


def profile(
    study: StudyFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder of the profile.", show_default=False)
    ],
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="NAME",
            help=r"Only this mode of the study. Repeatable.  \[default: all but the peer's]",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option("--steps", min=3, metavar="N", help="Steps counted with probes on, and off.")
    ] = 24,
    python: TrainingPython = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Time the components of watching in a study's workload: CPU time of the training thread, in exclusive parts.

    Shares are of the profiled window, no promise of what could be saved.
    Ends with 0 when the parts add up to the window, 3 when too much of it
    is unattributed or a part is missing, 2 on a study that can't be run.
    """
    import shlex
    import sys

    from traincheck.cli._paths import executable, fresh_folder, input_file
    from traincheck.errors import VIOLATIONS
    from traincheck.files import write_whole
    from traincheck.overhead.policy import load_policy
    from traincheck.overhead.profile import command, page
    from traincheck.overhead.trial import Place

    policy = command.choose(load_policy(input_file(study, "a study file")), tuple(mode or ()))
    fresh_folder(output, force, command.FILES)
    place = Place(
        folder=output.resolve(),
        policy=policy,
        python=str(executable(python or sys.executable)),
        peer_python=None,
        workload_path=str(study.resolve().parent),
    )
    with _output.progress("profile") as bar:
        found = command.Profiling(place, study, bar, steps).run()
    words = ["traincheck", "overhead", "profile", str(study), *(f"--mode={name}" for name in mode or ())]
    words += ["--steps", str(steps), "-o", str(output), *(["--python", python] if python else [])]
    write_whole({output / command.PAGE: page.markdown(found, shlex.join(words))})
    if as_json:
        _output.print_json(found)
    else:
        for one in found["modes"]:
            _output.heading(one["mode"])
            _output.table(page.HEADERS, page.rows(one))
            for sentence in page.words(one):
                _output.say(sentence)
        _output.say(f"profile: {output}")
    raise typer.Exit(0 if found["reconciles"] else VIOLATIONS)
