"""What all sites' releases say of an arm whose mean depends on features: a hierarchical model (beyond the paper).

Features x have a norm of at most 1. A reward, less the middle of its range and in units of its width, has the mean
x . theta_j for a decision of site j. Theta_j is the sum of a part that all sites share and a part of its own, both
normal around 0. The entry of the constant has the prior of a mean anywhere in the range; how much the others vary,
between arms (``COMMON_SCALES``) and between sites (``SITE_SCALES``), is learnt over a grid, the same for all arms.

A batch holds G = sum x x', which is public, and b = sum x q with noise of variance s^2 in each entry, q the reward.
It is worth the **information** G A^-1 G, A = G / 4 + s^2 I, and the vector G A^-1 b: an eigenvalue g of G counts
g^2 / (g / 4 + s^2), as the inverse variance of a batch mean does in ``rules.batch``. A site's **record** of an arm is
one row of numbers: how many rewards it has released, its share, the vector, and the information, row by row. What is
wanted is theta, the average of all theta_j by their shares (docs/context.md).
"""

from collections.abc import MutableSequence, Sequence
from math import erfc, exp, log, sqrt

from fedbandit.rules.strata import invert

__all__ = [
    "COMMON_SCALES",
    "GRID",
    "MATRICES",
    "RECORD",
    "SITE_SCALES",
    "VECTORS",
    "add_batch",
    "add_decision",
    "along",
    "choose_scales",
    "dot",
    "first_decisions",
    "first_size",
    "gaussian_delta",
    "gaussian_scale",
    "is_definite",
    "laplace_scale",
    "mix_scales",
    "posterior_of_arm",
    "quadratic",
    "scale_of",
    "spherical_scale",
    "spherical_variance",
    "weigh_noisy",
]

Row = MutableSequence[float]
Matrix = Sequence[MutableSequence[float]]

COMMON_SCALES = (0.003, 0.03, 0.3)
"""The variance of the slopes that all sites share, all together."""

COMMON_PRIOR = (0.4, 0.3, 0.3)

SITE_SCALES = (0.003, 0.05)
"""The variance of what is a site's own in them."""

SITE_PRIOR = (0.6, 0.4)

GRID = len(COMMON_SCALES) * len(SITE_SCALES)

CONSTANT = 1.0 / 6.0
"""The prior variance of the entry of the constant, whose feature is 1 / sqrt(2): that of a mean anywhere in [0, 1]."""

MOST_VARIANCE = 0.25
"""Of a reward in [0, 1]."""

NOISE_IN_GRAM = 1.1
"""Times the variance of noise, for that of G itself."""

LEAST_VARIANCE = 1e-6
"""Without noise: G alone may have no inverse."""

COUNT, SHARE, VECTOR = range(3)
"""Where the parts of a record begin; the information follows the vector."""


# ---------------------------------------------------------------- noise


def spherical_scale(epsilon: float) -> float:
    """Of noise with density exp(-|z| / scale), |z| Euclidean: another reward moves b by at most |x| <= 1."""
    return 1.0 / epsilon


def spherical_variance(scale: float, size: int) -> float:
    """The variance of one entry of it: the radius is Gamma(size), so E |z|^2 / size = (size + 1) scale^2."""
    return (size + 1) * scale * scale


def laplace_scale(epsilon: float, size: int) -> float:
    """Of Laplace noise in each entry: another reward moves b by at most |x|_1 <= sqrt(size) in the sum of entries."""
    return sqrt(size) / epsilon


def first_size(epsilon: float, size: int) -> int:
    """Rewards in the first batch: 12 sqrt(F) / epsilon, and as many as there are features at least."""
    return int(min(max(12.0 * sqrt(size) / epsilon, size), 1e9)) + 1


RECORD = sqrt(2.53125)
"""How far (sum x x', sum x q), off-diagonal entries once but times sqrt(2), moves if one decision is another, with
|x| <= 1 and |q| <= 1/2, whether or not its arm is another, too (docs/privacy.md)."""


ROUNDING = 1e-12
"""Relative: the errors of both terms of ``gaussian_delta`` together are smaller."""


def _tail(x: float) -> float:
    """The standard normal distribution function."""
    return 0.5 * erfc(-x / sqrt(2.0))


def gaussian_delta(epsilon: float, deviation: float) -> float:
    """The least delta of Gaussian noise of so many units of what it hides (Balle and Wang 2018, Theorem 8).

    For an epsilon above 100 that of 100, which is larger: its exponential would overflow. Rounding is counted in:
    where the two terms nearly cancel, what is left of them is less than their errors.
    """
    epsilon = min(epsilon, 100.0)
    half, loss = 0.5 / deviation, epsilon * deviation
    reached = _tail(half - loss)
    return reached - exp(epsilon) * _tail(-half - loss) + ROUNDING * reached


def gaussian_scale(epsilon: float, delta: float) -> float:
    """The standard deviation of Gaussian noise that hides a decision: the least that keeps epsilon and delta.

    By bisection; the upper end is returned, which keeps them.
    """
    low, high = 1e-3, 1.0
    while gaussian_delta(epsilon, high) > delta:
        high *= 2.0
    for _ in range(200):
        middle = sqrt(low * high)
        if gaussian_delta(epsilon, middle) > delta:
            low = middle
        else:
            high = middle
    return RECORD * high


def first_decisions(scale: float, size: int, num_arms: int) -> int:
    """Decisions in the first batch where all arms are released at once: 2 (F + 1) standard deviations for each."""
    return int(min(max(2.0 * (size + 1) * scale, size), 1e9 / num_arms)) * num_arms + num_arms


# ---------------------------------------------------------------- small matrices


def is_definite(matrix: Matrix, factor: Matrix) -> bool:
    """Whether a symmetric matrix is positive definite, by its Cholesky factor, which is filled in."""
    for a in range(len(matrix)):
        for b in range(a + 1):
            rest = matrix[a][b]
            for c in range(b):
                rest -= factor[a][c] * factor[b][c]
            if a == b:
                if rest <= 0.0:
                    return False
                factor[a][a] = sqrt(rest)
            else:
                factor[a][b] = rest / factor[b][b]
    return True


def scale_of(x: Sequence[float], norm: float) -> float:
    """By what features are divided so that their norm is at most 1: the declared norm, or their own if it is larger."""
    square = 0.0
    for c in range(len(x)):
        square += x[c] * x[c]
    return 1.0 / max(norm, sqrt(square))


def dot(x: Sequence[float], theta: Sequence[float]) -> float:
    """X . theta."""
    total = 0.0
    for c in range(len(x)):
        total += x[c] * theta[c]
    return total


def quadratic(x: Sequence[float], matrix: Matrix) -> float:
    """X' A x of a symmetric A."""
    total = 0.0
    for a in range(len(x)):
        row = 0.5 * matrix[a][a] * x[a]
        for b in range(a):
            row += matrix[a][b] * x[b]
        total += 2.0 * row * x[a]
    return total


def along(matrix: Matrix, x: Sequence[float], product: Row) -> None:
    """Fill in A x."""
    for a in range(len(x)):
        total = 0.0
        for b in range(len(x)):
            total += matrix[a][b] * x[b]
        product[a] = total


# ---------------------------------------------------------------- a batch

VECTORS, MATRICES = 3, 6
"""Scratch: so many rows of F numbers, and so many F x F matrices."""


def add_batch(
    gram: Matrix, noisy: Sequence[float], variance: float, vector: Row, information: Matrix, scratch: Sequence[Matrix]
) -> None:
    """Add what a batch is worth to a record; ``variance`` is that of the noise in one entry of its vector."""
    size, work, inverse, product = len(vector), scratch[0], scratch[1], scratch[2]
    for a in range(size):
        for b in range(size):
            work[a][b] = MOST_VARIANCE * gram[a][b]
        work[a][a] += variance + LEAST_VARIANCE
    invert(work, inverse, size)
    _add_worth(gram, noisy, inverse, product, vector, information)


def weigh_noisy(
    gram: Matrix, noisy: Sequence[float], variance: float, vector: Row, information: Matrix, scratch: Sequence[Matrix]
) -> None:
    """Fill in what sums are worth of which both have noise; ``variance`` is that of one entry of each.

    As ``add_batch``, with A = (G + c I) / 4 + 1.1 s^2 I. The noise of G, whose eigenvalues reach about s sqrt(2 F),
    would leave A indefinite: c begins there and doubles until it does not.
    """
    size, work, inverse, shift = len(vector), scratch[0], scratch[1], 0.0
    while shift == 0.0 or not is_definite(work, inverse):
        shift = 2.0 * shift if shift > 0.0 else sqrt(2.0 * size * variance) + LEAST_VARIANCE
        for a in range(size):
            for b in range(size):
                work[a][b] = MOST_VARIANCE * gram[a][b]
            work[a][a] += MOST_VARIANCE * shift + NOISE_IN_GRAM * variance
    invert(work, inverse, size)
    for a in range(size):
        vector[a] = 0.0
        for b in range(size):
            information[a][b] = 0.0
    _add_worth(gram, noisy, inverse, scratch[2], vector, information)


def _add_worth(
    gram: Matrix, noisy: Sequence[float], inverse: Matrix, product: Matrix, vector: Row, information: Matrix
) -> None:
    """Add G A^-1 b and G A^-1 G; ``product`` is filled with G A^-1."""
    size = len(vector)
    for a in range(size):
        for b in range(size):
            total = 0.0
            for c in range(size):
                total += gram[a][c] * inverse[c][b]
            product[a][b] = total
    for a in range(size):
        for c in range(size):
            vector[a] += product[a][c] * noisy[c]
        for b in range(a + 1):
            total = 0.0
            for c in range(size):
                total += product[a][c] * gram[c][b]
            information[a][b] += total
            if b < a:
                information[b][a] += total


# ---------------------------------------------------------------- ridge regression


def add_decision(x: Sequence[float], scale: float, q: float, vector: Row, gram: Matrix) -> None:
    """Add a decision to sums of x q and x x', x times the scale."""
    for a in range(len(x)):
        scaled = scale * x[a]
        vector[a] += q * scaled
        for b in range(len(x)):
            gram[a][b] += scaled * scale * x[b]


# ---------------------------------------------------------------- the posterior of one arm

_OWN, _SHRUNK, _MEAN = range(VECTORS)
_WORK, _INVERSE, _PRECISION, _SPREAD, _PULL, _PRODUCT = range(MATRICES)


def posterior_of_arm(
    records: Sequence[Sequence[float]],
    versions: Sequence[int],
    num_agents: int,
    squares: float,
    has_constant: int,
    vectors: Matrix,
    matrices: Sequence[Matrix],
    evidence: Row,
    means: Matrix,
    covariances: Sequence[Matrix],
) -> int:
    """Fill in what all records say of an arm for each pair of scales; returns the number of sites that released it.

    ``means[g]`` and ``covariances[g]`` are of theta with pair g, ``evidence[g]`` is the logarithm of the records'
    density. ``squares`` is the sum of all sites' squared weights. With S and C the prior variances of what is a site's
    own and of what is common, both diagonal, at each site B = (L + S^-1)^-1, w its weight (a site that was not heard
    has B = S):

    * K = C^-1 + sum (S^-1 - S^-1 B S^-1), m = K^-1 sum S^-1 B e
    * theta = sum w B e + R m, R = sum w B S^-1, with the covariance sum w^2 B + R K^-1 R'
    * evidence: sum (e' B e + log |B| - log |S|) / 2 + (m' K m - log |K| - log |C|) / 2
    """
    heard = 0
    for i in range(len(SITE_SCALES)):
        heard, own = _add_sites(records, versions, num_agents, squares, has_constant, SITE_SCALES[i], vectors, matrices)
        for j in range(len(COMMON_SCALES)):
            g = i * len(COMMON_SCALES) + j
            evidence[g] = own + _finish(has_constant, COMMON_SCALES[j], vectors, matrices, means[g], covariances[g])
    return heard


def prior_variance(scale: float, c: int, size: int, has_constant: int) -> float:
    """Of entry c of theta, where slopes have this variance all together."""
    if has_constant and c == 0:
        return CONSTANT
    return scale / (size - has_constant)


def _add_sites(
    records: Sequence[Sequence[float]],
    versions: Sequence[int],
    num_agents: int,
    squares: float,
    has_constant: int,
    scale: float,
    vectors: Matrix,
    matrices: Sequence[Matrix],
) -> tuple[int, float]:
    """Sums over sites for one variance between them: how many there are, and the logarithm of their evidence."""
    own, shrunk = vectors[_OWN], vectors[_SHRUNK]
    precision, spread, pull = matrices[_PRECISION], matrices[_SPREAD], matrices[_PULL]
    size, heard, missing, missing_squares, evidence = len(own), 0, 1.0, squares, 0.0
    for a in range(size):
        own[a] = shrunk[a] = 0.0
        for b in range(size):
            precision[a][b] = spread[a][b] = pull[a][b] = 0.0
    for j in range(len(versions)):
        if versions[j] > 0 and records[j][COUNT] > 0.0:
            weight = records[j][SHARE] / num_agents
            heard += 1
            missing -= weight
            missing_squares -= weight * weight
            evidence += _add_site(records[j], weight, has_constant, scale, vectors, matrices)
    for a in range(size):
        pull[a][a] += missing
        spread[a][a] += max(missing_squares, 0.0) * prior_variance(scale, a, size, has_constant)
    return heard, evidence


def _add_site(
    record: Sequence[float], weight: float, has_constant: int, scale: float, vectors: Matrix, matrices: Sequence[Matrix]
) -> float:
    """Add w B e, S^-1 B e, S^-1 - S^-1 B S^-1, w^2 B and w B S^-1 of a site."""
    own, shrunk, work, inverse = vectors[_OWN], vectors[_SHRUNK], matrices[_WORK], matrices[_INVERSE]
    precision, spread, pull = matrices[_PRECISION], matrices[_SPREAD], matrices[_PULL]
    size, evidence = len(own), 0.0
    for a in range(size):
        for b in range(size):
            work[a][b] = record[VECTOR + size + a * size + b]
        variance = prior_variance(scale, a, size, has_constant)
        work[a][a] += 1.0 / variance
        evidence -= 0.5 * log(variance)
    evidence -= 0.5 * invert(work, inverse, size)
    for a in range(size):
        mean = 0.0
        for b in range(size):
            mean += inverse[a][b] * record[VECTOR + b]
        evidence += 0.5 * mean * record[VECTOR + a]
        diagonal = 1.0 / prior_variance(scale, a, size, has_constant)
        own[a] += weight * mean
        shrunk[a] += diagonal * mean
        precision[a][a] += diagonal
        for b in range(size):
            entry = inverse[a][b] / prior_variance(scale, b, size, has_constant)
            precision[a][b] -= diagonal * entry
            spread[a][b] += weight * weight * inverse[a][b]
            pull[a][b] += weight * entry
    return evidence


def _finish(
    has_constant: int, scale: float, vectors: Matrix, matrices: Sequence[Matrix], mean: Row, covariance: Matrix
) -> float:
    """Theta and its covariance from the sums over sites; returns the rest of the evidence's logarithm."""
    work, inverse, product, pull = matrices[_WORK], matrices[_INVERSE], matrices[_PRODUCT], matrices[_PULL]
    common, size, evidence = vectors[_MEAN], len(mean), 0.0
    for a in range(size):
        for b in range(size):
            work[a][b] = matrices[_PRECISION][a][b]
        variance = prior_variance(scale, a, size, has_constant)
        work[a][a] += 1.0 / variance
        evidence -= 0.5 * log(variance)
    evidence -= 0.5 * invert(work, inverse, size)
    along(inverse, vectors[_SHRUNK], common)
    for a in range(size):
        evidence += 0.5 * common[a] * vectors[_SHRUNK][a]
        for b in range(size):
            total = 0.0
            for c in range(size):
                total += pull[a][c] * inverse[c][b]
            product[a][b] = total
    for a in range(size):
        mean[a] = vectors[_OWN][a] + dot(pull[a], common)
        for b in range(a + 1):
            entry = matrices[_SPREAD][a][b] + dot(product[a], pull[b])
            covariance[a][b] = entry
            covariance[b][a] = entry
    return evidence


# ---------------------------------------------------------------- which scales


def choose_scales(evidence: Matrix, unknown: Sequence[int], weights: Row) -> None:
    """Fill in the posterior probabilities of the pairs of scales, from the evidence of all arms that are known."""
    most = -1e300
    for g in range(GRID):
        weights[g] = log(SITE_PRIOR[g // len(COMMON_SCALES)] * COMMON_PRIOR[g % len(COMMON_SCALES)])
        for k in range(len(unknown)):
            if unknown[k] == 0:
                weights[g] += evidence[k][g]
        most = max(most, weights[g])
    total = 0.0
    for g in range(GRID):
        weights[g] = exp(weights[g] - most)
        total += weights[g]
    for g in range(GRID):
        weights[g] /= total


def mix_scales(
    means: Matrix, covariances: Sequence[Matrix], weights: Sequence[float], mean: Row, covariance: Matrix
) -> None:
    """Fill in theta and its covariance over all pairs of scales."""
    size = len(mean)
    for a in range(size):
        mean[a] = 0.0
        for b in range(size):
            covariance[a][b] = 0.0
    for g in range(GRID):
        for a in range(size):
            mean[a] += weights[g] * means[g][a]
    for g in range(GRID):
        for a in range(size):
            apart = weights[g] * (means[g][a] - mean[a])
            for b in range(size):
                covariance[a][b] += weights[g] * covariances[g][a][b] + apart * (means[g][b] - mean[b])


def __dir__() -> list[str]:
    return __all__
