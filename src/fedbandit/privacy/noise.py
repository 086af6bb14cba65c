"""Draws the noise that protects people: exact discrete Laplace on an integer grid, by OpenDP.

This is the only file that draws noise for real data. Rewards become whole numbers before they are summed, so
floating-point rounding never touches noise or sums (Mironov 2012). The simulator has its own fast noise, which
is unfit for real data; nothing here may import it.
"""

from collections.abc import Callable
from functools import lru_cache
from math import inf, nextafter
from typing import TYPE_CHECKING

from fedbandit.checks import finite_number, number_above, whole_number
from fedbandit.extras import needs
from fedbandit.rules.mean import clamp

if TYPE_CHECKING:
    from opendp.mod import Measurement

__all__ = ["GRID", "NoiseSource", "from_grid", "laplace", "measurement_of", "to_grid", "to_steps"]

GRID = 2**16
"""The number of steps in a reward's range: the most by which one reward moves a sum of steps."""

NoiseSource = Callable[[float, int], list[int]]
"""A function of (epsilon of one release, number of draws): ``laplace``, or fixed numbers in a test."""


def to_grid(reward: float, low: float, high: float) -> int:
    """The reward, clamped and rounded: a whole number of steps above ``low``.

    It lies in 0 .. GRID whatever the reward was: clamp(reward) - low is at most high - low, and a floating-point
    quotient of a number by one at least as large is at most 1, because rounding preserves order. So one
    changed reward moves a sum of steps by at most GRID, exactly.
    """
    reward = clamp(finite_number("reward", reward), low, high)
    return round(to_steps(reward, low, high))


def from_grid(steps: float, low: float, high: float, weight: float = 1.0) -> float:
    """A number of steps as a reward; as the sum of ``weight`` rewards, each of which lies above ``low``."""
    return weight * low + (high - low) * (steps / GRID)


def to_steps(value: float, low: float, high: float, weight: float = 1.0) -> float:
    """The other way round: a reward, or a sum of ``weight`` of them, in steps above ``low``, not rounded."""
    return (value - weight * low) / (high - low) * GRID


def laplace(epsilon: float, count: int = 1) -> list[int]:
    """Fresh noise for ``count`` sums of steps, each epsilon-differentially private for every reward in it.

    P(z) is proportional to exp(-|z| epsilon / GRID) over the whole numbers. Draws are 64 bits wide; beyond that they
    saturate, which for every accepted epsilon has a probability below exp(-10^5).
    """
    return measurement_of(epsilon)([0] * whole_number("count", count, 1, 10**8))


@lru_cache(maxsize=64)
def measurement_of(epsilon: float) -> "Measurement":
    """OpenDP's measurement, whose own privacy map confirms that a change by GRID steps costs at most epsilon.

    OpenDP is loaded here, at the first draw: it loads NumPy if that is installed, and a live agent
    starts without either.
    """
    needs("noise for real rewards", "agent")
    # OpenDP is typed in part only.
    from opendp.domains import atom_domain, vector_domain  # pyright: ignore[reportUnknownVariableType]
    from opendp.measurements import make_laplace  # pyright: ignore[reportUnknownVariableType]
    from opendp.metrics import l1_distance  # pyright: ignore[reportUnknownVariableType]
    from opendp.mod import enable_features

    number_above("epsilon", epsilon, 0.0)
    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
    scale = GRID / epsilon
    while True:
        measurement = make_laplace(*space, scale=scale)
        if measurement.map(GRID) <= epsilon:
            return measurement
        scale = nextafter(scale, inf)  # the quotient was rounded down


def __dir__() -> list[str]:
    return __all__
