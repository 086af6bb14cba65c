"""Intervals that hold at all times at once: in the normal case exactly, in simulated federations as measured."""

from math import log, sqrt

import numpy as np
import pytest

from fedbandit.rules.sequences import (
    NORMAL_95,
    always_valid_radius,
    interval_of_board,
    leads_for_good,
    price_of_number,
    weighted_interval,
)


@pytest.mark.parametrize("first", [1, 30])
def test_of_daily_looks_at_a_normal_mean_at_most_one_in_twenty_is_ever_wrong(first):
    """2,000 means with a look after each of 365 days; 0.05 + 5 standard errors: a false alarm in 1e-6."""
    random = np.random.default_rng(5)
    runs, days = 2000, 365
    counts = np.arange(first, first + days) * 20.0
    walk = np.cumsum(random.standard_normal((runs, days)) * np.sqrt(np.diff(counts, prepend=0.0)), axis=1)
    means, variances = walk / counts / 2.0, 0.25 / counts
    radii = np.array([always_valid_radius(v, 1.0, 0.05) for v in variances])
    ever = (np.abs(means) > radii).any(axis=1).mean()
    assert ever < 0.05 + 5.0 * sqrt(0.05 * 0.95 / runs)
    daily = (np.abs(means) > NORMAL_95 * np.sqrt(variances)).any(axis=1).mean()
    assert daily > 0.2, "what the usual interval is wrong in"
    assert (radii > NORMAL_95 * np.sqrt(variances)).all()


def test_the_radius_is_the_mixture_of_robbins():
    """The likelihood ratio of the mixture over N(0, rho^2) against 0 is 1 / alpha at the radius."""
    variance, width, error = 0.002, 2.0, 0.05
    rho, radius = 0.2, always_valid_radius(variance, width, error)
    ratio = -0.5 * log(1.0 + rho**2 / variance) + 0.5 * radius**2 / variance * rho**2 / (rho**2 + variance)
    assert ratio == pytest.approx(log(1.0 / error))


def test_the_radius_has_the_unit_of_the_range():
    assert always_valid_radius(0.002 * 9.0, 3.0, 0.05) == pytest.approx(3.0 * always_valid_radius(0.002, 1.0, 0.05))


def test_more_rivals_need_a_larger_lead():
    sd = 0.02
    assert leads_for_good(3.6 * sd, sd * sd, 1.0, 1)
    assert not leads_for_good(2.6 * sd, sd * sd, 1.0, 1)
    assert not leads_for_good(3.6 * sd, sd * sd, 1.0, 50)
    assert leads_for_good(0.1, 0.0, 1.0, 1)
    assert not leads_for_good(0.0, 0.0, 1.0, 1)


def test_prices_of_all_numbers_are_a_probability():
    assert sum(np.exp(-price_of_number(n)) for n in range(1, 100_000)) == pytest.approx(1.0, abs=1e-4)


def test_intervals_of_sites_and_boards():
    assert weighted_interval((1.0, 3.0), (0.0, 0.4), (1.0, 0.6)) == pytest.approx((0.3, 0.7))
    low, high = interval_of_board(0.5, 0.1, 0.0, 0.0, 0.0, 3.0)
    assert (low, high) == pytest.approx((0.4, 0.6)), "nothing is heard: what is missing"
    low, high = interval_of_board(0.5, 0.0, 0.01, 0.0, 0.0, 3.0)
    assert high - 0.5 == pytest.approx(sqrt(2.0 * 0.01 * 3.0)), "without noise Hoeffding's radius"
