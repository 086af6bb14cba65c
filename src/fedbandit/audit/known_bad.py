"""Mechanisms that are known to break their epsilon, to show that the audit catches them.

They are what the paper prints and what implementations get wrong, away from live sites (``broken_sites`` has those);
use none of them. Each claims epsilon 1. Where a real mechanism can be spoilt, it is; where it cannot, a few lines do
what Algorithm 3 or a careless program would.
"""

import warnings
from collections.abc import Iterable

import numpy as np

from fedbandit.audit.as_printed import on_fed_ucb_as_printed, on_unclamped_rewards
from fedbandit.audit.attacks import Attack, on_tree, prefetched
from fedbandit.policies import FedUCB, PrivacyWarning
from fedbandit.privacy.noise import GRID
from fedbandit.rules.mean import dyadic_intervals, paper_epsilon_per_node

__all__ = ["known_bad"]

CLAIM = 1.0


def known_bad() -> list[Attack]:
    """All of them. With these sample sizes each is missed less than once in a million runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return [
            _marked("raw first reward", on_fed_ucb_as_printed(FedUCB(CLAIM, paper=True)), 2_000),
            _marked("ln T, not the node count", _too_few_nodes(), 12_000),
            _marked("noise keyed by value", _keyed_by_value(), 4_000),
            _marked("floating-point noise, bare", _floating_point(), 20_000),
            _marked("unclamped Gaussian rewards", on_unclamped_rewards(CLAIM, (0.0, 6.0)), 2_000),
        ]


def _marked(label: str, attack: Attack, samples: int) -> Attack:
    return Attack(label, CLAIM, attack.sample, attack.statistic, known_bad=True, samples=samples)


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
