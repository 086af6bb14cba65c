"""How much worse an arm is than another for certain: a bound that holds on every board at once (docs/guardrails.md).

Sites that have released both arms are compared with themselves: a site with sicker patients has them in both arms. For
a fixed number of releases of each arm at each site, the weighted mean of their differences is a sum of independent
rewards and Laplace draws, to which Chernoff's bound applies (``rules.proved``). Whatever is looked at, and how often,
is one such vector of numbers: each has its price in a union bound. The weights depend on these numbers alone.
"""

from collections.abc import Sequence
from math import inf, log
from typing import NamedTuple

from fedbandit.rules.influence import water_level
from fedbandit.rules.proved import price, price_of_total, proved_radius

__all__ = ["ERROR", "Deficit", "MeanOfReleases", "deficit", "shares_by_precision"]

ERROR = 0.05
"""How often a guardrail may ever act without cause, in the whole life of a federation."""


class MeanOfReleases(NamedTuple):
    """What a site has released of an arm, all of it together.

    * ``releases``: how many; all else but the mean follows from this number, by the schedule of batches
    * ``variance``: 1/P, of which ``noise`` is due to noise; ``largest``: the largest coefficient of one Laplace draw
    """

    mean: float
    releases: int
    variance: float
    noise: float
    largest: float


class Deficit(NamedTuple):
    """How much worse an arm is, over all sites that have released both: the estimate, and what is certain."""

    estimate: float
    certain: float


def shares_by_precision(pairs: Sequence[tuple[MeanOfReleases, MeanOfReleases]], largest_share: float) -> list[float]:
    """The share of each site: by the precision of its difference, so by its patients, none more than the largest."""
    weights = [1.0 / (one.variance + other.variance) for one, other in pairs]
    level = water_level(weights, largest_share)
    cut = [min(weight, level) for weight in weights] if level < inf else weights
    return [weight / sum(cut) for weight in cut]


def deficit(
    pairs: Sequence[tuple[MeanOfReleases, MeanOfReleases]],
    shares: Sequence[float],
    num_agents: int,
    most_releases: int,
    error: float,
) -> Deficit:
    """Of the second arm against the first, from a pair for each site that has released both.

    It is larger than ``certain`` at all times, on all boards, with probability 1 - ``error``. ``num_agents`` sites are
    known: their number has a price, too, since some may join.
    """
    estimate = sum(share * (one.mean - other.mean) for share, (one, other) in zip(shares, pairs, strict=True))
    squares = [share * share for share in shares]
    variance = sum(s * (one.variance + other.variance) for s, (one, other) in zip(squares, pairs, strict=True))
    noise = sum(s * (one.noise + other.noise) for s, (one, other) in zip(squares, pairs, strict=True))
    largest = max(share * max(one.largest, other.largest) for share, (one, other) in zip(shares, pairs, strict=True))
    level = price_of_total(num_agents) - log(error)
    for k in (0, 1):
        releases = [pair[k].releases for pair in pairs]
        level += price(num_agents, len(pairs), min(releases), sum(releases), most_releases)
    return Deficit(estimate, estimate - proved_radius(variance, noise, largest, level))
