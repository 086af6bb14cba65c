"""Counts refused calls by reason, and limits how often they are logged: strangers must not fill the disk."""

import logging
import threading
from collections import Counter
from collections.abc import Callable

__all__ = ["Pace", "Refusals"]

SECONDS = 10.0
"""A reason is logged at most once in this many seconds; the next line counts the suppressed ones."""


class Refusals:
    """Counts by reason. Thread-safe; ``clock`` gives seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float]) -> None:
        """Start with no refusals."""
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[float, int]] = {}

    def count(self, reason: str, message: str) -> None:
        """Count one refusal."""
        with self._lock:
            self._counts[reason] += 1
            count, now = self._counts[reason], self._clock()
            last, logged = self._logged.get(reason, (-SECONDS, 0))
            if now - last < SECONDS:
                return
            self._logged[reason] = now, count
        more = f" ({count - logged - 1} more since the last such line)" if count > logged + 1 else ""
        self._log.warning("refused (%s): %s%s", reason, message, more)

    def counts(self) -> dict[str, int]:
        """The number of refusals by reason."""
        with self._lock:
            return dict(self._counts)


class Pace:
    """Limits a log: a few lines at once, then one every ``SECONDS``."""

    AT_ONCE = 6

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with nothing logged; ``clock`` gives seconds."""
        self._clock, self._lines, self._since = clock, float(self.AT_ONCE), clock()

    def allows(self) -> bool:
        """Whether a line may be logged now; if so, it counts as logged."""
        now = self._clock()
        self._lines = min(self.AT_ONCE, self._lines + max(0.0, now - self._since) / SECONDS)
        self._since = now
        if self._lines < 1.0:
            return False
        self._lines -= 1.0
        return True
