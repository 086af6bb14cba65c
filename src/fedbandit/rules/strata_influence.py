"""Bounds how far one site's record of an arm and its strata can move what others compute (beyond the paper).

As ``rules.influence``: a site that lies can do no more than one that follows the protocol on rewards of its choice. The
model itself bounds the rest: however precise a record says it is, what the site and its strata have of their own keeps
it one of many (``rules.strata``).
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from fedbandit.rules.influence import clamped, wide_quantile
from fedbandit.rules.strata import length_of_record, place_of_precision, place_of_score

__all__ = ["ROUNDING", "bounded_record", "mean_in_stratum", "mean_of_record", "packed", "packed_length", "unpacked"]

ROUNDING = 1e-9
"""By which honest numbers may exceed a bound, relatively."""

SMALLEST_EIGENVALUE = 0.1
"""Of Sg^-1 it is above 0.4: a precision with none below minus this can be inverted together with it."""

Record = tuple[float, ...]


# ---------------------------------------------------------------- as it is sent


def packed_length(size: int) -> int:
    """How many numbers are sent of a record: of the precision, which is symmetric, the lower triangle alone."""
    return 1 + 2 * size + size * (size + 1) // 2


def packed(record: Sequence[float], size: int) -> Record:
    """What is sent of a record."""
    triangle = (record[place_of_precision(size, s, r)] for s in range(size) for r in range(s + 1))
    return *record[: 1 + 2 * size], *triangle


def unpacked(row: Sequence[float], size: int) -> Record:
    """The record of which this was sent."""
    start = 1 + 2 * size
    pairs = ((max(s, r), min(s, r)) for s in range(size) for r in range(size))
    return *row[:start], *(row[start + s * (s + 1) // 2 + r] for s, r in pairs)


# ---------------------------------------------------------------- what counts


def bounded_record(
    record: Sequence[float], weights: Sequence[float], releases: int, rewards: int, most_precision: float
) -> Record:
    """The record that counts, with these weights; without scores and precision if no releases can have made it.

    * Every precision w_s w_r / v is at least 0, and they are positive semidefinite together; all of them add up to the
      sum of 1 / v, which is at most ``most_precision`` for each reward.
    * The mean of what was released in a stratum, 1/2 + e_s / sum_r L_sr, lies in the range and its noise. Noise is a
      part of every v, so that of the mean has at most the variance 1 / sum_r L_sr, and no single draw has more.
    """
    size = len(weights)
    nothing = (0.0, *weights, *[0.0] * (length_of_record(size) - 1 - size))
    matrix = [[record[place_of_precision(size, s, r)] for r in range(size)] for s in range(size)]
    total = sum(map(sum, matrix))
    if releases == 0 or not total > 0.0 or min(map(min, matrix)) < 0.0:
        return nothing
    most = rewards * most_precision
    scale = 1.0 if total <= most * (1.0 + ROUNDING) else most / total
    if scale <= 0.0 or not _is_precision(matrix, scale):
        return nothing
    scores: list[float] = []
    for s in range(size):
        score, precision = scale * record[place_of_score(size, s)], scale * sum(matrix[s])
        if precision > 0.0:
            wide = wide_quantile(0.5 / precision, 1.0 / sqrt(2.0 * precision))
            most_score = precision * (0.5 + wide) * (1.0 + ROUNDING)
            scores.append(clamped(score, -most_score, most_score, 0.0))
        else:
            scores.append(0.0)
    return float(releases), *weights, *scores, *(scale * it for row in matrix for it in row)


def _is_precision(matrix: Sequence[Sequence[float]], scale: float) -> bool:
    """Whether a symmetric matrix has no eigenvalue below minus ``SMALLEST_EIGENVALUE``: by its Cholesky factor."""
    size = len(matrix)
    factor = [[0.0] * size for _ in range(size)]
    for s in range(size):
        for r in range(s + 1):
            entry = scale * matrix[s][r] - sum(factor[s][q] * factor[r][q] for q in range(r))
            if r < s:
                factor[s][r] = entry / factor[r][r]
            elif (entry := entry + SMALLEST_EIGENVALUE) > 0.0:
                factor[s][s] = sqrt(entry)
            else:
                return False
    return True


def mean_of_record(record: Sequence[float], size: int) -> tuple[float, float]:
    """The mean of all that a site has released of an arm, 0 to 1 in the range, and its variance; 0, 0: none.

    Releases weigh 1 / v, so strata weigh as much as is known of them.
    """
    score = sum(record[place_of_score(size, s)] for s in range(size))
    precision = sum(record[place_of_precision(size, s, r)] for s in range(size) for r in range(size))
    return (0.5 + score / precision, 1.0 / precision) if precision > 0.0 else (0.0, 0.0)


class StratumMean(NamedTuple):
    """What a site has released of an arm in a stratum.

    * ``mean``: 0 to 1 in the range, as far as noise lets it; ``variance``: its own
    * ``part``: how much of it is patients of the stratum: the rest lie in the same pooled sums
    """

    mean: float
    variance: float
    part: float


def mean_in_stratum(record: Sequence[float], s: int, size: int) -> StratumMean | None:
    """The mean of all releases of an arm in which a stratum is, each by its share w and its precision 1 / v.

    With e_s = sum w (y - 1/2) / v and sum_r L_sr = sum w / v it is 1/2 + e_s over that; its variance is L_ss over the
    square of that, for L_ss = sum w^2 / v. None: there is no such release.
    """
    whole = sum(record[place_of_precision(size, s, r)] for r in range(size))
    own = record[place_of_precision(size, s, s)]
    if not (whole > 0.0 and own > 0.0):
        return None
    return StratumMean(0.5 + record[place_of_score(size, s)] / whole, own / (whole * whole), min(own / whole, 1.0))
