"""Shares of arms in the simulator: the same rule as at a live site, for every policy that can have it.

Counts are compared by Bernstein's inequality: each comparison fails by chance in one of 10^10 runs; seeds are fixed.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedbandit import GSE, AdaPUCB, FedBatch, GossipUCB, InvalidArgument, Problem, Result, Shares, simulate
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.engine import layout
from fedbandit.experiments.experiment import ExperimentError, read_experiment, read_sweep
from fedbandit.policies.plain import narrowed, widen
from fedbandit.policies.protocol import time_of
from fedbandit.simulation.run import check_call, compiled_policy
from fedbandit.testing.memory_network import MemoryNetwork
from fedbandit.world import graph
from late_engine import settings_of
from plain_engine import PlainEngine
from sites_on_tape import all_from_the_start, tape_on_the_grid

CONTROL = Shares(1, 0.25, 0.05)
PROBLEM = Problem.random(3, 3, graph.path(3), seed=4, rewards="bernoulli")
KL, THOMPSON = FedBatch(1.0, "kl", first_batch=4), FedBatch(1.0, first_batch=4)


def tolerance(p, asked):
    many = math.log(2e10)
    return math.sqrt(2.0 * p * (1.0 - p) * asked * many) + 2.0 * many / 3.0


# ---------------------------------------------------------------- plain, compiled and live


def shared(u, shares, arms, said):
    """The rule, written out: intervals of [0, 1) one after the other, the control arm's first."""
    edges, start = [], 0.0
    if shares.control is not None:
        edges.append((shares.control, shares.control_share))
    edges += [(k, shares.least_share) for k in arms if k != shares.control]
    for arm, floor in edges:
        if start <= u < start + floor:
            return arm
        start += floor
    return said


class SharingEngine(PlainEngine):
    """Plain Python; decisions by share."""

    def __init__(self, tape, page, terms, shares, draws, **options):
        super().__init__(tape, page, terms, **options)
        self.by_share, self.draws = shares, draws

    def _decide(self, t, i):
        others = [k for k in self.arms if k != self.by_share.control]
        draws = SimpleNamespace(u=self.tape.picks[t - 1, i], normals=self.tape.normals[t - 1, i].tolist())
        me, seen = narrowed(self.page, self.terms[i], self.me[i], self.seen[i], others)
        said = others[self.page.decide(me, self.terms[i], seen, time_of(t), draws)]
        widen(self.page, self.me[i], me, others)
        return shared(self.draws[t - 1, i], self.by_share, self.arms, said)


def compiled_arms(tape, policy, shares, draws):
    """The arms of the simulator's rounds on a tape."""
    agents, arms = tape.rewards.shape[1:]
    problem = Problem.gaussian(np.zeros((agents, arms)), tape.graph, 1.0, tape.reward_range, gossip=tape.gossip)
    plan = compiled_policy(policy, problem, tape.horizon, settings=settings_of(tape, problem), shares=shares)
    population = layout.new_population(plan.page, plan.terms, arms, shares=plan.shares, releasing=plan.releasing)
    fixed = layout.TapeArrays(True, tape.rewards, tape.edges, tape.picks, True, tape.noise, True, tape.normals, draws)
    zero, theta, world = np.uint64(0), np.zeros((agents, arms)), layout.world_of(problem)
    for t in range(tape.horizon + 1):
        links = plan.links[0][1]
        plan.play_rounds(t, t, zero, zero, population, world, links, fixed, theta, problem.arm_means, np.zeros(agents))
        if t > 0:
            yield population.steps["arm"].tolist()


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(THOMPSON, id="thompson"),
        pytest.param(KL, id="kl", marks=pytest.mark.slow),
        pytest.param(GossipUCB(), id="gossip_ucb", marks=pytest.mark.slow),
    ],
)
def test_decisions_by_share_in_plain_python_and_compiled(policy):
    """The same arms in every round. The arm that the index would choose among all is the control arm."""
    tape, _ = tape_on_the_grid(graph.path(3), 3, 400, 5, 0.0, 1.0, 1.0, "averages")
    tape.rewards[:, :, 1] = np.sqrt(tape.rewards[:, :, 1])
    draws = np.random.default_rng(6).random((400, 3))
    problem = Problem.gaussian(np.zeros((3, 3)), tape.graph, 1.0, tape.reward_range)
    terms = [policy.terms(setting) for setting in settings_of(tape, problem)]
    engine = SharingEngine(tape, policy.page(), terms, CONTROL, draws)
    rounds = engine.rounds()
    next(rounds)
    for t, (plain, compiled) in enumerate(zip(rounds, compiled_arms(tape, policy, CONTROL, draws), strict=True), 1):
        assert plain.arms == compiled, t
    assert min(min(me.tried) for me in engine.me) > 20


@pytest.mark.parametrize(
    "policy", [pytest.param(THOMPSON, id="thompson"), pytest.param(KL, id="kl", marks=pytest.mark.slow)]
)
def test_live_sites_share_as_the_simulator_does(policy):
    """The same arms in every round, on the same tape."""
    world, names = graph.path(3), ("a0", "a1", "a2")
    tape, noise = tape_on_the_grid(world, 3, 300, 5, 0.0, 1.0, 1.0)
    draws = np.random.default_rng(6).random((300, 3))
    shares, now = replace(CONTROL, control="arm 1"), {}
    pulls = np.zeros((3, 3), int)
    terms = Federation(
        "tape", ("arm 0", "arm 1", "arm 2"), 0.0, 1.0, policy, counts="sites", shares=shares, max_agents=3
    )
    network = MemoryNetwork(
        terms, [("a0", "a1"), ("a1", "a2")], noise=lambda _, count: [int(noise[pulls[now["at"]], *now["at"]])] * count
    )
    all_from_the_start(network)

    def play(t, i, given):
        decision = network.decide(names[i], given)
        return lambda: report(t, i, decision)

    def report(t, i, decision):
        now["at"] = i, decision.arm
        pulls[i, decision.arm] += 1
        network.report(names[i], decision.id, tape.rewards[t, i, decision.arm])
        return decision.arm

    for i in range(3):
        for k, share in enumerate((0.26, 0.0, 0.31)):  # each arm by its share
            assert play(0, i, SiteDraws((0.0,) * 3, 0.0, share))() == k
    for t, compiled in enumerate(compiled_arms(tape, policy, CONTROL, draws), 1):
        given = [SiteDraws(tuple(tape.normals[t - 1, i]), tape.picks[t - 1, i], draws[t - 1, i]) for i in range(3)]
        reports = [play(t, i, given[i]) for i in range(3)]
        network.exchange(*(names[i] for i in tape.edges[t - 1]))
        network.run()
        assert [told() for told in reports] == compiled, t


# ---------------------------------------------------------------- what simulate does


@pytest.mark.slow
def test_frequencies_are_the_shares():
    """The control arm's exactly its share; each other arm no less than its floor, and the index the rest."""
    result = simulate(PROBLEM, KL, 2000, 4, seed=2, checkpoints=1, shares=CONTROL)
    decisions = 2000 * 4 * 3
    pulls = result.pulls.isel(time=-1).sum(["trial", "agent"]).values - 12  # without the first ones
    for counts in pulls:
        assert counts.sum() == decisions
        assert abs(counts[1] - 0.25 * decisions) < tolerance(0.25, decisions)
        assert min(counts[0], counts[2]) > 0.05 * decisions - tolerance(0.05, decisions)
    assert result.experiment["shares"] == {"control": 1, "control_share": 0.25, "least_share": 0.05}


@pytest.mark.slow
def test_without_shares_nothing_changes_and_least_shares_are_kept():
    one, other = (simulate(PROBLEM, KL, 800, 2, seed=2, checkpoints=1, shares=shares) for shares in (None, CONTROL))
    assert "shares" not in one.experiment
    least = simulate(PROBLEM, KL, 4000, 4, seed=2, checkpoints=1, shares=Shares(least_share=0.2))
    counts = least.pulls.isel(time=-1, policy=0).sum(["trial", "agent"]).values - 12
    best = int(PROBLEM.best_arm)
    assert min(counts) > 0.2 * 48_000 - tolerance(0.2, 48_000)
    assert counts[best] > 0.5 * 48_000  # floor, and nearly all of the rest
    with pytest.raises(InvalidArgument, match="shares"):
        Result.concat([simulate(PROBLEM, KL, 800, range(1), checkpoints=1), other])


@pytest.mark.slow
def test_late_rewards_and_shares():
    """An arm without a reward that counts comes first, but never the control arm by that rule."""
    late = Problem.bernoulli(PROBLEM.means, graph.path(3), delays="fixed:30")
    result = simulate(late, GossipUCB(), 2000, 4, seed=3, checkpoints=1, shares=CONTROL)
    counts = result.pulls.isel(time=-1, policy=0).sum(["trial", "agent"]).values - 12
    assert abs(counts[1] - 0.25 * 24_000) < tolerance(0.25, 24_000)


def test_what_cannot_have_shares_is_refused():
    call = (1000, 1, 0, 1)
    with pytest.raises(InvalidArgument, match="shares must be left out for AdaP-UCB gossiped, eps=1, which pulls"):
        check_call(PROBLEM, AdaPUCB(1.0), *call, shares=CONTROL)
    with pytest.raises(InvalidArgument, match=r"shares must be left out for GSE.*count on each other's pulls"):
        check_call(PROBLEM, GSE(), *call, shares=CONTROL)
    with pytest.raises(InvalidArgument, match=r"shares.control must be a whole number from 0 to 2, not 3"):
        check_call(PROBLEM, KL, *call, shares=Shares(3, 0.2))
    with pytest.raises(InvalidArgument, match=r"shares.least_share must be below 0.25 for 3 arms, not 0.3"):
        check_call(PROBLEM, KL, *call, shares=Shares(0, 0.5, 0.3))
    with pytest.raises(InvalidArgument, match=r"shares must be Shares, or left out"):
        check_call(PROBLEM, KL, *call, shares=0.2)


FILE = """
graph = "path:3"
horizon = 100
[problem]
num_arms = 3
rewards = "bernoulli"
[[policies]]
kind = "fed_batch"
epsilon = 1.0
[shares]
"""


def test_an_experiment_file_has_shares(tmp_path):
    file = tmp_path / "shares.toml"
    file.write_text(FILE + "control = 1\ncontrol_share = 0.25\nleast_share = 0.05")
    assert read_experiment(file).shares == CONTROL
    file.write_text(FILE + "least_share = [0, 0.05]")
    assert [e.shares for e in read_sweep(file)] == [None, Shares(least_share=0.05)]
    assert [e.swept for e in read_sweep(file)] == [{"shares.least_share": 0}, {"shares.least_share": 0.05}]
    file.write_text(FILE + "control = 1")
    with pytest.raises(ExperimentError, match=r"shares.control_share must be above 0, where control is given"):
        read_experiment(file)
