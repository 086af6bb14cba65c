"""Measures a checkout's engine on request: reads a policy's name per line, answers with agent-pulls per second.

``engine.py --against CHECKOUT`` runs one worker for each checkout and asks them in turns, so that both see the machine
in the same mood. It uses the public interface only, which both have.
"""

import sys
import warnings
from time import perf_counter, process_time

from fedbandit import (
    GSE,
    AdaPUCB,
    CentralUCB,
    CoopUCB2,
    DistUCB,
    Fed1UCB,
    FedBatch,
    FedUCB,
    GossipUCB,
    LocalUCB,
    Problem,
    simulate,
)

AGENTS = ARMS = 10
POLICIES = {
    "Gossip_UCB": GossipUCB(),
    "Fed_UCB": FedUCB(1.0, assume_sensitivity=1.0),
    "FedBatch Thompson": FedBatch(1.0, assume_sensitivity=1.0),
    "FedBatch UCB": FedBatch(1.0, index="ucb", assume_sensitivity=1.0),
    "FedBatch KL": FedBatch(1.0, index="kl"),
    "Local UCB1": LocalUCB(),
    "Central UCB": CentralUCB(),
    "Central Thompson": CentralUCB(index="thompson"),
    "Central KL": CentralUCB(index="kl"),
    "Dist-UCB": DistUCB(),
    "coop-UCB2": CoopUCB2(),
    "Fed1-UCB": Fed1UCB(),
    "GSE": GSE(),
    "AdaP-UCB": AdaPUCB(1.0, assume_sensitivity=1.0),
}


def run(name: str, horizon: int) -> float:
    """Seconds of one trial on one core."""
    rewards = "bernoulli" if "KL" in name else "gaussian"
    problem = Problem.random(AGENTS, ARMS, "path", seed=0, rewards=rewards)
    start = perf_counter()
    simulate(problem, POLICIES[name], horizon, trials=1, checkpoints=[horizon], threads=1)
    return perf_counter() - start


def main() -> None:
    """Answer requests: 'first NAME' with the CPU seconds of the first call, 'speed NAME HORIZON' with a speed."""
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        what, *rest = line.rstrip("\n").split("\t")
        if what == "first":
            start = process_time()
            run(rest[0], 10)
            answer = process_time() - start
        else:
            horizon = int(rest[1])
            answer = AGENTS * horizon / run(rest[0], horizon)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
