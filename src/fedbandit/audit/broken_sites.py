"""Live sites that break their epsilon, each in one way, to show that the audit catches them. Use none of them.

Each is the site that ships with one mistake in it. The audit is not told which.
"""

# They are spoilt on purpose, where nobody should reach.
# pyright: reportPrivateUsage=false

from collections.abc import Callable
from random import Random
from typing import Any

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Stored
from fedbandit.agent.core.site import Site
from fedbandit.audit.attacks import prefetched
from fedbandit.audit.leaking_sites import (
    ArrivalSite,
    CarryingSite,
    CountingSite,
    EagerSite,
    LastReportSite,
    LateSite,
    RawSite,
    RepeatingSite,
    RestlessSite,
    ShowingSite,
    TellingSite,
    forgetful_site,
    unclamped_site,
)
from fedbandit.audit.script import OpenSite
from fedbandit.audit.target import Target
from fedbandit.policies.protocol import Now, Page
from fedbandit.privacy.noise import GRID, NoiseSource

__all__ = ["broken_sites", "scaled_noise"]


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
        Target("rate measured up to the last report", LastReportSite),
        Target("weight grows with rewards", CountingSite),
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
