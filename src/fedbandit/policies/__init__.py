"""Policies, one page each, to be read from top to bottom beside the paper. ``protocol`` says what a page must have."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, cast

from fedbandit.checks import InvalidArgument, closest
from fedbandit.policies.adap_ucb import AdaPUCB
from fedbandit.policies.built_in import POLICIES, BuiltIn
from fedbandit.policies.central_ucb import CentralUCB
from fedbandit.policies.coop_ucb2 import CoopUCB2
from fedbandit.policies.dist_ucb import DistUCB
from fedbandit.policies.fed1_ucb import Fed1UCB
from fedbandit.policies.fed_batch import FedBatch
from fedbandit.policies.fed_ucb import MAX_HORIZON, FedUCB
from fedbandit.policies.gossip_ucb import GossipUCB
from fedbandit.policies.gse import GSE
from fedbandit.policies.local_ucb import LocalUCB
from fedbandit.policies.outside import WrongPage, check_kind, load_class
from fedbandit.policies.protocol import OwnPolicy, PrivacyWarning

__all__ = [
    "GSE",
    "MAX_HORIZON",
    "POLICIES",
    "AdaPUCB",
    "BuiltIn",
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
    "WrongPage",
    "policy_from",
]

Policy = OwnPolicy
"""Any policy: a built-in one, or one from outside with ``page()`` and ``terms(setting)`` (docs/own-policy.md)."""


def policy_from(
    where: str,
    given: Mapping[str, Any],
    kinds: Collection[str] = tuple(POLICIES),
    beside: Collection[str] = (),
    folder: Path | None = None,
) -> Policy:
    """Build a policy from a table of a file: its ``kind``, one of ``kinds`` or ``module:Class``, and its parameters.

    ``where`` is the table's name, for error messages; ``beside`` are further allowed keys; ``folder`` is that of the
    file, where modules are looked up first.
    """
    kind = given.get("kind")
    if isinstance(kind, str) and ":" in kind:
        chosen: Any = load_class(f"{where}.kind", kind, folder)
    elif isinstance(kind, str) and kind in kinds:
        chosen = POLICIES[kind]
    else:
        accepted = f"one of {', '.join(kinds)}, or module:Class"
        raise InvalidArgument(f"{where}.kind", kind, accepted, closest(str(kind), kinds))
    known = [parameter for parameter in fields(chosen) if parameter.init]
    names = [parameter.name for parameter in known]
    parameters = {name: value for name, value in given.items() if name != "kind"}
    for name, value in parameters.items():
        if name not in names:
            accepted = f"one of {', '.join(['kind', *beside, *names])}"
            raise InvalidArgument(f"a key of {where} ({kind})", name, accepted, closest(name, names))
        if not isinstance(value, (str, int, float)):
            raise InvalidArgument(f"{where}.{name}", value, "one value")
    needed = [
        p.name for p in known if p.default is MISSING and p.default_factory is MISSING and p.name not in parameters
    ]
    if needed:
        raise InvalidArgument(f"{where} ({kind})", dict(given), f"given {', '.join(needed)}")
    try:
        policy = chosen(**parameters)
        check_kind("policy", policy)
    except InvalidArgument as error:
        raise error.at(where) from None
    except Exception as error:
        if chosen in POLICIES.values():
            raise
        hint = f"Its constructor fails with {type(error).__name__}: {error}"
        raise InvalidArgument(where, dict(given), f"parameters that {kind} accepts", hint) from None
    return cast(Policy, policy)
