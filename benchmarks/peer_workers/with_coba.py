"""coba: ``predict`` and ``learn``, one pull at a time. It has UCB1-Tuned, for rewards in [0, 1], not UCB1."""

from importlib.metadata import version

from coba import BanditUCBLearner
from task import NUM_ARMS, measure, one_by_one


def trial(seed: int) -> float:
    """Play one trial; its regret."""
    learner, arms = BanditUCBLearner(seed=seed), list(range(NUM_ARMS))
    return one_by_one(
        lambda: learner.predict(None, arms)[0], lambda arm, reward: learner.learn(None, arm, reward, 1.0), seed
    )


def play(trials: int, seed: int) -> float:
    """Mean regret."""
    return sum(trial(1000 * seed + it) for it in range(trials)) / trials


if __name__ == "__main__":
    measure(play, "UCB1-Tuned", {"coba": version("coba")})
