"""Dist-UCB (Zhu and Liu): the paper's estimate over all links in every round, with Metropolis weights. No privacy."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fedbandit.policies.protocol import (
    ARMS,
    Count,
    Fields,
    LinkRule,
    Now,
    Number,
    Page,
    Setting,
    needs_company,
    uniform,
)
from fedbandit.rules.choose import count_lagging, highest, nth_lagging
from fedbandit.rules.radius import dist_spread, scaled_radius

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum
    x_mean=Number[ARMS],
    spread=Number[ARMS],  # the part of the radius that changes at a pull only
    caught_up=Count,  # decisions by the consistency rule
    belief=Number[ARMS],
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    share: float
    degree: int
    allowed: int  # the tolerated lag in pulls: an agent catches up when n <= n~ - M
    scale: float


def announced(me: Any, terms: Terms, arm: int) -> int:
    """The agent's own count, which enters n~."""
    return me.tried[arm]


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """A random lagging arm; else the highest theta + radius."""
    lagging = count_lagging(me.tried, seen.n_max, terms.allowed)
    if lagging > 0:
        me.caught_up += 1
        return nth_lagging(me.tried, seen.n_max, terms.allowed, int(uniform(draws) * lagging))
    for k in range(len(me.belief)):
        me.belief[k] = seen.theta[k] + radius(me, terms, seen, now, k)
    return highest(me.belief)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Count the reward and update the sample mean."""
    me.total[arm] += reward
    me.n[arm] += 1
    me.x_mean[arm] = me.total[arm] / me.n[arm]
    me.spread[arm] = dist_spread(me.n[arm], terms.degree)


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """The sample mean; theta is its gossiped average."""
    return (terms.share * me.x_mean[arm],)


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """Theta."""
    return seen.theta[arm]


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """sqrt(3 log t / (degree n)), in units of the scale."""
    return scaled_radius(me.spread[arm], now.root_log_t, terms.scale)


PAGE = Page(
    knows=KNOWS,
    averaged=("theta",),
    network="gossip",
    decide=decide,
    observe=observe,
    published=published,
    announced=announced,
    estimate=estimate,
    radius=radius,
)


@dataclass(frozen=True)
class DistUCB:
    """Dist-UCB (Zhu and Liu): the paper's estimate over all links in every round, with Metropolis weights.

    Index theta + sqrt(3 log t / (degree n)); an agent catches up on an arm when n <= n~ - M. No privacy.
    """

    kind: ClassVar[str] = "dist_ucb"
    label: ClassVar[str] = "Dist-UCB"

    def page(self) -> Page:
        """Dist-UCB."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Refuse a single agent."""
        needs_company(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the setting."""
        return Terms(setting.share, setting.degree, setting.num_arms - 1, setting.scale)

    def links(self, setting: Setting) -> LinkRule:
        """All links, every round."""
        return LinkRule(presence=1.0)
