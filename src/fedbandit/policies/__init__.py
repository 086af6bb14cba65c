"""Policies, one page each, to be read from top to bottom beside the paper. ``protocol`` says what a page must have."""

from typing import get_args

from fedbandit.notebook import policy_html
from fedbandit.policies.adap_ucb import AdaPUCB
from fedbandit.policies.central_ucb import CentralUCB
from fedbandit.policies.coop_ucb2 import CoopUCB2
from fedbandit.policies.dist_ucb import DistUCB
from fedbandit.policies.fed1_ucb import Fed1UCB
from fedbandit.policies.fed_batch import FedBatch, FewPatientsWarning
from fedbandit.policies.fed_lin_ucb import FedLinUCB
from fedbandit.policies.fed_linear import FedLinear
from fedbandit.policies.fed_ucb import MAX_HORIZON, FedUCB
from fedbandit.policies.gossip_ucb import GossipUCB
from fedbandit.policies.gse import GSE
from fedbandit.policies.lin_ts import LinTS
from fedbandit.policies.lin_ucb import LinUCB
from fedbandit.policies.local_ucb import LocalUCB
from fedbandit.policies.oful import OFUL
from fedbandit.policies.protocol import Policy, PrivacyWarning
from fedbandit.policies.tree_lin_ucb import TreeLinUCB

__all__ = [
    "GSE",
    "MAX_HORIZON",
    "OFUL",
    "POLICIES",
    "AdaPUCB",
    "BuiltIn",
    "CentralUCB",
    "CoopUCB2",
    "DistUCB",
    "Fed1UCB",
    "FedBatch",
    "FedLinUCB",
    "FedLinear",
    "FedUCB",
    "FewPatientsWarning",
    "GossipUCB",
    "LinTS",
    "LinUCB",
    "LocalUCB",
    "Policy",
    "PrivacyWarning",
    "TreeLinUCB",
]

BuiltIn = (
    (GossipUCB | FedUCB | FedBatch | FedLinear | LocalUCB | CentralUCB)
    | (DistUCB | CoopUCB2 | Fed1UCB | AdaPUCB | GSE)
    | (LinUCB | LinTS | TreeLinUCB | OFUL | FedLinUCB)
)
POLICIES: dict[str, type[BuiltIn]] = {policy.kind: policy for policy in get_args(BuiltIn)}
"""The policies of this package, by the name that files give them."""

for _policy in POLICIES.values():
    setattr(_policy, "_repr_html_", policy_html)  # noqa: B010 - so that pages need not mention notebooks


def __dir__() -> list[str]:
    return __all__
