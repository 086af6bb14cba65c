"""Live sites that take rewards, noise, draws and exchanges from a tape, in the order of the simulator's rounds."""

import numpy as np

from fedbandit import Tape
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.privacy.noise import GRID
from fedbandit.rules.private import ALONE, POOLED
from fedbandit.rules.urn import drawn
from fedbandit.testing.memory_network import MemoryNetwork


def tape_on_the_grid(world, num_arms, horizon, seed, low, high, epsilon, gossip="releases", num_strata=0):
    """Rewards and noise in whole steps, so that the mechanism's integers are the simulator's floats.

    ``epsilon`` is that of one release. Also returns the noise in steps; with strata a column for each cell.
    """
    source = np.random.default_rng(seed)
    agents, width = world.num_agents, high - low
    steps = source.integers(0, GRID + 1, size=(horizon + 1, agents, num_arms))
    noise = np.round(source.laplace(size=(horizon + 2, agents, num_arms * max(num_strata, 1))) * GRID / epsilon)
    tape = Tape(
        rewards=low + width * steps / GRID,
        edges=np.array(world.edges)[source.integers(len(world.edges), size=horizon)],
        picks=source.random((horizon, agents)),
        graph=world,
        noise=noise * epsilon / GRID,
        reward_range=(low, high),
        normals=source.standard_normal((horizon, agents, num_arms)),
        gossip=gossip,
        strata=source.integers(num_strata, size=(num_arms + horizon, agents)) if num_strata else None,
    )
    return tape, noise.astype(int)


def in_memory(terms, links, noise):
    """Without faults."""
    return MemoryNetwork(terms, links, noise=noise)


def all_from_the_start(network):
    """Every site knows of all others before the first decision, as an agent of the simulator does."""
    while network.differences() or any(
        len(network.site(name).board.sites) < len(network.names) for name in network.names
    ):
        for link in network.links:
            network.exchange(*link)
            network.run()
    return network


class SitesOnTape:
    """A site for each agent of a tape, after its first pull of every arm; ``noise`` is in steps."""

    def __init__(self, tape, noise, policy, make_network=in_memory, counts="sites"):
        _, agents, num_arms = tape.rewards.shape
        self.tape, self._noise = tape, noise
        self.pulls, self._current = np.zeros((agents, num_arms), int), (0, 0)
        self.names = [f"a{i}" for i in range(agents)]
        arms = tuple(f"arm {k}" for k in range(num_arms))
        self._factors = Factors.of({"s": [str(s) for s in range(tape.num_strata)]}) if tape.num_strata else None
        self.terms = Federation(
            "tape", arms, *tape.reward_range, policy, counts=counts, max_agents=agents, context=self._factors
        )
        links = [(self.names[i], self.names[j]) for i, j in tape.graph.edges]
        self.network = all_from_the_start(make_network(self.terms, links, self._from_tape))
        for i, name in enumerate(self.names):
            for k in range(num_arms):  # Alg. 1, line 1: all are unknown
                draws = SiteDraws((0.0,) * num_arms, self._draw_of(i, k))
                decision = self.network.decide(name, draws, self._context(k, i))
                assert decision.arm == k
                self._report(0, i, decision)

    def _draw_of(self, i, arm):
        """A draw with which the urn of the first decisions gives this arm."""
        if self._factors is None:
            return 0.0
        s, num_arms = int(self.tape.strata[arm, i]), self.pulls.shape[1]
        n = [row[s] for row in self.network.site(self.names[i])._player.me.tried_in]
        comb = ((u + 0.5) / (32 * num_arms) for u in range(32 * num_arms))
        return next(u for u in comb if drawn(n, [True] * num_arms, n, False, 0, u) == arm)

    @property
    def tape_strata(self):
        return range(self.tape.num_strata)

    @property
    def sites(self):
        return [self.network.site(name) for name in self.names]

    def play(self, t, acts=lambda t, i: True):
        """One round; the arms of the agents that act."""
        tape, decisions = self.tape, {}
        for i, name in enumerate(self.names):
            if acts(t, i):
                draws = SiteDraws(tuple(tape.normals[t - 1, i]), tape.picks[t - 1, i])
                decisions[i] = self.network.decide(name, draws, self._context(tape.rewards.shape[2] - 1 + t, i))
        self.network.exchange(*(self.names[i] for i in tape.edges[t - 1]))  # before this round's releases
        self.network.run()
        for i, decision in decisions.items():
            self._report(t, i, decision)
        return {i: decision.arm for i, decision in decisions.items()}

    def _context(self, decision, i):
        return None if self._factors is None else self._factors.levels(int(self.tape.strata[decision, i]))

    def _report(self, t, i, decision):
        self._drawn = 0
        self._current = i, decision.arm
        self.pulls[i, decision.arm] += 1
        site = self.network.site(self.names[i])
        site._believe = lambda: None  # the simulator's release before they exchange
        self.network.report(self.names[i], decision.id, self.tape.rewards[t, i, decision.arm])
        del site._believe

    def _from_tape(self, _, count):
        i, k = self._current
        if self._factors is not None:  # of a cell, named by its last reward; a pooled sum by its first cell
            me = self.network.site(self.names[i])._player.me
            due = [r for part in (ALONE, POOLED) for r in self.tape_strata if me.part[r] == part and me.due[r]]
            s = due[self._drawn]
            self._drawn += 1
            return [int(self._noise[me.due[s], i, s * self.pulls.shape[1] + k])] * count
        return [int(self._noise[self.pulls[i, k], i, k])] * count
