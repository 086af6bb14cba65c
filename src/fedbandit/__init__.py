"""fedbandit: find the best arm over many sites by gossip, with differential privacy for every reward.

Public names are loaded on first use: ``import fedbandit`` and ``fedbandit --help`` stay fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbandit import audit, delays, graph, hospital, privacy, theory
    from fedbandit.agent.client import AgentError, AsyncClient, Client
    from fedbandit.checks import InvalidArgument
    from fedbandit.graph import Graph
    from fedbandit.policies import (
        GSE,
        AdaPUCB,
        CentralUCB,
        CoopUCB2,
        DistUCB,
        Fed1UCB,
        FedBatch,
        FedUCB,
        FewPatientsWarning,
        GossipUCB,
        LocalUCB,
        PrivacyWarning,
    )
    from fedbandit.problem import Problem
    from fedbandit.shares import Shares
    from fedbandit.simulation.replay import NotLogged, Tape, Trace, replay
    from fedbandit.simulation.result import Result, load
    from fedbandit.simulation.run import simulate

__all__ = [
    "GSE",
    "AdaPUCB",
    "AgentError",
    "AsyncClient",
    "CentralUCB",
    "Client",
    "CoopUCB2",
    "DistUCB",
    "Fed1UCB",
    "FedBatch",
    "FedUCB",
    "FewPatientsWarning",
    "GossipUCB",
    "Graph",
    "InvalidArgument",
    "LocalUCB",
    "NotLogged",
    "PrivacyWarning",
    "Problem",
    "Result",
    "Shares",
    "Tape",
    "Trace",
    "audit",
    "delays",
    "graph",
    "hospital",
    "load",
    "privacy",
    "replay",
    "simulate",
    "theory",
]

_HOMES = {
    "AdaPUCB": "policies",
    "AgentError": "agent.client",
    "AsyncClient": "agent.client",
    "CentralUCB": "policies",
    "Client": "agent.client",
    "CoopUCB2": "policies",
    "DistUCB": "policies",
    "Fed1UCB": "policies",
    "FedBatch": "policies",
    "FedUCB": "policies",
    "FewPatientsWarning": "policies",
    "GSE": "policies",
    "GossipUCB": "policies",
    "Graph": "graph",
    "InvalidArgument": "checks",
    "LocalUCB": "policies",
    "NotLogged": "simulation.replay",
    "PrivacyWarning": "policies",
    "Problem": "problem",
    "Result": "simulation.result",
    "Shares": "shares",
    "Tape": "simulation.replay",
    "Trace": "simulation.replay",
    "load": "simulation.result",
    "replay": "simulation.replay",
    "simulate": "simulation.run",
}


def __getattr__(name: str) -> Any:
    if name in ("audit", "delays", "graph", "hospital", "privacy", "theory"):
        return import_module(f"fedbandit.{name}")
    if name in _HOMES:
        return getattr(import_module(f"fedbandit.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedbandit' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
