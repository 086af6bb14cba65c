"""Watches what each link carries and how it moves, and says which neighbour has brought what cannot be.

In memory alone: after a restart it is seen again. Nothing is decided by it: limits are ``rules.flow``'s.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from fedbandit.agent.core.bounds import QUANTILE, Bounds
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.player import MIXED
from fedbandit.agent.core.standings import Standings
from fedbandit.rules.flow import above_low
from fedbandit.rules.gossip import drift

__all__ = ["JUMP", "PATIENCE", "SAID", "Carried", "CarriedOfArm", "LinkWatch"]

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

    def __init__(self, terms: Federation, bounds: Bounds, standings: Standings | None) -> None:
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
        bounds, num_agents = self._bounds, self._num_agents
        value = above_low(value, weight, bounds.limits.low) / self._width
        if -LEAST * bounds.weight <= value <= weight + LEAST * bounds.weight:
            return 0.0
        if self._terms.counted == "patients":  # one site may have nearly all of the weight
            noise = bounds.noise * abs(weight) * (2.0 * sqrt(QUANTILE) + QUANTILE)
        else:
            noise = bounds.noise * (2.0 * sqrt(QUANTILE * abs(weight) * num_agents) + QUANTILE) / num_agents
        return max(value - max(weight, 0.0) - noise, 0.0) + min(value + noise, 0.0)

    # ---------------------------------------------------------------- what an operator sees

    def carried(self, neighbour: str, flow: Sequence[float]) -> Carried:
        """What a link carries, and how it moved."""
        seen = self._seen.get(neighbour, _Seen())
        return Carried(tuple(self._of_arms(flow)), seen.moved, sqrt(seen.mean_square))

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
                    f"brings what honest sites do not. 'fedbandit leave' removes all that a neighbour has told."
                )
            elif seen.heavy > patience:
                yield (
                    f"the link to {name} carries more of {arm} than honest sites can once they agree, {share:.0%} of "
                    f"its bound: {name}, or a site behind it, may be wrong or lie."
                )
            if seen.jump is not None:
                yield (
                    f"the numbers of {arms[seen.jump[0]]} that come from {name} jumped by {seen.jump[1]:.2g} ranges "
                    f"although nobody has released any. If a site has just left, returned, begun a new life or "
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
