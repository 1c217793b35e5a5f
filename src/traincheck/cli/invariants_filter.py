"""``traincheck invariants filter``: a file with some of the invariants."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json
from traincheck.cli._selection import Api, Files, Item, MinReferences, MinSupport, Relation, Tensor


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="filter",
        epilog=examples(
            "traincheck invariants filter good.jsonl --min-references 2 -o sure.jsonl",
            "traincheck invariants filter good.jsonl --tensor Parameter.grad --not-api AdamW.* -o grads.jsonl",
            "traincheck invariants filter good.jsonl --not-index 3 --not-index 7 -o fewer.jsonl",
        ),
    )(filter_)


def filter_(
    files: Files,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="Invariant file to write.", show_default=False)
    ],
    relation: Relation = None,
    api: Api = None,
    tensor: Tensor = None,
    item: Item = None,
    min_support: MinSupport = 0,
    min_references: MinReferences = 0,
    not_relation: Annotated[
        list[str] | None, typer.Option("--not-relation", metavar="NAME", help="Not these.", show_default=False)
    ] = None,
    not_api: Annotated[
        list[str] | None, typer.Option("--not-api", metavar="GLOB", help="Not these.", show_default=False)
    ] = None,
    not_tensor: Annotated[
        list[str] | None, typer.Option("--not-tensor", metavar="GLOB", help="Not these.", show_default=False)
    ] = None,
    not_item: Annotated[
        list[str] | None,
        typer.Option("--not-id", "--not-index", metavar="INDEX|ID", help="Not these.", show_default=False),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Write the invariants that were asked for to a new file, with its provenance.

    Different options must all hold, of a repeated one any; what a --not-… names is left out in any case.
    """
    from traincheck.cli._paths import fresh_file, input_file

    for path in files:
        input_file(path, "an invariant file")
    fresh_file(output, force)

    from traincheck.errors import TraincheckError
    from traincheck.manage.select import Selection
    from traincheck.manage.sets import concatenated, read, save_derived

    sources = read(files)
    invariants = concatenated(sources)
    selection = Selection(
        relations=tuple(relation or ()),
        apis=tuple(api or ()),
        tensors=tuple(tensor or ()),
        items=tuple(item or ()),
        min_support=min_support,
        min_references=min_references,
        not_relations=tuple(not_relation or ()),
        not_apis=tuple(not_api or ()),
        not_tensors=tuple(not_tensor or ()),
        not_items=tuple(not_item or ()),
    )
    chosen = selection.choose(invariants)
    if not chosen:
        raise TraincheckError(
            f"none of {len(invariants):,} invariants is as asked for: nothing was written",
            "fewer options; `traincheck invariants show FILE` lists what there is",
        )
    save_derived([invariants[n] for n in chosen], output, sources, {"by": "filter", **selection.to_json()})
    if as_json:
        _output.print_json(
            {
                "schema": 1,
                "files": [str(path) for path in files],
                "output": str(output),
                "read": len(invariants),
                "written": len(chosen),
                "selection": selection.to_json(),
            }
        )
        return
    _output.say(f"{len(chosen):,} of {len(invariants):,} invariants -> {output}")
