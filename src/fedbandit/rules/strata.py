"""What all sites' releases say of an arm in each stratum: a hierarchical Gaussian model (beyond the paper).

Arm k at site j and stratum s has the mean mu_js = 1/2 + a + d_s + b_j + g_js, in units of the declared range:

* a, what is common, and b_j, the site, are N(0, 1/12) as a mean anywhere in the range is
* d_s, what the stratum changes everywhere, is N(0, td^2); g_js, what it changes at one site, is N(0, tg^2)

The pair (td, tg) is one of a grid of twelve, the same for all arms, and learnt: strata that do not matter are told from
strata that do. What is wanted is theta_s = sum_j w_js mu_js.

A **record** is all that a site has released of an arm. Each release has weights w over strata that add up to 1 (one
stratum alone, or the shares of a pooled sum), a value y and a variance v, in units of the range. It adds w w' / v to
the precision L and w (y - 1/2) / v to the score e. A record is one row of numbers for S strata: how many releases it
holds, the site's weight in each stratum, e, and L, row by row. Records are sufficient: nothing
else of what a site has released matters. docs/context.md has the derivation; ``tests/test_rules_strata.py`` compares
all of it with the joint normal distribution.
"""

from collections.abc import MutableSequence, Sequence
from math import exp, log

__all__ = [
    "COMMON",
    "DRAWN",
    "GRID",
    "MATRICES",
    "SITE_PRIOR",
    "SITE_SCALES",
    "STRATUM_PRIOR",
    "STRATUM_SCALES",
    "UNLIKELY",
    "VECTORS",
    "add_release",
    "cell_least",
    "choose_scales",
    "invert",
    "is_heard",
    "length_of_record",
    "mean_over_scales",
    "place_of_precision",
    "place_of_score",
    "posterior_of_arm",
    "share_of_all",
    "variance_over_scales",
]

STRATUM_SCALES = (0.002, 0.02, 0.06, 0.18)
"""td: how much strata change an arm at all sites."""

STRATUM_PRIOR = (0.45, 0.25, 0.15, 0.15)

SITE_SCALES = (0.003, 0.05, 0.25)
"""tg: how much they change it at one site."""

SITE_PRIOR = (0.7, 0.15, 0.15)

GRID = len(STRATUM_SCALES) * len(SITE_SCALES)
"""Pairs (td, tg): td changes fastest."""

COMMON = 1.0 / 12.0
"""The variance of a mean anywhere in the range, of a and of b_j."""

LEAST_WEIGHT = 1e-12
"""Of all sites in a stratum that nobody has seen yet."""

NEGLIGIBLE = 0.03
"""Scales above it are said to matter: an arm that is best by less than this is worth no batches of its own."""

Row = MutableSequence[float]
Matrix = Sequence[MutableSequence[float]]


# ---------------------------------------------------------------- records


def length_of_record(num_strata: int) -> int:
    """Of a row of numbers for so many strata."""
    return 1 + 2 * num_strata + num_strata * num_strata


def place_of_score(num_strata: int, s: int) -> int:
    """Where the score of a stratum stands in a record; its weight stands S places before."""
    return 1 + num_strata + s


def place_of_precision(num_strata: int, s: int, r: int) -> int:
    """Where an entry of the precision stands."""
    return 1 + 2 * num_strata + s * num_strata + r


def add_release(
    scores: Row, precisions: Matrix, weights: Sequence[float], value: float, variance: float, num_strata: int
) -> None:
    """Add a release to a score and a precision; ``value`` lies 1/2 above the middle of the range at its top."""
    for s in range(num_strata):
        scores[s] += weights[s] * value / variance
        for r in range(num_strata):
            precisions[s][r] += weights[s] * weights[r] / variance


# ---------------------------------------------------------------- small matrices


def invert(a: Matrix, inverse: Matrix, size: int) -> float:
    """The inverse of a symmetric positive definite matrix, which is used up; returns the logarithm of its determinant.

    Gauss-Jordan elimination: such matrices need no pivots.
    """
    log_det = 0.0
    for i in range(size):
        for j in range(size):
            inverse[i][j] = 1.0 if i == j else 0.0
    for c in range(size):
        pivot = a[c][c]
        log_det += log(pivot)
        scale = 1.0 / pivot
        for j in range(size):
            a[c][j] *= scale
            inverse[c][j] *= scale
        for i in range(size):
            if i != c:
                factor = a[i][c]
                for j in range(size):
                    a[i][j] -= factor * a[c][j]
                    inverse[i][j] -= factor * inverse[c][j]
    return log_det


def _inverse_common(scale2: float, size: int) -> float:
    """The inverse of scale2 I + 11'/12 is I / scale2 less this times 11'."""
    return COMMON / (scale2 * (scale2 + size * COMMON))


def _log_det(scale2: float, size: int) -> float:
    """Of scale2 I + 11'/12."""
    return (size - 1) * log(scale2) + log(scale2 + size * COMMON)


# ---------------------------------------------------------------- the posterior of one arm

VECTORS = 8
"""Scratch of ``posterior_of_arm``: so many rows of S numbers ..."""

MATRICES = 4
"""... and so many S x S matrices."""

_SHRUNK, _OWN, _VARIANCE, _SHARE, _MEAN, _SUM, _TOTAL, _MISSING = range(VECTORS)
_PRECISIONS, _PULLS, _WORK, _INVERSE = range(MATRICES)


def posterior_of_arm(
    records: Sequence[Sequence[float]],
    versions: Sequence[int],
    total: float,
    squares: float,
    vectors: Matrix,
    matrices: Sequence[Matrix],
    evidence: Row,
    means: Matrix,
    variances: Matrix,
) -> int:
    """Fill in what all records say of an arm for each pair of scales: theta, its variance, the evidence for the pair.

    A record is heard if its version is above 0, the site has released the arm, and its weights are measured. ``total``
    and ``squares`` are the sums of all sites' weights and of their squares; with ``total`` 0, sites that were not heard
    weigh as much as those that were, on average. ``means[s][g]`` and ``variances[s][g]`` are of theta_s - 1/2 with
    pair g, ``evidence[g]`` is the logarithm of the records' density. Returns the number of sites heard.

    With Sg = tg^2 I + 11'/12, P = (td^2 I + 11'/12)^-1, and at each site B = (L + Sg^-1)^-1, h = Sg^-1 B e,
    J = Sg^-1 - Sg^-1 B Sg^-1 (a site that was not heard has B = Sg, h = 0, J = 0), w its shares of all weight:

    * K = P + sum J, m = K^-1 sum h, R = sum w B Sg^-1
    * theta = 1/2 + sum w B e + R m, with the variance sum w B w + R K^-1 R'
    * evidence: sum (e' B e + log |B| - log |Sg|) / 2 + (m' K m - log |K| + log |P|) / 2
    """
    size = len(means)
    heard = _weigh_sites(records, versions, total, squares, vectors, size)
    for i in range(len(SITE_SCALES)):
        site_evidence = _add_sites(records, versions, SITE_SCALES[i], vectors, matrices, size)
        for j in range(len(STRATUM_SCALES)):
            g = i * len(STRATUM_SCALES) + j
            evidence[g] = site_evidence + _finish(STRATUM_SCALES[j], g, vectors, matrices, means, variances, size)
    return heard


def is_heard(record: Sequence[float], version: int, size: int) -> bool:
    """Whether a site has released the arm, and counts in the average."""
    weight = 0.0
    for s in range(size):
        weight += record[1 + s]
    return version > 0 and record[0] > 0.0 and weight > 0.0


def _weigh_sites(
    records: Sequence[Sequence[float]],
    versions: Sequence[int],
    total: float,
    squares: float,
    vectors: Matrix,
    size: int,
) -> int:
    """The weight of all sites in each stratum, and the sum of squared shares of those not heard; how many are heard."""
    heard, has_weight = 0, 0
    for s in range(size):
        vectors[_TOTAL][s] = vectors[_MISSING][s] = vectors[_SHARE][s] = 0.0
    for j in range(len(versions)):
        heard += int(is_heard(records[j], versions[j], size))
        if versions[j] > 0:
            weight = 0.0
            for s in range(size):
                own = records[j][1 + s]
                weight += own
                vectors[_TOTAL][s] += own
                vectors[_MISSING][s] += own * own
                if records[j][0] > 0.0:
                    vectors[_SHARE][s] += own * own
            has_weight += int(weight > 0.0)
    for s in range(size):
        whole, all_squares = total, squares
        if total <= 0.0:
            scale = len(versions) / max(has_weight, 1)
            whole, all_squares = scale * vectors[_TOTAL][s], scale * vectors[_MISSING][s]
        whole = max(whole, LEAST_WEIGHT)
        vectors[_TOTAL][s] = whole
        vectors[_MISSING][s] = max(all_squares - vectors[_SHARE][s], 0.0) / (whole * whole)
    return heard


def share_of_all(own: Sequence[float], vectors: Matrix, size: int) -> float:
    """A site's part of the weight of all, over strata, after ``posterior_of_arm``."""
    mine, total = 0.0, 0.0
    for s in range(size):
        mine += own[s]
        total += vectors[_TOTAL][s]
    return mine / total


def _add_sites(
    records: Sequence[Sequence[float]],
    versions: Sequence[int],
    scale: float,
    vectors: Matrix,
    matrices: Sequence[Matrix],
    size: int,
) -> float:
    """Sums over sites for one tg; returns the logarithm of their evidence given what is common to all."""
    precisions, pulls = matrices[_PRECISIONS], matrices[_PULLS]
    scale2, evidence = scale * scale, 0.0
    for s in range(size):
        vectors[_SHRUNK][s] = vectors[_OWN][s] = 0.0
        vectors[_VARIANCE][s] = vectors[_MISSING][s] * (scale2 + COMMON)
        for r in range(size):
            precisions[s][r] = pulls[s][r] = 0.0
        pulls[s][s] = 1.0  # less the shares of those heard, below
    for j in range(len(versions)):
        if is_heard(records[j], versions[j], size):
            for s in range(size):
                vectors[_SHARE][s] = records[j][1 + s] / vectors[_TOTAL][s]
                pulls[s][s] -= vectors[_SHARE][s]
            evidence += _add_site(records[j], scale2, vectors, matrices, size)
    return evidence


def _add_site(record: Sequence[float], scale2: float, vectors: Matrix, matrices: Sequence[Matrix], size: int) -> float:
    """Add h, J, w B e, w B w and w B Sg^-1 of a site."""
    work, inverse, precisions, pulls = matrices[_WORK], matrices[_INVERSE], matrices[_PRECISIONS], matrices[_PULLS]
    means, sums, shares = vectors[_MEAN], vectors[_SUM], vectors[_SHARE]
    diagonal, common = 1.0 / scale2, _inverse_common(scale2, size)
    for s in range(size):
        for r in range(s + 1):
            entry = record[place_of_precision(size, s, r)] - common
            work[s][r] = entry
            work[r][s] = entry
        work[s][s] += diagonal
    evidence = -0.5 * invert(work, inverse, size) - 0.5 * _log_det(scale2, size)
    all_means, all_sums = 0.0, 0.0
    for s in range(size):
        mean, row = 0.0, 0.0
        for r in range(size):
            mean += inverse[s][r] * record[place_of_score(size, r)]
            row += inverse[s][r]
        means[s], sums[s] = mean, row
        evidence += 0.5 * mean * record[place_of_score(size, s)]
        all_means += mean
        all_sums += row
    for s in range(size):
        share = shares[s]
        vectors[_SHRUNK][s] += diagonal * means[s] - common * all_means
        vectors[_OWN][s] += share * means[s]
        vectors[_VARIANCE][s] += share * share * inverse[s][s]
        precisions[s][s] += diagonal
        for r in range(size):
            pulls[s][r] += share * (diagonal * inverse[s][r] - common * sums[s])
            shrunk = diagonal * (diagonal * inverse[s][r] - common * (sums[s] + sums[r])) + common * common * all_sums
            precisions[s][r] -= common + shrunk
    return evidence


def _finish(
    scale: float,
    g: int,
    vectors: Matrix,
    matrices: Sequence[Matrix],
    means: Matrix,
    variances: Matrix,
    size: int,
) -> float:
    """Theta and its variance from the sums over sites, for one td; returns the rest of the evidence's logarithm."""
    work, inverse, pulls = matrices[_WORK], matrices[_INVERSE], matrices[_PULLS]
    scale2 = scale * scale
    diagonal, common = 1.0 / scale2, _inverse_common(scale2, size)
    for s in range(size):
        for r in range(size):
            work[s][r] = matrices[_PRECISIONS][s][r] - common
        work[s][s] += diagonal
    evidence = -0.5 * invert(work, inverse, size) - 0.5 * _log_det(scale2, size)
    for s in range(size):
        mean = 0.0
        for r in range(size):
            mean += inverse[s][r] * vectors[_SHRUNK][r]
        vectors[_MEAN][s] = mean
        evidence += 0.5 * mean * vectors[_SHRUNK][s]
    for s in range(size):
        theta, variance = vectors[_OWN][s], vectors[_VARIANCE][s]
        for r in range(size):
            theta += pulls[s][r] * vectors[_MEAN][r]
            along = 0.0
            for q in range(size):
                along += inverse[r][q] * pulls[s][q]
            variance += pulls[s][r] * along
        means[s][g], variances[s][g] = theta, variance
    return evidence


# ---------------------------------------------------------------- which scales


def choose_scales(evidence: Matrix, counts: Sequence[int], weights: Row) -> float:
    """Fill in the posterior probabilities of the pairs (td, tg), from the evidence of all arms that count.

    Returns Q, the probability that strata matter: that one of both scales is not negligible.
    """
    most = 0.0
    for g in range(GRID):
        i, j = g // len(STRATUM_SCALES), g % len(STRATUM_SCALES)
        weights[g] = log(SITE_PRIOR[i] * STRATUM_PRIOR[j])
        for k in range(len(counts)):
            if counts[k] > 0:
                weights[g] += evidence[k][g]
        if g == 0 or weights[g] > most:
            most = weights[g]
    total, matters = 0.0, 0.0
    for g in range(GRID):
        weights[g] = exp(weights[g] - most)
        total += weights[g]
        if SITE_SCALES[g // len(STRATUM_SCALES)] > NEGLIGIBLE or STRATUM_SCALES[g % len(STRATUM_SCALES)] > NEGLIGIBLE:
            matters += weights[g]
    for g in range(GRID):
        weights[g] /= total
    return matters / total


def mean_over_scales(values: Sequence[float], weights: Sequence[float]) -> float:
    """Theta of an arm in a stratum, over all pairs of scales."""
    mean = 0.0
    for g in range(GRID):
        mean += weights[g] * values[g]
    return mean


def variance_over_scales(
    values: Sequence[float], variances: Sequence[float], weights: Sequence[float], mean: float
) -> float:
    """The variance of theta, over all pairs of scales."""
    variance = 0.0
    for g in range(GRID):
        variance += weights[g] * (variances[g] + (values[g] - mean) * (values[g] - mean))
    return variance


# ---------------------------------------------------------------- batches

SMALLER = 4.0
"""How much smaller sums of single cells may be where strata matter than where they do not."""

UNLIKELY = 0.3
"""Below this probability that strata matter what cells hold is pooled again and again, not only at first."""

DRAWN = 0.9
"""Draws have this part of the posterior's standard deviation: a little narrower loses less, here as elsewhere."""


def cell_least(matters: float, first_batch: int) -> float:
    """The fewest rewards of a cell that is released alone when its arm closes: a first batch, or a quarter of one."""
    return first_batch * SMALLER**-matters
