"""coop-UCB2 (Landgren, Srivastava, Leonard 2016): running consensus on sums and counts. No privacy."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fedbandit.policies.protocol import ARMS, Count, Fields, LinkRule, Now, Number, Page, Setting, needs_company
from fedbandit.rules.choose import highest
from fedbandit.rules.gossip import ratio
from fedbandit.rules.radius import coop_radius

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum
    theta=Number[ARMS],
    belief=Number[ARMS],
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    scale: float


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The highest s/c + radius."""
    for k in range(len(me.belief)):
        me.belief[k] = me.theta[k] + radius(me, terms, seen, now, k)
    return highest(me.belief)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Count the reward."""
    me.total[arm] += reward
    me.n[arm] += 1


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """Sum and count: this weighs agents by their pulls, whatever their declared weights."""
    return me.total[arm], float(me.n[arm])


def believe(me: Any, terms: Terms, seen: Any, arm: int) -> None:
    """s/c."""
    me.theta[arm] = ratio(seen.sums[arm], seen.counts[arm])


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """s/c."""
    return me.theta[arm]


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """sqrt(2 (c + f) log t / (N c^2)), f = sqrt(log t), in units of the scale."""
    return terms.scale * coop_radius(seen.counts[arm], terms.num_agents, now.log_t)


PAGE = Page(
    knows=KNOWS,
    averaged=("sums", "counts"),
    network="consensus",
    decide=decide,
    observe=observe,
    published=published,
    believe=believe,
    estimate=estimate,
    radius=radius,
)


@dataclass(frozen=True)
class CoopUCB2:
    """coop-UCB2 (Landgren, Srivastava, Leonard 2016): running consensus on sums and counts, all links every round.

    Index s/c + sqrt(2 (c + f) log t / (N c^2)), f = sqrt(log t), gamma = 1 as in their simulations, Metropolis
    weights. It weighs agents by their pulls, so it is biased when agents see different means. No privacy.
    """

    kind: ClassVar[str] = "coop_ucb2"
    label: ClassVar[str] = "coop-UCB2"

    def page(self) -> Page:
        """coop-UCB2."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Refuse a single agent."""
        needs_company(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the setting."""
        return Terms(setting.num_agents, setting.scale)

    def links(self, setting: Setting) -> LinkRule:
        """All links, every round."""
        return LinkRule(presence=1.0)
