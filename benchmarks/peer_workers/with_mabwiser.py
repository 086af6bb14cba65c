"""MABWiser: ``predict`` and ``partial_fit``, one pull at a time. Its UCB1 with alpha = 1 is ours."""

from importlib.metadata import version
from random import Random

from mabwiser.mab import MAB, LearningPolicy
from task import MEANS, NUM_ARMS, measure, one_by_one


def trial(seed: int) -> float:
    """Play one trial; its regret. MABWiser learns the first pull of each arm in one ``fit``."""
    gauss, arms = Random(-seed - 1).gauss, list(range(NUM_ARMS))
    mab = MAB(arms, LearningPolicy.UCB1(alpha=1.0), seed=seed)
    mab.fit(arms, [gauss(MEANS[arm], 1.0) for arm in arms])
    return one_by_one(mab.predict, lambda arm, reward: mab.partial_fit([arm], [reward]), seed)


def play(trials: int, seed: int) -> float:
    """Mean regret."""
    return sum(trial(1000 * seed + it) for it in range(trials)) / trials


if __name__ == "__main__":
    measure(play, "UCB1 (alpha 1)", {"MABWiser": version("mabwiser")})
