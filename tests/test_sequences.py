"""Intervals that hold at all times at once: in the normal case exactly, in simulated federations as measured."""

from math import log, sqrt

import numpy as np
import pytest

from fedbandit.rules.guardrail import MeanOfReleases
from fedbandit.rules.proved import price
from fedbandit.rules.sequences import (
    NORMAL_95,
    always_valid_radius,
    leads_for_good,
    proved_difference,
    proved_interval,
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


def row(mean, releases, variance=0.01, noise=0.0, largest=0.0):
    return MeanOfReleases(mean, releases, variance, noise, largest)


def test_the_proved_interval_is_hoeffdings_at_the_price_of_its_board():
    """Without noise: sqrt(2 v L), L = log(2 / error) and the prices of the vector and of the number of sites."""
    rows, shares = [row(0.4, 3), row(0.6, 5)], [0.5, 0.5]
    low, high = proved_interval(rows, shares, 4, 100, 0.05)
    level = log(40.0) + log(5.0 * 6.0) + price(4, 2, 3, 8, 100)
    assert (low + high) / 2.0 == pytest.approx(0.5)
    assert (high - low) / 2.0 == pytest.approx(sqrt(2.0 * 0.005 * level))


def test_a_proved_difference_is_turned_with_its_arms():
    pairs = [(row(0.4, 3, noise=0.004, largest=0.01), row(0.7, 2)), (row(0.5, 4), row(0.6, 9))]
    low, high = proved_difference(pairs, [0.3, 0.7], 2, 100, 0.05)
    turned = proved_difference([(b, a) for a, b in pairs], [0.3, 0.7], 2, 100, 0.05)
    assert (low, high) == pytest.approx((-turned[1], -turned[0]))
    assert (low + high) / 2.0 == pytest.approx(-0.3 * 0.3 - 0.7 * 0.1)
