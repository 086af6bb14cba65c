"""Aggregates over agents, for results without an entry for each of them: mean, least, largest, standard deviation.

The mean keeps the variable's name, so ``regret`` is the mean regret per agent; the others add to it: ``regret_min``,
``regret_max``, ``regret_std``.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument

__all__ = ["STATISTICS", "Keep", "checked_keep", "named", "spread_of", "statistics"]

Keep = Literal["agents", "aggregates"]
STATISTICS = ("", "_min", "_max", "_std")
"""What is added to a variable's name, in the order of the engine's arrays."""

_WORDS = {"": "mean over agents of: ", "_min": "least of any agent: ", "_max": "largest of any agent: "}


def checked_keep(keep: Any) -> Keep:
    """What a result keeps, or an error."""
    if keep not in ("agents", "aggregates"):
        raise InvalidArgument("keep", keep, "'agents' or 'aggregates'")
    return keep


def statistics(values: NDArray[Any]) -> NDArray[np.float64]:
    """Of numbers with an entry for each agent first: one row for each of the ``STATISTICS``."""
    numbers = values.astype(np.float64)
    return np.stack([numbers.mean(axis=0), numbers.min(axis=0), numbers.max(axis=0), numbers.std(axis=0)])


def spread_of(theta: NDArray[np.float64]) -> float:
    """How far agents disagree: the standard deviation over agents of an arm's estimate, on average over arms."""
    return float(theta.std(axis=0).mean())


def named(name: str, array: NDArray[Any], about: str) -> dict[str, tuple[NDArray[Any], str]]:
    """The variables of the ``STATISTICS``, which are the third axis: [policy, trial, statistic, ...]."""
    return {
        name + suffix: (array[:, :, position], _WORDS.get(suffix, "standard deviation over agents of: ") + about)
        for position, suffix in enumerate(STATISTICS)
    }
