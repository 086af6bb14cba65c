"""Which arm an agent pulls: Algorithm 1, lines 6-14.

Here belongs the decision alone. Radii come from ``radius``, the draw ``u`` from the caller.
"""

from collections.abc import Sequence

__all__ = ["choose", "count_lagging"]


def count_lagging(n: Sequence[int], n_max: Sequence[int], num_agents: int) -> int:
    """Algorithm 1, line 6: how many arms this agent has pulled too rarely to stay consistent."""
    lagging = 0
    for k in range(len(n)):
        if n[k] < n_max[k] - num_agents:  # line 6
            lagging += 1
    return lagging


def nth_lagging(n: Sequence[int], n_max: Sequence[int], num_agents: int, position: int) -> int:
    """The lagging arm at ``position``, counted from 0 in the order of arms."""
    for k in range(len(n)):
        if n[k] < n_max[k] - num_agents:  # line 6
            if position == 0:
                return k
            position -= 1
    raise IndexError("fewer lagging arms than position + 1")


def highest_belief(theta: Sequence[float], radius: Sequence[float]) -> int:
    """Algorithm 1, lines 8-10: the arm with the largest theta + radius; the first arm wins a tie."""
    arm = 0
    best = theta[0] + radius[0]
    for k in range(1, len(theta)):
        belief = theta[k] + radius[k]  # line 9
        if belief > best:  # line 10
            best = belief
            arm = k
    return arm


def choose(
    theta: Sequence[float],
    radius: Sequence[float],
    n: Sequence[int],
    n_max: Sequence[int],
    num_agents: int,
    lagging: int,
    u: float,
) -> int:
    """Algorithm 1, lines 7-14: the arm of this round.

    ``lagging`` is ``count_lagging(...)`` (0 for a policy without the consistency rule); ``u`` in [0, 1)
    picks among lagging arms. ``radius`` is not read when an arm lags.
    """
    if lagging > 0:
        return nth_lagging(n, n_max, num_agents, int(u * lagging))  # line 13
    return highest_belief(theta, radius)
