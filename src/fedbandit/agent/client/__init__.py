"""Python client of an agent's HTTP API, blocking and for asyncio.

It imports only the state model of the server. Calls are described in ``client_calls``; here two runners make them, and
repeat those that broke off; what both do alike is in ``client_settings``. A reward is idempotent, and so is a decision,
which has a key: a repeated request gets the decision that the first one has handed out. A call ends by its deadline,
whatever the agent does.
"""

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from fedbandit.agent.client import calls as calls
from fedbandit.agent.client.calls import (
    AgentError,
    ArmStopped,
    Call,
    Cancelled,
    Decision,
    Forbidden,
    InvalidRequest,
    KeyReused,
    KnownDecision,
    LoggedDecision,
    NoArm,
    NotANeighbour,
    Reported,
    TooLateToCancel,
    Unauthorised,
    Unavailable,
    UnknownDecision,
    Unreachable,
)
from fedbandit.agent.client.connection import Idle

try:
    import httpcore

    from fedbandit.agent.client.connection import BROKEN, DEADLINE, RETRIES, TIMEOUT, URL, BoundedBackend, Settings
except ImportError as error:
    raise ImportError(
        "the client of an agent needs httpcore: pip install 'fedbandit[agent]'", name="httpcore"
    ) from error

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
    "NotANeighbour",
    "Reported",
    "TooLateToCancel",
    "Unauthorised",
    "Unavailable",
    "UnknownDecision",
    "Unreachable",
]

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _blocking(make: Callable[_P, Call[_T]]) -> "Callable[Concatenate[Client, _P], _T]":
    def method(client: "Client", *arguments: _P.args, **named: _P.kwargs) -> _T:
        return client._run(make(*arguments, **named))  # pyright: ignore[reportPrivateUsage]

    return _described(method, make)


def _awaited(make: Callable[_P, Call[_T]]) -> "Callable[Concatenate[AsyncClient, _P], Coroutine[Any, Any, _T]]":
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


class Client:
    """A blocking client. Usable from several threads."""

    def __init__(
        self,
        url: str = URL,
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
        self._settings = Settings(url, token, timeout, deadline, retries)
        self._network = BoundedBackend()
        self._idle = Idle(lambda: httpcore.ConnectionPool(**self._settings.pool, network_backend=self._network))

    decide = _blocking(calls.decide)
    decide_many = _blocking(calls.decide_many)
    decision = _blocking(calls.decision)
    cancel = _blocking(calls.cancel)
    reward = _blocking(calls.reward)
    rewards = _blocking(calls.rewards)
    federation = _blocking(calls.federation)
    state = _blocking(calls.state)
    ready = _blocking(calls.ready)
    arms = _blocking(calls.arms)
    change_arm = _blocking(calls.change_arm)
    accept_arm = _blocking(calls.accept_arm)
    leave = _blocking(calls.leave)
    rejoin = _blocking(calls.rejoin)
    confirm = _blocking(calls.confirm)
    restore = _blocking(calls.restore)

    def log(self, after: int = 0) -> Generator[LoggedDecision]:
        """Iterate over the decisions that the site remembers, oldest first, as they arrive.

        ``after``: only those with a larger number. No deadline: ``timeout`` bounds each read.
        """
        call, settings = calls.log(after), self._settings
        try:
            with self._connection() as pool, pool.stream(**settings.request(call, settings.timeout)) as answer:
                if answer.status != 200:
                    settings.value(call, answer.status, answer.read())
                left = b""
                for chunk in answer.iter_stream():
                    *lines, left = (left + chunk).split(b"\n")
                    for line in lines:
                        yield settings.value(call, 200, line)
        except BROKEN as error:
            raise settings.told(error) from None

    def close(self) -> None:
        """Close the connections."""
        for pool in self._idle.empty():
            pool.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _connection(self) -> Generator[httpcore.ConnectionPool]:
        pool = self._idle.take()
        try:
            yield pool
        finally:
            unused = self._idle.give(pool)
            if unused is not None:
                unused.close()

    def _run(self, call: Call[_T]) -> _T:
        settings, attempt = self._settings, 0
        ends = time.monotonic() + settings.deadline
        while True:
            within = min(settings.timeout, max(0.001, ends - time.monotonic()))
            try:
                content = bytearray()
                with (
                    self._connection() as pool,
                    self._network.bound(within),
                    pool.stream(**settings.request(call, within)) as answer,
                ):
                    for chunk in answer.iter_stream():
                        settings.add(content, chunk)
                return settings.value(call, answer.status, bytes(content))
            except (*BROKEN, Unavailable) as error:
                pause = settings.pause(call, error, attempt, ends - time.monotonic())
            time.sleep(pause)
            attempt += 1


class AsyncClient:
    """A client for asyncio, with the methods of ``Client`` as coroutines."""

    def __init__(
        self,
        url: str = URL,
        token: str | None = None,
        timeout: float = TIMEOUT,
        deadline: float = DEADLINE,
        retries: int = RETRIES,
    ) -> None:
        """As ``Client``."""
        self._settings = Settings(url, token, timeout, deadline, retries)
        self._idle = Idle(lambda: httpcore.AsyncConnectionPool(**self._settings.pool))

    decide = _awaited(calls.decide)
    decide_many = _awaited(calls.decide_many)
    decision = _awaited(calls.decision)
    cancel = _awaited(calls.cancel)
    reward = _awaited(calls.reward)
    rewards = _awaited(calls.rewards)
    federation = _awaited(calls.federation)
    state = _awaited(calls.state)
    ready = _awaited(calls.ready)
    arms = _awaited(calls.arms)
    change_arm = _awaited(calls.change_arm)
    accept_arm = _awaited(calls.accept_arm)
    leave = _awaited(calls.leave)
    rejoin = _awaited(calls.rejoin)
    confirm = _awaited(calls.confirm)
    restore = _awaited(calls.restore)

    async def log(self, after: int = 0) -> AsyncGenerator[LoggedDecision]:
        """As ``Client.log``, for ``async for``."""
        call, settings = calls.log(after), self._settings
        try:
            async with (
                self._connection() as pool,
                pool.stream(**settings.request(call, settings.timeout)) as answer,
            ):
                if answer.status != 200:
                    settings.value(call, answer.status, await answer.aread())
                left = b""
                async for chunk in answer.aiter_stream():
                    *lines, left = (left + chunk).split(b"\n")
                    for line in lines:
                        yield settings.value(call, 200, line)
        except BROKEN as error:
            raise settings.told(error) from None

    async def close(self) -> None:
        """Close the connections."""
        for pool in self._idle.empty():
            await pool.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[httpcore.AsyncConnectionPool]:
        pool = self._idle.take()
        try:
            yield pool
        finally:
            unused = self._idle.give(pool)
            if unused is not None:
                await unused.aclose()

    async def _run(self, call: Call[_T]) -> _T:
        settings, attempt = self._settings, 0
        ends = time.monotonic() + settings.deadline
        while True:
            within = min(settings.timeout, max(0.001, ends - time.monotonic()))
            try:
                content = bytearray()
                async with (
                    self._connection() as pool,
                    asyncio.timeout(within),
                    pool.stream(**settings.request(call, within)) as answer,
                ):
                    async for chunk in answer.aiter_stream():
                        settings.add(content, chunk)
                return settings.value(call, answer.status, bytes(content))
            except (*BROKEN, Unavailable) as error:
                pause = settings.pause(call, error, attempt, ends - time.monotonic())
            await asyncio.sleep(pause)
            attempt += 1
