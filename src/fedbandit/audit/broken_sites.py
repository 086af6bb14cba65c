"""Live sites that break their epsilon, each in one way, to show that the audit catches them. Use none of them.

Each is the site that ships with one mistake in it. The audit is not told which.
"""

# They are spoilt on purpose, where nobody should reach.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from types import MethodType
from typing import Any, ClassVar, TypeVar

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import Answer, Offer
from fedbandit.agent.core.records import Decision, Record, Stored
from fedbandit.agent.core.site import Site, Step
from fedbandit.agent.core.slots import Slots
from fedbandit.audit.attacks import prefetched
from fedbandit.audit.script import OpenSite
from fedbandit.audit.target import Target
from fedbandit.policies.protocol import Now, Page
from fedbandit.privacy.mechanism import Interval, Mechanism
from fedbandit.privacy.noise import GRID, NoiseSource, to_steps

__all__ = ["ArrivalSite", "RawSite", "broken_sites", "forgetful_site", "scaled_noise"]

_Result = TypeVar("_Result")


def broken_sites() -> list[Target]:
    """All of them."""
    return [
        Target("noise too small by 1.3", noise=lambda: scaled_noise(1.3)),
        Target("one draw for two arms", _wrapped(_each_twice)),
        Target("last reward also in next batch", _spoilt(_overlapping)),
        Target("no clamping", unclamped_site(above=True)),
        Target("clamped from above only", unclamped_site(above=False)),
        Target("floating-point noise", _spoilt(_with_floats)),
        Target("restore forgets releases", forgetful_site),
        Target("batch size depends on rewards", _spoilt(_with_longer_batches)),
        Target("raw means gossiped", RawSite),
        Target("choice reads unreleased sums", _spoilt(_peeking)),
        Target("noise on first arm only", _spoilt(lambda page: _with_noise(page, lambda me, arm: arm == 0))),
        Target(
            "no noise from third release on",
            _spoilt(lambda page: _with_noise(page, lambda me, arm: me.releases[arm] < 2)),
        ),
        Target("batches by order of arrival", ArrivalSite),
        Target("noise for a range of width 1", _spoilt(_for_unit_width)),
        Target("noise drawn anew for every message", RestlessSite),
        Target("noise repeated after a restart", _repeating()),
        Target("noise from a short list", noise=_from_a_list),
        Target("noise cut off at 4 scales", noise=_cut_off),
        Target("one release in 20 without noise", noise=_forgetful),
        Target("noise of the other sign for arm 1", _wrapped(_mirrored)),
        Target("default depends on rewards", CarryingSite),
        Target("good rewards count early", EagerSite),
        Target("late reward in next batch", LateSite),
        Target("repeated report counts twice", RepeatingSite),
        Target("state shows unreleased sums", ShowingSite),
        Target("version of a link tells a reward", TellingSite),
    ]


# ---------------------------------------------------------------- noise


def scaled_noise(factor: float) -> NoiseSource:
    """Noise whose scale is too small by a factor."""
    noise = prefetched()
    return lambda epsilon, count: noise(factor * epsilon, count)


def _from_a_list() -> NoiseSource:
    noise, kept = prefetched(), list[int]()

    def draw(epsilon: float, count: int) -> list[int]:
        if len(kept) < 200:
            kept.extend(noise(epsilon, count))
            return kept[-count:]
        kept.append(kept.pop(0))
        return kept[-1:] * count

    return draw


def _cut_off() -> NoiseSource:
    noise = prefetched()

    def draw(epsilon: float, count: int) -> list[int]:
        most = round(4.0 * GRID / epsilon)
        return [max(-most, min(most, z)) for z in noise(epsilon, count)]

    return draw


def _forgetful() -> NoiseSource:
    noise, source = prefetched(), Random(0)  # noqa: S311
    return lambda epsilon, count: [z if source.random() > 0.05 else 0 for z in noise(epsilon, count)]


def _each_twice(noise: NoiseSource) -> NoiseSource:
    kept: list[list[int]] = []

    def draw(epsilon: float, count: int) -> list[int]:
        if kept:
            return kept.pop()
        kept.append(noise(epsilon, count))
        return kept[0]

    return draw


def _mirrored(noise: NoiseSource) -> NoiseSource:
    twice, signs = _each_twice(noise), [1]

    def draw(epsilon: float, count: int) -> list[int]:
        signs[0] = -signs[0]
        return [signs[0] * z for z in twice(epsilon, count)]

    return draw


def _wrapped(wrap: Callable[[NoiseSource], NoiseSource]) -> OpenSite:
    return lambda name, terms, stored, noise: Site(name, terms, stored, wrap(noise))


def _repeating() -> OpenSite:
    """A generator that is restored with the site: it says again what it said after the first start."""
    drawn: list[int] = []

    def open_site(name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> Site:
        if not stored.decisions:
            drawn.clear()
        place = [0]

        def draw(epsilon: float, count: int) -> list[int]:
            while len(drawn) < place[0] + count:
                drawn.extend(noise(epsilon, count))
            place[0] += count
            return drawn[place[0] - count : place[0]]

        return Site(name, terms, stored, draw)

    return open_site


# ---------------------------------------------------------------- the page


def _spoilt(spoil: Callable[[Page], Page]) -> OpenSite:
    def open_site(name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> Site:
        site = Site(name, terms, stored, noise)
        player = site._player
        player.page = player._own.page = spoil(player.page)
        return site

    return open_site


def _overlapping(page: Page) -> Page:
    def observe(me: Any, terms: Any, arm: int, reward: float, noise: float) -> None:
        page.observe(me, terms, arm, reward, noise)
        if me.released[arm] == me.n[arm]:
            me.total[arm] = reward

    return page._replace(observe=observe)


def _with_floats(page: Page) -> Page:
    source = Random(0)  # noqa: S311

    def observe(me: Any, terms: Any, arm: int, reward: float, noise: float) -> None:
        drawn = terms.noise_scale * (source.expovariate(1.0) - source.expovariate(1.0)) if noise else 0.0
        page.observe(me, terms, arm, reward, drawn)

    return page._replace(observe=observe)


def _with_longer_batches(page: Page) -> Page:
    def observe(me: Any, terms: Any, arm: int, reward: float, noise: float) -> None:
        page.observe(me, terms, arm, reward, noise)
        if me.released[arm] == me.n[arm] and reward > GRID / 2:
            me.batch_end[arm] += 1

    return page._replace(observe=observe)


def _peeking(page: Page) -> Page:
    def decide(me: Any, terms: Any, seen: Any, now: Now, draws: Any) -> int:
        public = list(me.theta)
        for arm, total in enumerate(me.total):
            me.theta[arm] += total
        chosen = page.decide(me, terms, seen, now, draws)
        me.theta[:] = public
        return chosen

    return page._replace(decide=decide)


def _with_noise(page: Page, where: Callable[[Any, int], bool]) -> Page:
    def observe(me: Any, terms: Any, arm: int, reward: float, noise: float) -> None:
        page.observe(me, terms, arm, reward, noise if where(me, arm) else 0)

    return page._replace(observe=observe)


def _for_unit_width(page: Page) -> Page:
    """Noise in units of the reward where it should be in units of the range: too small by the width."""

    def observe(me: Any, terms: Any, arm: int, reward: float, noise: float) -> None:
        page.observe(me, terms, arm, reward, noise // 4)

    return page._replace(observe=observe)


# ---------------------------------------------------------------- the site


def unclamped_site(above: bool) -> OpenSite:
    """It takes any number for a reward, from below, and ``above`` if that is said."""

    def take(self: Mechanism, arm: int, reward: float) -> Interval | None:
        steps = round(to_steps(reward, self._low, self._high))
        width = self._high - self._low
        self.terms = self.terms._replace(low=-1e9, high=1e9 if above else float(GRID))
        page, noise, completed = self.page, 0, None
        assert page.noise_due is not None and page.interval is not None and self.ledger is not None  # noqa: S101, PT018
        end = page.noise_due(self.me, self.terms, arm)
        if end:
            first, level = page.interval(self.me, self.terms, arm, end)
            noise, completed = self.ledger.draw(arm, first, end, level), Interval(level, first, end)
        page.observe(self.me, self.terms, arm, steps if width else 0, noise)
        return completed

    class UnclampedSite(Site):
        def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> None:
            super().__init__(name, terms, stored, noise)
            own = self._player._own
            own.take = MethodType(take, own)

        def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
            declared = self.terms
            self.terms = replace(declared, low=-1e6, high=1e6)
            try:
                return super().report(decision_id, reward, at)
            finally:
                self.terms = declared

    return UnclampedSite


class RememberingSite(Site):
    """It remembers raw rewards, also after a restart, where a disk forgets them once they count."""

    told: ClassVar[dict[str, float]] = {}

    def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> None:
        """Nothing of an earlier run."""
        if not stored.decisions:
            self.told.clear()
        super().__init__(name, terms, stored, noise)

    def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
        """Remember the first reward that counts."""
        step = super().report(decision_id, reward, at)
        if step.result:
            self.told.setdefault(decision_id, reward)
        return step

    def told_of(self, arm: int) -> list[float]:
        """The rewards of an arm, in the order of its decisions."""
        decisions = self._stored.decisions.values()
        return [self.told[it.id] for it in decisions if it.arm == arm and it.id in self.told]


def forgetful_site(name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> Site:
    """It comes back without its releases, and plays its rewards again: their noise is drawn again."""
    site = RememberingSite(name, terms, replace(stored, known={}, released={}), noise)
    played = [it for it in stored.decisions.values() if it.played]
    site._player.take(((it.arm, site.told.get(it.id, terms.missing_reward)) for it in played), 0.0)
    for decision in played:
        site._tried[decision.arm] += 1
    site._look()
    return site


class RawSite(RememberingSite):
    """It gossips the means of its rewards as they are."""

    @property
    def own(self) -> tuple[float, ...]:
        """Raw means, then weights."""
        rewards = [self.told_of(arm) for arm in range(self.terms.num_arms)]
        return (*(sum(known) / max(len(known), 1) for known in rewards), *(1.0 if known else 0.0 for known in rewards))


class ArrivalSite(Site):
    """Its rewards count in the order in which they come, as they did before there were slots."""

    def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
        """Take the reward of a decision before all that wait."""
        for slots in self._slots._open:
            if decision_id in slots:
                slots.remove(decision_id)
                slots.appendleft(decision_id)
        return super().report(decision_id, reward, at)


class RestlessSite(RawSite):
    """It hides its raw means in fresh noise, and does so anew in every message."""

    def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> None:
        """Keep the source at hand."""
        self._source = noise
        super().__init__(name, terms, stored, noise)

    @property
    def own(self) -> tuple[float, ...]:
        """Noisy means, then weights."""
        raw, epsilon = super().own, self.terms.page_terms.epsilon_per_release
        noisy = zip(raw, self._source(epsilon, self.terms.num_arms), strict=False)
        return (*(mean + z / GRID for mean, z in noisy), *raw[self.terms.num_arms :])


class CarryingSite(RememberingSite):
    """Where a reward is missing it counts the last one of the arm."""

    def _played(
        self, result: _Result, due: Sequence[Decision], *records: Record, gone: Sequence[Decision] = ()
    ) -> Step[_Result]:
        last = {it.arm: self.told_of(it.arm)[-1:] for it in due}
        filled = [replace(it, reward=(*last[it.arm], None)[0]) if it.reward is None else it for it in due]
        return super()._played(result, filled, *records, gone=gone)


class _EagerSlots(Slots):
    def is_over(self, decision: Decision, now: float) -> bool:
        return super().is_over(decision, now) or (decision.reward is not None and decision.reward > 0.0)


class EagerSite(Site):
    """A good reward does not wait for the end of its window."""

    def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> None:
        """Other slots."""
        super().__init__(name, terms, stored, noise)
        self._slots = _EagerSlots(terms, self._stored.decisions, stored.by_arrival)


class LateSite(Site):
    """A reward that comes too late counts in the next batch."""

    def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
        """Add it to the sum."""
        step = super().report(decision_id, reward, at)
        if not step.result:
            arm = self._stored.decisions[decision_id].arm
            self._player.me.total[arm] += round(to_steps(reward, self.terms.low, self.terms.high))
        return step


class RepeatingSite(Site):
    """A report that is repeated, because its acknowledgement was lost, counts again."""

    def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
        """Add it to the sum."""
        known = self._stored.decisions.get(decision_id)
        step = super().report(decision_id, reward, at)
        if known is not None and known.rewarded:
            self._player.me.total[known.arm] += round(to_steps(reward, self.terms.low, self.terms.high))
        return step


class ShowingSite(Site):
    """Its state shows the sum of the batch that it collects."""

    @property
    def own_means(self) -> tuple[float | None, ...]:
        """With what is not released yet."""
        sums = self._player.me.total
        return tuple(None if mean is None else mean + x for mean, x in zip(super().own_means, sums, strict=True))


class TellingSite(RememberingSite):
    """The version of its answers tells whether the last reward was good, and no number is raw."""

    def receive_offer(self, offer: Offer) -> Step[Answer]:
        """Raise the version."""
        step = super().receive_offer(offer)
        rewards = [self.told[name] for name in self._stored.decisions if name in self.told]
        if not rewards or rewards[-1] < 1.0:
            return step
        version, writer = step.result.stamp
        return replace(step, result=replace(step.result, stamp=(version + 1, writer)))
