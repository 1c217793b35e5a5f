"""What a report is made from: plan, ledgers, figures, grades, annotations. Read once, checked against the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from traincheck.errors import TraincheckError
from traincheck.pilot import events
from traincheck.pilot.accounting.account import account
from traincheck.pilot.annotating import importing
from traincheck.pilot.annotating.records import Annotation
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.device.records import Record, restored
from traincheck.pilot.figures import Costs, TrialFigures
from traincheck.pilot.grading.qualification import Qualification
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Entry, LedgerError, read
from traincheck.pilot.plan import Plan, TrialPlan
from traincheck.pilot.planning import case_folders, deviations, load, verify
from traincheck.pilot.planning.deviations import Deviation
from traincheck.pilot.report import qualified
from traincheck.pilot.sources import Objects
from traincheck.pilot.verdicts import CaseGrade, TrialGrade

E = TypeVar("E", bound=events.Event)


@dataclass(frozen=True)
class TrialRead:
    """One planned trial, whatever became of it."""

    planned: TrialPlan
    entries: tuple[Entry, ...] = ()
    parsed: tuple[events.Event, ...] = ()
    broken: str | None = None
    """Why its ledger can't be used."""
    figures: TrialFigures | None = None
    grade: TrialGrade | None = None
    requests: tuple[Record, ...] = ()
    """Its device requests, in their order."""

    def of(self, kind: type[E]) -> list[E]:
        """Its events of one kind."""
        return [event for event in self.parsed if isinstance(event, kind)]


@dataclass(frozen=True)
class Read:
    """A whole pilot."""

    layout: Layout
    plan: Plan
    cases: Mapping[str, CaseFolder]
    objects: Objects
    changes: tuple[str, ...]
    """What is not as frozen and was let through, one sentence each."""
    deviations: tuple[Deviation, ...]
    trials: tuple[TrialRead, ...]
    grades: Mapping[str, CaseGrade]
    annotations: Mapping[str, Annotation]
    requests: Mapping[str, Record]
    """All requests of the solvers' device ledger."""
    grading: Mapping[str, Record]
    qualification: Mapping[str, Record]
    """All requests of the ledgers of qualification; none where none was given."""
    qualified: Mapping[str, Qualification]
    costs: Costs
    """Totals of the three ledgers."""
    problems: tuple[str, ...]
    """What does not fit together in the ledgers, one sentence each."""


def read_pilot(layout: Layout, qualifications: Sequence[Path] = ()) -> Read:
    """Everything in the folder of a pilot, and in the folders of its cases' qualifications.

    Raises TraincheckError when there is no plan, when it does not hold any more, when a case with trials is not graded
    yet or was graded under another plan, and when a device ledger is broken; OSError.
    """
    plan = load(layout.plan)
    allowed = verify(plan, layout.root, layout.deviations)
    cases = case_folders(plan, layout.root)
    qualified_in = [folder / qualified.LEDGER for folder in qualifications]
    books = account(layout, qualified_in)
    figures = {one.trial: one for one in books.trials}
    requests = _requests(layout.device)
    grades = {case: grade for case in plan.cases if (grade := _grade(layout, plan, case)) is not None}
    annotations = importing.load(layout)
    for name, annotation in annotations.items():
        if annotation.plan != plan.hash:
            raise TraincheckError(f"the annotations of {name} are of another plan", "export and import them again")
    trials = tuple(_trial(layout, trial, figures.get(trial.id), requests, grades) for trial in plan.order)
    missing = sorted({trial.planned.case for trial in trials if trial.entries} - set(grades))
    if missing:
        raise TraincheckError(
            f"case{'s' if len(missing) > 1 else ''} {', '.join(missing)} not graded yet",
            f"traincheck pilot grade {layout.root}",
        )
    return Read(
        layout=layout,
        plan=plan,
        cases=cases,
        objects=Objects(layout.store),
        changes=tuple(change.told(what) for what, change in allowed.items()),
        deviations=deviations.load(layout.deviations),
        trials=trials,
        grades=grades,
        annotations=annotations,
        requests=requests,
        grading=_requests(layout.grading_device),
        qualification={
            name: request
            for path in (layout.qualification_device, *qualified_in)
            for name, request in _requests(path).items()
        },
        qualified=qualified.read(qualifications, plan),
        costs=books.costs,
        problems=books.problems,
    )


def _trial(
    layout: Layout,
    planned: TrialPlan,
    figures: TrialFigures | None,
    requests: Mapping[str, Record],
    grades: Mapping[str, CaseGrade],
) -> TrialRead:
    path = layout.ledger(planned.id)
    if not path.exists():
        return TrialRead(planned)
    try:
        entries = tuple(read(path))
        parsed = tuple(events.parsed(entry) for entry in entries)
    except LedgerError as error:
        return TrialRead(planned, broken=error.message)
    grade = grades[planned.case].trials.get(planned.id) if planned.case in grades else None
    mine = tuple(one for one in requests.values() if one.asked.owner == planned.id and one.asked.purpose == "solver")
    return TrialRead(planned, entries, parsed, figures=figures, grade=grade, requests=mine)


def _requests(path: Path) -> dict[str, Record]:
    return restored(read(path)) if path.exists() else {}


def _grade(layout: Layout, plan: Plan, case: str) -> CaseGrade | None:
    path = layout.grades(case)
    if not path.exists():
        return None
    try:
        grade = CaseGrade.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise TraincheckError(f"{path} holds no verdicts: {error}", f"traincheck pilot grade {layout.root}") from error
    if grade.plan != plan.hash:
        raise TraincheckError(f"{path} is of plan {grade.plan[:12]}, not {plan.hash[:12]}", "grade this pilot")
    return grade
