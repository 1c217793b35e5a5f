"""What a report says, as data: the content of ``report.json``, from which Markdown and HTML are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from traincheck.overhead import artifacts, statistics
from traincheck.overhead.policy import PLAIN
from traincheck.overhead.report import budgets, limits
from traincheck.overhead.report.folder import Folder

Row = Mapping[str, Any]

LARGE: Final = 64 * 1024
"""Files from this size on are named by path and hash, and told apart."""

VERSIONS: Final = (
    "traincheck", "torch", "numpy", "polars", "xxhash", "pydantic", "torchtitan", "torchdata", "transformers",
    "accelerate", "datasets", "tokenizers", "scikit-learn",
)  # fmt: skip
"""Packages whose versions the report names; all are in study.json."""


def content(folder: Path) -> dict[str, Any]:
    """Everything a report says of the study in ``folder``. Nothing in it depends on when or where it is written.

    Raises TraincheckError when a file is missing or is none of ours.
    """
    held = Folder(folder)
    study, summary = held.study, held.summary
    rows = [_mode(held, cohort, name) for cohort, modes in summary["cohorts"].items() for name in modes]
    modes = [row for row in rows if row["kind"] != PLAIN]
    found: dict[str, Any] = {
        "schema": artifacts.SCHEMA,
        "study": study["name"],
        "about": study["policy"].get("about", ""),
        "state": study["state"],
        "quick": study["quick"],
        "valid": summary["valid"],
        "workload": study["policy"]["workload"],
        "protocol": study["policy"]["protocol"],
        "modes": rows,
        "noise": _noise(held),
        "budgets": budgets.judged([row for row in modes if row["cohort"] == "main"]),
        "budgets_are_of_this_workload": study["policy"]["workload"].get("name") == budgets.OF_WORKLOAD,
        "published_on": budgets.PUBLISHED_ON,
        "evidence": _evidence(held),
        "audits": [row for trial in held.trials if (row := _audit(held, trial)) is not None],
        "outcomes": _outcomes(held),
        "agreement": summary["agreement"],
        "invariants": _invariants(held),
        "phases": _phases(summary),
        "flagged": [
            {"trial": t["id"], "foreign_cpus": t["foreign"]["cpus"]} for t in held.trials if t["foreign"]["flagged"]
        ],
        "invalid_trials": [{"trial": t["id"], "reasons": t["reasons"]} for t in held.trials if not t["valid"]],
        "not_run": study["not_run"],
        "series": [_series(held, trial) for trial in held.trials],
        "provenance": _provenance(held),
    }
    found["limitations"] = limits.sentences(found)
    named: dict[str, Any] = held.named(found)
    return named


def _mode(held: Folder, cohort: str, name: str) -> dict[str, Any]:
    """A row of the main table: figures of one mode in one cohort."""
    told: Row = held.summary["cohorts"][cohort][name]
    sampled = told.get("sampling_interval", 1) > 1
    figure = "mean" if sampled else "median"
    mine = [t for t in held.trials if t["cohort"] == cohort and t["mode"] == name and t["valid"]]
    paired = [p for p in held.pairs if p["cohort"] == cohort and p["mode"] == name]
    valid = [p for p in paired if p["valid"] and p["slowdown"]]
    plain = {p["plain"] for p in valid}
    base = [t for t in held.trials if t["id"] in plain]
    return {
        "cohort": cohort,
        "mode": name,
        "kind": told.get("kind", PLAIN),
        "sampling_interval": told.get("sampling_interval", 1),
        "warm_up_steps": told.get("warm_up_steps", 0),
        "tracking": told.get("tracking", "none"),
        "figure": f"{figure} step",
        "steps": sorted({t["steps"] for t in mine}),
        "runs": len(mine),
        "pairs": len(paired),
        "valid_pairs": len(valid),
        "flagged_pairs": sum(bool(p["flagged"]) for p in paired),
        "wall_ms": _of_runs(mine, "wall_ms", sampled),
        "cpu_ms": _of_runs(mine, "cpu_ms", sampled),
        "plain_wall_ms": _of_runs(base, "wall_ms", sampled),
        "plain_cpu_ms": _of_runs(base, "cpu_ms", sampled),
        "slowdown": {
            clock: statistics.paired(p["slowdown"][f"{clock}_{figure}"] for p in valid) for clock in ("wall", "cpu")
        },
        "records_per_10_steps": told.get("records_per_10_steps"),
        "mb_per_10_steps": told.get("mb_per_10_steps"),
        "peak_mb_added": told.get("peak_mb_added"),
        "check": told.get("check"),
    }


def _noise(held: Folder) -> list[dict[str, Any]]:
    """How far plain runs of the same seed and length differ, of each kind of which there are two or more."""
    rows = []
    plain = [t for t in held.trials if t["mode"] == PLAIN and t["valid"]]
    for cohort, seed, steps in dict.fromkeys((t["cohort"], t["seed"], t["steps"]) for t in plain):
        mine = [t for t in plain if (t["cohort"], t["seed"], t["steps"]) == (cohort, seed, steps)]
        figures = {
            clock: statistics.noise(
                [statistics.run_figure(t["times"][f"{clock}_ms"], t["times"]["first_steady_step"]) for t in mine]
            )
            for clock in ("wall", "cpu")
        }
        if figures["wall"] is not None:
            rows.append({"cohort": cohort, "seed": seed, "steps": steps, "runs": len(mine), **figures})
    return rows


def _of_runs(trials: Sequence[Row], clock: str, sampled: bool) -> float | None:
    """Median over runs of each run's figure, ms."""
    return statistics.median(
        statistics.run_figure(t["times"][clock], t["times"]["first_steady_step"], sampled) for t in trials
    )


def _evidence(held: Folder) -> dict[str, Any]:
    names = ("cohort", "pair", "mode", "first", "seed", "steps", "evidence_equal", "first_difference",
             "facts_compared", "valid", "reasons", "flagged", "slowdown")  # fmt: skip
    return {
        "pairs": len(held.pairs),
        "equal": sum(pair["evidence_equal"] for pair in held.pairs),
        "valid": sum(pair["valid"] for pair in held.pairs),
        "facts_compared": sum(pair["facts_compared"] for pair in held.pairs),
        "each": [{**{name: pair[name] for name in names}, "ratios": pair.get("ratios")} for pair in held.pairs],
    }


def _audit(held: Folder, trial: Row) -> dict[str, Any] | None:
    if not trial["watched"]:
        return None
    trace = trial.get("trace") or {}
    row: dict[str, Any] = {
        "trial": trial["id"],
        "mode": trial["mode"],
        "records": trace.get("records"),
        "call_pairs": trace.get("calls"),
        "bytes": trace.get("bytes"),
        "sha256": trace.get("sha256"),
        "audited": trial["id"] in held.audits,
    }
    told = held.audits.get(trial["id"])
    if told is not None:
        processes = told["processes"]
        kinds = sorted({kind for process in processes for kind in process["per_kind"]})
        manifest = artifacts.read_json(held.path / artifacts.TRIALS / trial["id"] / artifacts.TRACE / "manifest.json")
        row["scope"], row["plan_hash"] = manifest["plan"]["scope"], manifest["plan_hash"]
        row["probed"] = len(manifest["plan"]["functions"]) or None
        row["processes"] = len(processes)
        row["per_kind"] = {kind: sum(process["per_kind"].get(kind, 0) for process in processes) for kind in kinds}
        row["threads"] = sum(len(process["per_thread"]) for process in processes)
        row["functions"] = told["per_function"]["functions"]
        row["faults"] = told["faults"]
        row["lacks"] = told["lacks"]
    return row


def _outcomes(held: Folder) -> list[dict[str, Any]]:
    """Verdict counts per cohort and mode; a row for each set of counts that trials came to."""
    rows: list[dict[str, Any]] = []
    for checked in held.outcomes["checked"]:
        row = {"cohort": checked["cohort"], "mode": checked["mode"], "counts": checked["summary"]}
        same = next((one for one in rows if all(one[key] == row[key] for key in row)), None)
        if same is None:
            rows.append({**row, "trials": [checked["trial"]]})
        else:
            same["trials"].append(checked["trial"])
    return rows


def _invariants(held: Folder) -> dict[str, Any] | None:
    learned, portability = held.summary["invariants"], held.portability
    if learned is None or portability is None:
        return None
    return {
        "references": learned["references"],
        "number": learned["invariants"],
        "sha256": learned["sha256"],
        "infer": {name: learned["infer"][name] for name in ("wall_s", "cpu_s", "peak_mb")},
        "constants": portability["constants"],
        "identities_of_references": portability["identities_of_references"],
        "not_portable": portability["faults"],
    }


def _phases(summary: Row) -> list[dict[str, Any]]:
    return [
        {"cohort": cohort, "mode": name, "runs": figures["runs"], "seconds": figures["phases_s"]}
        for cohort, modes in summary["cohorts"].items()
        for name, figures in modes.items()
    ]


def _series(held: Folder, trial: Row) -> dict[str, Any]:
    """Times and bytes of every step of one trial, for the plots."""
    audit = held.audits.get(trial["id"])
    return {
        "trial": trial["id"],
        "cohort": trial["cohort"],
        "of": trial["of"],
        "mode": trial["mode"],
        "pair": trial["pair"],
        "valid": trial["valid"],
        "wall_ms": trial["times"]["wall_ms"],
        "cpu_ms": trial["times"]["cpu_ms"],
        "bytes_per_step": [row["bytes"] for row in audit["per_step"] if row["step"]] if audit else None,
    }


def _provenance(held: Folder) -> dict[str, Any]:
    study = held.study
    versions = (study["environment"] or {}).get("versions", {})
    peer = study["peer_environment"] or {}
    return {
        "source": study["source"],
        "traincheck": study["traincheck"],
        "policy_file": study["policy_file"],
        "began_ns": study["began_ns"],
        "ended_ns": study["ended_ns"],
        "machine": study["machine"],
        "load": study["load"],
        "threads": study["policy"]["protocol"]["threads"],
        "python": study["environment"]["python"],
        "versions": {name: versions[name] for name in VERSIONS if name in versions},
        "peer_versions": {name: value for name, value in sorted(peer.get("versions", {}).items())
                          if name.lower() in (*VERSIONS, "traincheck")},
        "facts": _facts(held),
        "environment": next((trial["environment"] for trial in held.trials), {}),
        "hashes": {
            "hashes.json (all files of the study)": artifacts.sha256_file(held.path / artifacts.HASHES),
            "study file": study["policy_sha256"],
            "training program": study["program_sha256"],
            "assets": study["assets_sha256"],
            "invariants": study["invariants_sha256"],
        },
        "commands": [{"trial": trial["id"], "command": trial["command"],
                      "check": (trial.get("check") or {}).get("command")} for trial in held.trials],
        "infer_command": ((held.summary["invariants"] or {}).get("infer") or {}).get("command"),
        "large_files": [{"path": name, **entry} for name, entry in sorted(held.hashes.items())
                        if entry["bytes"] >= LARGE],
    }  # fmt: skip


def _facts(held: Folder) -> dict[str, Any]:
    """What the first trial's first rank says of its workload."""
    for trial in held.trials:
        name = f"{artifacts.TRIALS}/{trial['id']}/rank-0.json"
        if (held.path / name).exists():
            rank = artifacts.read_json(held.path / name)
            return {"parameters": rank["parameters"], **rank["facts"]}
    return {}
