"""Batches: a private mean of one arm with few releases and no horizon (beyond the paper).

Here belongs everything between raw rewards and a release. A bandit needs O(log n) looks at an arm, not n: an agent
collects a batch of rewards and releases their noisy mean once. Every reward lies in exactly one release, so
that epsilon per release is epsilon per reward, for ever (the proof is in docs/privacy.md). No raw reward
leaves this file except through ``released``, which takes the noise. Noise draws are arguments.
"""

from math import ceil, inf

__all__ = [
    "batch_size",
    "default_first_batch",
    "laplace_variance",
    "last_weight",
    "release_variance",
    "released",
    "weighted_mean",
]


def default_first_batch(epsilon: float) -> int:
    """8 / epsilon rewards: with fewer the noise of the first release drowns what it says."""
    return max(1, ceil(8.0 / epsilon)) if epsilon < inf else 1


def batch_size(n: int, first_batch: int, growth: float) -> int:
    """How many rewards the batch after the first n collects: it makes n grow by the factor ``growth``.

    Never fewer than the first, whose size is what makes a release worth its noise.
    """
    return max(first_batch, ceil((growth - 1.0) * n))


def laplace_variance(scale: float) -> float:
    """The variance of Laplace noise, 2 scale^2; the scale is (high - low) / epsilon."""
    return 2.0 * scale * scale


def released(total: float, noise: float, size: int) -> float:
    """What others may see of a batch: the mean of its rewards with the noise of their sum."""
    return (total + noise) / size


def release_variance(size: int, reward_variance: float, noise_variance: float) -> float:
    """V = s^2 / m + 2 (high - low)^2 / (eps m)^2: what rewards and noise add to the variance of a release."""
    return reward_variance / size + noise_variance / (size * float(size))


def last_weight(precision: float, variance: float) -> float:
    """The share of a release of this variance in the mean of all, ``precision`` = sum of 1/v with its own."""
    return 1.0 / (variance * precision)


def weighted_mean(x_mean: float, release: float, weight: float) -> float:
    """The mean of all releases, weighted by 1/v: ``weight`` is the newest one's share.

    Weights depend on sizes alone, so that the mean stays as unbiased as the releases are.
    """
    return x_mean + weight * (release - x_mean)
