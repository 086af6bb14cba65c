"""The paper's algorithms, written down word for word and slowly, to compare the product with.

Independent of ``fedbandit.rules`` on purpose. Agents and arms are numbered from 0.
"""

import math

import numpy as np


def algorithm_1(rewards, edges, picks, neighbours, consistent=True, radius=None):
    """Gossip_UCB on a tape. Returns arms, theta, n, n_max, x_mean as in ``fedbandit.Trace``.

    ``consistent=False`` leaves out line 6; ``radius(n, t)`` replaces C.
    """
    horizon, num_agents, num_arms = len(rewards) - 1, len(rewards[0]), len(rewards[0][0])
    alpha_1 = 64 / num_agents**17
    c = radius or (lambda n, t: math.sqrt(2 * num_agents / n * math.log(t)) + alpha_1)
    n = {0: np.ones((num_agents, num_arms), int)}
    n_max = {0: n[0].copy(), 1: n[0].copy()}
    x_mean = {0: np.array(rewards[0], float)}
    theta = {0: np.array(rewards[0], float)}
    seen = [[[rewards[0][i][k]] for k in range(num_arms)] for i in range(num_agents)]
    arms = np.zeros((horizon, num_agents), int)
    for t in range(1, horizon + 1):
        n[t] = n[t - 1].copy()
        n_max[t + 1] = np.array(
            [
                [max([n[t][i, k]] + [n_max[t][j, k] for j in neighbours[i]]) for k in range(num_arms)]
                for i in range(num_agents)
            ]
        )
        for i in range(num_agents):
            lagging = [k for k in range(num_arms) if n[t][i, k] < n_max[t][i, k] - num_agents] if consistent else []
            if not lagging:
                belief = [theta[t - 1][i, k] + c(n[t][i, k], t) for k in range(num_arms)]
                arms[t - 1, i] = belief.index(max(belief))
            else:
                arms[t - 1, i] = lagging[math.floor(picks[t - 1][i] * len(lagging))]
        x_mean[t] = x_mean[t - 1].copy()
        for i in range(num_agents):
            k = arms[t - 1, i]
            seen[i][k].append(rewards[t][i][k])
            n[t][i, k] += 1
            x_mean[t][i, k] = math.fsum(seen[i][k]) / len(seen[i][k])
        theta[t] = theta[t - 1] + x_mean[t] - x_mean[t - 1]
        for i, j in (edges[t - 1], edges[t - 1][::-1]):
            theta[t][i] = (theta[t - 1][i] + theta[t - 1][j]) / 2 + x_mean[t][i] - x_mean[t - 1][i]
    stack = lambda table: np.stack([table[t] for t in range(len(table))])  # noqa: E731
    return arms, stack(theta), stack(n), stack(n_max), stack(x_mean)


def algorithm_2(t):
    """The partial sums of 1..t, newest first, by flipping the rightmost 1 of a string of bits."""
    intervals = []
    while t != 0:
        bits = list(bin(t)[2:])
        d = max(i for i, bit in enumerate(bits) if bit == "1")
        bits[d] = "0"
        q = int("".join(bits), 2)
        intervals.append((q + 1, t))
        t = q
    return intervals


def algorithm_3(pulled, noise, t):
    """The noise in the prefix 1..t: one draw ``noise[interval]`` per partial sum that holds an observation."""
    return sum(noise[last] for first, last in algorithm_2(t) if any(pulled[tau] for tau in range(first, last + 1)))
