"""Fills the models of ``state`` from a site and the status of its neighbours."""

from collections.abc import Mapping

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.agent.gossip.neighbour_status import NeighbourStatus
from fedbandit.agent.http.state import ArmState, FederationState, FlowState, NeighbourState
from fedbandit.outside.policies import label_of

__all__ = ["arm_states", "federation_state", "neighbour_states"]


def federation_state(terms: Federation) -> FederationState:
    """The terms that all sites share."""
    return FederationState(
        name=terms.name,
        num_agents=terms.num_agents,
        arms=list(terms.arms),
        low=terms.low,
        high=terms.high,
        reward_window=terms.reward_window,
        default_reward=terms.missing_reward,
        counts=terms.counted,
        max_decisions_per_day=terms.max_decisions_per_day,
        policy=label_of(terms.policy),
        digest=terms.digest(),
    )


def arm_states(site: Site) -> list[ArmState]:
    """Every arm, as the site sees it."""
    weights, own, theta, radius = site.weights, site.own_means, site.theta, site.radius
    return [
        ArmState(
            name=name,
            estimate=theta[k],
            radius=radius[k],
            own_mean=own[k],
            weight=weights[k],
            pulls=site.tried[k],
            rewards=site.rewards[k],
            releases=site.releases[k],
        )
        for k, name in enumerate(site.terms.arms)
    ]


def neighbour_states(site: Site, statuses: Mapping[str, NeighbourStatus]) -> list[NeighbourState]:
    """Every listed neighbour, then those that have left and are no longer listed."""
    left = {link.neighbour for link in site.links if link.left}
    listed = [_neighbour_state(site, name, status, name in left) for name, status in statuses.items()]
    return listed + [_neighbour_state(site, name, None, True) for name in sorted(left - statuses.keys())]


def _neighbour_state(site: Site, name: str, status: NeighbourStatus | None, left: bool) -> NeighbourState:
    carried = site.carried(name)
    address = None if status is None else status.neighbour.address
    return NeighbourState(
        name=name,
        address=None if address is None else str(address),
        reachable=status is not None and status.reachable and not left,
        last_exchange=None if status is None else status.last_exchange,
        exchanges=0 if status is None else status.exchanges,
        failures=0 if status is None else status.failures,
        refusals=0 if status is None else status.refusals,
        unheard=0 if status is None else status.unheard,
        last_error=None if status is None else status.last_error,
        left=left,
        flow=[
            FlowState(arm=arm, value=it.value, weight=it.weight, share=it.share)
            for arm, it in zip(site.terms.arms, carried.arms, strict=False)
        ],
        moved=carried.moved,
        moves=carried.moves,
    )
