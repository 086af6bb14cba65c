"""Mechanisms that are known to break their epsilon, to show that the audit catches them.

They are what the paper prints and what implementations get wrong; use none of them. Each claims epsilon 1. Where the
code of a real mechanism can be misused, it is; where it cannot, a few lines do what Algorithm 3 or a careless program
would.
"""

import warnings
from collections.abc import Iterable

import numpy as np

from fedbandit.audit.attacks import Attack, log_ratio, on_tree, prefetched
from fedbandit.audit.whole_agent import on_fed_ucb, on_fed_ucb_as_printed
from fedbandit.policies import FedUCB, PrivacyWarning
from fedbandit.privacy.mechanism import Batches
from fedbandit.privacy.noise import GRID
from fedbandit.rules.mean import dyadic_intervals, paper_epsilon_per_node

__all__ = ["known_bad"]

CLAIM = 1.0
RESTARTS = 8


def known_bad() -> list[Attack]:
    """All of them. Sizes are such that each is caught but for less than one time in a million."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return [
            _marked("raw first reward", on_fed_ucb_as_printed(FedUCB(CLAIM, paper=True)), 2_000),
            _marked("ln T, not the node count", _too_few_nodes(), 12_000),
            _marked("noise keyed by value", _keyed_by_value(), 4_000),
            _marked(f"redrawn after {RESTARTS - 1} restarts", _redrawn(), 4_000),
            _marked("floating-point noise", _floating_point(), 20_000),
            _marked("unclamped Gaussian rewards", _unclamped(), 2_000),
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


def _redrawn() -> Attack:
    """A mechanism that is brought back, again and again, from a state before its release."""
    noise, size = prefetched(), 3

    def sample(which: int, count: int) -> Iterable[list[int]]:
        before = Batches(1, CLAIM, 0.0, 1.0, first_batch=size, noise=noise)
        before.add(0, float(which))
        before.add(0, 0.5)
        state = before.state()
        for _ in range(count):
            again = [Batches.restore(state, noise).add(0, 0.5) for _ in range(RESTARTS)]
            yield [round(release.value * size * GRID) for release in again if release is not None]

    def statistic(view: list[int]) -> float:
        return sum(log_ratio(noisy, GRID, 2 * GRID, CLAIM) for noisy in view)

    return Attack("", CLAIM, sample, statistic)


def _floating_point() -> Attack:
    """Laplace noise in doubles. 1 + noise is a multiple of 2^-53 near 0; 0 + noise mostly is not (Mironov 2012)."""
    source = np.random.default_rng(0)

    def sample(which: int, count: int) -> Iterable[float]:
        return float(which) + source.laplace(scale=1.0 / CLAIM, size=count)

    return Attack("", CLAIM, sample, lambda view: float(view * 2.0**53 == np.floor(view * 2.0**53)))


def _unclamped() -> Attack:
    """Sensitivity taken as 1 although rewards are Gaussian: one of six standard deviations moves a sum by 6."""
    return on_fed_ucb(FedUCB(CLAIM, assume_sensitivity=1.0), (0.0, 6.0))
