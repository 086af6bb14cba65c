"""AdaP-UCB (Azize and Basu 2022), gossiped: the mechanism of the best-known private bandit, in our network.

An arm, once chosen, is pulled until its count has doubled; the noisy mean of that episode alone replaces the one
before. Value and weight are gossiped and the radius is calibrated as for FedBatch: only the mechanism differs.
"""

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import number_above
from fedbandit.policies.protocol import (
    ARMS,
    Count,
    Fields,
    Flag,
    Now,
    Number,
    Page,
    Setting,
    check_sensitivity,
    needs_every_decision,
    needs_rewards_at_once,
    reward_bounds,
    sensitivity,
)
from fedbandit.rules import batch, private
from fedbandit.rules.choose import fewest_pulls, highest
from fedbandit.rules.gossip import is_known, ratio
from fedbandit.rules.radius import CALIBRATED_ALPHA, calibrated_factor, calibrated_radius, deviation

FIRST_EPISODE, GROWTH = 1, 2.0

FACTOR = calibrated_factor(CALIBRATED_ALPHA)

KNOWS = Fields(
    current=Count,  # the arm of the current episode
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # sum of the current episode, which nobody else sees
    batch_end=Count[ARMS],  # the reward that ends it
    released=Count[ARMS],  # rewards in releases
    releases=Count[ARMS],
    x_mean=Number[ARMS],  # of the last episode
    deviation=Number[ARMS],  # of theta
    theta=Number[ARMS],
    unknown=Flag[ARMS],  # arms that the agent cannot judge yet
    num_unknown=Count,
    belief=Number[ARMS],
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    share: float
    averaging: float  # variance of theta / variance of an agent's own mean, after mixing: 1 / N
    epsilon_per_release: float
    noise_scale: float
    noise_variance: float
    low: float
    high: float
    most_variance: float  # of one reward
    least_variance: float


def start(me: Any, terms: Terms) -> None:
    """Before the first reward every arm is unknown."""
    me.num_unknown = len(me.n)
    for k in range(len(me.n)):
        me.unknown[k] = 1
        me.batch_end[k] = FIRST_EPISODE


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """The arm of the current episode; else an unknown one, in turn; else the highest theta + radius."""
    if me.tried[me.current] > me.released[me.current]:
        return me.current
    if me.num_unknown > 0:
        return fewest_pulls(me.tried, me.unknown)
    for k in range(len(me.belief)):
        me.belief[k] = me.theta[k] + radius(me, terms, seen, now, k)
    return highest(me.belief)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Collect the reward; at the end of the episode its noisy mean replaces the previous one."""
    size, noisy_sum = private.collect(me, terms, arm, reward, noise)
    me.current = arm
    if size > 0:
        _end_episode(me, terms, arm, size, noisy_sum)


def _end_episode(me: Any, terms: Terms, arm: int, size: int, noisy_sum: float) -> None:
    n = me.n[arm]
    variance = batch.release_variance(size, terms.most_variance, terms.noise_variance)
    precision, square = 1.0 / variance, batch.release_square(size, variance)  # of this episode alone
    me.x_mean[arm] = batch.weighted_mean(me.x_mean[arm], noisy_sum / size, batch.last_weight(precision, variance))
    me.releases[arm] += 1
    me.batch_end[arm] = n + batch.batch_size(n, FIRST_EPISODE, GROWTH)
    learnt = batch.learnt_reward_variance(
        me.x_mean[arm], 1.0 / precision, terms.low, terms.high, terms.least_variance, terms.most_variance
    )
    variance = terms.averaging * batch.mean_variance(precision, square, terms.most_variance, learnt)
    me.deviation[arm] = deviation(variance)


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """Value and weight: nothing before the first episode has ended."""
    return terms.share * me.x_mean[arm], (terms.share if me.releases[arm] > 0 else 0.0)


def believe(me: Any, terms: Terms, seen: Any, arm: int) -> None:
    """The ratio of value and weight, once the weight suffices to judge the arm."""
    unknown = not is_known(seen.weight[arm], me.releases[arm], terms.share, terms.num_agents)
    me.num_unknown += int(unknown) - me.unknown[arm]
    me.unknown[arm] = unknown
    if not unknown:
        me.theta[arm] = ratio(seen.value[arm], seen.weight[arm])


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """Theta."""
    return me.theta[arm]


def unknown(me: Any, arm: int) -> bool:
    """Whether the agent cannot judge the arm yet."""
    return me.unknown[arm] != 0


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """Calibrated: sqrt(2 log t V / N), V the variance of the last episode's mean."""
    return calibrated_radius(me.deviation[arm], FACTOR, now.root_log_t)


PAGE = Page(
    knows=KNOWS,
    averaged=("value", "weight"),
    network="gossip",
    start=start,
    decide=decide,
    noise_due=private.batch_due,
    interval=private.batch_interval,
    observe=observe,
    published=published,
    believe=believe,
    estimate=estimate,
    unknown=unknown,
    radius=radius,
)


@dataclass(frozen=True)
class AdaPUCB:
    """AdaP-UCB (Azize and Basu 2022), gossiped: the mechanism of the best-known private bandit, in our network.

    A chosen arm is pulled until its count has doubled; the noisy mean of that episode alone replaces the
    previous one. Value and weight are gossiped and the radius is calibrated as in FedBatch: the two
    differ only in the mechanism.

    * ``assume_sensitivity``: as in FedBatch.
    """

    epsilon: float
    assume_sensitivity: float | None = None

    kind: ClassVar[str] = "adap_ucb"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", number_above("epsilon", self.epsilon, 0.0, allow_inf=True))
        if self.assume_sensitivity is not None:
            checked = number_above("assume_sensitivity", self.assume_sensitivity, 0.0)
            object.__setattr__(self, "assume_sensitivity", checked)

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        return "AdaP-UCB gossiped" + ("" if self.epsilon == inf else f", eps={self.epsilon:g}")

    def page(self) -> Page:
        """Doubling episodes; only the last one counts."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Refuse unbounded rewards without ``assume_sensitivity``, and late ones: an episode ends with its reward."""
        needs_rewards_at_once(self, setting)
        needs_every_decision(self, setting)
        check_sensitivity(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the parameters and the setting."""
        scale = batch.noise_scale(sensitivity(setting, self.assume_sensitivity), self.epsilon)
        low, high, most, least = reward_bounds(setting, self.epsilon)
        return Terms(
            num_agents=setting.num_agents,
            share=setting.share,
            averaging=setting.sum_of_squares,
            epsilon_per_release=self.epsilon,
            noise_scale=scale,
            noise_variance=batch.laplace_variance(scale),
            low=low,
            high=high,
            most_variance=most,
            least_variance=least,
        )
