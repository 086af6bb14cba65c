"""Vowpal Wabbit: ``predict`` and ``learn`` on text examples without features. It has no UCB1: epsilon-greedy."""

from importlib.metadata import version
from random import Random

from task import NUM_ARMS, measure, one_by_one
from vowpalwabbit import Workspace


def trial(seed: int) -> float:
    """Play one trial; its regret."""
    workspace, source, arms = Workspace(f"--cb_explore {NUM_ARMS} --epsilon 0.1 --quiet"), Random(seed), range(NUM_ARMS)
    chances = [0.0]

    def choose() -> int:
        chances[:] = workspace.predict("| a")
        return source.choices(arms, chances)[0]

    lost = one_by_one(choose, lambda arm, reward: workspace.learn(f"{arm + 1}:{-reward}:{chances[arm]} | a"), seed)
    workspace.finish()
    return lost


def play(trials: int, seed: int) -> float:
    """Mean regret."""
    return sum(trial(1000 * seed + it) for it in range(trials)) / trials


if __name__ == "__main__":
    measure(play, "epsilon-greedy (0.1)", {"Vowpal Wabbit": version("vowpalwabbit")})
