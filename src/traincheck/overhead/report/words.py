"""Sentences of a report that are the same in Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def verdict(report: Mapping[str, Any]) -> str:
    """The study in one sentence."""
    evidence = report["evidence"]
    said = (
        f"Training was the same, bit by bit, in {evidence['equal']} of {evidence['pairs']} pairs "
        f"({evidence['facts_compared']:,} facts compared)"
    )
    differing = [pair for pair in evidence["each"] if not pair["evidence_equal"]]
    if differing:
        one = differing[0]
        said += f", and differed in {one['mode']}, {one['cohort']} pair {one['pair']}: {one['first_difference']}"
    if report["valid"]:
        return f"{said}; every pair counts."
    left = evidence["pairs"] - evidence["valid"]
    state = "" if report["state"] == "finished" else f" The study was {report['state']}."
    many = "1 pair does" if left == 1 else f"{left} pairs do"
    return f"{said}; {many} not count." + state if left else f"{said}.{state or ' The study is not valid.'}"


def intervals(report: Mapping[str, Any]) -> list[str]:
    """Why modes have no interval, each reason once."""
    found: list[str] = []
    for mode in report["modes"]:
        told = mode["slowdown"]["wall"]
        if told and told["no_interval"] and told["no_interval"] not in found:
            found.append(told["no_interval"])
    return found


def noise(report: Mapping[str, Any]) -> list[str]:
    """How large the noise is: a sentence or none."""
    rows = [
        f"{row['wall']:.3f} in wall and {row['cpu']:.3f} in CPU time ({row['cohort']}: {row['runs']} runs of "
        f"{row['steps']} steps, seed {row['seed']})"
        for row in report["noise"]
    ]
    if not rows:
        return []
    return [
        f"Noise: a plain run differs from the plain run before by a factor of {'; '.join(rows)}, in the median. "
        "Slowdowns within that are not told apart from 1."
    ]


def portability(report: Mapping[str, Any]) -> str:
    """The audit of the invariant set."""
    held = report["invariants"]
    if held is None:
        return "Nothing was learned."
    cost = held["infer"]
    said = (
        f"{held['number']:,} invariants, learned from {', '.join(held['references'])} in {cost['wall_s']:.2f} s "
        f"({cost['peak_mb']:,.0f} MB); SHA-256 {held['sha256']}. Their {held['constants']:,} constants were looked "
        "through for ids, handles, process and thread ids, times, addresses, digests and paths, and against "
        f"{held['identities_of_references']:,} identities of the references: "
    )
    faults = held["not_portable"]
    if not faults:
        return said + "none found."
    shown = "; ".join(f"invariant {one['index']}, {one['where']} = {one['value']}: {one['why']}" for one in faults[:10])
    more = f"; and {len(faults) - 10} more" if len(faults) > 10 else ""
    return f"{said}{len(faults)} found: {shown}{more}."


WATCHED = (
    "Plan: scope, and how its hash begins. A selective plan is computed from the study's invariants by "
    "`traincheck collect -i`; `overhead verify` computes it again."
)
PHASES = (
    "Seconds by the clock, median over runs. Launch is before the program (launcher, interpreter, probes), steps are "
    "the timed steps inside training, drain what TrainCheck still writes after the program's end."
)
SLOWDOWNS = (
    "Slowdown: watched / plain of one pair, median over pairs and (range). A run's figure is the median of its steady "
    "steps; of a mode that observes every Nth step their mean."
)
COMMANDS = (
    "As they were run. DIR is the study's folder, PYTHON the interpreter that trains (PEER_PYTHON that of 0.x; _HOME "
    "their environments), STUDIES the folder of the study file."
)
"""What precedes the sections of that name."""
