"""What tools answer: the parts of TrainCheck's results that a reader goes on with, without the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from traincheck.agents.bounds import clip, page, some
from traincheck.errors import TraincheckError

FEW: Final = 6
"""How much of a list (tensors, ranks, functions) an overview shows."""

_FOR_PROGRAMS: Final = ("time_ns", "seq", "call")
"""Fields of evidence that join it with the trace's frames, and tell a reader nothing."""

SECTIONS: Final = ("overview", "processes", "functions", "steps", "coverage", "lacks")
"""Parts of a trace; ``coverage`` is the state that was looked at."""


def checked(result: Mapping[str, Any], most: int) -> dict[str, Any]:
    """A check's result (``results.json``): counts, and the first ``most`` findings in brief."""
    findings = result["findings"]
    told: dict[str, Any] = {
        "summary": result["summary"],
        "findings": [in_brief(number, finding) for number, finding in enumerate(findings[:most])],
        "findings_total": len(findings),
        "facts": result["facts"],
    }
    if result["never_called"]:
        told["never_called"] = some(result["never_called"], FEW)
    if result["lacks"]:
        told["lacks"] = some(result["lacks"], FEW)
    errors = [f"{one['text']}: {one['reason']}" for one in result["outcomes"] if one["outcome"] == "error"]
    if errors:
        told["errors"] = some(errors, FEW)
    return told


def in_brief(number: int, finding: Mapping[str, Any]) -> dict[str, Any]:
    """One finding: what broke, since when, where, what was expected and seen."""
    return {
        "number": number,
        "title": finding["title"],
        "first_step": finding["first_step"],
        "ranks": some(finding["ranks"], FEW),
        "location": finding["location"],
        "tensors": some(finding["tensors"], FEW),
        "apis": some(finding["apis"], FEW),
        "expected": finding["expected"],
        "observed": finding["observed"],
        "meaning": finding["meaning"],
        "rules": len(finding["outcome_indexes"]),
    }


def in_full(result: Mapping[str, Any], number: int, offset: int, limit: int) -> dict[str, Any]:
    """One finding with the rules it consists of, ``limit`` of them, each with evidence. Raises TraincheckError."""
    findings = result["findings"]
    if not 0 <= number < len(findings):
        raise TraincheckError(
            f"there is no finding {number}: this check has {len(findings)}, counted from 0",
            "leave out number to list them",
        )
    finding = findings[number]
    outcomes = [result["outcomes"][index] for index in finding["outcome_indexes"]]
    return {
        **in_brief(number, finding),
        "ranks": some(finding["ranks"], 64),
        "tensors": finding["tensors"],
        "apis": finding["apis"],
        "next": finding["next"],
        "rules": page([_rule(one) for one in outcomes], offset, limit).to_json("shown"),
    }


def _rule(outcome: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "text": outcome["text"],
        "relation": outcome["relation"],
        "violations": outcome["violations"],
        "applications": outcome["applications"],
        "first_step": outcome["first_step"],
        "last_step": outcome["last_step"],
        "ranks": some(outcome["ranks"], FEW),
        "evidence": [
            {name: value for name, value in row.items() if name not in _FOR_PROGRAMS} for row in outcome["evidence"][:3]
        ],
        "rule_from": f"{outcome['file']}:{outcome['line']}" if outcome["file"] else None,
    }


def listed(result: Mapping[str, Any], offset: int, limit: int) -> dict[str, Any]:
    """Findings of a check in brief, ``limit`` of them from ``offset``."""
    brief = [in_brief(number, finding) for number, finding in enumerate(result["findings"])]
    return {"summary": result["summary"], **page(brief, offset, limit).to_json("findings")}


def results(folder: Path, shown: str) -> dict[str, Any]:
    """``results.json`` of a check. Raises TraincheckError when there is none in ``folder``."""
    file = folder / "results.json"
    if not file.is_file():
        raise TraincheckError(
            f"expected the folder of a check, but there is no results.json in {shown}", "what `check` answered as check"
        )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TraincheckError(f"{shown}/results.json is not JSON: {error}", "check the run again") from error
    if not isinstance(found, dict) or not isinstance(found.get("findings"), list):
        raise TraincheckError(f"{shown}/results.json is no result of a check", "check the run again")
    return found


def traced(summary: Mapping[str, Any], section: str, contains: str, offset: int, limit: int) -> dict[str, Any]:
    """A part of a trace's summary (``trace show --json``); ``contains`` chooses rows by their text."""
    if section == "overview":
        processes = [
            {name: one[name] for name in ("rank", "end", "exit", "steps", "last_step", "open_calls", "dropped")}
            for one in summary["processes"]
        ]
        return {
            "command": clip(" ".join(summary["command"])),
            "exit_code": summary["exit_code"],
            "counts": {name: summary[name] for name in ("calls", "captures", "states", "variables")},
            "stages": summary["stages"],
            "processes": some(processes, FEW),
            "lacks": some([lack["text"] for lack in summary["lacks"]], FEW),
            "sections": {name: len(summary[name]) for name in SECTIONS[1:]},
        }
    rows: Sequence[Any] = summary[section]
    if contains:
        rows = [row for row in rows if contains in json.dumps(row, ensure_ascii=False)]
    return {"section": section, **page(rows, offset, limit).to_json("rows")}


def differed(found: Mapping[str, Any], offset: int, limit: int) -> dict[str, Any]:
    """Where two runs part (``trace diff --json``): the first place, then others in order."""
    return {
        "same": found["same"],
        "first": found["first"],
        "compared": found["compared"],
        "states_differing": found["states_differing"],
        "variables": found["variables"],
        "function_counts": found["function_counts"],
        "notes": found["notes"],
        **page(found["firsts"], offset, limit).to_json("partings"),
    }
