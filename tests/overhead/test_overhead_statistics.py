"""Medians, ratios and intervals of a study: laws that they keep, and inputs that are no numbers."""

from __future__ import annotations

import math
import statistics as standard

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincheck.overhead import statistics

RATIOS = st.lists(st.floats(0.01, 100), min_size=1, max_size=30)


@given(RATIOS)
def test_medians_and_means_are_those_of_the_standard_library(values: list[float]) -> None:
    assert statistics.median(values) == pytest.approx(standard.median(values))
    assert statistics.mean(values) == pytest.approx(standard.fmean(values))
    assert statistics.geometric_mean(values) == pytest.approx(standard.geometric_mean(values))


@given(RATIOS)
def test_a_geometric_mean_does_not_care_which_way_a_ratio_is_written(values: list[float]) -> None:
    turned = statistics.geometric_mean([1 / value for value in values])
    assert turned == pytest.approx(1 / statistics.geometric_mean(values))


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, None, "nan", True, 10**400, [], {}])
def test_what_is_no_finite_number_does_not_count(odd: object) -> None:
    assert statistics.number(odd) is None
    assert statistics.median([odd]) is None
    assert statistics.median([odd, 3.0]) == 3.0
    assert statistics.mean([odd, 1.0, 2.0]) == 1.5
    assert statistics.geometric_mean([odd, 4.0]) == pytest.approx(4.0)
    assert statistics.paired([odd]) is None


def test_integers_beyond_64_bits_are_numbers() -> None:
    assert statistics.median([2**70]) == float(2**70)


def test_a_runs_figure_is_of_its_steady_steps() -> None:
    steps = [900, 500, 10, 12, 11, 31]
    assert statistics.run_figure(steps, 3) == 11.5
    # Every fourth step observed: the median would be a step that was not.
    assert statistics.run_figure(steps, 3, sampled=True) == 16.0
    assert statistics.run_figure(steps, 7) is None


def test_noise_is_by_what_runs_of_the_same_thing_differ() -> None:
    assert statistics.noise([10.0, 12.0, 10.0]) == pytest.approx(1.2)
    assert statistics.noise([5.0, 5.0]) == 1.0
    assert statistics.noise([5.0, None]) is None


def test_pairs_give_median_range_and_no_interval_while_they_are_few() -> None:
    found = statistics.paired([1.2, 1.1, 1.6])
    assert found is not None
    assert (found["median"], found["min"], found["max"], found["pairs"]) == (1.2, 1.1, 1.6, 3)
    assert found["interval"] is None
    assert "range of 3 pairs covers the true median with 75% only" in found["no_interval"]
    assert "one pair" in statistics.paired([1.2])["no_interval"]  # type: ignore[index]


def test_the_fewest_pairs_are_those_whose_range_covers_enough() -> None:
    assert statistics.coverage(statistics.FEWEST_PAIRS) >= statistics.CONFIDENCE
    assert statistics.coverage(statistics.FEWEST_PAIRS - 1) < statistics.CONFIDENCE


def test_the_interval_is_the_same_each_time_and_lies_in_the_range() -> None:
    values = [1.02, 1.05, 1.01, 1.04, 1.03, 1.3, 1.02, 1.06]
    found = statistics.paired(values)
    assert found is not None
    assert found == statistics.paired(values)
    assert min(values) <= found["interval"]["low"] <= found["median"] <= found["interval"]["high"] <= max(values)
    assert found["no_interval"] is None
    with pytest.raises(ValueError, match="nothing to resample"):
        statistics.interval([])


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    source = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        low, high = statistics.interval(source.lognormal(0, 0.1, 12).tolist(), resamples=400)
        hits += low <= 1.0 <= high
    assert hits / 200 > 0.88
