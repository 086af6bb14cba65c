"""Policies, one page each, to be read from top to bottom beside the paper. ``protocol`` says what a page must have."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_args

from fedbandit.checks import InvalidArgument, closest
from fedbandit.policies.adap_ucb import AdaPUCB
from fedbandit.policies.central_ucb import CentralUCB
from fedbandit.policies.coop_ucb2 import CoopUCB2
from fedbandit.policies.dist_ucb import DistUCB
from fedbandit.policies.fed1_ucb import Fed1UCB
from fedbandit.policies.fed_batch import FedBatch
from fedbandit.policies.fed_ucb import MAX_HORIZON, FedUCB
from fedbandit.policies.gossip_ucb import GossipUCB
from fedbandit.policies.gse import GSE
from fedbandit.policies.local_ucb import LocalUCB
from fedbandit.policies.protocol import PrivacyWarning

__all__ = [
    "GSE",
    "MAX_HORIZON",
    "POLICIES",
    "AdaPUCB",
    "CentralUCB",
    "CoopUCB2",
    "DistUCB",
    "Fed1UCB",
    "FedBatch",
    "FedUCB",
    "GossipUCB",
    "LocalUCB",
    "Policy",
    "PrivacyWarning",
    "policy_from",
]

Policy = GossipUCB | FedUCB | FedBatch | LocalUCB | CentralUCB | DistUCB | CoopUCB2 | Fed1UCB | AdaPUCB | GSE
POLICIES: dict[str, type[Policy]] = {policy.kind: policy for policy in get_args(Policy)}


def policy_from(
    where: str, given: Mapping[str, Any], kinds: Collection[str] = tuple(POLICIES), beside: Collection[str] = ()
) -> Policy:
    """Build a policy from a table of a file: its ``kind``, one of ``kinds``, and its parameters.

    ``where`` is the table's name, for error messages; ``beside`` are further allowed keys.
    """
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidArgument(f"{where}.kind", kind, f"one of {', '.join(kinds)}", closest(str(kind), kinds))
    known = [parameter.name for parameter in fields(POLICIES[kind])]
    parameters = {name: value for name, value in given.items() if name != "kind"}
    for name, value in parameters.items():
        if name not in known:
            accepted = f"one of {', '.join(['kind', *beside, *known])}"
            raise InvalidArgument(f"a key of {where} ({kind})", name, accepted, closest(name, known))
        if not isinstance(value, (str, int, float)):
            raise InvalidArgument(f"{where}.{name}", value, "one value")
    needed = [p.name for p in fields(POLICIES[kind]) if p.default is MISSING and p.name not in parameters]
    if needed:
        raise InvalidArgument(f"{where} ({kind})", dict(given), f"given {', '.join(needed)}")
    try:
        return POLICIES[kind](**parameters)
    except InvalidArgument as error:
        raise error.at(where) from None
