"""Reads the noisy sums of a site's batches from what its neighbour sees, to the last step of the grid."""

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite, nan
from typing import NamedTuple

from fedbandit.agent.core.federation import Federation
from fedbandit.audit.neighbour import Seen
from fedbandit.privacy.noise import to_steps

__all__ = ["Batch", "batches_of", "means_as_they_move", "means_by_pulls", "noisy_sums"]

NEAR = 1e-6  # what is read by subtraction differs in its last digits


class Batch(NamedTuple):
    """A batch as the policy defines it: its pulls, and the weight of its release in the mean of all so far."""

    first: int
    last: int
    weight: float


@lru_cache(maxsize=64)
def batches_of(terms: Federation, most: int) -> tuple[Batch, ...]:
    """The batches of the first so many rewards of an arm: sizes and weights do not depend on rewards."""
    mechanism = terms.mechanism(lambda _, count: [0] * count)
    found: list[Batch] = []
    before = 0.0
    for _ in range(most):
        interval = mechanism.take(0, terms.low)
        if interval is not None:
            precision = mechanism.me.precision[0]
            found.append(Batch(interval.first, interval.last, (precision - before) / precision))
            before = precision
    return tuple(found)


def noisy_sums(terms: Federation, means: Sequence[float], most: int) -> list[float]:
    """The noisy sum of each batch, from the mean of all releases after each, in steps of the grid."""
    sums: list[float] = []
    before = 0.0
    for batch, mean in zip(batches_of(terms, most), means, strict=False):
        sums.append((before + (mean - before) / batch.weight) * (batch.last - batch.first + 1))
        before = mean
    return sums


def mean_of(terms: Federation, seen: Seen, arm: int) -> float:
    """The mean of an arm's releases in steps of the grid; not a number before the first."""
    value, weight = seen.own[arm], seen.own[terms.num_arms + arm]
    return to_steps(value, terms.low, terms.high, weight) / weight if weight else nan


def means_by_pulls(terms: Federation, view: Sequence[Seen], arm: int, most: int) -> list[float]:
    """The mean after each batch, where a reward is reported at once: seen with the decision that fills it."""
    found: list[float] = []
    for batch in batches_of(terms, most):
        seen = next((it for it in view if it.pulls[arm] == batch.last), None)
        found.append(nan if seen is None else mean_of(terms, seen, arm))
    return found


def means_as_they_move(terms: Federation, view: Sequence[Seen], arm: int) -> list[tuple[int, float]]:
    """Where in the view the mean of an arm moves, and to what."""
    found: list[tuple[int, float]] = []
    for position, seen in enumerate(view):
        mean = mean_of(terms, seen, arm)
        if isfinite(mean) and not (found and abs(mean - found[-1][1]) < NEAR):
            found.append((position, mean))
    return found
