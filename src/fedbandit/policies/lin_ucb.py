"""LinUCB (Li et al. 2010, Algorithm 1, disjoint arms): ridge regression and an upper bound, no privacy.

Alone, the floor, or on everyone's pooled decisions, the ceiling: the same page on another network.
"""

from dataclasses import dataclass
from math import log, sqrt
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import InvalidArgument, number_above, true_or_false
from fedbandit.policies.protocol import (
    ARMS,
    FEATURES,
    Context,
    Count,
    Fields,
    Now,
    Number,
    Page,
    Setting,
    needs_one_row,
)
from fedbandit.rules import linear
from fedbandit.rules.choose import highest
from fedbandit.rules.mean import clamp
from fedbandit.rules.radius import deviation

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    worth=Number[ARMS],  # the same, as a number of the record
    gram=Number[ARMS, FEATURES, FEATURES],  # sum x x'
    vector=Number[ARMS, FEATURES],  # sum x q
    heard=Number[ARMS],  # rewards in the records that are known
    inverse=Number[ARMS, FEATURES, FEATURES],  # A^-1
    theta=Number[ARMS, FEATURES],
    x=Number[FEATURES].transient,  # of the decision in hand, scaled
    belief=Number[ARMS].transient,
    spread=Number[ARMS].transient,
    sums=Number[FEATURES].transient,
    work=Number[FEATURES, FEATURES].transient,
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    factor: float  # of the standard deviation in the index
    ridge: float
    low: float
    high: float
    centre: float
    norm: float


def start(me: Any, terms: Terms) -> None:
    """A = ridge I."""
    for k in range(len(me.n)):
        for a in range(len(me.x)):
            me.inverse[k][a][a] = 1.0 / terms.ridge


def judge(me: Any, terms: Terms, context: Context) -> None:
    """X . theta and sqrt(x' A^-1 x) of every arm (Algorithm 1, line 9)."""
    scale = linear.scale_of(context.features, terms.norm)
    for c in range(len(me.x)):
        me.x[c] = scale * context.features[c]
    for k in range(len(me.n)):
        me.belief[k] = linear.dot(me.x, me.theta[k])
        me.spread[k] = terms.factor * deviation(max(linear.quadratic(me.x, me.inverse[k]), 0.0))


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """The highest x . theta + alpha sqrt(x' A^-1 x)."""
    judge(me, terms, context)
    for k in range(len(me.n)):
        me.belief[k] += me.spread[k]
    return highest(me.belief)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float, context: Context) -> None:
    """Add the decision to the sums of its arm (lines 12 and 13)."""
    scale = linear.scale_of(context.features, terms.norm)
    q = (clamp(reward, terms.low, terms.high) - terms.centre) / (terms.high - terms.low)
    linear.add_decision(context.features, scale, q, me.vector[arm], me.gram[arm])
    me.n[arm] += 1
    me.worth[arm] = float(me.n[arm])


def receive(me: Any, terms: Terms, arm: int, rows: Any, versions: Any) -> None:
    """A^-1 and theta = A^-1 b, from the agent's own record, or the sum of all."""
    size, row = len(me.x), rows[0]
    if row[0] == me.heard[arm]:
        return
    me.heard[arm] = row[0]
    for a in range(size):
        for b in range(size):
            me.work[a][b] = row[1 + size + a * size + b]
        me.work[a][a] += terms.ridge
        me.sums[a] = row[1 + a]
    linear.invert(me.work, me.inverse[arm], size)
    linear.along(me.inverse[arm], me.sums, me.theta[arm])


def estimate(me: Any, terms: Terms, seen: Any, arm: int, context: Context) -> float:
    """The mean of the arm for these features."""
    scale = linear.scale_of(context.features, terms.norm) * (terms.high - terms.low)
    return terms.centre + scale * linear.dot(context.features, me.theta[arm])


ALONE = Page(
    knows=KNOWS,
    averaged=(),
    network="alone",
    start=start,
    decide=decide,
    observe=observe,
    published=None,
    records=("worth", "vector", "gram"),
    receive=receive,
    estimate=estimate,
    radius=None,
    context="features",
)
POOLED = ALONE._replace(network="pooled")


def terms_of(setting: Setting, factor: float, ridge: float) -> Terms:
    """Rewards in units of their range, features of their norm."""
    return Terms(
        factor=factor,
        ridge=ridge,
        low=setting.low,
        high=setting.high,
        centre=(setting.low + setting.high) / 2.0 if setting.has_constant else 0.0,
        norm=setting.norm,
    )


def check_setting(policy: Any, setting: Setting) -> None:
    """Refuse rewards without a range, whose unit is unknown, and arms with features of their own."""
    if not setting.has_range:
        unit = f"declared for {policy.label}: its bounds are in units of the range"
        raise InvalidArgument("reward_range", None, unit)
    needs_one_row(policy, setting)


@dataclass(frozen=True)
class LinUCB:
    """Ridge regression of each arm and an upper bound (Li et al. 2010), no privacy.

    * ``central``: on everyone's pooled decisions, the ceiling where agents agree; else alone, the floor.
    * ``alpha``: of the bound; default 1 + sqrt(log(2 / .05) / 2), theirs for a probability of 95 %.
    * ``ridge``: the multiple of the identity to begin with, theirs is 1.

    Features are divided by their largest norm, rewards are less the middle of their range and in units of it.
    """

    central: bool = False
    alpha: float = 1.0 + sqrt(log(2.0 / 0.05) / 2.0)
    ridge: float = 1.0

    kind: ClassVar[str] = "lin_ucb"

    def __post_init__(self) -> None:
        """Check the parameters."""
        true_or_false("central", self.central)
        for name in ("alpha", "ridge"):
            object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        default = self.alpha == LinUCB.alpha and self.ridge == 1.0
        numbers = "" if default else f", alpha={self.alpha:g}, ridge={self.ridge:g}"
        return f"{'Central' if self.central else 'Local'} LinUCB{numbers}"

    def page(self) -> Page:
        """Alone or pooled."""
        return POOLED if self.central else ALONE

    def check(self, setting: Setting) -> None:
        """Refuse rewards without a range, and arms with features of their own."""
        check_setting(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the parameters and the setting."""
        return terms_of(setting, self.alpha, self.ridge)
