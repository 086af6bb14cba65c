"""Python client of an agent's HTTP API, blocking and for asyncio.

``calls`` describes each call once: its request, and how to read the answer. Here ``AsyncClient`` makes the calls with
aiohttp, and repeats those that broke off; ``Client`` lets it run on an event loop in a thread, because only there can a
call be ended as a whole: a socket knows no more than how long it may wait for the next byte. A reward is idempotent,
and so is a decision, which has a key: a repeated request gets the decision that the first one has handed out.
"""

import asyncio
import functools
import inspect
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit
from weakref import finalize

import aiohttp
from pydantic import ValidationError
from yarl import URL

from fedbandit.agent.client import calls
from fedbandit.agent.client.calls import (
    AgentError,
    ApiCall,
    ArmStopped,
    Cancelled,
    Decision,
    Forbidden,
    InvalidRequest,
    KeyReused,
    KnownDecision,
    LoggedDecision,
    NoArm,
    Reported,
    TooLateToCancel,
    Unauthorised,
    Unavailable,
    UnknownDecision,
    UnknownMember,
    Unreachable,
    error_of,
)
from fedbandit.checks import InvalidArgument, instance, number_above, whole_number

__all__ = [
    "AgentError",
    "ArmStopped",
    "AsyncClient",
    "Cancelled",
    "Client",
    "Decision",
    "Forbidden",
    "InvalidRequest",
    "KeyReused",
    "KnownDecision",
    "LoggedDecision",
    "NoArm",
    "Reported",
    "TooLateToCancel",
    "Unauthorised",
    "Unavailable",
    "UnknownDecision",
    "UnknownMember",
    "Unreachable",
]

_T = TypeVar("_T")
_P = ParamSpec("_P")

ADDRESS, TIMEOUT, DEADLINE, RETRIES = "http://127.0.0.1:8400", 1.0, 2.0, 3

KEEPALIVE = 2.0
"""Seconds for which an idle connection is kept; the agent closes it after 5, and a request must not race with that."""

LONGEST = 32_000_000
"""Bytes of an answer that are read: what is no agent may send without end."""

LAST_WORD = 0.2
"""Seconds that cleaning up may take where nobody waits for it."""

_PAUSES = (0.05, 0.2, 0.5, 1.0)
"""Seconds between attempts: an agent is back in less than a second. The last is repeated."""

_BROKEN = (aiohttp.ClientError, OSError, TimeoutError)
_NOT_SENT = aiohttp.ClientConnectorError
_UNBOUNDED = aiohttp.ClientTimeout(total=None, sock_connect=None)  # ``_run`` bounds a call as a whole


# ---------------------------------------------------------------- for asyncio


def _awaited(make: Callable[_P, ApiCall[_T]]) -> "Callable[Concatenate[AsyncClient, _P], Coroutine[Any, Any, _T]]":
    async def method(client: "AsyncClient", *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await client._run(make(*arguments, **named))  # pyright: ignore[reportPrivateUsage]

    return _described(method, make)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _described(method: _Method, make: Callable[..., Any]) -> _Method:
    """The method with name, docstring and parameters of its call."""
    functools.update_wrapper(method, make, assigned=("__name__", "__doc__"), updated=())
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = inspect.signature(make).parameters.values()
    method.__signature__ = inspect.Signature([first, *parameters])  # pyright: ignore[reportFunctionMemberAccess]
    return method


class AsyncClient:
    """A client for asyncio."""

    def __init__(
        self,
        url: str = ADDRESS,
        token: str | None = None,
        timeout: float = TIMEOUT,
        deadline: float = DEADLINE,
        retries: int = RETRIES,
    ) -> None:
        """Connects when it is first used.

        * ``timeout``: seconds per attempt
        * ``deadline``: seconds per call, with all attempts and the pauses between them
        * ``retries``: attempts after the first, within the deadline
        """
        self._url, self._headers = _checked_url(url), {"Accept": "application/json"}
        token = None if token is None else token.strip()  # as a file ends with a newline
        if token is not None:
            if not token.isascii() or not token.isprintable() or not token:
                raise InvalidArgument("token", "what was given", "visible ASCII characters")  # never shown
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout = number_above("timeout", timeout, 0.0)
        self._deadline = number_above("deadline", deadline, 0.0)
        self._retries = whole_number("retries", retries, 0, 1_000_000)
        self._sessions: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}

    decide = _awaited(calls.decide)
    decide_many = _awaited(calls.decide_many)
    decision = _awaited(calls.decision)
    cancel = _awaited(calls.cancel)
    reward = _awaited(calls.reward)
    rewards = _awaited(calls.rewards)
    federation = _awaited(calls.federation)
    state = _awaited(calls.state)
    evidence = _awaited(calls.evidence)
    audit_log = _awaited(calls.audit_log)
    history = _awaited(calls.history)
    ready = _awaited(calls.ready)
    arms = _awaited(calls.arms)
    change_arm = _awaited(calls.change_arm)
    accept_arm = _awaited(calls.accept_arm)
    member = _awaited(calls.member)
    exclude = _awaited(calls.exclude)
    include = _awaited(calls.include)
    confirm = _awaited(calls.confirm)
    restore = _awaited(calls.restore)

    async def log(self, after: int = 0) -> AsyncGenerator[LoggedDecision]:
        """Iterate over the decisions that the site remembers, oldest first, as they arrive.

        ``after``: only those with a larger number. No deadline: ``timeout`` bounds each read.
        """
        async for lines in self._lines(calls.log(after)):
            for line in lines:
                yield line

    async def close(self) -> None:
        """Close the connections."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: ApiCall[_T]) -> _T:
        """Make a call, and repeat it while it breaks off and there is time."""
        ends, attempt = time.monotonic() + self._deadline, 0
        while True:
            try:
                async with asyncio.timeout(min(self._timeout, ends - time.monotonic())):
                    async with self._asked(call) as answer:
                        content = await self._content(answer)
                return self._value(call, answer.status, content)
            except (*_BROKEN, Unavailable) as error:
                pause = _PAUSES[min(attempt, len(_PAUSES) - 1)]
                is_in_time = attempt < self._retries and pause < ends - time.monotonic()
                if not is_in_time or not (call.repeats or isinstance(error, _NOT_SENT)):
                    raise self._told(error) from None
            await asyncio.sleep(pause)
            attempt += 1

    async def _lines(self, call: ApiCall[_T]) -> AsyncGenerator[list[_T]]:
        """The lines of a stream, some at a time."""
        try:
            patience = aiohttp.ClientTimeout(sock_connect=self._timeout, sock_read=self._timeout)
            async with self._asked(call, patience) as answer:
                if answer.status != 200:
                    self._value(call, answer.status, await self._content(answer))
                left = b""
                async for chunk in answer.content.iter_any():
                    *lines, left = (left + chunk).split(b"\n")
                    yield [self._value(call, 200, line) for line in lines]
        except _BROKEN as error:
            raise self._told(error) from None

    def _asked(
        self, call: ApiCall[Any], patience: aiohttp.ClientTimeout = _UNBOUNDED
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:  # of this loop: connections belong to the one on which they were made
            session = self._sessions[loop] = aiohttp.ClientSession(
                # No limit: it is the application that knows how many calls it makes at once.
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
                auto_decompress=False,
                trust_env=False,  # no proxy: an agent is beside the application
            )
        return session.request(
            call.method,
            URL(self._url + call.path, encoded=True),
            data=call.body,
            headers=None if call.body is None else {"Content-Type": "application/json"},
            allow_redirects=False,
            timeout=patience,
        )

    async def _content(self, answer: aiohttp.ClientResponse) -> bytes:
        """The body of an answer, unless it is too long."""
        content = bytearray()
        async for chunk in answer.content.iter_any():
            content += chunk
            if len(content) > LONGEST:
                raise AgentError(f"{self._url} does not answer like an agent (more than {LONGEST // 1_000_000} MB)")
        return bytes(content)

    def _value(self, call: ApiCall[_T], status: int, content: bytes) -> _T:
        """The value of an answer; raises the error that it carries."""
        if 200 <= status < 300:
            try:
                return call.read(content)
            except (ValidationError, ValueError, RecursionError):
                said = None
        else:
            said = error_of(content)
        raise said or AgentError(f"{self._url} does not answer like an agent (status {status})")

    def _told(self, error: Exception) -> AgentError:
        """The error that the caller sees."""
        if isinstance(error, AgentError):
            return error
        return Unreachable(f"no answer from {self._url}: {_in_words(error)}")


def _checked_url(url: str) -> str:
    """The address of an agent, or an error: the library would find some mistakes only when it connects."""
    instance("url", url, str, f"an address such as {ADDRESS}")
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
        raise InvalidArgument("url", url, f"an address such as {ADDRESS}")
    return url.rstrip("/")


def _in_words(error: Exception) -> str:
    """Why there was no answer."""
    match error:
        case TimeoutError():
            return "timed out"
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed before the answer"
        case aiohttp.ClientPayloadError():
            return "the answer broke off"
        case OSError() if error.errno is not None and error.errno > 0:
            return os.strerror(error.errno)
        case _:
            return str(error) or type(error).__name__


# ---------------------------------------------------------------- blocking


class _LoopThread(threading.Thread):
    """An event loop that runs in a thread of its own, for all blocking clients of this process."""

    shared: "_LoopThread | None" = None
    starting = threading.Lock()

    def __init__(self) -> None:
        super().__init__(name="fedbandit client", daemon=True)
        self.loop = asyncio.new_event_loop()

    def run(self) -> None:
        """Run it until the process ends."""
        self.loop.run_forever()

    @classmethod
    def of_this_process(cls) -> "_LoopThread":
        """The one that runs; it starts with the first call."""
        if (thread := cls.shared) is None:
            with cls.starting:
                if (thread := cls.shared) is None:
                    thread = _LoopThread()
                    thread.start()
                    cls.shared = thread
        return thread

    @classmethod
    def forget(cls) -> None:
        """A process that was forked has a copy of the loop, and no thread that runs it."""
        cls.starting, cls.shared = threading.Lock(), None


os.register_at_fork(after_in_child=_LoopThread.forget)


def _waited(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of what runs on the loop; it is given up where the caller is interrupted."""
    future = asyncio.run_coroutine_threadsafe(work, _LoopThread.of_this_process().loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _tidied(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Clean up on the loop if that is still possible: Python may be ending, or this may be the loop's own thread."""
    if (thread := _LoopThread.shared) is not None:
        with suppress(Exception):
            future = asyncio.run_coroutine_threadsafe(work(), thread.loop)
            if threading.current_thread() is not thread:
                future.result(LAST_WORD)


def _blocking(make: Callable[_P, ApiCall[_T]]) -> "Callable[Concatenate[Client, _P], _T]":
    def method(client: "Client", *arguments: _P.args, **named: _P.kwargs) -> _T:
        call = make(*arguments, **named)
        return _waited(client._inner._run(call))  # pyright: ignore[reportPrivateUsage]

    return _described(method, make)


class Client:
    """A blocking client, with the methods of ``AsyncClient``. Usable from several threads."""

    def __init__(
        self,
        url: str = ADDRESS,
        token: str | None = None,
        timeout: float = TIMEOUT,
        deadline: float = DEADLINE,
        retries: int = RETRIES,
    ) -> None:
        """Connects when it is first used.

        * ``timeout``: seconds per attempt
        * ``deadline``: seconds per call, with all attempts and the pauses between them
        * ``retries``: attempts after the first, within the deadline
        """
        self._inner = AsyncClient(url, token, timeout, deadline, retries)
        finalize(self, _tidied, self._inner.close)

    decide = _blocking(calls.decide)
    decide_many = _blocking(calls.decide_many)
    decision = _blocking(calls.decision)
    cancel = _blocking(calls.cancel)
    reward = _blocking(calls.reward)
    rewards = _blocking(calls.rewards)
    federation = _blocking(calls.federation)
    state = _blocking(calls.state)
    evidence = _blocking(calls.evidence)
    audit_log = _blocking(calls.audit_log)
    history = _blocking(calls.history)
    ready = _blocking(calls.ready)
    arms = _blocking(calls.arms)
    change_arm = _blocking(calls.change_arm)
    accept_arm = _blocking(calls.accept_arm)
    member = _blocking(calls.member)
    exclude = _blocking(calls.exclude)
    include = _blocking(calls.include)
    confirm = _blocking(calls.confirm)
    restore = _blocking(calls.restore)

    def log(self, after: int = 0) -> Generator[LoggedDecision]:
        """Iterate over the decisions that the site remembers, oldest first, as they arrive.

        ``after``: only those with a larger number. No deadline: ``timeout`` bounds each read.
        """
        lines = self._inner._lines(calls.log(after))  # pyright: ignore[reportPrivateUsage]
        try:
            while (some := _waited(_next(lines))) is not None:
                yield from some
        finally:  # also where nobody reads on, perhaps while Python ends
            _tidied(lines.aclose)

    def close(self) -> None:
        """Close the connections."""
        if _LoopThread.shared is not None:  # otherwise there were none
            _waited(self._inner.close())

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _next(lines: AsyncGenerator[_T]) -> _T | None:
    return await anext(lines, None)
