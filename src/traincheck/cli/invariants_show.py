"""``traincheck invariants show``: what is in invariant files."""

from __future__ import annotations

from typing import Any

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Json
from traincheck.cli._selection import Api, Files, Item, MinReferences, MinSupport, Relation, Tensor


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="show",
        epilog=examples(
            "traincheck invariants show good.jsonl",
            "traincheck invariants show good.jsonl --api AdamW.step --min-support 10",
            "traincheck invariants show good.jsonl --index 3",
        ),
    )(show)


def show(
    files: Files,
    relation: Relation = None,
    api: Api = None,
    tensor: Tensor = None,
    item: Item = None,
    min_support: MinSupport = 0,
    min_references: MinReferences = 0,
    as_json: Json = False,
) -> None:
    """List invariants; with --index or --id, one in full: parameters, precondition and support in words."""
    from traincheck.cli._paths import input_file

    for path in files:
        input_file(path, "an invariant file")

    from traincheck.invariants import load_invariants
    from traincheck.manage import words
    from traincheck.manage.select import Selection

    invariants = load_invariants(*files)
    chosen = Selection(
        relations=tuple(relation or ()),
        apis=tuple(api or ()),
        tensors=tuple(tensor or ()),
        items=tuple(item or ()),
        min_support=min_support,
        min_references=min_references,
    ).choose(invariants)
    told = [(words.detail if item else words.row)(invariants, number) for number in chosen]
    if as_json:
        _output.print_json(
            {
                "schema": 1,
                "files": [str(path) for path in files],
                "total": len(invariants),
                "shown": len(told),
                "invariants": told,
            }
        )
        return
    if item:
        for one in told:
            _in_full(one, words.support_line(invariants[one["index"]]))
        return
    if told:
        columns = (">index", "relation", "text", ">support", ">steps", ">references")
        rows = [[one[name.removeprefix(">")] for name in columns] for one in told]
        for cells in rows:
            cells[1] = cells[1].removesuffix("Relation")
        _output.table(columns, rows)
        _output.say()
    of = f"{len(told):,} of " if len(told) < len(invariants) else ""
    _output.say(f"{of}{len(invariants):,} invariant{'' if len(invariants) == 1 else 's'}")


def _in_full(one: dict[str, Any], support: str) -> None:
    _output.heading(f"{one['index']}  {one['text']}")
    _output.say(f"relation      {one['relation']}")
    _output.say(f"id            {one['id']}")
    for title, lines in (
        ("parameters", one["parameters"]),
        ("precondition", [f"of {part['of']}: {part['holds_when']}" for part in one["precondition"]] or ["always"]),
    ):
        for number, line in enumerate(lines):
            _output.say(f"{title if number == 0 else '':<14}{line}")
    _output.say(f"support       {support}")
    _output.say(f"from          {one['file']}, line {one['line']}")
