"""What both clients of an agent do alike: settings, headers, what an answer means, and whether to try again."""

from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpcore
from pydantic import ValidationError

from fedbandit.agent.client_calls import Call
from fedbandit.agent.client_errors import AgentError, Unreachable, error_of
from fedbandit.agent.client_idle import IDLE
from fedbandit.checks import InvalidArgument, instance, number_above, whole_number

__all__ = ["BROKEN", "DEADLINE", "RETRIES", "TIMEOUT", "URL", "Settings"]

_T = TypeVar("_T")

_WAITS = (0.05, 0.2, 0.5, 1.0)
"""Seconds between attempts: an agent is back in less than a second. The last is repeated."""

_NOT_SENT = (httpcore.ConnectError, httpcore.ConnectTimeout)
BROKEN = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, TimeoutError, OSError)

URL, TIMEOUT, DEADLINE, RETRIES = "http://127.0.0.1:8400", 1.0, 2.0, 3

_LONGEST = 32_000_000
"""Bytes of an answer that are read: what is no agent may send without end."""


def _checked_url(url: str) -> str:
    """The address of an agent, or an error: a library would find some mistakes only when it connects."""
    instance("url", url, str, f"an address such as {URL}")
    try:
        parts = urlsplit(url)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or bool(parts.query or parts.fragment)
        wrong = (
            wrong or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url or parts.port == 0
        )
        (parts.hostname or "").encode("idna")  # refuses parts of a name that are too long
    except ValueError:
        wrong = True
    if wrong:
        raise InvalidArgument("url", url, f"an address such as {URL}")
    return url.rstrip("/")


class Settings:
    """What both clients do alike: settings, headers, what an answer means, and whether to try again."""

    def __init__(self, url: str, token: str | None, timeout: float, deadline: float, retries: int) -> None:
        """Check them."""
        self.url = _checked_url(url)
        token = None if token is None else token.strip()  # as a file ends with a newline
        if token is not None and (not token.isascii() or not token.isprintable() or not token):
            raise InvalidArgument("token", "what was given", "visible ASCII characters")  # never shown
        self.timeout = number_above("timeout", timeout, 0.0)
        self.deadline = number_above("deadline", deadline, 0.0)
        self.retries = whole_number("retries", retries, 0, 1_000_000)
        # httpcore would write the address of an IPv6 host without its brackets.
        self._headers = {"Host": urlsplit(self.url).netloc, "Accept": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        # No proxy: an agent is beside the application.
        self.pool: dict[str, Any] = {"max_connections": 1, "keepalive_expiry": IDLE}
        if urlsplit(url).scheme == "https":
            self.pool["ssl_context"] = httpcore.default_ssl_context()  # one for all: to make one takes long

    def request(self, call: Call[Any], within: float) -> dict[str, Any]:
        """The arguments of a request."""
        has_body = call.body is not None
        return {
            "method": call.method,
            "url": self.url + call.path,
            "headers": {**self._headers, "Content-Type": "application/json"} if has_body else self._headers,
            "content": call.body,
            "extensions": {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), within)},
        }

    def value(self, call: Call[_T], status: int, content: bytes) -> _T:
        """The value of an answer; raises the error that it carries."""
        if 200 <= status < 300:
            try:
                return call.read(content)
            except (ValidationError, ValueError, RecursionError):
                said = None
        else:
            said = error_of(content)
        raise said or AgentError(f"{self.url} does not answer like an agent (status {status})")

    def add(self, content: bytearray, chunk: bytes) -> None:
        """Add a part of an answer to it, unless it becomes too long."""
        if len(content) + len(chunk) > _LONGEST:
            raise AgentError(f"{self.url} does not answer like an agent (more than {_LONGEST // 1_000_000} MB)")
        content += chunk

    def pause(self, call: Call[Any], error: Exception, attempt: int, left: float) -> float:
        """Seconds until the next attempt; raises what the caller sees if there is none."""
        wait = _WAITS[min(attempt, len(_WAITS) - 1)]
        if attempt < self.retries and wait < left and (call.repeats or isinstance(error, _NOT_SENT)):
            return wait
        raise self.told(error) from None

    def told(self, error: Exception) -> AgentError:
        """The error that the caller sees."""
        if isinstance(error, AgentError):
            return error
        return Unreachable(f"no answer from {self.url}: {str(error) or 'timed out'}")
