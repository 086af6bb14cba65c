"""Central UCB: an index on everyone's pooled rewards, no privacy. The ceiling when agents act in step."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import number_above, true_or_false
from fedbandit.policies.protocol import (
    ARMS,
    INDICES,
    Count,
    Fields,
    Index,
    Now,
    Number,
    Page,
    Setting,
    checked_index,
    highest_draw,
    known_variance,
    needs_unit_range,
)
from fedbandit.rules.batch import learnt_reward_variance, least_reward_variance
from fedbandit.rules.choose import highest
from fedbandit.rules.kl import NO_NOISE, highest_kl_index
from fedbandit.rules.radius import CALIBRATED_ALPHA, calibrated_factor, calibrated_radius, deviation

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum
    x_mean=Number[ARMS],
    deviation=Number[ARMS],  # of the pooled mean
    worth=Number[ARMS],  # how many rewards the pooled mean is worth
    belief=Number[ARMS],
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    weight: float  # of this agent in the pooled mean
    factor: float  # the root of alpha
    low: float
    high: float
    most_variance: float  # of one reward
    least_variance: float


def decide_by_radius(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The highest pooled mean + radius."""
    for k in range(len(me.belief)):
        me.belief[k] = seen.theta[k] + radius(me, terms, seen, now, k)
    return highest(me.belief)


def decide_by_thompson(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The highest draw around the pooled mean, by every agent for itself."""
    return highest_draw(seen.theta, me.deviation, draws)


def decide_by_divergence(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The arm with the largest mean that the divergence does not rule out."""
    return highest_kl_index(seen.theta, me.worth, now.log_t, NO_NOISE)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Count the reward and update the mean."""
    me.total[arm] += reward
    me.n[arm] += 1
    me.x_mean[arm] = me.total[arm] / me.n[arm]


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """The agent's contribution to the pooled mean, to its variance, and to the variance in units of one reward's."""
    n, x_mean, most, square = me.n[arm], me.x_mean[arm], terms.most_variance, terms.weight * terms.weight
    if n == 0:
        return 0.0, 0.0, 0.0
    one = learnt_reward_variance(x_mean, most / n, terms.low, terms.high, terms.least_variance, most)
    return terms.weight * x_mean, square * one / n, square / n


def believe(me: Any, terms: Terms, seen: Any, arm: int) -> None:
    """What the indices need of the variance of the pooled mean."""
    me.deviation[arm] = deviation(seen.variance[arm])


def believe_with_worth(me: Any, terms: Terms, seen: Any, arm: int) -> None:
    """The same, and how many rewards the pooled mean is worth."""
    me.deviation[arm] = deviation(seen.variance[arm])
    me.worth[arm] = 1.0 / seen.inverse_worth[arm]


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """The pooled mean."""
    return seen.theta[arm]


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """sqrt(alpha log t V), V the variance of the pooled mean."""
    return calibrated_radius(me.deviation[arm], terms.factor, now.root_log_t)


RADIUS = Page(
    knows=KNOWS,
    averaged=("theta", "variance", "inverse_worth"),
    network="pooled",
    decide=decide_by_radius,
    observe=observe,
    published=published,
    believe=believe,
    estimate=estimate,
    radius=radius,
)
THOMPSON = RADIUS._replace(decide=decide_by_thompson)
DIVERGENCE = RADIUS._replace(decide=decide_by_divergence, believe=believe_with_worth)


@dataclass(frozen=True)
class CentralUCB:
    """An index on everyone's pooled rewards, no privacy: the ceiling when agents act in step.

    When rates differ it is no ceiling: its bonus covers the slowest agent's variance, which fast agents cannot reduce.

    With V the variance of the pooled mean m = sum_i weight_i x_mean_i, the ``index`` of an arm is

    * ``"ucb"``: m + sqrt(alpha log t V)
    * ``"thompson"``: m + sqrt(V) z, z standard normal, drawn by every agent separately
    * ``"kl"``: max{q : kl(m, q) <= log t / count}, count the effective number of rewards in m; for rewards in [0, 1]

    V uses the largest possible variance of a reward, (high - low)^2 / 4. With ``learns_variance`` it is learnt from
    the means, as in FedBatch.
    """

    alpha: float = CALIBRATED_ALPHA
    index: Index = "ucb"
    learns_variance: bool = False

    kind: ClassVar[str] = "central_ucb"

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", number_above("alpha", self.alpha, 0.0))
        object.__setattr__(self, "learns_variance", true_or_false("learns_variance", self.learns_variance))
        checked_index(self.index)

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        alpha = "" if self.alpha == CALIBRATED_ALPHA else f", alpha={self.alpha:g}"
        return f"Central {INDICES[self.index]}{alpha}" + (", variance learnt" if self.learns_variance else "")

    def page(self) -> Page:
        """The page of the index."""
        return {"ucb": RADIUS, "thompson": THOMPSON, "kl": DIVERGENCE}[self.index]

    def check(self, setting: Setting) -> None:
        """Refuse a divergence index for rewards outside [0, 1]."""
        if self.index == "kl":
            needs_unit_range(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the parameters and the setting."""
        most = known_variance(setting)
        learns = self.learns_variance and setting.bounded
        return Terms(
            weight=setting.share / setting.num_agents,
            factor=calibrated_factor(self.alpha),
            low=setting.low,
            high=setting.high,
            most_variance=most,
            least_variance=least_reward_variance(most) if learns else most,
        )
