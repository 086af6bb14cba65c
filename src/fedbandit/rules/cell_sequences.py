"""Bounds that hold at all times at once for what sites have released of an arm in one stratum alone (docs/theorem.md).

Sizes of such releases follow from counts and from what was released before, never from the rewards in them. So with
c = 1 / (v m) for a release of m rewards, which counts with precision 1 / v, the sum Z of c (S - m mu) over releases,
S the noisy sum, has at every time

    E exp(z Z - psi(z)) <= 1,    psi(z) = v_R z^2 / 2 + (v_N z^2 / 2) (1 - y / 2) / (1 - y),    y = (b z)^2 < 1,

v_R = sum(c^2 m) / 4 for rewards in a range of width 1 (Hoeffding), v_N = sum(2 c^2 / epsilon^2) for the noise, and b
the most that c / epsilon can be: a supermartingale, which stays below 1 / error for ever with probability 1 - error
(Ville 1939). Each of a sequence of z has a price of its own, so the best of them may be chosen at any time.
"""

from collections.abc import Sequence
from math import inf, log
from typing import NamedTuple

from fedbandit.rules.guardrail import Deficit

__all__ = ["CellMean", "cell_radius", "proved_deficit", "proved_mean"]

TILTS = 40
"""Each z is half of the one before: the last is far below what any number of rewards needs."""

FIRST = 0.9
"""The first z, in units of 1 / b, where psi ends."""

MOST_VARIANCE = 0.25
"""Of a reward in a range of width 1."""


class CellMean(NamedTuple):
    """What a site has released of an arm in a stratum alone, in units of the range.

    * ``precision``: the sum of 1 / v; ``square``: that of 1 / (v^2 m)
    """

    mean: float
    precision: float
    square: float

    @property
    def noise(self) -> float:
        """v_N: 1 / v is v_R's c^2 m / 4 and the noise's part together."""
        return max(self.precision - MOST_VARIANCE * self.square, 0.0)


def cell_radius(precision: float, square: float, noise: float, noise_scale: float, error: float) -> float:
    """By how much a mean of releases may be off, in each direction with probability ``error`` over all times.

    ``noise_scale`` is 1 / epsilon; c is below 1 / MOST_VARIANCE for releases of any size.
    """
    largest = noise_scale / MOST_VARIANCE
    level, best = -log(error), inf
    for q in range(TILTS):
        z = FIRST / largest * 0.5**q
        y = largest * largest * z * z
        psi = 0.5 * z * z * (MOST_VARIANCE * square + noise * (1.0 - 0.5 * y) / (1.0 - y))
        best = min(best, (level + log((q + 1.0) * (q + 2.0)) + psi) / (z * precision))
    return best


def proved_mean(cells: Sequence[CellMean], noise_scale: float, error: float) -> tuple[float, float]:
    """Of the mean over sites, each by its precision: it ever lies outside with a probability of at most ``error``."""
    precision, square = sum(it.precision for it in cells), sum(it.square for it in cells)
    noise = sum(it.noise for it in cells)
    centre = sum(it.precision * it.mean for it in cells) / precision
    radius = cell_radius(precision, square, noise, noise_scale, error / 2.0)
    return centre - radius, centre + radius


def proved_deficit(
    pairs: Sequence[tuple[CellMean, CellMean]],
    shares: Sequence[float],
    noise_scale: float,
    most_sites: int,
    error: float,
) -> Deficit:
    """Of the second arm against the first, from a pair for each site that has released both in the stratum.

    It is larger than ``certain`` at all times with probability 1 - ``error``. Each mean of each of ``most_sites`` has
    its part of the error, so any shares may be chosen.
    """
    each = error / (2.0 * most_sites)
    estimate, certain = 0.0, 0.0
    for share, (one, other) in zip(shares, pairs, strict=True):
        radii = [cell_radius(it.precision, it.square, it.noise, noise_scale, each) for it in (one, other)]
        estimate += share * (one.mean - other.mean)
        certain += share * (one.mean - other.mean - sum(radii))
    return Deficit(estimate, certain)
