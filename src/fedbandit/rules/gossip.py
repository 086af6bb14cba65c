"""What neighbours do to each other's numbers: Algorithm 1, lines 5 and 17-22.

Here belong the spread of pull counts and the averaging of estimates, for one arm at a time. An estimate is
theta itself, as in the paper, or (beyond it) a pair of value and weight, whose ratio is theta.
"""

__all__ = ["average", "heard", "is_known", "metropolis_weight", "ratio", "with_news"]


def heard(known: int, neighbour_n_max: int) -> int:
    """Algorithm 1, line 5: the larger of a count and a neighbour's n~."""
    return neighbour_n_max if neighbour_n_max > known else known


def average(theta_i: float, theta_j: float) -> float:
    """Algorithm 1, line 20, first term: both ends of the active edge take the mean of theta(t-1)."""
    return (theta_i + theta_j) / 2.0


def with_news(theta: float, published: float, published_before: float) -> float:
    """Algorithm 1, lines 20 and 22: add what this round's pull changed in what the agent publishes.

    An agent publishes N * weight_i times its mean (once its mean in the paper): so the agents' average of theta is
    sum_i weight_i x_mean_i, the "convex combination" of the paper's footnote.
    """
    return theta + (published - published_before)


def metropolis_weight(degree_i: int, degree_j: int) -> float:
    """The weight of one of several edges that are active at once.

    The paper has one edge per round. For more we average with Metropolis weights, which keep the sum of
    theta and need no knowledge beyond the neighbours' degrees; for a lone edge the weight is 1/2, the
    paper's average.
    """
    return 1.0 / (1.0 + max(degree_i, degree_j))


def ratio(value: float, weight: float) -> float:
    """The estimate theta of a gossiped value and weight: sum(w x) / sum(w) over the sites that have been heard of.

    A site that has released nothing of an arm yet has weight 0, and so does not count as zero in the mean.
    """
    return value / weight


def is_known(weight: float, releases: int, share: float, num_agents: int) -> bool:
    """Whether an agent may judge an arm. If not, it tries the arm.

    It must have released the arm itself, and hold at least half the weight that its own release leaves with
    everyone after mixing, share / N: with less, the news of a further release would throw the ratio about.
    """
    return releases > 0 and weight > 0.0 and weight * num_agents >= 0.5 * share
