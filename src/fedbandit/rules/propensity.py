"""How likely an arm is chosen where a decision draws: among lagging arms, or by the highest of normal draws.

The highest draw has no closed form for more than two arms. It is integrated over cells of the axis: in a cell from a to
b the chance that arm k wins lies between d_k P_k(a) and d_k P_k(b), d_k the chance that its draw falls there, P_k(x)
the chance that all other draws lie below x. Cells are halved until d_k (P_k(b) - P_k(a)) is small for every arm.
"""

from collections.abc import Sequence
from math import erfc, sqrt

from fedbandit.rules.choose import count_lagging, nth_lagging

__all__ = ["MOST_ERROR", "chance_of_lagging", "chances_of_highest"]

MOST_ERROR = 0.008
"""How far ``chances_of_highest`` may be off."""

_PER_CELL = 4.0 * MOST_ERROR**2
"""The most that the bounds of a cell may differ.

As d e <= c implies d e <= sqrt(c) (d + e) / 2, and as both d and e = P(b) - P(a) sum to at most 1 over all cells, the
bounds differ by at most sqrt(c) in all, and their middle is off by half of that.
"""

_TAIL = 9.0  # standard deviations, beyond which lie 1e-19 of a normal distribution
_NEVER = 1e-9  # an arm that wins more rarely is not integrated


def chance_of_lagging(n: Sequence[int], n_max: Sequence[int], allowed: int, arm: int) -> float:
    """Algorithm 1, line 13: each of the lagging arms is as likely as the others."""
    lagging = count_lagging(n, n_max, allowed)
    if any(nth_lagging(n, n_max, allowed, position) == arm for position in range(lagging)):
        return 1.0 / lagging
    return 0.0


def chances_of_highest(means: Sequence[float], spreads: Sequence[float]) -> list[float]:
    """For each arm the chance that its draw, mean + spread z with a standard normal z, is the highest.

    Each is within ``MOST_ERROR``, and they sum to 1. A draw without a spread is its mean; the first arm wins a tie, as
    in ``choose.highest``.
    """
    leader = max(range(len(means)), key=lambda k: means[k])
    steady = max(range(len(means)), key=lambda k: means[k] - 3.0 * spreads[k])
    chances = [0.0] * len(means)
    drawn: list[int] = []  # arms to be integrated
    fixed = -1  # the best of those that do not vary, even by rounding
    for k in range(len(means)):
        if means[k] + 8.0 * spreads[k] == means[k]:
            if fixed < 0 or means[k] > means[fixed]:
                fixed = k
            continue
        most = min(_chance_above(means, spreads, k, leader), _chance_above(means, spreads, k, steady))
        if most < _NEVER:
            chances[k] = most
        else:
            drawn.append(k)
    if fixed >= 0 and not drawn:
        chances[fixed] = 1.0
    else:
        _integrate(means, spreads, drawn, fixed, chances)
    total = sum(chances)
    return [chance / total for chance in chances]


def _chance_above(means: Sequence[float], spreads: Sequence[float], arm: int, other: int) -> float:
    """The chance that an arm's draw lies above another's: no smaller than that of lying above all."""
    if arm == other:
        return 1.0
    return erfc((means[other] - means[arm]) / sqrt(2.0 * (spreads[arm] ** 2 + spreads[other] ** 2))) / 2.0


def _integrate(
    means: Sequence[float], spreads: Sequence[float], drawn: Sequence[int], fixed: int, chances: list[float]
) -> None:
    """Fill in the chances of arms whose draws vary, and of the best one that does not."""
    origin = max(means[k] for k in drawn)  # numbers near 0 are the finest
    centres = [means[k] - origin for k in drawn]
    rates = [1.0 / (sqrt(2.0) * spreads[k]) for k in drawn]
    low = max(means[k] - origin - _TAIL * spreads[k] for k in drawn)
    high = max(means[k] - origin + _TAIL * spreads[k] for k in drawn)
    if fixed >= 0:
        chances[fixed] = _product(_below(means[fixed] - origin, centres, rates))
        low = max(low, means[fixed] - origin)
    if low >= high:
        return
    sums = [0.0] * len(drawn)
    first, last = _below(low, centres, rates), _below(high, centres, rates)
    cells = [(low, first, _product(first), high, last, _product(last))]
    while cells:
        a, from_below, all_a, b, to_below, all_b = cells.pop()
        wins: list[float] = []
        most = 0.0
        for x, y in zip(from_below, to_below, strict=True):
            # From low on every x is positive, so the product of the others is the product of all without x.
            others_a, others_b = all_a / x, all_b / y
            most = max(most, (y - x) * (others_b - others_a))
            wins.append((y - x) * (others_a + others_b) / 2.0)
        middle = a + (b - a) / 2.0
        if most <= _PER_CELL or not a < middle < b:
            for j, win in enumerate(wins):
                sums[j] += win
            continue
        below = _below(middle, centres, rates)
        all_below = _product(below)
        cells.append((a, from_below, all_a, middle, below, all_below))
        cells.append((middle, below, all_below, b, to_below, all_b))
    for k, chance in zip(drawn, sums, strict=True):
        chances[k] = chance


def _below(x: float, centres: Sequence[float], rates: Sequence[float]) -> list[float]:
    """For each arm the chance that its draw lies below x."""
    return [erfc((centre - x) * rate) / 2.0 for centre, rate in zip(centres, rates, strict=True)]


def _product(numbers: Sequence[float]) -> float:
    product = 1.0
    for x in numbers:
        product *= x
    return product
