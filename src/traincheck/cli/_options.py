"""Arguments and options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a collected run.", show_default=False)]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of collected runs.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, to standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing output.")]
StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="Study file (TOML).", show_default=False)]
TrainingPython = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PYTHON",
        help=r"Python that trains; it has the workload's framework and TrainCheck.  \[default: this one]",
        show_default=False,
    ),
]
