"""Bounds how far one site can move what others compute from its numbers (beyond the paper).

A site that lies can do no more than one that follows the protocol on rewards of its choice: its mean counts within the
range of rewards and the noise that so many releases can have, its variance follows from their number, and its weight is
at most a given share of all. So it moves an estimate by at most its own share of it, and the noise.
"""

from collections.abc import Sequence
from math import inf, log, log1p, sqrt

from fedbandit.rules.releases import MEAN, VARIANCE, between_sites

__all__ = ["QUANTILE", "clamped", "distances", "noise_quantile", "water_level", "wide_quantile"]

QUANTILE = 14.0
"""The noise of a release exceeds its quantile with probability at most e^-14 = 8e-7; then it is clamped. That moves the
expectation of a mean by at most e^-14 of its noise's scale (docs/liars.md)."""

_TILTS = 16


def noise_quantile(coefficients: Sequence[float]) -> float:
    """The noise sum_i c_i L_i, L_i standard Laplace draws, is larger in size with probability at most e^-14.

    One draw: P(|L| > t) = e^-t. Several: P(S > t) <= e^(psi(z) - z t), psi(z) = -sum log(1 - c_i^2 z^2), for every z
    below 1 / max c_i (Chernoff), and the same below: half of e^-14 each. The best of some z is taken.
    """
    largest = max(coefficients, default=0.0)
    if largest <= 0.0:
        return 0.0
    if len(coefficients) == 1:
        return QUANTILE * largest
    level, best = QUANTILE + log(2.0), inf
    for k in range(_TILTS):
        z = (k + 0.5) / _TILTS / largest
        psi = -sum(log1p(-((c * z) ** 2)) for c in coefficients)
        best = min(best, (level + psi) / z)
    return min(best, wide_quantile(sum(c * c for c in coefficients), largest))


def wide_quantile(squares: float, largest: float) -> float:
    """The same from sum c_i^2 and max c_i alone, and a little wider: psi(z) <= sum c_i^2 z^2 / (1 - max c_i^2 z^2)."""
    if largest <= 0.0:
        return 0.0
    level = QUANTILE + log(2.0)
    z = 1.0 / sqrt(squares / level + largest * largest)
    return (level + squares * z * z / (1.0 - (largest * z) ** 2)) / z


def clamped(value: float, low: float, high: float, noise: float) -> float:
    """A noisy mean of numbers in [low, high], no further outside than its noise can have taken it."""
    return min(max(value, low - noise), high + noise)


def water_level(weights: Sequence[float], share: float) -> float:
    """The largest level L such that of weights min(w, L) none is more than this share of their sum.

    Of weights in descending order the first k are cut where L = share (k L + the rest), that is L = share rest /
    (1 - share k), lies below them. If there are too few sites for the share, all count alike. ``inf``: nothing is cut.
    """
    positive = sorted((w for w in weights if w > 0.0), reverse=True)
    rests = positive.copy()  # the weight of each and all smaller ones, without cancellation
    for k in range(len(rests) - 2, -1, -1):
        rests[k] += rests[k + 1]
    for cut, w in enumerate(positive):
        if w <= share * (rests[cut] + cut * w):
            return inf if cut == 0 else share * rests[cut] / (1.0 - share * cut)
    return positive[-1] if len(positive) > 1 else inf


def distances(rows: Sequence[Sequence[float]], prior: float) -> list[float]:
    """How many standard deviations each site's mean of an arm lies from what the others say; 0 before its release.

    Rows are those of ``rules.releases.random_effects``, with as many sites as have a row. What the others say is their
    mean with weights a_i = prior / (prior + V_i), and the variance of the difference is V_j + tau^2 + sum a_i^2 (V_i +
    tau^2) / (sum a_i)^2: tau^2 is what ``between_sites`` makes of the others alone. So few sites, or sites that differ,
    explain much.
    """
    known = [row for row in rows if row[VARIANCE] > 0.0]
    if len(known) < 3:
        return [0.0] * len(rows)
    origin = known[0][MEAN]
    a_sum, a_squares, a_first, a_second, a_variance = 0.0, 0.0, 0.0, 0.0, 0.0
    for row in known:
        a, x = prior / (prior + row[VARIANCE]), row[MEAN] - origin
        a_sum, a_squares, a_first, a_second = a_sum + a, a_squares + a * a, a_first + a * x, a_second + a * x * x
        a_variance += a * a * row[VARIANCE]
    found: list[float] = []
    for row in rows:
        variance = row[VARIANCE]
        if variance <= 0.0:
            found.append(0.0)
            continue
        a, x = prior / (prior + variance), row[MEAN] - origin
        weight, squares = a_sum - a, a_squares - a * a
        mean = (a_first - a * x) / weight
        deviations = max(a_second - a * x * x - weight * mean * mean, 0.0)
        tau2 = between_sites(len(known) - 1, weight, squares, deviations, prior)
        of_mean = (max(a_variance - a * a * variance, 0.0) + squares * tau2) / (weight * weight)
        found.append(abs(x - mean) / sqrt(variance + tau2 + of_mean))
    return found
