"""Draws the rewards of each family, in compiled code."""

from typing import Any

from fedbandit.simulation.compiled import compile_inner, compile_rare
from fedbandit.simulation.layout import BERNOULLI, GAUSSIAN
from fedbandit.simulation.streams import beta, standard_normal, uniform

__all__ = ["draw_reward"]


@compile_rare
def _beta_reward(bits: Any, mean: float, concentration: float) -> Any:
    return beta(bits, mean * concentration, (1.0 - mean) * concentration)


@compile_inner
def draw_reward(world: Any, i: int, arm: Any, bits: Any) -> Any:
    """A reward of agent i from an arm."""
    mean = world.means[i, arm]
    if world.family == GAUSSIAN:
        return mean + world.sigma * standard_normal(bits)
    if world.family == BERNOULLI:
        return 1.0 if uniform(bits) < mean else 0.0
    return _beta_reward(bits, mean, world.concentration)
