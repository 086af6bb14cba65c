"""Means that change during a run: from a round on, or evenly between two rounds."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.array_checks import finite_matrix
from fedbandit.checks import InvalidArgument, whole_number
from fedbandit.rewards import Family

__all__ = ["checked_changes", "drift"]

Means = NDArray[np.float64]

_LATEST = 10**12  # round


def checked_changes(
    changes: Sequence[tuple[int, ArrayLike]], first: Means, rewards: Family
) -> tuple[tuple[int, Means], ...]:
    """First rounds of new means, in order, and the means: of the shape of the ``first``, and right for the rewards."""
    return tuple(_checked(changes, first, rewards))


def _checked(changes: Sequence[tuple[int, ArrayLike]], first: Means, rewards: Family) -> Iterator[tuple[int, Means]]:
    last = 0
    if not isinstance(changes, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument("changes", changes, "a list of (first round, means)")
    for position, change in enumerate(changes, 1):
        where = f"changes[{position}]"
        if not isinstance(change, Sequence) or len(change) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise InvalidArgument(where, change, "a first round and means")
        start, given = change
        last = whole_number(f"{where}, first round", start, last + 1, _LATEST)
        means = finite_matrix(f"{where}, means", given)
        if means.shape != first.shape:
            accepted = f"of the first means' shape {first.shape}"
            raise InvalidArgument(f"{where}, means", f"of shape {means.shape}", accepted)
        try:
            rewards.check(means)
        except InvalidArgument as error:
            raise error.at(where) from None
        yield last, means


def drift(means: ArrayLike, final_means: ArrayLike, rounds: tuple[int, int], steps: int) -> list[tuple[int, Means]]:
    """Means that move evenly from ``means`` to ``final_means`` between two rounds, in so many equal steps."""
    first, last = finite_matrix("means", means), finite_matrix("final_means", final_means)
    if first.shape != last.shape:
        raise InvalidArgument("final_means", f"of shape {last.shape}", f"of the means' shape {first.shape}")
    if not isinstance(rounds, Sequence) or len(rounds) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
        raise InvalidArgument("rounds", rounds, "the rounds in which the drift begins and ends")
    start = whole_number("rounds[0]", rounds[0], 0, _LATEST)
    end = whole_number("rounds[1]", rounds[1], start + 1, _LATEST)
    count = min(whole_number("steps", steps, 1, 10**5), end - start)
    later = [(start + (end - start) * s // count, first + (last - first) * (s / count)) for s in range(1, count + 1)]
    return [(0, first), *later]
