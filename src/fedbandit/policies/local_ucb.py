"""Local UCB1: UCB1 on an agent's own rewards (Auer et al. 2002), no communication. The floor."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import number_above
from fedbandit.policies.protocol import ARMS, Count, Fields, Now, Number, Page, Setting
from fedbandit.rules.choose import highest
from fedbandit.rules.radius import CALIBRATED_ALPHA, local_scale, local_spread, scaled_radius

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum
    x_mean=Number[ARMS],
    spread=Number[ARMS],  # the part of the radius that changes at a pull only
    belief=Number[ARMS],
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    scale: float


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The highest mean + radius."""
    for k in range(len(me.belief)):
        me.belief[k] = seen.theta[k] + radius(me, terms, seen, now, k)
    return highest(me.belief)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Count the reward and update the mean."""
    me.total[arm] += reward
    me.n[arm] += 1
    me.x_mean[arm] = me.total[arm] / me.n[arm]
    me.spread[arm] = local_spread(me.n[arm])


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """The sample mean, which nobody averages."""
    return (me.x_mean[arm],)


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """The agent's own mean."""
    return seen.theta[arm]


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """sqrt(2 log t / n), in units of the scale, which holds alpha."""
    return scaled_radius(me.spread[arm], now.root_log_t, terms.scale)


PAGE = Page(
    knows=KNOWS,
    averaged=("theta",),
    network="alone",
    decide=decide,
    observe=observe,
    published=published,
    estimate=estimate,
    radius=radius,
)


@dataclass(frozen=True)
class LocalUCB:
    """UCB1 on an agent's own rewards, no communication: the floor. Linear regret under local bias.

    * ``alpha``: the radius is sqrt(alpha log t / n), in units of the rewards' scale; 2 in UCB1.
    """

    alpha: float = CALIBRATED_ALPHA

    kind: ClassVar[str] = "local_ucb"

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", number_above("alpha", self.alpha, 0.0))

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        return "Local UCB1" if self.alpha == CALIBRATED_ALPHA else f"Local UCB1, alpha={self.alpha:g}"

    def page(self) -> Page:
        """UCB1."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Accept every setting."""

    def terms(self, setting: Setting) -> Terms:
        """The unit of the radius."""
        return Terms(local_scale(setting.scale, self.alpha))
