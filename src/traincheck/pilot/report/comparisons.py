"""Comparisons of arms: who is compared with whom, on what, over which trials."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from traincheck.pilot.plan import WITH_PACKAGE, Plan, Power
from traincheck.pilot.planning import power
from traincheck.pilot.report.effects import Observed, Pair, effect
from traincheck.pilot.report.survival import Trial, kaplan_meier, median

Row = Mapping[str, Any]

MEASURES: Final = {
    "adjusted time": "s",
    "raw time": "s",
    "tokens": "",
    "device-seconds": "s",
}
_REFERENCES: Final = ("control", "placebo")
ITT: Final = "intention to treat"
ACTIVATED: Final = "activated only"


def value(row: Row, measure: str) -> float | None:
    """The measure through the first valid submission; in full where there is none. None: there are no figures."""
    point = row["at_first_valid"] if not row["censored"] else row["full"]
    if row["censored"] is None or point is None:
        return None
    found: float = {
        "adjusted time": point["clocks"]["adjusted_s"],
        "raw time": point["clocks"]["raw_s"],
        "tokens": point["tokens"]["total"],
        "device-seconds": point["device_seconds"],
    }[measure]
    return found


def comparisons(plan: Plan, rows: Sequence[Row], failures: Sequence[str]) -> list[dict[str, Any]]:
    """All comparisons on cases of kind failure (``failures``): every arm with control, and with placebo.

    Only trials that count. ``activated only`` keeps the blocks whose treated trial activated the tool: no random draw
    made those, so its figure is no effect of the tool alone.
    """
    found = []
    solvers = tuple(solver.name for solver in plan.draft.solvers)
    scopes = [("all cases", tuple(failures), solvers)] if len(failures) != 1 else []
    scopes += [(f"case {case}", (case,), solvers) for case in failures]
    if len(solvers) > 1:
        scopes += [(f"solver {solver}", tuple(failures), (solver,)) for solver in solvers]
    for reference in (arm for arm in _REFERENCES if arm in plan.draft.arms):
        for arm in plan.draft.arms:
            if arm == reference or (arm == "control" and reference == "placebo"):
                continue
            for analysis in (ITT, ACTIVATED) if arm in WITH_PACKAGE else (ITT,):
                for scope, cases, by in scopes:
                    for measure in MEASURES:
                        held = _pairs(rows, (arm, reference), cases, by, measure, analysis)
                        found.append(
                            {
                                "arm": arm,
                                "reference": reference,
                                "analysis": analysis,
                                "scope": scope,
                                "measure": measure,
                                **effect(held, survival=measure == "adjusted time"),
                            }
                        )
    return found


def survival(plan: Plan, rows: Sequence[Row], failures: Sequence[str]) -> list[dict[str, Any]]:
    """Kaplan-Meier curve of the adjusted time to a valid repair, of each case and arm."""
    found = []
    for case in failures:
        for arm in plan.draft.arms:
            trials = [
                Trial(time, not row["censored"])
                for row in rows
                if row["counts"] and (row["case"], row["arm"]) == (case, arm)
                and (time := value(row, "adjusted time")) is not None
            ]  # fmt: skip
            if trials:
                found.append(
                    {
                        "case": case,
                        "arm": arm,
                        "trials": len(trials),
                        "repaired": sum(trial.event for trial in trials),
                        "median_s": median(trials),
                        "longest_s": max(trial.time for trial in trials),
                        "curve": [[time, round(share, 6)] for time, share in kaplan_meier(trials)],
                    }
                )
    return found


def observed_power(plan: Plan, rows: Sequence[Row], failures: Sequence[str]) -> dict[str, Any]:
    """The spread that was seen: log-SD of adjusted time to a repair within cells (case, arm, solver), and its power.

    Pooled over cells with two or more repairs. With censored trials it is that of the faster ones: too small.
    """
    squares, freedom, censored = 0.0, 0, 0
    sizes: dict[str, int] = {}
    for case in failures:
        for arm in plan.draft.arms:
            for solver in plan.draft.solvers:
                cell = [
                    row for row in rows
                    if row["counts"] and (row["case"], row["arm"], row["solver"]) == (case, arm, solver.name)
                    and row["censored"] is not None
                ]  # fmt: skip
                sizes[arm] = sizes.get(arm, 0) + len(cell)
                censored += sum(row["censored"] for row in cell)
                logs = [
                    math.log(time) for row in cell
                    if not row["censored"] and (time := value(row, "adjusted time")) is not None and time > 0
                ]  # fmt: skip
                if len(logs) > 1:
                    mean = math.fsum(logs) / len(logs)
                    squares += math.fsum((one - mean) ** 2 for one in logs)
                    freedom += len(logs) - 1
    asked = plan.draft.power
    smallest = min(sizes.values(), default=0)
    spread = math.sqrt(squares / freedom) if freedom else None
    found: dict[str, Any] = {
        "assumed_log_sd": asked.log_sd,
        "observed_log_sd": None if spread is None else round(spread, 6),
        "degrees_of_freedom": freedom,
        "censored": censored,
        "trials_per_arm": smallest,
        "detectable_ratio": None,
        "needed_half": None,
    }
    if spread:
        seen = Power(log_sd=spread, alpha=asked.alpha, power=asked.power)
        ratio = power.detectable(smallest, seen)
        found.update(
            detectable_ratio=None if ratio is None else round(ratio, 6),
            needed_half=power.needed(0.5, seen),
        )
    return found


def _pairs(
    rows: Iterable[Row],
    arms: tuple[str, str],
    cases: Sequence[str],
    solvers: Sequence[str],
    measure: str,
    analysis: str,
) -> list[Pair]:
    blocks: dict[int, dict[str, Row]] = {}
    for row in rows:
        if row["counts"] and row["case"] in cases and row["solver"] in solvers and row["arm"] in arms:
            blocks.setdefault(row["block"], {})[row["arm"]] = row
    found = []
    for block, held in sorted(blocks.items()):
        if len(held) < 2 or (analysis == ACTIVATED and not held[arms[0]]["activation"]["activated"]):
            continue
        one, other = (_observed(held[name], measure) for name in arms)
        if one is not None and other is not None:
            found.append(Pair(str(held[arms[0]]["case"]), block, one, other))
    return found


def _observed(row: Row, measure: str) -> Observed | None:
    found = value(row, measure)
    return None if found is None else Observed(float(found), not row["censored"])
