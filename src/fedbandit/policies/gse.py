"""GSE (Liu, Qiu, Yang, Xu 2025): gossip with successive elimination, the newest for this setting. No privacy."""

from dataclasses import dataclass
from math import inf, log
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import number_between
from fedbandit.policies.protocol import (
    ARMS,
    Count,
    Fields,
    Flag,
    LinkRule,
    Now,
    Number,
    Page,
    Setting,
    needs_company,
    needs_step,
)
from fedbandit.rules.choose import fewest_pulls
from fedbandit.rules.radius import gse_delay, gse_mixing, gse_radius, is_beaten

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum
    x_mean=Number[ARMS],
    live=Flag[ARMS],  # arms that the agent has not dropped
    num_live=Count,
    bound=Number[ARMS],  # radii of the current comparison
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    share: float
    scale: float
    log_horizon: float
    delay: float  # L
    mixing: float  # tau


def start(me: Any, terms: Terms) -> None:
    """All arms are live."""
    me.num_live = len(me.n)
    for k in range(len(me.n)):
        me.live[k] = 1


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """Live arms, in turn."""
    return fewest_pulls(me.tried, me.live)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Count the reward and update the mean."""
    me.total[arm] += reward
    me.n[arm] += 1
    me.x_mean[arm] = me.total[arm] / me.n[arm]


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """The mean; theta is its gossiped average."""
    return (terms.share * me.x_mean[arm],)


def meet(agents: Any, terms: Any, seen: Any, edges: Any, present: Any) -> int:
    """Drop arms that a neighbour on a present edge has dropped, then arms that the agent's own estimates rule out."""
    for e in range(len(edges)):
        if present[e]:
            one, other = agents[edges[e, 0]], agents[edges[e, 1]]
            for k in range(len(one.n)):
                if one.live[k] != other.live[k]:
                    _drop(one, k)
                    _drop(other, k)
    for i in range(len(agents)):
        if agents[i].num_live > 1:
            _drop_beaten(agents[i], terms[i], seen[i])
    return 0


def _drop_beaten(me: Any, terms: Terms, seen: Any) -> None:
    best_lower = -inf
    for k in range(len(me.n)):
        me.bound[k] = terms.scale * gse_radius(me.n[k], terms.num_agents, terms.log_horizon, terms.delay, terms.mixing)
        if me.live[k]:
            best_lower = max(best_lower, seen.theta[k] - me.bound[k])
    for k in range(len(me.n)):
        if me.live[k] and is_beaten(seen.theta[k], me.bound[k], best_lower):
            _drop(me, k)


def _drop(me: Any, arm: int) -> None:
    """Drop an arm, but never the last one."""
    if me.live[arm] and me.num_live > 1:
        me.live[arm] = 0
        me.num_live -= 1


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """Theta."""
    return seen.theta[arm]


PAGE = Page(
    knows=KNOWS,
    averaged=("theta",),
    network="gossip",
    start=start,
    decide=decide,
    observe=observe,
    published=published,
    estimate=estimate,
    radius=None,
    meet=meet,
)


@dataclass(frozen=True)
class GSE:
    """GSE (Liu, Qiu, Yang, Xu 2025): gossip with successive elimination, the newest for this setting. No privacy.

    Round robin over live arms; over edges that are each ``present`` with some probability in a round, theta moves
    by (theta_j - theta_i) / N. An arm is dropped when its upper bound is below another's lower bound, or when a
    neighbour on a present edge has dropped it. It knows T. Agents must act in step.
    """

    present: float = 1.0

    kind: ClassVar[str] = "gse"

    def __post_init__(self) -> None:
        object.__setattr__(self, "present", number_between("present", self.present, 0.0, 1.0))

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        return "GSE" if self.present == 1.0 else f"GSE, edges present {self.present:g}"

    def page(self) -> Page:
        """GSE."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Refuse agents that do not act in step, and a single agent."""
        needs_company(self, setting)
        needs_step(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the setting."""
        return Terms(
            num_agents=setting.num_agents,
            share=setting.share,
            scale=setting.scale,
            log_horizon=log(setting.horizon),
            delay=gse_delay(setting.num_arms, setting.horizon, self.present),
            mixing=gse_mixing(setting.num_agents, setting.complete, setting.horizon, self.present),
        )

    def links(self, setting: Setting) -> LinkRule:
        """Each link with probability ``present`` and weight 1 / N."""
        return LinkRule(self.present, 1.0 / setting.num_agents)
