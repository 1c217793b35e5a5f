"""How far annotators agree: Krippendorff's alpha, and every disagreement by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from traincheck.pilot.annotating.milestones import MILESTONES, Milestone
from traincheck.pilot.annotating.records import Annotation, Reached

Level = Literal["nominal", "ordinal", "interval"]


def alpha(values: Sequence[Sequence[float | None]], level: Level) -> tuple[float | None, str | None]:
    """Krippendorff's alpha of ``values`` (annotators x units, None: not coded), or None and the reason.

    It is undefined when fewer than two annotators coded any same unit, and when all codes are the same value: then
    there is no disagreement to be expected by chance.
    """
    import krippendorff

    table = np.array([[np.nan if value is None else float(value) for value in row] for row in values], dtype=float)
    if table.ndim != 2 or not ((~np.isnan(table)).sum(axis=0) >= 2).any():
        return None, "no two annotators coded the same"
    paired = table[:, (~np.isnan(table)).sum(axis=0) >= 2]
    if len(np.unique(paired[~np.isnan(paired)])) < 2:
        return None, "all codes are the same value"
    return round(float(krippendorff.alpha(reliability_data=paired, level_of_measurement=level)), 6), None


def agreement(annotations: Mapping[str, Annotation]) -> dict[str, Any]:
    """Agreement of all annotators, as JSON.

    ``reached``: nominal, of each milestone and of all. ``adjusted_time``: interval, seconds. ``event``: ordinal, the
    number of the event. ``disagreements``: trial, milestone, and what each annotator said.
    """
    names = sorted(annotations)
    trials = sorted({trial for annotation in annotations.values() for trial in annotation.trials})
    found: dict[str, Any] = {"annotators": names, "trials": len(trials), "alpha": [], "disagreements": []}
    if len(names) < 2:
        found["why_not"] = "agreement needs two annotators"
        return found
    found["why_not"] = None

    def row(what: str, of: str, milestones: Sequence[Milestone], level: Level) -> None:
        values = [
            [_code(annotations[name], trial, milestone, what) for trial in trials for milestone in milestones]
            for name in names
        ]
        value, why = alpha(values, level)
        found["alpha"].append({"what": what, "of": of, "level": level, "alpha": value, "why_not": why})

    every = tuple(MILESTONES)
    row("reached", "all", every, "nominal")
    for milestone in every:
        row("reached", milestone, (milestone,), "nominal")
    row("adjusted_time", "all", every, "interval")
    row("event", "all", every, "ordinal")
    for trial in trials:
        for milestone in every:
            said = {name: _said(annotations[name], trial, milestone) for name in names}
            if len(set(said.values())) > 1:
                found["disagreements"].append({"trial": trial, "milestone": milestone, "said": said})
    return found


def consensus(annotations: Mapping[str, Annotation], trial: str, milestone: Milestone) -> dict[str, Any]:
    """What all annotators together say of a milestone, as JSON.

    ``state`` is ``reached`` (all say so; clocks and bounds span theirs), ``not reached``, ``disputed`` or
    ``not annotated``.
    """
    given = [
        annotation.trials[trial].milestones.get(milestone)
        for _, annotation in sorted(annotations.items())
        if trial in annotation.trials
    ]
    if not given:
        return {"state": "not annotated"}
    reached = [one for one in given if one is not None]
    if not reached:
        return {"state": "not reached"}
    if len(reached) < len(given):
        return {"state": "disputed"}
    return {
        "state": "reached",
        "raw_s": _middle([one.clocks.raw_s for one in reached]),
        "queue_adjusted_s": _middle([one.clocks.queue_adjusted_s for one in reached]),
        "adjusted_s": _middle([one.clocks.adjusted_s for one in reached]),
        "tokens": [min(one.tokens[0] for one in reached), max(one.tokens[1] for one in reached)],
        "before_first_device_request": all(one.before_first_device_request for one in reached),
    }


def blinding(annotations: Mapping[str, Annotation], arms: Mapping[str, str]) -> dict[str, Any]:
    """How often annotators guessed the arm (``arms``: trial -> arm), against what guessing one of them gives."""
    guesses = [
        (arms[trial], one.guess)
        for annotation in annotations.values()
        for trial, one in annotation.trials.items()
        if one.guess is not None
    ]
    return {
        "guesses": len(guesses),
        "right": sum(arm == guess for arm, guess in guesses),
        "by_chance": round(1 / len(set(arms.values())), 4) if arms else None,
    }


def _of(annotation: Annotation, trial: str, milestone: Milestone) -> Reached | None:
    held = annotation.trials.get(trial)
    return held.milestones.get(milestone) if held is not None else None


def _code(annotation: Annotation, trial: str, milestone: Milestone, what: str) -> float | None:
    if trial not in annotation.trials:
        return None
    reached = _of(annotation, trial, milestone)
    if what == "reached":
        return float(reached is not None)
    if reached is None:
        return None
    return reached.clocks.adjusted_s if what == "adjusted_time" else float(reached.event)


def _said(annotation: Annotation, trial: str, milestone: Milestone) -> str:
    if trial not in annotation.trials:
        return "not annotated"
    reached = _of(annotation, trial, milestone)
    return "not reached" if reached is None else f"event {reached.event}"


def _middle(values: Sequence[float]) -> float:
    return round(float(np.median(values)), 6)
