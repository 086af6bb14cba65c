"""Confidence sequences: intervals that hold at all times at once, however often somebody looks (beyond the paper).

An interval of 95 % holds at a time that was fixed beforehand. Somebody who looks every day, and stops once it excludes
0, is wrong far more often than in 5 %. Here are two radii that pay for all looks together:

* **calibrated**: Robbins' normal mixture (Robbins 1970; Howard et al. 2021). With V_t the variance of an estimate at
  time t, theta_t / V_t would be a Brownian motion at the times 1 / V_t, if releases were normal, V_t known, and no site
  chose its arms by what it saw. They are nearly so (``benchmarks/daily_looks.py`` measures what that costs); there is
  no theorem.
* **proved**: the radius of ``rules.proved``, whose union bound is over all boards that can arise, hence over all times.
"""

from collections.abc import Sequence
from math import log, sqrt

from fedbandit.rules.proved import proved_radius

__all__ = [
    "NORMAL_95",
    "SEQUENCE_ERROR",
    "SETTLED_ERROR",
    "TYPICAL_DIFFERENCE",
    "always_valid_radius",
    "interval_of_board",
    "leads_for_good",
    "price_of_number",
    "weighted_interval",
]

NORMAL_95 = 1.959963984540054
"""Standard deviations of a normal distribution that hold 95 % of it."""

SETTLED_ERROR = 0.05
"""How often an answer may be settled for an arm that is not the best, at any time: what is claimed."""

SEQUENCE_ERROR = 0.05
"""How often an interval that is shown may ever be wrong."""

TYPICAL_DIFFERENCE = 0.1
"""The prior standard deviation of the mixture, in widths of the range: where its sequence is tightest."""


def always_valid_radius(variance: float, width: float, error: float) -> float:
    """The calibrated radius: a mean is ever off by more with a probability of about ``error``, in both directions.

    Of the mixture over N(0, rho^2), rho a ``TYPICAL_DIFFERENCE`` of the ``width`` of the range. With I = 1 / V,
    |sum| < sqrt((I + 1/rho^2) log((I rho^2 + 1) / error^2)) at all times with probability 1 - error, and the mean is
    the sum over I.
    """
    prior = (TYPICAL_DIFFERENCE * width) ** 2
    ratio = prior / variance
    return sqrt(variance * (1.0 + 1.0 / ratio) * (log(1.0 + ratio) - 2.0 * log(error)))


def price_of_number(count: float) -> float:
    """log(n (n + 1)): the price of a whole number n >= 1. 1 / (n (n + 1)) sums to 1."""
    return log(count * (count + 1.0))


def interval_of_board(
    centre: float, missing: float, variance: float, noise: float, largest: float, level: float
) -> tuple[float, float]:
    """Around a weighted mean with weights that were fixed beforehand; ``missing``: what sites not heard may add."""
    radius = missing + (proved_radius(variance, noise, largest, level) if variance > 0.0 else 0.0)
    return centre - radius, centre + radius


def weighted_interval(weights: Sequence[float], lows: Sequence[float], highs: Sequence[float]) -> tuple[float, float]:
    """Of a weighted mean of sites, from intervals that hold for each of them at once: whatever the weights are.

    Weights that patients' rates decide are measured, and change: a union over sites holds all the same.
    """
    total = sum(weights)
    low = sum(w * x for w, x in zip(weights, lows, strict=True))
    high = sum(w * x for w, x in zip(weights, highs, strict=True))
    return low / total, high / total


def leads_for_good(lead: float, variance: float, width: float, rivals: int) -> bool:
    """Whether a mean leads another by more than daily looks can produce where it does not: what is settled.

    ``variance``: that of the difference. The error that is claimed is shared among the pairs of the best arm.
    """
    return lead > always_valid_radius(variance, width, SETTLED_ERROR / rivals) if variance > 0.0 else lead > 0.0
