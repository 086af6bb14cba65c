"""What a running agent writes to its log: the form of a line, each warning once, what it forgets."""

import json
import logging
import re
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Literal

from fedbandit.agent.core.decisions import Expired, Retention
from fedbandit.agent.core.notices import Note
from fedbandit.agent.process.config import SiteConfig

# ---------------------------------------------------------------- lines

LogFormat = Literal["text", "json"]

LogLevel = Literal["debug", "info", "warning", "error"]


class _JsonLines(logging.Formatter):
    """``ts`` (UTC), ``level``, ``logger``, ``message``, and ``exception`` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)  # ASCII: no character of a message can end or forge a line


def begin_log(form: LogFormat, level: LogLevel) -> None:
    """Log to standard error from now on, warnings of Python included."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(_JsonLines() if form == "json" else text)
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=least, handlers=[handler])
    # Libraries: uvicorn's name alarms, and we log the same; details of asyncio and websockets are not the operator's.
    for name in ("uvicorn.error", "asyncio", "websockets"):
        logging.getLogger(name).setLevel(max(least, logging.WARNING))
    if form == "json":
        logging.captureWarnings(capture=True)


# ---------------------------------------------------------------- warnings, when they begin and when they end

_NUMBER = r"(?<![\w.-])[0-9][0-9.,e+%-]*(?!\w)"  # not one within a name, such as north-2


def _head(warning: str) -> str:
    """What it is about: the words up to a colon, or to the end of a sentence; those after it may change meanwhile."""
    return re.split(r"[:.;] ", warning, maxsplit=1)[0].rstrip(".")


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
        lasting = {_head(key) for key in now}
        ended = {_head(key): _head(it) for key, it in self._said.items() if _head(key) not in lasting}
        for words in ended.values():
            self._log.info("no longer: %s", words)
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


# ---------------------------------------------------------------- decisions that were forgotten without a reward

SAID_EVERY = 60.0
"""Seconds between two lines of the log about it."""


class ForgottenDecisions:
    """``counts``: how many since this process started, by ``time`` and by ``keep``."""

    def __init__(self, log: logging.Logger, limits: Retention, has_window: bool) -> None:
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
