"""Attacks a mechanism and bounds its epsilon from below, with a stated confidence.

An attacker who sees one of two neighbouring worlds looks at an event S. If the mechanism is epsilon-private, P(S in
one) <= e^epsilon P(S in the other), so that log P(S in one) / P(S in the other) is at most epsilon, for every event.
The event is chosen on one half of the samples and its two probabilities are bounded on the other half (Clopper and
Pearson 1934), which makes the bound valid: it exceeds the real epsilon with a probability of at most 1 - confidence. A
bound above the claim refutes it; a bound below proves nothing, since another attack may do better.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, lgamma, log, log1p, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, number_between, whole_number

__all__ = [
    "FALSE_ALARM",
    "LARGEST_CLAIM",
    "MOST_SAMPLES",
    "SAMPLES",
    "AuditResult",
    "audit",
    "binomial_tail",
    "check_samples",
    "clopper_pearson",
    "fewest_samples",
    "lower_bound",
]

FALSE_ALARM = 1e-6
"""How often, at most, a true claim is refuted. A table has several rows, so 5 % would not do."""

SAMPLES = 4_000
"""Enough to see an epsilon of 1 to within a fifth where one release leaks it."""

MOST_SAMPLES = 10**8
LARGEST_CLAIM = 15.0  # an event of probability e^-15 is not seen in so many samples
CHUNKS = 50  # in which samples are asked for, so that progress shows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AuditResult:
    """What an attack has shown.

    * ``claimed``: the epsilon under attack
    * ``at_least``: a one-sided lower bound on the real epsilon, with this ``confidence``
    * ``samples``: runs of the mechanism in each of the two worlds
    * ``seconds``: of the processor
    """

    claimed: float
    at_least: float
    confidence: float
    samples: int
    seconds: float

    @property
    def refuted(self) -> bool:
        """Whether the bound exceeds the claim. True refutes the claim; False is inconclusive."""
        return self.at_least > self.claimed


def audit(
    sample: Callable[[int, int], Iterable[Any]],
    statistic: Callable[[Any], float | Sequence[float]] = float,
    *,
    claimed: float,
    samples: int = SAMPLES,
    false_alarm: float = FALSE_ALARM,
    seconds: float = inf,
    on_progress: Callable[[int, int], None] | None = None,
) -> AuditResult:
    """Attack a mechanism that claims to be epsilon-private, and bound its epsilon from below.

    * ``sample(which, count)`` runs it ``count`` times, each time afresh, in world 0 or 1 (two inputs that differ
      in one reward) and returns what an attacker sees of each run.
    * ``statistic(view)``: large in world 1, small in world 0; best is the logarithm of the likelihood ratio.
      Infinities are allowed, for what is impossible in one of the worlds. If it returns several numbers, the best
      one is found.
    * ``false_alarm``: how often, at most, a true claim is refuted; the bound has confidence 1 - ``false_alarm``.
    * ``seconds`` of the processor, after which no more samples are taken than can contradict the claim. The clock does
      not know what they show, so the bound stays valid.
    """
    number_between("claimed", claimed, 0.0, LARGEST_CLAIM)
    samples = whole_number("samples", samples, 2, MOST_SAMPLES)
    number_between("false_alarm", false_alarm, 0.0, 0.5)
    check_samples(samples, claimed, false_alarm)
    started, least = time.process_time(), fewest_samples(claimed, false_alarm)
    size = max(1, ceil(samples / CHUNKS))
    worlds: list[list[float | Sequence[float]]] = [[], []]
    for first in range(0, samples, size):
        if first >= least and time.process_time() - started > seconds:
            samples = first
            break
        count = min(size, samples - first)
        for which, values in enumerate(worlds):
            values.extend(statistic(view) for view in sample(which, count))
            if len(values) != first + count:
                raise InvalidArgument("sample", f"{len(values) - first} views", f"{count} views, as asked for")
        if on_progress is not None:
            on_progress(first + count, samples)
    world_0, world_1 = np.array(worlds[0], np.float64), np.array(worlds[1], np.float64)
    if np.isnan(world_0).any() or np.isnan(world_1).any():
        raise InvalidArgument("statistic", "nan", "a number for every view")
    return AuditResult(
        claimed=float(claimed),
        at_least=lower_bound(world_0, world_1, 1.0 - false_alarm),
        confidence=1.0 - false_alarm,
        samples=samples,
        seconds=time.process_time() - started,
    )


def lower_bound(world_0: Floats, world_1: Floats, confidence: float) -> float:
    """The epsilon that the statistics of two worlds show, with this confidence; 0 if they show none.

    A statistic for each sample, or a row of them: then an event is one of any of them.
    """
    rows_0, rows_1 = (world.reshape(len(world), -1) for world in (world_0, world_1))
    half_0, half_1 = len(rows_0) // 2, len(rows_1) // 2
    miss = (1.0 - confidence) / 2.0  # two probabilities, each of which may be missed
    found = (
        (*_best_event(rows_0[:half_0, column], rows_1[:half_1, column], miss), column)
        for column in range(rows_0.shape[1])
    )
    _, threshold, above, likely_in_1, column = max(found)
    rest = (rows_0[half_0:, column], rows_1[half_1:, column])
    hits = [int((world >= threshold).sum() if above else (world <= threshold).sum()) for world in rest]
    likely, rare = (1, 0) if likely_in_1 else (0, 1)
    least, _ = clopper_pearson(hits[likely], len(rest[likely]), miss)
    _, most = clopper_pearson(hits[rare], len(rest[rare]), miss)
    return max(0.0, log(least / most)) if least > 0.0 else 0.0


def _best_event(world_0: Floats, world_1: Floats, miss: float) -> tuple[float, float, bool, bool]:
    """A ratio, the threshold for it, whether the event lies above it, and whether it is the likelier one in world 1.

    Any choice is honest, since the other half of the samples judges it; this one takes the event whose
    bound, by Wilson's approximation, is the best on this half.
    """
    z = NormalDist().inv_cdf(1.0 - miss)
    sorted_0, sorted_1 = np.sort(world_0), np.sort(world_1)
    thresholds = np.unique(np.concatenate([sorted_0, sorted_1]))
    best = (-inf, 0.0, True, True)
    for above in (True, False):
        if above:
            hits_0 = len(sorted_0) - np.searchsorted(sorted_0, thresholds, "left")
            hits_1 = len(sorted_1) - np.searchsorted(sorted_1, thresholds, "left")
        else:
            hits_0 = np.searchsorted(sorted_0, thresholds, "right")
            hits_1 = np.searchsorted(sorted_1, thresholds, "right")
        for likely_in_1 in (True, False):
            likely, rare = (hits_1, hits_0) if likely_in_1 else (hits_0, hits_1)
            least = likely + z * z / 2.0 - z * np.sqrt(likely + z * z / 4.0)
            most = rare + z * z / 2.0 + z * np.sqrt(rare + z * z / 4.0)
            ratio = np.maximum(least, 1e-9) / most
            position = int(np.argmax(ratio))
            best = max(best, (float(ratio[position]), float(thresholds[position]), above, likely_in_1))
    return best


def fewest_samples(claimed: float, false_alarm: float = FALSE_ALARM) -> int:
    """How many samples an attack that always succeeds needs to contradict this claim."""
    miss = false_alarm / 2.0
    # All of n hits against none: the bounds are miss^(1/n) and 1 - miss^(1/n).
    return 2 * ceil(log(miss) / -log1p(exp(-claimed))) + 2


def check_samples(samples: int, claimed: float, false_alarm: float) -> None:
    """Refuse too few."""
    least = fewest_samples(claimed, false_alarm)
    if samples < least:
        raise InvalidArgument("samples", samples, f"at least {least}", f"Fewer cannot contradict epsilon {claimed:g}.")


def clopper_pearson(hits: int, trials: int, miss: float) -> tuple[float, float]:
    """The smallest and the largest probability that ``hits`` in ``trials`` leave, each wrong with at most ``miss``."""
    whole_number("hits", hits, 0, trials)
    least = 0.0 if hits == 0 else _quantile(hits, trials - hits + 1, miss)[0]
    most = 1.0 if hits == trials else 1.0 - _quantile(trials - hits, hits + 1, miss)[0]
    return least, most


def binomial_tail(hits: int, trials: int, share: float) -> float:
    """The probability of at least so many hits in so many trials."""
    return 1.0 if hits <= 0 else _beta_cdf(hits, trials - hits + 1, share)


def _quantile(a: int, b: int, share: float) -> tuple[float, float]:
    """Two neighbouring numbers between which the Beta(a, b) distribution reaches ``share``."""
    below, beyond = 0.0, 1.0
    for _ in range(200):
        middle = (below + beyond) / 2.0
        if not below < middle < beyond:
            break
        if _beta_cdf(a, b, middle) < share:
            below = middle
        else:
            beyond = middle
    return below, beyond


def _beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function by its continued fraction (Lentz's method)."""
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta_cdf(b, a, 1.0 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0) or tiny)
    value = d
    for m in range(1, 200 + int(10.0 * sqrt(a + b))):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / (1.0 + term * d or tiny)
            c = 1.0 + term / c or tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return min(1.0, front * value)


def __dir__() -> list[str]:
    return __all__
