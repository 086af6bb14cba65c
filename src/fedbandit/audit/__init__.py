"""Attacks on the mechanisms and live sites that protect rewards.

``measure`` bounds the epsilon of any mechanism from below; ``attacks`` and ``as_printed`` hand it theirs. ``coupling``
executes the privacy proof on a live site that plays ``scenarios``, ``noise_tests`` judges its noise, and ``suite``
makes the table that ``fedbandit audit`` prints. Tests show that broken mechanisms and sites are caught.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedbandit.extras import needs

if TYPE_CHECKING:
    from fedbandit.audit import measure

__all__ = ["measure"]

needs("fedbandit.audit", "sim")


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"fedbandit.audit.{name}")
    raise AttributeError(f"module 'fedbandit.audit' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
