"""Confidence radii: those of Lemmas 4 and 6, our own, and those of other policies.

Most radii come in two parts: a ``spread`` that changes only when the arm is pulled, and the time, whose root is taken
once per round. Pages keep the first part between pulls. ``log`` is natural, the only reading in which C is Hoeffding's.

The paper takes rewards in [0, 1]. In other units every radius is multiplied by ``scale``: high - low for rewards
in [low, high], sigma for Gaussian ones (1 in the paper's experiments, which use the same C).
"""

from math import ceil, log, sqrt

__all__ = [
    "CALIBRATED_ALPHA",
    "NOISE_CONSTANT",
    "alpha1",
    "calibrated_factor",
    "calibrated_radius",
    "clean_radius",
    "coop_radius",
    "deviation",
    "dist_spread",
    "elimination_radius",
    "gossip_sampling",
    "gossip_spread",
    "gse_delay",
    "gse_mixing",
    "gse_radius",
    "is_beaten",
    "local_scale",
    "local_spread",
    "private_noise",
    "private_radius",
    "pulls_per_phase",
    "remaining_bias",
    "scaled_radius",
    "shared_deviation",
]

CALIBRATED_ALPHA = 2.0
"""The alpha of the calibrated radius sqrt(alpha V log t)."""

NOISE_CONSTANT = 128.0
"""The 128 of C~ (Lemma 6)."""


def alpha1(num_agents: int) -> float:
    """The local bias that remains after mixing, 64 / N^17 ("Wrapping up", after Lemma 5)."""
    return 64.0 / float(num_agents) ** 17


def gossip_sampling(n: float, num_agents: int, constant: float) -> float:
    """The factor of log t under the root of C, 2N / n (Lemma 4), times a ``constant`` that is 1 in the paper.

    For a weighted average of the agents the constant is N * sum_i weight_i^2 (1 for equal weights): agent j's
    rewards enter theta N * weight_j times as strongly, and the variance proxy in the proof of Lemma 4 grows
    by exactly this factor.
    """
    return 2.0 * num_agents * constant / n


def gossip_spread(n: float, num_agents: int, constant: float) -> float:
    """The root of ``gossip_sampling``: C but for the time."""
    return sqrt(gossip_sampling(n, num_agents, constant))


def private_noise(
    n: float, noised: float, num_agents: int, log_horizon: float, epsilon: float, constant: float
) -> float:
    """The factor of (log t)^2 under the root of C~, 2N * 128 N log^2 T log n / (n^2 eps^2) (Lemma 6).

    ``constant`` is the 128. With epsilon infinite the term is 0 and C~ is C. ``noised`` is the number of the n
    pulls that carry noise. In the paper the first does not, so its log n is log(1 + noised): no noise, no
    term. We noise the first pull too and keep that meaning. With log n the term would vanish at n = 1,
    where the noise is largest: one bad draw would starve an arm for ever.
    """
    log_noised = log(1.0 + noised)
    return (
        2.0
        * num_agents
        * (constant * num_agents * log_horizon * log_horizon * log_noised)
        / (n * n * epsilon * epsilon)
    )


def local_spread(n: float) -> float:
    """UCB1 (Auer et al. 2002): sqrt(2 / n)."""
    return sqrt(2.0 / n)


def local_scale(scale: float, alpha: float) -> float:
    """The unit of UCB1's radius with another alpha than 2: sqrt(alpha log t / n)."""
    return scale * sqrt(alpha / 2.0)


def deviation(variance: float) -> float:
    """The standard deviation of an estimate: Thompson sampling draws with it, the calibrated radius is its multiple.

    For a centralised UCB ``variance`` is V, that of the pooled mean. For batches it is V_i / N: after mixing,
    theta_i averages N agents, where the paper budgets for 2N / n, about sqrt(2) N times too wide. There is
    no theorem for it: other agents may know less than this one, and theta may not have mixed yet.
    """
    return sqrt(variance)


def shared_deviation(deviation: float, share: float) -> float:
    """The standard deviation of theta, from that of a site's own mean and the share of theta's variance in its own."""
    return deviation * sqrt(share)


def calibrated_factor(alpha: float) -> float:
    """The root of alpha in the calibrated radius."""
    return sqrt(alpha)


def dist_spread(n: float, degree: int) -> float:
    """Dist-UCB (Zhu and Liu): sqrt(3 / (degree n))."""
    return sqrt(3.0 / (degree * n))


def coop_radius(count: float, num_agents: int, log_t: float) -> float:
    """Radius of coop-UCB2 (Landgren et al. 2016) with gamma = 1: sqrt(2 (c + f) log t / (N c^2)), f = sqrt(log t)."""
    return sqrt(2.0 * (count + sqrt(log_t)) * log_t / (num_agents * count * count))


def elimination_radius(pulls: float, num_agents: int, log_horizon: float) -> float:
    """Fed1-UCB (Shi and Shen 2021): sqrt(4 log T / (N F)) after F pulls of the arm by each agent."""
    return sqrt(4.0 * log_horizon / (num_agents * pulls))


def gse_radius(n: float, num_agents: int, log_horizon: float, delay: float, mixing: float) -> float:
    """GSE (Liu et al. 2025): sqrt(log T / c) + (tau + sqrt N) / c, c = N max(n - L, 1).

    ``delay`` is L = M log T / p, ``mixing`` is tau = N log T / p (log T / p on the complete graph), p the
    probability of an edge.
    """
    count = num_agents * max(n - delay, 1.0)
    return sqrt(log_horizon / count) + (mixing + sqrt(num_agents)) / count


def pulls_per_phase(horizon: int) -> int:
    """Fed1-UCB: ceil(10 log T) pulls of each live arm."""
    return ceil(10.0 * log(max(horizon, 2)))


def gse_delay(num_arms: int, horizon: int, presence: float) -> float:
    """GSE's L = M log T / p."""
    return num_arms * log(horizon) / presence


def gse_mixing(num_agents: int, complete: bool, horizon: int, presence: float) -> float:
    """GSE's tau = N log T / p; log T / p on the complete graph."""
    return (1 if complete else num_agents) * log(horizon) / presence


def is_beaten(theta: float, radius: float, best_lower: float) -> bool:
    """Successive elimination: drop an arm whose upper bound is below another's lower bound."""
    return theta + radius < best_lower


def clean_radius(spread: float, root_log_t: float, scale: float, offset: float) -> float:
    """C (Lemma 4): ``scale * (spread sqrt(log t) + offset)``, ``spread`` from ``gossip_spread``."""
    return scale * (spread * root_log_t + offset)


def private_radius(sampling: float, noise: float, log_t: float, scale: float, offset: float) -> float:
    """C~ (Lemma 6): ``scale * (sqrt((noise log t + sampling) log t) + offset)``."""
    return scale * (sqrt((noise * log_t + sampling) * log_t) + offset)


def scaled_radius(spread: float, root_log_t: float, scale: float) -> float:
    """``scale * spread * sqrt(log t)``: of UCB1 and Dist-UCB."""
    return scale * (spread * root_log_t)


def calibrated_radius(deviation: float, factor: float, root_log_t: float) -> float:
    """sqrt(alpha V log t); V has its unit already."""
    return deviation * (factor * root_log_t)


def remaining_bias(num_agents: int) -> float:
    """``alpha1``; nothing at an agent that is alone, where nothing has to mix."""
    return 0.0 if num_agents == 1 else alpha1(num_agents)
