"""What an agent of FedBatch takes from others that know more: so one that joins late does not begin with nothing.

Others say how many rewards of each arm they have released, and how much they weigh. From that follows the variance of
the network's mean, however little this agent has released itself. Live sites alone: in the simulator all begin at once.
"""

from math import inf
from typing import Any, NamedTuple

from fedbandit.rules import batch, gossip
from fedbandit.rules import radius as radii

__all__ = ["TOLD", "Others", "trust"]

TOLD = 2.0
"""Times the variance that others' words give: they are told, not proved. An agent that knows at least half as much as
others on average goes by its own releases, as in the simulator."""


class Others(NamedTuple):
    """What all other sites together say of an arm; w_j is the weight of a site."""

    weight: float  # sum of w_j
    released: float  # the same, of those that have released the arm
    variance: float  # sum of w_j^2 V_j
    scarcity: float  # sum of w_j^2 / n_j, n_j rewards in releases


def trust(me: Any, terms: Any, seen: Any, arm: int, others: Others) -> None:
    """Judge an arm that others know, and with their uncertainty if they know more of it than this agent."""
    weight = seen.weight[arm]
    if others.weight <= 0.0:
        return
    if me.unknown[arm]:
        known = gossip.is_known_by_others(weight, others.released, others.weight, terms.num_agents)
        if terms.by_rate or not known:
            return
        me.unknown[arm], me.num_unknown = 0, me.num_unknown - 1
        me.theta[arm] = gossip.ratio(seen.value[arm], weight)
        me.spread[arm], me.rewards[arm] = inf, 0.0
    elif me.share == 0.0:  # it has not measured its rate: others' words are all that it has
        me.spread[arm], me.rewards[arm] = inf, 0.0
    own = me.deviation[arm] * me.deviation[arm] / (terms.averaging if me.releases[arm] > 0 else 1.0)
    scarcity = 1.0 / max(me.released[arm], batch.PRIOR_REWARDS)
    variance = TOLD * gossip.variance_of_all(me.share, own, others.weight, others.variance)
    fewness = TOLD * gossip.variance_of_all(me.share, scarcity, others.weight, others.scarcity)
    me.spread[arm] = min(me.spread[arm], radii.deviation(variance))
    me.rewards[arm] = max(me.rewards[arm], 1.0 / fewness)
