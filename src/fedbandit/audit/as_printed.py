"""Attacks on what the simulator plays and no live site runs: Algorithm 4 as printed.

The tape carries OpenDP's noise. The attacker reads the victim's published means, as the attacks on live sites show that
the other end of a link can. These numbers are floats, so it reads sums to the grid and no finer.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from fedbandit.audit.attacks import Attack, prefetched
from fedbandit.policies import FedUCB, PrivacyWarning
from fedbandit.privacy.noise import GRID, NoiseSource
from fedbandit.simulation.replay import Tape, replay
from fedbandit.world.graph import path

HORIZON = 6
REST = 0.5  # every reward but the changed one

Sums = list[int]
"""The victim's mean after each pull of arm 0, times the number of pulls, in steps of the grid."""


def on_fed_ucb_as_printed(policy: FedUCB) -> Attack:
    """Algorithm 4, line 1: the first mean that goes out is the first reward itself."""
    return on_simulator("Fed_UCB as printed", policy, policy.epsilon, (0.0, 1.0), lambda sums: sums[0])


def on_simulator(
    label: str, policy: FedUCB, per_draw: float, changed: tuple[float, float], statistic: Callable[[Sums], float]
) -> Attack:
    """Attack agent 0 of a simulated federation, whose first reward of arm 0 is one of ``changed``.

    ``per_draw`` is the epsilon of a draw of noise; ``statistic`` gets the victim's noisy sums.
    """
    source = prefetched()
    worlds = [_world(reward, clamped=policy.assume_sensitivity is None) for reward in changed]

    def sample(which: int, count: int) -> Iterable[Sums]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # a broken claim is the point here
            return [_sums(policy, worlds[which], source, per_draw) for _ in range(count)]

    return Attack(label, policy.epsilon, sample, statistic)


def _world(changed: float, clamped: bool) -> Tape:
    """Three agents. The victim's first reward of arm 0 is the changed one; agent 1 reports enormous means of arm 0."""
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
