"""Live sites that break their epsilon, each in one way: tests show that the audit catches them. Use none of them.

Each is the site that ships, or the process around it, with one mistake. The audit is not told which.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from types import MethodType
from typing import Any, ClassVar

from fedbandit.agent.core.board import Have
from fedbandit.agent.core.bulletin import ArmEntry, Signed
from fedbandit.agent.core.decisions import ANY, Decisions, Request, SiteDraws, Slots
from fedbandit.agent.core.decisions import Outcome as RewardOutcome
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import DecisionRecord, Record, Refused, Step, Stored
from fedbandit.agent.core.release_guard import Doubt, Presence
from fedbandit.agent.core.site import Sign, Site
from fedbandit.audit.attacks import prefetched
from fedbandit.audit.executor import OpenSite, Run
from fedbandit.policies.protocol import Now, Page
from fedbandit.privacy.mechanism import Mechanism, ReleasedInterval
from fedbandit.privacy.noise import GRID, NoiseSource, to_grid, to_steps


@dataclass(frozen=True)
class BrokenSite:
    """A site, its noise and its process, and what gives it away: the proof, executed, or its noise."""

    label: str
    found: str
    opened: OpenSite = Site
    noise: Callable[[], NoiseSource] = prefetched
    process: type[Run] = Run


def broken_sites() -> list[BrokenSite]:
    """All of them."""
    return [
        BrokenSite("noise too small by 1.3", "noise", noise=lambda: scaled_noise(1.3)),
        BrokenSite("one draw for two arms", "proof", _wrapped(_each_twice)),
        BrokenSite("last reward also in next batch", "proof", _spoilt(_overlapping)),
        BrokenSite("no clamping", "proof", unclamped_site(above=True)),
        BrokenSite("clamped from above only", "proof", unclamped_site(above=False)),
        BrokenSite("floating-point noise", "proof", _spoilt(_with_floats)),
        BrokenSite("restore forgets releases", "proof", forgetful_site),
        BrokenSite("batch size depends on rewards", "proof", _spoilt(_with_longer_batches)),
        BrokenSite("raw means published", "proof", RawSite),
        BrokenSite("choice reads unreleased sums", "proof", _spoilt(_peeking)),
        BrokenSite("the urn counts rewards", "proof", _spoilt(_with_rewards_in_the_urn)),
        BrokenSite("noise on first arm only", "proof", _noisy_if(_of_arm_0)),
        BrokenSite("no noise from third release on", "proof", _noisy_if(_early)),
        BrokenSite("no noise on the third arm", "proof", _noisy_if(_of_first_arms)),
        BrokenSite("no noise from eighth release on", "proof", _noisy_if(_before_eighth)),
        BrokenSite("batches by order of arrival", "proof", ArrivalSite),
        BrokenSite("noise for a range of width 1", "proof", _spoilt(_for_unit_width)),
        BrokenSite("noise drawn anew for every bulletin", "proof", RestlessSite),
        BrokenSite("noise repeated after a restart", "proof", _repeating()),
        BrokenSite("noise from a short list", "noise", noise=_from_a_list),
        BrokenSite("noise cut off at 4 scales", "noise", noise=_cut_off),
        BrokenSite("one release in 20 without noise", "noise", noise=_forgetful),
        BrokenSite("noise of the other sign for arm 1", "proof", _wrapped(_mirrored)),
        BrokenSite("default depends on rewards", "proof", CarryingSite),
        BrokenSite("good rewards count early", "proof", EagerSite),
        BrokenSite("late reward in next batch", "proof", LateSite),
        BrokenSite("repeated report counts twice", "proof", RepeatingSite),
        BrokenSite("state shows unreleased sums", "proof", ShowingSite),
        BrokenSite("rate measured up to the last report", "proof", LastReportSite),
        BrokenSite("weight grows with rewards", "proof", CountingSite),
        BrokenSite("rows leave before their noise", "proof", BareSite),
        BrokenSite("an old file releases again", "proof", _unguarded),
        BrokenSite("a report is news", "proof", HastySite),
        BrokenSite("a bulletin leaves with each report", "proof", process=HastyProcess),
        BrokenSite("number of a bulletin tells a reward", "proof", SkippingSite),
        BrokenSite("time of a bulletin tells a reward", "proof", TimingSite),
        BrokenSite("order of arms tells a reward", "proof", SortingSite),
        BrokenSite("decisions count once they are rewarded", "proof", RewardedSite),
        BrokenSite("receipts follow rewards", "proof", ReceiptSite),
        BrokenSite("Have follows rewards", "proof", HavingSite),
        BrokenSite("releases are held while a reward is bad", "proof", HoldingSite),
        BrokenSite("a subject's arm follows its reward", "proof", LoyalSite),
        BrokenSite("several rewards are sorted", "proof", BulkSite),
        BrokenSite("reward of a cancelled decision counts", "proof", CancelledSite),
        BrokenSite("a key is answered if its reward is there", "proof", AnsweringSite),
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
    def opened(
        name: str, terms: Federation, stored: Stored, noise: NoiseSource, presence: Presence, **options: Any
    ) -> Site:
        return Site(name, terms, stored, wrap(noise), presence, **options)

    return opened


def _repeating() -> OpenSite:
    """A generator that is restored with the site: it says again what it said after the first start."""
    drawn: list[int] = []

    def opened(
        name: str, terms: Federation, stored: Stored, noise: NoiseSource, presence: Presence, **options: Any
    ) -> Site:
        if not stored.decisions:
            drawn.clear()
        place = [0]

        def draw(epsilon: float, count: int) -> list[int]:
            while len(drawn) < place[0] + count:
                drawn.extend(noise(epsilon, count))
            place[0] += count
            return drawn[place[0] - count : place[0]]

        return Site(name, terms, stored, draw, presence, **options)

    return opened


# ---------------------------------------------------------------- the page


def _spoilt(spoil: Callable[[Page], Page]) -> OpenSite:
    """With another page, but for strata."""

    class SpoiltSite(Site):
        def _take_over(self, stored: Stored) -> None:
            super()._take_over(stored)
            if self.terms.num_strata:
                return
            self._player.page = self._player._own.page = spoil(self._player.page)

    return SpoiltSite


def _noisy_if(where: Callable[[Any, int], bool]) -> OpenSite:
    return _spoilt(lambda page: _with_noise(page, where))


def _of_arm_0(me: Any, arm: int) -> bool:
    return arm == 0


def _of_first_arms(me: Any, arm: int) -> bool:
    return arm < 2


def _early(me: Any, arm: int) -> bool:
    return me.releases[arm] < 2


def _before_eighth(me: Any, arm: int) -> bool:
    return me.releases[arm] < 7


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


def _with_rewards_in_the_urn(page: Page) -> Page:
    """An unknown arm comes the less often the better its open batch: its order tells of rewards."""

    def decide(me: Any, terms: Any, seen: Any, now: Now, draws: Any) -> int:
        tried = list(me.tried)
        for arm, total in enumerate(me.total):
            me.tried[arm] += int(2 * total / GRID)
        chosen = page.decide(me, terms, seen, now, draws)
        me.tried[:] = tried
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


class PartSite(Site):
    """One that ships but for its decisions, or their slots."""

    decisions: type[Decisions] = Decisions
    slots: type[Slots] = Slots

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        self._decisions = self.decisions(self.terms, self._stored, self._player, False)
        self._decisions.slots = self.slots(self.terms, self._stored.decisions, self._player.num_arms)


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
        def _take_over(self, stored: Stored) -> None:
            super()._take_over(stored)
            if self.terms.num_strata:
                return
            own = self._player._own
            own.take = MethodType(take, own)

        def report(self, decision_id: str, reward: float) -> Step[bool]:
            self._decisions._terms = replace(self.terms, low=-1e6, high=1e6)
            try:
                return super().report(decision_id, reward)
            finally:
                self._decisions._terms = self.terms

    return UnclampedSite


class RememberingSite(Site):
    """It remembers raw rewards, also after a restart, where a disk forgets them once they count."""

    told: ClassVar[dict[str, float]] = {}

    def _take_over(self, stored: Stored) -> None:
        """Nothing of an earlier run."""
        if not stored.decisions:
            self.told.clear()
        super()._take_over(stored)

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

    @property
    def is_bad(self) -> bool:
        """Whether the last reward was."""
        rewards = [self.told[name] for name in self._stored.decisions if name in self.told]
        return bool(rewards) and rewards[-1] < 1.0


def forgetful_site(
    name: str, terms: Federation, stored: Stored, noise: NoiseSource, presence: Presence, **options: Any
) -> Site:
    """It comes back without its releases, and plays its rewards again: their noise is drawn again."""
    site = RememberingSite(name, terms, replace(stored, known={}, released={}), noise, presence, **options)
    played = [it for it in stored.decisions.values() if it.played]
    site._player.take(((it.arm, it.stratum, site.told.get(it.id, terms.missing_reward)) for it in played), 0.0)
    for decision in played:
        site._player.hand_out(decision.arm, decision.stratum)
    site._is_stale = site._is_urgent = True
    return site


class RawSite(RememberingSite):
    """It publishes the means of its rewards as they are."""

    def _entries(self) -> tuple[ArmEntry, ...]:
        """With raw means."""
        raw = [_raw_mean(self, arm) for arm in range(len(self.arms.names))]
        return tuple(replace(it, row=(mean, *it.row[1:])) for it, mean in zip(super()._entries(), raw, strict=True))


def _raw_mean(site: RememberingSite, arm: int) -> float:
    """In steps of the grid."""
    steps = [to_grid(reward, site.terms.low, site.terms.high) for reward in site.told_of(arm)]
    return sum(steps) / max(len(steps), 1)


class ArrivalSite(Site):
    """Its rewards count in the order in which they come."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Take the reward of a decision before all that wait."""
        for slots in self._decisions.slots._open:
            if decision_id in slots:
                slots.remove(decision_id)
                slots.appendleft(decision_id)
        return super().report(decision_id, reward)


class RestlessSite(RawSite):
    """It hides its raw means in fresh noise, and does so anew in every bulletin."""

    def publish(self, sign: Sign, at: float) -> Step[Signed | None]:
        """Draw."""
        epsilon = self.terms.page_terms.epsilon_per_release
        self._drawn = self._noise(epsilon, len(self.arms.names))
        return super().publish(sign, at)

    def _entries(self) -> tuple[ArmEntry, ...]:
        drawn = getattr(self, "_drawn", [0] * len(self.arms.names))
        noisy = zip(super()._entries(), drawn, strict=True)
        return tuple(replace(it, row=(it.row[0] + z, *it.row[1:])) for it, z in noisy)


class _CarryingDecisions(Decisions):
    last: Callable[[int], list[float]]

    def _played(self, result: Any, due: Sequence[DecisionRecord], *records: Record, gone: Any = ()) -> Step[Any]:
        last = {it.arm: self.last(it.arm)[-1:] for it in due}
        filled = [replace(it, reward=(*last[it.arm], None)[0]) if it.reward is None else it for it in due]
        return super()._played(result, filled, *records, gone=gone)


class CarryingSite(RememberingSite, PartSite):
    """Where a reward is missing it counts the last one of the arm."""

    decisions = _CarryingDecisions

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        self._decisions.last = self.told_of


class _EagerSlots(Slots):
    def is_over(self, decision: DecisionRecord, now: float) -> bool:
        early = 0.4 if decision.reward is not None and decision.reward > 0.0 else 0.0
        return super().is_over(decision, now + early)


class EagerSite(PartSite):
    """A good reward counts 0.4 s before the end of its window."""

    slots = _EagerSlots


class LateSite(Site):
    """A reward that comes too late counts in the next batch."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Add it to the sum."""
        step = super().report(decision_id, reward)
        if not step.result:
            _add(self, decision_id, reward)
        return step


class RepeatingSite(Site):
    """A report that is repeated, because its acknowledgement was lost, counts again."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Add it to the sum."""
        known = self._stored.decisions.get(decision_id)
        step = super().report(decision_id, reward)
        if known is not None and known.rewarded:
            _add(self, decision_id, reward)
        return step


class CancelledSite(Site):
    """The reward of a decision that was cancelled counts in the next batch."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Add it to the sum."""
        if self._decisions[decision_id].cancelled:
            _add(self, decision_id, reward)
        return super().report(decision_id, reward)


def _add(site: Site, decision_id: str, reward: float) -> None:
    it, me, steps = site._decisions[decision_id], site._player.me, to_grid(reward, site.terms.low, site.terms.high)
    if it.stratum is None or not site.terms.num_strata:
        me.total[it.arm] += steps
    else:
        me.totals[it.arm][it.stratum] += steps


class ShowingSite(Site):
    """Its state shows the sum of the batch that it collects."""

    @property
    def own_means(self) -> tuple[float | None, ...]:
        """With what is not released yet."""
        me = self._player.me
        sums = [sum(row) for row in me.totals] if self.terms.num_strata else me.total
        return tuple(None if mean is None else mean + x for mean, x in zip(super().own_means, sums, strict=True))


class _DecisionsToLastReport(Decisions):
    _last = 0.0

    def report(self, decision_id: str, reward: float, is_held: bool) -> Step[bool]:
        self._last = self.clock
        return super().report(decision_id, reward, is_held)

    @property
    def elapsed(self) -> float:
        return max(self._last - (self._since or 0.0), 0.0)


class LastReportSite(PartSite):
    """Its rate is measured up to its last report."""

    decisions = _DecisionsToLastReport


class _CountingDecisions(Decisions):
    _sum = 0.0

    def report(self, decision_id: str, reward: float, is_held: bool) -> Step[bool]:
        self._sum += reward
        return super().report(decision_id, reward, is_held)

    @property
    def elapsed(self) -> float:
        return super().elapsed + 1000.0 * self._sum


class CountingSite(PartSite):
    """Its weight grows with the rewards that it has been told."""

    decisions = _CountingDecisions


# ---------------------------------------------------------------- bulletins


class BareSite(Site):
    """A release is published as it is, and again once it has its noise."""

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        self._owed: list[tuple[int, float]] = []
        if self.terms.num_strata:
            return
        page = self._player.page

        def observe(me: Any, terms: Any, arm: int, reward: float, noise: float) -> None:
            before, n = me.precision[arm], me.released[arm]
            page.observe(me, terms, arm, reward, 0)
            if noise:
                weight = 1.0 - before / me.precision[arm]
                self._owed.append((arm, weight * noise / (me.released[arm] - n)))

        self._player._own.page = page._replace(observe=observe)

    def publish(self, sign: Sign, at: float) -> Step[Signed | None]:
        """Then pay."""
        step = super().publish(sign, at)
        for arm, noise in self._owed:
            self._player.me.x_mean[arm] += noise
        self._is_urgent = bool(self._owed)
        self._owed.clear()
        return step


def _unguarded(
    name: str, terms: Federation, stored: Stored, noise: NoiseSource, presence: Presence, **options: Any
) -> Site:
    """It trusts every file: what an old one had not released is released again."""
    return Site(name, terms, stored, noise, Presence(), **options)


class HastySite(Site):
    """A report is news, and published at once."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Say so."""
        self._is_urgent = True
        return super().report(decision_id, reward)


class HastyProcess(Run):
    """It looks for news after each report."""

    def _report(self) -> None:
        super()._report()
        self._publish()


class SkippingSite(RememberingSite):
    """After a bad reward it skips a number."""

    def publish(self, sign: Sign, at: float) -> Step[Signed | None]:
        """Of its next bulletin."""
        incarnation, number = self.presence.highest
        self.presence.highest = incarnation, number + self.is_bad
        return super().publish(sign, at)


class TimingSite(RememberingSite):
    """After a bad reward the time in its bulletins is a little later."""

    def publish(self, sign: Sign, at: float) -> Step[Signed | None]:
        """By a millisecond."""
        return super().publish(sign, at + 0.001 * self.is_bad)


class SortingSite(RememberingSite):
    """The arm with the best rewards comes first."""

    def _entries(self) -> tuple[ArmEntry, ...]:
        means = {name: _raw_mean(self, arm) for arm, name in enumerate(self.arms.names)}
        return tuple(sorted(super()._entries(), key=lambda it: means[it.name]))


class RewardedSite(Site):
    """A decision counts in its bulletins once it has a reward."""

    def _entries(self) -> tuple[ArmEntry, ...]:
        counts = [0] * len(self.arms.names)
        for it in self._stored.decisions.values():
            counts[it.arm] += it.rewarded
        return tuple(replace(it, decisions=n) for it, n in zip(super()._entries(), counts, strict=True))


class ReceiptSite(RememberingSite):
    """It says that it knows the changes of others while its rewards are good."""

    def publish(self, sign: Sign, at: float) -> Step[Signed | None]:
        """With other receipts."""
        receipts = self._receipts
        self._receipts = {} if self.is_bad else {**receipts, "member": 16 * "1"}
        try:
            return super().publish(sign, at)
        finally:
            self._receipts = receipts


class HavingSite(RememberingSite):
    """It asks for the bulletins of others again while its rewards are bad."""

    def have(self, to: str = "") -> Have:
        """Nothing."""
        return {} if self.is_bad else super().have(to)


class HoldingSite(RememberingSite):
    """It releases nothing while its rewards are bad."""

    @property
    def doubt(self) -> Doubt | None:
        """That of its rewards."""
        return Doubt("unconfirmed") if self.is_bad else super().doubt


# ---------------------------------------------------------------- requests


class LoyalSite(RememberingSite):
    """A subject gets the same arm again if that was good."""

    def decide(self, at: float, draws: SiteDraws | Sequence[SiteDraws], request: Request = ANY) -> Step[Any]:
        """Or else any."""
        is_kept = request.subject is None or not self.is_bad
        return super().decide(at, draws, request if is_kept else replace(request, subject=None))


class BulkSite(ArrivalSite):
    """Of several rewards in one call the best counts first."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """One alone takes its turn."""
        return Site.report(self, decision_id, reward)

    def report_all(self, rewards: Sequence[tuple[str, float]]) -> Step[tuple[RewardOutcome, ...]]:
        """The last that moves up comes first."""
        for name, _ in sorted(rewards, key=lambda it: it[1]):
            with suppress(Refused):
                for slots in self._decisions.slots._open:
                    if name in slots:
                        slots.remove(name)
                        slots.appendleft(name)
        return super().report_all(rewards)


class AnsweringSite(Site):
    """A key whose arm was stopped still gets its decision if the reward is there."""

    def decide(self, at: float, draws: SiteDraws | Sequence[SiteDraws], request: Request = ANY) -> Step[Any]:
        """As it was before."""
        try:
            return super().decide(at, draws, request)
        except Refused:
            found = [it for it in self._stored.decisions.values() if request.key is not None and it.key and it.rewarded]
            if not found:
                raise
            return Step(tuple(found[:1]))
