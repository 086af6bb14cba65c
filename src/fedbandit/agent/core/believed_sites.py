"""How many sites may make this one surer: no more than its operator says that there can be.

N is heard from neighbours, and one that lies can invent sites: errors fall with the root of N. Beyond ``most_sites``
further names add nothing to what people are told:

* N counts as ``most_sites`` where FedBatch divides a variance by it.
* Of what others claim to have released, as many claims count as there can be sites: those that leave most doubt. Names
  that are invented then hide no real site that knows little. Where patients count, and until its own first release of
  an arm, names that claim to be large still make this site surer.

The index keeps N as heard. It also asks by N whether an arm is known at all: with a bound that is too low, a site would
take an arm that few have released for one that the network has lost, and act on its own patients alone.
"""

from collections.abc import Sequence
from typing import TypeVar

from fedbandit.rules.belief import least_known

__all__ = ["at_most", "believed"]

_Site = TypeVar("_Site")


def at_most(num_agents: int, most_sites: int | None) -> int:
    """N as far as it makes anything surer; None: nobody says how many sites there can be."""
    return num_agents if most_sites is None else min(num_agents, most_sites)


def believed(
    others: Sequence[_Site],
    parts: Sequence[tuple[float, float]],
    most_sites: int | None,
    own: tuple[float, float] = (0.0, 0.0),
) -> Sequence[_Site]:
    """Of all other sites as many as there can be: with this one they leave most doubt of an arm.

    ``parts``, ``own``: the weight of each site, and its square times the variance of the site's own mean.
    """
    if most_sites is None or len(others) < most_sites:
        return others
    return [others[i] for i in least_known(parts, most_sites - 1, own)]
