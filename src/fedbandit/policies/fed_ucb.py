"""Fed_UCB: Algorithms 2-4 with their privacy repaired. A tree of noisy sums over each arm's pulls, radius C~.

Differences from the printed algorithm: the first pull is noised like every other; a tree node has epsilon / (number of
nodes that hold one reward) instead of epsilon / ceil(log T); noise belongs to an interval of the arm's pulls, not to
the value of a sum; rewards are clamped to their range. ``fed_ucb_as_printed`` has the printed algorithm.
"""

import warnings
from dataclasses import dataclass
from math import inf, log
from typing import Any, ClassVar, NamedTuple

from fedbandit.checks import InvalidArgument, number_above, true_or_false, whole_number
from fedbandit.policies import fed_ucb_as_printed, gossip_ucb
from fedbandit.policies.protocol import (
    ARMS,
    LEVELS,
    Count,
    Fields,
    Now,
    Number,
    Page,
    PrivacyWarning,
    Setting,
    check_sensitivity,
    lagging_chance,
    needs_company,
    sensitivity,
    uniform,
)
from fedbandit.rules import private
from fedbandit.rules.batch import noise_scale
from fedbandit.rules.choose import count_lagging, highest, nth_lagging
from fedbandit.rules.mean import epsilon_per_node
from fedbandit.rules.radius import NOISE_CONSTANT, gossip_sampling, private_noise, private_radius

MAX_HORIZON = 10**9

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum, which nobody else sees
    slots=Number[ARMS, LEVELS],  # noise of the tree's prefixes
    x_mean=Number[ARMS],
    sampling=Number[ARMS],  # the parts of C~ that change only at a pull
    noise=Number[ARMS],
    belief=Number[ARMS].transient,  # Q
    caught_up=Count.transient,  # decisions by the consistency rule
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    share: float
    sampling_constant: float
    noise_constant: float
    scale: float
    offset: float
    log_horizon: float
    epsilon: float  # of C~, which is for sensitivity 1, in units of the scale
    epsilon_per_release: float  # of one node of the tree
    noise_scale: float
    max_pulls: int
    low: float
    high: float


def announced(me: Any, terms: Terms, arm: int) -> int:
    """Algorithm 1, line 5: the agent's own count, which enters n~."""
    return me.tried[arm]


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """Algorithm 1, lines 6-14, with C~ for C (Algorithm 4)."""
    lagging = count_lagging(me.tried, seen.n_max, terms.num_agents)  # line 6
    if lagging > 0:
        me.caught_up += 1
        return nth_lagging(me.tried, seen.n_max, terms.num_agents, int(uniform(draws) * lagging))  # line 13
    for k in range(len(me.belief)):
        me.belief[k] = seen.theta[k] + radius(me, terms, seen, now, k)  # line 9
    return highest(me.belief)  # line 10


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Algorithm 3: the noisy mean of all rewards, and what C~ needs of the count."""
    noisy_sum = private.collect_in_tree(me, terms, arm, reward, noise)
    me.x_mean[arm] = noisy_sum / me.n[arm]
    recount(me, terms, arm)


def recount(me: Any, terms: Terms, arm: int) -> None:
    """What C~ needs of the count, for so many agents."""
    n = me.n[arm]
    me.noise[arm] = private_noise(n, n, terms.num_agents, terms.log_horizon, terms.epsilon, terms.noise_constant)
    me.sampling[arm] = gossip_sampling(n, terms.num_agents, terms.sampling_constant)


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """The noisy sample mean; theta is its gossiped average."""
    return (terms.share * me.x_mean[arm],)


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """Theta."""
    return seen.theta[arm]


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """C~ (Lemma 6)."""
    return private_radius(me.sampling[arm], me.noise[arm], now.log_t, terms.scale, terms.offset)


PAGE = Page(
    knows=KNOWS,
    averaged=("theta",),
    network="gossip",
    decide=decide,
    noise_due=private.tree_due,
    interval=private.tree_interval,
    observe=observe,
    published=published,
    announced=announced,
    recount=recount,
    estimate=estimate,
    radius=radius,
    chance=lagging_chance,
)


@dataclass(frozen=True)
class FedUCB:
    """Algorithms 2-4 with their privacy repaired: every reward is epsilon-differentially private.

    * ``epsilon``: the privacy of one reward; infinity is Gossip_UCB.
    * ``horizon``: the T of the radius and of the tree, which refuses more rounds; default: that of the run.
    * ``paper=True``: the algorithm as printed, for reproduction. Its epsilon does **not** hold, and it warns.
    * ``assume_sensitivity``: for a problem without a ``reward_range``, pretend that one reward moves a sum
      by at most this much, as the paper does with Gaussian rewards. Epsilon then does not hold; a run warns.
      A range declared by the problem takes precedence.
    * ``noise_constant``, ``sampling_constant``: the 128 and the 1 of C~ (Lemma 6), which is far too wide; smaller
      ones have no proof.
    """

    epsilon: float
    horizon: int | None = None
    paper: bool = False
    assume_sensitivity: float | None = None
    noise_constant: float = NOISE_CONSTANT
    sampling_constant: float = 1.0

    kind: ClassVar[str] = "fed_ucb"

    def __post_init__(self) -> None:
        """Check the parameters; warn if epsilon is known not to hold."""
        object.__setattr__(self, "epsilon", number_above("epsilon", self.epsilon, 0.0, allow_inf=True))
        if self.horizon is not None:
            object.__setattr__(self, "horizon", whole_number("horizon", self.horizon, 1, MAX_HORIZON))
        if self.assume_sensitivity is not None:
            self._check("assume_sensitivity")
        self._check("noise_constant")
        self._check("sampling_constant")
        object.__setattr__(self, "paper", true_or_false("paper", self.paper))
        if self.paper and self.epsilon < inf:
            warnings.warn(
                f"FedUCB(epsilon={self.epsilon:g}, paper=True) runs Algorithm 4 as printed, which does not "
                "keep its epsilon: it publishes every first reward raw and counts too few tree nodes. "
                "For reproduction only.",
                PrivacyWarning,
                stacklevel=3,
            )

    def _check(self, name: str) -> None:
        object.__setattr__(self, name, number_above(name, getattr(self, name), 0.0))

    @property
    def label(self) -> str:
        """The name in figures and tables."""
        return f"Fed_UCB{' as printed' if self.paper else ''}, eps={self.epsilon:g}"

    def page(self) -> Page:
        """The repaired tree, the printed one, or none: "Gossip_UCB is a special case ... when epsilon is infinity"."""
        if self.epsilon == inf:
            return gossip_ucb.PAGE
        return fed_ucb_as_printed.PAGE if self.paper else PAGE

    def check(self, setting: Setting) -> None:
        """Refuse a single agent, too many rounds for the tree, unbounded rewards without ``assume_sensitivity``."""
        needs_company(self, setting)
        if self.horizon is not None and setting.horizon > self.horizon:
            accepted = f"at most the policy's own ({self.horizon}): past it the tree's epsilon is spent"
            raise InvalidArgument("horizon", setting.horizon, accepted)
        if not self.paper:
            check_sensitivity(self, setting)

    def terms(self, setting: Setting) -> Any:
        """The numbers of C~ and of the tree."""
        clean = gossip_ucb.terms_of(setting, self.sampling_constant)
        if self.epsilon == inf:
            return clean
        horizon = self.horizon or setting.horizon
        if self.paper:
            return fed_ucb_as_printed.terms_of(clean, self.epsilon, float(self.noise_constant), horizon)
        width = sensitivity(setting, self.assume_sensitivity)
        max_pulls = horizon + 1  # the pull at t = 0 and one in each round
        per_node = epsilon_per_node(self.epsilon, max_pulls)
        return Terms(
            num_agents=clean.num_agents,
            share=clean.share,
            sampling_constant=clean.sampling_constant,
            noise_constant=float(self.noise_constant),
            scale=clean.scale,
            offset=clean.offset,
            log_horizon=log(horizon),
            epsilon=self.epsilon * setting.scale / width,
            epsilon_per_release=per_node,
            noise_scale=noise_scale(width, per_node),
            max_pulls=max_pulls,
            low=setting.low,
            high=setting.high,
        )
