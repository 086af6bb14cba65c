"""river: ``pull`` and ``update``, one pull at a time. Its UCB with delta = 1 is UCB1."""

from importlib.metadata import version

from river import bandit
from task import NUM_ARMS, measure, one_by_one


def trial(seed: int) -> float:
    """Play one trial; its regret."""
    policy, arms = bandit.UCB(delta=1.0, seed=seed), list(range(NUM_ARMS))
    return one_by_one(lambda: policy.pull(arms), policy.update, seed)


def play(trials: int, seed: int) -> float:
    """Mean regret."""
    return sum(trial(1000 * seed + it) for it in range(trials)) / trials


if __name__ == "__main__":
    measure(play, "UCB1 (delta 1)", {"river": version("river")})
