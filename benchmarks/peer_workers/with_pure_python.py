"""UCB1 as one writes it in plain Python: lists and ``math``."""

import math
import platform
from random import Random

from task import HORIZON, MEANS, NUM_ARMS, measure


def trial(seed: int) -> float:
    """Play one trial; its regret."""
    gauss, log, sqrt = Random(seed).gauss, math.log, math.sqrt
    n, mean, lost = [0] * NUM_ARMS, [0.0] * NUM_ARMS, 0.0
    for t in range(HORIZON):
        if t < NUM_ARMS:
            arm = t
        else:
            log_t, arm, highest = 2.0 * log(t), 0, -math.inf
            for k in range(NUM_ARMS):
                index = mean[k] + sqrt(log_t / n[k])
                if index > highest:
                    arm, highest = k, index
        reward = gauss(MEANS[arm], 1.0)
        n[arm] += 1
        mean[arm] += (reward - mean[arm]) / n[arm]
        lost += MEANS[-1] - MEANS[arm]
    return lost


def play(trials: int, seed: int) -> float:
    """Mean regret."""
    return sum(trial(1000 * seed + it) for it in range(trials)) / trials


if __name__ == "__main__":
    measure(play, "UCB1", {"Python": platform.python_version()})
