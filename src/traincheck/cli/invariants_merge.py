"""``traincheck invariants merge``: several invariant files as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json
from traincheck.cli._selection import Files


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="merge", epilog=examples("traincheck invariants merge cnn.jsonl gpt2.jsonl -o both.jsonl"))(merge)


def merge(
    files: Files,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="Invariant file to write.", show_default=False)
    ],
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Put invariant files together: equal rules once, with the support and the provenance of all.

    A union: what one file learned is not known to hold in the runs of the others. `traincheck infer RUN RUN` learns
    what holds in all.
    """
    from traincheck.cli._paths import fresh_file, input_file

    for path in files:
        input_file(path, "an invariant file")
    fresh_file(output, force)

    from traincheck.manage.merge import merge as unite
    from traincheck.manage.sets import read, save_derived

    sources = read(files)
    merged = unite(sources)
    save_derived(merged.invariants, output, sources, {"by": "merge"})
    duplicates = merged.read - len(merged.invariants)
    if as_json:
        _output.print_json(
            {
                "schema": 1,
                "files": [str(path) for path in files],
                "output": str(output),
                "read": merged.read,
                "written": len(merged.invariants),
                "duplicates": duplicates,
                "several_preconditions": merged.several_preconditions,
            }
        )
        return
    _output.say(
        f"{len(merged.invariants):,} invariants from {len(files)} files ({duplicates:,} duplicates) -> {output}"
    )
    if merged.several_preconditions:
        _output.note(
            f"note: {merged.several_preconditions:,} rules stand in it with several preconditions: the files differ"
        )
