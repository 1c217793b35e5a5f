"""One row for each planned trial: everything that tables, effects and sentences are made of, as JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from traincheck.pilot import contamination, events
from traincheck.pilot.annotating.agreement import consensus
from traincheck.pilot.annotating.milestones import MILESTONES
from traincheck.pilot.device.records import Record
from traincheck.pilot.figures import Point
from traincheck.pilot.plan import WITH_PACKAGE
from traincheck.pilot.report import validity
from traincheck.pilot.report.reading import Read, TrialRead

STAGES: Final = ("manual_read", "prepared", "imported", "activated")
_MOST_EVIDENCE: Final = 20


def rows(pilot: Read) -> list[dict[str, Any]]:
    """All planned trials, in the plan's order. Raises SourceError when a text or a map is missing."""
    return [_row(pilot, trial) for trial in pilot.trials]


def _row(pilot: Read, trial: TrialRead) -> dict[str, Any]:
    planned, figures, grade = trial.planned, trial.figures, trial.grade
    reasons = validity.reasons(pilot, trial)
    opened, closed = trial.of(events.Opened), trial.of(events.Closed)
    row: dict[str, Any] = {
        "trial": planned.id,
        "case": planned.case,
        "arm": planned.arm,
        "solver": planned.solver,
        "block": planned.block,
        "position": planned.position,
        "counts": not reasons,
        "reasons": reasons,
        "remarks": validity.remarks(pilot, trial),
        "sandbox": opened[0].sandbox if opened else None,
        "closed": closed[0].reason if closed else None,
        "models": sorted({one.model for one in trial.of(events.ModelAnswered)}),
        "first_valid": None,
        "at_first_valid": None,
        "full": None,
        "censored": None,
        "submissions": None,
        "distinct_sources": None,
        "final": None,
        "final_number": None,
        "changed_files": {},
        "tried_changes": None,
        "transport": None,
        "device_seconds_by_request": None,
    }
    if figures is not None:
        row.update(
            at_first_valid=_point(figures.at_first_valid),
            full=_point(figures.full),
            censored=figures.censored,
            submissions=figures.submissions,
            distinct_sources=figures.distinct_sources,
            transport={
                "model_requests": figures.model_requests,
                "solver_failures": figures.solver_failures,
                "transport_failures": figures.transport_failures,
                "retries": figures.retries,
                "recoveries": figures.recoveries,
                "queue_wait_s": figures.queue_wait_s,
                "suspended_s": figures.suspended_s,
                "suspensions": dict(sorted(figures.suspensions.items())),
            },
            device_seconds_by_request=_exact_sum(trial.requests),
        )
    if grade is not None:
        initial = grade.occurrences[0].source if grade.occurrences else grade.final.source
        row.update(
            first_valid=grade.first_valid.model_dump(mode="json"),
            final=grade.final.verdict,
            final_number=grade.final.number,
            changed_files=_changed(pilot, grade.final.source, initial),
            tried_changes=any(one.source != initial for one in grade.occurrences),
        )
    row["milestones"] = {name: consensus(pilot.annotations, planned.id, name) for name in MILESTONES}
    row["activation"] = _activation(trial)
    row["validation"] = _validation(pilot, trial)
    row["contamination"] = _contamination(pilot, trial)
    row["has_package"] = planned.arm in WITH_PACKAGE
    return row


def _point(point: Point | None) -> dict[str, Any] | None:
    return None if point is None else point.model_dump(mode="json")


def _changed(pilot: Read, final: str, initial: str) -> dict[str, str]:
    """Files of the final source that differ from the initial one."""
    if final == initial:
        return {}
    changed = pilot.objects.get_map(final).changed_from(pilot.objects.get_map(initial))
    return {path: str(how) for path, how in changed.items()}


def _activation(trial: TrialRead) -> dict[str, Any]:
    seen = trial.of(events.Activation)
    found: dict[str, Any] = {
        "stages": {stage: sum(one.stage == stage for one in seen) for stage in STAGES},
        "evidence": [f"{one.stage}: {one.evidence}" for one in seen[:_MOST_EVIDENCE]],
        "activated": any(one.stage == "activated" for one in seen),
    }
    found["left_out"] = max(0, len(seen) - _MOST_EVIDENCE)
    return found


def _validation(pilot: Read, trial: TrialRead) -> dict[str, Any]:
    """What the agent chose to run: its device requests, by command."""
    first_valid_ns = _submitted_ns(trial)
    by_command: dict[str, list[Record]] = {}
    for one in trial.requests:
        by_command.setdefault(shlex.join(one.asked.command), []).append(one)
    return {
        "requests": len(trial.requests),
        "before_first_valid": None
        if first_valid_ns is None
        else sum(one.asked_ns < first_valid_ns for one in trial.requests),
        "sources": len({one.asked.source for one in trial.requests}),
        "commands": [
            {
                "command": command,
                "times": len(held),
                "devices": sorted({one.asked.devices for one in held}),
                "sources": len({one.asked.source for one in held}),
                "device_seconds": _exact_sum(held),
                "outcomes": dict(sorted(Counter(map(_outcome, held)).items())),
            }
            for command, held in by_command.items()
        ],
    }


def _submitted_ns(trial: TrialRead) -> int | None:
    """When the first valid submission came; None where none is proven."""
    if trial.grade is None or trial.grade.first_valid.status != "proven":
        return None
    for entry, event in zip(trial.entries, trial.parsed, strict=True):
        if isinstance(event, events.Submitted) and event.number == trial.grade.first_valid.number:
            return entry.at_ns
    return None


def _outcome(record: Record) -> str:
    if record.refused is not None:
        return "refused"
    if record.ended is None:
        return "no end"
    return f"exit {record.ended.exit_code}" if record.ended.reason == "exit" else record.ended.reason


def _exact_sum(records: Iterable[Record]) -> float:
    """Devices x worker lifetime in seconds, summed in whole nanoseconds; a lease without an end adds nothing."""
    return sum(one.used_ns(one.started_ns or 0) for one in records) / 1e9


def _contamination(pilot: Read, trial: TrialRead) -> list[dict[str, Any]]:
    case = pilot.cases[trial.planned.case]
    found = contamination.namings(trial.entries, pilot.objects, case.case.public_names, case.task)
    return [{"entry": one.number, "word": one.word, "quote": one.quote} for one in found]
