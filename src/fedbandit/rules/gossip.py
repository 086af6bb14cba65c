"""Spreads pull counts and averages estimates between neighbours, one arm at a time: Algorithm 1, lines 5 and 17-22.

An estimate is theta itself, as in the paper, or (beyond it) a pair of value and weight, whose ratio is theta.
"""

from collections.abc import Sequence

__all__ = [
    "average",
    "first_rate",
    "heard",
    "is_known",
    "is_known_by_rate",
    "metropolis_weight",
    "rate",
    "ratio",
    "share_of_all",
    "with_news",
]


def heard(known: int, neighbour_n_max: int) -> int:
    """Algorithm 1, line 5: the larger of a count and a neighbour's n~."""
    return neighbour_n_max if neighbour_n_max > known else known


def average(theta_i: float, theta_j: float) -> float:
    """Algorithm 1, line 20, first term: both ends of the active edge take the mean of theta(t-1)."""
    return (theta_i + theta_j) / 2.0


def with_news(theta: float, published: float, published_before: float) -> float:
    """Algorithm 1, lines 20 and 22: add the change that this round's pull made to the agent's published value.

    An agent publishes N * weight_i times its mean (in the paper, the mean itself). So the agents' average of theta is
    sum_i weight_i x_mean_i, the "convex combination" of the paper's footnote.
    """
    return theta + (published - published_before)


def metropolis_weight(degree_i: int, degree_j: int) -> float:
    """The weight of one of several simultaneously active edges.

    The paper has one edge per round. For more we average with Metropolis weights, which preserve the sum of
    theta and need only the neighbours' degrees; for a lone edge the weight is 1/2, the paper's average.
    """
    return 1.0 / (1.0 + max(degree_i, degree_j))


def ratio(value: float, weight: float) -> float:
    """The estimate theta from a gossiped value and weight: sum(w x) / sum(w) over the sites heard from.

    A site that has released nothing of an arm yet has weight 0, so it does not count as zero in the mean.
    """
    return value / weight


def is_known(weight: float, releases: int, share: float, num_agents: int) -> bool:
    """Whether an agent may judge an arm by its estimate. If not, it tries the arm.

    It must have released the arm itself, and hold at least half the weight that its own release leaves with
    everyone after mixing, share / N: with less, the next release would swing the ratio too far.
    """
    return releases > 0 and weight > 0.0 and weight * num_agents >= 0.5 * share


# ---------------------------------------------------------------- where patients count, not sites (beyond the paper)

LEAST_SHARE = 1e-9
"""Of a site that has not measured its rate yet: it follows the network without exploring."""


LEAST_WEIGHT = 1e-18
"""Less than any honest rate leaves anywhere: a decision in a century, among a million sites."""

HALF = 0.5 - 1e-6
"""A little less: an exchange halves weights exactly, and rounding must not decide."""


def first_rate(in_step: bool) -> float:
    """A site's weight before its first release: 1 where all act in every round, else none, until it is measured."""
    return 1.0 if in_step else 0.0


def rate(tried: Sequence[int], elapsed: float) -> float:
    """A site's weight: its decisions per unit of time after the first of each arm, all arms together.

    Never the pulls of the arm itself: that is coop-UCB2's bias. Arrivals do not depend on rewards, so neither does the
    weight: where it is right, theta is as unbiased as the sites' means (docs/fedbatch.md).
    """
    decided = 0
    for k in range(len(tried)):
        decided += tried[k] - 1
    return max(decided, 1) / elapsed


def is_known_by_rate(weight: float, releases: int, weights: Sequence[float]) -> bool:
    """Whether an arm may be judged by what the network knows, also before an own release.

    Without one it must have half the weight of the arm that has the most: sites that have released the arm then stand
    for the rest. With one it stays known: a large site that opens late must not make others forget.
    """
    if weight < LEAST_WEIGHT:
        return False
    most = weight
    for k in range(len(weights)):
        most = max(most, weights[k])
    return releases > 0 or weight >= HALF * most


def share_of_all(own: float, weight: float, num_agents: int) -> float:
    """w_i / sum_j w_j, from the gossiped average of all weights; at most 1.

    V_i, the variance of a site's own mean, times this share is the variance of theta where all sites divide their
    patients among the arms alike. V_j is then c / w_j, and sum_j (w_j / sum w)^2 V_j = c / sum w = V_i w_i / sum w.
    """
    return max(min(own / (num_agents * weight), 1.0), LEAST_SHARE)
