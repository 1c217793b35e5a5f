"""Power: figures of the reference, of a published table, and of simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from traincheck.pilot.plan import Power
from traincheck.pilot.planning import power

SPREAD = Power(log_sd=0.49)


def test_the_reference_figures_are_those_of_the_normal_approximation():
    assert power.needed_normal(0.5, SPREAD) == 8
    assert power.needed_normal(0.75, SPREAD) == 46


def test_with_students_t_one_trial_more_is_needed():
    assert power.needed(0.5, SPREAD) == 9
    assert power.needed(0.75, SPREAD) == 47


@pytest.mark.parametrize(
    ("size", "trials"),
    # Cohen (1988), two-sided 0.05, power 0.80: trials a group for a standardised difference.
    [(0.2, 394), (0.5, 64), (0.8, 26), (1.0, 17)],
)
def test_published_sample_sizes(size, trials):
    assert power.needed(math.exp(-size), Power(log_sd=1.0)) == trials


def test_power_is_that_of_a_simulation():
    from scipy.stats import ttest_ind

    drawing = np.random.default_rng(5)
    trials, repeats = 6, 4000
    one = drawing.normal(math.log(0.5), 0.49, (repeats, trials))
    other = drawing.normal(0.0, 0.49, (repeats, trials))
    seen = float((ttest_ind(one, other, axis=1).pvalue < 0.05).mean())
    assert power.power_of(0.5, trials, 0.49, 0.05) == pytest.approx(seen, abs=0.03)


def test_detectable_is_the_inverse_of_power():
    for trials in (2, 3, 5, 9, 47):
        ratio = power.detectable(trials, SPREAD)
        assert power.power_of(ratio, trials, 0.49, 0.05) == pytest.approx(0.8, abs=1e-6)
    assert power.detectable(9, SPREAD) > 0.5 > power.detectable(8, SPREAD)


def test_one_trial_can_show_nothing():
    assert power.detectable(1, SPREAD) is None
    with pytest.raises(ValueError, match="no variance"):
        power.power_of(0.5, 1, 0.49, 0.05)
    with pytest.raises(ValueError, match="ratio of 1"):
        power.needed(1.0, SPREAD)


def test_a_halving_and_a_doubling_are_as_easy():
    assert power.power_of(0.5, 7, 0.49, 0.05) == pytest.approx(power.power_of(2.0, 7, 0.49, 0.05))


def test_statement_says_what_each_pooling_can_show():
    held = power.statement(5, cases=3, solvers=2, asked=SPREAD)
    assert [row["trials_per_arm"] for row in held["scopes"]] == [5, 10, 15, 30]
    assert [row["ratio"] for row in held["scopes"]] == sorted(row["ratio"] for row in held["scopes"])
    told = power.sentences(held)
    assert "A halving needs 9 trials an arm, a quarter less needs 47 (normal approximation: 8 and 46)." in told
    alone = power.sentences(power.statement(1, 1, 1, SPREAD))
    assert any("no difference of any size" in text for text in alone)
