"""Differential privacy for real rewards, independent of the simulator.

``noise`` draws, ``ledger`` accounts for every draw, ``mechanism`` plays the page of a policy with them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbandit.privacy import ledger, mechanism, noise

__all__ = ["ledger", "mechanism", "noise"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"fedbandit.privacy.{name}")
    raise AttributeError(f"module 'fedbandit.privacy' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
