"""Chooses an arm: Algorithm 1, lines 6-14, a round robin over arms that an agent must still try, and shares of arms.

Radii come from ``radius``, draws from the caller. The divergence index is in ``kl``.
"""

from collections.abc import Sequence

__all__ = [
    "BY_INDEX",
    "CONTROL",
    "count_lagging",
    "drawn",
    "fewest_pulls",
    "floor_of_others",
    "given_by_share",
    "highest",
    "highest_drawn",
    "nth_lagging",
    "shared_chance",
    "sum_of_floors",
]


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


# ---------------------------------------------------------------- shares of arms: p = floor + (1 - sum of floors) q


BY_INDEX, CONTROL = -1, -2
"""What ``given_by_share`` returns instead of a position."""


def floor_of_others(control_share: float, least_share: float, num_others: int) -> float:
    """The least share; or an equal part of all that is left, where so many arms were added that there is no more."""
    return min(least_share, (1.0 - control_share) / num_others)


def sum_of_floors(control_share: float, least_share: float, num_others: int) -> float:
    """Of the control arm, 0 where it is not eligible, and of the other eligible arms."""
    return control_share + num_others * least_share


def given_by_share(u: float, control_share: float, least_share: float, num_others: int) -> int:
    """Whom a uniform draw in [0, 1) gives a decision: the control arm, one of the others by position, or the index."""
    if u < control_share:
        return CONTROL
    if u < sum_of_floors(control_share, least_share, num_others):
        return min(int((u - control_share) / least_share), num_others - 1)
    return BY_INDEX


def shared_chance(chance: float, floor: float, floors: float) -> float:
    """The p of an arm: ``chance`` is what the index says, ``floors`` the sum of all floors."""
    return floor + (1.0 - floors) * chance
