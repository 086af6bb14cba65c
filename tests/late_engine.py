"""Late rewards on a tape, three times: in plain Python slot by slot, compiled, and at live sites."""

from collections import deque
from dataclasses import replace
from math import floor, log
from typing import NamedTuple

import numpy as np

from fedbandit import Problem
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.engine import layout, streams
from fedbandit.policies.protocol import Setting, page_on
from fedbandit.simulation.replay import _settings
from fedbandit.simulation.run import compiled_policy
from fedbandit.testing.memory_network import MemoryNetwork
from fedbandit.world.delays import ByOutcome, Geometric
from plain_engine import PlainEngine
from sites_on_tape import all_from_the_start


def late_problem(tape, **late):
    """The world of a tape, with late rewards."""
    means = np.zeros(tape.rewards.shape[1:])
    return Problem.gaussian(means, tape.graph, tape.sigma, tape.reward_range, gossip=tape.gossip, **late)


def settings_of(tape, problem) -> list[Setting]:
    """What agents know: as at a live site, if the tape is bounded."""
    return _settings(tape, problem)


def delay_of(problem, i, arm, slot, reward):
    """The delay of a slot by its definition, from the simulator's own stream of seed 0, trial 0."""
    if problem.delays is None:
        return 0
    delays = problem.delays[i]
    if isinstance(delays, ByOutcome):
        low, high = problem.reward_range
        delays = delays.high if reward > (low + high) / 2 else delays.low
    if not isinstance(delays, Geometric):
        return delays.rounds
    name = streams.stream(np.uint64(0), np.uint64(0), streams.DELAYS, np.uint64(i), np.uint64(arm))
    bits = streams.draw(np.uint64(name), np.uint64(slot))
    p = 1.0 / (1.0 + delays.mean)
    return floor(log(1.0 - streams.uniform(np.uint64(bits))) / log(1.0 - p))


class Slot(NamedTuple):
    t: int
    reward: float
    delay: int


class LateEngine(PlainEngine):
    """The plain engine with slots: each arm's decisions in order, looked at again in every round."""

    def __init__(self, tape, policy, problem, **options):
        terms = [policy.terms(setting) for setting in settings_of(tape, problem)]
        # Only to look at: radii of unobserved arms are none.
        page = page_on(policy.page(), tape.gossip)._replace(radius=None, margin=None)
        rule = policy.links(settings_of(tape, problem)[0]) if hasattr(policy, "links") else None
        super().__init__(tape, page, terms, rule, **options)
        self.problem, self.defaults, self.most_at_once = problem, 0, 0
        self.told = {}  # of a version, of which arms there was anything to tell
        self.slots = [[deque() for _ in self.arms] for _ in self.agents]
        self.observed = [[0 for _ in self.arms] for _ in self.agents]

    def rounds(self):
        before = self._averages()
        for i in self.agents:
            for k in self.arms:
                self._hand_out(0, i, k)
                self.seen[i].n_max[k] = int(self.page.announced is not None)
            for k, change in self._settle(0, i).items():
                if not self.spreads:
                    self._add(i, k, change)
        if self.spreads:
            self._publish()
        self._believe(before)
        yield self._shown(0, [])
        for t in range(1, self.tape.horizon + 1):
            yield self._shown(t, self._round(t))

    def _round(self, t):
        before, announces = self._averages(), self.page.announced is not None
        n_max = self._heard_from_neighbours() if announces and not self.by_exchange else None
        arms = [self._decide(t, i) for i in self.agents]
        for i, arm in enumerate(arms):
            self._hand_out(t, i, arm)
        if announces and not self.spreads:
            n_max = n_max or self._heard_by_exchange(t)
            for i in self.agents:
                self.seen[i].n_max[:] = n_max[i]
        if self.spreads:
            self._tell_counts()
            self._pass_on(t)
        changes = [self._settle(t, i) for i in self.agents]
        if self.spreads:
            self._publish()
            self._count_on_boards()
        elif self.page.network == "gossip":
            self._mix(t)
        for i in self.agents if not self.spreads else ():
            for arm, change in changes[i].items():
                self._add(i, arm, change)
        if self.page.network == "consensus":
            self._mix(t)
        self._believe(before)
        return arms

    def _combined(self, i, board, k, heard):
        """Whoever has no reward of an arm yet has published nothing of it."""
        if self.page.combine is not None:
            return super()._combined(i, board, k, heard)
        rows = [board[j][1][k] for j in sorted(board) if self.told[j, board[j][0]][k]]
        columns = range(len(self.page.averaged))
        return [sum(row[c] for row in rows) / len(rows) if rows else 0.0 for c in columns]

    def _tell_counts(self):
        """A live site's round is a second: after its decision a bulletin says how many there were."""
        for i in self.agents if self.page.announced is not None else ():
            version, rows = self.boards[i][i]
            self.boards[i][i] = version + 1, rows
            self.told[i, version + 1], self.counts[i, version + 1] = self.told[i, version], self._announced()[i]

    def _publish(self):
        for i in self.agents:
            self.told[i, self.boards[i].get(i, (0, None))[0] + 1] = [n > 0 for n in self.observed[i]]
        super()._publish()

    def _decide(self, t, i):
        if self.page.unknown is None and 0 in self.observed[i]:
            return self._from_urn(self.me[i].tried, self.observed[i], self.tape.picks[t - 1, i])
        return super()._decide(t, i)

    def _from_urn(self, tried, observed, u):
        """16 balls, 8, 4, 2 or 1 of an arm without a reward by how far it is ahead; one of any other."""
        least = min(tried[k] for k in self.arms if observed[k] == 0)
        start = next(k for k in self.arms if observed[k] == 0 and tried[k] == least)
        urn = []
        for k in [*self.arms[start:], *self.arms[:start]]:
            urn += [k] * (1 if observed[k] else (16, 8, 4, 2, 1)[min(tried[k] - least, 4)])
        return urn[int(u * len(urn))]

    def _hand_out(self, t, i, arm):
        reward, slot = float(self.tape.rewards[t, i, arm]), self.me[i].tried[arm]
        self.slots[i][arm].append(Slot(t, reward, delay_of(self.problem, i, arm, slot, reward)))
        self.me[i].tried[arm] += 1

    def _settle(self, t, i):
        """Observe what is due before round t + 1; what has changed in what the agent publishes, by arm."""
        page, me, terms, changes = self.page, self.me[i], self.terms[i], {}
        window, played = self.problem.reward_window, 0
        for arm in self.arms:
            slots, before = self.slots[i][arm], page.published(me, terms, arm)
            while slots:
                slot = slots[0]
                if (t + 1 - slot.t < window) if window else (t < slot.t + slot.delay):
                    break
                slots.popleft()
                missing = 0 < window <= slot.delay
                self.defaults += missing
                due = 0 if page.noise_due is None else page.noise_due(me, terms, arm)
                ends = due if isinstance(due, tuple) else (due,)
                noise = tuple(self._noise(i, arm, end) for end in ends)
                reward = self.problem.default_reward if missing else slot.reward
                page.observe(me, terms, arm, reward, noise if isinstance(due, tuple) else noise[0])
                self.observed[i][arm] += 1
                played += 1
                changes[arm] = [y - x for x, y in zip(before, page.published(me, terms, arm), strict=True)]
        self.most_at_once = max(self.most_at_once, played if t > 0 else 0)
        return changes

    def _believe(self, before):
        if self.page.unknown is None:  # an agent believes nothing of an arm of which it has no reward
            after, num_arms = self._averages(), len(self.arms)
            for i in self.agents:
                for k in self.arms:
                    if after[i][k::num_arms] != before[i][k::num_arms] and self.observed[i][k] and self.page.believe:
                        self.page.believe(self.me[i], self.terms[i], self.seen[i], k)
            return
        super()._believe(before)


class Compiled(NamedTuple):
    arms: list  # of round t
    theta: np.ndarray
    averages: np.ndarray
    agents: np.ndarray


def compiled_rounds(tape, policy, problem):
    """The simulator's rounds on a tape; ``replay`` itself knows no late rewards."""
    horizon, (agents, arms) = tape.horizon, tape.rewards.shape[1:]
    plan = compiled_policy(policy, problem, horizon, settings=settings_of(tape, problem))
    population = layout.new_population(plan.page, plan.terms, arms, plan.rounds_of_waiting, releasing=plan.releasing)
    fixed = layout.TapeArrays(True, tape.rewards, tape.edges, tape.picks, True, tape.noise, True, tape.normals)
    zero, theta, world = np.uint64(0), np.zeros((agents, arms)), layout.world_of(problem)
    links, columns = plan.links[0][1], arms * len(plan.page.averaged)
    for t in range(horizon + 1):
        plan.play_rounds(t, t, zero, zero, population, world, links, fixed, theta, problem.arm_means, np.zeros(agents))
        chosen = population.steps["arm"].astype(int).tolist() if t else []
        yield Compiled(chosen, theta.copy(), population.averages[:, :columns].copy(), population.agents.copy())


class LateSites:
    """Live sites on a tape whose rewards are reported when they come; a round is a second."""

    def __init__(self, tape, noise, policy, problem):
        self.tape, self._noise, self.problem = tape, noise, problem
        _, agents, num_arms = tape.rewards.shape
        self.names = [f"a{i}" for i in range(agents)]
        terms = Federation(
            "tape",
            tuple(f"arm {k}" for k in range(num_arms)),
            *tape.reward_range,
            policy,
            counts="sites",
            max_agents=agents,
        )
        if problem.reward_window:
            window, default = float(problem.reward_window), problem.default_reward
            terms = replace(terms, reward_window=window, default_reward=default)
        links = [(self.names[i], self.names[j]) for i, j in tape.graph.edges]
        self.network = all_from_the_start(MemoryNetwork(terms, links, noise=self._from_tape))
        for i, name in enumerate(self.names):
            self._watch(i, self.network.site(name)._player._own)
        self.due, self.late = {}, 0  # round: (agent, decision, reward)
        for i in range(agents):
            for k in range(num_arms):
                assert self._decide(0, i, SiteDraws((0.0,) * num_arms, 0.0)) == k
        self._report(0)

    @property
    def sites(self):
        return [self.network.site(name) for name in self.names]

    def play(self, t, before_exchange=lambda: None):
        """One round; the arms."""
        tape = self.tape
        self.network.now = float(t)
        arms = [
            self._decide(t, i, SiteDraws(tuple(tape.normals[t - 1, i]), tape.picks[t - 1, i]))
            for i in range(len(self.names))
        ]
        before_exchange()
        self.network.exchange(*(self.names[i] for i in tape.edges[t - 1]))
        self.network.run()
        self._report(t)
        return arms

    def _decide(self, t, i, draws):
        decision = self.network.decide(self.names[i], draws)
        arm, reward = decision.arm, float(self.tape.rewards[t, i, decision.arm])
        delay = delay_of(self.problem, i, arm, self.network.site(self.names[i]).tried[arm] - 1, reward)
        self.due.setdefault(t + delay, []).append((i, decision, reward))
        return arm

    def _report(self, t):
        for i, decision, reward in self.due.pop(t, []):
            self.late += not self.network.report(self.names[i], decision.id, reward)

    def _watch(self, i, mechanism):
        """Know whose noise is drawn."""
        take = mechanism.take

        def taking(arm, reward):
            self._current = i, arm, mechanism.me.n[arm] + 1
            return take(arm, reward)

        mechanism.take = taking

    def _from_tape(self, _, count):
        i, k, n = self._current
        return [int(self._noise[n, i, k])] * count
