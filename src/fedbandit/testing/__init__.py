"""Checks own policies: ``check_policy`` for your tests, and what simulator and site check before they play one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedbandit.extras import needs

if TYPE_CHECKING:
    from fedbandit.testing.own_policy import check_policy

__all__ = ["check_policy"]


def __getattr__(name: str) -> Any:
    """``check_policy``, on first use: it needs the simulator, which a live site does not have."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    needs("fedbandit.testing", "sim")
    return getattr(import_module("fedbandit.testing.own_policy"), name)


def __dir__() -> list[str]:
    return __all__
