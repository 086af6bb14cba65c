"""fedbandit: find the best arm over many sites by gossip, with differential privacy for every reward.

Public names are loaded on first use: ``import fedbandit`` and ``fedbandit --help`` stay fast. A name whose extra is not
installed raises ``ImportError`` with the command that installs it, and ``dir`` leaves it out.
"""

TYPE_CHECKING = False  # type checkers know the name; ``typing`` itself would take as long to import as all the rest

if TYPE_CHECKING:
    from fedbandit import audit, privacy, theory
    from fedbandit.agent.client import AgentError, AsyncClient, Client
    from fedbandit.checks import InvalidArgument
    from fedbandit.planning.forecast import Forecast, plan
    from fedbandit.policies import (
        GSE,
        OFUL,
        AdaPUCB,
        CentralUCB,
        CoopUCB2,
        DistUCB,
        Fed1UCB,
        FedBatch,
        FedLinear,
        FedLinUCB,
        FedUCB,
        FewPatientsWarning,
        GossipUCB,
        LinTS,
        LinUCB,
        LocalUCB,
        PrivacyWarning,
        TreeLinUCB,
    )
    from fedbandit.shares import Shares
    from fedbandit.simulation.replay import NotLogged, Tape, Trace, replay
    from fedbandit.simulation.result import Result, Sweep, load
    from fedbandit.simulation.run import simulate
    from fedbandit.world import datasets, delays, features, graph, hospital
    from fedbandit.world.graph import Graph
    from fedbandit.world.problem import Problem

__all__ = [
    "GSE",
    "OFUL",
    "AdaPUCB",
    "AgentError",
    "AsyncClient",
    "CentralUCB",
    "Client",
    "CoopUCB2",
    "DistUCB",
    "Fed1UCB",
    "FedBatch",
    "FedLinUCB",
    "FedLinear",
    "FedUCB",
    "FewPatientsWarning",
    "Forecast",
    "GossipUCB",
    "Graph",
    "InvalidArgument",
    "LinTS",
    "LinUCB",
    "LocalUCB",
    "NotLogged",
    "PrivacyWarning",
    "Problem",
    "Result",
    "Shares",
    "Sweep",
    "Tape",
    "Trace",
    "TreeLinUCB",
    "audit",
    "datasets",
    "delays",
    "features",
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
    name: home
    for home, names in {
        "agent.client": ("AgentError", "AsyncClient", "Client"),
        "checks": ("InvalidArgument",),
        "planning.forecast": ("Forecast", "plan"),
        "policies": (
            *("AdaPUCB", "CentralUCB", "CoopUCB2", "DistUCB", "Fed1UCB", "FedBatch", "FedLinear", "FedUCB"),
            *("FewPatientsWarning", "GSE", "GossipUCB", "LinTS", "LinUCB", "LocalUCB", "PrivacyWarning", "TreeLinUCB"),
            *("FedLinUCB", "OFUL"),
        ),
        "shares": ("Shares",),
        "simulation.replay": ("NotLogged", "Tape", "Trace", "replay"),
        "simulation.result": ("Result", "Sweep", "load"),
        "simulation.run": ("simulate",),
        "world.graph": ("Graph",),
        "world.problem": ("Problem",),
    }.items()
    for name in names
}
"""The modules of public names."""

_MODULES = {name: f"world.{name}" for name in ("datasets", "delays", "features", "graph", "hospital")}
"""Modules that are public names themselves, and stand in a package; the other names are modules in the root."""

_SIMULATOR = ("audit", "planning", "simulation", "world")
"""Packages that need the extra ``sim``; the others are in the base."""

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

        home = _home(name)
        if home.partition(".")[0] in _SIMULATOR:
            needs(f"fedbandit.{name}", "sim")
        module = import_module(f"fedbandit.{home}")
        return getattr(module, name) if name in _HOMES else module


def _home(name: str) -> str:
    return _HOMES.get(name) or _MODULES.get(name, name)


def __dir__() -> list[str]:
    from fedbandit.extras import missing

    absent = _SIMULATOR if missing("sim") else ()
    return [name for name in __all__ if _home(name).partition(".")[0] not in absent]
