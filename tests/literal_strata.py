"""FedBatch with strata, written down word for word and slowly, to compare the product with.

Independent of ``fedbandit.rules`` on purpose: beliefs are conditional expectations of one large normal distribution, in
which the mean of every site and stratum is a coordinate; batches are lists of rewards.
"""

import math

import numpy as np

TD, TD_PRIOR = (0.002, 0.02, 0.06, 0.18), (0.45, 0.25, 0.15, 0.15)
TG, TG_PRIOR = (0.003, 0.05, 0.25), (0.7, 0.15, 0.15)
C = 1 / 12  # the variance of a mean anywhere in the range


def from_urn(tried, unknown, u):
    """16 balls, 8, 4, 2 or 1 of an unknown arm by how far it is ahead; four of what is known, which is None."""
    least = min(tried[k] for k in unknown)
    start = next(k for k in unknown if tried[k] == least)
    urn = []
    for k in sorted(unknown, key=lambda k: (k < start, k)):
        urn += [k] * (16, 8, 4, 2, 1)[min(tried[k] - least, 4)]
    urn += [None] * (4 if len(unknown) < len(tried) else 0)
    return urn[math.floor(u * len(urn))]


def joint(sites, shares, td, tg):
    """Mean and covariance of theta - 1/2, and the log density of all releases: every mu_js is one coordinate.

    ``sites``: the releases of each, (weights of strata, value - 1/2, variance). ``shares``: of each in each stratum.
    """
    num, size = len(sites), shares.shape[1]
    common = np.kron(np.ones((num, num)), td**2 * np.eye(size) + C)
    prior = common + np.kron(np.eye(num), tg**2 * np.eye(size) + C)
    a = np.array([np.kron(np.eye(num)[j], w) for j, each in enumerate(sites) for w, _, _ in each])
    y = np.array([y for each in sites for _, y, _ in each])
    v = np.array([v for each in sites for _, _, v in each])
    wanted = np.hstack([np.diag(shares[j]) for j in range(num)])
    total = a @ prior @ a.T + np.diag(v)
    gain = wanted @ prior @ a.T @ np.linalg.inv(total)
    density = -0.5 * (y @ np.linalg.solve(total, y) + np.linalg.slogdet(total)[1] + len(y) * math.log(2 * math.pi))
    return gain @ y, wanted @ prior @ wanted.T - gain @ a @ prior @ wanted.T, density


def scales(densities):
    """The chances of pairs (tg, td), and that strata matter, from the log densities of each arm."""
    prior = np.outer(TG_PRIOR, TD_PRIOR).ravel()
    log_chances = np.log(prior) + sum(densities, np.zeros(len(prior)))
    chances = np.exp(log_chances - log_chances.max())
    chances /= chances.sum()
    return chances, chances[[tg > 0.03 or td > 0.03 for tg in TG for td in TD]].sum()


class Site:
    """One agent, with rewards in [0, 1]."""

    def __init__(self, num_arms, num_strata, epsilon, first, growth=1.25):
        self.epsilon, self.first, self.growth, self.strata = epsilon, first, growth, range(num_strata)
        self.open = [[[] for _ in self.strata] for _ in range(num_arms)]  # rewards in no release
        self.n = [[0] * num_strata for _ in range(num_arms)]
        self.tried = [[0] * num_arms for _ in self.strata]
        self.single = [[[] for _ in self.strata] for _ in range(num_arms)]  # (size, noisy mean)
        self.pooled = [[] for _ in range(num_arms)]  # (weights, noisy mean - 1/2, variance)
        self.arm_end = [first] * num_arms
        self.cell_end = [[first] * num_strata for _ in range(num_arms)]
        self.matters = scales([])[1]

    def further(self, n):
        return n + max(self.first, math.ceil((self.growth - 1) * n))

    def noisy(self, rewards, noise):
        return (sum(rewards) + noise / self.epsilon) / len(rewards)

    def noise_variance(self, size):
        return 2 / (self.epsilon * size) ** 2

    @staticmethod
    def learnt(x, variance):
        x = min(max(x, 0.0), 1.0)
        return min(max(x * (1 - x) + variance, 0.125), 0.25)

    def observe(self, k, s, reward, noise):
        """Whether something was released; ``noise(r, n)``: the draw of the sum of stratum r that ends at reward n."""
        waiting = self.open[k]
        waiting[s].append(min(max(reward, 0.0), 1.0))
        self.n[k][s] += 1
        n, is_first = sum(self.n[k]), not self.pooled[k] and not any(self.single[k])
        closes = n >= self.arm_end[k]
        alone = []
        for r in self.strata:
            least = self.first * 4**-self.matters
            if self.single[k][r] and self.matters >= 0.3:
                least = max(least, self.first / 2)
            if waiting[r] and (len(waiting[r]) >= least if closes else r == s and self.n[k][r] >= self.cell_end[k][r]):
                alone.append(r)
        rest = [r for r in self.strata if closes and waiting[r] and r not in alone]
        size = sum(len(waiting[r]) for r in rest)
        if not is_first and not (self.matters < 0.3 and size >= self.first / 2):
            rest = []
        for r in alone:
            self.single[k][r].append((len(waiting[r]), self.noisy(waiting[r], noise(r, self.n[k][r]))))
        if rest:
            y = self.noisy([x for r in rest for x in waiting[r]], noise(rest[0], self.n[k][rest[0]]))
            v = self.learnt(y, 0.25 / size + self.noise_variance(size)) / size + self.noise_variance(size)
            weights = np.array([len(waiting[r]) / size if r in rest else 0.0 for r in self.strata])
            self.pooled[k].append((weights, y - 0.5, v))
        for r in (*alone, *rest):
            waiting[r].clear()
            self.cell_end[k][r] = self.further(self.n[k][r])
        if alone or rest:
            if closes:
                self.arm_end[k] = self.further(n)
            released = n - sum(map(len, waiting))
            self.arm_end[k] = max(self.arm_end[k], released + self.first)
        return bool(alone or rest)

    def cell(self, k, s):
        """The mean of a cell's own releases, and its variance."""
        sizes, y = np.array(self.single[k][s]).T
        v = 0.25 / sizes + self.noise_variance(sizes)
        weights = (1 / v) / (1 / v).sum()
        x = (weights * y).sum()
        s2 = self.learnt(x, 1 / (1 / v).sum())
        return x, (weights**2 * (s2 / sizes + self.noise_variance(sizes))).sum()

    def releases(self, k):
        """All that is released of an arm."""
        cells = [(np.eye(len(self.strata))[s], *self.cell(k, s)) for s in self.strata if self.single[k][s]]
        return [*((w, x - 0.5, v) for w, x, v in cells), *self.pooled[k]]


def fed_strata(tape, epsilon, first):
    """Arms, and theta by stratum and arm, of every round; agents count alike."""
    num_agents, num_arms, num_strata = tape.graph.num_agents, tape.rewards.shape[2], tape.num_strata
    sites = [Site(num_arms, num_strata, epsilon, first) for _ in range(num_agents)]
    boards = [{} for _ in sites]  # by agent: the round of its last release, and its releases of each arm
    history = {"arms": [], "theta": []}
    beliefs = [None] * num_agents

    def observe(t, i, k, s):
        return sites[i].observe(k, s, tape.rewards[t, i, k], lambda r, n: tape.noise[n, i, r * num_arms + k])

    def believe(i):
        known, found = [], []
        for k in range(num_arms):
            heard = [boards[i][j][1][k] if j in boards[i] else [] for j in range(num_agents)]
            known.append(any(heard))
            shares = np.full((num_agents, num_strata), 1 / num_agents)
            found.append([joint(heard, shares, td, tg) for tg in TG for td in TD] if any(heard) else None)
        densities = [np.array([d for _, _, d in each]) for each in found if each is not None]
        chances, sites[i].matters = scales(densities)
        theta, spread = np.full((num_strata, num_arms), np.nan), np.full((num_strata, num_arms), np.nan)
        for k, each in enumerate(found):
            if each is not None:
                means = np.array([m for m, _, _ in each])
                variances = np.array([np.diag(c) for _, c, _ in each])
                theta[:, k] = chances @ means
                variance = chances @ (variances + means**2) - theta[:, k] ** 2
                own = [(w / v, 1 / v) for w, _, v in sites[i].releases(k)]
                if own:  # no more than what own pulls can still remove
                    of_strata, of_all = sum(it for it, _ in own), sum(it for _, it in own)
                    known_here = sites[i].matters * of_strata + (1 - sites[i].matters) * of_all
                    variance = np.minimum(variance, 1 / (num_agents * known_here))
                spread[:, k] = 0.9 * np.sqrt(variance)
        beliefs[i] = known, theta + 0.5, spread

    def publish(t, i):
        boards[i][i] = t, [sites[i].releases(k) for k in range(num_arms)]

    for i in range(num_agents):
        news = [observe(0, i, k, tape.strata[k, i]) for k in range(num_arms)]
        for k in range(num_arms):
            sites[i].tried[tape.strata[k, i]][k] += 1
        if any(news):
            publish(0, i)
        believe(i)
    history["theta"].append([theta.ravel() for _, theta, _ in beliefs])
    for t in range(1, tape.horizon + 1):
        arms, stirred = [], set()
        for i, site in enumerate(sites):
            s = tape.strata[num_arms + t - 1, i]
            known, theta, spread = beliefs[i]
            unknown = [k for k in range(num_arms) if not known[k]]
            k = from_urn(site.tried[s], unknown, tape.picks[t - 1, i]) if unknown else None
            if k is None:
                k = int(np.nanargmax(theta[s] + spread[s] * tape.normals[t - 1, i]))  # not a number: unknown
            site.tried[s][k] += 1
            arms.append(k)
        news = [observe(t, i, k, tape.strata[num_arms + t - 1, i]) for i, k in enumerate(arms)]
        one, other = tape.edges[t - 1]
        before = {i: dict(boards[i]) for i in (one, other)}
        for here, there in ((one, other), (other, one)):
            for j, entry in before[there].items():
                if j not in boards[here] or boards[here][j][0] < entry[0]:
                    boards[here][j] = entry
                    stirred.add(here)
        for i, has_news in enumerate(news):
            if has_news:
                publish(t, i)
                stirred.add(i)
        for i in stirred:
            believe(i)
        history["arms"].append(arms)
        history["theta"].append([theta.ravel() for _, theta, _ in beliefs])
    return {name: np.array(rows) for name, rows in history.items()}
