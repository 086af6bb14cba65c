"""Fed_UCB as printed (Algorithms 2-4), for reproduction and for the audit. Its epsilon does not hold.

It publishes every first reward raw (Algorithm 4, line 1), counts too few tree nodes (eps' = eps / ceil(log T)), and
does not clamp. Its tree is over time, not over the arm's pulls. Repairs without which it could not run: counts grow,
noise that was drawn is kept, and it belongs to an interval, not to the value of a sum.
"""

from math import log
from typing import Any, NamedTuple

from fedbandit.policies.gossip_ucb import Terms as CleanTerms
from fedbandit.policies.gossip_ucb import announced, estimate, published
from fedbandit.policies.protocol import ARMS, LEVELS, Count, Fields, Now, Number, Page, uniform
from fedbandit.rules.batch import noise_scale
from fedbandit.rules.choose import count_lagging, highest, nth_lagging
from fedbandit.rules.mean import paper_epsilon_per_node, time_tree_add, time_tree_first_new
from fedbandit.rules.radius import gossip_sampling, private_noise, private_radius

KNOWS = Fields(
    t=Count,  # the agent's time
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum
    slots=Number[ARMS, LEVELS],  # noise of the tree's prefixes
    last_pull=Count[ARMS],  # its time
    x_mean=Number[ARMS],
    sampling=Number[ARMS],  # the parts of C~ that change only at a pull
    noise=Number[ARMS],
    caught_up=Count,  # decisions by the consistency rule
    belief=Number[ARMS],
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
    epsilon: float
    noise_scale: float


def terms_of(clean: CleanTerms, epsilon: float, noise_constant: float, horizon: int) -> Terms:
    """The terms of Gossip_UCB, plus those of the printed noise."""
    return Terms(
        num_agents=clean.num_agents,
        share=clean.share,
        sampling_constant=clean.sampling_constant,
        noise_constant=noise_constant,
        scale=clean.scale,
        offset=clean.offset,
        log_horizon=log(horizon),
        epsilon=epsilon,
        noise_scale=noise_scale(1.0, paper_epsilon_per_node(epsilon, horizon)),  # as if one reward moved a sum by 1
    )


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """Algorithm 1, lines 6-14, with C~ for C (Algorithm 4)."""
    lagging = count_lagging(me.tried, seen.n_max, terms.num_agents)  # line 6
    if lagging > 0:
        me.caught_up += 1
        return nth_lagging(me.tried, seen.n_max, terms.num_agents, int(uniform(draws) * lagging))  # line 13
    for k in range(len(me.belief)):
        me.belief[k] = seen.theta[k] + radius(me, terms, seen, now, k)  # line 9
    return highest(me.belief)  # line 10


def noise_due(me: Any, terms: Terms, arm: int) -> tuple[int, int]:
    """Algorithm 3: two intervals of time t can be new and hold a reward: an earlier one, and the one that ends now."""
    if me.n[arm] == 0:
        return 0, 0  # Algorithm 4, line 1, as printed: the first reward goes out raw
    t = me.t + 1
    earlier = time_tree_first_new(t, me.last_pull[arm])
    return (earlier if earlier != t else 0), t


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: tuple[float, float]) -> None:
    """Algorithm 3: X^(1) + ... + X^(t) with the noise of its intervals, and what C~ needs of the count."""
    me.total[arm] += reward
    me.n[arm] += 1
    n, added = me.n[arm], 0.0
    if n > 1:
        me.t += 1
        earlier, fresh = noise
        added = time_tree_add(me.slots[arm], me.t, me.last_pull[arm], earlier, fresh)
        me.last_pull[arm] = me.t
    me.x_mean[arm] = (me.total[arm] + added) / n
    me.noise[arm] = private_noise(n, n - 1, terms.num_agents, terms.log_horizon, terms.epsilon, terms.noise_constant)
    me.sampling[arm] = gossip_sampling(n, terms.num_agents, terms.sampling_constant)


def radius(me: Any, terms: Terms, seen: Any, now: Now, arm: int) -> float:
    """C~ (Lemma 6)."""
    return private_radius(me.sampling[arm], me.noise[arm], now.log_t, terms.scale, terms.offset)


PAGE = Page(
    knows=KNOWS,
    averaged=("theta",),
    network="gossip",
    decide=decide,
    noise_due=noise_due,
    observe=observe,
    published=published,
    announced=announced,
    estimate=estimate,
    radius=radius,
)
