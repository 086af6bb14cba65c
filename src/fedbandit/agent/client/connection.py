"""Idle connections of a client, for the next call: the one that was used last comes first.

An HTTP library's own pool looks through all its connections with every call: with a hundred callers that costs more
than the call. Here each call has a pool of one connection for itself meanwhile, and none is looked for.
"""

import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpcore
from pydantic import ValidationError

from fedbandit.agent.client.calls import AgentError, Call, Unreachable, error_of
from fedbandit.checks import InvalidArgument, instance, number_above, whole_number

__all__ = ["BROKEN", "DEADLINE", "IDLE", "RETRIES", "TIMEOUT", "URL", "BoundedBackend", "Idle", "Settings"]


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


# ---------------------------------------------------------------- Bounds a blocking HTTP call as a whole: sockets


class _Until(threading.local):
    """When the call of this thread ends."""

    time = inf


class BoundedBackend(httpcore.NetworkBackend):
    """Connections on which a server that sends a byte now and then does not prolong a call."""

    def __init__(self) -> None:
        """No call is bounded yet."""
        self._inner, self._until = httpcore.SyncBackend(), _Until()

    @contextmanager
    def bound(self, seconds: float) -> Generator[None]:
        """What this thread does within takes so long at most."""
        self._until.time = monotonic() + seconds
        try:
            yield
        finally:
            self._until.time = inf

    def left(self, timeout: float | None) -> float | None:
        """How long a socket may wait now."""
        left = self._until.time - monotonic()
        if left <= 0.0:
            raise httpcore.ReadTimeout("timed out")
        return timeout if left == inf else left if timeout is None else min(timeout, left)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that answers, within the time of the call as a whole."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for *_, address in found:
            try:
                stream = self._inner.connect_tcp(
                    str(address[0]), port, self.left(timeout), local_address, socket_options
                )
                return _BoundedStream(stream, self)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed


class _BoundedStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, backend: BoundedBackend) -> None:
        self._inner, self._backend = inner, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._backend.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._backend.left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._backend.left(timeout))
        return _BoundedStream(inner, self._backend)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


# ---------------------------------------------------------------- What both clients of an agent do alike


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
