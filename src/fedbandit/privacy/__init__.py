"""What protects people, and what attacks it.

``noise`` draws, ``budget`` keeps the ledger, ``mechanism`` turns rewards into releases: the path of real data,
which never touches the simulator. ``audit`` measures any mechanism; ``attacks``, ``whole_agent`` and ``broken`` are
what it is pointed at, ``suite`` the table that ``fedbandit audit`` prints.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbandit.privacy import audit, budget, mechanism, noise

__all__ = ["audit", "budget", "mechanism", "noise"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"fedbandit.privacy.{name}")
    raise AttributeError(f"module 'fedbandit.privacy' has no attribute '{name}'")
