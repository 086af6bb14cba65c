"""What an agent of FedBatch takes from others of an arm that it has not released: one that joins late begins with that.

Others say how many rewards of each arm they have released, and how much they weigh. From that follows the variance of
the network's mean. Once the agent has released an arm itself, its own releases say how much is known, as in the
simulator, where all begin at once. Live sites alone have others' words.
"""

from typing import Any, NamedTuple

from fedbandit.rules import batch, gossip
from fedbandit.rules import radius as radii

__all__ = ["Others", "trust"]


class Others(NamedTuple):
    """What all other sites together say of an arm; w_j is the weight of a site."""

    weight: float  # sum of w_j
    released: float  # the same, of those that have released the arm
    variance: float  # sum of w_j^2 V_j
    scarcity: float  # sum of w_j^2 / n_j, n_j rewards in releases


def trust(me: Any, terms: Any, seen: Any, arm: int, others: Others) -> None:
    """Judge an arm that this agent has not released as others do: by the network's mean, with its variance.

    What this agent does not know of its own patients is a part of it, so that it tries the arm now and then.
    Where patients count, ``believe`` says which arms are known, before an own release as well.
    """
    weight = seen.weight[arm]
    if me.releases[arm] > 0 or others.weight <= 0.0:
        return
    if me.unknown[arm]:
        known = gossip.is_known_by_others(weight, others.released, others.weight, terms.num_agents)
        if terms.by_rate or not known:
            return
        me.unknown[arm], me.num_unknown = 0, me.num_unknown - 1
        me.theta[arm] = gossip.ratio(seen.value[arm], weight)
    unseen = terms.most_variance / batch.PRIOR_REWARDS
    variance = gossip.variance_of_all(me.share, unseen, others.weight, others.variance)
    fewness = gossip.variance_of_all(me.share, 1.0 / batch.PRIOR_REWARDS, others.weight, others.scarcity)
    me.spread[arm], me.rewards[arm] = radii.deviation(variance), 1.0 / fewness
