"""A site and its contacts in the words of ``state``.

Here belongs where each shown number comes from, and no number of its own.
"""

from collections.abc import Mapping

from fedbandit.agent.contact import Contact
from fedbandit.agent.federation import Federation
from fedbandit.agent.site import Site
from fedbandit.agent.state import ArmState, FederationState, NeighbourState

__all__ = ["arm_states", "federation_state", "neighbour_states"]


def federation_state(terms: Federation) -> FederationState:
    """What all sites agreed on."""
    return FederationState(
        name=terms.name,
        num_agents=terms.num_agents,
        arms=list(terms.arms),
        low=terms.low,
        high=terms.high,
        policy=terms.policy.label,
        digest=terms.digest(),
    )


def arm_states(site: Site) -> list[ArmState]:
    """Every arm, as the site sees it."""
    row, own, theta, radius = site.gossiped, site.estimates, site.theta, site.radius
    return [
        ArmState(
            name=name,
            estimate=theta[k],
            radius=radius[k],
            own_mean=own[k].x_mean if own[k].releases else None,
            weight=row[site.terms.num_arms + k],
            pulls=site.tried[k],
            rewards=site.rewards[k],
            releases=own[k].releases,
        )
        for k, name in enumerate(site.terms.arms)
    ]


def neighbour_states(site: Site, contacts: Mapping[str, Contact]) -> list[NeighbourState]:
    """Every neighbour in the list, then those that have left and are in it no longer."""
    left = {link.neighbour for link in site.links if link.left}
    listed = [_neighbour_state(name, contact, name in left) for name, contact in contacts.items()]
    return listed + [_neighbour_state(name, None, True) for name in sorted(left - contacts.keys())]


def _neighbour_state(name: str, contact: Contact | None, left: bool) -> NeighbourState:
    address = None if contact is None else contact.neighbour.address
    return NeighbourState(
        name=name,
        address=None if address is None else str(address),
        reachable=contact is not None and contact.reachable and not left,
        last_exchange=None if contact is None else contact.last_exchange,
        exchanges=0 if contact is None else contact.exchanges,
        failures=0 if contact is None else contact.failures,
        refusals=0 if contact is None else contact.refusals,
        last_error=None if contact is None else contact.last_error,
        left=left,
    )
