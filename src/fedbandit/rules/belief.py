"""How far a question is settled: what normal beliefs about the arms' means say of the leader, and of the others.

The beliefs are independent normals, mean and spread those of the index. Chances of being best are in ``propensity``.
"""

from collections.abc import Sequence
from math import erfc, exp, sqrt

__all__ = ["SURE", "error_of_difference", "expected_loss", "is_sure", "surest_after", "widening"]

SURE = 0.99
"""The chance of being best from which an answer may count as settled.

People look again and again, and arms may be alike: the first time that a chance passes 0.95 it is often wrong
(docs/operations.md)."""

_TAIL = 9.0  # standard deviations, beyond which lie 1e-19 of a normal distribution
_PER_CELL = 1e-5  # of the whole interval: how much the bounds of a cell's integral may differ, with a few arms
_PER_ARM = 2e-6  # the same for each arm, with many: a point costs as much as there are arms


def is_sure(chance: float) -> bool:
    """Whether a chance of being best settles the question."""
    return chance >= SURE


def error_of_difference(spread: float, other: float) -> float:
    """The standard deviation of the difference of two means."""
    return sqrt(spread * spread + other * other)


def widening(own_variance: float, taken: float, variance_of_all: float) -> float:
    """By how much the deviation of an index is to be multiplied, which takes all sites for equals; 1: none knows less.

    The index has ``taken`` times the variance of the own mean, the mean over all sites ``variance_of_all``. Whatever
    others claim, nobody gets surer than the index is.
    """
    return sqrt(max(1.0, variance_of_all / (taken * own_variance)))


def expected_loss(means: Sequence[float], spreads: Sequence[float], leader: int) -> float:
    """What giving the leader for ever costs per decision against the best arm, on average over the beliefs.

    E[max_k X_k - X_leader] = integral of F_leader(x) (1 - product of the others' F(x)) dx. Both factors are monotone,
    which bounds the integrand in every cell of the axis; cells are halved until the bounds are close. The
    result is off by less than 5e-4 of the length of that axis, with up to 30 arms by a tenth of it (measured).
    """
    low = means[leader] - _TAIL * spreads[leader]
    others = [k for k in range(len(means)) if k != leader and means[k] + _TAIL * spreads[k] > low]
    if not others:
        return 0.0
    high = max(means[k] + _TAIL * spreads[k] for k in others)
    loss, most = 0.0, max(_PER_CELL, _PER_ARM * len(means)) * (high - low)
    cells = [(low, _factors(low, means, spreads, leader, others), high, _factors(high, means, spreads, leader, others))]
    while cells:
        a, (below_a, beaten_a), b, (below_b, beaten_b) = cells.pop()
        middle = a + (b - a) / 2.0
        if (b - a) * (below_b * beaten_a - below_a * beaten_b) <= most or not a < middle < b:
            loss += (b - a) * (below_a * beaten_a + below_b * beaten_b) / 2.0
            continue
        here = _factors(middle, means, spreads, leader, others)
        cells.append((a, (below_a, beaten_a), middle, here))
        cells.append((middle, here, b, (below_b, beaten_b)))
    return loss


def _factors(
    x: float, means: Sequence[float], spreads: Sequence[float], leader: int, others: Sequence[int]
) -> tuple[float, float]:
    """The chance that the leader lies below x, and that some other arm lies above it."""
    below_all = 1.0
    for k in others:
        below_all *= _below(x, means[k], spreads[k])
    return _below(x, means[leader], spreads[leader]), 1.0 - below_all


def _below(x: float, mean: float, spread: float) -> float:
    if spread <= 0.0:
        return float(x >= mean)
    return erfc((mean - x) / (sqrt(2.0) * spread)) / 2.0


def surest_after(epsilon: float) -> float:
    """How sure of a reward all releases can make somebody who was 50 % sure, and knows all others (docs/concepts.md).

    They multiply the odds by at most e^epsilon.
    """
    return 1.0 / (1.0 + exp(-epsilon))
