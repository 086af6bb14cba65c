"""What other policies would have gained, from sums that sites release: clipped weights, noise, and the ratio of totals.

Of a decision: its weight for a policy, w = pi(a) / p, cut at ``largest``, and its reward as a share x of its range. A
site adds up w, w^2 and w x over a batch, all in whole steps, and releases the last with noise. Everybody adds up sites
and divides: the self-normalised estimate, sum of w x over sum of w (Swaminathan and Joachims 2015), whose weights were
cut (Ionides 2008), with noise.
"""

from collections.abc import Sequence
from math import inf, nextafter, sqrt
from typing import NamedTuple

from fedbandit.rules.influence import noise_quantile, water_level

__all__ = ["PolicySums", "Pooled", "bounded", "epsilon_of_sum", "gain_in_steps", "pooled", "weight_in_steps"]


def weight_in_steps(chance: float, propensity: float, largest: int, grid: int) -> int:
    """The weight, cut: a whole number of steps from 0 to ``largest * grid``."""
    return min(round(min(chance / propensity, float(largest)) * grid), largest * grid)


def gain_in_steps(weight: int, reward: int, grid: int) -> int:
    """The weight times the reward, both in steps, rounded: it never falls as the reward grows from 0 to ``grid``.

    So it lies in 0 .. ``weight``, and another reward moves it by at most ``weight``.
    """
    return (2 * weight * reward + grid) // (2 * grid)


def epsilon_of_sum(epsilon: float, num_policies: int, largest: int) -> float:
    """What one sum may cost if a reward moved it by one range at most, for all sums together to cost ``epsilon``.

    A reward moves the sum as logged by one range, that of each policy by ``largest`` ranges: 1 + J W in all.
    """
    return nextafter(epsilon / (1 + num_policies * largest), 0.0)  # the quotient may have been rounded up


class PolicySums(NamedTuple):
    """What a site has released of one policy: over so many decisions the sums of w, w^2, and of w x with noise."""

    decisions: float
    weights: float
    squares: float
    gains: float


NOTHING = PolicySums(0.0, 0.0, 0.0, 0.0)


def bounded(said: PolicySums, releases: int, largest: int, noise_scale: float) -> PolicySums:
    """No more than an honest site can have released, whatever it says."""
    n = said.decisions
    if releases <= 0 or n <= 0.0:
        return NOTHING
    weights = min(max(said.weights, 0.0), largest * n)
    squares = min(max(said.squares, weights * weights / n), largest * weights)
    noise = noise_quantile([noise_scale] * min(releases, 1000)) * max(releases / 1000.0, 1.0)
    return PolicySums(n, weights, squares, min(max(said.gains, -noise), weights + noise))


class Pooled(NamedTuple):
    """The estimate as a share of the range, its standard error, and that of noise alone.

    * ``effective``: how many decisions of the policy itself would tell as much, but for the noise
    * ``kept``: the mean weight; below 1 by what was cut, or by arms that sites never give
    """

    value: float
    error: float
    noise: float
    effective: float
    kept: float


def pooled(sites: Sequence[tuple[PolicySums, int]], noise_scale: float, largest_share: float) -> Pooled | None:
    """Over all sites, each with how often it has released; None: nothing is known.

    No site counts as more than ``largest_share`` of all decisions. The variance of a reward is taken as that of one
    that is 0 or 1, v (1 - v): no other with this mean has more (Bhatia and Davis 2000). Where noise may hide v it is
    taken nearer to the middle.
    """
    level = water_level([it.decisions for it, _ in sites], largest_share)
    count = weights = squares = gains = draws = 0.0
    for it, releases in sites:
        cut = 1.0 if it.decisions <= level else level / it.decisions
        count, weights, gains = count + cut * it.decisions, weights + cut * it.weights, gains + cut * it.gains
        squares, draws = squares + cut * cut * it.squares, draws + cut * cut * releases
    if weights <= 0.0:
        return None
    value, noise = gains / weights, noise_scale * sqrt(2.0 * draws) / weights
    effective = weights * weights / squares
    centre = (min(max(value, 0.0), 1.0) * effective + 1.0) / (effective + 2.0)  # never 0 or 1 by chance
    away = max(abs(centre - 0.5) - noise, 0.0)
    spread = (0.25 - away * away) / effective
    error = sqrt(spread * effective / (effective - 1.0) + noise * noise) if effective > 1.0 else inf
    return Pooled(value, error, noise, effective, weights / count)
