"""How a site's numbers moved since its process started, and how fast it decides now.

Points in memory, thinned so that the whole run stays visible. They hold what the state shows, and nothing else:
estimates and means from releases, and counts.
"""

from collections import deque
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

__all__ = ["EVERY", "MOST", "OVER", "History", "Point", "Rates"]


MOST = 500
"""The most points."""

EVERY = 2.0
"""Seconds between points, at least."""


class Point(NamedTuple):
    """A site at one time; rows have an entry for each arm that it knew then."""

    at: float
    estimates: tuple[float | None, ...]
    radii: tuple[float | None, ...]
    own_means: tuple[float | None, ...]
    pulls: tuple[int, ...]
    decisions: int
    rewards: int


class History:
    """Points in the order of time. Their spacing grows with the root of their age; the first one stays."""

    def __init__(self, most: int = MOST, every: float = EVERY) -> None:
        """Hold ``most`` points at most, ``every`` seconds apart at least."""
        self._most, self._every = most, every
        self._points: list[Point] = []

    @property
    def points(self) -> Sequence[Point]:
        """The points, oldest first."""
        return self._points

    def add(self, point: Point) -> bool:
        """Add a point; False where it says nothing new, or comes too soon after the last one."""
        if self._points:
            last = self._points[-1]
            if point.at < last.at + self._every or point._replace(at=last.at) == last:
                return False
        self._points.append(point)
        if len(self._points) > self._most:
            del self._points[self._least_missed()]
        return True

    def _least_missed(self) -> int:
        """The point whose gap, if it goes, is the smallest for its age; never the first or the last."""
        points, now = self._points, self._points[-1].at
        return min(
            range(1, len(points) - 1),
            key=lambda i: (points[i + 1].at - points[i - 1].at) / sqrt(now - points[i].at),
        )


# ---------------------------------------------------------------- rates


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
