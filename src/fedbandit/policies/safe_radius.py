"""The safe radius of FedBatch: the paper's C for the effective number of rewards, and a proved bound on the noise."""

from typing import Any

from fedbandit.policies.protocol import Now
from fedbandit.rules import batch
from fedbandit.rules import radius as radii

__all__ = ["keep", "radius", "recount"]


def keep(me: Any, terms: Any, arm: int, size: int) -> None:
    """After a release: the paper's C for the effective number of rewards in the mean, and the tail of the noise."""
    variance = batch.release_variance(size, terms.most_variance, terms.noise_variance)
    weight = batch.last_weight(me.precision[arm], variance)
    recount(me, terms, arm)
    tail = radii.batch_tail(terms.noise_scale * weight / size, me.releases[arm], me.n[arm])
    me.slope[arm], me.level[arm] = tail


def recount(me: Any, terms: Any, arm: int) -> None:
    """The part that depends on the number of agents."""
    equivalent = batch.equivalent_rewards(me.precision[arm], me.square[arm])
    me.safe_spread[arm] = radii.gossip_spread(equivalent, terms.num_agents, terms.sampling_constant)


def radius(me: Any, terms: Any, seen: Any, now: Now, arm: int) -> float:
    """The paper's C with a proved bound on the noise."""
    return radii.clean_radius(me.safe_spread[arm], now.root_log_t, terms.scale, terms.offset) + radii.noise_tail(
        me.slope[arm], me.level[arm], now.log_t
    )
