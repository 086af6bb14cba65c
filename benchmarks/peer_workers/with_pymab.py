"""pymab. The argument says what: its policy one pull at a time, whole experiments, or their Rust core alone.

``Experiment.run`` spends nearly all its time checking its own result in Python: so the core, which is private, has a
row of its own.
"""

import sys
from importlib.metadata import version

import numpy as np
from pymab import BanditEnvironment, Experiment, ExperimentConfig, GaussianReward
from pymab._backend import run_native_experiment
from pymab.policies import UCBPolicy
from task import HORIZON, MEANS, NUM_ARMS, measure, one_by_one

WHAT = sys.argv.pop(1)


def trial(seed: int) -> float:
    """Play one trial; its regret."""
    policy, source = UCBPolicy(n_arms=NUM_ARMS), np.random.default_rng(seed)
    return one_by_one(
        lambda: policy.select_action(rng=source), lambda arm, reward: policy.update(action=arm, reward=reward), seed
    )


def play(trials: int, seed: int) -> float:
    """Mean regret."""
    if WHAT == "policy":
        return sum(trial(1000 * seed + it) for it in range(trials)) / trials
    environment = BanditEnvironment(means=np.array(MEANS), reward_model=GaussianReward(std=1.0))
    policies = {"ucb": UCBPolicy(n_arms=NUM_ARMS)}
    if WHAT == "experiment":
        config = ExperimentConfig(horizon=HORIZON, n_replicates=trials, seed=seed, backend="rust")
        result = Experiment(environment=environment, policies=policies, config=config).run()
    else:
        result = run_native_experiment(
            environment=environment,
            policies=policies,
            horizon=HORIZON,
            n_replicates=trials,
            seed=seed,
            reward_coupling="common",
            record_contexts=False,
        )
    return float((MEANS[-1] - np.asarray(result.expected_rewards)).sum() / trials)


if __name__ == "__main__":
    measure(play, "UCB1", {"pymab": version("pymab")})
