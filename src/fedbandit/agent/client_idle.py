"""Idle connections of a client, for the next call: the one that was used last comes first.

An HTTP library's own pool looks through all its connections with every call: with a hundred callers that costs more
than the call. Here each call has a pool of one connection for itself meanwhile, and none is looked for.
"""

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Generic, TypeVar

__all__ = ["IDLE", "Idle"]

_Pool = TypeVar("_Pool")

IDLE = 2.0
"""Seconds; the server closes idle connections after 5, and a request must not race with that."""


class Idle(Generic[_Pool]):
    """Connections that nobody uses now. Usable from several threads: what a ``deque`` does is atomic."""

    def __init__(self, make: Callable[[], _Pool]) -> None:
        """``make`` a connection where there is none."""
        self._make = make
        self._idle: deque[tuple[float, _Pool]] = deque()

    def take(self) -> _Pool:
        """A connection for one call."""
        try:
            return self._idle.pop()[1]
        except IndexError:
            return self._make()

    def give(self, pool: _Pool) -> _Pool | None:
        """Give it back; returns one to be closed, which nobody has needed for a while."""
        self._idle.append((monotonic(), pool))
        try:
            since, oldest = self._idle.popleft()
        except IndexError:  # another thread was faster
            return None
        if monotonic() - since > IDLE:
            return oldest
        self._idle.appendleft((since, oldest))
        return None

    def empty(self) -> list[_Pool]:
        """All of them, to be closed."""
        found: list[_Pool] = []
        while self._idle:
            found.append(self._idle.pop()[1])
        return found
