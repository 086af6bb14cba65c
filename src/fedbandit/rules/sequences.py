"""Confidence sequences: intervals that hold at all times at once, however often somebody looks (beyond the paper).

An interval of 95 % holds at a time that was fixed beforehand. Somebody who looks every day, and stops once it excludes
0, is wrong far more often than in 5 %. Here are two radii that pay for all looks together:

* **calibrated**: Robbins' normal mixture (Robbins 1970; Howard et al. 2021). With V_t the variance of an estimate at
  time t, theta_t / V_t would be a Brownian motion at the times 1 / V_t, if releases were normal, V_t known, and no site
  chose its arms by what it saw. They are nearly so (``benchmarks/daily_looks.py`` measures what that costs); there is
  no theorem.
* **proved**: the radius of ``rules.proved``, whose union bound is over all boards that can arise, hence over all times.
  Of the sites that have released the arm, and with weights that follow from the numbers of releases alone.
"""

from collections.abc import Sequence
from math import log, sqrt

from fedbandit.rules.guardrail import MeanOfReleases, deficit
from fedbandit.rules.proved import price, price_of_total, proved_radius

__all__ = [
    "NORMAL_95",
    "SEQUENCE_ERROR",
    "SETTLED_ERROR",
    "TYPICAL_DIFFERENCE",
    "always_valid_radius",
    "leads_for_good",
    "proved_difference",
    "proved_interval",
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


def proved_interval(
    rows: Sequence[MeanOfReleases], shares: Sequence[float], num_agents: int, most_releases: int, error: float
) -> tuple[float, float]:
    """Of the mean of these sites' means: it ever lies outside with a probability of at most ``error``.

    ``shares`` add up to 1, and depend on the numbers of releases alone; ``num_agents`` sites are known.
    """
    centre = sum(share * row.mean for share, row in zip(shares, rows, strict=True))
    variance = sum(share * share * row.variance for share, row in zip(shares, rows, strict=True))
    noise = sum(share * share * row.noise for share, row in zip(shares, rows, strict=True))
    largest = max(share * row.largest for share, row in zip(shares, rows, strict=True))
    releases = [row.releases for row in rows]
    level = price_of_total(num_agents) + log(2.0 / error)  # half of the error in each direction
    level += price(num_agents, len(rows), min(releases), sum(releases), most_releases)
    radius = proved_radius(variance, noise, largest, level)
    return centre - radius, centre + radius


def proved_difference(
    pairs: Sequence[tuple[MeanOfReleases, MeanOfReleases]],
    shares: Sequence[float],
    num_agents: int,
    most_releases: int,
    error: float,
) -> tuple[float, float]:
    """Of the mean difference of two arms, over sites that have released both; as a guardrail computes it."""
    found = deficit(pairs, shares, num_agents, most_releases, error / 2.0)
    return found.certain, 2.0 * found.estimate - found.certain


def leads_for_good(lead: float, variance: float, width: float, rivals: int) -> bool:
    """Whether a mean leads another by more than daily looks can produce where it does not: what is settled.

    ``variance``: that of the difference. The error that is claimed is shared among the pairs of the best arm.
    """
    return lead > always_valid_radius(variance, width, SETTLED_ERROR / rivals) if variance > 0.0 else lead > 0.0
