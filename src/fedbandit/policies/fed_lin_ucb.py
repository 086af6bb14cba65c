"""FedLinUCB (He et al. 2022, Algorithm 1): OFUL of many agents and a server, that talk when much is new. No privacy.

An agent decides by what it last received. When its own newer decisions make the determinant of A more than 1 + growth
times what it was then, it sends their sums to the server and receives those of all that were sent.
"""

from dataclasses import dataclass
from math import log
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import number_above
from fedbandit.policies import oful
from fedbandit.policies.protocol import (
    FEATURES,
    Context,
    Count,
    Fields,
    Number,
    Page,
    Setting,
    needs_rewards_at_once,
    needs_rows_of_arms,
)
from fedbandit.rules import linear
from fedbandit.rules.mean import clamp

KNOWS = Fields(
    **{name: oful.KNOWS[name] for name in oful.KNOWS if name not in ("tried", "heard")},
    new_vector=Number[FEATURES],  # of decisions that were not sent
    new_gram=Number[FEATURES, FEATURES],
    new=Count,
    known_gram=Number[FEATURES, FEATURES],  # A, as it was received
    log_determinant=Number,  # of it
    waits=Count,  # whether it has sent, and not received
    scratch=Number[FEATURES, FEATURES].transient,
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    width: float
    ridge: float
    low: float
    high: float
    centre: float
    unit: float
    norm: float
    log_growth: float


def start(me: Any, terms: Terms) -> None:
    """A = ridge I."""
    oful.start(me, terms)
    for a in range(len(me.x)):
        me.known_gram[a][a] = terms.ridge
    me.log_determinant = len(me.x) * log(terms.ridge)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float, context: Context) -> None:
    """Add the decision to what is new; send it if that is much (lines 8 to 10)."""
    oful.look_at(me, terms, arm, context)
    q = (clamp(reward, terms.low, terms.high) - terms.centre) / terms.unit
    linear.add_decision(me.x, 1.0, q, me.new_vector, me.new_gram)
    me.n[arm] += 1
    me.new += 1
    for a in range(len(me.x)):
        for b in range(len(me.x)):
            me.work[a][b] = me.known_gram[a][b] + me.new_gram[a][b]
    if linear.invert(me.work, me.scratch, len(me.x)) > terms.log_growth + me.log_determinant:
        send(me)


def send(me: Any) -> None:
    """All that is new; then nothing is."""
    me.worth[0] += float(me.new)
    me.new, me.waits = 0, 1
    for a in range(len(me.x)):
        me.vector[0][a] += me.new_vector[a]
        me.new_vector[a] = 0.0
        for b in range(len(me.x)):
            me.gram[0][a][b] += me.new_gram[a][b]
            me.new_gram[a][b] = 0.0


def receive(me: Any, terms: Terms, arm: int, rows: Any, versions: Any) -> None:
    """What all have sent, if the agent has (lines 11 to 15)."""
    if arm > 0 or me.waits == 0:
        return
    me.waits, size = 0, len(me.x)
    for a in range(size):
        for b in range(size):
            me.known_gram[a][b] = rows[0][1 + size + a * size + b]
        me.known_gram[a][a] += terms.ridge
    for a in range(size):
        for b in range(size):
            me.work[a][b] = me.known_gram[a][b]
        me.sums[a] = rows[0][1 + a]
    me.log_determinant = linear.invert(me.work, me.inverse, size)
    linear.along(me.inverse, me.sums, me.theta)


PAGE = oful.POOLED._replace(knows=KNOWS, start=start, observe=observe, receive=receive)


@dataclass(frozen=True)
class FedLinUCB:
    """OFUL of many agents and a server that talk when much is new (He et al. 2022), for comparison. No privacy.

    * ``growth``: an agent sends when the determinant of A has grown by this factor plus 1; theirs: 1.
    * ``width``, ``ridge``: see ``OFUL``.
    """

    growth: float = 1.0
    width: float = 0.5
    ridge: float = 1.0

    kind: ClassVar[str] = "fed_lin_ucb"

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("growth", "width", "ridge"):
            object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        default = (self.growth, self.width, self.ridge) == (1.0, 0.5, 1.0)
        return "FedLinUCB" + (
            "" if default else f", growth={self.growth:g}, width={self.width:g}, ridge={self.ridge:g}"
        )

    def page(self) -> Page:
        """OFUL on a server's sums."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Refuse decisions whose features are the same for all arms, and late rewards."""
        needs_rows_of_arms(self, setting)
        needs_rewards_at_once(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the parameters and the setting."""
        return Terms(*oful.terms_of(setting, self.width, self.ridge), log(1.0 + self.growth))
