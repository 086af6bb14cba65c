"""Tests the noise that live sites really add: its grid, scale, tails, and that no draw tells anything of another.

The proof needs fresh, independent draws of discrete Laplace noise, at least as wide as is claimed. Each release of many
runs of a site shows one draw: its noisy sum, less the rewards that the audit gave it. If the claim is true, the
chances below are exact or bounded from above, so that a test with a chance of p calls it broken with probability p at
most. ``suspicion`` multiplies the smallest p by the number of tests (Bonferroni): it falls below any level with at
most the probability of that level.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from math import exp, inf, lgamma, log, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.audit.measure import binomial_tail
from fedbandit.privacy.noise import GRID

__all__ = ["Suspicion", "suspicion"]

Draws = NDArray[np.float64]

OFF_GRID = 1e-3
"""Readings are exact to about 1e-9 steps; of numbers that know no grid, one in 500 lies so near to it."""

TAILS = (1.0, 2.0, 3.0, 4.0, 5.0)  # scales
SMALL = 1.0 / 64.0  # of a scale


class Suspicion(NamedTuple):
    """How likely a true claim looks like this, at most, and what looks so."""

    chance: float
    what: str


def suspicion(draws: Draws, epsilon: float) -> Suspicion:
    """Judge draws: a row for each run, a column for each of its releases."""
    if not np.isfinite(draws).all():
        return Suspicion(0.0, "a release is missing")
    off = int((np.abs(draws - np.round(draws)) > OFF_GRID).sum())
    if off:
        return Suspicion(0.0, f"{off} of {draws.size} noisy sums lie off the grid")
    tests = list(_tests(np.round(draws), epsilon))
    chance, what = min(tests)
    return Suspicion(min(1.0, chance * len(tests)), what)


def _tests(draws: Draws, epsilon: float) -> Iterator[tuple[float, str]]:
    runs, releases = draws.shape
    law = _Law(epsilon / GRID)
    sizes, scale = np.abs(draws), GRID / epsilon
    yield law.chance_of_sum(float(sizes.sum()), draws.size), "noise is too small"
    for number in range(releases):
        yield law.chance_of_sum(float(sizes[:, number].sum()), runs), f"noise of release {number + 1} is too small"
    for tail in TAILS:
        bound = int(tail * scale)
        hits = int((sizes > bound).sum())
        yield (
            binomial_tail(draws.size - hits, draws.size, 1.0 - law.beyond(bound)),
            f"noise never exceeds {tail:g} scales",
        )
    bound = int(SMALL * scale)
    hits = int((sizes <= bound).sum())
    yield binomial_tail(hits, draws.size, 1.0 - law.beyond(bound)), "noise is often nearly 0"
    yield law.chance_of_repeats(draws), "draws repeat"
    pairs = runs // 2
    for number in range(releases):
        column = draws[: 2 * pairs, number]
        alike = int((column[::2] == column[1::2]).sum())
        yield binomial_tail(alike, pairs, law.alike), f"two runs draw the same for release {number + 1}"
    for one, other in combinations(range(releases), 2):
        yield from _pair(draws[:, one], draws[:, other], law, f"releases {one + 1} and {other + 1}")


def _pair(one: Draws, other: Draws, law: "_Law", names: str) -> Iterator[tuple[float, str]]:
    alike = int((np.abs(one) == np.abs(other)).sum())
    yield binomial_tail(alike, len(one), 2.0 * law.alike), f"{names} have the same noise"
    signed = (one != 0.0) & (other != 0.0)
    agree, count = int((np.sign(one) == np.sign(other))[signed].sum()), int(signed.sum())
    yield _two_sided(agree, count, 0.5), f"noise of {names} has related signs"
    middle = int(log(2.0) / law.rate)
    share = law.beyond(middle)
    agree = int(((np.abs(one) > middle) == (np.abs(other) > middle)).sum())
    yield _two_sided(agree, len(one), share * share + (1.0 - share) ** 2), f"noise of {names} has related sizes"


def _two_sided(hits: int, trials: int, share: float) -> float:
    tail = min(binomial_tail(hits, trials, share), binomial_tail(trials - hits, trials, 1.0 - share))
    return min(1.0, 2.0 * tail)


class _Law:
    """Discrete Laplace noise, P(z) proportional to exp(-rate |z|)."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        q = self._q = exp(-rate)
        self._zero = (1.0 - q) / (1.0 + q)  # P(0), the largest
        self.alike = self._zero**2 * (1.0 + q * q) / (1.0 - q * q)  # that two draws are equal

    def beyond(self, size: int) -> float:
        """P(|z| > size)."""
        return 2.0 * exp(-self.rate * (size + 1)) / (1.0 + self._q)

    def chance_of_sum(self, total: float, count: int) -> float:
        """A bound on P(the sizes of so many draws sum to so little): Chernoff's, at several tilts.

        It grows with the sum, so that it is below p with a probability of at most p.
        """
        least = 0.0
        for tilt in (0.05 * number for number in range(1, 200)):
            s = tilt * self.rate
            smaller = self._q * exp(-s)
            moment = log(self._zero) + log1p(smaller) - log1p(-smaller)  # log E exp(-s |z|)
            least = min(least, s * total + count * moment)
        return exp(least)

    def chance_of_repeats(self, draws: Draws) -> float:
        """A bound on P(some number is drawn m times): C(n, m) P(0)^(m - 1), a union over all sets of m draws."""
        count, most = draws.size, max(Counter(draws.ravel().tolist()).values())
        if most < 2:
            return 1.0
        sets = lgamma(count + 1) - lgamma(most + 1) - lgamma(count - most + 1)
        return exp(min(0.0, sets + (most - 1) * log(self._zero))) if self._zero < 1.0 else inf
