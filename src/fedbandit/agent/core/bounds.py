"""Bounds on what a neighbour can do to this site: the size of its flow, its counts, how far ahead its epochs are.

Each bound states its reason. A flow is clamped, not refused: one neighbour never uses up another's room, and no honest
link gets stuck.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbandit.agent.core.messages import MAX_N, Message
from fedbandit.checks import InvalidArgument
from fedbandit.rules.flow import Limits, largest_cut, largest_noise

if TYPE_CHECKING:
    from fedbandit.agent.core.federation import Federation

__all__ = ["CENTURY", "DAY", "LARGEST_RATE", "MARGIN", "QUANTILE", "SCALES", "Bounds"]

SCALES = 100.0
"""A Laplace draw exceeds this many scales with probability e^-100."""

QUANTILE = 14.0
"""Noise makes a link carry more than is allowed for with probability 2 e^-14. It would be clamped for a while, and
there is a margin."""

MARGIN = 1.5
"""Times the largest imbalance of a cut, which a link carries at most while all agree. After faults links disagree for a
while: a lost disk forgets what balanced a flow. No schedule of faults has come beyond 0.77 of the bounds
(docs/agent.md)."""

DAY = 24 * 3600.0

LARGEST_RATE = 100.0
"""The most decisions per second by which a site counts, if the terms say nothing; one that is faster counts as this
fast."""

CENTURY = 36525 * 24 * 3600 * 1000
"""100 years in milliseconds, the unit of epochs."""


@dataclass(frozen=True)
class Bounds:
    """What a link may carry, and what one site can own.

    * ``limits``: of a link's flow, with as many sites as may take part
    * ``weight``: the largest weight of one site; ``rate``: the most decisions per second
    * ``noise``: the scale of the noise of a mean, in ranges; ``width``: of the range
    * ``n_max``: the most decisions for an arm; ``has_counts``: whether messages tell them
    """

    limits: Limits
    weight: float
    rate: float
    noise: float
    width: float
    n_max: int
    has_counts: bool

    @classmethod
    def of(cls, terms: "Federation") -> "Bounds":
        """What the terms allow.

        The noise of a mean is at most that of the smallest release. FedBatch: a weighted mean of releases, none of
        fewer rewards than the first. FedUCB: a sum of at most n draws, divided by n.
        """
        rate, width = terms.largest_rate, terms.high - terms.low
        weight = rate if terms.counted == "patients" else 1.0
        noise = terms.noise_scale / terms.first_batch / width
        return cls(
            limits=_limits(terms.low, width, weight, noise, terms.most_agents, MARGIN),
            weight=weight,
            rate=rate,
            noise=noise,
            width=width,
            n_max=MAX_N if terms.max_pulls is None else terms.max_pulls,
            has_counts=terms.catches_up,
        )

    @property
    def largest(self) -> float:
        """The largest value that a link carries, in units of the reward."""
        return abs(self.limits.low) * self.limits.weight + self.limits.span

    def usual(self, num_agents: int) -> Limits:
        """What a link carries at most while so many sites agree: without the margin."""
        return _limits(self.limits.low, self.width, self.weight, self.noise, num_agents, 1.0)

    def most_decisions(self, elapsed: float) -> int:
        """The most decisions for an arm that a site can have had in so many seconds; a day at least."""
        return min(int(self.rate * max(elapsed, DAY)), self.n_max)

    def check(self, message: Message, born: int, epoch: int) -> None:
        """Refuse what no honest neighbour says to a site that was ``born`` at one epoch and is now in another.

        The lengths of rows are ``aligned_rows``'.
        """
        if bool(message.n_max) != self.has_counts:
            accepted = "one for each arm" if self.has_counts else "none: this policy has no counts"
            raise InvalidArgument("n_max", f"{len(message.n_max)} counts", accepted)
        for k, n in enumerate(message.n_max):
            if n > self.n_max:
                raise InvalidArgument(f"n_max[{k}]", n, f"at most {self.n_max}")
        # An epoch is the time at which a file was made, or one more than a neighbour knew. A clock may stand at 1970,
        # and then all others are half a century ahead. ``to_epoch`` can move the life of this end of the link, which
        # the other end must then believe: so it believes twice as much, whenever it was born itself.
        _check_epoch("to_epoch", message.to_epoch, max(born + CENTURY, epoch))
        _check_epoch("epoch", message.epoch, born + 2 * CENTURY)


def _limits(low: float, width: float, weight: float, noise: float, num_agents: int, margin: float) -> Limits:
    cut, noisy = largest_cut(num_agents), largest_noise(noise, num_agents, QUANTILE)
    return Limits(low, weight * width * (margin * cut + noisy), weight * margin * cut)


def _check_epoch(name: str, epoch: int, most: int) -> None:
    if epoch > most:
        raise InvalidArgument(name, epoch, f"at most {most}: no clock is so far ahead")
