"""Times to a valid repair when some trials have none: Kaplan-Meier, and restricted mean survival time.

A trial without a proven valid repair is censored at its full time: the repair would have come later, or never. It is
kept, as what it is: a lower bound. Times are in any unit, above or equal to 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    """One time."""

    time: float
    event: bool
    """Whether the repair came at ``time``; False: not until then."""


def kaplan_meier(trials: Sequence[Trial]) -> list[tuple[float, float]]:
    """Steps of the share of trials still without a repair: (time, share from that time on), begun with (0, 1).

    A trial censored at the time of an event is still at risk there.
    """
    steps, share = [(0.0, 1.0)], 1.0
    # Events before what is censored at the same time: each event takes its part of those at risk.
    ordered = sorted(trials, key=lambda trial: (trial.time, not trial.event))
    number = 0
    while number < len(ordered):
        time, first = ordered[number].time, number
        while number < len(ordered) and ordered[number].time == time and ordered[number].event:
            number += 1
        if number > first:
            share *= 1 - (number - first) / (len(ordered) - first)
            steps.append((time, share))
        while number < len(ordered) and ordered[number].time == time:
            number += 1
    return steps


def median(trials: Sequence[Trial]) -> float | None:
    """The first time at which no more than half are without a repair; None: it was not reached."""
    return next((time for time, share in kaplan_meier(trials) if share <= 0.5 + 1e-12), None)


def restricted_mean(trials: Sequence[Trial], horizon: float) -> float:
    """Mean time without a repair, up to ``horizon``: the area under the curve. Raises ValueError of no trials.

    Where the longest time is censored and below ``horizon``, the curve goes on level: choose ``horizon`` no larger
    than ``common_horizon`` of the groups that are compared.
    """
    if not trials:
        raise ValueError("there are no trials")
    steps = [(time, share) for time, share in kaplan_meier(trials) if time < horizon]
    ends = [time for time, _ in steps[1:]] + [horizon]
    return math.fsum(share * (end - time) for (time, share), end in zip(steps, ends, strict=True))


def common_horizon(*groups: Sequence[Trial]) -> float:
    """How far the restricted means of all groups are known. Raises ValueError when one has no trials.

    A group in which every trial was repaired is known for all time: its curve is 0 from then on. One whose curve ends
    above 0 is known to its longest time. Where all are known for all time, the longest time of any will do.
    """
    longest = [max(trial.time for trial in group) for group in groups]
    open_ended = [end for end, group in zip(longest, groups, strict=True) if kaplan_meier(group)[-1][1] > 1e-12]
    return min([*open_ended, max(longest)])
