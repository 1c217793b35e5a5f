"""A place for one trial, laid out as a trial's is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from traincheck.pilot import packets, places
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.plan import Arm
from traincheck.pilot.sources import Objects

CASES = Path(__file__).parents[2] / "pilots" / "cases"
MANUAL = "# TrainCheck\n\nA manual.\n"


def tiny() -> CaseFolder:
    return CaseFolder(CASES / "tiny-accumulation")


@contextmanager
def trial_place(tmp_path: Path, arm: Arm, sandbox: str = "jail", **more: object) -> Iterator[places.Place]:
    objects = Objects(tmp_path / "store")
    case = tiny()
    root = tmp_path / "trial"
    root.mkdir()
    packets.lay_out(root, case, arm, MANUAL, packets.build(case, arm, MANUAL, objects), objects)
    place = places.choose(sandbox, root, hide=[case.folder.resolve(), tmp_path.resolve()], **more)  # type: ignore[arg-type]
    place.start()
    try:
        yield place
    finally:
        place.stop()


def inside(place: places.Place, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*place.prefix(), *command], capture_output=True, text=True, timeout=timeout, check=False)


def python(place: places.Place, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return inside(place, sys.executable, *options, "-c", code)
