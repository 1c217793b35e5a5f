"""Effects of an arm against control: paired within blocks, cases resampled as wholes, censored trials kept.

Two figures beside each other, because neither says all. The log-ratio needs both times of a block; blocks in which
one trial has no proven repair are counted and left out of it. The restricted mean keeps every trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from traincheck.pilot.report.survival import Trial, common_horizon, restricted_mean

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 2000
SEED: Final = 20_250_301
"""Of the bootstrap: the same trials give the same interval."""

FEWEST_PAIRS: Final = 6
"""With fewer, even the whole range of the pairs covers the true median with less than 95 %."""


@dataclass(frozen=True)
class Observed:
    """One trial of one measure."""

    value: float
    """Through the first valid submission; in full where there is none."""
    event: bool
    """Whether a first valid submission is proven."""


@dataclass(frozen=True)
class Pair:
    """One block: the arm's trial and control's."""

    case: str
    block: int
    treated: Observed
    control: Observed

    @property
    def log_ratio(self) -> float | None:
        """None when one is censored, or is 0: it has no logarithm."""
        both = self.treated.event and self.control.event and self.treated.value > 0 and self.control.value > 0
        return math.log(self.treated.value / self.control.value) if both else None


def effect(pairs: Sequence[Pair], *, survival: bool, seed: int = SEED, resamples: int = RESAMPLES) -> dict[str, Any]:
    """What the pairs of one comparison come to, as JSON. A ratio below 1: the arm needed less than control.

    ``survival``: the restricted mean too, which is for times.
    """
    cases = sorted({pair.case for pair in pairs})
    logs: dict[str, list[float]] = {}
    for pair in sorted(pairs, key=lambda pair: (pair.case, pair.block)):
        if pair.log_ratio is not None:
            logs.setdefault(pair.case, []).append(pair.log_ratio)
    every = [value for held in logs.values() for value in held]
    found: dict[str, Any] = {
        "pairs": len(pairs),
        "cases": len(cases),
        "complete_pairs": len(every),
        "censored_pairs": sum(not (pair.treated.event and pair.control.event) for pair in pairs),
        "zero_pairs": sum(pair.treated.event and pair.control.event and pair.log_ratio is None for pair in pairs),
        "ratio": _rounded(math.exp(math.fsum(every) / len(every))) if every else None,
        "log_sd_of_pairs": _rounded(float(np.std(every, ddof=1))) if len(every) > 1 else None,
        "interval": None,
        "no_interval": _why_not(len(every)),
        "restricted_mean": _restricted(pairs, cases, seed, resamples) if survival else None,
    }
    if found["no_interval"] is None:
        low, high = _bootstrap(logs, seed, resamples)
        found["interval"] = {**_method(logs, resamples, seed), "low": _rounded(low), "high": _rounded(high)}
    return found


def _restricted(pairs: Sequence[Pair], cases: Sequence[str], seed: int, resamples: int) -> dict[str, Any] | None:
    """Restricted means of both arms and their difference (arm - control); cases weigh by their pairs."""
    if not pairs:
        return None
    groups = {case: [pair for pair in pairs if pair.case == case] for case in cases}
    horizons = {case: common_horizon(*_arms(held)) for case, held in groups.items()}
    treated, control = _means(groups, list(cases), horizons)
    found: dict[str, Any] = {
        "horizon": {case: _rounded(value) for case, value in horizons.items()},
        "treated": _rounded(treated),
        "control": _rounded(control),
        "difference": _rounded(treated - control),
        "interval": None,
        "no_interval": _why_not(len(pairs)),
    }
    if found["no_interval"] is None:
        drawing = np.random.default_rng(seed)
        differences = []
        for _ in range(resamples):
            drawn: dict[str, list[Pair]] = {}
            names = []
            for number, index in enumerate(drawing.integers(0, len(cases), len(cases))):
                held = groups[cases[index]]
                name = f"{cases[index]}\n{number}"
                drawn[name] = [held[each] for each in drawing.integers(0, len(held), len(held))]
                names.append(name)
            one, other = _means(drawn, names, {name: horizons[name.partition("\n")[0]] for name in names})
            differences.append(one - other)
        low, high = _tails(np.asarray(differences))
        found["interval"] = {**_method(groups, resamples, seed), "low": _rounded(low), "high": _rounded(high)}
    return found


def _means(
    groups: Mapping[str, Sequence[Pair]], names: Sequence[str], horizons: Mapping[str, float]
) -> tuple[float, float]:
    total = sum(len(groups[name]) for name in names)
    sums = [0.0, 0.0]
    for name in names:
        for number, arm in enumerate(_arms(groups[name])):
            sums[number] += restricted_mean(arm, horizons[name]) * len(arm) / total
    return sums[0], sums[1]


def _arms(pairs: Sequence[Pair]) -> tuple[list[Trial], list[Trial]]:
    return (
        [Trial(pair.treated.value, pair.treated.event) for pair in pairs],
        [Trial(pair.control.value, pair.control.event) for pair in pairs],
    )


def _bootstrap(logs: Mapping[str, Sequence[float]], seed: int, resamples: int) -> tuple[float, float]:
    """Interval of the geometric mean ratio: cases drawn with replacement, then blocks within each."""
    drawing = np.random.default_rng(seed)
    held = [np.asarray(logs[case], dtype=np.float64) for case in sorted(logs)]
    means = np.empty(resamples)
    for number in range(resamples):
        drawn = [
            held[index][drawing.integers(0, len(held[index]), len(held[index]))]
            for index in drawing.integers(0, len(held), len(held))
        ]
        means[number] = np.concatenate(drawn).mean()
    low, high = _tails(means)
    return math.exp(low), math.exp(high)


def _tails(values: Any) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def _method(clusters: Mapping[str, object], resamples: int, seed: int) -> dict[str, Any]:
    many = len(clusters) > 1
    return {
        "confidence": CONFIDENCE,
        "method": "percentile bootstrap, " + ("cases resampled, then blocks within" if many else "blocks resampled"),
        "clusters": len(clusters),
        "resamples": resamples,
        "seed": seed,
    }


def _why_not(pairs: int) -> str | None:
    if pairs == 0:
        return "no pair has both"
    if pairs == 1:
        return "one pair says nothing of its own spread"
    if pairs < FEWEST_PAIRS:
        return f"{pairs} pairs are too few for an interval; {FEWEST_PAIRS} or more give one"
    return None


def _rounded(value: float) -> float:
    return round(value, 6)
