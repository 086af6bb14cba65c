"""Gossip of releases: agents pass on what each has published, and everybody computes the mean (beyond the paper).

An agent numbers its publications: its **version** is how many there have been, 0 before the first. Its **row** is all
that it publishes in the newest one. A board is what one agent holds: the newest row known to it of every agent, itself
among them. An exchange hands over rows that are newer at the other end. Taking over what is newer is idempotent,
commutative and associative, so repeated, late and crossing exchanges need no thought, and nobody's row is lost or
counted twice. The simulator and a board of live sites call the same functions, with agents in the same order: they
compute the same bits.
"""

from collections.abc import MutableSequence, Sequence

MEAN, VARIANCE, WEIGHT = range(3)
"""What stands where in a row of ``random_effects``."""

PRIOR_SITES = 3.0
"""What is known of the variance between sites before any is heard, in sites."""


def is_newer(offered: int, held: int) -> bool:
    """Whether a version is worth taking over."""
    return offered > held


def take_newer(
    versions: MutableSequence[int],
    rows: Sequence[MutableSequence[float]],
    offered_versions: Sequence[int],
    offered_rows: Sequence[Sequence[float]],
) -> bool:
    """Take over from another board the rows of all agents that are newer there; whether there were any."""
    has_changed = False
    for j in range(len(versions)):
        if is_newer(offered_versions[j], versions[j]):
            versions[j] = offered_versions[j]
            row, offered = rows[j], offered_rows[j]
            for c in range(len(row)):
                row[c] = offered[c]
            has_changed = True
    return has_changed


def mean_of_heard(
    rows: Sequence[Sequence[float]], versions: Sequence[int], shares: Sequence[float], seen: MutableSequence[float]
) -> None:
    """Fill in what a page sees of an arm: the sum of what all agents heard have published of it, over their shares.

    ``shares`` are N times the agents' weights in the average that counts: 1 where all count alike. So an agent that was
    not heard counts as the mean of those that were. Once all are heard it is their plain average, (1/N) sum_j row_j,
    the number that gossip of averages tends to. Agents are added up in their order.
    """
    for c in range(len(seen)):
        seen[c] = 0.0
    heard, total = 0, 0.0
    for j in range(len(versions)):
        if versions[j] > 0:
            heard += 1
            total += shares[j]
            row = rows[j]
            for c in range(len(seen)):
                seen[c] += row[c]
    if heard == len(versions):
        total = float(heard)  # whatever shares add up to after rounding
    if total > 0.0:
        for c in range(len(seen)):
            seen[c] /= total


# ---------------------------------------------------------------- how well the mean of those heard is known


def between_sites(sites: float, weights: float, squares: float, deviations: float, prior: float) -> float:
    """tau^2, the variance between sites of an arm's mean, by the method of moments (DerSimonian and Laird 1986).

    Site j has the weight a_j = prior / (prior + V_j) in it, V_j the variance of its own mean: ``weights`` and
    ``squares`` are the sums of a_j and a_j^2, ``deviations`` that of a_j (x_j - their weighted mean)^2. The expectation
    of the last is sum a_j V_j - sum a_j^2 V_j / sum a_j + tau^2 (sum a_j - sum a_j^2 / sum a_j), where a_j V_j is
    prior (1 - a_j). The ``prior``, (high - low)^2 / 12 of a mean anywhere in the range, counts as much as
    ``PRIOR_SITES`` sites: one or two sites tell next to nothing.
    """
    within = prior * (sites - weights - (weights - squares) / weights)
    independent = weights - squares / weights
    return max((PRIOR_SITES * prior + deviations - within) / (PRIOR_SITES + independent), 0.0)


def random_effects(
    rows: Sequence[Sequence[float]],
    versions: Sequence[int],
    total: float,
    squares: float,
    prior: float,
    at_mean: int = MEAN,
    at_variance: int = VARIANCE,
    at_weight: int = WEIGHT,
) -> tuple[float, float, float, float]:
    """The mean of an arm over all sites from what those heard have released of it, and its variance, in two parts.

    A row has a site's mean x_j, the variance V_j of it, 0 before its first release, and its weight w_j. ``total`` and
    ``squares`` are the sums of w_j and w_j^2 over all sites; with ``total`` 0, sites that were not heard, or have no
    weight yet, count as the mean of the others. With R the sites whose releases are known, W_R their weight and W that
    of all:

    * theta = sum_R w_j x_j / W_R
    * its variance from rewards and noise: sum_R w_j^2 V_j / W_R^2
    * from sites that are missing, whose means are taken to vary by tau^2 around a common one:
      tau^2 ((1 / W_R - 1 / W)^2 sum_R w_j^2 + sum over the others of w_j^2 / W^2), which is (N - c) tau^2 / (c N) where
      all count alike and c are known

    Returns theta, both parts, and W_R / N; zeros if nothing is known.
    """
    heard, heard_weight, heard_squares = 0, 0.0, 0.0
    known_weight, known_squares, value, spread = 0.0, 0.0, 0.0, 0.0
    sites, origin, a_sum, a_squares, a_first, a_second = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(versions)):
        if versions[j] == 0:
            continue
        row = rows[j]
        mean, variance, weight = row[at_mean], row[at_variance], row[at_weight]
        if weight <= 0.0:
            continue  # it has not measured its rate yet
        heard += 1
        heard_weight += weight
        heard_squares += weight * weight
        if variance <= 0.0:
            continue
        if sites == 0:
            origin = mean
        sites += 1
        known_weight += weight
        known_squares += weight * weight
        value += weight * mean
        spread += weight * weight * variance
        a = prior / (prior + variance)
        a_sum += a
        a_squares += a * a
        a_first += a * (mean - origin)
        a_second += a * (mean - origin) * (mean - origin)
    if sites == 0:
        return 0.0, 0.0, 0.0, 0.0
    if total <= 0.0:
        scale = len(versions) / heard
        total, squares = scale * heard_weight, scale * heard_squares
    missing = max(squares - known_squares, 0.0) / (total * total)
    apart = 1.0 / known_weight - 1.0 / total
    tau2 = between_sites(sites, a_sum, a_squares, max(a_second - a_first * a_first / a_sum, 0.0), prior)
    return (
        value / known_weight,
        spread / (known_weight * known_weight),
        tau2 * (apart * apart * known_squares + missing),
        known_weight / len(versions),
    )
