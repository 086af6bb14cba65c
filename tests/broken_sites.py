"""Live sites that break their epsilon, each in one way: tests show that the audit catches them. Use none of them.

Each is the site that ships with one mistake in it. The audit is not told which.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MethodType
from typing import Any, ClassVar, TypeVar

from fedbandit.agent.core.decisions import Slots
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import Offer, Reply
from fedbandit.agent.core.records import DecisionRecord, Record, Stored
from fedbandit.agent.core.site import Site, Step
from fedbandit.audit.attacks import prefetched
from fedbandit.audit.scenarios import OpenSite
from fedbandit.policies.protocol import Now, Page
from fedbandit.privacy.mechanism import Mechanism, ReleasedInterval
from fedbandit.privacy.noise import GRID, NoiseSource, to_steps

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class BrokenSite:
    """A site, its noise, and what gives it away: something that a change of one reward moves, or its noise."""

    label: str
    found: str
    open_site: OpenSite = Site
    noise: Callable[[], NoiseSource] = prefetched


def broken_sites() -> list[BrokenSite]:
    """All of them."""
    return [
        BrokenSite("noise too small by 1.3", "noise", noise=lambda: scaled_noise(1.3)),
        BrokenSite("one draw for two arms", "another message", _wrapped(_each_twice)),
        BrokenSite("last reward also in next batch", "another message", _spoilt(_overlapping)),
        BrokenSite("no clamping", "another message", unclamped_site(above=True)),
        BrokenSite("clamped from above only", "another message", unclamped_site(above=False)),
        BrokenSite("floating-point noise", "another message", _spoilt(_with_floats)),
        BrokenSite("restore forgets releases", "another message", forgetful_site),
        BrokenSite("batch size depends on rewards", "another message", _spoilt(_with_longer_batches)),
        BrokenSite("raw means gossiped", "another message", RawSite),
        BrokenSite("choice reads unreleased sums", "another decision", _spoilt(_peeking)),
        BrokenSite(
            "noise on first arm only",
            "another message",
            _spoilt(lambda page: _with_noise(page, lambda me, arm: arm == 0)),
        ),
        BrokenSite(
            "no noise from third release on",
            "another message",
            _spoilt(lambda page: _with_noise(page, lambda me, arm: me.releases[arm] < 2)),
        ),
        BrokenSite("batches by order of arrival", "another state", ArrivalSite),
        BrokenSite("noise for a range of width 1", "another message", _spoilt(_for_unit_width)),
        BrokenSite("noise drawn anew for every message", "another message", RestlessSite),
        BrokenSite("noise repeated after a restart", "another message", _repeating()),
        BrokenSite("noise from a short list", "noise", noise=_from_a_list),
        BrokenSite("noise cut off at 4 scales", "noise", noise=_cut_off),
        BrokenSite("one release in 20 without noise", "noise", noise=_forgetful),
        BrokenSite("noise of the other sign for arm 1", "another message", _wrapped(_mirrored)),
        BrokenSite("default depends on rewards", "another message", CarryingSite),
        BrokenSite("good rewards count early", "another state", EagerSite),
        BrokenSite("late reward in next batch", "another message", LateSite),
        BrokenSite("repeated report counts twice", "another message", RepeatingSite),
        BrokenSite("state shows unreleased sums", "another state", ShowingSite),
        BrokenSite("version of a link tells a reward", "another message", TellingSite),
        BrokenSite("rate measured up to the last report", "another message", LastReportSite),
        BrokenSite("weight grows with rewards", "another message", CountingSite),
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

    def take(self: Mechanism, arm: int, reward: float) -> ReleasedInterval | None:
        steps = round(to_steps(reward, self._low, self._high))
        width = self._high - self._low
        self.terms = self.terms._replace(low=-1e9, high=1e9 if above else float(GRID))
        page, noise, completed = self.page, 0, None
        end = page.noise_due(self.me, self.terms, arm)
        if end:
            first, level = page.interval(self.me, self.terms, arm, end)
            noise, completed = self.ledger.draw(arm, first, end, level), ReleasedInterval(level, first, end)
        page.observe(self.me, self.terms, arm, steps if width else 0, noise)
        return completed

    class UnclampedSite(Site):
        def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> None:
            super().__init__(name, terms, stored, noise)
            own = self._player._own
            own.take = MethodType(take, own)

        def report(self, decision_id: str, reward: float) -> Step[bool]:
            declared = self.terms
            self.terms = replace(declared, low=-1e6, high=1e6)
            try:
                return super().report(decision_id, reward)
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

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Remember the first reward that counts."""
        step = super().report(decision_id, reward)
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
    """Its rewards count in the order in which they come."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Take the reward of a decision before all that wait."""
        for slots in self._slots._open:
            if decision_id in slots:
                slots.remove(decision_id)
                slots.appendleft(decision_id)
        return super().report(decision_id, reward)


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
        self, result: _Result, due: Sequence[DecisionRecord], *records: Record, gone: Sequence[DecisionRecord] = ()
    ) -> Step[_Result]:
        last = {it.arm: self.told_of(it.arm)[-1:] for it in due}
        filled = [replace(it, reward=(*last[it.arm], None)[0]) if it.reward is None else it for it in due]
        return super()._played(result, filled, *records, gone=gone)


class _EagerSlots(Slots):
    def is_over(self, decision: DecisionRecord, now: float) -> bool:
        return super().is_over(decision, now) or (decision.reward is not None and decision.reward > 0.0)


class EagerSite(Site):
    """A good reward does not wait for the end of its window."""

    def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource) -> None:
        """Other slots."""
        super().__init__(name, terms, stored, noise)
        self._slots = _EagerSlots(terms, self._stored.decisions)


class LateSite(Site):
    """A reward that comes too late counts in the next batch."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Add it to the sum."""
        step = super().report(decision_id, reward)
        if not step.result:
            arm = self._stored.decisions[decision_id].arm
            self._player.me.total[arm] += round(to_steps(reward, self.terms.low, self.terms.high))
        return step


class RepeatingSite(Site):
    """A report that is repeated, because its acknowledgement was lost, counts again."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Add it to the sum."""
        known = self._stored.decisions.get(decision_id)
        step = super().report(decision_id, reward)
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


class LastReportSite(Site):
    """Its rate is measured up to its last report."""

    _last = 0.0

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Note the time, as far as the site knows it."""
        self._last = self._clock
        return super().report(decision_id, reward)

    @property
    def _elapsed(self) -> float:
        return max(self._last - (self._since or 0.0), 0.0)


class CountingSite(Site):
    """Its weight grows with the rewards that it has been told."""

    _sum_told = 0.0

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Note the value."""
        self._sum_told += reward
        return super().report(decision_id, reward)

    @property
    def _elapsed(self) -> float:
        return super()._elapsed + 1000.0 * self._sum_told


class TellingSite(RememberingSite):
    """The version of its answers tells whether the last reward was good, and no number is raw."""

    def receive_offer(self, offer: Offer) -> Step[Reply]:
        """Raise the version."""
        step = super().receive_offer(offer)
        rewards = [self.told[name] for name in self._stored.decisions if name in self.told]
        if not rewards or rewards[-1] < 1.0:
            return step
        version, writer = step.result.stamp
        return replace(step, result=replace(step.result, stamp=(version + 1, writer)))
