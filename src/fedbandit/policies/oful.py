"""OFUL (Abbasi-Yadkori et al. 2011): one ridge regression for all arms, whose features differ, and an upper bound.

Each arm has features of its own in every decision, and one theta tells the means of all. Alone, or on everyone's pooled
decisions. The width of the bound is a number that is given, as in the experiments of those who compare with it.
"""

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import number_above, true_or_false
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
    needs_rewards_at_once,
    needs_rows_of_arms,
)
from fedbandit.rules import linear
from fedbandit.rules.choose import highest
from fedbandit.rules.mean import clamp
from fedbandit.rules.radius import deviation

KNOWS = Fields(
    n=Count[ARMS],
    worth=Number[ARMS],  # the record, of all arms together: that of arm 0; its decisions ...
    vector=Number[ARMS, FEATURES],  # ... the sum of x q ...
    gram=Number[ARMS, FEATURES, FEATURES],  # ... and of x x'
    heard=Number,  # decisions in the records that are known
    inverse=Number[FEATURES, FEATURES],  # A^-1
    theta=Number[FEATURES],
    x=Number[FEATURES].transient,  # of one arm, scaled
    sums=Number[FEATURES].transient,
    work=Number[FEATURES, FEATURES].transient,
    belief=Number[ARMS].transient,
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    width: float
    ridge: float
    low: float
    high: float
    centre: float
    unit: float  # of rewards
    norm: float


def start(me: Any, terms: Any) -> None:
    """A = ridge I."""
    for a in range(len(me.x)):
        me.inverse[a][a] = 1.0 / terms.ridge


def look_at(me: Any, terms: Any, arm: int, context: Context) -> None:
    """The features of an arm in hand, with a norm of at most 1."""
    for c in range(len(me.x)):
        me.x[c] = context.features[arm * len(me.x) + c]
    scale = linear.scale_of(me.x, terms.norm)
    for c in range(len(me.x)):
        me.x[c] *= scale


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """The highest x . theta + width sqrt(x' A^-1 x)."""
    for k in range(len(me.belief)):
        look_at(me, terms, k, context)
        spread = deviation(max(linear.quadratic(me.x, me.inverse), 0.0))
        me.belief[k] = linear.dot(me.x, me.theta) + terms.width * spread
    return highest(me.belief)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float, context: Context) -> None:
    """Add the decision to the sums."""
    look_at(me, terms, arm, context)
    q = (clamp(reward, terms.low, terms.high) - terms.centre) / terms.unit
    linear.add_decision(me.x, 1.0, q, me.vector[0], me.gram[0])
    me.n[arm] += 1
    me.worth[0] += 1.0


def receive(me: Any, terms: Terms, arm: int, rows: Any, versions: Any) -> None:
    """A^-1 and theta = A^-1 b, from the agent's own record, or the sum of all."""
    if arm == 0 and rows[0][0] != me.heard:
        me.heard = rows[0][0]
        regress(me, terms, rows[0])


def regress(me: Any, terms: Terms, row: Any) -> None:
    """Ridge regression on a record."""
    size = len(me.x)
    for a in range(size):
        for b in range(size):
            me.work[a][b] = row[1 + size + a * size + b]
        me.work[a][a] += terms.ridge
        me.sums[a] = row[1 + a]
    linear.invert(me.work, me.inverse, size)
    linear.along(me.inverse, me.sums, me.theta)


def estimate(me: Any, terms: Terms, seen: Any, arm: int, context: Context) -> float:
    """The mean of the arm for its features."""
    look_at(me, terms, arm, context)
    return terms.centre + terms.unit * linear.dot(me.x, me.theta)


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
    one_record=True,
    estimate=estimate,
    radius=None,
    context="features",
)
POOLED = ALONE._replace(network="pooled")


def terms_of(setting: Setting, width: float, ridge: float) -> Terms:
    """Features in units of their norm; rewards in units of their range, or as they are if they have none."""
    low, high, centre, unit = setting.low, setting.high, 0.0, 1.0
    if setting.has_range:
        unit = high - low
        centre = (low + high) / 2.0 if setting.has_constant else 0.0
    else:
        low, high = -inf, inf
    return Terms(width, ridge, low, high, centre, unit, setting.norm)


@dataclass(frozen=True)
class OFUL:
    """One ridge regression for all arms, whose features differ, and an upper bound (Abbasi-Yadkori et al. 2011).

    * ``central``: on everyone's pooled decisions; else alone.
    * ``width``: of the bound, times sqrt(x' A^-1 x); default: .5, as in the experiments of He et al. (2022).
    * ``ridge``: the multiple of the identity to begin with; theirs is 1.

    Features are divided by their largest norm; rewards are in units of their range, if there is one.
    """

    central: bool = False
    width: float = 0.5
    ridge: float = 1.0

    kind: ClassVar[str] = "oful"

    def __post_init__(self) -> None:
        """Check the parameters."""
        true_or_false("central", self.central)
        for name in ("width", "ridge"):
            object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        default = (self.width, self.ridge) == (0.5, 1.0)
        numbers = "" if default else f", width={self.width:g}, ridge={self.ridge:g}"
        return f"{'Central' if self.central else 'Local'} OFUL{numbers}"

    def page(self) -> Page:
        """Alone or pooled."""
        return POOLED if self.central else ALONE

    def check(self, setting: Setting) -> None:
        """Refuse decisions whose features are the same for all arms, and late rewards."""
        needs_rows_of_arms(self, setting)
        needs_rewards_at_once(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the parameters and the setting."""
        return terms_of(setting, self.width, self.ridge)
