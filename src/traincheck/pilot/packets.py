"""What a solver gets: a workspace, the task, one sentence of its arm, perhaps a manual and the package. Nothing else.

Arms differ by the sentence, the manual and the package alone; ``check_arms`` shows it of the packets themselves.
"""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from traincheck.errors import TraincheckError
from traincheck.pilot import guard
from traincheck.pilot.canonical import sha256
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.plan import WITH_PACKAGE, Arm
from traincheck.pilot.sources import Objects, materialise
from traincheck.studykit import processes
from traincheck.studykit.hashes import files_of, sha256_file
from traincheck.studykit.strict import Strict

ARM_FIELDS: Final = frozenset({"sentence", "manual", "package"})
"""By what packets of two arms of one case may differ."""

_WITHHELD: Final = ("pilot",)
"""Parts of the package that are no tool for training: the study itself, its graders among it."""

SENTENCES: Final[Mapping[Arm, str]] = {
    "control": "You may use any tool that is installed.",
    "placebo": "You may use any tool that is installed; the manual of one of them is {manual}.",
    "optional": "You may use any tool that is installed; the manual of one of them, TrainCheck, is {manual}.",
    "encouraged": "You may use any tool that is installed; we suggest that you consider TrainCheck, whose manual is"
    " {manual}.",
    "instructed": "You may use any tool that is installed; run TrainCheck, whose manual is {manual}, at least once"
    " before you submit.",
}
"""One neutral sentence an arm: none says that there is a fault."""

PLACEBO: Final = Path(__file__).parent / "packet" / "placebo.md"
"""A manual of about the same length, of a tool that has nothing to do with training."""


class Packet(Strict):
    """A packet, by content. Two packets with equal fields are the same to a solver."""

    case: str
    task: str
    """SHA-256 of the task's text."""
    workspace: str
    """Source map."""
    guard: str
    """SHA-256 of what is in every Python worker, in every arm."""
    environment: str
    """SHA-256 of the variables a solver's processes have."""
    sentence: str
    manual: str | None
    """SHA-256 of the manual's text."""
    package: str | None
    """SHA-256 of the package."""


def build(case: CaseFolder, arm: Arm, manual: str, objects: Objects) -> Packet:
    """The packet of one arm of ``case``. ``manual`` is the text of the agents' manual."""
    text = manual_of(arm, manual)
    return Packet(
        case=case.case.name,
        task=sha256(case.task),
        workspace=objects.put_map(case.initial(objects)),
        guard=sha256(guard.content()),
        environment=sha256(environment({name: f"{{{name}}}" for name in PLACES}, "{python}")),
        sentence=SENTENCES[arm],
        manual=None if text is None else sha256(text),
        package=package_hash() if arm in WITH_PACKAGE else None,
    )


def differences(one: Packet, other: Packet) -> frozenset[str]:
    """Names of the fields by which two packets differ."""
    return frozenset(name for name in Packet.model_fields if getattr(one, name) != getattr(other, name))


def check_arms(packets: Mapping[Arm, Packet]) -> None:
    """Raise TraincheckError when packets of one case differ by more than sentence, manual and package."""
    (first, *rest) = packets.items()
    for arm, packet in rest:
        more = differences(first[1], packet) - ARM_FIELDS
        if more:
            raise TraincheckError(
                f"packets of arms {first[0]} and {arm} differ by more than sentence, manual and package:"
                f" {', '.join(sorted(more))}",
                "nothing else may tell one arm from another; see docs/pilot.md",
            )
    given = {packet.package for packet in packets.values() if packet.package is not None}
    if len(given) > 1:
        raise TraincheckError("the arms with the package have not the same package", "freeze the plan again")


def manual_of(arm: Arm, manual: str) -> str | None:
    """The text of the manual that an arm gets."""
    if arm in WITH_PACKAGE:
        return manual
    return PLACEBO.read_text(encoding="utf-8") if arm == "placebo" else None


def agents_manual() -> str:
    """The text that ``traincheck manual --agent`` prints."""
    from traincheck.agents.manual import for_agents

    return for_agents()


# -- the package -----------------------------------------------------------------------------------------------------


def _package_files() -> dict[str, Path]:
    top = Path(__file__).parents[1]
    found = {path.relative_to(top).as_posix(): path for path in files_of(top)}
    return {name: path for name, path in found.items() if name.split("/")[0] not in _WITHHELD}


@cache
def package_hash() -> str:
    """SHA-256 of the TrainCheck package as solvers get it: names and contents of its files, the study left out."""
    return sha256({name: sha256_file(path) for name, path in _package_files().items()})


def copy_package(folder: Path) -> None:
    """The package in ``folder``, with a ``bin/traincheck`` that runs it on this interpreter."""
    for name, path in _package_files().items():
        target = folder / "traincheck" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    script = folder / "bin" / "traincheck"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom traincheck.cli import main\n\nmain()\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


# -- laying it out ---------------------------------------------------------------------------------------------------

PLACES: Final = ("work", "home", "tmp", "vartmp", "guard", "package", "manual", "workers", "jobs")
"""Folders of a trial; ``guard``, ``package`` and ``manual`` are only read by the solver."""


def lay_out(root: Path, case: CaseFolder, arm: Arm, manual: str, packet: Packet, objects: Objects) -> None:
    """Make a trial's folders under ``root``, which is empty. Raises SourceError, OSError."""
    for name in PLACES:
        (root / name).mkdir(parents=True)
    materialise(objects.get_map(packet.workspace), objects, root / "work")
    guard.write(root / "guard", refuse=arm not in WITH_PACKAGE)
    if arm in WITH_PACKAGE:
        copy_package(root / "package")
    text = manual_of(arm, manual)
    if text is not None:
        (root / "manual" / "manual.md").write_text(text, encoding="utf-8")


def instructions(case: CaseFolder, arm: Arm, manual_path: str) -> str:
    """The operator's first message: the task, then the arm's sentence."""
    return f"{case.task.rstrip()}\n\n{SENTENCES[arm].format(manual=manual_path)}\n"


def environment(places: Mapping[str, str], python: str) -> dict[str, str]:
    """All variables of a solver's processes, the same in every arm. ``places`` are the folders as the solver sees them.

    ``package`` is on the paths of every arm; where there is no package it is an empty folder.
    """
    return {
        "HOME": places["home"],
        "TMPDIR": places["tmp"],
        "PATH": ":".join((f"{places['package']}/bin", str(Path(python).parent), "/usr/local/bin:/usr/bin:/bin")),
        "PYTHONPATH": f"{places['guard']}:{places['package']}",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "",  # devices are the service's to give, which sets it anew for a job
        **processes.settings(1),
    }
