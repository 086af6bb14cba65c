"""Measures what an agent costs when there are many: CPU time per agent-pull and memory per agent, by N.

``python benchmarks/million.py [--sizes 10 1000 100000]``. All sizes of a policy are played in turn in one process,
several times, and the least CPU time of each counts: on a busy machine only ratios mean something. Memory is that of
the arrays of one trial, per agent. With ``--matchings``: the share of agents that a round's matching reaches, beside a
greedy one in a random order of edges, as it was before.
"""

import argparse
import time
import warnings

import numpy as np

from fedbandit import FedBatch, GossipUCB, Graph, LocalUCB, Problem
from fedbandit.engine.layout import new_population, no_tape, with_own_scratch, world_of
from fedbandit.simulation.run import compiled_policy
from fedbandit.world import graph

POLICIES = {
    "Local UCB": (LocalUCB(), "gaussian"),
    "Gossip_UCB": (GossipUCB(), "gaussian"),
    "FedBatch Thompson, eps=1": (FedBatch(1.0, index="thompson"), "bernoulli"),
}
ARMS, PULLS, REPEATS = 10, 400_000, 6


def arrays_of(value: object) -> dict[int, int]:
    """The bytes of all arrays in nested tuples, by the memory that they are views of."""
    if isinstance(value, np.ndarray):
        whole = value
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        return {id(whole): whole.nbytes}
    return {key: size for each in value for key, size in arrays_of(each).items()} if isinstance(value, tuple) else {}


class Trial:
    """One trial that goes on as long as it is asked to."""

    def __init__(self, num_agents: int, policy: object, rewards: str) -> None:
        """On a random regular graph of degree 4, with a matching in every round."""
        on = graph.random_regular(num_agents, 4)
        problem = Problem.random(num_agents, ARMS, on, 1, rewards, same_means=True, edges_per_round="matching")
        plan = compiled_policy(policy, problem, 10**6)
        links = with_own_scratch(plan.links[0][1])
        population, theta = new_population(plan.page, plan.terms, ARMS), np.zeros((num_agents, ARMS))
        world, none = world_of(problem), np.zeros(num_agents)
        self.memory = sum(arrays_of((population, links, world, theta)).values()) / num_agents
        self.done, self.num_agents = -1, num_agents
        zero = np.uint64(0)
        self._play = lambda first, last: plan.play_rounds(
            first, last, zero, zero, population, world, links, no_tape(), theta, problem.arm_means, none
        )

    def nanoseconds(self, rounds: int) -> float:
        """Play on; CPU time per agent-pull."""
        began = time.thread_time()
        self._play(self.done + 1, self.done + rounds)
        self.done += rounds
        return 1e9 * (time.thread_time() - began) / (rounds * self.num_agents)


def greedy_share(on: Graph, source: np.random.Generator) -> float:
    """The share of agents with a partner, if edges are taken in a random order."""
    free = np.ones(on.num_agents, bool)
    for i, j in source.permutation(on.edge_array).tolist():
        if free[i] and free[j]:
            free[i] = free[j] = False
    return 1.0 - float(free.mean())


def matchings() -> None:
    """Print both shares."""
    from fedbandit import simulate

    for text in ("ring:1000", "random_regular:1000:4", "random_regular:1000:10", "scale_free:1000:3", "grid:30x30"):
        on = graph.parse(text)
        problem = Problem.random(on.num_agents, 2, on, 1, edges_per_round="matching")
        sent = simulate(problem, GossipUCB(), 200, 1, checkpoints=[200], keep="aggregates").messages.values[0, 0, -1]
        source = np.random.default_rng(1)
        before = np.mean([greedy_share(on, source) for _ in range(50)])
        print(f"{text:24} matched in a round: {sent / 200:.4f}; greedy in random order: {before:.4f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 1_000, 100_000])
    parser.add_argument("--matchings", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.matchings:
        matchings()
        return
    for name, (policy, rewards) in POLICIES.items():
        trials = [Trial(n, policy, rewards) for n in given.sizes]
        for trial in trials:
            trial.nanoseconds(20)
        least = [
            min(each)
            for each in zip(
                *([t.nanoseconds(max(2, PULLS // t.num_agents)) for t in trials] for _ in range(REPEATS)), strict=True
            )
        ]
        for trial, cost in zip(trials, least, strict=True):
            ratio = cost / least[0]
            print(
                f"{name:26} N = {trial.num_agents:9,}: {cost:6.1f} ns per agent-pull, {ratio:4.2f} times the first; "
                f"{trial.memory:6.0f} bytes per agent",
                flush=True,
            )


if __name__ == "__main__":
    main()
