"""The ``traincheck`` command: its groups, the options before the command's name, and the list of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from traincheck.cli import (
    check,
    collect,
    doctor,
    infer,
    invariants_diff,
    invariants_filter,
    invariants_merge,
    invariants_show,
    invariants_suppress,
    manual,
    mcp,
    overhead_profile,
    overhead_report,
    overhead_run,
    overhead_verify,
    pilot_annotate,
    pilot_deviation,
    pilot_grade,
    pilot_plan,
    pilot_qualify,
    pilot_replay,
    pilot_report,
    pilot_run,
    pilot_vary,
    trace_compact,
    trace_diff,
    trace_import,
    trace_show,
)
from traincheck.cli._guard import Commands
from traincheck.cli._help import examples

app = typer.Typer(
    name="traincheck",
    cls=Commands,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "traincheck collect -o runs/good -- python train.py",
        "traincheck infer runs/good -o good.jsonl",
        "traincheck collect -o runs/bad -- python train_changed.py",
        "traincheck check runs/bad -i good.jsonl",
    ),
)

trace = typer.Typer(
    name="trace",
    cls=Commands,
    help="Look at, convert and compare traces.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=examples("traincheck trace show runs/good", "traincheck trace diff runs/good runs/bad"),
)

invariants = typer.Typer(
    name="invariants",
    cls=Commands,
    help="Look at, choose, merge, compare and suppress invariants.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=examples(
        "traincheck invariants show good.jsonl",
        "traincheck invariants filter good.jsonl --min-references 2 -o sure.jsonl",
        'traincheck invariants suppress good.jsonl 4 --reason "frozen on purpose"',
    ),
)

overhead = typer.Typer(
    name="overhead",
    cls=Commands,
    help="Measure what watching costs on real training, with proof that training stays the same.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=examples(
        "traincheck overhead run studies/digits-cnn.toml --quick -o out/digits",
        "traincheck overhead report out/digits",
        "traincheck overhead verify out/digits",
    ),
)

pilot = typer.Typer(
    name="pilot",
    cls=Commands,
    help="Study whether access to TrainCheck helps agents repair real training failures.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=examples(
        "traincheck pilot plan pilots/tiny.toml -o plan.json",
        "traincheck pilot run plan.json -o out/tiny",
        "traincheck pilot grade out/tiny",
        "traincheck pilot report out/tiny",
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from traincheck import __version__

        typer.echo(f"traincheck {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="TRAINCHECK_DEBUG", help="Show the traceback when TrainCheck itself fails."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Watch PyTorch training, learn what a healthy run does, and say what broke in the others.

    For coding agents: traincheck manual --agent.
    """
    # ``debug`` is read by the guard, which stands around all commands; ``version`` has done its work.


collect.register(app)
infer.register(app)
check.register(app)
app.add_typer(trace)
trace_show.register(trace)
trace_compact.register(trace)
trace_import.register(trace)
trace_diff.register(trace)
app.add_typer(invariants)
invariants_show.register(invariants)
invariants_filter.register(invariants)
invariants_merge.register(invariants)
invariants_diff.register(invariants)
invariants_suppress.register(invariants)
app.add_typer(overhead)
overhead_run.register(overhead)
overhead_report.register(overhead)
overhead_verify.register(overhead)
overhead_profile.register(overhead)
app.add_typer(pilot)
pilot_plan.register(pilot)
pilot_run.register(pilot)
pilot_grade.register(pilot)
pilot_qualify.register(pilot)
pilot_vary.register(pilot)
pilot_replay.register(pilot)
pilot_deviation.register(pilot)
pilot_annotate.register(pilot)
pilot_report.register(pilot)
doctor.register(app)
manual.register(app)
mcp.register(app)


def main() -> None:
    """Entry point of the ``traincheck`` script."""
    app(prog_name="traincheck")
