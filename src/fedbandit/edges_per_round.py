"""Which edges gossip in a round: one, a matching, all, each with a probability, or those of your own rule."""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Literal

from fedbandit.checks import InvalidArgument, number_between

__all__ = ["EdgesPerRound", "checked_edges_per_round"]

EdgesPerRound = Literal["one", "matching", "all"] | float | Callable[[int, int, int, float], bool]


def checked_edges_per_round(given: Any) -> Any:
    """The rule, if it is one."""
    if isinstance(given, FunctionType):
        if given.__code__.co_argcount != 4 or given.__defaults__ or given.__kwdefaults__:
            raise InvalidArgument("edges_per_round", given, "a function of t, i, j and u")
        return given
    if isinstance(given, str) and given in ("one", "matching", "all"):
        return given
    if isinstance(given, str) or callable(given):
        accepted = "'one', 'matching', 'all', a probability, or a function meets(t, i, j, u)"
        raise InvalidArgument("edges_per_round", given, accepted)
    return number_between("edges_per_round", given, 0.0, 1.0)
