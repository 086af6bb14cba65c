"""Logs each warning when it begins and when it ends, not every second."""

import logging
import re
from collections.abc import Iterable
from dataclasses import fields

from fedbandit.agent.config import SiteConfig
from fedbandit.agent.core.notices import Note
from fedbandit.checks import shortened

__all__ = ["RestartLog", "WarningLog"]

_NUMBER = r"(?<![\w.-])[0-9][0-9.,e+%-]*(?!\w)"  # not one within a name, such as north-2


class WarningLog:
    """What was said: the numbers in a warning may change while it lasts."""

    def __init__(self, log: logging.Logger, names: Iterable[str] = ()) -> None:
        """Nothing was said yet. ``names``: of the arms; numbers within them do not change."""
        self._log = log
        self._names = frozenset(names)
        longest_first = sorted(self._names, key=len, reverse=True)
        self._changing = re.compile("|".join([*map(re.escape, longest_first), _NUMBER]))
        self._said: dict[str, str] = {}

    def notice(self, warnings: Iterable[str]) -> None:
        """These hold now."""
        now = {self._key(warning): warning for warning in warnings}
        for key, warning in now.items():
            if key not in self._said:
                self._log.log(logging.INFO if isinstance(warning, Note) else logging.WARNING, "%s", warning)
        for key, warning in self._said.items():
            if key not in now:
                self._log.info("no longer: %s", shortened(warning, 60))  # it was told in full
        self._said = now

    def _key(self, warning: str) -> str:
        """The same while a warning lasts."""
        return self._changing.sub(lambda it: it[0] if it[0] in self._names else "", warning)


class RestartLog:
    """What a changed configuration file says and a running agent does not apply."""

    def __init__(self, log: logging.Logger) -> None:
        """The file is as the agent has read it."""
        self._log = log
        self._differs: list[str] = []

    def notice(self, running: SiteConfig, found: SiteConfig) -> None:
        """The file was changed, to this."""
        before, file = self._differs, found.path.name
        self._differs = [it.name for it in fields(found) if getattr(found, it.name) != getattr(running, it.name)]
        others = [name for name in self._differs if name != "terms"]
        if "terms" in self._differs:
            self._log.warning(
                "%s: the [federation] section has changed; this agent keeps the old one. New terms make a new "
                "federation: every site needs them, and an empty data folder",
                file,
            )
        elif "terms" in before:
            self._log.info("%s: the [federation] section is again the one that this agent runs with", file)
        if others:
            self._log.warning("%s: restart to apply: %s", file, ", ".join(others))
        elif before and not self._differs and before != ["terms"]:
            self._log.info("%s: nothing needs a restart any more", file)
