"""Attacks on a whole agent as its neighbours see it: the simulator's own rounds, with OpenDP's noise on the tape.

The attacker is a coalition of all other agents. Agent 0 is the victim, agent 1 exchanges with it in every round. A
neighbour knows what it held before and after an average, so it knows what the other brought; it knows what the other
held after the last average, so the difference is the other's news. What is left are the noisy means, one for each pull,
and from them the noisy sums. The choice of arms is public and dates each pull.

No other attack imports the simulator. Its numbers are floats: the attacker rounds what it sees to the grid, below which
a simulator's floats would tell it more than a live agent's whole numbers.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.audit.attacks import Attack, log_ratio
from fedbandit.graph import path
from fedbandit.policies import FedBatch, FedUCB, PrivacyWarning
from fedbandit.privacy.noise import GRID, laplace
from fedbandit.rules.mean import dyadic_intervals, epsilon_per_node
from fedbandit.simulation.replay import Tape, Trace, replay

__all__ = [
    "View",
    "fed_batch_statistic",
    "on_fed_batch",
    "on_fed_ucb",
    "on_fed_ucb_as_printed",
    "reconstruct",
    "view_of",
]

HORIZON = 6  # in a tree of so many pulls the changed reward lies in three intervals
REST = 0.5  # every reward but the changed one


class View(NamedTuple):
    """What the coalition holds at the end: entry t of an array is of the end of round t."""

    gossiped: NDArray[np.float64]  # [T + 1, M], what agent 1 holds of each arm
    x_mean: NDArray[np.float64]  # [T + 1, M], agent 1's own noisy means
    arms: NDArray[np.int64]  # [T], agent 0's arms: pull counts are public


def view_of(trace: Trace) -> View:
    """What the coalition sees of a run."""
    num_arms = trace.theta.shape[2]  # where pairs are gossiped, values come first; weights follow from public counts
    return View(trace.gossiped[:, 1, :num_arms], trace.x_mean[:, 1], trace.arms[:, 0])


def reconstruct(view: View) -> NDArray[np.float64]:
    """The victim's noisy means after rounds 0 .. T - 1, from averages that agent 1 took part in."""
    news = np.diff(view.x_mean, axis=0)
    mixed = view.gossiped[1:] - news  # what both ends of the edge held after the average of rounds 1 .. T
    brought = 2.0 * mixed - view.gossiped[:-1]  # so the victim came with this, rounds 0 .. T - 1
    return np.cumsum(np.concatenate([brought[:1], brought[1:] - mixed[:-1]]), axis=0)


def noisy_sums(view: View) -> list[int]:
    """The victim's mean after its first, second, ... pull of arm 0, times the pulls, in steps of the grid."""
    means, sums = reconstruct(view)[:, 0], [0]
    for t, mean in enumerate(means):
        if t == 0 or view.arms[t - 1] == 0:
            sums.append(round(float(mean) * len(sums) * GRID))
    return sums


def _world(changed: float, clamped: bool, round_of_change: int) -> Tape:
    """Three agents in a row; agent 0's reward of arm 0 in one round is the changed one.

    The others may lie: agent 1 pretends to have seen wonders of arm 0, so that the victim goes on pulling it.
    """
    rewards = np.full((HORIZON + 1, 3, 2), REST)
    rewards[round_of_change, 0, 0] = changed
    noise = np.zeros((HORIZON + 2, 3, 2))  # the victim's is filled in for each run
    noise[:, 1, 0] = 100.0
    edges, picks = np.tile(np.array([0, 1]), (HORIZON, 1)), np.full((HORIZON, 3), 0.5)
    return Tape(rewards, edges, picks, path(3), noise, (0.0, 1.0) if clamped else None)


def _runs(policy: FedUCB | FedBatch, world: Tape, epsilon: float, count: int) -> list[View]:
    """Replay a world with fresh noise, whose scale on a tape is 1."""
    fresh = np.array(laplace(epsilon, count * HORIZON * 2)).reshape(count, HORIZON, 2) * (epsilon / GRID)
    views: list[View] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # a broken claim is the point here
        for drawn in fresh:
            noise = np.array(world.noise)
            noise[1 : HORIZON + 1, 0] = drawn  # intervals that end later are not seen any more
            views.append(view_of(replay(replace(world, noise=noise), policy)))
    return views


def _attack(
    label: str,
    policy: FedUCB | FedBatch,
    epsilon: float,
    statistic: Callable[[View], float],
    changed: tuple[float, float] = (0.0, 1.0),
    round_of_change: int = 0,
) -> Attack:
    """``epsilon`` is that of one draw of noise; ``changed`` the reward in either world."""
    worlds = [_world(reward, policy.assume_sensitivity is None, round_of_change) for reward in changed]
    return Attack(label, policy.epsilon, lambda which, count: _runs(policy, worlds[which], epsilon, count), statistic)


def on_fed_ucb(policy: FedUCB, changed: tuple[float, float] = (0.0, 1.0)) -> Attack:
    """Every interval that begins at pull 1 holds the changed reward, and its sum is the noisy prefix itself."""
    epsilon = epsilon_per_node(policy.epsilon, HORIZON + 1)
    low, high = (round(reward * GRID) for reward in changed)

    def statistic(view: View) -> float:
        sums, total = noisy_sums(view), 0.0
        for end in range(1, len(sums)):
            first, _ = dyadic_intervals(end)[0]
            if first == 1:
                rest = (end - 1) * round(REST * GRID)
                total += log_ratio(sums[end], rest + low, rest + high, epsilon)
        return total

    return _attack("agent, Fed_UCB", policy, epsilon, statistic, changed)


BATCH = 2  # small, so that a short run releases two; what a release costs does not depend on its size
ROUND_OF_THIRD_PULL = 3  # arm 0 is pulled at t = 0, 1 and, after arm 1's turn, from 3 on


def fed_batch_statistic(epsilon: float, later: bool) -> Callable[[View], float]:
    """The log likelihood ratio of what is seen of arm 0 if a reward of its first (or second) batch is 0 or 1.

    Before the first release nothing may be seen at all: whatever is, decides.
    """
    rest = (BATCH - 1) * round(REST * GRID)

    def statistic(view: View) -> float:
        means, pulls = reconstruct(view)[:, 0], 1 + np.concatenate([[0], np.cumsum(view.arms == 0)])[:-1]
        early = means[pulls < BATCH]
        if np.abs(early).max() > 1e-9:
            return 1e9 * float(early.sum() - REST)
        after = [float(means[pulls >= size][0]) for size in (BATCH, 2 * BATCH) if (pulls >= size).any()]
        if later and (len(after) < 2 or pulls[ROUND_OF_THIRD_PULL] != BATCH + 1):
            return 0.0  # the changed reward was not seen, or not released
        # Batches of equal size weigh alike: the mean of both, twice, less the first.
        release = 2.0 * after[1] - after[0] if later else after[0]
        return log_ratio(round(release * BATCH * GRID), rest, rest + GRID, epsilon)

    return statistic


def on_fed_batch(epsilon: float, later: bool = False) -> Attack:
    """A reward of the first (or the second) batch of arm 0 changes."""
    label = "agent, FedBatch, a later one" if later else "agent, FedBatch"
    policy, statistic = FedBatch(epsilon, first_batch=BATCH), fed_batch_statistic(epsilon, later)
    return _attack(label, policy, epsilon, statistic, round_of_change=ROUND_OF_THIRD_PULL if later else 0)


def on_fed_ucb_as_printed(policy: FedUCB) -> Attack:
    """Algorithm 4 as printed: the first mean that goes out is the first reward itself."""
    return _attack("agent, Fed_UCB as printed", policy, policy.epsilon, lambda view: noisy_sums(view)[1])
