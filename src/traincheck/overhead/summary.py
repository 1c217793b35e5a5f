"""The first reading of a study: medians, paired slowdowns, validity, counts. Data for reports, and a few lines."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from traincheck.overhead import artifacts, compare
from traincheck.overhead.policy import PLAIN, Mode, Policy
from traincheck.overhead.trial import ranks_of

Row = Mapping[str, Any]

_RATIOS = ("wall_median", "cpu_median", "wall_mean", "cpu_mean")


def pairs_of(folder: Path, trials: Sequence[Row]) -> list[dict[str, Any]]:
    """Content of ``pairs.json``: each finished pair, whether its evidence is equal, and its slowdowns if it counts."""
    by_pair: dict[tuple[str, int, str], dict[str, Row]] = {}
    for trial in trials:
        if trial["cohort"] != "reference":
            side = PLAIN if trial["mode"] == PLAIN else "watched"
            by_pair.setdefault((trial["cohort"], trial["pair"], trial["of"]), {})[side] = trial
    found = []
    for (cohort, number, mode), sides in by_pair.items():
        if len(sides) == 2:
            found.append(_pair(folder, cohort, number, mode, sides[PLAIN], sides["watched"]))
    return found


def _pair(folder: Path, cohort: str, number: int, mode: str, plain: Row, watched: Row) -> dict[str, Any]:
    reasons = [f"{side['id']}: {reason}" for side in (plain, watched) for reason in side["reasons"]]
    one, other = (ranks_of(folder / artifacts.TRIALS / side["id"]) for side in (plain, watched))
    difference = compare.first_difference(one, other) if one and other else "there is no evidence to compare"
    if difference is not None:
        reasons.append(f"training was not the same: {difference}")
    row: dict[str, Any] = {
        "cohort": cohort,
        "pair": number,
        "mode": mode,
        "first": PLAIN if plain["position"] == 1 else mode,
        "plain": plain["id"],
        "watched": watched["id"],
        "seed": plain["seed"],
        "steps": plain["steps"],
        "evidence_equal": difference is None,
        "first_difference": difference,
        "facts_compared": sum(map(compare.compared, one)) if one and difference is None else 0,
        "valid": not reasons,
        "reasons": reasons,
        "flagged": bool(plain["foreign"]["flagged"] or watched["foreign"]["flagged"]),
        "ratios": None,
        "slowdown": None,
    }
    if all(f"{name}_ms" in side["times"] for name in _RATIOS for side in (plain, watched)):
        row["ratios"] = {name: watched["times"][f"{name}_ms"] / plain["times"][f"{name}_ms"] for name in _RATIOS}
    row["slowdown"] = row["ratios"] if not reasons else None
    return row


def summarize(
    policy: Policy, study: Row, trials: Sequence[Row], pairs: Sequence[Row], outcomes: Row, learned: Row | None
) -> dict[str, Any]:
    """Content of ``summary.json``."""
    cohorts = sorted({trial["cohort"] for trial in trials} - {"reference"}, key=lambda name: (name != "main", name))
    return {
        "schema": artifacts.SCHEMA,
        "study": policy.name,
        "state": study["state"],
        "valid": bool(pairs) and all(pair["valid"] for pair in pairs) and study["state"] == "finished",
        "trials": {
            "run": len(trials),
            "planned": study["planned"],
            "invalid": [trial["id"] for trial in trials if not trial["valid"]],
            "flagged": [trial["id"] for trial in trials if trial["foreign"]["flagged"]],
        },
        "pairs": {
            "run": len(pairs),
            "valid": sum(pair["valid"] for pair in pairs),
            "evidence_equal": sum(pair["evidence_equal"] for pair in pairs),
            "facts_compared": sum(pair["facts_compared"] for pair in pairs),
            "invalid": [{name: pair[name] for name in ("cohort", "pair", "mode", "reasons")} for pair in pairs
                        if not pair["valid"]],
        },
        "cohorts": {
            cohort: {
                PLAIN: _figures([t for t in trials if t["cohort"] == cohort and t["mode"] == PLAIN and t["valid"]]),
                **{
                    mode.name: _mode(mode, cohort, trials, pairs)
                    for mode in policy.modes
                    if any(t["cohort"] == cohort and t["mode"] == mode.name for t in trials)
                },
            }
            for cohort in cohorts
        },
        "agreement": [
            {key: row.get(key) for key in ("observed", "direct", "why_not", "invariants", "same_verdict", "same")}
            for row in outcomes["agreement"]
        ],
        "outcomes": [{key: row[key] for key in ("trial", "cohort", "mode", "summary")} for row in outcomes["checked"]],
        "invariants": learned,
        "not_run": study["not_run"],
    }  # fmt: skip


def _mode(mode: Mode, cohort: str, trials: Sequence[Row], pairs: Sequence[Row]) -> dict[str, Any]:
    mine = [t for t in trials if t["cohort"] == cohort and t["mode"] == mode.name]
    paired = [p for p in pairs if p["cohort"] == cohort and p["mode"] == mode.name]
    valid = [p for p in paired if p["valid"]]
    broken = [p for p in paired if not p["valid"] and p["ratios"]]
    counted = [t for t in mine if t["valid"]]
    by_id = {t["id"]: t for t in trials}
    return {
        "kind": mode.kind,
        "sampling_interval": mode.sampling_interval,
        "warm_up_steps": mode.warm_up_steps,
        "tracking": mine[0]["tracking"],
        "pairs": len(paired),
        "valid_pairs": len(valid),
        "flagged_pairs": sum(p["flagged"] for p in paired),
        **_figures(counted),
        "records_per_10_steps": _median(10 * t["trace"]["records"] / t["steps"] for t in counted),
        "mb_per_10_steps": _median(10 * t["trace"]["bytes"] / 1e6 / t["steps"] for t in counted),
        "peak_mb_added": _median(by_id[p["watched"]]["peak_mb"] - by_id[p["plain"]]["peak_mb"] for p in valid),
        "check": _median_cost([t["check"] for t in counted if t.get("check")]),
        "slowdown": {name: _spread([p["slowdown"][name] for p in valid]) for name in _RATIOS},
        "ratios_of_invalid": {name: _spread([p["ratios"][name] for p in broken]) for name in _RATIOS},
    }  # fmt: skip


def _figures(trials: Sequence[Row]) -> dict[str, Any]:
    """Median over runs of each run's median step, and of its phases in seconds."""
    phases = sorted({name for trial in trials for name, value in trial["phases"].items() if value is not None})
    return {
        "runs": len(trials),
        "wall_ms": _median(t["times"]["wall_median_ms"] for t in trials),
        "cpu_ms": _median(t["times"]["cpu_median_ms"] for t in trials),
        "all_steps_cpu_ms": _median(sum(t["times"]["cpu_ms"]) for t in trials),
        "cpu_s": _median(t["cpu_s"] for t in trials),
        "peak_mb": _median(t["peak_mb"] for t in trials),
        "phases_s": {name: _median(t["phases"][name] for t in trials if t["phases"].get(name) is not None)
                     for name in phases},
    }  # fmt: skip


def _median(values: Any) -> float | None:
    found = list(values)
    return statistics.median(found) if found else None


def _median_cost(costs: Sequence[Row]) -> dict[str, Any] | None:
    if not costs:
        return None
    return {name: statistics.median(cost[name] for cost in costs) for name in ("wall_s", "cpu_s", "peak_mb")}


def _spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Median, smallest and largest, and each."""
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "each": list(values)}


def render(
    summary: Row, say: Callable[[str], None], table: Callable[[Sequence[str], list[list[object]]], None]
) -> None:
    """The summary for a terminal."""
    trials, pairs = summary["trials"], summary["pairs"]
    say(f"{summary['study']}: {summary['state']}, {trials['run']} of {trials['planned']} trials")
    say(
        f"{pairs['valid']} of {pairs['run']} pairs valid; training the same in {pairs['evidence_equal']} "
        f"({pairs['facts_compared']:,} facts compared)"
    )
    for pair in pairs["invalid"]:
        say(f"invalid: {pair['mode']}, {pair['cohort']} pair {pair['pair']}: {'; '.join(pair['reasons'])}")
    for cohort, modes in summary["cohorts"].items():
        say("")
        say(f"{cohort}: medians of steady steps; slowdown to the plain run of the pair, median (range)")
        rows: list[list[object]] = []
        for name, mode in modes.items():
            slow, doubtful = mode.get("slowdown") or {}, mode.get("ratios_of_invalid") or {}
            cells = [
                _ratio(slow.get(key)) or _ratio(doubtful.get(key), "invalid: ") or "-"
                for key in ("cpu_median", "wall_median", "cpu_mean")
            ]
            rows.append([name, mode["runs"], _short(mode["cpu_ms"]), _short(mode["wall_ms"]), *cells,
                         _short(mode.get("records_per_10_steps"), 0), _short(mode.get("mb_per_10_steps"))])  # fmt: skip
        table(
            ["mode", ">runs", ">CPU ms", ">wall ms", ">CPU slowdown", ">wall slowdown", ">CPU, mean step",
             ">records/10 steps", ">MB/10 steps"],
            rows,
        )  # fmt: skip
    if summary["agreement"]:
        say("")
    for row in summary["agreement"]:
        if row["direct"] is None:
            say(f"{row['observed']}: not compared with a full trace: {row['why_not']}")
        else:
            say(
                f"{row['observed']}: outcomes as on the full trace for {row['same_verdict']}/{row['invariants']} "
                f"invariants (applications and steps too: {row['same']}/{row['invariants']})"
            )
    for row in summary["outcomes"]:
        counts = {key: value for key, value in row["summary"].items() if value and key != "total"}
        say(f"{row['trial']}: " + ", ".join(f"{value} {key}" for key, value in counts.items()))
    for mode in summary["not_run"]:
        say(f"not run: {mode['mode']}: {mode['reason']}")
    if trials["flagged"]:
        say(f"under foreign load: {len(trials['flagged'])} trials (trial.json says how much)")


def _ratio(spread: Row | None, word: str = "") -> str:
    return f"{word}{spread['median']:.3f} ({spread['min']:.3f}–{spread['max']:.3f})" if spread else ""


def _short(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
