"""How far an estimate may be off: the confidence radii of Lemmas 4 and 6.

Here belong the formulas of a radius. Each is split in two: a part that only changes when the arm is
pulled, and ``radius``, which adds the time. The split lets a simulator keep the first part between
pulls; it changes no value. ``log`` is natural, the only reading in which C is Hoeffding's.

The paper takes rewards in [0, 1]. In other units every radius is multiplied by ``scale``: high - low for rewards
in [low, high], sigma for Gaussian ones (1 in the paper's experiments, which use the same C).
"""

from math import log, sqrt

__all__ = [
    "alpha1",
    "central_sampling",
    "gossip_sampling",
    "local_sampling",
    "private_noise",
    "radius",
]


def alpha1(num_agents: int) -> float:
    """What is left of the local bias after mixing, 64 / N^17 ("Wrapping up", after Lemma 5)."""
    return 64.0 / float(num_agents) ** 17


def gossip_sampling(n: float, num_agents: int, constant: float) -> float:
    """The factor of log t under the root of C, 2N / n (Lemma 4), times a ``constant`` that is 1 in the paper.

    For a weighted average of the agents it is N * sum_i weight_i^2 (1 if all weigh the same): agent j's
    rewards enter theta N * weight_j times as strong, and the variance proxy in the proof of Lemma 4 grows
    by exactly this factor.
    """
    return 2.0 * num_agents * constant / n


def private_noise(
    n: float, noised: float, num_agents: int, log_horizon: float, epsilon: float, constant: float
) -> float:
    """The factor of (log t)^2 under the root of C~, 2N * 128 N log^2 T log n / (n^2 eps^2) (Lemma 6).

    ``constant`` is the 128. With epsilon infinite the term is 0 and C~ is C. ``noised`` is how many of the n
    pulls carry noise. In the paper the first one does not, so its log n is log(1 + noised): no noise, no
    term. We noise the first pull too and keep that meaning. With log n the term would vanish at n = 1,
    where the noise is largest: one bad draw then starves an arm for ever.
    """
    log_noised = log(1.0 + noised)
    return (
        2.0
        * num_agents
        * (constant * num_agents * log_horizon * log_horizon * log_noised)
        / (n * n * epsilon * epsilon)
    )


def local_sampling(n: float) -> float:
    """UCB1 (Auer et al. 2002): 2 / n."""
    return 2.0 / n


def central_sampling(alpha: float, variance: float) -> float:
    """Centralised UCB: alpha times the variance of the pooled estimate."""
    return alpha * variance


def radius(sampling: float, noise: float, log_t: float, scale: float, offset: float) -> float:
    """``scale * (sqrt((noise log t + sampling) log t) + offset)``: C for noise = 0, else C~ (Lemma 6)."""
    return scale * (sqrt((noise * log_t + sampling) * log_t) + offset)
