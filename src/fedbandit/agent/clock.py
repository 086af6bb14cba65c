"""The time by which an agent judges its decisions: it never goes back, and it never stands still.

A reward window needs both. If the system's clock is set back, time goes on from where it was, at its usual pace. If it
jumps ahead, so does the agent's time, for good: windows that were open end at once.
"""

import time  # noqa: TID251  # where the clock enters
from collections.abc import Callable

__all__ = ["SteadyClock", "epoch_now"]


def epoch_now() -> int:
    """The epoch of a life that begins now: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class SteadyClock:
    """Seconds since 1970, as long as the system's clock is not set back."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """Begin with the system's time."""
        self._wall, self._steady = wall, steady
        self._last, self._tick = wall(), steady()

    def now(self) -> float:
        """The time: the system's, or later."""
        tick = self._steady()
        self._last, self._tick = self._at(tick), tick
        return self._last

    def peek(self) -> float:
        """The same, and no later reading depends on it: for a reward, whose time must not show."""
        return self._at(self._steady())

    def catch_up(self, at: float) -> None:
        """Go on from this time, if it is later: a file knows a time that has been."""
        if at > self.peek():
            self._last, self._tick = at, self._steady()

    def _at(self, tick: float) -> float:
        return max(self._wall(), self._last + tick - self._tick)
