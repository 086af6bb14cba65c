"""The privacy ledger: records which rewards have been released, at what cost. The only place that asks for noise.

It enforces the rule behind the proofs in docs/privacy.md: releases of one level are disjoint intervals of an arm's
pulls, so that a reward lies in at most one release per level, and no interval ever gets a second draw. Batches have one
level; a tree has one for each length of its intervals. The last pull released of each arm and level is all it takes.

Where decisions have strata, pulls are counted in each **cell**, an arm in a stratum, and cells stand where levels do. A
release then holds an interval of one cell, or of several cells of an arm, with one draw for all: a reward lies in one
cell, and so in at most one release.
"""

from collections.abc import Mapping, Sequence

from fedbandit.checks import MAX_STRATA, InvalidArgument, number_above, whole_number
from fedbandit.privacy.noise import NoiseSource, laplace

__all__ = ["AlreadyReleased", "Ledger"]

MAX_PULL = 2**62


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
    * ``levels``: the most releases that may hold the same reward; 1 where an arm has several ``cells``.
    """

    def __init__(
        self, num_arms: int, epsilon: float, levels: int = 1, noise: NoiseSource = laplace, cells: int = 1
    ) -> None:
        """Nothing released."""
        self.num_arms = whole_number("num_arms", num_arms, 1, 10**6)
        self.epsilon_per_release = number_above("epsilon", epsilon, 0.0)
        self.levels = whole_number("levels", levels, 1, 64 if cells == 1 else 1)
        self.cells = whole_number("cells", cells, 1, MAX_STRATA)
        self._places = levels if cells == 1 else cells
        self._noise = noise
        self._marks: dict[tuple[int, int], int] = {}

    def draw(self, arm: int, first: int, last: int, level: int = 0) -> int:
        """The noise, in steps of the grid, of the one release of these pulls at this level."""
        return self.draw_sum(arm, [(level, first, last)])

    def draw_sum(self, arm: int, parts: Sequence[tuple[int, int, int]]) -> int:
        """That of the one release of all these pulls: of each cell, or of one level, the first and the last."""
        if len({level for level, _, _ in parts}) < max(len(parts), 1) or (len(parts) > 1 and self.cells == 1):
            raise InvalidArgument("parts", [*parts], "pulls of one level, or of different cells")
        for level, first, last in parts:
            self._check_place(arm, level)
            whole_number("first", first, 1, MAX_PULL)
            whole_number("last", last, first, MAX_PULL)
            mark = self.released_up_to(arm, level)
            if first <= mark:
                raise AlreadyReleased(arm, first, last, mark)
        for level, _, last in parts:
            self._marks[arm, level] = last
        (fresh,) = self._noise(self.epsilon_per_release, 1)
        if type(fresh) is not int:  # floating-point noise gives values away in its last bits
            raise TypeError(f"noise must be whole numbers, in steps of the grid, not {fresh!r}")
        return fresh

    def _check_place(self, arm: int, level: int) -> None:
        whole_number("arm", arm, 0, self.num_arms - 1)
        whole_number("level", level, 0, self._places - 1)

    def released_up_to(self, arm: int, level: int = 0) -> int:
        """The last pull of the arm that a release of this level holds; 0 before the first."""
        return self._marks.get((arm, level), 0)

    def epsilon(self) -> float:
        """The most that the releases can ever cost one reward."""
        return self.levels * self.epsilon_per_release

    @property
    def marks(self) -> dict[tuple[int, int], int]:
        """The last pull released of each arm and level, from which ``restore`` makes the same ledger."""
        return dict(self._marks)

    def restore(self, marks: Mapping[tuple[int, int], int]) -> None:
        """Enter earlier releases, of which nothing is known here, without drawing anything."""
        for (arm, level), last in marks.items():
            self._check_place(arm, level)
            if (arm, level) in self._marks:
                raise InvalidArgument("marks", dict(marks), "of arms and levels of which none is known")
            self._marks[arm, level] = whole_number("last", last, 1, MAX_PULL)


def __dir__() -> list[str]:
    return __all__
