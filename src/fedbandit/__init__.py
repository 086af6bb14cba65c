"""fedbandit: find the best arm over many sites by gossip, with differential privacy for every reward.

Public names are loaded on first use: ``import fedbandit`` and ``fedbandit --help`` stay fast. A name whose extra is not
installed raises ``ImportError`` with the command that installs it, and ``dir`` leaves it out.
"""

TYPE_CHECKING = False  # type checkers know the name; ``typing`` itself would take as long to import as all the rest

if TYPE_CHECKING:
    from fedbandit import audit, delays, graph, hospital, privacy, theory
    from fedbandit.agent.client import AgentError, AsyncClient, Client
    from fedbandit.checks import InvalidArgument
    from fedbandit.graph import Graph
    from fedbandit.planning.forecast import Forecast, plan
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
    from fedbandit.simulation.result import Result, Sweep, load
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
    "Forecast",
    "GossipUCB",
    "Graph",
    "InvalidArgument",
    "LocalUCB",
    "NotLogged",
    "PrivacyWarning",
    "Problem",
    "Result",
    "Shares",
    "Sweep",
    "Tape",
    "Trace",
    "audit",
    "delays",
    "graph",
    "hospital",
    "load",
    "plan",
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
    "Forecast": "planning.forecast",
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
    "Sweep": "simulation.result",
    "Tape": "simulation.replay",
    "Trace": "simulation.replay",
    "load": "simulation.result",
    "plan": "planning.forecast",
    "replay": "simulation.replay",
    "simulate": "simulation.run",
}
"""The modules of public names; the other names are modules themselves."""

_SIMULATOR = {
    "audit",
    "delays",
    "graph",
    "hospital",
    "planning.forecast",
    "problem",
    "simulation.replay",
    "simulation.result",
    "simulation.run",
}
"""Modules that need the extra ``sim``; the others are in the base."""

__version__: str  # found on first use

if not TYPE_CHECKING:  # type checkers would take any misspelt name for a known one

    def __getattr__(name):
        if name == "__version__":
            from importlib.metadata import version

            return version("fedbandit")
        if name not in __all__:
            raise AttributeError(f"module 'fedbandit' has no attribute '{name}'")
        from importlib import import_module

        from fedbandit.extras import needs

        home = _HOMES.get(name, name)
        if home in _SIMULATOR:
            needs(f"fedbandit.{name}", "sim")
        module = import_module(f"fedbandit.{home}")
        return getattr(module, name) if name in _HOMES else module


def __dir__() -> list[str]:
    from fedbandit.extras import missing

    absent = _SIMULATOR if missing("sim") else ()
    return [name for name in __all__ if _HOMES.get(name, name) not in absent]
