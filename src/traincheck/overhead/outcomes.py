"""Outcomes per trial, and whether the observed ones (selective trace) are the direct ones (full trace, same seed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from traincheck.overhead import artifacts
from traincheck.overhead.policy import Policy

_COMPARED = ("outcome", "applications", "violations", "first_step", "last_step", "steps", "ranks")


def agreement(direct: Mapping[str, Any], observed: Mapping[str, Any]) -> dict[str, Any]:
    """Of two ``results.json``: how many invariants have the same verdict, and the same applications and steps too.

    ``differences`` names those that have not.
    """
    differences = []
    same = exact = 0
    for one, other in zip(direct["outcomes"], observed["outcomes"], strict=True):
        if one["id"] != other["id"]:
            raise ValueError(f"invariant {one['index']}: {one['id']} here, {other['id']} there: not the same file")
        fields = [field for field in _COMPARED if one[field] != other[field]]
        same += "outcome" not in fields
        exact += not fields
        if fields:
            shown = {field: [one[field], other[field]] for field in fields}
            differences.append({"index": one["index"], "id": one["id"], "text": one["text"], "differs": shown})
    return {"invariants": len(direct["outcomes"]), "same_verdict": same, "same": exact, "differences": differences}


def all_of(folder: Path, policy: Policy, trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Content of ``outcomes.json``: verdict counts of each checked trial, and the agreement of each selective one."""
    checked: dict[str, Any] = {}
    for trial in trials:
        path = folder / artifacts.TRIALS / trial["id"] / artifacts.RESULTS
        if path.exists():
            checked[trial["id"]] = artifacts.read_json(path)
    kinds = {mode.name: mode for mode in policy.modes}
    rows = []
    agreements = []
    for trial in trials:
        if trial["id"] not in checked:
            continue
        name = artifacts.TRIALS + f"/{trial['id']}/" + artifacts.RESULTS
        rows.append(
            {
                "trial": trial["id"],
                "cohort": trial["cohort"],
                "mode": trial["mode"],
                "summary": checked[trial["id"]]["summary"],
                "results": name,
                "sha256": artifacts.sha256_file(folder / name),
            }
        )
        mode = kinds.get(trial["mode"])
        if mode is None or mode.kind != "selective":
            continue
        row: dict[str, Any] = {"observed": trial["id"], "direct": None, "why_not": None}
        agreements.append(row)
        if mode.sampling_interval > 1:
            row["why_not"] = "it is sampled: a full trace has seen more steps"
            continue
        direct = _direct(trial, trials, checked, kinds)
        if direct is None:
            row["why_not"] = "there is no full trace of the same seed and length"
            continue
        row.update(direct=direct, **agreement(checked[direct], checked[trial["id"]]))
    return {"schema": artifacts.SCHEMA, "checked": rows, "agreement": agreements}


def _direct(
    trial: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], checked: Mapping[str, Any], kinds: Mapping[str, Any]
) -> str | None:
    """The full trace of the same seed and length: of the same pair number if there is one."""
    found = [
        other
        for other in trials
        if other["id"] in checked
        and (other["seed"], other["steps"]) == (trial["seed"], trial["steps"])
        and other["mode"] in kinds
        and kinds[other["mode"]].kind == "full"
        and kinds[other["mode"]].sampling_interval == 1
    ]
    found.sort(key=lambda other: (other["pair"] != trial["pair"], other["id"]))
    return str(found[0]["id"]) if found else None
