"""Kaplan-Meier and restricted mean against published and hand-made figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincheck.pilot.report.survival import Trial, common_horizon, kaplan_meier, median, restricted_mean

FREIREICH = [
    Trial(time, event)
    for time, event in [
        (6, True), (6, True), (6, True), (6, False), (7, True), (9, False), (10, True), (10, False), (11, False),
        (13, True), (16, True), (17, False), (19, False), (20, False), (22, True), (23, True), (25, False), (32, False),
        (32, False), (34, False), (35, False),
    ]
]  # fmt: skip
"""Weeks of remission with 6-mercaptopurine (Freireich and others, 1963)."""


def test_the_published_curve():
    found = dict(kaplan_meier(FREIREICH))
    published = {0: 1, 6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert set(found) == set(published)
    for time, share in published.items():
        assert found[time] == pytest.approx(share, abs=0.0005)
    assert median(FREIREICH) == 23


def test_restricted_mean_by_hand():
    # Repairs at 2 and 6, one trial censored at 4: 1 up to 2, 2/3 up to 6, then 0.
    trials = [Trial(2, True), Trial(4, False), Trial(6, True)]
    assert kaplan_meier(trials) == [(0.0, 1.0), (2, pytest.approx(2 / 3)), (6, 0.0)]
    assert restricted_mean(trials, 6) == pytest.approx(2 + 4 * 2 / 3)
    assert restricted_mean(trials, 4) == pytest.approx(2 + 2 * 2 / 3)
    assert restricted_mean(trials, 1) == pytest.approx(1)
    assert restricted_mean(trials, 8) == pytest.approx(2 + 4 * 2 / 3)
    assert median([Trial(5, False), Trial(3, True), Trial(9, False)]) is None
    with pytest.raises(ValueError, match="no trials"):
        restricted_mean([], 1)


def test_the_horizon_is_how_far_every_curve_is_known():
    repaired, open_ended = [Trial(2, True), Trial(7, True)], [Trial(2, True), Trial(9, False)]
    assert common_horizon(open_ended, repaired) == 9  # a curve at 0 stays there
    assert common_horizon(open_ended, [Trial(11, False)], repaired) == 9
    assert common_horizon(open_ended, [Trial(30, True)]) == 9
    assert common_horizon(repaired, [Trial(30, True)]) == 30
    assert common_horizon([Trial(3, False)], [Trial(3, True)]) == 3


@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=30))
def test_without_censoring_it_is_the_mean(times):
    trials = [Trial(time, True) for time in times]
    assert restricted_mean(trials, max(times)) == pytest.approx(sum(times) / len(times))


@given(st.lists(st.tuples(st.floats(0.1, 1000), st.booleans()), min_size=1, max_size=30))
def test_censoring_never_lowers_the_restricted_mean(held):
    trials = [Trial(*one) for one in held]
    every = [Trial(time, True) for time, _ in held]
    horizon = max(time for time, _ in held)
    assert restricted_mean(trials, horizon) >= restricted_mean(every, horizon) - 1e-9


def by_definition(trials):
    """The curve as the textbook's product says it."""
    steps, share = [(0.0, 1.0)], 1.0
    for time in sorted({trial.time for trial in trials if trial.event}):
        events = sum(trial.event and trial.time == time for trial in trials)
        share *= 1 - events / sum(trial.time >= time for trial in trials)
        steps.append((time, share))
    return steps


@given(st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=25))
def test_the_curve_is_the_product_of_its_definition(held):
    trials = [Trial(*one) for one in held]
    for found, wanted in zip(kaplan_meier(trials), by_definition(trials), strict=True):
        assert found == pytest.approx(wanted)
