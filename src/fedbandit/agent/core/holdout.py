"""Finds the site whose few releases alone leave open which arm is best."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedbandit.agent.core.standings import Standing
from fedbandit.agent.core.unequal_sites import variance_of_own_mean

__all__ = ["Holdout", "holdout"]

SETTLED = 2.0
"""Standard deviations by which the best arm must lead for the question to be settled."""


@dataclass(frozen=True)
class Holdout:
    """A site without whose uncertainty the question between two arms would be settled."""

    site: str
    arm: int
    released: int


def holdout(standings: Sequence[Standing], theta: Sequence[float | None], terms: Any) -> Holdout | None:
    """The site that alone leaves the answer open, if there is one: ``terms`` are those of the page, like ``theta``.

    With all sites' variances the best arm leads by less than two standard deviations, without this site's by more.
    """
    known = [k for k, estimate in enumerate(theta) if estimate is not None]
    weight = sum(it.weight for it in standings)
    if len(known) < 2 or len(standings) < 2 or weight <= 0.0:
        return None
    best = max(known, key=lambda k: theta[k] or 0.0)
    found = [
        (part, Holdout(it.site, arm, it.released[arm]))
        for other in known
        if other != best
        for part, it, arm in _alone(standings, weight, best, other, (theta[best] or 0.0) - (theta[other] or 0.0), terms)
    ]
    return max(found, key=lambda entry: entry[0])[1] if found else None


def _alone(
    standings: Sequence[Standing], weight: float, best: int, other: int, lead: float, terms: Any
) -> Iterator[tuple[float, Standing, int]]:
    """Sites whose part of the variance of the lead keeps it open, with the arm of which they know less."""
    parts = [
        [(it.weight / weight) ** 2 * variance_of_own_mean(it.released[k], terms) for k in (best, other)]
        for it in standings
    ]
    total = sum(map(sum, parts))
    for it, (of_best, of_other) in zip(standings, parts, strict=True):
        rest = max(total - of_best - of_other, 0.0)
        if 0.0 < SETTLED**2 * rest <= lead**2 < SETTLED**2 * total:
            yield (of_best + of_other) / total, it, best if of_best >= of_other else other
