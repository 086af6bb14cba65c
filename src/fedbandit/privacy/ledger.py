"""The privacy ledger: records which rewards have been released, at what cost. The only place that asks for noise.

It enforces the rule behind the proofs in docs/privacy.md: releases of one level are disjoint intervals of an arm's
pulls, so that a reward lies in at most one release per level, and no interval ever gets a second draw. Batches have one
level; a tree has one for each length of its intervals.
"""

from collections.abc import Sequence
from typing import Literal

from fedbandit.checks import InvalidArgument, number_above, whole_number
from fedbandit.privacy.noise import NoiseSource, laplace

__all__ = ["AlreadyReleased", "Entry", "Ledger", "Lines"]

Entry = tuple[int, int, int, int]
"""A line of the ledger: arm, level, first and last pull number."""

Lines = Literal["all", "last"]
"""Which lines a ledger keeps: all of them, or the last one of each arm and level."""


class AlreadyReleased(RuntimeError):
    """Noise was asked for an interval that holds rewards already released at this level."""

    def __init__(self, arm: int, first: int, last: int, mark: int) -> None:
        """Say what was asked for and what has gone out already."""
        self.arm, self.first, self.last, self.mark = arm, first, last, mark
        super().__init__(
            f"pulls {first} to {last} of arm {arm}: rewards up to pull {mark} have been released already, and a "
            "second draw of noise would cost their epsilon again"
        )


class Ledger:
    """Every release of one agent: recorded first, then given its noise.

    * ``epsilon``: what one release costs each reward in it.
    * ``levels``: the most releases that may hold the same reward.
    * ``lines``: with ``"last"`` it never grows beyond a line for each arm and level. That is all it takes to refuse a
      second draw, but what single rewards have spent can no longer be told.
    """

    def __init__(
        self, num_arms: int, epsilon: float, levels: int = 1, noise: NoiseSource = laplace, lines: Lines = "all"
    ) -> None:
        """An empty ledger."""
        if lines not in ("all", "last"):
            raise InvalidArgument("lines", lines, "all or last")
        self.num_arms = whole_number("num_arms", num_arms, 1, 10**6)
        self.epsilon_per_release = number_above("epsilon", epsilon, 0.0)
        self.levels = whole_number("levels", levels, 1, 64)
        self._noise, self._lines = noise, lines
        self._entries: dict[tuple[int, ...], Entry] = {}
        self._marks = [[0] * self.levels for _ in range(self.num_arms)]

    def draw(self, arm: int, first: int, last: int, level: int = 0) -> int:
        """The noise, in steps of the grid, of the one release of these pulls at this level."""
        self._record(arm, level, first, last)
        (fresh,) = self._noise(self.epsilon_per_release, 1)
        if type(fresh) is not int:  # floating-point noise gives values away in its last bits
            raise InvalidArgument("noise", fresh, "a source of whole numbers, in steps of the grid")
        return fresh

    def _record(self, arm: int, level: int, first: int, last: int) -> None:
        whole_number("arm", arm, 0, self.num_arms - 1)
        whole_number("level", level, 0, self.levels - 1)
        whole_number("first", first, 1, 2**62)
        whole_number("last", last, first, 2**62)
        mark = self._marks[arm][level]
        if first <= mark:
            raise AlreadyReleased(arm, first, last, mark)
        self._marks[arm][level] = last
        entry = (arm, level, first, last)
        self._entries[entry if self._lines == "all" else (arm, level)] = entry

    def released_up_to(self, arm: int, level: int = 0) -> int:
        """The last pull of the arm that a release of this level holds; 0 before the first."""
        return self._marks[arm][level]

    def epsilon(self) -> float:
        """The most that the releases can ever cost one reward."""
        return self.levels * self.epsilon_per_release

    def spent(self, arm: int, pull: int) -> float:
        """What the releases so far cost the reward of this pull."""
        if self._lines == "last":
            raise InvalidArgument("lines", "last", "all, for what a single reward has spent")
        held = sum(a == arm and first <= pull <= last for a, _, first, last in self._entries.values())
        return held * self.epsilon_per_release

    def __len__(self) -> int:
        """The number of lines."""
        return len(self._entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The lines, in order: plain numbers, from which ``restore`` makes the same ledger."""
        return tuple(self._entries.values())

    def restore(self, entries: Sequence[Sequence[int]]) -> None:
        """Enter earlier releases into an empty ledger, under the same rule, without drawing anything."""
        if self._entries:
            raise InvalidArgument("entries", entries, "restored into an empty ledger")
        for entry in entries:
            if len(entry) != 4:
                raise InvalidArgument("entries", entry, "lines of arm, level, first pull, last pull")
            arm, level, first, last = entry
            self._record(arm, level, first, last)
