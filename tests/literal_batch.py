"""FedBatch and the baselines, written down word for word and slowly, to compare the product with.

Independent of ``fedbandit.rules`` on purpose. Agents and arms are numbered from 0.
"""

import math

import numpy as np


class Site:
    """One agent of FedBatch: everything is computed anew from lists of rewards and releases."""

    def __init__(self, num_arms, num_agents, epsilon, low, high, first, growth, index, last_only=False):
        self.rewards = [[] for _ in range(num_arms)]
        self.releases = [[] for _ in range(num_arms)]  # (size, noisy mean)
        self.num_agents, self.epsilon, self.low, self.high = num_agents, epsilon, low, high
        self.s2 = min(1.0, (high - low) ** 2 / 4)  # tapes have unit Gaussian rewards, clamped to the range
        self.first, self.growth, self.index, self.last_only = first, growth, index, last_only

    def observe(self, k, reward, noise):
        """True if this reward fills a batch."""
        self.rewards[k].append(min(max(reward, self.low), self.high))
        n, done = len(self.rewards[k]), sum(size for size, _ in self.releases[k])
        if n - done < max(self.first, math.ceil((self.growth - 1) * done)):
            return False
        size = n - done
        noisy = sum(self.rewards[k][done:]) + noise(n) * (self.high - self.low) / self.epsilon
        self.releases[k].append((size, noisy / size))
        return True

    def counted(self, k):
        return self.releases[k][-1:] if self.last_only else self.releases[k]

    def variances(self, k, s2=None):
        s2 = self.s2 if s2 is None else s2
        spread = (self.high - self.low) / self.epsilon
        return [s2 / m + 2 * spread**2 / m**2 for m, _ in self.counted(k)]

    def mean(self, k):
        v = self.variances(k)
        return sum(y / vi for (_, y), vi in zip(self.counted(k), v, strict=True)) / sum(1 / vi for vi in v)

    def variance(self, k):
        """Of the weighted mean, with the variance of a reward that the mean tells (Bhatia and Davis)."""
        v = self.variances(k)
        total = sum(1 / vi for vi in v)
        x = min(max(self.mean(k), self.low), self.high)
        s2 = min(self.s2, max(self.s2 / 2, (x - self.low) * (self.high - x) + 1 / total))
        return sum((1 / vi / total) ** 2 * wi for vi, wi in zip(v, self.variances(k, s2), strict=True))

    def bonus(self, k, t, z, share=None):
        """``share``: the agent's share of all patients, where they count."""
        share = 1 / self.num_agents if share is None else share
        own = self.variance(k) if self.releases[k] else self.s2 / 3
        if self.index == "thompson":
            return math.sqrt(own * share) * z
        return math.sqrt(2 * math.log(t) * own * share)


def d_eps(x, q, epsilon):
    def kl(p, q):
        parts = [p * math.log(p / q) if p > 0 else 0, (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0]
        return sum(parts)

    z = q * math.exp(-epsilon) / (1 - q + q * math.exp(-epsilon))
    return kl(x, q) if x >= z else epsilon * (z - x) + kl(z, q)


def kl_index(x, limit, epsilon):
    x = min(max(x, 0.0), 1.0)
    low, high = x, 1.0
    if d_eps(x, 1 - 1e-13, epsilon) <= limit:
        return 1.0
    for _ in range(200):
        q = (low + high) / 2
        if q < 1 and d_eps(x, q, epsilon) <= limit:
            low = q
        else:
            high = q
    return low


def from_urn(counts, unknown, full, u):
    """An unknown arm, or None where the index is to say it. 16 balls, 8, 4, 2 or 1; four for what is known."""
    least, nothing_known = min(counts[k] for k in unknown), len(unknown) == len(counts)
    start = next(k for k in unknown if counts[k] == least)
    urn = []
    for k in sorted(unknown, key=lambda k: (k < start, k)):
        ahead = counts[k] - least
        urn += [k] * (1 if k in full and not nothing_known else (16, 8, 4, 2, 1)[min(ahead, 4)])
    urn += [] if nothing_known else [None] * 4
    return urn[math.floor(u * len(urn))]


def fed_batch(tape, epsilon, first, growth, index, last_only=False, catches_up=False, patients=False, acts=None):
    """Arms, own means, gossiped values and weights, and theta, for every round.

    ``patients`` count: a weight is an agent's decisions per round at its last release; ``acts[t - 1, i]`` says who
    decides. The arm of one that does not is -1.
    """
    horizon, num_agents, num_arms = tape.horizon, tape.graph.num_agents, tape.rewards.shape[2]
    low, high = tape.reward_range
    sites = [Site(num_arms, num_agents, epsilon, low, high, first, growth, index, last_only) for _ in range(num_agents)]
    value, weight = np.zeros((num_agents, num_arms)), np.zeros((num_agents, num_arms))
    n = np.zeros((num_agents, num_arms), int)
    n_max = {0: np.ones_like(n), 1: np.ones_like(n)}
    committed = [[] for _ in range(num_agents)]
    acts = np.ones((horizon, num_agents), bool) if acts is None else acts
    rate, decided = np.full(num_agents, 1.0 if acts.all() or not patients else 0.0), np.zeros(num_agents, int)
    history = {"arms": [], "value": [], "weight": [], "x_mean": []}

    def observe(t, i, k):
        """The change of the agent's own (value, weight) of every arm; None without a release."""
        site, before = sites[i], own(i)
        n[i, k] += 1
        if not site.observe(k, tape.rewards[t, i, k], lambda end: tape.noise[end, i, k]):
            return None
        if patients and t > 0:
            rate[i] = decided[i] / t
        return own(i) - before

    def own(i):
        means = np.array([sites[i].mean(k) if sites[i].releases[k] else 0.0 for k in range(num_arms)])
        return rate[i] * np.array([means, [float(len(releases) > 0) for releases in sites[i].releases]])

    def is_unknown(i, k):
        if patients:
            scarce = weight[i, k] < weight[i].max() * (0.5 - 1e-6)
            return weight[i, k] == 0 or (not sites[i].releases[k] and scarce)
        return not sites[i].releases[k] or weight[i, k] < 0.5 / num_agents

    def keep():
        history["value"].append(value.copy())
        history["weight"].append(weight.copy())
        own = [[s.mean(k) if s.releases[k] else 0.0 for k in range(num_arms)] for s in sites]
        history["x_mean"].append(np.array(own))

    for i in range(num_agents):
        for k in range(num_arms):
            news = observe(0, i, k)
            if news is not None:
                value[i] += news[0]
                weight[i] += news[1]
    keep()
    for t in range(1, horizon + 1):
        n_max[t + 1] = n.copy()
        for i in range(num_agents):
            for j in tape.graph.neighbours[i]:
                n_max[t + 1][i] = np.maximum(n_max[t + 1][i], n_max[t][j])
        arms = []
        for i, site in enumerate(sites):
            if not acts[t - 1, i]:
                arms.append(-1)
                continue
            decided[i] += 1
            now = decided[i]
            unknown = [k for k in range(num_arms) if is_unknown(i, k)]
            lagging = [k for k in range(num_arms) if catches_up and n[i, k] < n_max[t][i, k] - num_agents]
            if committed[i]:
                arms.append(committed[i].pop())
                continue
            drawn = None
            if unknown and last_only:
                drawn = min(unknown, key=lambda k: n[i, k])
            elif unknown:
                drawn = from_urn(n[i], unknown, [], tape.picks[t - 1, i])
            if drawn is not None:
                arms.append(drawn)
                continue
            if lagging and not unknown:
                arms.append(lagging[math.floor(tape.picks[t - 1, i] * len(lagging))])
                continue
            belief = {}
            for k in range(num_arms):
                if k in unknown:
                    continue
                theta = value[i, k] / weight[i, k]
                if index == "kl":
                    count = num_agents * sum(m for m, _ in site.releases[k])
                    belief[k] = kl_index(theta, math.log(now) / count, epsilon), theta
                else:
                    share = rate[i] / (num_agents * weight[i, k]) if patients else None
                    share = share if share is None else min(max(share, 1e-9), 1.0)
                    belief[k] = theta + site.bonus(k, now, tape.normals[t - 1, i, k], share)
            arms.append(max(belief, key=belief.get))
            if last_only:
                committed[i] = [arms[-1]] * (n[i, arms[-1]] - 1)  # until its count has doubled
        news = [observe(t, i, k) if k >= 0 else None for i, k in enumerate(arms)]
        pair = list(tape.edges[t - 1])
        value[pair], weight[pair] = value[pair].mean(axis=0), weight[pair].mean(axis=0)
        for i, change in enumerate(news):
            if change is not None:
                value[i] += change[0]
                weight[i] += change[1]
        history["arms"].append(arms)
        keep()
    return {name: np.array(rows) for name, rows in history.items()}


def random_effects(sites, s2, total, squares):
    """The mean over all sites from ``sites``, (mean, its variance, weight) of those known, and its variance.

    Sites that are missing have means that vary by tau^2 around the others' (DerSimonian and Laird), with a prior.
    """
    x, v, w = np.array(sites).T
    prior = s2 / 3
    a = prior / (prior + v)
    centre = (a * x).sum() / a.sum()
    q = (a * (x - centre) ** 2).sum()
    expected_without = (a * v).sum() - (a * a * v).sum() / a.sum()
    per_tau2 = a.sum() - (a * a).sum() / a.sum()
    tau2 = max(0.0, (3 * prior + q - expected_without) / (3 + per_tau2))
    share, known = w / total, w / w.sum()
    missing = squares / total**2 - (share**2).sum()
    return (known * x).sum(), (known**2 * v).sum() + tau2 * (((known - share) ** 2).sum() + missing)


def fed_batch_on_releases(tape, epsilon, first, growth, index):
    """Arms, own means and theta (0 where nothing is known) of every round; agents count alike."""
    horizon, num_agents, num_arms = tape.horizon, tape.graph.num_agents, tape.rewards.shape[2]
    sites = [Site(num_arms, num_agents, epsilon, *tape.reward_range, first, growth, index) for _ in range(num_agents)]
    boards = [{} for _ in sites]  # by agent: when it last released, and (mean, its variance) of each arm, or None
    n = np.zeros((num_agents, num_arms), int)
    history = {"arms": [], "theta": [], "x_mean": []}

    def observe(t, i, k):
        n[i, k] += 1
        return sites[i].observe(k, tape.rewards[t, i, k], lambda end: tape.noise[end, i, k])

    def release(t, i):
        site = sites[i]
        boards[i][i] = t, [(site.mean(k), site.variance(k)) if site.releases[k] else None for k in range(num_arms)]

    def judged(i, k):
        """Theta and its variance; None if nobody's release is known here."""
        known = [(*rows[k], 1.0) for _, (_, rows) in sorted(boards[i].items()) if rows[k] is not None]
        return random_effects(known, sites[i].s2, num_agents, num_agents) if known else None

    def chosen(t, i):
        judgements = [judged(i, k) for k in range(num_arms)]
        unknown = [k for k in range(num_arms) if judgements[k] is None]
        if unknown and (drawn := from_urn(n[i], unknown, [], tape.picks[t - 1, i])) is not None:
            return drawn
        belief = {}
        for k, judgement in enumerate(judgements):
            if judgement is None:
                continue
            theta, variance = judgement
            if sites[i].releases[k]:
                variance = min(variance, sites[i].variance(k) / num_agents)
            factor = tape.normals[t - 1, i, k] if index == "thompson" else math.sqrt(2 * math.log(t))
            belief[k] = theta + math.sqrt(variance) * factor
        return max(belief, key=belief.get)

    def keep():
        rows = [[judged(i, k) or (0, 0) for k in range(num_arms)] for i in range(num_agents)]
        history["theta"].append([[theta for theta, _ in row] for row in rows])
        history["x_mean"].append([[s.mean(k) if s.releases[k] else 0.0 for k in range(num_arms)] for s in sites])

    for i in range(num_agents):
        full = [observe(0, i, k) for k in range(num_arms)]
        if any(full):
            release(0, i)
    keep()
    for t in range(1, horizon + 1):
        arms = [chosen(t, i) for i in range(num_agents)]
        released = [observe(t, i, k) for i, k in enumerate(arms)]
        one, other = tape.edges[t - 1]
        newest = {}
        for end in (one, other):
            for j, row in boards[end].items():
                if j not in newest or newest[j][0] < row[0]:
                    newest[j] = row
        boards[one], boards[other] = dict(newest), dict(newest)
        for i in range(num_agents):
            if released[i]:
                release(t, i)
        history["arms"].append(arms)
        keep()
    return {name: np.array(rows) for name, rows in history.items()}


def metropolis(graph):
    degree = [len(agents) for agents in graph.neighbours]
    w = np.zeros((graph.num_agents, graph.num_agents))
    for i, j in graph.edges:
        w[i, j] = w[j, i] = 1 / (1 + max(degree[i], degree[j]))
    return w + np.diag(1 - w.sum(axis=1))


def laplacian_weights(graph):
    w = np.zeros((graph.num_agents, graph.num_agents))
    for i, j in graph.edges:
        w[i, j] = w[j, i] = 1 / graph.num_agents
    return w + np.diag(1 - w.sum(axis=1))


def dist_ucb(tape):
    """z_i <- sum_j w_ij z_j + x_i(t) - x_i(t-1); z + sqrt(3 log t / (deg n)); catch up when n <= n~ - M."""
    graph, num_arms = tape.graph, tape.rewards.shape[2]
    w = metropolis(graph)
    total, n = tape.rewards[0].copy(), np.ones((graph.num_agents, num_arms), int)
    z, n_max, arms = total.copy(), {1: n.copy()}, []
    for t in range(1, tape.horizon + 1):
        n_max[t + 1] = n.copy()
        for i in range(graph.num_agents):
            for j in graph.neighbours[i]:
                n_max[t + 1][i] = np.maximum(n_max[t + 1][i], n_max[t][j])
        chosen = []
        for i in range(graph.num_agents):
            behind = [k for k in range(num_arms) if n[i, k] <= n_max[t][i, k] - num_arms]
            index = z[i] + np.sqrt(3 * math.log(t) / (len(graph.neighbours[i]) * n[i]))
            chosen.append(behind[int(tape.picks[t - 1, i] * len(behind))] if behind else int(index.argmax()))
        before = total / n
        for i, k in enumerate(chosen):
            total[i, k] += tape.rewards[t, i, k]
            n[i, k] += 1
        z = w @ z + total / n - before
        arms.append(chosen)
    return np.array(arms)


def coop_ucb2(tape):
    """s <- P (s + r), c <- P (c + 1); s/c + sqrt(2 (c + f) log t / (N c^2)), f = sqrt(log t)."""
    num_agents, num_arms = tape.graph.num_agents, tape.rewards.shape[2]
    p = metropolis(tape.graph)
    s, c, arms = tape.rewards[0].copy(), np.ones((num_agents, num_arms)), []
    for t in range(1, tape.horizon + 1):
        f = math.sqrt(math.log(t))
        index = s / c + np.sqrt(2 * (c + f) * math.log(t) / (num_agents * c**2))
        chosen = index.argmax(axis=1)
        for i, k in enumerate(chosen):
            s[i, k] += tape.rewards[t, i, k]
            c[i, k] += 1
        s, c = p @ s, p @ c
        arms.append(chosen)
    return np.array(arms)


def fed1_ucb(tape, phase):
    """Phases: every agent pulls every live arm ``phase`` times; the server drops beaten arms."""
    num_agents, num_arms = tape.graph.num_agents, tape.rewards.shape[2]
    total, n = tape.rewards[0].copy(), np.ones((num_agents, num_arms), int)
    live, done, arms = list(range(num_arms)), 0, []
    for t in range(1, tape.horizon + 1):
        k = min(live, key=lambda arm: n[0, arm])
        total[:, k] += tape.rewards[t, :, k]
        n[:, k] += 1
        arms.append([k] * num_agents)
        if len(live) > 1 and min(n[0, arm] for arm in live) >= done + phase:
            done = min(n[0, arm] for arm in live)
            mean = (total / n).mean(axis=0)
            radius = math.sqrt(4 * math.log(tape.horizon) / (num_agents * done))
            floor = max(mean[arm] - radius for arm in live)
            live = [arm for arm in live if mean[arm] + radius >= floor]
    return np.array(arms)


def gse(tape, tells=True):
    """Round robin over live arms; theta <- W theta + news, W = I - Lap / N; drop beaten arms and neighbours' drops."""
    graph, num_arms = tape.graph, tape.rewards.shape[2]
    num_agents, log_t = graph.num_agents, math.log(tape.horizon)
    complete = len(graph.edges) == num_agents * (num_agents - 1) // 2
    w, delay = laplacian_weights(graph), num_arms * log_t
    tau = log_t if complete else num_agents * log_t
    total, n = tape.rewards[0].copy(), np.ones((num_agents, num_arms), int)
    theta, live, arms = total.copy(), [set(range(num_arms)) for _ in range(num_agents)], []
    for t in range(1, tape.horizon + 1):
        chosen = [min(sorted(live[i]), key=lambda k: n[i, k]) for i in range(num_agents)]
        before = total / n
        for i, k in enumerate(chosen):
            total[i, k] += tape.rewards[t, i, k]
            n[i, k] += 1
        theta = w @ theta + total / n - before
        for i, j in graph.edges if tells else ():
            for k in live[i] ^ live[j]:
                for end in (i, j):
                    if len(live[end]) > 1:
                        live[end].discard(k)
        for i in range(num_agents):
            count = num_agents * np.maximum(n[i] - delay, 1)
            radius = np.sqrt(log_t / count) + (tau + math.sqrt(num_agents)) / count
            floor = max(theta[i, k] - radius[k] for k in live[i])
            live[i] = {k for k in live[i] if theta[i, k] + radius[k] >= floor}
        arms.append(chosen)
    return np.array(arms)
