"""Batches: a private mean of one arm with few releases and no horizon (beyond the paper).

A bandit needs O(log n) looks at an arm, not n: an agent collects a batch of rewards and releases their noisy mean once.
Every reward lies in exactly one release, so epsilon per release is epsilon per reward, for ever (proof in
docs/privacy.md). ``rules.private`` collects them; here is what follows from sizes and releases, all of it public.
"""

from math import ceil, sqrt

__all__ = [
    "BATCH_GROWTH",
    "ENOUGH_SITES",
    "PRIOR_REWARDS",
    "batch_size",
    "break_even_decisions",
    "break_even_epsilon",
    "default_first_batch",
    "first_size",
    "laplace_variance",
    "largest_reward_variance",
    "last_weight",
    "learnt_reward_variance",
    "least_reward_variance",
    "mean_variance",
    "noise_scale",
    "release_square",
    "release_variance",
    "scheduled_variance",
    "weighted_mean",
]


MAX_BATCH = 10**9  # more than any agent will ever fill
LEAST_FIRST_BATCH = 4
ENOUGH_SITES = 10  # from here on 12 / epsilon rewards of each suffice
BREAK_EVEN = 80.0

BATCH_GROWTH = 1.25
"""The default factor by which a batch increases the number of released rewards."""


PRIOR_REWARDS = 3.0
"""What an agent without a release of an arm knows of it, in rewards: (high - low)^2 / 4 of variance for each of three
makes (high - low)^2 / 12, that of a mean anywhere in the range."""


def default_first_batch(epsilon: float, num_agents: int) -> int:
    """12 / epsilon rewards: with fewer, noise dominates a release; with more, the start is slow.

    With ten sites and epsilon 0.1, 0.3, 1 and 4 the best of 3, 12, 40 and 120 was the one next to it. Fewer sites know
    less together after it, and an unlucky best arm is hardly ever drawn again: sqrt(10 / N) times as many rewards make
    that rarer, and lose less on average as well (docs/fedbatch.md).
    """
    size = 12.0 / epsilon * sqrt(max(ENOUGH_SITES / num_agents, 1.0))
    return ceil(min(max(size, 1.0), MAX_BATCH))


def first_size(expected_decisions: int | None, epsilon: float, num_arms: int, num_agents: int) -> int:
    """The first batch of an agent that expects so many decisions: the default, or T / (4 M) if that is smaller.

    So the first batches of all arms take at most a quarter of the decisions; docs/few-patients.md has the measurements.
    Never below ``LEAST_FIRST_BATCH``, unless the default is: smaller batches tell nothing and cost a write each.
    """
    if expected_decisions is None:
        return default_first_batch(epsilon, num_agents)
    share = max(expected_decisions / (4.0 * num_arms), LEAST_FIRST_BATCH)
    return ceil(min(default_first_batch(epsilon, num_agents), share))


def break_even_decisions(epsilon: float, num_agents: int, num_arms: int) -> float:
    """The decisions per agent from which FedBatch loses less than UCB1 alone: 80 sqrt(M) / (N eps^1.5).

    Fitted to measurements with ``first_size``, right within a factor of two (docs/few-patients.md).
    """
    return BREAK_EVEN * sqrt(num_arms) / (num_agents * epsilon * sqrt(epsilon))


def break_even_epsilon(expected_decisions: int, num_agents: int, num_arms: int) -> float:
    """The epsilon from which FedBatch loses less than UCB1 alone: where so many decisions are the break-even."""
    return (BREAK_EVEN * sqrt(num_arms) / (num_agents * expected_decisions)) ** (2.0 / 3.0)


def batch_size(n: int, first_batch: int, growth: float) -> int:
    """The size of the batch after the first n rewards: it makes n grow by the factor ``growth``.

    Never smaller than the first batch, whose size makes a release worth its noise.
    """
    return max(first_batch, ceil(min((growth - 1.0) * n, MAX_BATCH)))


def largest_reward_variance(low: float, high: float) -> float:
    """(high - low)^2 / 4: the largest variance of a reward in the range."""
    return (high - low) * (high - low) / 4.0


def least_reward_variance(most: float) -> float:
    """The lower bound of ``learnt_reward_variance``, half of the most.

    Theta averages all sites: a site whose own rewards hardly vary must not assume the same of the others'.
    """
    return 0.5 * most


def noise_scale(sensitivity: float, epsilon: float) -> float:
    """The scale of the Laplace noise of a sum that one reward moves by at most ``sensitivity``; 0 without privacy."""
    return sensitivity / epsilon


def laplace_variance(scale: float) -> float:
    """The variance of Laplace noise, 2 scale^2."""
    return 2.0 * scale * scale


def release_variance(size: int, reward_variance: float, noise_variance: float) -> float:
    """The variance of a release, from its rewards and its noise: v = s^2 / m + 2 (high - low)^2 / (eps m)^2."""
    return reward_variance / size + noise_variance / (size * float(size))


def release_square(size: int, variance: float) -> float:
    """1 / (v^2 m): summed over releases, what ``mean_variance`` needs."""
    return 1.0 / (variance * variance * size)


def learnt_reward_variance(x_mean: float, variance: float, low: float, high: float, least: float, most: float) -> float:
    """An estimate of the variance of one reward from the mean: at most (mu - low) (high - mu) (Bhatia and Davis 2000).

    Rewards in a range vary most in its middle. The estimate uses x_mean for mu and adds ``variance``, that of x_mean,
    which removes its negative bias; it stays between ``least`` and ``most``. It uses only released numbers, so it costs
    no privacy.
    """
    inside = min(max(x_mean, low), high)
    return min(max((inside - low) * (high - inside) + variance, least), most)


def mean_variance(precision: float, square: float, reward_variance: float, learnt: float) -> float:
    """The variance of the weighted mean, with ``learnt`` instead of ``reward_variance``, which the weights use.

    ``precision`` is the sum of 1/v, ``square`` that of 1/(v^2 m): the rewards' part of the variance is
    reward_variance * square / precision^2.
    """
    return 1.0 / precision - (reward_variance - learnt) * square / (precision * precision)


def scheduled_variance(
    released: int, first_batch: int, growth: float, reward_variance: float, noise_variance: float
) -> float:
    """The variance of a mean of so many released rewards: sizes of batches follow from their number alone."""
    n, precision = 0, 0.0
    while n < released:
        size = batch_size(n, first_batch, growth)
        precision += 1.0 / release_variance(size, reward_variance, noise_variance)
        n += size
    return 1.0 / precision


def last_weight(precision: float, variance: float) -> float:
    """The weight of a release of this variance in the mean of all; ``precision`` is the sum of 1/v, its own too."""
    return 1.0 / (variance * precision)


def weighted_mean(x_mean: float, release: float, weight: float) -> float:
    """The mean of all releases, weighted by 1/v: ``weight`` is the share of the newest.

    Weights depend only on sizes, so the mean is as unbiased as the releases.
    """
    return x_mean + weight * (release - x_mean)
