"""Statistics of a study: what a run's steps come to, what pairs come to, and how sure that is. Numbers in, numbers out.

A run's figure is the median (of a sampled mode: the mean) of its steady steps; a mode's, the median of its runs; a
slowdown, watched / plain of one pair. Pairs are what is resampled: steps of one run are no independent measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

CONFIDENCE: Final = 0.95
RESAMPLES: Final = 10_000
SEED: Final = 20_240_613
"""Of the bootstrap: the same pairs give the same interval."""

FEWEST_PAIRS: Final = 6
"""With fewer, even the whole range of the pairs covers the true median with less than 95 %."""


def number(value: Any) -> float | None:
    """A finite number, or None: a study's files write NaN and infinity as text, and what is not there as null."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def finite(values: Iterable[Any]) -> list[float]:
    """Those that are finite numbers."""
    return [found for value in values if (found := number(value)) is not None]


def median(values: Iterable[Any]) -> float | None:
    """The median of what is a finite number; None of nothing."""
    found = sorted(finite(values))
    if not found:
        return None
    middle = len(found) // 2
    return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2


def mean(values: Iterable[Any]) -> float | None:
    """The mean of what is a finite number; None of nothing."""
    found = finite(values)
    return math.fsum(found) / len(found) if found else None


def geometric_mean(ratios: Iterable[Any]) -> float | None:
    """The mean to average ratios with: 2x and 0.5x come to 1x. Ratios that are not above zero do not count."""
    logs = [math.log(ratio) for ratio in finite(ratios) if ratio > 0]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def run_figure(steps: Sequence[Any], first_steady_step: int, sampled: bool = False) -> float | None:
    """A run's figure: median of its steps from ``first_steady_step`` (from 1) on; their mean where steps are sampled.

    The unit is that of ``steps``. With every Nth step observed, the median is a step that was not.
    """
    steady = steps[first_steady_step - 1 :]
    return mean(steady) if sampled else median(steady)


def noise(runs: Sequence[Any]) -> float | None:
    """By what factor two runs of the same thing differ that followed one another, in the median; 1.0 is not at all.

    ``runs`` are figures of plain runs in their order. None with fewer than two.
    """
    values = [value for value in finite(runs) if value > 0]
    return median(max(one / other, other / one) for one, other in pairwise(values))


def coverage(pairs: int) -> float:
    """Probability that the true median lies between the smallest and the largest of so many independent pairs."""
    return 1 - 2.0 ** (1 - pairs) if pairs else 0.0


def interval(
    values: Sequence[float], *, seed: int = SEED, resamples: int = RESAMPLES, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Percentile-bootstrap interval of the median, pairs resampled with replacement. Raises ValueError of none."""
    if not values:
        raise ValueError("there is nothing to resample")
    held = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(held), size=(resamples, len(held)))
    medians = np.median(held[drawn], axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    return float(low), float(high)


def paired(ratios: Iterable[Any], *, seed: int = SEED) -> dict[str, Any] | None:
    """What a mode's paired slowdowns come to; None when not one is a finite number.

    ``interval`` is null with fewer than ``FEWEST_PAIRS`` pairs, and ``no_interval`` says why.
    """
    values = finite(ratios)
    if not values:
        return None
    found: dict[str, Any] = {
        "pairs": len(values),
        "median": median(values),
        "min": min(values),
        "max": max(values),
        "geometric_mean": geometric_mean(values),
        "each": values,
        "interval": None,
        "no_interval": None,
    }
    if len(values) < FEWEST_PAIRS:
        found["no_interval"] = _too_few(len(values))
    else:
        low, high = interval(values, seed=seed)
        found["interval"] = {
            "low": low,
            "high": high,
            "confidence": CONFIDENCE,
            "method": "percentile bootstrap of the median, pairs resampled",
            "resamples": RESAMPLES,
            "seed": seed,
        }
    return found


def _too_few(pairs: int) -> str:
    if pairs == 1:
        return "one pair says nothing of its own spread"
    return (
        f"too few for a {CONFIDENCE:.0%} interval: even the whole range of {pairs} pairs covers the true median "
        f"with {coverage(pairs):.0%} only; {FEWEST_PAIRS} pairs or more give one"
    )
