"""A divergence index for Bernoulli-like rewards in [0, 1]: KL-UCB and its private form.

DP-KLUCB (Azize and Basu 2022) replaces kl by d_eps, the rate at which a sample mean *with Laplace noise* deviates:
rewards explain a small deviation (kl), noise explains the rest of a large one, at the price eps per unit.
"""

from collections.abc import Sequence
from math import exp, inf, log, sqrt

__all__ = ["NO_NOISE", "bernoulli_kl", "highest_kl_index", "kl_index", "lasting_kl_index", "private_divergence"]

NO_NOISE = inf
"""The epsilon for which the private divergence equals kl."""


def bernoulli_kl(x: float, q: float) -> float:
    """kl(x, q) of Bernoulli distributions, for x in [0, 1] and q in (0, 1)."""
    divergence = 0.0
    if x > 0.0:
        divergence += x * log(x / q)
    if x < 1.0:
        divergence += (1.0 - x) * log((1.0 - x) / (1.0 - q))
    return divergence


def private_divergence(x: float, q: float, epsilon: float) -> float:
    """d_eps(x, q) for x <= q: kl(x, q) if x >= z, else eps (z - x) + kl(z, q), z = q e^-eps / (1 - q + q e^-eps).

    z is q tilted by eps, and kl(z, q) = -eps z - log(1 - q + q e^-eps), which leaves one logarithm.
    """
    tilt = exp(-epsilon)
    mass = 1.0 - q + q * tilt
    if x * mass >= q * tilt:
        return bernoulli_kl(x, q)
    return -epsilon * x - log(mass)


def kl_index(x: float, limit: float, epsilon: float) -> float:
    """max{q in [x, 1] : d_eps(x, q) <= limit}; an x outside [0, 1], which noise can make, counts as its nearest end."""
    x = min(max(x, 0.0), 1.0)
    if x == 1.0 or limit <= 0.0:
        return x
    if epsilon < inf:
        if limit >= epsilon * (1.0 - x):
            return 1.0  # d_eps(x, 1) = eps (1 - x): noise can explain everything
        tilt, mass = exp(-epsilon), exp(-limit - epsilon * x)
        q = (1.0 - mass) / (1.0 - tilt)  # where -eps x - log(1 - q + q e^-eps) = limit
        if x * mass < q * tilt:
            return q
    entropy = -x * log(x) - (1.0 - x) * log(1.0 - x) if x > 0.0 else 0.0
    # Two bounds from above: kl(x, q) >= 2 (q - x)^2 (Pinsker), and kl(x, q) >= -entropy - (1 - x) log(1 - q).
    most = min(x + sqrt(limit / 2.0), 1.0 - exp(-(limit + entropy) / (1.0 - x)))
    q = x + sqrt(2.0 * x * (1.0 - x) * limit) + (1.0 - 2.0 * x) * limit / 1.5  # close, where the limit is small
    if not x < q < most:
        q = most
    for _ in range(50):  # Newton's steps on a convex function: after the first they only come closer, from the right
        step = (bernoulli_kl(x, q) - limit) * q * (1.0 - q) / (q - x) if x < q < 1.0 else 0.0
        q = min(q - step, most)
        if abs(step) < 1e-12:
            break
    return q


def highest_kl_index(theta: Sequence[float], count: Sequence[float], log_t: float, epsilon: float) -> int:
    """The arm with the largest ``kl_index(theta, log t / count)``; of equal ones the larger theta, then the first."""
    return lasting_kl_index(theta, count, log_t, epsilon)[0]


def lasting_kl_index(theta: Sequence[float], count: Sequence[float], log_t: float, epsilon: float) -> tuple[int, float]:
    """The arm with the largest index, and the log t up to which it stays so while thetas and counts do.

    Ties are common: estimates below 0 or above 1 count as the ends; the larger theta wins, then the first arm. One
    divergence tells whether an arm can beat the best so far; only then is its index computed. Indices grow with time,
    so another arm can win only once its own index reaches what the winner's is now.
    """
    arm = 0
    for k in range(1, len(theta)):
        if theta[k] > theta[arm]:
            arm = k  # likely the winner: begin with it
    best = kl_index(theta[arm], log_t / count[arm], epsilon)
    leader, until = arm, inf
    for k in range(len(theta)):
        if k != leader:
            x = min(max(theta[k], 0.0), 1.0)
            reached = 0.0 if x >= best or best >= 1.0 else count[k] * private_divergence(x, best, epsilon)
            if reached <= (1.0 + 1e-9) * log_t:  # a little more, so that rounding does not settle a tie
                reached = 0.0
                index = kl_index(theta[k], log_t / count[k], epsilon)
                if index > best or (index == best and theta[k] > theta[arm]):
                    best = index
                    arm = k
            until = min(until, reached)
    return arm, until
