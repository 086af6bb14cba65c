"""The proved radius: a bound on the error of a mean of releases that holds on every board (beyond the paper).

An agent holds the newest release of every agent that it has heard: for an arm, agent j's mean of its first e_j
releases. Which numbers e = (e_1, ..., e_N) it holds depends on everything: on links, losses and delays, and on what
everybody chose because of earlier rewards. For one *fixed* e, theta is a sum of independent rewards and Laplace draws
with known weights, and Chernoff's bound gives a radius. A union bound over all e, each with a price of its own, makes
it hold for whatever board arises. docs/theorem.md has the statement, the proof, and what follows for the regret.

A row is what one agent publishes of an arm: N s_j x_j, N s_j, e_j, and its part of the two variances and of the largest
coefficient; s_j is its weight in the average that counts. A row of zeros was not heard.
"""

from collections.abc import Sequence
from math import ceil, inf, lgamma, log, sqrt

from fedbandit.rules.batch import LEAST_FIRST_BATCH, MAX_BATCH, batch_size

VALUE, SHARE, RELEASES, VARIANCE, NOISE, LARGEST = range(6)
"""What stands where in a row; ``seen_from_rows`` says what becomes of it."""


GROWTH = 2.0
"""The default factor by which a batch increases the number of released rewards: fewer releases, fewer vectors."""


LEAST_GROWTH = 1.05
"""With slower growth there are too many numbers of releases to pay for."""

MOST_PULLS = 10**9 + 1
"""Of an arm by one agent, in the longest run: one at t = 0, and one in each round."""


def first_size(expected_decisions: int | None, epsilon: float, num_arms: int) -> int:
    """The first batch, 24 + 24 / epsilon: an earlier release is too wide to tell arms apart.

    Or T / (4 M) if that is smaller, as in ``batch.first_size``, where so few decisions are expected.

    Of 12, 24, 32, 48, 64 and 96 the best for ten agents and epsilon 1 was 64, with 48 within a standard error; 48 was
    the best of 24, 48 and 96 for epsilon 3, and 96 of 48, 96, 160 and 320 for epsilon 0.3.
    """
    size = min(ceil(24.0 + 24.0 / epsilon), MAX_BATCH)
    if expected_decisions is None:
        return size
    return ceil(min(size, max(expected_decisions / (4.0 * num_arms), LEAST_FIRST_BATCH)))


def most_releases(first_batch: int, growth: float, pulls: int) -> int:
    """E: the most releases of an arm that so many pulls can fill, from the schedule of batches alone."""
    n, releases = 0, 0
    while True:
        n += batch_size(n, first_batch, growth)
        if n > pulls:
            return releases
        releases += 1


def released_after(releases: int, first_batch: int, growth: float) -> int:
    """b_e: the rewards in the first e releases."""
    n = 0
    for _ in range(releases):
        n += batch_size(n, first_batch, growth)
    return n


def noise_of_mean(precision: float, square: float, reward_variance: float) -> float:
    """The noise's part of the variance 1/P of a mean of releases: 1/P less s^2 sum(1/(v^2 m)) / P^2."""
    return max(1.0 / precision - reward_variance * square / (precision * precision), 0.0)


def largest_coefficient(noise_scale: float, weight: float, size: int) -> float:
    """The coefficient of the newest standard Laplace draw in the mean, the largest of all: batches never shrink.

    The weight of a release over its size is proportional to 1 / (v m) = 1 / (s^2 + 2 (high - low)^2 / (eps^2 m)), which
    grows with m.
    """
    return noise_scale * weight / size


def log_choose(n: float, k: float) -> float:
    """The logarithm of the number of ways to choose k of n."""
    return lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0)


def price_of_total(total: float) -> float:
    """log((D + 1) (D + 2)): the price of a whole number D >= 0. 1 / ((D + 1) (D + 2)) sums to 1."""
    return log((total + 1.0) * (total + 2.0))


def price(num_agents: int, heard: int, lowest: float, total: float, most: float) -> float:
    """log(1 / pi(e)): what a vector of numbers of releases costs in the union bound; sum over e of pi(e) is at most 1.

    ``heard`` agents have a release of the arm, the fewest of them ``lowest``, all together ``total``; ``most`` is E.
    Half of the prior pi is flat: (E + 1)^-N. The other half expects agents that differ little: how many were not
    heard, and which; the lowest number, one of E; by how many releases D all together are above it; and which of the
    C(h - 1 + D, D) vectors with that sum it is (h heard).
    """
    if heard == 0:
        return 0.0
    flat = num_agents * log(most + 1.0)
    unheard, above = num_agents - heard, total - heard * lowest
    alike = price_of_total(unheard) + log_choose(num_agents, unheard) + log(most)
    alike += price_of_total(above) + log_choose(heard - 1.0 + above, above)
    return log(2.0) + min(flat, alike)


def seen_from_rows(
    rows: Sequence[Sequence[float]], low: float, high: float, most: float
) -> tuple[float, float, float, float, float, float]:
    """What an agent sees of an arm: theta, what is missing, the variance, the noise's part, the largest, the price.

    The mean of an agent that was not heard lies anywhere in the range: it counts as the middle, and half of the width,
    times the weights of all that were not heard, is missing. With nobody heard all else is 0.
    """
    num_agents = max(len(rows), 1)  # a site whose board is empty is not heard itself
    heard, lowest, releases = 0, inf, 0.0
    value, share, variance, noise, largest = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(rows)):
        row = rows[j]
        if row[RELEASES] > 0.0:
            heard += 1
            releases += row[RELEASES]
            lowest = min(lowest, row[RELEASES])
            value += row[VALUE]
            share += row[SHARE]
            variance += row[VARIANCE]
            noise += row[NOISE]
            largest = max(largest, row[LARGEST])
    unheard = (num_agents - share) / num_agents if heard < num_agents else 0.0
    squared = float(num_agents) * num_agents
    return (
        value / num_agents + unheard * (low + high) / 2.0,
        unheard * (high - low) / 2.0,
        variance / squared,
        noise / squared,
        largest / num_agents,
        price(num_agents, heard, lowest, releases, most),
    )


def board_radius(missing: float, variance: float, noise: float, largest: float, level: float) -> float:
    """How far theta of a board may be off: what is missing, and the proved radius of what is there."""
    return missing + (proved_radius(variance, noise, largest, level) if variance > 0.0 else 0.0)


def simple_radius(variance: float, largest: float, level: float) -> float:
    """sqrt(2 v L + 4 b^2 L^2): never below ``proved_radius``, and growing in all three, as the regret bound needs."""
    return sqrt(2.0 * variance * level + (2.0 * largest * level) ** 2)


def best_tilt(variance: float, largest: float, level: float) -> float:
    """The z of Chernoff's bound: (v / 2L + b^2)^-1/2, below 1/b. Any z may stand here; this one is nearly the best."""
    return 1.0 / sqrt(variance / (2.0 * level) + largest * largest)


def proved_radius(variance: float, noise: float, largest: float, level: float) -> float:
    """(L + psi(z)) / z: theta is off by more with probability at most e^-L, in each direction.

    psi(z) = v_R z^2 / 2 + (v_N z^2 / 2) (1 - y / 2) / (1 - y), y = (b z)^2, bounds the logarithm of the moment
    generating function. With z from ``best_tilt`` 1 - y is v z^2 / 2L, and with rho = v_N / 2v the sum is
    (1 + rho) L / z + (1 - rho) v z / 2. Without noise that is sqrt(2 v L), Hoeffding's radius.
    """
    tilt = best_tilt(variance, largest, level)
    rho = noise / (2.0 * variance)
    return (1.0 + rho) * level / tilt + (1.0 - rho) * variance * tilt / 2.0
