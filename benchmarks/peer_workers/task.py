"""The task that every worker plays, and how its cost is measured. Standard library only: each peer's Python runs it.

Ten arms with means 0, 0.1, ..., 0.9, Gaussian rewards with standard deviation 1, 10,000 rounds, UCB1: the arm with the
highest mean + sqrt(2 log t / n). The rewards are drawn by the worker and count towards its time.
"""

import argparse
import json
import resource
from collections.abc import Callable
from random import Random

NUM_ARMS = 10
MEANS = [k / 10 for k in range(NUM_ARMS)]
HORIZON = 10_000


def cpu_seconds() -> float:
    """User and system time of this process, all its threads, and its children that have ended."""
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(it.ru_utime + it.ru_stime for it in used)


def one_by_one(choose: Callable[[], int], learn: Callable[[int, float], None], seed: int) -> float:
    """Play one trial with a peer that decides one pull at a time; its regret."""
    gauss, lost = Random(seed).gauss, 0.0
    for _ in range(HORIZON):
        arm = choose()
        learn(arm, gauss(MEANS[arm], 1.0))
        lost += MEANS[-1] - MEANS[arm]
    return lost


def measure(play: Callable[[int, int], float], policy: str, versions: dict[str, str], agents: int = 1) -> None:
    """Print agent-pulls, their CPU seconds and the mean regret of an agent, as JSON.

    ``play(trials, seed)`` plays so many trials and answers with the mean regret of an agent. It gets more trials until
    they take long enough; that call alone is counted. A first one warms up: imports, compilation.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    play(1, given.seed)
    trials, cpu = 1, 0.0
    while True:
        began = cpu_seconds()
        regret = play(trials, given.seed)
        cpu = cpu_seconds() - began
        if cpu >= given.seconds:
            break
        trials = trials * 2 if cpu < given.seconds / 10 else int(trials * 1.2 * given.seconds / cpu) + 1
    pulls = trials * agents * HORIZON
    print(json.dumps({"policy": policy, "versions": versions, "pulls": pulls, "cpu": cpu, "regret": regret}))
