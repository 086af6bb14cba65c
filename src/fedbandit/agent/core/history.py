"""How a site's numbers moved since its process started: points in memory, thinned so that the whole run stays visible.

It holds what the state shows, and nothing else: estimates and means from releases, and counts.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

__all__ = ["EVERY", "MOST", "History", "Point"]

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
