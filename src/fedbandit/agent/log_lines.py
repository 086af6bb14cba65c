"""What an agent logs to standard error: lines for people, or one JSON object per line for a log collector."""

import json
import logging
from datetime import UTC, datetime
from typing import Literal

__all__ = ["LEVELS", "LogFormat", "LogLevel", "begin_log"]

LogFormat = Literal["text", "json"]

LogLevel = Literal["debug", "info", "warning", "error"]

LEVELS: dict[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


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
    logging.basicConfig(level=LEVELS[level], handlers=[handler])
    # Libraries: uvicorn's name alarms, and we log the same; details of asyncio and gRPC are not the operator's.
    for name in ("uvicorn.error", "asyncio", "grpc"):
        logging.getLogger(name).setLevel(max(LEVELS[level], logging.WARNING))
    if form == "json":
        logging.captureWarnings(capture=True)
