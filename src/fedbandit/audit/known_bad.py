"""Mechanisms that are known to break their epsilon, to show that the audit catches them.

They are what the paper prints and what implementations get wrong; use none of them. Each claims epsilon 1. Where a
live site or a real mechanism can be spoilt, it is; where it cannot, a few lines do what Algorithm 3 or a careless
program would.
"""

import warnings
from collections.abc import Iterable

import numpy as np

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Decision, Life, Stored
from fedbandit.agent.core.site import DecisionDraws, Site, Step
from fedbandit.audit.as_printed import on_fed_ucb_as_printed, on_unclamped_rewards
from fedbandit.audit.attacks import Attack, on_tree, prefetched
from fedbandit.audit.live_sites import on_delays, on_fed_batch
from fedbandit.audit.script import DRAWS
from fedbandit.policies import FedUCB, PrivacyWarning
from fedbandit.privacy.noise import GRID, NoiseSource
from fedbandit.rules.mean import dyadic_intervals, paper_epsilon_per_node

__all__ = ["ArrivalSite", "RawSite", "half_the_noise", "known_bad", "site_from_old_backup"]

CLAIM = 1.0
RESTARTS = 7


def known_bad() -> list[Attack]:
    """All of them. With these sample sizes each is missed less than once in a million runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return [
            _marked("raw first reward", on_fed_ucb_as_printed(FedUCB(CLAIM, paper=True)), 2_000),
            _marked("ln T, not the node count", _too_few_nodes(), 12_000),
            _marked("noise keyed by value", _keyed_by_value(), 4_000),
            _marked(f"redrawn after {RESTARTS} restarts", _redrawn(), 1_000),
            _marked("raw means gossiped", on_fed_batch(CLAIM, open_site=RawSite), 1_000),
            _marked("batches by order of arrival", on_delays(CLAIM, open_site=ArrivalSite, window=0.0), 1_000),
            _marked("half the noise", on_fed_batch(CLAIM, noise=half_the_noise()), 6_000),
            _marked("floating-point noise", _floating_point(), 20_000),
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


def _redrawn() -> Attack:
    """A site that is brought back, again and again, from a backup of before its release."""
    return on_fed_batch(CLAIM, loads=RESTARTS, open_site=site_from_old_backup)


def site_from_old_backup(name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> Site:
    """A site from an empty file that keeps its links and is told its rewards again: it releases them again."""
    backup = Stored(Life(stored.life.epoch, 0), stored.born, links=stored.links, n_max=stored.n_max)
    site = Site(name, terms, backup, noise)
    for decision in stored.decisions.values():
        again = site.decide(decision.at, DRAWS).result
        if decision.reward is not None:
            site.report(again.id, decision.reward)
    return site


class RawSite(Site):
    """A site that gossips the means of its rewards as they are."""

    def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> None:
        """No rewards yet."""
        self._rewards: dict[int, list[float]] = {arm: [] for arm in range(terms.num_arms)}
        self._arms: dict[str, int] = {}
        super().__init__(name, terms, stored, noise)

    def decide(self, at: float, draws: DecisionDraws) -> Step[Decision]:
        """Remember the arm."""
        step = super().decide(at, draws)
        self._arms[step.result.id] = step.result.arm
        return step

    def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
        """Remember the reward."""
        self._rewards[self._arms[decision_id]].append(reward)
        return super().report(decision_id, reward, at)

    @property
    def own(self) -> tuple[float, ...]:
        """Raw means, then weights."""
        rewards = self._rewards.values()
        return (*(sum(known) / max(len(known), 1) for known in rewards), *(1.0 if known else 0.0 for known in rewards))


class ArrivalSite(Site):
    """A site whose rewards count in the order in which they come, as they did before there were slots."""

    def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
        """Take the reward of a decision before all that wait."""
        for slots in self._slots._open:  # pyright: ignore[reportPrivateUsage]  # spoilt on purpose
            if decision_id in slots:
                slots.remove(decision_id)
                slots.appendleft(decision_id)
        return super().report(decision_id, reward, at)


def half_the_noise() -> NoiseSource:
    """Noise whose scale is too small by half."""
    noise = prefetched()
    return lambda epsilon, count: noise(2.0 * epsilon, count)


def _floating_point() -> Attack:
    """Laplace noise in doubles. 1 + noise is a multiple of 2^-53 near 0; 0 + noise mostly is not (Mironov 2012)."""
    source = np.random.default_rng(0)

    def sample(which: int, count: int) -> Iterable[float]:
        return float(which) + source.laplace(scale=1.0 / CLAIM, size=count)

    return Attack("", CLAIM, sample, lambda view: float(view * 2.0**53 == np.floor(view * 2.0**53)))
