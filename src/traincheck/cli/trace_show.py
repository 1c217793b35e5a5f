"""``traincheck trace show``: what a trace holds and what it lacks."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json, Run

if TYPE_CHECKING:
    from traincheck.trace.summary import Summary


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="show",
        epilog=examples(
            "traincheck trace show runs/good",
            "traincheck trace show runs/good --top 0",
            "traincheck trace show runs/good --json",
        ),
    )(show)


def show(
    run: Run,
    top: Annotated[
        int, typer.Option("--top", min=0, metavar="N", help="Functions, steps and state to list at most; 0: all.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Show a trace: the command, each process and its end, counts by function and step, state, gaps.

    Works on the trace of a run that is still going on, and says where it ends.
    """
    from traincheck.cli._paths import input_folder

    input_folder(run, "a trace")

    from traincheck.trace import open_trace

    with _output.working("reading"):
        summary = open_trace(run).summary()
    if as_json:
        _output.print_json(summary.to_json())
    else:
        render(summary, top)


def render(summary: Summary, top: int = 20) -> None:
    """Print a summary; lists are cut to ``top`` rows (0: not at all), and that is said."""
    _facts(summary)
    _output.heading(f"Processes ({len(summary.processes)})")
    _output.table(
        (">pid", ">rank", "end", ">exit", ">steps", ">calls", ">open", ">captures", ">states", ">lost", ">threads"),
        [
            (
                None if process.pid is None else str(process.pid),
                process.rank,
                process.end or "unknown",
                process.exit,
                process.steps,
                process.calls,
                process.open_calls,
                process.captures,
                process.states,
                process.dropped,
                process.threads,
            )
            for process in summary.processes
        ],
    )
    _list(
        "Functions",
        ("function", ">calls", ">raised", ">open", ">first step", ">last step"),
        [(f.function, f.calls, f.raised, f.open, f.first_step, f.last_step) for f in summary.functions],
        top,
    )
    _list(
        "Steps",
        (">step", "stages", ">processes", ">calls", ">captures", ">states", ">seconds"),
        [(s.step, ", ".join(s.stages), s.processes, s.calls, s.captures, s.states, s.seconds) for s in summary.steps],
        top,
    )
    _list(
        "State",
        ("role", "owner", "attribute", "observed", ">variables", ">observations", "steps"),
        [
            (c.role, c.owner, c.attribute, f"{c.moment} {c.reason}", c.variables, c.observations, c.steps)
            for c in summary.coverage
        ],
        top,
    )
    _missing(summary)


def _facts(summary: Summary) -> None:
    plan = summary.plan
    sampling = f", every {plan['every']}th step" if plan.get("every", 1) != 1 else ""
    facts = {
        "trace": f"{summary.path} ({summary.source})",
        "command": shlex.join(summary.command) if summary.command else None,
        "started": _time(summary.started_ns),
        "took": _seconds(summary.started_ns, summary.ended_ns),
        "exit code": summary.exit_code,
        "scope": f"{plan['scope']}{sampling}" if "scope" in plan else None,
        "holds": f"{summary.calls:,} calls, {summary.captures:,} captures, {summary.states:,} states of "
        f"{summary.variables:,} variables, {summary.marks:,} marks",
        "stages": ", ".join(f"{stage} {calls:,} calls" for stage, calls in summary.stages.items()) or None,
    }
    for name, fact in facts.items():
        if fact is not None:
            _output.say(f"{name:<10} {fact}")


def _list(title: str, headers: tuple[str, ...], rows: list[tuple[object, ...]], top: int) -> None:
    if not rows:
        return
    shown = rows[:top] if top else rows
    _output.heading(f"{title} ({len(rows):,}" + (f", the first {top})" if len(shown) < len(rows) else ")"))
    _output.table(headers, shown)


def _missing(summary: Summary) -> None:
    faults = [(process, fault) for process in summary.processes for fault in process.faults]
    if not (summary.lacks or summary.gaps or faults):
        _output.say("\nNothing that was recorded is missing.")
        return
    _output.heading("Missing")
    for lack in summary.lacks:
        _output.say(f"  {lack.text}")
    for gap in summary.gaps:
        _output.say(f"  Process {gap.process}, step {gap.step}: {gap.lost:,} records were lost for want of space.")
    for process, fault in faults:
        _output.say(f"  Process {process.index}: our own fault in {fault.where}, {fault.count} times: {fault.error}")


def _time(ns: int | None) -> str | None:
    return None if ns is None else datetime.fromtimestamp(ns / 1e9).astimezone().isoformat(sep=" ", timespec="seconds")


def _seconds(start: int | None, end: int | None) -> str | None:
    if start is None:
        return None
    return "not ended, or it never said so" if end is None else f"{(end - start) / 1e9:.1f} s"
