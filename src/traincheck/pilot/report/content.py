"""The content of a report: one JSON value that Markdown and HTML are made from."""

from __future__ import annotations

from typing import Any

from traincheck.pilot.annotating.agreement import agreement, blinding
from traincheck.pilot.report import comparisons, costs, failures, limits, qualified
from traincheck.pilot.report.reading import Read
from traincheck.pilot.report.rows import rows

SCHEMA = 1


def content(pilot: Read) -> dict[str, Any]:
    """Everything a report says. Raises SourceError when a text or a map is missing from the store."""
    plan, draft = pilot.plan, pilot.plan.draft
    kinds = {name: case.case.kind for name, case in pilot.cases.items()}
    faulty = [name for name in plan.cases if kinds[name] == "failure"]
    sound = [name for name in plan.cases if kinds[name] == "bug-free"]
    held = rows(pilot)
    ledgers = costs.ledgers(pilot, held)
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "plan": plan.hash,
        "name": draft.name,
        "about": draft.about,
        "frozen": {"package": plan.package, "grader": plan.grader, "manual": plan.manual},
        "versions": plan.versions,
        "arms": list(draft.arms),
        "solvers": [solver.model_dump(mode="json") for solver in draft.solvers],
        "budgets": draft.budgets.model_dump(mode="json"),
        "seed": draft.seed,
        "failures": faulty,
        "bug_free": sound,
        "cases": [_case(pilot, name) for name in plan.cases],
        "detectable": plan.detectable,
        "deviations": [one.model_dump(mode="json") for one in pilot.deviations],
        "changes": list(pilot.changes),
        "ledger_problems": list(pilot.problems),
        "trials": held,
        "ledgers": ledgers,
        "costs": pilot.costs.model_dump(mode="json"),
        "solver_unassigned": costs.unassigned(pilot),
        "per_repair": costs.per_repair(plan, held, faulty),
        "grading_per_repair": costs.grading_per_repair(ledgers, held, faulty),
        "false_alarms": costs.false_alarms(plan, held, sound),
        "comparisons": comparisons.comparisons(plan, held, faulty),
        "survival": comparisons.survival(plan, held, faulty),
        "observed_power": comparisons.observed_power(plan, held, faulty),
        "agreement": agreement(pilot.annotations),
        "blinding": blinding(pilot.annotations, {trial.id: trial.arm for trial in plan.order}),
        "kept": failures.kept(pilot.layout),
    }
    report["cannot_conclude"] = limits.sentences(report)
    return report


def _case(pilot: Read, name: str) -> dict[str, Any]:
    case, grade = pilot.cases[name].case, pilot.grades.get(name)
    return {
        "case": name,
        "title": case.title,
        "kind": case.kind,
        "reproduction": case.reproduction,
        "names": list(case.public_names),
        "hashes": pilot.plan.cases[name],
        "scenarios": [scenario.name for scenario in case.scenarios],
        "qualified": qualified.row(pilot.qualified.get(name), pilot.plan, name),
        "graded": grade is not None,
        "valid": grade.valid if grade is not None else None,
        "problems": list(grade.problems) if grade is not None else [],
        "sources": len(grade.sources) if grade is not None else 0,
        "replays": sum(grade.counts.values()) if grade is not None else 0,
        "verdicts": dict(sorted(grade.counts.items())) if grade is not None else {},
        "attempts": sum(len(replay.attempts) for held in grade.sources.values() for replay in held.values())
        if grade is not None
        else 0,
    }
