"""Whether everything a plan rests on is as it was when the plan was frozen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from traincheck.errors import TraincheckError
from traincheck.pilot.plan import Plan
from traincheck.pilot.planning import deviations
from traincheck.pilot.planning.state import current


@dataclass(frozen=True)
class Difference:
    """Something that is not as it was frozen."""

    frozen: str | None
    now: str | None

    def told(self, what: str) -> str:
        """One sentence; ``what`` is its name."""
        return f"{what} was {_short(self.frozen)} and is {_short(self.now)}"


def differences(plan: Plan, base: Path) -> dict[str, Difference]:
    """What is not as frozen, by its name: ``package``, ``grader``, ``case tiny: workspace``, ``version of torch``, …

    ``base`` is the folder that ``plan.folders`` are relative to. Raises TraincheckError when a case is gone, OSError.
    """
    now = current({name: Path(os.path.normpath(base / folder)) for name, folder in plan.folders.items()})
    found: dict[str, Difference] = {}
    for name, frozen in plan.cases.items():
        for part in sorted({*frozen, *now.cases[name]}):
            _compare(found, f"case {name}: {part}", frozen.get(part), now.cases[name].get(part))
    _compare(found, "package", plan.package, now.package)
    _compare(found, "grader", plan.grader, now.grader)
    _compare(found, "manual", plan.manual, now.manual)
    for name in sorted({*plan.versions, *now.versions}):
        _compare(found, f"version of {name}", plan.versions.get(name), now.versions.get(name))
    return found


def verify(plan: Plan, base: Path, ledger: Path | None = None) -> dict[str, Difference]:
    """Refuse to go on when something changed since the plan was frozen.

    ``base`` is the folder that the plan lies in; ``ledger`` is the pilot's ``deviations.jsonl``: a change that is
    recorded there (its name, and what it is now) is let through. Gives the changes let through. Raises
    TraincheckError naming everything that changed.
    """
    found = differences(plan, base)
    recorded = {(entry.what, entry.found) for entry in deviations.load(ledger)} if ledger is not None else set()
    refused = {what: one for what, one in found.items() if (what, one.now) not in recorded}
    if refused:
        told = "; ".join(one.told(what) for what, one in refused.items())
        raise TraincheckError(
            f"plan {plan.hash[:12]} does not hold any more: {told}",
            "restore what changed, or freeze a new plan; what can't be undone is recorded with "
            "`traincheck pilot deviation DIR --what NAME --why TEXT`",
        )
    return found


def _compare(found: dict[str, Difference], what: str, frozen: str | None, now: str | None) -> None:
    if frozen != now:
        found[what] = Difference(frozen, now)


def _short(value: str | None) -> str:
    if value is None:
        return "nothing"
    return value[:12] if len(value) == 64 else value
