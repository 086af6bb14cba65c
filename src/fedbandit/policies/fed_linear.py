"""FedLinear: gossip of private sums of features times rewards, for arms that suit some decisions better than others.

An agent collects a batch of decisions of an arm: G = sum x x', which is public, and b = sum x q, q the reward less the
middle of its range. A full batch is released once, b with noise. Agents pass on what each has released; each computes
from all of it the posterior of the average model, theta, and draws by it (Thompson sampling). Derivations and
measurements are in docs/context.md, the privacy proof in docs/privacy.md.
"""

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal, NamedTuple

from fedbandit.checks import InvalidArgument, number_above, number_between, whole_number
from fedbandit.policies.protocol import (
    ARMS,
    FEATURES,
    Context,
    Count,
    Fields,
    Flag,
    Now,
    Number,
    Page,
    Setting,
    highest_draw,
    needs_one_row,
    needs_rewards_at_once,
    uniform,
)
from fedbandit.rules import batch, linear, private
from fedbandit.rules import radius as radii
from fedbandit.rules.linear import GRID, MATRICES, VECTORS
from fedbandit.rules.urn import any_drawn

Choice = Literal["thompson", "greedy"]

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS, FEATURES],  # b of the current batch, which nobody else sees
    gram=Number[ARMS, FEATURES, FEATURES],  # G of the current batch
    batch_end=Count[ARMS],  # the reward that fills it
    released=Count[ARMS],  # rewards in releases
    releases=Count[ARMS],
    noise=Number[FEATURES].transient,  # of a batch that is being released, then its noisy sum
    worth=Number[ARMS],  # the record: rewards in it ...
    share=Number[ARMS],  # ... the agent's share in the average ...
    vector=Number[ARMS, FEATURES],
    information=Number[ARMS, FEATURES, FEATURES],
    heard=Number[ARMS],  # rewards in all records that are known here
    unknown=Flag[ARMS],  # arms that the agent cannot judge yet
    num_unknown=Count,
    is_old=Flag,  # whether records have come since scales were chosen
    evidence=Number[ARMS, GRID],
    means=Number[ARMS, GRID, FEATURES],
    covariances=Number[ARMS, GRID, FEATURES, FEATURES],
    weights=Number[GRID],  # of the pairs of scales
    theta=Number[ARMS, FEATURES],
    covariance=Number[ARMS, FEATURES, FEATURES],
    x=Number[FEATURES].transient,  # of the decision in hand, scaled
    belief=Number[ARMS].transient,
    spread=Number[ARMS].transient,
    vectors=Number[VECTORS, FEATURES].transient,  # scratch
    matrices=Number[MATRICES, FEATURES, FEATURES].transient,
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    share: float  # N times the agent's weight
    squares: float  # sum of all agents' squared weights
    epsilon_per_release: float
    noise_scale: float
    noise_variance: float  # of one entry
    first_batch: int
    growth: float
    low: float  # rewards are clamped to this range
    high: float
    centre: float  # its middle; 0 where no feature is constant
    norm: float  # features are divided by it
    has_constant: int
    delta: float


def start(me: Any, terms: Terms) -> None:
    """Before the first reward every arm is unknown."""
    me.num_unknown = len(me.unknown)
    for k in range(len(me.unknown)):
        me.unknown[k] = 1
        me.batch_end[k] = terms.first_batch
        me.share[k] = terms.share


# ---------------------------------------------------------------- which arm


def scale_features(me: Any, terms: Terms, context: Context) -> None:
    """Features of the decision in hand, with a norm of at most 1."""
    scale = linear.scale_of(context.features, terms.norm)
    for c in range(len(me.x)):
        me.x[c] = scale * context.features[c]


def judge(me: Any, terms: Terms, context: Context) -> None:
    """Mean and standard deviation of every arm for this decision."""
    if me.is_old:
        me.is_old = 0
        linear.choose_scales(me.evidence, me.unknown, me.weights)
        for k in range(len(me.unknown)):
            linear.mix_scales(me.means[k], me.covariances[k], me.weights, me.theta[k], me.covariance[k])
    scale_features(me, terms, context)
    for k in range(len(me.unknown)):
        me.belief[k] = linear.dot(me.x, me.theta[k])
        me.spread[k] = radii.deviation(max(linear.quadratic(me.x, me.covariance[k]), 0.0))


def decide_by_thompson(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """From the urn while an arm is unknown; else the highest draw around x . theta."""
    if me.num_unknown > 0:
        return any_drawn(me.tried, me.unknown, uniform(draws))
    judge(me, terms, context)
    return highest_draw(me.belief, me.spread, draws)


def decide_greedily(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """From the urn while an arm is unknown; else the highest x . theta."""
    if me.num_unknown > 0:
        return any_drawn(me.tried, me.unknown, uniform(draws))
    judge(me, terms, context)
    best = 0
    for k in range(1, len(me.belief)):
        if me.belief[k] > me.belief[best]:
            best = k
    return best


# ---------------------------------------------------------------- what it releases


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: Any, context: Context) -> None:
    """Collect the decision; if it fills the batch, that is released and the next one begins."""
    size = private.collect_row(me, terms, arm, reward, noise, context)
    scale_features(me, terms, context)
    for a in range(len(me.x)):
        for b in range(len(me.x)):
            me.gram[arm][a][b] += me.x[a] * me.x[b]
    if size > 0:
        add_release(me, terms, arm)


def add_release(me: Any, terms: Terms, arm: int) -> None:
    """Add what the batch is worth to the record."""
    linear.add_batch(me.gram[arm], me.noise, terms.noise_variance, me.vector[arm], me.information[arm], me.matrices)
    me.worth[arm] = float(me.released[arm])
    me.releases[arm] += 1
    me.batch_end[arm] = me.n[arm] + batch.batch_size(me.n[arm], terms.first_batch, terms.growth)
    for a in range(len(me.x)):
        for b in range(len(me.x)):
            me.gram[arm][a][b] = 0.0


# ---------------------------------------------------------------- what it makes of all releases


def receive(me: Any, terms: Terms, arm: int, rows: Any, versions: Any) -> None:
    """The posterior of an arm from the records of all agents, if one of them has grown.

    The arm is known once the agent has released it, or half of all agents have.
    """
    worth = 0.0
    for j in range(len(versions)):
        if versions[j] > 0:
            worth += rows[j][linear.COUNT]
    if worth == me.heard[arm]:
        return
    me.heard[arm], me.is_old = worth, 1
    heard = linear.posterior_of_arm(
        rows,
        versions,
        terms.num_agents,
        terms.squares,
        terms.has_constant,
        me.vectors,
        me.matrices,
        me.evidence[arm],
        me.means[arm],
        me.covariances[arm],
    )
    if me.unknown[arm] and (me.releases[arm] > 0 or 2 * heard >= terms.num_agents):
        me.unknown[arm] = 0
        me.num_unknown -= 1


def estimate(me: Any, terms: Terms, seen: Any, arm: int, context: Context) -> float:
    """The mean of the arm for these features."""
    if me.unknown[arm]:
        return terms.centre
    linear.choose_scales(me.evidence, me.unknown, me.weights)
    linear.mix_scales(me.means[arm], me.covariances[arm], me.weights, me.theta[arm], me.covariance[arm])
    scale = linear.scale_of(context.features, terms.norm) * (terms.high - terms.low)
    return terms.centre + scale * linear.dot(context.features, me.theta[arm])


def unknown(me: Any, arm: int) -> bool:
    """Whether the agent cannot judge the arm yet."""
    return me.unknown[arm] != 0


# ---------------------------------------------------------------- where features are protected, too

_OF_REWARDS = ("n", "total", "gram", "batch_end", "noise", "released")
RECORDS_KNOW = Fields(
    total=Number[ARMS, FEATURES],  # b of the current batch, which nobody else sees
    slots=Number[ARMS, FEATURES, FEATURES],  # and its G, likewise
    decisions=Count,  # of all arms
    decided=Count,  # in releases
    batch_end=Count,  # the decision that fills the batch
    batches=Count,
    noise=Number[ARMS, FEATURES].transient,
    gram_noise=Number[ARMS, FEATURES, FEATURES].transient,
    noisy_gram=Number[ARMS, FEATURES, FEATURES],  # sums of all releases
    noisy_vector=Number[ARMS, FEATURES],
    **{name: KNOWS[name] for name in KNOWS if name not in (*_OF_REWARDS, "tried")},
)


def start_with_records(me: Any, terms: Terms) -> None:
    """Before the first decision every arm is unknown."""
    me.num_unknown = len(me.unknown)
    me.batch_end = terms.first_batch
    for k in range(len(me.unknown)):
        me.unknown[k] = 1
        me.share[k] = terms.share


def decide_from_releases(me: Any, terms: Terms, seen: Any, now: Now, draws: Any, context: Context) -> int:
    """While arms are unknown any of them, all alike; else the highest draw.

    Nothing here may depend on decisions that are not released: neither counts of arms nor rewards. The proof needs it,
    so there is no urn that looks at counts.
    """
    if me.num_unknown > 0:
        return int(uniform(draws) * len(me.unknown))
    judge(me, terms, context)
    return highest_draw(me.belief, me.spread, draws)


def observe_record(me: Any, terms: Terms, arm: int, reward: float, noise: Any, context: Context) -> None:
    """Collect the decision; if it fills the batch, that of all arms is released at once and the next one begins."""
    size = private.collect_records(me, terms, arm, reward, noise, context)
    if size > 0:
        add_releases(me, terms)


def add_releases(me: Any, terms: Terms) -> None:
    """Weigh the sums of all releases of every arm anew."""
    me.batches += 1
    me.batch_end = me.decisions + batch.batch_size(me.decisions, terms.first_batch, terms.growth)
    for k in range(len(me.unknown)):
        for a in range(len(me.x)):
            me.noisy_vector[k][a] += me.noise[k][a]
            for b in range(len(me.x)):
                me.noisy_gram[k][a][b] += me.gram_noise[k][a][b]
        linear.weigh_noisy(
            me.noisy_gram[k],
            me.noisy_vector[k],
            terms.noise_variance * me.batches,
            me.vector[k],
            me.information[k],
            me.matrices,
        )
        me.worth[k] = float(me.batches)
        me.releases[k] = me.batches


THOMPSON = Page(
    knows=KNOWS,
    averaged=(),
    network="gossip",
    start=start,
    decide=decide_by_thompson,
    noise_due=private.row_due,
    interval=private.batch_interval,
    observe=observe,
    published=None,
    receive=receive,
    records=("worth", "share", "vector", "information"),
    estimate=estimate,
    radius=None,
    unknown=unknown,
    context="features",
    noise="spherical",
)
GREEDY = THOMPSON._replace(decide=decide_greedily)
RECORDS = THOMPSON._replace(
    knows=RECORDS_KNOW,
    start=start_with_records,
    decide=decide_from_releases,
    noise_due=private.records_due,
    interval=private.records_interval,
    observe=observe_record,
    noise="gaussian",
)
RECORDS_GROWTH = 2.0
MOST_DELTA = 1e-6


@dataclass(frozen=True)
class FedLinear:
    """Gossip of private batches of features times rewards, for decisions with features (beyond the paper).

    * ``epsilon``: the privacy of one reward, or of one decision; may be infinite.
    * ``protects``: ``"reward"``: features and arms are not protected, sums of x x' are released as they are.
      ``"record"``: features, too, and which arm they led to. Batches are then closed by the number of decisions, all
      arms are released at once with Gaussian noise, and epsilon holds but for ``delta``, at most 1e-6. Rewards must
      come at once.
    * ``choice``: ``"thompson"`` draws x . theta from its posterior; ``"greedy"`` takes its mean, for comparison.
    * ``mechanism``: of the noise: ``"spherical"``, with density exp(-epsilon |z|), or ``"laplace"`` in each entry,
      1.2 to 1.35 times as much.
    * ``first_batch``: rewards in the first batch of an arm; default: 12 sqrt(F) / epsilon. For records decisions, of
      all arms; default: 2 (F + 1) standard deviations of noise for each.
    * ``growth``: a batch makes the number of released rewards grow by this factor; default: 1.25, and 2 for records.
    """

    epsilon: float
    protects: Literal["reward", "record"] = "reward"
    choice: Choice = "thompson"
    mechanism: Literal["spherical", "laplace"] = "spherical"
    first_batch: int | None = None
    growth: float | None = None
    delta: float = MOST_DELTA

    kind: ClassVar[str] = "fed_linear"

    def __post_init__(self) -> None:
        """Check the parameters."""
        object.__setattr__(self, "epsilon", number_above("epsilon", self.epsilon, 0.0, allow_inf=True))
        if self.choice not in ("thompson", "greedy"):
            raise InvalidArgument("choice", self.choice, "thompson or greedy")
        if self.mechanism not in ("spherical", "laplace"):
            raise InvalidArgument("mechanism", self.mechanism, "spherical or laplace")
        if self.first_batch is not None:
            object.__setattr__(self, "first_batch", whole_number("first_batch", self.first_batch, 1, 10**6))
        if self.growth is not None:
            object.__setattr__(self, "growth", number_between("growth", self.growth, 1.0, 1e6))
        if self.protects not in ("reward", "record"):
            raise InvalidArgument("protects", self.protects, "reward or record")
        object.__setattr__(self, "delta", number_between("delta", self.delta, 0.0, MOST_DELTA))
        if self.protects == "record":
            for name, wanted in (("choice", "thompson"), ("mechanism", "spherical")):
                if getattr(self, name) != wanted:
                    hint = "Records are protected by Gaussian noise, and chosen among by draws."
                    raise InvalidArgument(name, getattr(self, name), "left out where records are protected", hint)

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        if self.protects == "record":
            return f"FedLinear, records, eps={self.epsilon:g}"
        how = {"thompson": "", "greedy": " greedy"}[self.choice]
        return f"FedLinear{how}{', Laplace' * (self.mechanism == 'laplace')}, eps={self.epsilon:g}"

    def page(self) -> Page:
        """The page of the choice."""
        if self.protects == "record":
            return RECORDS
        page = {"thompson": THOMPSON, "greedy": GREEDY}[self.choice]
        return page._replace(noise=self.mechanism)

    def check(self, setting: Setting) -> None:
        """Refuse a setting without releases, features or a range of rewards; late ones where records are protected."""
        if setting.gossip != "releases":
            hint = "Records of features have no averages that links could gossip."
            raise InvalidArgument("gossip", setting.gossip, f"releases for {self.label}", hint)
        if not setting.has_range:
            raise InvalidArgument("reward_range", None, f"declared for {self.label}, whose rewards lie in a range")
        needs_one_row(self, setting)
        if self.protects == "record":
            needs_rewards_at_once(self, setting)  # which decisions a batch holds may not depend on their arms

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the parameters and the setting."""
        size, spherical = max(setting.num_features, 1), self.mechanism == "spherical"
        scale = linear.spherical_scale(self.epsilon) if spherical else linear.laplace_scale(self.epsilon, size)
        variance = linear.spherical_variance(scale, size) if spherical else batch.laplace_variance(scale)
        first, growth = self.first_batch or linear.first_size(self.epsilon, size), batch.BATCH_GROWTH
        if self.protects == "record":
            scale = linear.gaussian_scale(self.epsilon, self.delta) if self.epsilon < inf else 0.0
            variance, growth = scale * scale, RECORDS_GROWTH
            first = self.first_batch or linear.first_decisions(scale, size, setting.num_arms)
        return Terms(
            num_agents=setting.num_agents,
            share=setting.share,
            squares=setting.sum_of_squares,
            epsilon_per_release=self.epsilon,
            noise_scale=scale,
            noise_variance=variance,
            first_batch=first,
            growth=float(self.growth or growth),
            low=setting.low,
            high=setting.high,
            centre=(setting.low + setting.high) / 2.0 if setting.has_constant else 0.0,
            norm=setting.norm,
            has_constant=int(setting.has_constant),
            delta=self.delta if self.protects == "record" else 0.0,
        )
