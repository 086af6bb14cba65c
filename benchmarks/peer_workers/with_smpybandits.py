"""SMPyBandits: ``choice`` and ``getReward``, one pull at a time."""

import contextlib
import io
import warnings
from importlib.metadata import version

with contextlib.redirect_stdout(io.StringIO()):  # it prints about packages that it would like, too
    warnings.simplefilter("ignore")
    import numpy as np
    import scipy
    from SMPyBandits.Policies import UCB

from task import NUM_ARMS, measure, one_by_one


def trial(seed: int) -> float:
    """Play one trial; its regret."""
    np.random.seed(seed)  # ties are broken by the global source
    policy = UCB(NUM_ARMS)
    policy.startGame()
    return one_by_one(policy.choice, policy.getReward, seed)


def play(trials: int, seed: int) -> float:
    """Mean regret."""
    with np.errstate(all="ignore"):  # it divides by zero pulls
        return sum(trial(1000 * seed + it) for it in range(trials)) / trials


if __name__ == "__main__":
    measure(play, "UCB1", {"SMPyBandits": version("SMPyBandits"), "SciPy": scipy.__version__})
