"""What a plan freezes, as it is now: cases, the package, the grader, the manual, versions."""

from __future__ import annotations

import hashlib
import platform
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import traincheck
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.sources import Objects
from traincheck.studykit.hashes import files_of, sha256_file, sha256_tree

DISTRIBUTIONS: Final = ("inspect-ai", "inspect-swe", "numpy", "torch", "traincheck")
"""What runs and grades trials. A case's own are those of its ``modules``."""

ABSENT: Final = "not installed"


@dataclass(frozen=True)
class Current:
    """The state of all that a plan rests on."""

    cases: dict[str, dict[str, str]]
    package: str
    grader: str
    manual: str
    versions: dict[str, str]


def current(folders: Mapping[str, Path]) -> Current:
    """The state now; ``folders`` are those of the cases by name. Raises TraincheckError, OSError."""
    held = {name: CaseFolder(folder) for name, folder in folders.items()}
    with tempfile.TemporaryDirectory(prefix="traincheck-plan-") as scratch:
        cases = {name: case.hashes(Objects(Path(scratch))) for name, case in held.items()}
    modules = {name for case in held.values() for name in case.case.modules}
    return Current(
        cases=cases,
        package=sha256_tree(_package()),
        grader=grader_hash(),
        manual=manual_hash(),
        versions=versions(modules),
    )


def grader_hash() -> str:
    """SHA-256 over the source of grading, and over the models in which it and the accounting give their results."""
    pilot = _package() / "pilot"
    paths = [*files_of(pilot / "grading"), pilot / "figures.py", pilot / "verdicts.py"]
    lines = [f"{sha256_file(path)}  {path.relative_to(pilot).as_posix()}\n" for path in paths]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def manual_hash() -> str:
    """SHA-256 of the agents' manual, UTF-8."""
    from traincheck.agents.manual import for_agents

    return hashlib.sha256(for_agents().encode()).hexdigest()


def versions(modules: Iterable[str] = ()) -> dict[str, str]:
    """Exact versions of Python and of everything that runs and grades trials."""
    found = {"python": platform.python_version()}
    for name in sorted({*DISTRIBUTIONS, *modules}):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ABSENT
    return found


def _package() -> Path:
    return Path(traincheck.__file__).parent
