"""Paired effects: ratios within blocks, intervals that resample cases, censored trials kept."""

from __future__ import annotations

import math

import numpy as np
import pytest

from traincheck.pilot.report.effects import FEWEST_PAIRS, Observed, Pair, effect


def pairs(ratios, case="a", control=100.0):
    return [
        Pair(case, number, Observed(control * ratio, True), Observed(control, True))
        for number, ratio in enumerate(ratios)
    ]


def test_the_ratio_is_the_geometric_mean_of_the_pairs():
    found = effect(pairs([0.5, 2.0, 0.25]), survival=False)
    assert found["ratio"] == pytest.approx(0.25 ** (1 / 3), abs=1e-6)
    assert found["pairs"] == found["complete_pairs"] == 3
    assert found["interval"] is None
    assert found["no_interval"] == "3 pairs are too few for an interval; 6 or more give one"


def test_one_pair_has_a_ratio_and_no_interval():
    found = effect(pairs([0.5]), survival=True)
    assert found["ratio"] == pytest.approx(0.5)
    assert found["log_sd_of_pairs"] is None
    assert found["no_interval"] == found["restricted_mean"]["no_interval"] == "one pair says nothing of its own spread"


def test_equal_pairs_have_an_interval_of_no_width():
    found = effect(pairs([0.5] * FEWEST_PAIRS), survival=True)
    assert (found["interval"]["low"], found["interval"]["high"]) == (0.5, 0.5)
    assert found["restricted_mean"]["difference"] == pytest.approx(-50)
    assert found["restricted_mean"]["horizon"] == {"a": 100.0}


def test_the_interval_is_that_of_resampled_blocks_within_one_case():
    ratios = [0.3, 0.5, 0.6, 0.7, 0.9, 1.1, 1.2, 0.4]
    found = effect(pairs(ratios), survival=False)
    # Close to the normal interval of the mean log-ratio, a little narrower as percentile intervals are.
    logs = np.log(ratios)
    half = 1.96 * logs.std(ddof=1) / math.sqrt(len(ratios))
    assert math.log(found["interval"]["low"]) == pytest.approx(logs.mean() - half, abs=0.07)
    assert math.log(found["interval"]["high"]) == pytest.approx(logs.mean() + half, abs=0.07)
    assert found["interval"]["method"] == "percentile bootstrap, blocks resampled"
    assert found == effect(pairs(ratios), survival=False)  # seeded
    assert found["interval"] != effect(pairs(ratios), survival=False, seed=1)["interval"]


def test_cases_that_differ_widen_the_interval():
    # Within each case pairs are alike; between cases they are not: blocks alone would hide that.
    alike = pairs([0.5, 0.51, 0.49, 0.5], "a") + pairs([1.5, 1.51, 1.49, 1.5], "b")
    clustered = effect(alike, survival=True)
    flat = effect([Pair("one", n, pair.treated, pair.control) for n, pair in enumerate(alike)], survival=False)
    assert clustered["interval"]["clusters"] == 2
    assert clustered["interval"]["low"] <= 0.51
    assert clustered["interval"]["high"] >= 1.49
    assert flat["interval"]["low"] > clustered["interval"]["low"] + 0.05
    assert clustered["restricted_mean"]["difference"] == pytest.approx(0, abs=1e-6)
    assert clustered["restricted_mean"]["interval"]["low"] < -49
    assert clustered["restricted_mean"]["interval"]["high"] > 49


def test_censored_trials_are_in_the_restricted_mean_and_in_no_ratio():
    held = [*pairs([0.5, 0.5]), Pair("a", 9, Observed(300, False), Observed(100, True))]
    found = effect(held, survival=True)
    assert (found["pairs"], found["complete_pairs"], found["censored_pairs"]) == (3, 2, 1)
    assert found["ratio"] == pytest.approx(0.5)
    # Up to 300 s: treated 1 up to 50, then 1/3; control 1 up to 100, then 0.
    assert found["restricted_mean"]["treated"] == pytest.approx(50 + 250 / 3, abs=1e-5)
    assert found["restricted_mean"]["control"] == pytest.approx(100)


def test_nothing_used_has_no_logarithm_and_is_counted():
    held = [Pair("a", 0, Observed(0, True), Observed(10, True)), *pairs([0.5])]
    found = effect(held, survival=False)
    assert (found["zero_pairs"], found["complete_pairs"]) == (1, 1)
    assert effect([], survival=True)["ratio"] is None
    assert effect([], survival=True)["restricted_mean"] is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    drawing = np.random.default_rng(3)
    covered = 0
    for _ in range(100):
        ratios = np.exp(drawing.normal(math.log(0.7), 0.5, 12))
        held = effect(pairs(ratios), survival=False, resamples=400)["interval"]
        covered += held["low"] <= 0.7 <= held["high"]
    assert 84 <= covered <= 99  # percentile intervals of 12 pairs cover a little less than 95 %
