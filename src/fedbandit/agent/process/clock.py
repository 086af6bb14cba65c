"""The times by which an agent judges its decisions.

* ``SteadyClock``, for decisions and reward windows: it never goes back, and it never stands still. If the system's
  clock is set back, time goes on from where it was, at its usual pace. If it jumps ahead, the same, until the jump has
  lasted for a minute: then time follows it, for good, and windows that were open end early.
* ``PatientClock``, for what is forgotten: the system's time, less whatever has not lasted for a minute. After a start
  nothing has: so what a wrong clock would have aged is not forgotten.
"""

import time  # noqa: TID251  # where the clock enters
from collections import deque
from collections.abc import Callable

LASTS = 60.0
"""Seconds after which a jump of the system's clock is believed."""

LONGEST_GAP = 5.0
"""Seconds between two readings after which a patient clock begins anew."""

SMALL_STEP = 1.0
"""Seconds by which the system's clock may be ahead and is believed at once: clocks drift, and are set right."""


def new_incarnation() -> int:
    """The incarnation of a site that begins now: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def both_clocks() -> tuple[float, float]:
    """Steady and wall time: a machine that is paused may not notice by one of them."""
    return time.monotonic(), time.time()


class SteadyClock:
    """Seconds since 1970, as long as the system's clock does not jump."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """Begin with the system's time."""
        self._wall, self._steady = wall, steady
        self._last, self._tick = wall(), steady()
        self._jump: tuple[float, float] | None = (
            None  # since when the system's clock is ahead, and by how much at least
        )

    def now(self) -> float:
        """The time."""
        tick = self._steady()
        (self._last, self._jump), self._tick = self._at(tick), tick
        return self._last

    def peek(self) -> float:
        """The same, and no later reading depends on it: for a reward, whose time must not show."""
        return self._at(self._steady())[0]

    def catch_up(self, at: float) -> None:
        """Go on from this time, if it is later: a file knows a time that has been."""
        if at > self.peek():
            self._last, self._tick, self._jump = at, self._steady(), None

    def _at(self, tick: float) -> tuple[float, tuple[float, float] | None]:
        """The time, and the jump that is not believed yet."""
        at = self._last + tick - self._tick
        ahead = self._wall() - at
        if ahead <= SMALL_STEP:
            return at + max(ahead, 0.0), None
        since, least = (tick, ahead) if self._jump is None else (self._jump[0], min(self._jump[1], ahead))
        if tick - since < LASTS:
            return at, (since, least)
        return at + least, None if ahead - least <= SMALL_STEP else (tick, ahead - least)


class PatientClock:
    """Seconds since 1970, by the least that the system's clock has said in the last ``patience`` seconds."""

    def __init__(
        self,
        patience: float = LASTS,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin now."""
        self._patience, self._wall, self._steady = patience, wall, steady
        self._begun = self._last_read = steady()
        self._read: deque[tuple[float, float]] = deque()  # when, and how far the system's clock was ahead of the steady

    def now(self) -> float | None:
        """The time; None until it can be told. Read it often: only what was read counts as having lasted."""
        tick = self._steady()
        ahead = self._wall() - tick
        if tick - self._last_read > LONGEST_GAP:  # the process stood still: nothing has been seen to last
            self._begun = tick
            self._read.clear()
        self._last_read = tick
        while self._read and self._read[-1][1] >= ahead:  # never the least any more
            self._read.pop()
        self._read.append((tick, ahead))
        while self._read[0][0] < tick - self._patience:
            self._read.popleft()
        return None if tick - self._begun < self._patience else tick + self._read[0][1]
