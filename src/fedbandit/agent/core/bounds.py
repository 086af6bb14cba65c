"""Bounds on what a neighbour can do to this site, and a watch on what its link carries.

Each bound states its reason. A flow is clamped, not refused: one neighbour never uses up another's share, and no honest
link gets stuck. The watch says which neighbour has brought what cannot be; it decides nothing, and is in memory alone:
after a restart it sees the same again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbandit.agent.core.messages import MAX_N, Message
from fedbandit.agent.core.standings import MIXED, Standings
from fedbandit.checks import InvalidArgument
from fedbandit.rules.flow import Limits, above_low, largest_cut, largest_noise, noise_of_gossiped
from fedbandit.rules.gossip import drift, unrest

if TYPE_CHECKING:
    from fedbandit.agent.core.federation import Federation


__all__ = [
    "CENTURY",
    "DAY",
    "JUMP",
    "LARGEST_RATE",
    "MARGIN",
    "PATIENCE",
    "QUANTILE",
    "SAID",
    "SCALES",
    "Bounds",
    "Carried",
    "CarriedOfArm",
    "LinkWatch",
]


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
"""100 years in milliseconds, the unit of incarnations."""


@dataclass(frozen=True)
class Bounds:
    """What a link may carry, and what one site can own.

    * ``limits``: of a link's flow, with as many sites as may take part
    * ``weight``: the largest weight of one site; ``rate``: the most decisions per second
    * ``noise``: the scale of the noise of a mean, in ranges; ``width``: of the range
    * ``n_max``: the most decisions for an arm
    """

    limits: Limits
    weight: float
    rate: float
    noise: float
    width: float
    n_max: int

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

    def check(self, message: Message, born: int, incarnation: int) -> None:
        """Refuse what no honest neighbour says to a site that was ``born`` at one incarnation and is now in another.

        The lengths of rows are ``messages.check_lengths``'s.
        """
        # An incarnation is the time at which a file was made, or one more than a neighbour knew. A clock may stand at
        # 1970, and then all others are half a century ahead. ``to_incarnation`` can move that of this end of the link,
        # which the other end must then believe: so it believes twice as much, whenever its own file was made.
        _check_incarnation("to_incarnation", message.to_incarnation, max(born + CENTURY, incarnation))
        _check_incarnation("incarnation", message.incarnation, born + 2 * CENTURY)


def _limits(low: float, width: float, weight: float, noise: float, num_agents: int, margin: float) -> Limits:
    cut, noisy = largest_cut(num_agents), largest_noise(noise, num_agents, QUANTILE)
    return Limits(low, weight * width * (margin * cut + noisy), weight * margin * cut)


def _check_incarnation(name: str, incarnation: int, most: int) -> None:
    if incarnation > most:
        raise InvalidArgument(name, incarnation, f"at most {most}: no clock is so far ahead")


# ---------------------------------------------------------------- the watch


PATIENCE = 30
"""Exchanges of this site, times N, for which something must last while the network is not parted: after a fault numbers
are odd for a while."""

JUMP = 0.05
"""The share of its weight by which an exchange may move what a site gossips of an arm, when nothing was released."""

SAID = 100
"""Exchanges of this site, times N, for which a jump is said."""

NOT_WHOLE = 0.25
"""What an exchange counts while somebody has not renewed its standing: nobody can silence others by not doing so."""

LEAST = 1e-9
"""The share of the largest weight below which a move is rounding."""


@dataclass(frozen=True)
class CarriedOfArm:
    """What a link carries of an arm.

    * ``value``: in ranges above the lowest reward; ``weight``: in sites, or decisions per second
    * ``share``: the larger share of what a link may carry of both
    """

    value: float
    weight: float
    share: float


@dataclass(frozen=True)
class Carried:
    """What a link carries of each arm, and how it moved.

    * ``moved``: the share of its limits that the last exchange moved, at most over arms
    * ``moves``: the root mean square of that over about the last 20 exchanges
    """

    arms: tuple[CarriedOfArm, ...]
    moved: float
    moves: float


@dataclass(slots=True)
class _Seen:
    """What was seen of one neighbour."""

    moved: float = 0.0
    mean_square: float = 0.0
    heavy: float = 0.0  # exchanges in a row after which its link carried more than usual
    jump: tuple[int, float] | None = None  # the arm, and by how many ranges
    since_jump: int = 0  # exchanges of this site


class LinkWatch:
    """What is seen of each link of one site."""

    def __init__(self, terms: "Federation", bounds: Bounds, standings: Standings | None) -> None:
        """Nothing seen yet. ``standings``: by which it is known that nobody has released anything."""
        self._terms, self._bounds, self._standings = terms, bounds, standings
        self._width = terms.high - terms.low
        self.count(1)
        self._seen: dict[str, _Seen] = {}
        self._arms: tuple[str, ...] = ()
        self._lasting: list[float] = []  # exchanges in a row after which an arm's numbers could not be
        self.name_arms(terms.arms)

    def name_arms(self, arms: Sequence[str]) -> None:
        """There are these arms now: those that there were, and others behind them."""
        self._arms = tuple(arms)
        self._lasting += [0.0] * (len(arms) - len(self._lasting))

    def count(self, num_agents: int) -> None:
        """So many sites take part."""
        self._num_agents, self._usual = num_agents, self._bounds.usual(num_agents)

    def forget(self, neighbour: str) -> None:
        """It has left."""
        self._seen.pop(neighbour, None)

    def exchanged(
        self, neighbour: str, before: Sequence[float], after: Sequence[float], gossiped: Sequence[float]
    ) -> None:
        """Note an exchange: the flow before and after it, and what the site gossips now."""
        seen = self._seen.get(neighbour)
        if seen is None:
            seen = self._seen[neighbour] = _Seen()
        standings, quiet = self._standings, MIXED * self._num_agents
        for other in self._seen.values():
            other.since_jump += 1
            if other.since_jump > SAID * self._num_agents:
                other.jump = None
        step = 1.0 if standings is None or standings.is_whole else NOT_WHOLE
        low, span, heaviest = self._bounds.limits
        _, usual, usual_weight = self._usual
        num_arms, largest, heavy = len(self._arms), 0.0, False
        for k in range(num_arms):
            weight, total = after[num_arms + k], gossiped[num_arms + k]
            value = above_low(after[k], weight, low)
            heavier = weight - before[num_arms + k]
            more = above_low(after[k] - before[k], heavier, low)
            heavy = heavy or abs(value) > usual or abs(weight) > usual_weight
            largest = max(largest, abs(more) / span, abs(heavier) / heaviest)
            if standings is not None and standings.exchanges - standings.quiet.since[k] > quiet:
                self._look_for_a_jump(seen, k, max(abs(more) / self._width, abs(heavier)), total, heavier)
            self._lasting[k] = self._lasting[k] + step if self._is_odd(gossiped[k], total) else 0.0
        seen.moved, seen.mean_square = largest, drift(seen.mean_square, largest)
        seen.heavy = seen.heavy + step if heavy else 0.0

    def _look_for_a_jump(self, seen: _Seen, arm: int, moved: float, total: float, heavier: float) -> None:
        """Without a release, exchanges only mix: once they have, none moves much."""
        held = max(abs(total), abs(total - heavier))
        if moved > max(JUMP * held, LEAST * self._bounds.weight):
            seen.jump, seen.since_jump = (arm, moved / held if held > 0.0 else 1.0), 0

    def _is_odd(self, value: float, weight: float) -> bool:
        """Whether no honest sites could bring a site to gossip this, once it has mixed."""
        most = self._bounds.weight
        return not -LEAST * most <= weight <= (1.0 + LEAST) * most or self._outside(value, weight) != 0.0

    def _outside(self, value: float, weight: float) -> float:
        """By how much a gossiped value lies above (positive) or below the range, more than noise explains."""
        bounds = self._bounds
        value = above_low(value, weight, bounds.limits.low) / self._width
        if -LEAST * bounds.weight <= value <= weight + LEAST * bounds.weight:
            return 0.0
        by_patients = self._terms.counted == "patients"
        noise = noise_of_gossiped(bounds.noise, weight, self._num_agents, QUANTILE, by_patients)
        return max(value - max(weight, 0.0) - noise, 0.0) + min(value + noise, 0.0)

    # ---------------------------------------------------------------- what an operator sees

    def carried(self, neighbour: str, flow: Sequence[float]) -> Carried:
        """What a link carries, and how it moved."""
        seen = self._seen.get(neighbour, _Seen())
        return Carried(tuple(self._of_arms(flow)), seen.moved, unrest(seen.mean_square, 1.0))

    def _of_arms(self, flow: Sequence[float]) -> Iterator[CarriedOfArm]:
        low, span, heaviest = self._bounds.limits
        num_arms = len(flow) // 2
        for k in range(num_arms):
            value, weight = above_low(flow[k], flow[num_arms + k], low), flow[num_arms + k]
            yield CarriedOfArm(value / self._width, weight, max(abs(value) / span, abs(weight) / heaviest))

    def warnings(self, flows: Mapping[str, Sequence[float]], gossiped: Sequence[float]) -> Iterator[str]:
        """What has lasted, and which neighbour brings most of it."""
        patience, arms = PATIENCE * self._num_agents, self._arms
        carried = {name: tuple(self._of_arms(flow)) for name, flow in flows.items()}
        for name, of_arms in carried.items():
            seen, share = self._seen.get(name, _Seen()), max(it.share for it in of_arms)
            arm = arms[max(range(len(arms)), key=lambda k: of_arms[k].share)]
            if share > 1.0 - 1e-6:
                yield (
                    f"the link to {name} is at its bound for {arm}: {name}, a site behind it, or another neighbour "
                    f"brings what honest sites do not. 'fedbandit leave' removes all that a neighbour has sent."
                )
            elif seen.heavy > patience:
                yield (
                    f"the link to {name} carries more of {arm} than honest sites can once they agree, {share:.0%} of "
                    f"its bound: {name}, or a site behind it, may be wrong or lie."
                )
            if seen.jump is not None:
                yield (
                    f"the numbers of {arms[seen.jump[0]]} that come from {name} jumped by {seen.jump[1]:.2g} ranges "
                    f"although nobody has released any. If a site has just left, returned, begun a new incarnation or "
                    f"accepted the arm, that is expected and ends by itself; otherwise {name}, or a site behind it, "
                    f"may be wrong or lie."
                )
        if carried:
            yield from self._odd(carried, gossiped, patience)

    def _odd(
        self, carried: Mapping[str, tuple[CarriedOfArm, ...]], gossiped: Sequence[float], patience: int
    ) -> Iterator[str]:
        arms, num_arms = self._arms, len(self._arms)
        for k in range(num_arms):
            if self._lasting[k] <= patience:
                continue
            weight = gossiped[num_arms + k]
            outside = self._outside(gossiped[k], weight)
            if not -LEAST * self._bounds.weight <= weight <= (1.0 + LEAST) * self._bounds.weight:
                sign = -1.0 if weight < 0.0 else 1.0
                name = max(carried, key=lambda name: sign * carried[name][k].weight)
                is_what = "negative" if weight < 0.0 else "more than all sites together can have"
                yield f"the weight of {arms[k]} is {is_what}: most of it comes from {name}, which may be wrong or lie."
            elif outside:
                sign = 1.0 if outside > 0.0 else -1.0
                name = max(carried, key=lambda name: sign * carried[name][k].value)
                yield (
                    f"the estimate of {arms[k]} is outside the range by more than noise explains: most of it comes "
                    f"from {name}, which may be wrong or lie."
                )
