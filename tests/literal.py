"""The paper's algorithms, written down word for word and slowly, to compare the product with.

Independent of ``fedbandit.rules`` on purpose. Agents and arms are numbered from 0.
"""

import math

import numpy as np


def play(
    horizon,
    num_arms,
    neighbours,
    reward,
    edge,
    pick,
    mean,
    radius,
    consistent=True,
    network="gossip",
    share=None,
    acts=lambda t, i: True,
):
    """Algorithm 1 with its parts as functions. Returns arms, theta, n, n_max, x_mean as in ``fedbandit.Trace``.

    reward(t, i, k, earlier pulls), edge(t), pick(t, i), mean(i, k, [(time, reward), ...]), radius(n, i, k, t).
    ``network``: "gossip", "alone" (theta is the own mean), "central" (theta is the mean of all agents' means), or
    "releases" (beyond the paper: theta is the mean of the newest means that the agent has heard of, its own among them;
    the ends of the edge tell each other what they knew before this round).
    ``share[i]`` is N times agent i's weight. Where ``acts(t, i)`` is false agent i only listens and gossips in round
    t (its arm is -1); the time of its radius and its picks is its own number of pulls.
    """
    num_agents = len(neighbours)
    share = np.ones(num_agents) if share is None else np.asarray(share)
    everyone, every_arm = range(num_agents), range(num_arms)
    seen = [[[(0, reward(0, i, k, 0))] for k in every_arm] for i in everyone]
    n = {0: np.ones((num_agents, num_arms), int)}
    n_max = {0: n[0].copy(), 1: n[0].copy()}
    x_mean = {0: np.array([[mean(i, k, seen[i][k]) for k in every_arm] for i in everyone])}
    start = share[:, None] * x_mean[0] if network != "releases" else x_mean[0]
    known = [{i: (0, x_mean[0][i])} for i in everyone]  # by agent: the time of its mean, and the mean
    theta = {0: np.tile(start.mean(axis=0), (num_agents, 1)) if network == "central" else start}
    arms = np.full((horizon, num_agents), -1)
    clock = np.zeros(num_agents, int)
    for t in range(1, horizon + 1):
        n[t] = n[t - 1].copy()
        n_max[t + 1] = np.array(
            [[max([n[t][i, k]] + [n_max[t][j, k] for j in neighbours[i]]) for k in every_arm] for i in everyone]
        )
        active = [i for i in everyone if acts(t, i)]
        clock[active] += 1
        for i in active:
            lagging = [k for k in every_arm if n[t][i, k] < n_max[t][i, k] - num_agents] if consistent else []
            if not lagging:
                belief = [theta[t - 1][i, k] + radius(n[t - 1], i, k, clock[i]) for k in every_arm]
                arms[t - 1, i] = belief.index(max(belief))
            else:
                arms[t - 1, i] = lagging[math.floor(pick(clock[i], i) * len(lagging))]
        x_mean[t] = x_mean[t - 1].copy()
        for i in active:
            k = arms[t - 1, i]
            seen[i][k].append((t, reward(t, i, k, n[t][i, k])))
            n[t][i, k] += 1
            x_mean[t][i, k] = mean(i, k, seen[i][k])
        if network == "central":
            theta[t] = np.tile((share[:, None] * x_mean[t]).mean(axis=0), (num_agents, 1))
            continue
        if network == "releases":
            one, other = edge(t)
            for j in everyone:
                newest = max((known[end][j] for end in (one, other) if j in known[end]), key=lambda x: x[0], default=0)
                for end in (one, other):
                    if newest:
                        known[end][j] = newest
            for i in everyone:
                known[i][i] = t, x_mean[t][i].copy()
            theta[t] = np.array(
                [sum(share[j] * known[i][j][1] for j in known[i]) / sum(share[j] for j in known[i]) for i in everyone]
            )
            continue
        news = share[:, None] * (x_mean[t] - x_mean[t - 1])
        theta[t] = theta[t - 1] + news
        if network == "gossip":
            for i, j in (edge(t), edge(t)[::-1]):
                theta[t][i] = (theta[t - 1][i] + theta[t - 1][j]) / 2 + news[i]
    stack = lambda table: np.stack([table[t] for t in range(len(table))])  # noqa: E731
    return arms, stack(theta), stack(n), stack(n_max), stack(x_mean)


def sample_mean(i, k, seen):
    return math.fsum(reward for _, reward in seen) / len(seen)


def c(num_agents, constant=1.0):
    """C of Theorem 1."""
    return lambda n, i, k, t: math.sqrt(2 * num_agents * constant / n[i, k] * math.log(t)) + 64 / num_agents**17


def c_private(num_agents, horizon, epsilon, first_is_noised=True):
    """C~ of Lemma 6; with the first pull noised, log n is log(n + 1)."""

    def radius(n, i, k, t):
        count, log_count = n[i, k], math.log(n[i, k] + first_is_noised)
        noise = 128 * num_agents * math.log(horizon) ** 2 * math.log(t) * log_count / (count**2 * epsilon**2)
        return 64 / num_agents**17 + math.sqrt(2 * num_agents * (noise + 1 / count) * math.log(t))

    return radius


def on_tape(tape, mean=sample_mean, radius=None, **options):
    """``play`` on a ``fedbandit.Tape``; without more: Gossip_UCB."""
    radius = radius or c(tape.graph.num_agents)
    return play(
        tape.horizon,
        tape.rewards.shape[2],
        tape.graph.neighbours,
        lambda t, i, k, earlier: tape.rewards[t, i, k],
        lambda t: tape.edges[t - 1],
        lambda t, i: tape.picks[t - 1, i],
        mean,
        radius,
        **options,
    )


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


def private_mean(noise, scale, low, high):
    """Algorithm 3 over an arm's pulls: clamped rewards, and a draw ``noise[end, i, k]`` for each interval of pulls."""

    def mean(i, k, seen):
        total = sum(min(max(reward, low), high) for _, reward in seen)
        return (total + scale * sum(noise(last, i, k) for _, last in algorithm_2(len(seen)))) / len(seen)

    return mean
