"""``traincheck collect``: run a command and record its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force

if TYPE_CHECKING:
    from traincheck.selective import Lookup


class Scope(str, Enum):
    """How much of a run is probed."""

    FULL = "full"
    BOUNDARY = "boundary"


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="collect",
        # Everything from the first word that is no option belongs to the command, its options included.
        context_settings={"allow_interspersed_args": False},
        epilog=examples(
            "traincheck collect -- python train.py --lr 0.1",
            "traincheck collect -o runs/ddp --scope boundary -- torchrun --nproc-per-node 2 train.py",
            "traincheck collect -i good.jsonl --every 10 --warmup 5 -- ./train.sh",
        ),
    )(collect)


def collect(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND",
            help="The command that trains, as you would run it: python, torchrun, accelerate, a shell script, …",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="RUN",
            help=r"Folder of the trace.  \[default: runs/<script>-<date>-<time>]",
            show_default=False,
        ),
    ] = None,
    scope: Annotated[
        Scope,
        typer.Option(
            help="full: all public functions of torch. boundary: what training loops are made of (for torch.compile)."
        ),
    ] = Scope.FULL,
    invariants: Annotated[
        list[Path] | None,
        typer.Option(
            "-i",
            "--invariants",
            metavar="FILE",
            help="Observe only what checking these invariants needs. Repeatable.",
            show_default=False,
        ),
    ] = None,
    allow_partial: Annotated[
        bool,
        typer.Option(
            "--allow-partial",
            help="With -i: go on when some invariants cannot be observed; `traincheck check` then names them.",
        ),
    ] = False,
    every: Annotated[
        int, typer.Option(min=1, metavar="N", help="Observe every Nth step; probes are off in between.")
    ] = 1,
    warmup: Annotated[int, typer.Option(min=0, metavar="W", help="Observe the first W steps in any case.")] = 0,
    stage_only: Annotated[
        list[str] | None,
        typer.Option(
            "--stage-only",
            metavar="STAGE",
            help="Observe only this stage: training, evaluation, … Repeatable, or comma-separated.",
            show_default=False,
        ),
    ] = None,
    no_state: Annotated[
        bool,
        typer.Option("--no-state", help="Record calls only: no models, no optimizer state, no batches. Not with -i."),
    ] = False,
    package: Annotated[
        list[str] | None,
        typer.Option(
            "--package",
            metavar="NAME",
            help="Also probe the public functions of this package. Repeatable.",
            show_default=False,
        ),
    ] = None,
    trace_workers: Annotated[
        bool, typer.Option("--trace-workers", help="Also trace DataLoader worker processes.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing of ours: no line at the start, no summary.")
    ] = False,
    force: Force = False,
) -> None:
    """Run a command unchanged and record what its training does.

    Write it after the options of ours, or after --. It keeps its arguments,
    working directory, input, output and signals, and its exit code becomes
    ours. Child processes are covered. Training stays bitwise the same.
    """
    from traincheck.cli._paths import TRACE_FILES, default_run, fresh_folder, input_file
    from traincheck.errors import TraincheckError

    stages = _stages(stage_only or [])
    files = [input_file(path, "an invariant file") for path in invariants or []]
    if files and no_state:
        raise TraincheckError("-i observes what its invariants need, state included", "leave out --no-state, or -i")

    from traincheck.collect.launch import LaunchOptions, find, launch
    from traincheck.collect.plan import Plan

    plan = Plan(
        scope=scope.value,
        packages=tuple(dict.fromkeys(["torch", *(package or [])])),
        every=every,
        warmup=warmup,
        state=not no_state,
        stages=stages,
        trace_workers=trace_workers,
    )
    if files:
        from traincheck.invariants import load_invariants
        from traincheck.selective import selective

        plan = selective(plan, load_invariants(*files), allow_partial=allow_partial, lookup=_lookup(command, quiet))
        for one in plan.unobservable:
            _output.note(f"traincheck: not observable: {one['id']}: {one['reason']}")
    find(command)  # before an earlier run is removed
    run = fresh_folder(output or default_run(command), force, TRACE_FILES)
    code = launch(LaunchOptions(command=command, output=run, plan=plan, quiet=quiet))
    # A program ended by signal n has code -n in Python, and 128 + n in every shell.
    raise typer.Exit(code if code >= 0 else 128 - code)


def _lookup(command: list[str], quiet: bool) -> Lookup:
    """Asks the command's interpreter which functions it has."""
    from traincheck.collect.lookup import missing

    def ask(functions: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
        found = missing(command[0], functions)
        if found is None and not quiet:
            _output.note(f"traincheck: could not ask the Python of {command[0]} what it has; the check will tell")
        return found or {}

    return ask


def _stages(given: list[str]) -> tuple[str, ...]:
    from traincheck.errors import TraincheckError
    from traincheck.events import STAGES

    stages = tuple(dict.fromkeys(word.strip() for item in given for word in item.split(",")))
    for stage in stages:
        if stage not in STAGES:
            raise TraincheckError(f"there is no stage {stage!r}", f"--stage-only with one of {', '.join(STAGES)}")
    return stages
