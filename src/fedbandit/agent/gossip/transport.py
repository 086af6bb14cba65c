"""gRPC server and client between neighbours, with mutual TLS.

A certificate names its site in its only DNS name (SAN). The server passes that name on with every call, and a dialler
talks only to the intended site. Without TLS names are not verified: only for tests on one machine.
"""

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import grpc
import grpc.aio

from fedbandit.agent.gossip.tls import Certified, TlsFiles
from fedbandit.agent.gossip.tunnel import Front, Nameless, PlainEnd, TlsEnd, Tunnel, in_any_case, nameless
from fedbandit.agent.gossip.wire import MAX_BYTES
from fedbandit.agent.process.config import Address

__all__ = [
    "Dialler",
    "GossipServer",
    "IncomingCall",
    "NeighbourUnreachable",
    "Pace",
    "Refusals",
    "TurnedAway",
    "TurnsAway",
]


# ---------------------------------------------------------------- refusals


SECONDS = 10.0
"""A reason is logged at most once in this many seconds; the next line counts the suppressed ones."""


class Refusals:
    """Counts refused calls by reason, and logs few of them: strangers must not fill the disk.

    Thread-safe; ``clock`` gives seconds.
    """

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


# ---------------------------------------------------------------- calls over gRPC


SERVICE = "fedbandit.v1.Gossip"

PATIENCE = 2.0
"""Seconds until the message of a call must arrive: few calls run at once, and a silent one would occupy a slot."""

_TOO_LARGE = grpc.StatusCode.RESOURCE_EXHAUSTED

PLACES = 16
"""The most calls of one neighbour at once."""

CONNECTIONS = 4
"""The most connections of one neighbour; a further one replaces the oldest, which may be dead since it restarted."""

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_BYTES),
    ("grpc.max_send_message_length", MAX_BYTES),
    ("grpc.max_metadata_size", 16_384),
    ("grpc.http2.bdp_probe", 0),  # messages are small: pings that measure the bandwidth cost more than they save
)
_SERVER_OPTIONS = (
    *_OPTIONS,
    ("grpc.so_reuseport", 0),  # two agents on one port are a mistake, not a cluster
    ("grpc.max_concurrent_streams", PLACES),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # TLS checks certificates only when a connection begins.
    ("grpc.max_connection_age_ms", 3_600_000),
    ("grpc.max_connection_age_grace_ms", 5_000),
)
_DIALLER_OPTIONS = (
    *_OPTIONS,
    # Reconnects to a restarted neighbour within about a second.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Detects dead idle connections; see also GIVES_UP_AFTER.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # the link's clock retries
    ("grpc.enable_http_proxy", 0),  # a proxy from the environment would see who talks to whom
)


GIVES_UP_AFTER = 2
"""Consecutive unanswered calls after which a connection counts as dead: a firewall may have dropped it, and
gRPC, which limits its own pings, may not notice for many minutes."""


class TurnsAway(RuntimeError):
    """Raised by a handler to refuse a call. ``reason`` is counted; the message is sent back and logged."""

    def __init__(self, reason: str, message: str, code: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED) -> None:
        """Say why."""
        self.reason, self.code = reason, code
        super().__init__(message)


class NeighbourUnreachable(RuntimeError):
    """The neighbour did not answer, or its certificate has another name."""


class TurnedAway(RuntimeError):
    """The neighbour refused the call, with a reason."""

    def __init__(self, message: str, other_terms: bool) -> None:
        """``other_terms``: because the terms of the federation differ."""
        self.other_terms = other_terms
        super().__init__(message)


@dataclass(frozen=True)
class IncomingCall:
    """One incoming call: the caller's certified name (None without TLS), and its message."""

    caller: str | None
    data: bytes


Handler = Callable[[IncomingCall], Awaitable[bytes]]


class GossipServer:
    """Listens for neighbours.

    * ``handlers``: answer the calls of each method
    * ``admits``: whether a name is a neighbour's
    * ``refused``: is called with refused connections and calls
    """

    def __init__(
        self,
        address: Address,
        tls: TlsFiles | None,
        handlers: Mapping[str, Handler],
        admits: Callable[[str], bool],
        refused: Callable[[str, str], None],
    ) -> None:
        """Bind the address; ``start`` begins to serve."""
        self._handlers, self._admits, self._refused = handlers, admits, refused
        self._servers: dict[str, asyncio.Task[_NeighbourServer]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._front = self._open = None
        if tls is not None:
            self._front = Front(address, tls, admits, self._connected, refused)
            self.port = self._front.port
        else:
            self._open, self.port = self._listen_openly(address)

    async def start(self) -> None:
        """Begin to serve."""
        if self._front is not None:
            self._front.start()
        if self._open is not None:
            await self._open.start()

    async def stop(self, grace: float) -> None:
        """Stop; calls in progress may finish within ``grace`` seconds."""
        if self._front is not None:
            self._front.close()
        if self._open is not None:
            await self._open.stop(grace)
        await asyncio.gather(*(self._close(name, grace) for name in list(self._servers)))

    async def drop_strangers(self) -> None:
        """Close the connections of those who are no neighbours any more."""
        await asyncio.gather(*(self._close(name, 0.0) for name in list(self._servers) if not self._admits(name)))

    async def _close(self, name: str, grace: float) -> None:
        making = self._servers.pop(name)
        with contextlib.suppress(Exception):  # one that could not be made was counted
            await (await making).close(grace)

    # ---------------------------------------------------------------- with certificates

    def _connected(self, who: Certified, address: str, end: TlsEnd) -> None:
        task = asyncio.get_running_loop().create_task(self._admit(who, address, end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, who: Certified, address: str, end: TlsEnd) -> None:
        """Connect a neighbour to the server that knows it."""
        try:
            if who.name not in self._servers:
                self._servers[who.name] = asyncio.create_task(self._make_server(who.name))
            serving = await self._servers[who.name]
            if not self._admits(who.name):  # it has left meanwhile
                end.abort()
                return
            if serving.full:
                self._refused("connections", f"{who.name} at {address}: more than {CONNECTIONS}; the oldest is closed")
            await serving.connect(who, address, end)
        except Exception as error:
            end.abort()
            self._refused("internal error", f"{who.name} at {address}: {type(error).__name__}: {error}")

    async def _make_server(self, name: str) -> "_NeighbourServer":
        serving = _NeighbourServer(name)
        try:
            serving.server = server = self._server(PLACES, lambda _: name, lambda _: f"{name} at {serving.address}")
            _, serving.socket = nameless(lambda path: server.add_insecure_port(f"unix:{path}"))
            await server.start()
        except BaseException:
            self._servers.pop(name, None)  # the next connection tries again
            raise
        return serving

    # ---------------------------------------------------------------- without

    def _listen_openly(self, address: Address) -> tuple[grpc.aio.Server, int]:
        server = self._server(16 * PLACES, lambda _: None, lambda context: str(context.peer()))
        try:
            port = server.add_insecure_port(str(address))
        except RuntimeError as error:
            reason = str(error).partition("; set GRPC_VERBOSITY")[0]
            raise OSError(f"cannot listen for neighbours on {address}: {reason}") from None
        if port == 0:
            raise OSError(f"cannot listen for neighbours on {address}")
        return server, port

    # ---------------------------------------------------------------- calls

    def _server(self, places: int, caller: Callable[[Any], str | None], where: Callable[[Any], str]) -> grpc.aio.Server:
        """A server with so many places that hands on the caller's name; ``where`` is for the log."""
        server = grpc.aio.server(options=_SERVER_OPTIONS, maximum_concurrent_rpcs=places)
        methods = {
            method: _bytes_in_bytes_out(self._method(handler, caller, where))
            for method, handler in self._handlers.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        return server

    def _method(
        self, handler: Handler, caller: Callable[[Any], str | None], where: Callable[[Any], str]
    ) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
        async def answer(_: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                return await handler(IncomingCall(caller(context), await self._message(context)))
            except TurnsAway as refusal:
                self._refused(refusal.reason, f"{where(context)}: {refusal}")
                await context.abort(refusal.code, str(refusal))
            except Exception as error:
                # gRPC would log a traceback for every such call.
                self._refused("internal error", f"{where(context)}: {type(error).__name__}: {error}")
                await context.abort(grpc.StatusCode.INTERNAL, "internal error; see the agent's log")

        return answer

    @staticmethod
    async def _message(context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE):
                data = cast(Any, await context.read())
        except TimeoutError:
            raise TurnsAway("message", f"none came within {PATIENCE:g} s", grpc.StatusCode.DEADLINE_EXCEEDED) from None
        if not isinstance(data, bytes):  # the stream has ended
            raise TurnsAway("message", f"no message, or one of more than {MAX_BYTES} bytes", _TOO_LARGE)
        return data


class _NeighbourServer:
    """The server of one neighbour, with places of its own: its calls can wait for each other, and for nobody else's."""

    server: grpc.aio.Server
    socket: Nameless

    def __init__(self, name: str) -> None:
        self.name, self.address = name, ""
        self._ends: dict[TlsEnd, None] = {}

    @property
    def full(self) -> bool:
        """Whether another connection pushes out the oldest."""
        return len(self._ends) >= CONNECTIONS

    async def connect(self, who: Certified, address: str, end: TlsEnd) -> None:
        """Connect another tunnel; the oldest makes way."""
        while self.full:
            oldest = next(iter(self._ends))
            del self._ends[oldest]
            oldest.abort()
        self._ends[end], self.address = None, address

        def lost(_: Exception | None) -> None:
            self._ends.pop(end, None)

        end.lost = lost
        _, plain = await asyncio.get_running_loop().create_unix_connection(PlainEnd, self.socket.path)
        if end in self._ends:
            end.join(plain, who.until)
        else:  # it was pushed out, or is gone, meanwhile
            plain.transport.abort()

    async def close(self, grace: float) -> None:
        """Stop; calls in progress may finish within ``grace`` seconds."""
        await self.server.stop(grace)
        for end in list(self._ends):
            end.close()
        self.socket.close()


def _bytes_in_bytes_out(
    answer: Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]],
) -> "grpc.RpcMethodHandler[bytes, bytes]":
    """A method whose messages stay bytes: ``wire`` decodes them.

    On the wire a stream of one message is a message. gRPC's core does not tell a unary method about an oversized
    message; with a stream, the stream is empty, and we can count it.
    """
    return cast("grpc.RpcMethodHandler[bytes, bytes]", grpc.stream_unary_rpc_method_handler(cast(Any, answer)))


class Dialler:
    """A long-lived channel to one neighbour, reopened when it breaks."""

    def __init__(self, neighbour: str, address: Address, tls: TlsFiles | None) -> None:
        """Nothing is dialled before the first call."""
        self._neighbour, self._address = neighbour, address
        self._tunnel = None if tls is None else Tunnel(neighbour, address, tls)
        self._unanswered = 0
        self._opening = asyncio.Lock()  # or two calls that begin together would each open a channel
        self._channel: grpc.aio.Channel | None = None

    async def _opened(self) -> grpc.aio.Channel:
        async with self._opening:
            if self._channel is None:
                target = str(self._address) if self._tunnel is None else await self._tunnel.open()
                self._channel, self._unanswered = grpc.aio.insecure_channel(target, options=_DIALLER_OPTIONS), 0
            return self._channel

    async def call(self, method: str, data: bytes, timeout: float) -> bytes:
        """Send a call, and wait at most ``timeout`` seconds for the answer."""
        if self._unanswered >= GIVES_UP_AFTER:
            await self.close()
        channel = await self._opened()
        try:
            answer = cast(bytes, await channel.unary_unary(f"/{SERVICE}/{method}")(data, timeout=timeout))
            self._unanswered = 0
            return answer
        except grpc.aio.AioRpcError as error:
            self._unanswered = self._unanswered + 1 if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED else 0
            raise self._failure(error) from None

    async def wait(self, method: str, data: bytes, timeout: float) -> bytes:
        """Send a call that is answered when there is a change. It never closes the channel of other calls.

        If another call finds the connection dead and closes it, this one is cancelled.
        """
        channel = await self._opened()
        try:
            return cast(bytes, await channel.unary_unary(f"/{SERVICE}/{method}")(data, timeout=timeout))
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None

    def _failure(self, error: grpc.aio.AioRpcError) -> Exception:
        code, details = error.code(), error.details() or ""
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
            if self._tunnel is not None and self._tunnel.problem is not None:
                details = self._tunnel.problem
            return NeighbourUnreachable(f"{code.name.lower().replace('_', ' ')}: {details}")
        return TurnedAway(details or code.name, code == grpc.StatusCode.FAILED_PRECONDITION)

    async def close(self) -> None:
        """Close the channel and the connection behind it, also if this is cancelled meanwhile."""
        channel, self._channel = self._channel, None
        await in_any_case(self._closed(channel))

    async def _closed(self, channel: grpc.aio.Channel | None) -> None:
        if channel is not None:
            await channel.close()
        if self._tunnel is not None:
            await self._tunnel.close()
