"""Qualifications of a pilot's cases: read beside the pilot, checked to be of the cases as they were frozen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traincheck.errors import TraincheckError
from traincheck.pilot.grading.qualification import Qualification
from traincheck.pilot.plan import Plan

RESULT = "qualification.json"
LEDGER = "device.jsonl"


def read(folders: Sequence[Path], plan: Plan) -> dict[str, Qualification]:
    """By case. Raises TraincheckError when a folder holds none, or one of no case of the plan, or two are of one."""
    found: dict[str, Qualification] = {}
    for folder in folders:
        path = folder / RESULT
        try:
            one = Qualification.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            raise TraincheckError(f"{folder} is no qualification", "traincheck pilot qualify CASE -o DIR") from error
        except ValueError as error:
            raise TraincheckError(f"{path} is no qualification: {error}", "traincheck pilot qualify CASE") from error
        if one.case not in plan.cases:
            raise TraincheckError(f"{folder} is of case {one.case}, which is not in the plan", "leave it out")
        if one.case in found:
            raise TraincheckError(f"case {one.case} has two qualifications", "give one of them")
        found[one.case] = one
    return found


def row(one: Qualification | None, plan: Plan, case: str) -> dict[str, Any]:
    """What a report says of it: strict checks that failed stay failed, controls that were not strict stand apart."""
    if one is None:
        return {"given": False}
    strict = [check for check in one.checks if check.strict]
    return {
        "given": True,
        "valid": one.valid,
        "changed": sorted(
            name for name in {*one.hashes, *plan.cases[case]} if one.hashes.get(name) != plan.cases[case].get(name)
        ),
        "strict": len(strict),
        "strict_failed": [{"check": c.name, "wanted": c.wanted, "found": c.found} for c in strict if not c.holds],
        "controls": [
            {"check": c.name, "wanted": c.wanted, "found": c.found, "holds": c.holds, "relaxes": c.relaxes}
            for c in one.checks
            if not c.strict
        ],
        "numbers": [number.model_dump(mode="json") for number in one.numbers],
        "device_seconds": one.device_seconds,
    }
