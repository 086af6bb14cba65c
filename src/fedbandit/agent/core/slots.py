"""The order in which an arm's rewards count: that of its decisions, whatever came when.

A decision takes its slot when it is handed out. With a reward window a slot is due when its window is over, by the
clock alone: so neither the contents nor the times of releases depend on when a reward came. Without one it is due once
its reward is there. Either way it waits for the slots before it.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Decision

__all__ = ["HeldUp", "Slots"]


@dataclass(frozen=True)
class HeldUp:
    """Rewards of an arm that wait for that of an earlier decision."""

    arm: int
    rewards: int
    by: Decision


class Slots:
    """The slots of each arm that have not been played, in order; ``decisions`` is the site's own table."""

    def __init__(
        self, terms: Federation, decisions: Mapping[str, Decision], by_arrival: int, num_arms: int | None = None
    ) -> None:
        """As the journal knows them; decisions up to the number ``by_arrival`` have none (``Stored``).

        ``num_arms``: how many there are now, if not those of the terms.
        """
        self._window, self._decisions = terms.reward_window, decisions
        self._open: list[deque[str]] = []
        self.grow(terms.num_arms if num_arms is None else num_arms)
        for decision in decisions.values():
            if decision.is_open and decision.number > by_arrival:
                self.add(decision)

    def grow(self, num_arms: int) -> None:
        """There are so many arms now."""
        self._open += [deque() for _ in range(num_arms - len(self._open))]

    def add(self, decision: Decision) -> None:
        """Give the next slot of its arm to a decision."""
        self._open[decision.arm].append(decision.id)

    def remove(self, decision: Decision) -> None:
        """Take the slot of a cancelled decision out: those behind it move up."""
        self._open[decision.arm].remove(decision.id)

    def is_over(self, decision: Decision, now: float) -> bool:
        """Whether a reward that comes now is too late."""
        return 0.0 < self._window <= now - decision.at

    def is_due(self, now: float) -> bool:
        """Whether any slot can be played."""
        return any(slots and self._is_ready(self._decisions[slots[0]], now) for slots in self._open)

    def is_next(self, decision: Decision) -> bool:
        """Whether all earlier slots of its arm have been played, and this one has not."""
        slots = self._open[decision.arm]
        return bool(slots) and slots[0] == decision.id

    def take(self, arm: int) -> Decision:
        """The next slot of an arm, which is now played."""
        return self._decisions[self._open[arm].popleft()]

    def take_due(self, now: float, most: int) -> list[Decision]:
        """Slots that are due, oldest first in each arm, at most so many: they are now played."""
        due: list[Decision] = []
        for arm in range(len(self._open)):
            while len(due) < most and self._is_due(arm, now):
                due.append(self.take(arm))
        return due

    def _is_due(self, arm: int, now: float) -> bool:
        slots = self._open[arm]
        return bool(slots) and self._is_ready(self._decisions[slots[0]], now)

    def _is_ready(self, decision: Decision, now: float) -> bool:
        return self.is_over(decision, now) if self._window else decision.reward is not None

    def waiting(self) -> int:
        """Rewards that have been reported and not been played."""
        return sum(self._decisions[name].reward is not None for slots in self._open for name in slots)

    def oldest(self) -> Iterator[Decision]:
        """The first slot of each arm that has any."""
        return (self._decisions[slots[0]] for slots in self._open if slots)

    def held_up(self) -> Iterator[HeldUp]:
        """Arms whose rewards wait for that of an earlier decision, which nobody has reported; none with a window."""
        for arm, slots in enumerate(self._open):
            if slots and not self._window:
                rewards = sum(self._decisions[name].reward is not None for name in slots)
                if rewards:
                    yield HeldUp(arm, rewards, self._decisions[slots[0]])
