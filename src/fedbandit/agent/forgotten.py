"""Counts decisions that a running agent has forgotten without a reward, by reason, and says so in its log."""

import logging

from fedbandit.agent.core.forgetting import Expired, Limits

__all__ = ["SAID_EVERY", "ForgottenDecisions"]

SAID_EVERY = 60.0
"""Seconds between two lines of the log about it."""


class ForgottenDecisions:
    """``counts``: how many since this process started, by ``time`` and by ``keep``."""

    def __init__(self, log: logging.Logger, limits: Limits, has_window: bool) -> None:
        """Nothing is forgotten yet."""
        self._log, self._limits, self._has_window = log, limits, has_window
        self.counts = {"time": 0, "keep": 0}
        self._said, self._said_at = dict(self.counts), float("-inf")

    def count(self, expired: Expired) -> None:
        """So many were forgotten."""
        self.counts["time"] += expired.by_age
        self.counts["keep"] += expired.by_keep

    def say(self, now: float) -> None:
        """Log what has been forgotten since the last line, unless that is a moment ago."""
        new = {reason: count - self._said[reason] for reason, count in self.counts.items()}
        if not any(new.values()) or now - self._said_at < SAID_EVERY:
            return
        self._said, self._said_at = dict(self.counts), now
        why = {
            "time": f"older than decisions.expire_after_hours ({self._limits.expire_after / 3600.0:g})",
            "keep": f"more than decisions.keep ({self._limits.keep})",
        }
        counted = "their windows were over" if self._has_window else "the default counts for them"
        self._log.log(
            logging.INFO if self._has_window else logging.WARNING,
            "decisions forgotten without a reward: %s; %s",
            ", ".join(f"{count} {why[reason]}" for reason, count in new.items() if count),
            counted,
        )
