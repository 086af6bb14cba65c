"""Draws rewards: one small function for each family, of 64 random bits and the means.

``numbers`` is what the family says that its draw reads besides: ``Family.numbers``.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedbandit.outside.modules import digest_of
from fedbandit.rewards import Family, Own
from fedbandit.simulation.compiled import compilable
from fedbandit.simulation.streams import beta, standard_normal, student_t, uniform

__all__ = ["code_of", "draw_of"]


def _gaussian(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    (sigma,) = numbers
    return means[i, arm] + sigma * standard_normal(bits)


def _bernoulli(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    return 1.0 if uniform(bits) < means[i, arm] else 0.0


def _beta(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    (concentration,) = numbers
    return beta(bits, means[i, arm] * concentration, (1.0 - means[i, arm]) * concentration)


def _student_t(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    degrees_of_freedom, scale = numbers
    return means[i, arm] + scale * student_t(bits, degrees_of_freedom)


def _empirical(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    values, first, count = numbers
    return values[first[i, arm] + np.int64(uniform(bits) * count[i, arm])]


_DRAWS: dict[str, Callable[..., Any]] = {
    "gaussian": _gaussian,
    "bernoulli": _bernoulli,
    "beta": _beta,
    "student_t": _student_t,
    "empirical": _empirical,
}


@cache
def _own(draw: Any, code: str) -> Callable[..., Any]:
    """A user's draw, called as the others."""
    compilable(draw)

    def draw_reward(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
        return 0.0 + draw(bits, means[i, arm])  # a whole number becomes a float

    return draw_reward


def draw_of(family: Family) -> Callable[..., Any]:
    """The function ``(numbers, bits, means, i, arm)`` that draws a reward of agent i from an arm."""
    return _own(family.draw, code_of(family)) if isinstance(family, Own) else _DRAWS[family.kind]


def code_of(family: Family) -> str:
    """A hash of a user's draw, and nothing for families of this package, which ``SOURCES`` covers."""
    return digest_of(family.draw) if isinstance(family, Own) else ""
