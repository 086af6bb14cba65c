"""Logs each warning when it begins and when it ends, not every second."""

import logging
import re
from collections.abc import Iterable

__all__ = ["WarningLog"]

_NUMBERS = re.compile(r"[0-9][0-9.,e+%-]*")


class WarningLog:
    """What was said: the numbers in a warning may change while it lasts."""

    def __init__(self, log: logging.Logger) -> None:
        """Nothing was said yet."""
        self._log = log
        self._said: dict[str, str] = {}

    def notice(self, warnings: Iterable[str]) -> None:
        """These hold now."""
        now = {_NUMBERS.sub("", warning): warning for warning in warnings}
        for key, warning in now.items():
            if key not in self._said:
                self._log.warning("%s", warning)
        for key, warning in self._said.items():
            if key not in now:
                self._log.info("no longer: %s", warning)
        self._said = now
