"""Private federated LinUCB with a tree (Zhou and Chowdhury 2023, Algorithm 1 with the silo-level tree of Theorem 5.1).

After every B decisions each agent sends its sums of x x' and x q with the noise of a binary tree, and receives the sum
over all agents; between, it adds its own newer decisions. Theirs has one model and features of arms. Here each arm has
a model of its own, and the sums of all arms are sent at once.
"""

from dataclasses import dataclass
from math import log, log2, sqrt
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import number_above, number_between, whole_number
from fedbandit.policies.lin_ucb import check_setting, estimate
from fedbandit.policies.protocol import (
    ARMS,
    FEATURES,
    LEVELS,
    Context,
    Count,
    Fields,
    Now,
    Number,
    Page,
    Setting,
    needs_rewards_at_once,
    needs_step,
)
from fedbandit.rules import linear
from fedbandit.rules.choose import highest
from fedbandit.rules.mean import clamp, trailing_zeros
from fedbandit.rules.radius import deviation

KNOWS = Fields(
    decisions=Count,  # of all arms
    sent=Count,  # batches
    own_gram=Number[ARMS, FEATURES, FEATURES],  # of all decisions
    own_vector=Number[ARMS, FEATURES],
    new_gram=Number[ARMS, FEATURES, FEATURES],  # of those that were not sent
    new_vector=Number[ARMS, FEATURES],
    noise=Number[ARMS, FEATURES].transient,  # of the newest node of the tree
    gram_noise=Number[ARMS, FEATURES, FEATURES].transient,
    nodes=Number[LEVELS, ARMS, FEATURES],  # noise of the nodes that make up all batches
    gram_nodes=Number[LEVELS, ARMS, FEATURES, FEATURES],
    worth=Number[ARMS],  # the record: batches, and the noisy sums
    vector=Number[ARMS, FEATURES],
    gram=Number[ARMS, FEATURES, FEATURES],
    heard=Number[ARMS],
    all_gram=Number[ARMS, FEATURES, FEATURES],  # of all agents
    all_vector=Number[ARMS, FEATURES],
    inverse=Number[ARMS, FEATURES, FEATURES],
    theta=Number[ARMS, FEATURES],
    x=Number[FEATURES].transient,
    belief=Number[ARMS].transient,
    sums=Number[FEATURES].transient,
    work=Number[FEATURES, FEATURES].transient,
    factor=Number[FEATURES, FEATURES].transient,
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    batch: int
    noise_scale: float
    ridge: float
    bound: float  # of the norm of theta
    confidence: float  # log(1 / alpha)
    scale: float  # times the width
    low: float
    high: float
    centre: float
    norm: float


def start(me: Any, terms: Terms) -> None:
    """Ridge regression begins with a multiple of the identity."""
    for k in range(len(me.worth)):
        for a in range(len(me.x)):
            me.inverse[k][a][a] = 1.0 / terms.ridge


def width(me: Any, terms: Terms) -> float:
    """Of the ellipsoid: sqrt(ridge) S + R sqrt(d log(1 + t N / (d ridge)) + log(1 / alpha)), R = 1/2."""
    size = len(me.x)
    volume = size * log(1.0 + me.decisions * terms.num_agents / (size * terms.ridge))
    return terms.scale * (sqrt(terms.ridge) * terms.bound + 0.5 * sqrt(volume + terms.confidence))


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """The highest x . theta + width sqrt(x' A^-1 x) (Algorithm 1, line 5)."""
    scale, factor = linear.scale_of(context.features, terms.norm), width(me, terms)
    for c in range(len(me.x)):
        me.x[c] = scale * context.features[c]
    for k in range(len(me.belief)):
        spread = deviation(max(linear.quadratic(me.x, me.inverse[k]), 0.0))
        me.belief[k] = linear.dot(me.x, me.theta[k]) + factor * spread
    return highest(me.belief)


def noise_due(me: Any, terms: Terms, arm: int, context: Context) -> int:
    """A node of the tree for each batch."""
    return me.decisions + 1 if (me.decisions + 1) % terms.batch == 0 else 0


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: Any, context: Context) -> None:
    """Add the decision; after B of them send what all come to."""
    scale = linear.scale_of(context.features, terms.norm)
    q = (clamp(reward, terms.low, terms.high) - terms.centre) / (terms.high - terms.low)
    linear.add_decision(context.features, scale, q, me.own_vector[arm], me.own_gram[arm])
    linear.add_decision(context.features, scale, q, me.new_vector[arm], me.new_gram[arm])
    me.decisions += 1
    if me.decisions % terms.batch == 0:
        send(me)
    else:
        regress(me, terms, arm)


def send(me: Any) -> None:
    """The sums of all batches, with the noise of the nodes that they are made of (lines 11 to 13)."""
    me.sent += 1
    level = trailing_zeros(me.sent)
    for k in range(len(me.worth)):
        me.worth[k] = float(me.sent)
        for a in range(len(me.x)):
            for above in range(level):
                me.nodes[above][k][a] = 0.0
            me.nodes[level][k][a] = me.noise[k][a]
            me.vector[k][a] = me.own_vector[k][a]
            me.new_vector[k][a] = 0.0
            for node in range(len(me.nodes)):
                me.vector[k][a] += me.nodes[node][k][a]
            for b in range(len(me.x)):
                for above in range(level):
                    me.gram_nodes[above][k][a][b] = 0.0
                me.gram_nodes[level][k][a][b] = 0.5 * (me.gram_noise[k][a][b] + me.gram_noise[k][b][a])
                me.gram[k][a][b] = me.own_gram[k][a][b]
                me.new_gram[k][a][b] = 0.0
                for node in range(len(me.nodes)):
                    me.gram[k][a][b] += me.gram_nodes[node][k][a][b]


def receive(me: Any, terms: Terms, arm: int, rows: Any, versions: Any) -> None:
    """The sum of what all agents have sent, once all have (lines 14 to 16)."""
    size, row = len(me.x), rows[0]
    if row[0] == me.heard[arm] or row[0] != terms.num_agents * me.worth[arm]:
        return
    me.heard[arm] = row[0]
    for a in range(size):
        me.all_vector[arm][a] = row[1 + a]
        for b in range(size):
            me.all_gram[arm][a][b] = row[1 + size + a * size + b]
    regress(me, terms, arm)


def regress(me: Any, terms: Terms, arm: int) -> None:
    """Theta from the sums of all, and the agent's own newer ones (line 4)."""
    size = len(me.x)
    for a in range(size):
        for b in range(size):
            me.work[a][b] = me.all_gram[arm][a][b] + me.new_gram[arm][a][b]
        me.work[a][a] += terms.ridge
    if not linear.is_definite(me.work, me.factor):
        return  # less likely than alpha; the model stays as it was before
    linear.invert(me.work, me.inverse[arm], size)
    for a in range(size):
        me.sums[a] = me.all_vector[arm][a] + me.new_vector[arm][a]
    linear.along(me.inverse[arm], me.sums, me.theta[arm])


PAGE = Page(
    knows=KNOWS,
    averaged=(),
    network="pooled",
    start=start,
    decide=decide,
    noise_due=noise_due,
    observe=observe,
    published=None,
    records=("worth", "vector", "gram"),
    receive=receive,
    estimate=estimate,
    radius=None,
    context="features",
    noise="gaussian",
)


@dataclass(frozen=True)
class TreeLinUCB:
    """Private federated LinUCB with a tree at each silo (Zhou and Chowdhury 2023), for comparison.

    * ``epsilon``, ``delta``: as they set them, of one decision against everybody outside its silo. Noise has their
      scale, sqrt(kappa (log(1 / delta) + epsilon)) / epsilon, kappa the number of levels; theirs: .2 and .1.
    * ``batch``: B, decisions between exchanges; theirs: 25.
    * ``alpha``: the bound holds with probability 1 - alpha; theirs: .01.
    * ``scale``: times the width of the bound; 1 in their synthetic experiments.
    """

    epsilon: float
    delta: float = 0.1
    batch: int = 25
    alpha: float = 0.01
    scale: float = 1.0

    kind: ClassVar[str] = "tree_lin_ucb"

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("epsilon", "scale"):
            object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))
        for name in ("delta", "alpha"):
            object.__setattr__(self, name, number_between(name, getattr(self, name), 0.0, 0.5))
        object.__setattr__(self, "batch", whole_number("batch", self.batch, 1, 10**6))

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        scale = "" if self.scale == 1.0 else f", scale={self.scale:g}"
        return f"LinUCB with a tree{scale}, eps={self.epsilon:g}, delta={self.delta:g}"

    def page(self) -> Page:
        """LinUCB on a server's sums."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Refuse agents out of step, late rewards, and rewards without a range."""
        check_setting(self, setting)
        needs_step(self, setting)
        needs_rewards_at_once(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Their constants: noise and ridge grow with the number of levels."""
        size, agents = max(setting.num_features, 1), setting.num_agents
        levels = int(log2(max(setting.horizon // self.batch, 1))) + 1
        confidence = log(1.0 / self.alpha)
        noise = sqrt(levels * (log(1.0 / self.delta) + self.epsilon)) / self.epsilon
        return Terms(
            num_agents=agents,
            batch=self.batch,
            noise_scale=noise,
            ridge=sqrt(agents * levels) * noise * (sqrt(levels + confidence) + sqrt(size)),
            bound=sqrt(size),
            confidence=confidence,
            scale=self.scale,
            low=setting.low,
            high=setting.high,
            centre=(setting.low + setting.high) / 2.0 if setting.has_constant else 0.0,
            norm=setting.norm,
        )
