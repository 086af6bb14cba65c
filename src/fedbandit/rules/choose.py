"""Chooses an arm: Algorithm 1, lines 6-14, and a round robin over arms that an agent must still try.

Radii come from ``radius``, draws from the caller. The divergence index is in ``kl``.
"""

from collections.abc import Sequence

__all__ = ["count_lagging", "drawn", "fewest_pulls", "highest", "highest_drawn", "nth_lagging"]


def count_lagging(n: Sequence[int], n_max: Sequence[int], allowed: int) -> int:
    """Algorithm 1, line 6: the number of arms on which this agent lags behind.

    ``allowed`` is the tolerated lag: N in the paper.
    """
    lagging = 0
    for k in range(len(n)):
        if n[k] < n_max[k] - allowed:  # line 6
            lagging += 1
    return lagging


def nth_lagging(n: Sequence[int], n_max: Sequence[int], allowed: int, position: int) -> int:
    """The lagging arm at ``position``, counted from 0 in the order of arms."""
    for k in range(len(n)):
        if n[k] < n_max[k] - allowed:  # line 6
            if position == 0:
                return k
            position -= 1
    raise IndexError("fewer lagging arms than position + 1")


def highest(belief: Sequence[float]) -> int:
    """Algorithm 1, line 10: of two or more arms the one with the largest belief; the first arm wins a tie.

    Even and odd arms are searched side by side: each comparison waits for the one before it in its chain.
    """
    even, best_even, odd, best_odd = 0, belief[0], 1, belief[1]
    for k in range(2, len(belief) - 1, 2):
        if belief[k] > best_even:
            even, best_even = k, belief[k]
        if belief[k + 1] > best_odd:
            odd, best_odd = k + 1, belief[k + 1]
    last = len(belief) - 1
    if last % 2 == 0 and belief[last] > best_even:
        even, best_even = last, belief[last]
    return odd if best_odd > best_even or (best_odd == best_even and odd < even) else even


def drawn(mean: float, spread: float, z: float) -> float:
    """Thompson sampling: a draw around an estimate, by a standard normal z."""
    return mean + spread * z


def highest_drawn(means: Sequence[float], spreads: Sequence[float], normals: Sequence[float]) -> int:
    """Thompson sampling: the arm with the highest draw; the first arm wins a tie."""
    arm, best = 0, drawn(means[0], spreads[0], normals[0])
    for k in range(1, len(means)):
        x = drawn(means[k], spreads[k], normals[k])
        if x > best:
            arm, best = k, x
    return arm


def fewest_pulls(n: Sequence[int], eligible: Sequence[bool]) -> int:
    """The eligible arm with the fewest pulls, the first of equals: a round robin over eligible arms."""
    arm = -1
    for k in range(len(n)):
        if eligible[k] and (arm < 0 or n[k] < n[arm]):
            arm = k
    return arm
