"""UCB1 as one writes it by hand for Numba: the fastest program of this task that is still a page long."""

import math

import numba
import numpy as np
from numba import njit
from task import HORIZON, MEANS, measure


@njit(fastmath=True)
def trials_of(means: np.ndarray, horizon: int, trials: int, seed: int) -> float:
    """The regret of some trials, one after the other."""
    np.random.seed(seed)  # Numba's own
    lost, num_arms = 0.0, len(means)
    best = means.max()
    for _ in range(trials):
        n, mean = np.zeros(num_arms), np.zeros(num_arms)
        for t in range(horizon):
            arm = t
            if t >= num_arms:
                log_t, arm, highest = 2.0 * math.log(t), 0, -math.inf
                for k in range(num_arms):
                    index = mean[k] + math.sqrt(log_t / n[k])
                    if index > highest:
                        arm, highest = k, index
            reward = np.random.normal(means[arm], 1.0)
            n[arm] += 1.0
            mean[arm] += (reward - mean[arm]) / n[arm]
            lost += best - means[arm]
    return lost


def play(trials: int, seed: int) -> float:
    """Mean regret."""
    return trials_of(np.array(MEANS), HORIZON, trials, seed) / trials


if __name__ == "__main__":
    measure(play, "UCB1", {"Numba": numba.__version__})
