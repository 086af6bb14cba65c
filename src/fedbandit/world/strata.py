"""Strata of decisions: groups that are known before an arm is chosen, how often each comes, and means by stratum.

Each decision has one stratum, such as a patient's age group. Arms may differ in it: a problem with strata has means by
agent, stratum and arm, and regret counts against the best arm of the stratum. Where arrays need one axis, a **cell** is
a stratum and an arm, in this order: number ``stratum * num_arms + arm``.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.checks import MAX_STRATA, InvalidArgument, number_above, whole_number

Frequencies = NDArray[np.float64]


def checked_strata(strata: Any, num_agents: int, num_strata: int) -> Frequencies:
    """How often each stratum comes at each agent, read-only; ``num_strata``: of the means."""
    accepted = (
        f"a number of strata, {num_strata} numbers of at least 0 with sum 1, or such a row for each of the "
        f"{num_agents} agents"
    )
    if isinstance(strata, int) and not isinstance(strata, bool):
        strata = np.full(count := whole_number("strata", int(strata), 1, MAX_STRATA), 1.0 / count)
    try:
        given = np.array(strata, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument("strata", strata, accepted) from None
    if given.shape == (num_strata,):
        given = np.tile(given, (num_agents, 1))
    if given.shape != (num_agents, num_strata):
        hint = f"The means have {num_strata} strata."
        raise InvalidArgument("strata", f"of shape {given.shape}", accepted, hint)
    if not np.isfinite(given).all() or (given < 0).any() or (np.abs(given.sum(axis=1) - 1.0) > 1e-9).any():
        raise InvalidArgument("strata", strata, accepted)
    if (never := given.max(axis=0) == 0).any():
        hint = f"Stratum {int(never.argmax())} comes at no agent."
        raise InvalidArgument("strata", strata, "strata that come at one agent at least", hint)
    given.flags.writeable = False
    return given


def number_of(strata: Any) -> int:
    """How many strata are meant: a number, or the length of a row of frequencies."""
    if isinstance(strata, int) and not isinstance(strata, bool):
        return whole_number("strata", strata, 1, MAX_STRATA)
    try:
        return whole_number("strata", int(np.asarray(strata, np.float64).shape[-1]), 1, MAX_STRATA)
    except (TypeError, ValueError, IndexError):
        raise InvalidArgument("strata", strata, "a number of strata, or how often each comes") from None


EDGE = 0.01
"""Random means with strata stay so far from 0 and 1: probabilities must, and rewards shall vary."""


def with_interactions(
    means: NDArray[np.float64], interaction: Any, normals: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Means by agent, stratum and arm: ``interaction`` times a standard normal of the cell is added at all agents.

    What leaves [0.01, 0.99] is put back to its edge.
    """
    sd = number_above("interaction", interaction, 0.0) if interaction else 0.0
    return np.clip(means[:, np.newaxis, :] + sd * normals[np.newaxis], EDGE, 1.0 - EDGE)


def cell_weights(weights: NDArray[np.float64], strata: Frequencies, by_patients: bool) -> NDArray[np.float64]:
    """Each agent's weight in the average that counts, by agent and stratum; each column adds up to 1.

    ``by_patients``: an agent counts in a stratum by its patients of that stratum. Otherwise it has one weight in all.
    """
    found = weights[:, np.newaxis] * strata if by_patients else np.repeat(weights[:, np.newaxis], strata.shape[1], 1)
    return found / found.sum(axis=0)


def are_by_stratum(means: ArrayLike) -> bool:
    """Whether means are meant by agent, stratum and arm."""
    try:
        return np.ndim(means) == 3
    except ValueError:  # rows of different lengths: the check of the means says so
        return False


def given_strata(strata: ArrayLike | int | None, means: ArrayLike) -> ArrayLike | int | None:
    """Strata that are all alike frequent, where means have strata and nothing is said of how often they come."""
    if strata is None and are_by_stratum(means):
        return int(np.shape(means)[1])
    return strata
