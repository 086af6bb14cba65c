"""What became of a site over time, for people: points of its history, which survive restarts, and rates."""

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from threading import Lock
from typing import NamedTuple

from pydantic import ValidationError

from fedbandit.agent.disk.history_file import HistoryFile
from fedbandit.agent.http import state as models
from fedbandit.agent.http.events import Feed
from fedbandit.checks import FileError

__all__ = ["History", "Past", "Rates", "Whose", "points_in"]

# ---------------------------------------------------------------- how the numbers moved


MOST = 500
"""The most points."""

MOST_VALUES = 25_000
"""Of many arms there are fewer points: with each of them a point has about seven numbers more."""

LEAST = 50
"""Points, whatever the number of arms."""

EVERY = 2.0
"""Seconds between points, at least."""


class History:
    """Points in the order of time. Their spacing grows with the root of their age; the first one stays."""

    def __init__(self, most: int = MOST) -> None:
        """Hold ``most`` points at most."""
        self._most = most
        self._points: list[models.HistoryPoint] = []

    @property
    def points(self) -> Sequence[models.HistoryPoint]:
        """The points, oldest first."""
        return self._points

    def add(self, point: models.HistoryPoint) -> bool:
        """Add a point; False where it says nothing new, or comes too soon after the last one."""
        if self._points:
            last = self._points[-1]
            if point.at < last.at + EVERY or point.model_copy(update={"at": last.at}) == last:
                return False
        self._points.append(point)
        while len(self._points) > self._room:
            del self._points[self._least_missed()]
        return True

    @property
    def _room(self) -> int:
        arms = max(len(self._points[-1].estimates), 1)
        return min(self._most, max(LEAST, MOST_VALUES // arms))

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

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._seen: deque[_Seen] = deque()

    def look(self, at: float, decisions: int, rewards: int) -> None:
        """The counts at a time; both only grow, but for a site that was loaded again: then they begin anew."""
        last = self._seen[-1] if self._seen else None
        if last is not None and (at < last.at or decisions < last.decisions or rewards < last.rewards):
            self._seen.clear()
        self._seen.append(_Seen(at, decisions, rewards))
        while len(self._seen) > 2 and self._seen[1].at <= at - OVER:
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


# ---------------------------------------------------------------- the history in a file


@dataclass(frozen=True)
class Whose:
    """Whose history a file has: of another site, other terms or other arms it is not used."""

    site: str
    terms: str
    arms: tuple[str, ...]

    def heading(self) -> str:
        """The heading of its file."""
        return json.dumps({"site": self.site, "terms": self.terms, "arms": self.arms})

    def owns(self, heading: str) -> bool:
        """Whether a file with this heading is its; arms may have been added since it was written."""
        try:
            found = json.loads(heading)
            arms = tuple(found["arms"])
            return (found["site"], found["terms"], arms) == (self.site, self.terms, self.arms[: len(arms)])
        except (ValueError, TypeError, LookupError):
            return False


def points_in(file: HistoryFile, whose: Whose) -> list[models.HistoryPoint]:
    """The points of a file, oldest first; ``OSError`` if it cannot be read."""
    heading, lines = file.read()
    found: list[models.HistoryPoint] = []
    if not whose.owns(heading):
        return found
    for line in lines:
        try:
            point = models.HistoryPoint.model_validate_json(line)
        except ValidationError:
            continue
        if not found or point.at > found[-1].at:
            found.append(point)
    return found


class Past:
    """Rates of the last minute, and the history: noted once a second, so neither decisions nor rewards wait for it."""

    def __init__(self, started: float, feed: Feed, file: HistoryFile | None = None) -> None:
        """Nothing has happened; new points go to the feed, too. Without a file nothing is kept."""
        self._started, self._feed, self._file = started, feed, file
        self._rates, self._history = Rates(), History()
        self._saved: float | None = None  # the time of the last point in the file
        self._heading = ""  # of the file; empty: it must be written anew
        self._writing = Lock()

    def load(self, whose: Whose, now: float) -> None:
        """Go on with what a file has of the time until now; ``OSError`` if it cannot be read."""
        if self._file is None:
            return
        for point in points_in(self._file, whose):
            if point.at <= now:
                self._history.add(point)
        if self._history.points:
            self._saved, self._heading = self._history.points[-1].at, whose.heading()

    def note(self, point: models.HistoryPoint, reported: int) -> None:
        """Keep what the page draws over time, and how many rewards have been reported; it is on disk."""
        self._rates.look(point.at, point.decisions, reported)
        if self._history.add(point):
            self._feed.point(point)

    @property
    def per_minute(self) -> tuple[float, float]:
        """Decisions and rewards of the last minute."""
        return self._rates.per_minute

    def history(self, arms: tuple[str, ...]) -> models.HistoryBody:
        """The response of ``GET /v1/history``."""
        return models.HistoryBody(started=self._started, arms=list(arms), points=list(self._history.points))

    def save(self, whose: Whose, points: Sequence[models.HistoryPoint]) -> None:
        """Write the points that are not in the file yet; ``OSError`` if that fails, and the next call tries again.

        It may run in a thread, with a copy of the points: to write takes as long as the disk.
        """
        with self._writing:
            if self._file is None or not points or points[-1].at == self._saved:
                return
            heading = whose.heading()
            new = [it for it in points if self._saved is None or it.at > self._saved]
            is_full = self._file.num_lines + len(new) > 2 * len(points) + LEAST
            try:
                if heading != self._heading or is_full:
                    self._file.replace(heading, [it.model_dump_json() for it in points])
                else:
                    self._file.append([it.model_dump_json() for it in new])
            except FileError as error:
                self._heading = ""
                raise OSError(None, str(error)) from None
            except OSError:
                self._heading = ""
                raise
            self._saved, self._heading = points[-1].at, heading

    @property
    def points(self) -> list[models.HistoryPoint]:
        """A copy of the points, for a thread that saves them."""
        return list(self._history.points)
