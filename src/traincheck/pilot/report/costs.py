"""Three cost ledgers side by side, never added up; what a valid repair cost; what a bug-free task cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from traincheck.pilot.accounting.devices import published
from traincheck.pilot.device.records import Record
from traincheck.pilot.plan import Plan
from traincheck.pilot.report.reading import Read

Row = Mapping[str, Any]


def ledgers(pilot: Read, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Device-seconds of each case by ledger, exact sums of its requests; and whether the trials' figures add up to it.

    ``solver_published`` is the exact sum of the trials' rows as they are printed. ``solver_unassigned``: of requests
    whose owner is no trial of the plan; must be 0.
    """
    trials = {trial.id: trial.case for trial in pilot.plan.order}
    found = []
    for case in pilot.plan.cases:
        mine = [row for row in rows if row["case"] == case]
        solver = _ns(one for one in pilot.requests.values() if trials.get(one.asked.owner) == case)
        told = [row["full"]["device_seconds"] for row in mine if row["full"] is not None]
        unknown = sum(row["full"] is None for row in mine)
        found.append(
            {
                "case": case,
                "solver": solver / 1e9,
                "solver_of_trials": round(math.fsum(told), 9),
                "solver_published": float(published(told)[1]),
                "trials_without_figures": unknown,
                "reconciles": None if unknown else abs(math.fsum(told) - solver / 1e9) < 1e-6,
                "grading": _ns(one for one in pilot.grading.values() if _about(one) == case) / 1e9,
                "qualification": _ns(one for one in pilot.qualification.values() if _about(one) == case) / 1e9
                if any(_about(one) == case for one in pilot.qualification.values())
                else None,
            }
        )
    return found


def unassigned(pilot: Read) -> float:
    """Device-seconds of the solvers' ledger whose owner is no trial of the plan."""
    trials = {trial.id for trial in pilot.plan.order}
    return _ns(one for one in pilot.requests.values() if one.asked.owner not in trials) / 1e9


def per_repair(plan: Plan, rows: Sequence[Row], failures: Sequence[str]) -> list[dict[str, Any]]:
    """Cost of a valid repair by case and arm: everything its counted trials used, over the repairs that are proven.

    Trials without a repair are in the cost: a repair that came once in five costs all five.
    """
    found = []
    for case in failures:
        for arm in plan.draft.arms:
            held = [row for row in rows if row["counts"] and (row["case"], row["arm"]) == (case, arm) and row["full"]]
            repairs = sum(not row["censored"] for row in held)
            sums = {
                "device_seconds": math.fsum(row["full"]["device_seconds"] for row in held),
                "wall_s": math.fsum(row["full"]["clocks"]["raw_s"] for row in held),
                **{
                    f"tokens_{name}": sum(row["full"]["tokens"][name] for row in held)
                    for name in ("input", "cached_input", "output", "total")
                },
            }
            found.append(
                {
                    "case": case,
                    "arm": arm,
                    "trials": len(held),
                    "repairs": repairs,
                    "per_repair": {
                        name: round(value / repairs, 6) if repairs else None for name, value in sums.items()
                    },
                }
            )
    return found


def grading_per_repair(
    held: Sequence[Mapping[str, Any]], rows: Sequence[Row], failures: Sequence[str]
) -> list[dict[str, Any]]:
    """Grading and qualification by case over its proven repairs, of all arms: sources are graded once for all."""
    found = []
    for ledger in held:
        if ledger["case"] not in failures:
            continue
        repairs = sum(row["counts"] and row["case"] == ledger["case"] and row["censored"] is False for row in rows)
        found.append(
            {
                "case": ledger["case"],
                "repairs": repairs,
                **{
                    name: round(ledger[name] / repairs, 6) if repairs and ledger[name] is not None else None
                    for name in ("grading", "qualification")
                },
            }
        )
    return found


def false_alarms(plan: Plan, rows: Sequence[Row], bug_free: Sequence[str]) -> list[dict[str, Any]]:
    """Bug-free tasks by case and arm: how many trials changed the source, how many left it broken, and what it took."""
    found = []
    for case in bug_free:
        for arm in plan.draft.arms:
            held = [row for row in rows if row["counts"] and (row["case"], row["arm"]) == (case, arm) and row["full"]]
            found.append(
                {
                    "case": case,
                    "arm": arm,
                    "trials": len(held),
                    "changed": sum(bool(row["changed_files"]) for row in held),
                    "submitted_a_change": sum(bool(row["tried_changes"]) for row in held),
                    "left_broken": sum(row["final"] == "incorrect" for row in held),
                    "left_unknown": sum(row["final"] == "unknown" for row in held),
                    "claimed_an_origin": sum(row["milestones"]["M5"]["state"] == "reached" for row in held),
                    "adjusted_s": _mean([row["full"]["clocks"]["adjusted_s"] for row in held]),
                    "tokens": _mean([row["full"]["tokens"]["total"] for row in held]),
                    "device_seconds": _mean([row["full"]["device_seconds"] for row in held]),
                }
            )
    return found


def _ns(records: Iterable[Record]) -> int:
    return sum(one.used_ns(one.started_ns or 0) for one in records)


def _about(record: Record) -> str:
    """The case that a request is about: its owner is ``grading/<case>`` or ``qualification/<case>``."""
    return record.asked.owner.partition("/")[2].partition("/")[0]


def _mean(values: Sequence[float]) -> float | None:
    return round(math.fsum(values) / len(values), 6) if values else None
