"""The account of a whole pilot, read from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from traincheck.errors import TraincheckError
from traincheck.pilot import events, heads
from traincheck.pilot.accounting.reconciling import device_problems, reconcile
from traincheck.pilot.accounting.trials import costs, trial_figures
from traincheck.pilot.figures import Costs, TrialFigures
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Entry, LedgerError, read
from traincheck.pilot.plan import Plan
from traincheck.pilot.planning.plans import load
from traincheck.pilot.sources import Objects
from traincheck.pilot.submissions import recheck, submissions
from traincheck.pilot.verdicts import CaseGrade, TrialGrade


@dataclass(frozen=True)
class Account:
    """What a pilot took, and everything in its books that does not fit together."""

    plan: Plan
    trials: tuple[TrialFigures, ...]
    """In the plan's order; trials that can't be accounted for are missing here and named in ``problems``."""
    costs: Costs
    problems: tuple[str, ...]


def account(layout: Layout, qualification: Sequence[Path] = ()) -> Account:
    """Read a pilot's folder. ``qualification``: more device ledgers of qualification, from elsewhere.

    Raises TraincheckError when there is no plan that can be read; everything else that is wrong is a problem.
    """
    try:
        plan = load(layout.plan)
    except FileNotFoundError as error:
        raise TraincheckError(f"there is no plan at {layout.plan}", "point at the folder of a pilot") from error
    problems: list[str] = []
    trials = {
        folder.name: _entries(folder / "ledger.jsonl", events.TRIAL, problems)
        for folder in (sorted(layout.trials.iterdir()) if layout.trials.is_dir() else [])
        if (folder / "ledger.jsonl").exists()
    }
    device = _entries(layout.device, events.DEVICE, problems)
    grading = _entries(layout.grading_device, events.DEVICE, problems)
    qualified = [_entries(path, events.DEVICE, problems) for path in (layout.qualification_device, *qualification)]
    grades = _grades(layout, plan, problems)

    figures: list[TrialFigures] = []
    for trial in plan.order:
        if trial.id not in trials:
            continue
        try:
            figures.append(trial_figures(plan, trial, trials[trial.id], device, grades.get(trial.id)))
        except TraincheckError as error:
            problems.append(f"trial {trial.id}: {error.message}")
    total = costs(device, grading, *qualified)
    problems += reconcile(plan, trials, device, figures, total, grades)
    problems += (f"grading: {sentence}" for sentence in device_problems(grading, "grading"))
    for one in qualified:
        problems += (f"qualification: {sentence}" for sentence in device_problems(one, "qualification"))
    problems += _sources(trials, Objects(layout.store))
    problems += heads.problems(layout.heads)
    return Account(plan, tuple(figures), total, tuple(dict.fromkeys(problems)))


def _entries(path: Path, table: dict[str, type[events.Event]], problems: list[str]) -> list[Entry]:
    """All entries up to the first that is broken or no event; none when there is no file."""
    found: list[Entry] = []
    try:
        for entry in read(path):
            events.parsed(entry, table)
            found.append(entry)
    except FileNotFoundError:
        return found
    except LedgerError as error:
        problems.append(error.message if str(path) in error.message else f"{path}: {error.message}")
    return found


def _grades(layout: Layout, plan: Plan, problems: list[str]) -> dict[str, TrialGrade]:
    found: dict[str, TrialGrade] = {}
    for case in plan.cases:
        path = layout.grades(case)
        if not path.exists():
            continue
        try:
            grade = CaseGrade.model_validate_json(path.read_bytes())
        except ValidationError as error:
            problems.append(f"{path} holds no grades: {error}")
            continue
        if grade.plan != plan.hash or grade.case != case:
            problems.append(f"{path} is of plan {grade.plan[:12]} and case {grade.case}, not of this plan and {case}")
            continue
        found.update(grade.trials)
    return found


def _sources(trials: dict[str, list[Entry]], store: Objects) -> list[str]:
    sources: list[str] = []
    for entries in trials.values():
        try:
            sources += submissions(entries).distinct
        except LedgerError:  # told by reconcile
            continue
    return recheck(sources, store)
