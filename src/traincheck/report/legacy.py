"""The result files of TrainCheck 0.x, for people's scripts.

``failed.log``, ``passed.log``, ``not_triggered.log``, ``violations_summary.json``, with the same shapes: the ``.log``
files are JSON objects with an indent of four, one after the other. ``passed`` means applied and held; what could not be
judged, and suppressed violations, are in none of them (0.x had no such things). ``occurrences`` is the number of failed
applications.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traincheck.check import Outcome, Result
    from traincheck.invariants import Invariant

_FILES = {"violated": "failed.log", "passed": "passed.log", "dormant": "not_triggered.log"}


def files(result: Result, folder: Path) -> dict[Path, str]:
    """The four files: path -> text."""
    texts = {}
    for verdict, name in _FILES.items():
        objects = [
            _object(outcome, result.invariants[outcome.index])
            for outcome in result.outcomes
            if outcome.outcome == verdict and not (verdict == "violated" and outcome.suppressed)
        ]
        texts[folder / name] = "".join(json.dumps(item, indent=4) + "\n" for item in objects)
    texts[folder / "violations_summary.json"] = json.dumps(_summary(result), indent=2) + "\n"
    return texts


def _object(outcome: Outcome, invariant: Invariant) -> dict[str, Any]:
    found: dict[str, Any] = {
        "invariant": invariant.to_json(),
        "check_passed": outcome.outcome != "violated",
        "triggered": outcome.outcome != "dormant",
    }
    if outcome.outcome == "violated":
        times = [row["time_ns"] for row in outcome.evidence if row.get("time_ns") is not None]
        found["detection_time"] = min(times) if times else None
        found["trace"] = [_record(row) for row in outcome.evidence]
    return found


def _record(row: dict[str, Any]) -> dict[str, Any]:
    record = {
        "process_id": row["process"],
        "meta_vars.step": row["step"],
        "meta_vars.stage": row["stage"],
        "function": row["function"],
        "time": row["time_ns"],
        "func_call_id": row["call"],
        "var_name": row["variable"],
        "attribute": row["attribute"],
        "old": row["before"],
        "new": row["after"],
        "location": row["location"],
    }
    return {name: value for name, value in record.items() if value is not None}


def _summary(result: Result) -> dict[str, Any]:
    violated = [one for one in result.outcomes if one.outcome == "violated" and not one.suppressed]
    steps = [outcome.first_step for outcome in violated if outcome.first_step is not None]
    return {
        "first_violation_step": min(steps) if steps else None,
        "distinct_invariants_violated": len(violated),
        "violations": [
            {
                "display_name": outcome.text,
                "relation_type": outcome.relation,
                "first_step": outcome.first_step,
                "last_step": outcome.last_step,
                "occurrences": outcome.violations,
            }
            for outcome in sorted(violated, key=lambda one: (one.text, one.index))
        ],
    }
