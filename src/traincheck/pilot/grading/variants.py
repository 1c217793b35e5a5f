"""Sources that a case holds itself: the initial one, oracles, other good repairs, repairs that are nearly right."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Literal

from traincheck.errors import TraincheckError
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.sources import Objects, SourceMap, capture, materialise

Kind = Literal["oracles", "alternatives", "mutants"]


def names(case: CaseFolder, kind: Kind) -> tuple[str, ...]:
    """Names of all variants of that kind."""
    folder = case.private / kind
    return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()


def variant(case: CaseFolder, objects: Objects, kind: Kind, name: str) -> SourceMap:
    """The initial source with the files of ``private/<kind>/<name>`` laid over it, kept in ``objects``.

    Raises TraincheckError when there is no such variant, or when it changes nothing.
    """
    over = case.private / kind / name
    if not over.is_dir():
        raise TraincheckError(
            f"case {case.case.name} has no {kind}/{name}", f"there are {', '.join(names(case, kind))}"
        )
    touched = [path for path in case.case.outside if (over / path).exists()]
    if touched:
        raise TraincheckError(
            f"{over} changes {', '.join(touched)}, which the case declares as outside of the program",
            "a variant is made of the program's own files",
        )
    initial = case.initial(objects)
    with tempfile.TemporaryDirectory(prefix="traincheck-variant-") as scratch:
        workspace = Path(scratch) / "workspace"
        materialise(initial, objects, workspace)
        for path in sorted(over.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                place = workspace / path.relative_to(over)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
        found = capture(workspace, objects, roots=case.case.roots, ignore=case.case.ignore)
    if kind != "oracles" and found.hash == initial.hash:
        raise TraincheckError(f"{over} changes nothing of the initial source", "a variant differs from it")
    objects.put_map(found)
    return found
