"""Options by which invariants are chosen, the same in every command that chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Invariant files (.gz too).", show_default=False)]
Relation = Annotated[
    list[str] | None,
    typer.Option(
        "--relation", metavar="NAME", help="Of this relation (APIContain, …). Repeatable.", show_default=False
    ),
]
Api = Annotated[
    list[str] | None,
    typer.Option(
        "--api",
        metavar="GLOB",
        help="About a function of this name, or with this end of a name: AdamW.step. Repeatable.",
        show_default=False,
    ),
]
Tensor = Annotated[
    list[str] | None,
    typer.Option(
        "--tensor",
        metavar="GLOB",
        help="About variables of this name, type or attribute: fc.weight, Parameter.grad. Repeatable.",
        show_default=False,
    ),
]
Item = Annotated[
    list[str] | None,
    typer.Option(
        "--id", "--index", metavar="INDEX|ID", help="This one, by index or id. Repeatable.", show_default=False
    ),
]
MinSupport = Annotated[
    int,
    typer.Option("--min-support", metavar="N", min=0, help="Applied at least N times in its references."),
]
MinReferences = Annotated[
    int,
    typer.Option("--min-references", metavar="N", min=0, help="Applied in at least N reference runs."),
]
