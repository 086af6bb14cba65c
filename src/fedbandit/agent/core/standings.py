"""How much every site has released, as far as has been heard: so that each can name the one that the others wait for.

A site states its own standing, with a version; neighbours pass the newest of each site on. Nothing is decided by it: a
neighbour that lies about standings can only mislead an operator. They are in memory alone: after a restart they are
heard again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from fedbandit.checks import LARGEST, InvalidArgument, finite_number, instance, whole_number
from fedbandit.rules.batch import PRIOR_REWARDS, scheduled_variance

__all__ = ["MAX_N", "Holdout", "Standing", "Standings", "holdout"]

MAX_N = 10**12
"""The most decisions for an arm."""

MAX_EPOCH = 2**62

MAX_NAME = 64

ENOUGH = 10**5
"""Released rewards beyond which the variance of a mean is taken to fall with their number: nobody can make it take
long to work out."""

MOST_NUMBERS = 20_000
"""The most counts in one message: about 60,000 bytes. Larger federations tell their standings in turn."""

SETTLED = 2.0
"""Standard deviations by which the best arm must lead for the question to be settled."""


@dataclass(frozen=True)
class Standing:
    """What one site has released of each arm, in rewards, and its weight.

    ``epoch`` is its life, ``version`` counts its releases in that life.
    """

    site: str
    epoch: int
    version: int
    weight: float
    released: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse what no honest site states."""
        instance("standing.site", self.site, str, "text")
        if not 0 < len(self.site) <= MAX_NAME or not self.site.isprintable():
            raise InvalidArgument("standing.site", self.site, f"a name of at most {MAX_NAME} characters")
        whole_number("standing.epoch", self.epoch, 1, MAX_EPOCH)
        whole_number("standing.version", self.version, 0, MAX_N)
        if not 0.0 <= finite_number("standing.weight", self.weight) <= LARGEST:
            raise InvalidArgument("standing.weight", self.weight, f"0 to {LARGEST:g}")
        for k, n in enumerate(self.released):
            if type(n) is not int or not 0 <= n <= MAX_N:  # hardly ever: no name is made for nothing
                whole_number(f"standing.released[{k}]", n, 0, MAX_N)


class Standings:
    """The newest standing of each other site that was heard of; at most as many as the federation has sites."""

    def __init__(self, own_name: str, num_agents: int, num_arms: int) -> None:
        """Nothing heard yet."""
        self._own, self._most, self._num_arms = own_name, num_agents, num_arms
        self._heard: dict[str, Standing] = {}
        self._told = 0

    def hear(self, teller: str, standings: Iterable[Standing]) -> None:
        """Take in what is newer. Nobody tells this site its own standing, or of more sites than there are.

        Where there is no room, the teller itself takes that of a site that weighs nothing.
        """
        for it in standings:
            if it.site == self._own or len(it.released) != self._num_arms:
                continue
            known = self._heard.get(it.site)
            is_newer = known is not None and (it.epoch, it.version) > (known.epoch, known.version)
            if known is None and len(self._heard) >= self._most - 1 and it.site == teller:
                self._heard.pop(next((name for name, old in self._heard.items() if old.weight == 0.0), ""), None)
            if is_newer or (known is None and len(self._heard) < self._most - 1):
                self._heard[it.site] = it

    def forget(self, site: str) -> None:
        """A site has left: it weighs nothing, and that is news to others. If it speaks again, its own word is newer."""
        if (known := self._heard.get(site)) is not None:
            self._heard[site] = replace(known, version=known.version + 1, weight=0.0)

    def tell(self, own: Standing) -> tuple[Standing, ...]:
        """The own standing, and others': all of them, or so many that the message stays short, in turn."""
        others = list(self._heard.values())
        room = max(1, MOST_NUMBERS // self._num_arms)
        first = self._told % len(others) if len(others) > room else 0
        self._told += room
        return own, *islice((*others[first:], *others[:first]), room)

    def all(self, own: Standing) -> list[Standing]:
        """The own standing and all others'."""
        return [own, *self._heard.values()]


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
    parts = [[(it.weight / weight) ** 2 * _variance(it.released[k], terms) for k in (best, other)] for it in standings]
    total = sum(map(sum, parts))
    for it, (of_best, of_other) in zip(standings, parts, strict=True):
        rest = max(total - of_best - of_other, 0.0)
        if 0.0 < SETTLED**2 * rest <= lead**2 < SETTLED**2 * total:
            yield (of_best + of_other) / total, it, best if of_best >= of_other else other


def _variance(released: int, terms: Any) -> float:
    """Of a site's own mean after so many rewards, in the units of the page."""
    if released == 0:
        return terms.most_variance / PRIOR_REWARDS
    few = min(released, ENOUGH)
    variance = _of_schedule(few, terms.first_batch, terms.growth, terms.most_variance, terms.noise_variance)
    return variance * few / released


_of_schedule = lru_cache(maxsize=10_000)(scheduled_variance)
