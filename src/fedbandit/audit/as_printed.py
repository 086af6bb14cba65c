"""Attacks on what no live site runs: Algorithm 4 as printed, and Gaussian rewards without a range.

The simulator plays them, with OpenDP's noise on the tape. The attacker reads the victim's published means, which
``live_sites`` shows that a neighbour can. Its numbers are floats, so it reads sums to the grid and no finer.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from fedbandit.audit.attacks import Attack, log_ratio, prefetched
from fedbandit.policies import FedUCB, PrivacyWarning
from fedbandit.privacy.noise import GRID, NoiseSource
from fedbandit.rules.mean import dyadic_intervals, epsilon_per_node
from fedbandit.simulation.replay import Tape, replay
from fedbandit.world.graph import path

__all__ = ["on_fed_ucb_as_printed", "on_unclamped_rewards"]

HORIZON = 6
REST = 0.5  # every reward but the changed one

Sums = list[int]
"""The victim's mean after each pull of arm 0, times the pulls, in steps of the grid."""


def on_fed_ucb_as_printed(policy: FedUCB) -> Attack:
    """Algorithm 4, line 1: the first mean that goes out is the first reward itself."""
    return _attack("Fed_UCB as printed", policy, policy.epsilon, (0.0, 1.0), lambda sums: sums[0])


def on_unclamped_rewards(epsilon: float, changed: tuple[float, float]) -> Attack:
    """Sensitivity taken as 1, rewards without a range: the first one changes, in every interval that begins there."""
    policy = FedUCB(epsilon, assume_sensitivity=1.0)
    per_node = epsilon_per_node(epsilon, HORIZON + 1)
    low, high = (round(reward * GRID) for reward in changed)

    def statistic(sums: Sums) -> float:
        total = 0.0
        for end, noisy in enumerate(sums, start=1):
            if dyadic_intervals(end)[0][0] == 1:
                rest = (end - 1) * round(REST * GRID)
                total += log_ratio(noisy, rest + low, rest + high, per_node)
        return total

    return _attack("unclamped Gaussian rewards", policy, per_node, changed, statistic)


def _attack(
    label: str, policy: FedUCB, per_draw: float, changed: tuple[float, float], statistic: Callable[[Sums], float]
) -> Attack:
    source = prefetched()
    worlds = [_world(reward, clamped=policy.assume_sensitivity is None) for reward in changed]

    def sample(which: int, count: int) -> Iterable[Sums]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # a broken claim is the point here
            return [_sums(policy, worlds[which], source, per_draw) for _ in range(count)]

    return Attack(label, policy.epsilon, sample, statistic)


def _world(changed: float, clamped: bool) -> Tape:
    """Three agents; the victim's first reward of arm 0 is the changed one, and agent 1 praises arm 0 beyond measure."""
    rewards = np.full((HORIZON + 1, 3, 2), REST)
    rewards[0, 0, 0] = changed
    noise = np.zeros((HORIZON + 2, 3, 2))
    noise[:, 1, 0] = 100.0
    edges, picks = np.tile(np.array([0, 1]), (HORIZON, 1)), np.full((HORIZON, 3), 0.5)
    return Tape(rewards, edges, picks, path(3), noise, (0.0, 1.0) if clamped else None)


def _sums(policy: FedUCB, world: Tape, source: NoiseSource, per_draw: float) -> Sums:
    """One run with fresh noise, whose scale on a tape is 1."""
    noise = np.array(world.noise)
    noise[1 : HORIZON + 1, 0, 0] = np.array(source(per_draw, HORIZON)) * (per_draw / GRID)
    trace = replay(replace(world, noise=noise), policy)
    pulls, means = trace.n[:, 0, 0], trace.x_mean[:, 0, 0]
    return [round(float(means[np.argmax(pulls == n)]) * n * GRID) for n in range(1, int(pulls[-1]) + 1)]
