"""Which suppressions a command takes into account, and what it says of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traincheck.cli import _output

if TYPE_CHECKING:
    from traincheck.suppressions import Suppressions


def chosen(invariants: Sequence[Path], given: Sequence[Path], none: bool) -> Suppressions | None:
    """Those of the files ``given``, else of files beside the invariant files, and says so; None without any.

    Raises TraincheckError.
    """
    from traincheck.cli._paths import input_file
    from traincheck.errors import TraincheckError
    from traincheck.suppressions import beside, load_suppressions

    if none:
        if given:
            raise TraincheckError("expected --suppressions or --no-suppressions, found both", "one of them")
        return None
    files = [input_file(path, "a suppressions file") for path in given] or beside(invariants)
    if not files:
        return None
    found = load_suppressions(*files)
    if not given:
        for file in files:
            _output.note(f"note: suppressions are taken from {file} (--no-suppressions leaves it out)")
    return found


def tell(suppressions: Suppressions, keys: Sequence[str]) -> None:
    """Notes on standard error: what ended, and what is of no invariant checked. ``keys``: of those checked."""
    for text in suppressions.notes(keys):
        _output.note(f"note: {text}")
