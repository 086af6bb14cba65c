"""What a running agent remembers of its own course, for its page: rates of the last minute, and the history.

It is looked at once a second, from what is on disk: neither decisions nor rewards wait for it.
"""

from typing import NamedTuple

from fedbandit.agent.core.history import History, Point
from fedbandit.agent.core.rates import Rates
from fedbandit.agent.core.site import Site
from fedbandit.agent.http.feed import Feed
from fedbandit.agent.http.snapshot import point_body, point_of
from fedbandit.agent.http.state import HistoryBody

__all__ = ["Moment", "Past", "moment_of"]


class Moment(NamedTuple):
    """A point of the history, and how many rewards had been reported."""

    point: Point
    reported: int


def moment_of(site: Site, at: float) -> Moment:
    """What is noted of a site at one time."""
    return Moment(point_of(site, at), site.reported)


class Past:
    """The course of one process."""

    def __init__(self, started: float, feed: Feed) -> None:
        """Nothing has happened; new points go to the feed, too."""
        self._started, self._feed = started, feed
        self._rates, self._history = Rates(), History()

    def note(self, moment: Moment) -> None:
        """Keep what the page draws over time; it is on disk."""
        point, reported = moment
        self._rates.look(point.at, point.decisions, reported)
        if self._history.add(point):
            self._feed.point(point_body(point))

    @property
    def per_minute(self) -> tuple[float, float]:
        """Decisions and rewards of the last minute."""
        return self._rates.per_minute

    def history(self, arms: tuple[str, ...]) -> HistoryBody:
        """The response of ``GET /v1/history``."""
        points = [point_body(point) for point in self._history.points]
        return HistoryBody(started=self._started, arms=list(arms), points=points)
