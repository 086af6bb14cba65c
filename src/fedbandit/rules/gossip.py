"""Spreads pull counts and averages estimates between neighbours, one arm at a time: Algorithm 1, lines 5 and 17-22.

An estimate is theta itself, as in the paper, or (beyond it) a pair of value and weight, whose ratio is theta.
"""

__all__ = ["average", "heard", "is_known", "metropolis_weight", "ratio", "with_news"]


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
