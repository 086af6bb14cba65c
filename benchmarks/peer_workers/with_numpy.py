"""UCB1 as one writes it with NumPy, vectorised over arms and trials. The number of trials at once is an argument."""

import sys

import numpy as np
from task import HORIZON, MEANS, NUM_ARMS, measure

AT_ONCE = int(sys.argv.pop(1))


def block(seed: int) -> float:
    """Play some trials in lock step; their mean regret."""
    source, means = np.random.default_rng(seed), np.array(MEANS)
    n, total = np.ones((AT_ONCE, NUM_ARMS)), means + source.standard_normal((AT_ONCE, NUM_ARMS))
    trial, lost = np.arange(AT_ONCE), AT_ONCE * (means.max() - means).sum()
    for t in range(NUM_ARMS, HORIZON):
        arms = (total / n + np.sqrt(2.0 * np.log(t) / n)).argmax(axis=1)
        total[trial, arms] += means[arms] + source.standard_normal(AT_ONCE)
        n[trial, arms] += 1.0
        lost += (means.max() - means[arms]).sum()
    return lost / AT_ONCE


def play(trials: int, seed: int) -> float:
    """Mean regret of at least so many trials, in whole blocks."""
    return sum(block(1000 * seed + it) for it in range(trials)) / trials


if __name__ == "__main__":
    measure(play, "UCB1", {"NumPy": np.__version__}, agents=AT_ONCE)
