"""Mechanisms that break their epsilon: tests show that the audit catches them. Use none of them.

They are what the paper prints and what implementations get wrong, away from live sites (``broken_sites`` has those).
Each claims epsilon 1. Where a real mechanism can be spoilt, it is; where it cannot, a few lines do what Algorithm 3 or
a careless program would.
"""

import warnings
from collections.abc import Iterable

import numpy as np

from fedbandit.audit.as_printed import HORIZON, REST, on_fed_ucb_as_printed, on_simulator
from fedbandit.audit.attacks import Attack, log_ratio, on_tree, prefetched
from fedbandit.policies import FedUCB, PrivacyWarning
from fedbandit.privacy.noise import GRID
from fedbandit.rules.mean import dyadic_intervals, epsilon_per_node, paper_epsilon_per_node

CLAIM = 1.0


def broken_mechanisms() -> dict[str, tuple[Attack, int]]:
    """Attacks on all of them, with sample sizes for which each is missed less than once in a million runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return {
            "raw first reward": (on_fed_ucb_as_printed(FedUCB(CLAIM, paper=True)), 2_000),
            "ln T, not the node count": (_too_few_nodes(), 12_000),
            "noise keyed by value": (_keyed_by_value(), 4_000),
            "floating-point noise, bare": (_floating_point(), 20_000),
            "unclamped Gaussian rewards": (_unclamped_rewards(), 2_000),
        }


def _too_few_nodes() -> Attack:
    """The paper's eps' = eps / ceil(ln T): at T = 2 it counts one of the two intervals that hold one reward.

    At T = 10^6 it counts 14 of 20, which costs 1.43 instead of 2 and takes millions of samples to see.
    """
    horizon = 2
    spent = paper_epsilon_per_node(CLAIM, horizon) * horizon.bit_length()
    return on_tree(spent, horizon, claimed=CLAIM)


def _keyed_by_value() -> Attack:
    """Algorithm 3 as printed looks noise up by the partial sum: equal sums get equal noise, and show it."""
    noise = prefetched()

    def sample(which: int, count: int) -> Iterable[list[int]]:
        rewards = (GRID if which == 0 else 0, 0, GRID)
        for _ in range(count):
            drawn: dict[int, int] = {}
            view: list[int] = []
            for end in range(1, len(rewards) + 1):
                first, last = dyadic_intervals(end)[0]
                partial = sum(rewards[first - 1 : last])
                if partial not in drawn:
                    (drawn[partial],) = noise(CLAIM / 2, 1)
                view.append(partial + drawn[partial])
            yield view

    # Pulls 1 and 3 are intervals of their own; in world 0 their rewards are equal.
    return Attack("", CLAIM, sample, lambda view: float(view[0] != view[2]))


def _floating_point() -> Attack:
    """Laplace noise in doubles. 1 + noise is a multiple of 2^-53 near 0; 0 + noise mostly is not (Mironov 2012)."""
    source = np.random.default_rng(0)

    def sample(which: int, count: int) -> Iterable[float]:
        return float(which) + source.laplace(scale=1.0 / CLAIM, size=count)

    return Attack("", CLAIM, sample, lambda view: float(view * 2.0**53 == np.floor(view * 2.0**53)))


def _unclamped_rewards() -> Attack:
    """Sensitivity taken as 1, rewards without a range: the first one changes, in every interval that begins there."""
    policy = FedUCB(CLAIM, assume_sensitivity=1.0)
    per_node = epsilon_per_node(CLAIM, HORIZON + 1)
    changed = (0.0, 6.0)
    low, high = (round(reward * GRID) for reward in changed)

    def statistic(sums: list[int]) -> float:
        total = 0.0
        for end, noisy in enumerate(sums, start=1):
            if dyadic_intervals(end)[0][0] == 1:
                rest = (end - 1) * round(REST * GRID)
                total += log_ratio(noisy, rest + low, rest + high, per_node)
        return total

    return on_simulator("unclamped Gaussian rewards", policy, per_node, changed, statistic)
