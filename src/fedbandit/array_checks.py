"""Checks arrays of numbers that describe a problem: means, weights, rates."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.checks import LARGEST, InvalidArgument

__all__ = ["checked_rates", "checked_weights", "finite_matrix"]


def finite_matrix(argument: str, value: ArrayLike) -> NDArray[np.float64]:
    """``value`` as a read-only matrix of finite floats."""
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(argument, value, "a matrix of numbers, one row per agent") from None
    if matrix.ndim != 2 or matrix.size == 0:
        raise InvalidArgument(
            argument, f"an array of shape {matrix.shape}", "a matrix: a row per agent, a column per arm"
        )
    if not np.isfinite(matrix).all():
        i, k = np.argwhere(~np.isfinite(matrix))[0]
        raise InvalidArgument(f"{argument}[{i}, {k}]", float(matrix[i, k]), "finite")
    if np.abs(matrix).max() > LARGEST:
        raise InvalidArgument(argument, float(np.abs(matrix).max()), f"at most {LARGEST:g} in size")
    matrix.flags.writeable = False
    return matrix


def checked_weights(
    weights: ArrayLike | None, num_agents: int, rates: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Weights of all agents, read-only; equal ones by default, or those of their rates, where patients count."""
    if rates is not None:
        by_rate = rates / rates.sum()
        if weights is not None and not np.array_equal(weights, by_rate):
            raise InvalidArgument("weights", weights, "left out where patients count: they follow from the rates")
        weights = by_rate
    if weights is None:
        weights = np.full(num_agents, 1.0 / num_agents)
    accepted = f"{num_agents} numbers of at least 0 with sum 1, one per agent"
    try:
        given = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument("weights", weights, accepted) from None
    if given.shape != (num_agents,) or not np.isfinite(given).all() or (given < 0).any():
        raise InvalidArgument("weights", weights, accepted)
    if abs(given.sum() - 1.0) > 1e-9:
        raise InvalidArgument("weights", f"weights with sum {given.sum():g}", accepted)
    given.flags.writeable = False
    return given


def checked_rates(rates: ArrayLike | None, num_agents: int) -> NDArray[np.float64] | None:
    """Rates of all agents, read-only; None: all in step."""
    if rates is None:
        return None
    accepted = f"{num_agents} numbers above 0 and at most 1, one per agent"
    try:
        given = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument("rates", rates, accepted) from None
    if given.shape != (num_agents,) or not ((given > 0) & (given <= 1)).all():
        raise InvalidArgument("rates", rates, accepted)
    given.flags.writeable = False
    return given
