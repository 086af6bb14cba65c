"""Computes an agent's own sample mean of one arm, exact or private (Algorithms 2 and 3).

In a private policy no raw reward leaves this file except through a sum that carries noise. Noise draws are arguments.

A private sum is a sum over dyadic intervals (Algorithm 2): the prefix 1..m is cut at the set bits of m,
so the interval that ends at m has the length of m's lowest set bit, and *an interval is named by its
end*. Every interval gets one noise draw, for ever. The paper's Algorithm 3 looks noise up by the
*value* of the partial sum: two intervals with equal sums share their noise, which reveals that the sums
are equal. We look it up by arm and interval.
"""

from collections.abc import MutableSequence, Sequence
from math import ceil, inf, log

__all__ = [
    "clamp",
    "dyadic_intervals",
    "epsilon_per_node",
    "last_end",
    "paper_epsilon_per_node",
    "pull_tree_add",
    "time_tree_add",
    "time_tree_first_new",
    "trailing_zeros",
]


def clamp(reward: float, low: float, high: float) -> float:
    """The reward, clamped to its declared range. Otherwise one reward could move a sum by any amount.

    The reward comes first: at a bound it stays as it is, so whole numbers of a live site stay whole. It is not NaN.
    """
    return min(max(reward, low), high)


def epsilon_per_node(epsilon: float, max_pulls: int) -> float:
    """The privacy budget of one tree node: a reward lies in at most ``max_pulls.bit_length()`` nodes.

    The paper divides by ceil(log T), fewer than the nodes that hold one reward (see
    ``paper_epsilon_per_node``): at T = 10^6 this costs 1.43 times the promised epsilon.
    """
    return epsilon / max_pulls.bit_length()


def paper_epsilon_per_node(epsilon: float, horizon: int) -> float:
    """The paper's eps' = eps / ceil(log T), printed below Algorithm 4. It does not keep its promise."""
    return epsilon / max(1, ceil(log(horizon))) if epsilon < inf else inf


def dyadic_intervals(end: int) -> list[tuple[int, int]]:
    """Algorithm 2: the intervals (first, last), newest first, whose sums make the prefix 1..end."""
    intervals: list[tuple[int, int]] = []
    while end != 0:
        start = end & (end - 1)  # Alg. 2, lines 2-3: flip the rightmost 1 of end
        intervals.append((start + 1, end))  # line 4
        end = start  # line 5
    return intervals


def trailing_zeros(m: int) -> int:
    """The level of the interval that ends at m >= 1: it is 2^level long."""
    return (m & -m).bit_length() - 1


def last_end(n: int, level: int) -> int:
    """The end of the last interval of this level among the pulls 1..n, an odd multiple of 2^level; 0 if none ended."""
    count = n >> level
    return ((count - 1) | 1) << level if count > 0 else 0


def prefix_noise(slots: Sequence[float], end: int) -> float:
    """The noise of the prefix 1..end, if ``slots`` was last written on a path through ``end``."""
    return slots[trailing_zeros(end)] if end > 0 else 0  # not 0.0: whole numbers stay whole


def pull_tree_add(slots: MutableSequence[float], n: int, fresh: float) -> float:
    """The noise of the sum of the first n rewards of an arm, after its n-th pull.

    ``fresh`` is the draw of the interval that ends at pull n. The rest of the noise is that of the
    prefix n - 2^level, which still stands in the slot of its own level, because every pull in between had a
    lower level. This costs one draw, one load and one store per pull; walking Algorithm 2 costs O(log n).
    """
    level = trailing_zeros(n)
    total = prefix_noise(slots, n & (n - 1)) + fresh
    slots[level] = total
    return total


def time_tree_first_new(t: int, last: int) -> int:
    """The smallest prefix of t (Algorithm 2's t') that ends after ``last``, the arm's previous pull.

    In the paper's tree over time, only two intervals of t can be new and hold a reward: the one that
    ends here (if the arm was pulled in it) and the one that ends at t itself.
    """
    node = t
    while node & (node - 1) > last:
        node &= node - 1
    return node


def time_tree_add(slots: MutableSequence[float], t: int, last: int, fresh_first: float, fresh: float) -> float:
    """The noise of X^(1) + ... + X^(t) when the arm is pulled at time t, as in Algorithm 3.

    ``last`` is the time of the arm's previous pull (0: none), ``fresh_first`` the draw of the interval
    that ends at ``time_tree_first_new(t, last)``, ``fresh`` that of the interval that ends at t. "Laplacian
    noise is added to each partial sum if there exists observations in that partial sum": empty ones get none.
    """
    first_new = time_tree_first_new(t, last)
    shared = first_new & (first_new - 1)  # the prefix that t and last have in common
    before = prefix_noise(slots, shared)
    if first_new != t and last > shared:
        before += fresh_first
    node = t & (t - 1)
    while node > shared:
        slots[trailing_zeros(node)] = before  # the intervals between are empty
        node &= node - 1
    total = before + fresh
    slots[trailing_zeros(t)] = total
    return total
