"""Freezing: everything that is decided before the first agent, taken together and hashed."""

from __future__ import annotations

import os
from pathlib import Path

from traincheck.errors import TraincheckError
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.plan import Draft, Plan
from traincheck.pilot.planning import order, power
from traincheck.pilot.planning.state import current


def freeze(draft: Draft, base: Path) -> Plan:
    """The plan of ``draft``, whose case folders are relative to ``base``; ``plan.folders`` are relative to it too.

    Raises TraincheckError when a case is missing or incomplete, when two have one name, and when one needs more
    devices than there are.
    """
    folders: dict[str, Path] = {}
    for words in draft.cases:
        case = CaseFolder(base / words)
        name = case.case.name
        if name in folders:
            raise TraincheckError(f"cases: {folders[name]} and {base / words} are both named {name!r}", "rename one")
        if case.case.devices > draft.devices.count:
            raise TraincheckError(
                f"case {name} takes {case.case.devices} devices, the draft has {draft.devices.count}",
                "raise devices.count",
            )
        folders[name] = base / words
    now = current(folders)
    return Plan(
        draft=draft,
        cases=now.cases,
        folders={name: Path(os.path.relpath(folder, base)).as_posix() for name, folder in folders.items()},
        package=now.package,
        grader=now.grader,
        manual=now.manual,
        versions=now.versions,
        order=order.trials(draft, tuple(folders)),
        detectable=power.statement(draft.trials, len(folders), len(draft.solvers), draft.power),
    )
