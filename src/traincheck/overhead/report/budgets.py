"""Budgets of design.md beside what was measured, and what is published of the 0.x tool on another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from traincheck.overhead.statistics import number

OF_WORKLOAD: Final = "torchtitan-llama-debug"
"""The workload that the budgets are of."""

PUBLISHED_ON: Final = "one NVIDIA H100, TorchTitan Llama debug model, 10 steps: another machine, not measured here"
"""Where the published figures are from."""


@dataclass(frozen=True)
class Budget:
    """One promise: the figure ``of`` modes of these ``kinds`` is at most ``limit``."""

    name: str
    figure: str
    """``slowdown``, ``mb_per_10_steps`` or ``check_s``."""
    kinds: tuple[str, ...]
    limit: float
    unit: str
    published: str | None
    """Of the 0.x tool."""
    sampled: bool = False
    """Of modes that observe every 10th step (or fewer), else of those that observe each."""


BUDGETS: Final = (
    Budget("selective, every step", "slowdown", ("selective",), 1.05, "x", "22.64x"),
    Budget("selective, every 10th step", "slowdown", ("selective",), 1.01, "x", None, sampled=True),
    Budget("full API", "slowdown", ("api",), 1.5, "x", "114x"),
    Budget("trace of 10 steps, selective", "mb_per_10_steps", ("selective",), 10, "MB", "143 MB"),
    Budget("trace of 10 steps, full", "mb_per_10_steps", ("api", "full"), 10, "MB", "255 MB"),
    Budget("check of a trace", "check_s", ("selective", "full"), 1, "s", "30 s"),
)


def judged(modes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each budget and mode that it is of; one with nulls where no such mode was run.

    ``modes`` are rows of the main cohort.
    ``met`` of a slowdown needs both, wall and CPU time. It is null where nothing was measured. ``crossed``: some pairs
    are below the limit and some above.
    """
    rows = []
    for budget in BUDGETS:
        mine = [mode for mode in modes if _is_of(budget, mode)]
        rows += [_row(budget, mode) for mode in mine] or [_row(budget, None)]
    return rows


def _is_of(budget: Budget, mode: Mapping[str, Any]) -> bool:
    interval = mode["sampling_interval"]
    return mode["kind"] in budget.kinds and (interval >= 10 if budget.sampled else interval == 1)


def _row(budget: Budget, mode: Mapping[str, Any] | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "budget": budget.name,
        "figure": budget.figure,
        "limit": budget.limit,
        "unit": budget.unit,
        "published": budget.published,
        "mode": mode["mode"] if mode else None,
        "measured": None,
        "cpu": None,
        "met": None,
        "met_wall": None,
        "met_cpu": None,
        "crossed": False,
        "flagged": bool(mode and mode["flagged_pairs"]),
        "steps": list(mode["steps"]) if mode else [],
    }
    if mode is None:
        return row
    if budget.figure == "slowdown":
        wall, cpu = (mode["slowdown"][clock] or {} for clock in ("wall", "cpu"))
        row["measured"], row["cpu"] = number(wall.get("median")), number(cpu.get("median"))
        row["crossed"] = any(one and one["min"] <= budget.limit < one["max"] for one in (wall, cpu))
    elif budget.figure == "check_s":
        row["measured"], row["cpu"] = (number((mode["check"] or {}).get(clock)) for clock in ("wall_s", "cpu_s"))
    else:
        row["measured"] = number(mode[budget.figure])
        row["flagged"] = False  # bytes are the same under any load
    row["met_wall"], row["met_cpu"] = (
        None if value is None else value <= budget.limit for value in (row["measured"], row["cpu"])
    )
    if row["met_wall"] is not None:
        row["met"] = row["met_wall"] and (budget.figure != "slowdown" or row["met_cpu"] is not False)
    return row


def verdict(row: Mapping[str, Any]) -> str:
    """``met``, ``missed`` or ``not measured``, with what softens it."""
    if row["met"] is None:
        return "not measured"
    said = "met" if row["met"] else "missed"
    if row["met_cpu"] is not None and row["met_cpu"] != row["met_wall"]:
        one, other = ("wall", "CPU") if row["met_cpu"] else ("CPU", "wall")
        said = f"missed by {one} time, met by {other} time" if not row["met"] else said
    if row["figure"] == "mb_per_10_steps" and row["steps"] != [10]:
        # What is written once a run (names, interned values) counts more in a shorter one, less in a longer one.
        said += f", from runs of {' or '.join(map(str, row['steps']))} steps"
    if row["crossed"]:
        said += ", though not in every pair"
    return said + (", under foreign load" if row["flagged"] else "")
