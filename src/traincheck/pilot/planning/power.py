"""What numbers of trials can show: the power of a two-sided comparison of log times between two arms.

Two independent arms of ``n`` trials each, log times with a common standard deviation, Student's t. A ratio is of
times: 0.5 is a halving. The normal approximation, which published figures for small pilots often come from, is kept
beside it: it is one or two trials too hopeful.
"""

from __future__ import annotations

import math
from typing import Any, Final

from traincheck.pilot.plan import Power

_MOST: Final = 100_000


def power_of(ratio: float, trials: int, log_sd: float, alpha: float) -> float:
    """Probability of a significant difference when times differ by ``ratio``, with ``trials`` in each arm.

    Raises ValueError for fewer than two trials (there is no variance then) and for what is not above zero.
    """
    from scipy.special import nctdtr, stdtrit  # the distributions of scipy.stats, which takes a second to import

    if trials < 2:
        raise ValueError("one trial of an arm has no variance")
    if ratio <= 0 or log_sd <= 0:
        raise ValueError("ratio and log_sd are above zero")
    freedom = 2 * trials - 2
    shift = abs(math.log(ratio)) / (log_sd * math.sqrt(2 / trials))
    limit = float(stdtrit(freedom, 1 - alpha / 2))
    # Not beyond the limit, and beyond it on the wrong side. Far out in a tail scipy's series gives NaN: it is 0 there.
    within, wrong = (float(nctdtr(freedom, shift, end)) for end in (limit, -limit))
    return min(1.0, 1 - (within if math.isfinite(within) else 0.0) + (wrong if math.isfinite(wrong) else 0.0))


def detectable(trials: int, asked: Power) -> float | None:
    """The ratio (below 1) closest to 1 that ``trials`` an arm show with the power asked for; None for one trial."""
    if trials < 2:
        return None
    low, high = 0.0, 60.0  # of |log ratio| in standard deviations of the log time
    for _ in range(60):
        middle = (low + high) / 2
        reached = power_of(math.exp(-middle * asked.log_sd), trials, asked.log_sd, asked.alpha) >= asked.power
        low, high = (low, middle) if reached else (middle, high)
    return math.exp(-high * asked.log_sd)


def needed(ratio: float, asked: Power) -> int:
    """Trials an arm that show ``ratio`` with the power asked for. Raises ValueError for a ratio of 1, or near it."""
    if math.isclose(ratio, 1.0, abs_tol=1e-3):
        raise ValueError("no number of trials shows a ratio of 1")
    low, high = 1, 2
    while power_of(ratio, high, asked.log_sd, asked.alpha) < asked.power:
        low, high = high, high * 2
        if high > _MOST:
            raise ValueError(f"more than {_MOST} trials an arm")
    while high - low > 1:
        middle = (low + high) // 2
        enough = power_of(ratio, middle, asked.log_sd, asked.alpha) >= asked.power
        low, high = (low, middle) if enough else (middle, high)
    return high


def needed_normal(ratio: float, asked: Power) -> int:
    """The same by the normal approximation, as published for pilots of this kind."""
    from scipy.special import ndtri

    size = abs(math.log(ratio)) / asked.log_sd
    quantiles = float(ndtri(1 - asked.alpha / 2) + ndtri(asked.power))
    return math.ceil(2 * (quantiles / size) ** 2)


def statement(trials: int, cases: int, solvers: int, asked: Power) -> dict[str, Any]:
    """What a plan can detect, for every way in which its trials are put together. Numbers are rounded: they are hashed.

    ``trials`` are of each case, arm and solver.
    """
    scopes = {
        "one case, one solver": trials,
        "one case, all solvers": trials * solvers,
        "all cases, one solver": trials * cases,
        "all cases, all solvers": trials * cases * solvers,
    }
    return {
        "log_sd": asked.log_sd,
        "alpha": asked.alpha,
        "power": asked.power,
        "scopes": [
            {"scope": name, "trials_per_arm": count, "ratio": _rounded(detectable(count, asked))}
            for name, count in scopes.items()
        ],
        "needed": {"half": needed(0.5, asked), "a_quarter_less": needed(0.75, asked)},
        "needed_normal": {"half": needed_normal(0.5, asked), "a_quarter_less": needed_normal(0.75, asked)},
    }


def sentences(held: dict[str, Any]) -> list[str]:
    """A statement in plain words."""
    found = [
        f"Assumed: log time to a valid repair has a standard deviation of {held['log_sd']:g} between trials of an arm; "
        f"two-sided test at {held['alpha']:g}, power {held['power']:g}, one comparison of two arms."
    ]
    for row in held["scopes"]:
        count = row["trials_per_arm"]
        if row["ratio"] is None:
            found.append(f"{row['scope']}: one trial an arm; it can show no difference of any size.")
        else:
            found.append(
                f"{row['scope']}: {count} trials an arm; detectable is a time of {row['ratio']:.0%} or less of the "
                f"other arm's ({1 - row['ratio']:.0%} less)."
            )
    half, quarter = held["needed"]["half"], held["needed"]["a_quarter_less"]
    normal = held["needed_normal"]
    found.append(
        f"A halving needs {half} trials an arm, a quarter less needs {quarter} "
        f"(normal approximation: {normal['half']} and {normal['a_quarter_less']})."
    )
    return found


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)
