"""``traincheck invariants suppress``: accept violations of some invariants, with a reason and until a day."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json

if TYPE_CHECKING:
    from traincheck.invariants import InvariantSet
    from traincheck.suppressions import Day, Suppressions

_STATES = {"in_force": "in force", "ended": "ended", "unmatched": "of no invariant in the file"}


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="suppress",
        epilog=examples(
            'traincheck invariants suppress good.jsonl 4 7 --reason "frozen on purpose" --until 2027-01-31',
            "traincheck invariants suppress good.jsonl --list",
            "traincheck invariants suppress good.jsonl 4 --remove",
        ),
    )(suppress)


def suppress(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Invariant file (.gz too).", show_default=False)
    ] = None,
    items: Annotated[
        list[str] | None,
        typer.Argument(metavar="INDEX|ID...", help="Which of its invariants.", show_default=False),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why they are accepted.", show_default=False)
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="DATE", help="Last day it holds, as 2027-01-31.", show_default=False),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            "-s",
            "--suppressions",
            metavar="FILE",
            help=r"Suppressions file.  \[default: traincheck-suppressions.jsonl beside the invariant file]",
            show_default=False,
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the suppressions and change nothing.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take these suppressions out.")] = False,
    as_json: Json = False,
    force: Annotated[bool, typer.Option("--force", help="Replace suppressions that are there already.")] = False,
) -> None:
    """Accept violations of some invariants: `check` still judges them, but they make no finding and no exit code 3.

    The reason, the day and the end stand in a small file; nothing says who.
    """
    from traincheck.cli._paths import input_file
    from traincheck.invariants import InvariantSet, load_invariants
    from traincheck.manage.suppress import add
    from traincheck.manage.suppress import remove as take_out
    from traincheck.suppressions import FILE_NAME, Suppressions, load_suppressions, save_suppressions

    _usage(file, items, reason, until, show, remove)
    invariants = load_invariants(input_file(file, "an invariant file")) if file is not None else InvariantSet(())
    usual = file.with_name(FILE_NAME) if file is not None else Path(FILE_NAME)
    target = path or usual
    if show or remove:
        input_file(target, "a suppressions file")
    there = load_suppressions(target) if target.exists() else Suppressions((), (str(target),), date.today())
    if show:
        _list(there, invariants if file is not None else None, as_json)
        return
    if remove:
        entries, changed = take_out(there, invariants, items or [])
    else:
        entries, changed = add(there, invariants, items or [], reason or "", _day(until), replace=force)
    save_suppressions(entries, target)
    if as_json:
        done = {"removed" if remove else "suppressed": [one.to_json() for one in changed]}
        _output.print_json({"schema": 1, "file": str(target), **done})
        return
    for one in changed:
        _output.say(f"{'no longer suppressed' if remove else 'suppressed'}: {one.text}")
    _output.say(f"{len(entries):,} suppression{'' if len(entries) == 1 else 's'} in {target}")
    if not remove and target.resolve() != usual.resolve():
        _output.note(f"note: `traincheck check` takes it only with --suppressions {target}")


def _usage(
    file: Path | None, items: list[str] | None, reason: str | None, until: str | None, show: bool, remove: bool
) -> None:
    from traincheck.errors import TraincheckError

    hint = "traincheck invariants suppress --help"
    if show and remove:
        raise TraincheckError("expected --list or --remove, found both", hint)
    if (show or remove) and (reason is not None or until is not None):
        raise TraincheckError(
            f"--reason and --until go with suppressing, not with --{'list' if show else 'remove'}", hint
        )
    if show:
        if items:
            raise TraincheckError("--list lists all suppressions: expected no INDEX or ID", hint)
        return
    if file is None or not items:
        raise TraincheckError("expected an invariant file and the index or id of at least one of its invariants", hint)
    if not remove and reason is None:
        raise TraincheckError("expected a reason, found none", 'say why: --reason "…"')


def _day(text: str | None) -> Day | None:
    from traincheck.errors import TraincheckError
    from traincheck.suppressions import parse_day

    try:
        return None if text is None else parse_day(text)
    except ValueError as error:
        raise TraincheckError(f"--until: {error}", "for example 2027-01-31") from None


def _list(there: Suppressions, invariants: InvariantSet | None, as_json: bool) -> None:
    places: dict[str, int] = {}
    for number, invariant in enumerate(invariants or ()):
        places.setdefault(invariant.key, number)
    told: list[dict[str, Any]] = []
    for one in there:
        state = "ended" if one.expired(there.today) else "in_force"
        if invariants is not None and one.id not in places:
            state = "unmatched"
        told.append({"index": places.get(one.id), "state": state, **one.to_json()})
    if as_json:
        _output.print_json({"schema": 1, "file": there.files[0], "on": there.today.isoformat(), "suppressions": told})
        return
    if told:
        columns = ("index", "id", "date", "until", "state", "reason", "text")
        _output.table(
            (f">{columns[0]}", *columns[1:]),
            ([_STATES.get(one["state"]) if name == "state" else one.get(name) for name in columns] for one in told),
        )
        _output.say()
    _output.say(f"{len(told):,} suppression{'' if len(told) == 1 else 's'} in {there.files[0]}")
