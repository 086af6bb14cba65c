"""FedLinear written anew with NumPy's matrices, from docs/context.md alone: nothing of the package's rules or page."""

import math

import numpy as np

from literal_strata import from_urn


class LiteralFedLinear:
    """All agents on a tape with features, whose first one is the constant, and releases."""

    common, common_prior = (0.003, 0.03, 0.3), (0.4, 0.3, 0.3)
    own, own_prior = (0.003, 0.05), (0.6, 0.4)

    def __init__(self, tape, epsilon, norm, first_batch, growth, greedy=False):
        self.tape, self.epsilon, self.norm, self.greedy = tape, epsilon, norm, greedy
        self.first_batch, self.growth = first_batch, growth
        self.N, self.K, self.F = tape.graph.num_agents, tape.rewards.shape[2], tape.features.shape[2]
        self.batches = [[[] for _ in range(self.K)] for _ in range(self.N)]  # of (x, q)
        self.n = np.zeros((self.N, self.K), int)
        self.end = np.full((self.N, self.K), first_batch)
        blank = np.zeros((self.K, self.F, self.F)), np.zeros((self.K, self.F)), np.zeros(self.K)
        self.records = [tuple(part.copy() for part in blank) for _ in range(self.N)]
        self.boards = [{} for _ in range(self.N)]
        self.beliefs = [[None] * self.K for _ in range(self.N)]

    def arms(self):
        """Of every round and agent."""
        for i in range(self.N):
            for k in range(self.K):
                self.pull(0, i, k, self.x(k, i))
        self.publish([])
        found = []
        for t in range(1, self.tape.horizon + 1):
            x = [self.x(self.K - 1 + t, i) for i in range(self.N)]
            chosen = [self.choose(t, i, x[i]) for i in range(self.N)]
            for i, k in enumerate(chosen):
                self.pull(t, i, k, x[i])
            self.publish([tuple(self.tape.edges[t - 1])])
            found.append(chosen)
        return np.array(found)

    def x(self, d, i):
        x = self.tape.features[d, i]
        return x / max(self.norm, np.linalg.norm(x))

    def choose(self, t, i, x):
        unknown = [k for k in range(self.K) if self.beliefs[i][k] is None]
        if unknown:
            return from_urn(self.n[i], unknown, self.tape.picks[t - 1, i])
        draws = []
        for k in range(self.K):
            mean, cov = self.mixed(i)[k]
            z = 0.0 if self.greedy else self.tape.normals[t - 1, i, k]
            draws.append(mean @ x + math.sqrt(max(x @ cov @ x, 0)) * z)
        return int(np.argmax(draws))

    def pull(self, t, i, k, x):
        low, high = self.tape.reward_range
        q = (np.clip(self.tape.rewards[t, i, k], low, high) - (low + high) / 2) / (high - low)
        self.n[i, k] += 1
        self.batches[i][k].append((x, q))
        if self.n[i, k] < self.end[i, k]:
            return
        xs, qs = map(np.array, zip(*self.batches[i][k], strict=True))
        self.batches[i][k] = []
        first = k * self.F
        b = xs.T @ qs + self.tape.noise[self.n[i, k], i, first : first + self.F] / self.epsilon
        gram = xs.T @ xs
        inverse = np.linalg.inv(gram / 4 + ((self.F + 1) / self.epsilon**2 + 1e-6) * np.eye(self.F))
        information, vector, worth = (part.copy() for part in self.records[i])
        information[k] += gram @ inverse @ gram
        vector[k] += gram @ inverse @ b
        worth[k] = self.n[i, k]
        self.records[i] = information, vector, worth
        self.end[i, k] = self.n[i, k] + max(self.first_batch, math.ceil((self.growth - 1) * self.n[i, k]))

    def publish(self, edges):
        before = [dict(board) for board in self.boards]
        for i, j in [*edges, *((j, i) for i, j in edges)]:
            for origin, record in before[j].items():
                mine = self.boards[i].get(origin)
                if mine is None or mine[2].sum() < record[2].sum():
                    self.boards[i][origin] = record
        for i in range(self.N):
            self.boards[i][i] = self.records[i]
            for k in range(self.K):
                heard = [record for record in self.boards[i].values() if record[2][k] > 0]
                known = self.records[i][2][k] > 0 or 2 * len(heard) >= self.N or self.beliefs[i][k] is not None
                if heard and known:
                    self.beliefs[i][k] = self.posterior([(record[0][k], record[1][k]) for record in heard])

    def prior(self, slopes):
        return np.diag([1 / 6] + [slopes / (self.F - 1)] * (self.F - 1))

    def posterior(self, heard):
        """For each pair of scales: theta, its covariance, the evidence. From the joint normal of all theta_j."""
        found = []
        for own in self.own:
            for common in self.common:
                n, f = self.N, self.F
                joint = np.kron(np.ones((n, n)), self.prior(common)) + np.kron(np.eye(n), self.prior(own))
                precision, e = np.zeros((n * f, n * f)), np.zeros(n * f)
                for j, (information, vector) in enumerate(heard):
                    precision[j * f : (j + 1) * f, j * f : (j + 1) * f] = information
                    e[j * f : (j + 1) * f] = vector
                cov = np.linalg.inv(np.linalg.inv(joint) + precision)
                mean = cov @ e
                average = np.kron(np.ones(n) / n, np.eye(f))
                evidence = e @ mean / 2 - np.linalg.slogdet(np.eye(n * f) + joint @ precision)[1] / 2
                found.append((average @ mean, average @ cov @ average.T, evidence))
        return found

    def mixed(self, i):
        prior = np.log(np.outer(self.own_prior, self.common_prior).ravel())
        logs = prior + sum(np.array([each[2] for each in belief]) for belief in self.beliefs[i])
        w = np.exp(logs - logs.max())
        w /= w.sum()
        out = []
        for belief in self.beliefs[i]:
            mean = sum(wg * m for wg, (m, _, _) in zip(w, belief, strict=True))
            second = sum(wg * (c + np.outer(m, m)) for wg, (m, c, _) in zip(w, belief, strict=True))
            out.append((mean, second - np.outer(mean, mean)))
        return out
