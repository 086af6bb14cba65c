"""Our engine, by the call that a user makes: ``simulate`` with its result. Arguments: a policy and the agents."""

import sys
import warnings
from importlib.metadata import version

import numpy as np
from task import HORIZON, MEANS, measure

from fedbandit import GossipUCB, LocalUCB, Problem, simulate
from fedbandit.world import graph

NAME, AGENTS = sys.argv.pop(1), int(sys.argv.pop(1))
POLICY = {"LocalUCB": LocalUCB(), "GossipUCB": GossipUCB()}[NAME]


def play(trials: int, seed: int) -> float:
    """Mean regret per agent."""
    network = graph.path(AGENTS)
    problem = Problem.gaussian(np.tile(MEANS, (AGENTS, 1)), network)
    result = simulate(problem, POLICY, HORIZON, trials=trials, seed=seed, checkpoints=[HORIZON], threads=1)
    return float(result.dataset["regret"].mean())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    measure(
        play,
        {"LocalUCB": "UCB1", "GossipUCB": "Gossip_UCB on a path"}[NAME],
        {"fedbandit": version("fedbandit")},
        AGENTS,
    )
