"""Tests the noise that a live site adds: its grid, scale and tails, and that its draws are independent.

The proof needs fresh, independent draws of discrete Laplace noise, at least as wide as is claimed. ``noise_of`` reads
one draw from each release of many runs: the noisy sum less the rewards that the audit gave. ``judge_noise`` tests the
draws. If the claim is true, each p-value is exact or bounded from above; the smallest one times the number of tests
(Bonferroni) is below any level with at most the probability of that level.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import exp, inf, lgamma, log, log1p, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.agent.core.decisions import Request
from fedbandit.agent.core.federation import Federation
from fedbandit.audit.attacks import in_turn
from fedbandit.audit.executor import OpenSite, Run, Sent
from fedbandit.audit.measure import binomial_tail
from fedbandit.audit.scripts import Restart, Script, once
from fedbandit.policies import FedBatch
from fedbandit.privacy.noise import GRID, NoiseSource, to_grid

Draws = NDArray[np.float64]

OFF_GRID = 1e-3
"""Sums that are read are exact to about 1e-9 steps; of numbers off the grid, one in 500 lies this close to it."""

TAILS = (1.0, 2.0, 3.0, 4.0, 5.0)  # scales
SMALL = 1.0 / 64.0  # of a scale


# ---------------------------------------------------------------- the noise of a site's releases


VALUES = [number * 0.381966 % 1.0 for number in range(1, 17)]
"""The rewards of such a run: no two alike."""


def with_real_noise(epsilon: float) -> Script:
    """Four releases of each of two arms, by turns, and a restart in the middle: short, to be played often."""
    terms = Federation("audit", ("a", "b"), 0.0, 1.0, FedBatch(epsilon, first_batch=2), counts="sites", max_agents=2)
    requests = [Request((number % 2,)) for number in range(len(VALUES))]
    return in_turn(terms, [once(value) for value in VALUES], (), [Restart(9.5, is_vouched=True)], requests=requests)


def noise_of(opened: OpenSite, source: NoiseSource, epsilon: float, runs: int) -> Draws:
    """The noise of each release of so many runs: a row for each run."""
    script = with_real_noise(epsilon)
    terms = script.terms
    most, size = len(VALUES) // terms.num_arms, terms.first_batch
    sums: list[list[int]] = []
    for arm in range(terms.num_arms):
        values = VALUES[arm :: terms.num_arms]
        steps = [to_grid(value, terms.low, terms.high) for value in values]
        sums.append([sum(steps[first : first + size]) for first in range(0, most, size)])
    rows: list[list[float]] = []
    for _ in range(runs):
        run = Run(script, opened, source, looks=False)
        run.play()
        row: list[float] = []
        for arm, expected in enumerate(sums):
            noisy = noisy_sums(terms, _means_after_batches(terms, run.sent, arm, most), most)
            row += [there - here for there, here in zip(noisy, expected, strict=True)]
        rows.append(row)
    return np.array(rows)


def noisy_sums(terms: Federation, means: Sequence[float], most: int) -> list[float]:
    """The noisy sum of each batch in steps of the grid, from the mean of all releases after each batch."""
    sums: list[float] = []
    before = 0.0
    for batch, mean in zip(_batches_of(terms, most), means, strict=False):
        sums.append((before + (mean - before) / batch.weight) * (batch.last - batch.first + 1))
        before = mean
    return sums


def _means_after_batches(terms: Federation, view: Sequence[Sent], arm: int, most: int) -> list[float]:
    """The mean after each batch, from the first bulletin that has it."""
    entries = [it.bulletin.by_arm[terms.arms[arm]] for it in view]
    means = {it.rewards: it.row[0] for it in reversed(entries)}
    return [means.get(batch.last, nan) for batch in _batches_of(terms, most)]


class _Batch(NamedTuple):
    """A batch as the policy defines it: its pulls, and the weight of its release in the mean of all so far."""

    first: int
    last: int
    weight: float


@lru_cache(maxsize=64)
def _batches_of(terms: Federation, most: int) -> tuple[_Batch, ...]:
    """The batches of the first so many rewards of an arm: sizes and weights do not depend on rewards."""
    mechanism = terms.mechanism(lambda _, count: [0] * count)
    found: list[_Batch] = []
    before = 0.0
    for _ in range(most):
        interval = mechanism.take(0, terms.low)
        if interval is not None:
            precision = mechanism.me.precision[0]
            found.append(_Batch(interval.first, interval.last, (precision - before) / precision))
            before = precision
    return tuple(found)


# ---------------------------------------------------------------- the tests


class NoiseVerdict(NamedTuple):
    """The probability, at most, that noise as claimed looks this bad, and what looks bad."""

    p_value: float
    flaw: str


def judge_noise(draws: Draws, epsilon: float) -> NoiseVerdict:
    """Judge draws: a row for each run, a column for each of its releases."""
    if not np.isfinite(draws).all():
        return NoiseVerdict(0.0, "a release is missing")
    off = int((np.abs(draws - np.round(draws)) > OFF_GRID).sum())
    if off:
        return NoiseVerdict(0.0, f"{off} of {draws.size} noisy sums lie off the grid")
    tests = list(_tests(np.round(draws), epsilon))
    smallest, flaw = min(tests)
    return NoiseVerdict(min(1.0, smallest * len(tests)), flaw)


def _tests(draws: Draws, epsilon: float) -> Iterator[tuple[float, str]]:
    runs, releases = draws.shape
    law = _Law(epsilon / GRID)
    sizes, scale = np.abs(draws), GRID / epsilon
    yield law.p_of_small_sum(float(sizes.sum()), draws.size), "noise is too small"
    for number in range(releases):
        yield law.p_of_small_sum(float(sizes[:, number].sum()), runs), f"noise of release {number + 1} is too small"
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
    yield law.p_of_repeats(draws), "draws repeat"
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

    def p_of_small_sum(self, total: float, count: int) -> float:
        """A bound on P(the sizes of so many draws sum to so little): Chernoff's, at several tilts.

        It grows with the sum, so that it is below p with a probability of at most p.
        """
        least = 0.0
        for tilt in (0.05 * number for number in range(1, 200)):
            s = tilt * self.rate
            smaller = self._q * exp(-s)
            visible = log(self._zero) + log1p(smaller) - log1p(-smaller)  # log E exp(-s |z|)
            least = min(least, s * total + count * visible)
        return exp(least)

    def p_of_repeats(self, draws: Draws) -> float:
        """A bound on P(some number is drawn m times): C(n, m) P(0)^(m - 1), a union over all sets of m draws."""
        count, most = draws.size, max(Counter(draws.ravel().tolist()).values())
        if most < 2:
            return 1.0
        sets = lgamma(count + 1) - lgamma(most + 1) - lgamma(count - most + 1)
        return exp(min(0.0, sets + (most - 1) * log(self._zero))) if self._zero < 1.0 else inf
