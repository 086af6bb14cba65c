"""Gossip_UCB: Algorithm 1 of the paper. Gossiped estimates, the consistency rule, radius C. No privacy."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fedbandit.policies.protocol import (
    ARMS,
    Count,
    Fields,
    Now,
    Number,
    Page,
    Setting,
    lagging_chance,
    needs_company,
    uniform,
)
from fedbandit.rules.choose import count_lagging, highest, nth_lagging
from fedbandit.rules.radius import clean_radius, gossip_spread, remaining_bias

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum
    x_mean=Number[ARMS],
    spread=Number[ARMS],  # the part of C that changes at a pull only
    belief=Number[ARMS].transient,  # Q
    caught_up=Count.transient,  # decisions by the consistency rule
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    share: float
    sampling_constant: float
    scale: float
    offset: float


def terms_of(setting: Setting, sampling_constant: float) -> Terms:
    """The numbers of C; ``sampling_constant`` is 1 in the paper."""
    return Terms(
        num_agents=setting.num_agents,
        share=setting.share,
        sampling_constant=sampling_constant * setting.mean_square_share,
        scale=setting.scale,
        offset=remaining_bias(setting.num_agents),
    )


def announced(me: Any, terms: Terms, arm: int) -> int:
    """Line 5: the agent's own count, which enters n~."""
    return me.tried[arm]


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """Lines 6-14: the arm of this round."""
    lagging = count_lagging(me.tried, seen.n_max, terms.num_agents)  # line 6
    if lagging > 0:
        me.caught_up += 1
        return nth_lagging(me.tried, seen.n_max, terms.num_agents, int(uniform(draws) * lagging))  # line 13
    for k in range(len(me.belief)):
        me.belief[k] = seen.theta[k] + radius(me, terms, seen, now, k)  # line 9
    return highest(me.belief)  # line 10


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Lines 15-16: count the reward, update the sample mean and what C needs of the count."""
    me.total[arm] += reward
    me.n[arm] += 1
    me.x_mean[arm] = me.total[arm] / me.n[arm]
    recount(me, terms, arm)


def recount(me: Any, terms: Terms, arm: int) -> None:
    """What C needs of the count, for so many agents."""
    me.spread[arm] = gossip_spread(me.n[arm], terms.num_agents, terms.sampling_constant)


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """Lines 17-22: the sample mean; theta is its gossiped average."""
    return (terms.share * me.x_mean[arm],)


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """Theta."""
    return seen.theta[arm]


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """C (Lemma 4)."""
    return clean_radius(me.spread[arm], now.root_log_t, terms.scale, terms.offset)


PAGE = Page(
    knows=KNOWS,
    averaged=("theta",),
    network="gossip",
    decide=decide,
    observe=observe,
    published=published,
    announced=announced,
    recount=recount,
    estimate=estimate,
    radius=radius,
    chance=lagging_chance,
)


@dataclass(frozen=True)
class GossipUCB:
    """Algorithm 1: gossiped estimates, the consistency rule, radius C. No privacy.

    ``FedUCB(math.inf, sampling_constant=...)`` is the same with another constant in C.
    """

    kind: ClassVar[str] = "gossip_ucb"
    label: ClassVar[str] = "Gossip_UCB"

    def page(self) -> Page:
        """Algorithm 1."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Refuse a single agent."""
        needs_company(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """The numbers of C."""
        return terms_of(setting, 1.0)
