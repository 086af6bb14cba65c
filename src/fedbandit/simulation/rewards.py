"""Draws rewards: one small function for each family, of 64 random bits and the mean of the arm at the agent."""

from collections.abc import Callable
from typing import Any

from fedbandit.simulation.streams import beta, standard_normal, uniform

__all__ = ["FAMILIES"]


def _gaussian(world: Any, bits: Any, mean: float) -> Any:
    return mean + world.sigma * standard_normal(bits)


def _bernoulli(world: Any, bits: Any, mean: float) -> Any:
    return 1.0 if uniform(bits) < mean else 0.0


def _beta(world: Any, bits: Any, mean: float) -> Any:
    return beta(bits, mean * world.concentration, (1.0 - mean) * world.concentration)


FAMILIES: dict[str, Callable[..., Any]] = {"gaussian": _gaussian, "bernoulli": _bernoulli, "beta": _beta}
"""By the family of a problem."""
