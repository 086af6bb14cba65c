"""Gossip_UCB and Fed_UCB in plain NumPy, vectorised over trials: what one writes without an engine.

Independent of the product's rules. It follows the same tapes, so that speed is compared between programs
that do the same: ``engine.py`` checks that before it measures.
"""

import math
from collections.abc import Callable

import numpy as np

Draw = Callable[..., np.ndarray]


def run(
    neighbours: tuple[tuple[int, ...], ...],
    num_arms: int,
    horizon: int,
    num_trials: int,
    reward: Draw,
    edge: Draw,
    pick: Draw,
    noise: Draw | None = None,
    epsilon: float = math.inf,
) -> np.ndarray:
    """The arms [T, trial, agent].

    Draws give one number per trial: reward(t, i, arms), edge(t), pick(t, i), noise(n, i, arms).
    """
    num_agents, log_horizon = len(neighbours), math.log(horizon)
    shape = (num_agents, num_trials, num_arms)
    trial = np.arange(num_trials)
    levels = (horizon + 1).bit_length()
    noise_scale = levels / epsilon
    total, theta, x_mean = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    n, slots = np.zeros(shape, np.int64), np.zeros((*shape, levels + 1))
    n_max = np.ones(shape, np.int64)
    chosen = np.zeros((horizon, num_trials, num_agents), np.int64)
    alpha_1 = 64 / num_agents**17

    def observe(t: int, i: int, arms: np.ndarray) -> np.ndarray:
        """How the sample mean of the pulled arm changes."""
        at = (i, trial, arms)
        total[at] += reward(t, i, arms)
        n[at] += 1
        count = n[at]
        seen = total[at]
        if noise is not None:
            level = np.bitwise_count((count & -count) - 1).astype(np.int64)
            before = count & (count - 1)
            before_level = np.where(before > 0, np.bitwise_count((before & -before) - 1), levels)
            added = slots[(*at, before_level)] + noise_scale * noise(count, i, arms)
            slots[(*at, level)] = added
            seen = seen + added
        change = seen / count - x_mean[at]
        x_mean[at] += change
        return change

    def radius(t: int, i: int) -> np.ndarray:
        spread = 1.0 / n[i]
        if noise is not None:
            spread = (
                spread + 128 * num_agents * log_horizon**2 * math.log(t) * np.log(1.0 + n[i]) / (n[i] * epsilon) ** 2
            )
        return np.sqrt(2 * num_agents * spread * math.log(t)) + alpha_1

    for i in range(num_agents):
        for k in range(num_arms):
            theta[i, :, k] = observe(0, i, np.full(num_trials, k))
    for t in range(1, horizon + 1):
        heard = n.copy()
        changes = []
        for i in range(num_agents):
            for j in neighbours[i]:
                np.maximum(heard[i], n_max[j], out=heard[i])
            lagging = n[i] < n_max[i] - num_agents
            arms = (theta[i] + radius(t, i)).argmax(axis=1)
            count = lagging.sum(axis=1)
            if count.any():
                position = np.floor(pick(t, i) * count)
                nth = (np.cumsum(lagging, axis=1) == position[:, None] + 1).argmax(axis=1)
                arms = np.where(count > 0, nth, arms)
            changes.append((arms, observe(t, i, arms)))
            chosen[t - 1, :, i] = arms
        n_max = heard
        one, other = edge(t).T
        mixed = (theta[one, trial] + theta[other, trial]) / 2
        theta[one, trial] = mixed
        theta[other, trial] = mixed
        for i, (arms, change) in enumerate(changes):
            theta[i, trial, arms] += change
    return chosen
