"""What another policy would have gained, from decisions that were logged with their propensities.

Of each decision: ``weights``, w = pi(a) / p, the probability with which the other policy gives the arm a that was
given, over the propensity p with which the log's policy gave it; ``rewards``, what came of it. E[w] = 1 wherever the
log's policy may give every arm that the other policy gives.
"""

from collections.abc import Sequence
from math import fsum, log, log1p, sqrt

__all__ = [
    "advantages",
    "deviation_of_mean",
    "deviation_of_ratio",
    "effective_size",
    "least_mean",
    "mean",
    "self_normalised",
    "student_quantile",
    "weighted",
]

LARGEST_BET = 0.5
"""The most that one value weighs in ``least_mean``."""


def mean(values: Sequence[float]) -> float:
    """Their mean: of ``weighted`` rewards inverse propensity scoring, of ``advantages`` the doubly robust estimate."""
    return fsum(values) / len(values)


def weighted(weights: Sequence[float], rewards: Sequence[float]) -> list[float]:
    """Each w r: unbiased, whatever the rewards are (Horvitz and Thompson 1952)."""
    return [w * r for w, r in zip(weights, rewards, strict=True)]


def self_normalised(weights: Sequence[float], rewards: Sequence[float]) -> float:
    """The sum of w r over that of w: within the range of rewards, and little biased (Swaminathan and Joachims 2015)."""
    return fsum(weighted(weights, rewards)) / fsum(weights)


def advantages(
    weights: Sequence[float], rewards: Sequence[float], guesses: Sequence[float], expected: Sequence[float]
) -> list[float]:
    """Doubly robust scores, q(pi) + w (r - q(a)) (Dudik, Langford and Li 2011).

    ``guesses``: q(a), what was expected of the arm that was given; ``expected``: q(pi), the same over the arms that the
    other policy gives. Unbiased where no guess depends on its own reward, however wrong it is.
    """
    rows = zip(weights, rewards, guesses, expected, strict=True)
    return [most + w * (r - guess) for w, r, guess, most in rows]


def deviation_of_mean(values: Sequence[float]) -> float:
    """The standard error of their mean; of one value infinite."""
    n = len(values)
    if n < 2:
        return float("inf")
    centre = mean(values)
    return sqrt(fsum((x - centre) * (x - centre) for x in values) / (n - 1) / n)


def deviation_of_ratio(weights: Sequence[float], rewards: Sequence[float]) -> float:
    """The standard error of ``self_normalised``, by the delta method (Owen 2013, equation 9.9)."""
    n = len(weights)
    if n < 2:
        return float("inf")
    centre = self_normalised(weights, rewards)
    square = fsum((w * (r - centre)) ** 2 for w, r in zip(weights, rewards, strict=True))
    return sqrt(square * n / (n - 1)) / fsum(weights)


def effective_size(weights: Sequence[float]) -> float:
    """How many decisions of the other policy itself would tell as much, (sum of w)^2 / sum of w^2 (Kish 1965)."""
    total = fsum(weights)
    return total * total / fsum(w * w for w in weights) if total > 0.0 else 0.0


def least_mean(values: Sequence[float], alpha: float) -> float:
    """A lower bound of the mean of values of at least 0, which fails with probability ``alpha`` at most.

    An empirical-Bernstein bound (Waudby-Smith, Wu, Ramdas, Karampatziakis and Mineiro 2022, Theorem 1). It holds at
    every sample size, however large single values are, and if each may depend on those before it, as long as all have
    the same mean given those. With bets lambda in [0, 1) and predictions g in [0, 1], both fixed before their value,
    sum of lambda (x - mean) - sum of (-log(1 - lambda) - lambda) (x - g)^2 exceeds log(1 / alpha) that rarely.
    """
    n, target = len(values), log(1.0 / alpha)
    total = square = gained = paid = bets = 0.0
    for t, x in enumerate(values, 1):
        guess = min(total / t, 1.0)
        miss = (x - guess) * (x - guess)
        if square > 0.0:  # nobody bets before the first value above 0, which tells how large they are
            bet = min(sqrt(2.0 * target * t / (square * n)), LARGEST_BET)
            gained += bet * x
            paid += (-log1p(-bet) - bet) * miss
            bets += bet
        total += x
        square += miss
    return max((gained - paid - target) / bets, 0.0) if bets > 0.0 else 0.0


def student_quantile(z: float, degrees: float) -> float:
    """Student's quantile, from the normal one (Abramowitz and Stegun 1964, 26.7.5): within 0.2 % of it from 3 on."""
    x, v = z * z, max(degrees, 1.0)
    terms = (
        z * (x + 1.0) / 4.0,
        z * ((5.0 * x + 16.0) * x + 3.0) / 96.0,
        z * (((3.0 * x + 19.0) * x + 17.0) * x - 15.0) / 384.0,
        z * ((((79.0 * x + 776.0) * x + 1482.0) * x - 1920.0) * x - 945.0) / 92160.0,
    )
    return z + sum(term / v ** (k + 1) for k, term in enumerate(terms))
