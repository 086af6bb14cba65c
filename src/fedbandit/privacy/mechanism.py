"""Turns raw rewards into noisy releases, for real data: batches and the tree, all arms of one agent.

Schedules and formulas are in ``fedbandit.rules``; noise comes through the ledger alone. No raw reward leaves a
mechanism except in ``state()`` and the parts of it that one reward changes (``collected``, ``sums``), which are for the
agent's own disk.

A mechanism that is brought back from a state *before* a release would draw its noise again, and two
noisy versions of one sum cost twice. So an agent writes the state after ``add`` to its disk before anybody
sees the release (docs/privacy.md, "A restart").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fedbandit.checks import LARGEST, InvalidArgument, finite_number, number_above, number_between, whole_number
from fedbandit.privacy.ledger import Ledger, Lines
from fedbandit.privacy.noise import GRID, NoiseSource, from_grid, laplace, to_grid
from fedbandit.rules.batch import batch_size, default_first_batch, released
from fedbandit.rules.mean import dyadic_intervals, epsilon_per_node, last_end, trailing_zeros

__all__ = ["Batches", "Mechanism", "Release", "Tree"]

MAX_PULLS = 10**12

MechanismState = dict[str, Any]
"""Plain numbers in lists, fit for JSON."""


@dataclass(frozen=True)
class Release:
    """What may leave: the noisy mean of the rewards of pulls ``first`` to ``last`` of an arm."""

    arm: int
    first: int
    last: int
    value: float
    size: int


class Mechanism(Protocol):
    """What an agent needs of ``Batches`` or ``Tree``."""

    ledger: Ledger

    def add(self, arm: int, reward: float) -> Release | None:
        """Take a reward; a release if this one completes an interval."""
        ...

    def epsilon(self, group: int = 1) -> float:
        """What somebody with ``group`` rewards pays at most."""
        ...

    def state(self) -> MechanismState:
        """All that must survive."""
        ...


class Batches:
    """Noisy means of batches: every reward is in one release, for ever, without a horizon.

    * ``epsilon``: the privacy of one reward.
    * ``low``, ``high``: the declared range; rewards are clamped to it.
    * ``first_batch``: how many rewards the first release of an arm holds; default: 12 / epsilon.
    * ``growth``: by which factor a release makes the number of released rewards grow.
    """

    def __init__(
        self,
        num_arms: int,
        epsilon: float,
        low: float,
        high: float,
        first_batch: int | None = None,
        growth: float = 1.25,
        noise: NoiseSource = laplace,
    ) -> None:
        """Nothing collected, nothing released."""
        self._epsilon = number_above("epsilon", epsilon, 0.0)
        self._low, self._high = _range(low, high)
        first = default_first_batch(self._epsilon) if first_batch is None else first_batch
        self._first_batch = whole_number("first_batch", first, 1, MAX_PULLS)
        self._growth = number_between("growth", growth, 1.0, 1e6)
        self.ledger = Ledger(num_arms, self._epsilon, noise=noise)
        self._counts, self._totals = [0] * num_arms, [0] * num_arms

    def add(self, arm: int, reward: float) -> Release | None:
        """Take a reward of this arm; the release of its batch if it is now full."""
        arm = whole_number("arm", arm, 0, self.ledger.num_arms - 1)
        steps = to_grid(reward, self._low, self._high)
        self._counts[arm] += 1
        self._totals[arm] += steps
        before, size = self.ledger.released_up_to(arm), self._counts[arm]
        if size < batch_size(before, self._first_batch, self._growth):
            return None
        total, self._counts[arm], self._totals[arm] = self._totals[arm], 0, 0  # if no noise can be had, they are lost:
        noise = self.ledger.draw(arm, before + 1, before + size)  # the ledger counts them as released
        value = from_grid(released(total, noise, size), self._low, self._high)
        return Release(arm, before + 1, before + size, value, size)

    def collected(self, arm: int) -> tuple[int, int]:
        """The count and the sum of the arm's batch, in steps of the grid (raw!): what ``add`` changes of the state."""
        return self._counts[arm], self._totals[arm]

    def epsilon(self, group: int = 1) -> float:
        """What somebody with ``group`` rewards pays at most, in however many batches they lie."""
        return whole_number("group", group, 1, MAX_PULLS) * self.ledger.epsilon()

    def state(self) -> MechanismState:
        """All that must survive, in plain numbers: parameters, unreleased sums (raw!), the ledger's lines."""
        return {
            "epsilon": self._epsilon,
            "low": self._low,
            "high": self._high,
            "first_batch": self._first_batch,
            "growth": self._growth,
            "counts": list(self._counts),
            "totals": list(self._totals),
            "released": [list(entry) for entry in self.ledger.entries],
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any], noise: NoiseSource = laplace) -> "Batches":
        """The mechanism of which this is the ``state()``."""
        names = ("epsilon", "low", "high", "first_batch", "growth")
        made = cls(*_known(state, names, ("counts", "totals")), noise=noise)
        made.ledger.restore(state["released"])
        for count, total in zip(state["counts"], state["totals"], strict=True):
            whole_number("state.totals", total, 0, GRID * whole_number("state.counts", count, 0, MAX_PULLS))
        made._counts, made._totals = list(state["counts"]), list(state["totals"])
        return made


class Tree:
    """Algorithm 2's tree over an arm's pulls: a release at every pull, for at most ``max_pulls`` of them.

    The release after pull n is the interval that ends at n. Algorithm 3's sum of all n rewards is
    ``pull_tree_add(slots, n, release.value * release.size)``. Its ledger grows by a line per pull, unless
    ``lines="last"`` keeps the last of each level alone.
    """

    def __init__(
        self,
        num_arms: int,
        epsilon: float,
        low: float,
        high: float,
        max_pulls: int,
        noise: NoiseSource = laplace,
        lines: Lines = "all",
    ) -> None:
        """Nothing released."""
        self._epsilon = number_above("epsilon", epsilon, 0.0)
        self._low, self._high = _range(low, high)
        self._max_pulls = whole_number("max_pulls", max_pulls, 1, MAX_PULLS)
        levels = self._max_pulls.bit_length()
        self.ledger = Ledger(num_arms, epsilon_per_node(self._epsilon, self._max_pulls), levels, noise, lines)
        self._pulls = [0] * num_arms
        self._sums = [[0] * levels for _ in range(num_arms)]

    def add(self, arm: int, reward: float) -> Release:
        """Take a reward of this arm; the release of the interval that ends with it."""
        arm = whole_number("arm", arm, 0, self.ledger.num_arms - 1)
        steps = to_grid(reward, self._low, self._high)
        n = self._pulls[arm] + 1
        if n > self._max_pulls:
            raise InvalidArgument(
                "max_pulls", self._max_pulls, f"at least {n} for pull {n} of arm {arm}", "The tree's epsilon is spent."
            )
        (first, last), level = dyadic_intervals(n)[0], trailing_zeros(n)
        self._pulls[arm], sums = n, self._sums[arm]
        sums[level] = steps + sum(sums[:level])  # the shorter intervals just before n are its lower levels
        noise = self.ledger.draw(arm, first, last, level)
        size = last - first + 1
        value = from_grid(released(sums[level], noise, size), self._low, self._high)
        return Release(arm, first, last, value, size)

    def sums(self, arm: int) -> tuple[int, ...]:
        """The sums of the arm's intervals, in steps of the grid (raw!): what ``add`` changes of the state."""
        return tuple(self._sums[arm])

    def epsilon(self, group: int = 1) -> float:
        """What somebody with ``group`` rewards pays at most over all ``max_pulls``."""
        return whole_number("group", group, 1, MAX_PULLS) * self.ledger.epsilon()

    def state(self) -> MechanismState:
        """All that must survive, in plain numbers: parameters, sums of intervals (raw!), the ledger's lines."""
        return {
            "epsilon": self._epsilon,
            "low": self._low,
            "high": self._high,
            "max_pulls": self._max_pulls,
            "pulls": list(self._pulls),
            "sums": [list(sums) for sums in self._sums],
            "released": [list(entry) for entry in self.ledger.entries],
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any], noise: NoiseSource = laplace, lines: Lines = "all") -> "Tree":
        """The mechanism of which this is the ``state()``; of a ledger's lines the last of each level are enough."""
        names = ("epsilon", "low", "high", "max_pulls")
        made = cls(*_known(state, names, ("pulls", "sums")), noise=noise, lines=lines)
        made.ledger.restore(state["released"])
        for arm, (pulls, sums) in enumerate(zip(state["pulls"], state["sums"], strict=True)):
            whole_number("state.pulls", pulls, 0, made._max_pulls)
            if len(sums) != made.ledger.levels:
                raise InvalidArgument("state.sums", sums, f"{made.ledger.levels} sums for each arm")
            for level, total in enumerate(sums):
                whole_number("state.sums", total, 0, GRID << level)
                if made.ledger.released_up_to(arm, level) != last_end(pulls, level):
                    raise InvalidArgument("state.released", state["released"], f"those of {pulls} pulls of arm {arm}")
        made._pulls, made._sums = list(state["pulls"]), [list(sums) for sums in state["sums"]]
        return made


def _range(low: float, high: float) -> tuple[float, float]:
    low, high = finite_number("low", low), finite_number("high", high)
    for name, value in (("low", low), ("high", high)):
        if abs(value) > LARGEST:
            raise InvalidArgument(name, value, f"at most {LARGEST:g} in size")
    if not low < high:
        raise InvalidArgument("high", high, f"above low ({low:g})")
    return low, high


def _known(state: Mapping[str, Any], names: tuple[str, ...], kept: tuple[str, str]) -> list[Any]:
    """The number of arms and the parameters in a state whose shape is right: a wrong one must not start from zero."""
    if set(state) != {*names, *kept, "released"} or len(state[kept[0]]) != len(state[kept[1]]):
        raise InvalidArgument("state", dict(state), f"a state() with {', '.join((*names, *kept, 'released'))}")
    return [len(state[kept[0]]), *(state[name] for name in names)]
