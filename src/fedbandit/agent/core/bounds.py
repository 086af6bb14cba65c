"""Bounds on what an honest neighbour can send: the size of its numbers, how far ahead its epochs may be.

Each bound states its reason. A message beyond them is refused, whoever sent it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbandit.agent.core.messages import MAX_N, Message, Offer
from fedbandit.checks import InvalidArgument

if TYPE_CHECKING:
    from fedbandit.agent.core.federation import Federation

__all__ = ["CENTURY", "HELD", "LARGEST_RATE", "SAFETY", "SCALES", "Bounds"]

SCALES = 100.0
"""A Laplace draw exceeds this many scales with probability e^-100."""

SAFETY = 16.0
"""While links agree, gossiped values lie between the sites' own values, and a flow is at most N times the largest.
After faults links disagree for a while: a lost disk forgets what balanced a large flow. No schedule of faults has come
near this factor (docs/agent.md)."""

HELD = 0.25
"""An exchange may bring a site to at most this share of the bounds. The rest is room for means that move and links that
are dropped before the next exchange."""

LARGEST_RATE = 100.0
"""The most decisions per second by which a site counts where patients count; one that is faster counts as this fast."""

CENTURY = 36525 * 24 * 3600 * 1000
"""100 years in milliseconds, the unit of epochs."""


@dataclass(frozen=True)
class Bounds:
    """The largest size of a gossiped or flowing value and weight, the most decisions for an arm; how many there are."""

    value: float
    weight: float
    n_max: int
    num_arms: int
    num_counts: int

    @classmethod
    def of(cls, terms: "Federation") -> "Bounds":
        """What the terms allow."""
        most = SAFETY * terms.num_agents * (LARGEST_RATE if terms.counted == "patients" else 1.0)
        return cls(
            value=most * _largest_own(terms),
            weight=most,
            n_max=MAX_N if terms.max_pulls is None else terms.max_pulls,
            num_arms=terms.num_arms,
            num_counts=terms.num_arms if terms.catches_up else 0,
        )

    def check(self, message: Message, born: int, epoch: int) -> None:
        """Refuse what no honest neighbour says to a site that was ``born`` at one epoch and is now in another."""
        self._check_row("flow", message.flow)
        if isinstance(message, Offer):
            self._check_row("gossiped", message.gossiped)
        if len(message.n_max) != self.num_counts:
            raise InvalidArgument("n_max", f"{len(message.n_max)} counts", f"{self.num_counts} counts")
        for k, n in enumerate(message.n_max):
            if n > self.n_max:
                raise InvalidArgument(f"n_max[{k}]", n, f"at most {self.n_max}")
        # An epoch is the time at which a file was made, or one more than a neighbour knew. A clock may stand at 1970,
        # and then all others are half a century ahead. ``to_epoch`` can move this site's epoch, which its other
        # neighbours must then believe: so they believe twice as much, whenever they were born themselves.
        _check_epoch("to_epoch", message.to_epoch, max(born + CENTURY, epoch))
        _check_epoch("epoch", message.epoch, born + 2 * CENTURY)

    def check_held(self, flow: tuple[float, ...], gossiped: tuple[float, ...]) -> None:
        """Refuse an exchange after which this site would come near to what its neighbours no longer accept.

        So neighbours that lie within the bounds cannot make this site one whom the others refuse.
        """
        self._check_row("flow", flow, HELD)
        self._check_row("gossiped", gossiped, HELD)

    def _check_row(self, name: str, row: tuple[float, ...], share: float = 1.0) -> None:
        if len(row) != 2 * self.num_arms:
            raise InvalidArgument(name, f"{len(row)} columns", f"{2 * self.num_arms} columns")
        values, weights = row[: self.num_arms], row[self.num_arms :]
        for first, half, largest in ((0, values, self.value), (self.num_arms, weights, self.weight)):
            most = share * largest
            if max(half) > most or min(half) < -most:
                c, x = next((c, x) for c, x in enumerate(half, first) if abs(x) > most)
                raise InvalidArgument(f"{name}[{c}]", x, f"at most {most:g} in size, as the range and its noise allow")


def _check_epoch(name: str, epoch: int, most: int) -> None:
    if epoch > most:
        raise InvalidArgument(name, epoch, f"at most {most}: no clock is so far ahead")


def _largest_own(terms: "Federation") -> float:
    """The largest size of a site's own mean of an arm: an end of the range, and the noise of the smallest release.

    FedBatch: a weighted mean of releases, none of fewer rewards than the first. FedUCB: a sum of at most n draws,
    divided by n.
    """
    return max(abs(terms.low), abs(terms.high)) + SCALES * terms.noise_scale / terms.first_batch
