"""How fast a site decides and takes rewards: from counts that are looked at now and then."""

from collections import deque
from typing import NamedTuple

__all__ = ["OVER", "Rates"]

OVER = 60.0
"""Seconds over which a rate is measured."""


class _Seen(NamedTuple):
    at: float
    decisions: int
    rewards: int


class Rates:
    """Counts of the last minute."""

    def __init__(self, over: float = OVER) -> None:
        """Measure over so many seconds, or since the first look."""
        self._over = over
        self._seen: deque[_Seen] = deque()

    def look(self, at: float, decisions: int, rewards: int) -> None:
        """The counts at a time; both only grow, but for a site that was loaded again: then they begin anew."""
        last = self._seen[-1] if self._seen else None
        if last is not None and (at < last.at or decisions < last.decisions or rewards < last.rewards):
            self._seen.clear()
        self._seen.append(_Seen(at, decisions, rewards))
        while len(self._seen) > 2 and self._seen[1].at <= at - self._over:
            self._seen.popleft()

    @property
    def per_minute(self) -> tuple[float, float]:
        """Decisions and rewards per minute; 0 before the second look."""
        if len(self._seen) < 2:
            return 0.0, 0.0
        first, last = self._seen[0], self._seen[-1]
        minutes = (last.at - first.at) / 60.0
        if minutes <= 0.0:
            return 0.0, 0.0
        return (last.decisions - first.decisions) / minutes, (last.rewards - first.rewards) / minutes
