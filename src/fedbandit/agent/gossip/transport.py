"""gRPC between neighbours, with mutual TLS.

A certificate names its site in its one DNS name (SAN). The server passes that name on with every call, and a dialler
talks only to the site it means. Without TLS names are taken on trust: for trying things out on one machine.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import grpc
import grpc.aio

from fedbandit.agent.addresses import Address
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.gossip.wire import MAX_BYTES

__all__ = ["Call", "Dialler", "GossipServer", "TurnedAway", "TurnsAway", "Unreachable"]

SERVICE = "fedbandit.v1.Gossip"

PATIENCE = 2.0
"""Seconds until a call must have said what it wants: few run at once, and one that is silent would keep a place."""

_TOO_LARGE = grpc.StatusCode.RESOURCE_EXHAUSTED

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_BYTES),
    ("grpc.max_send_message_length", MAX_BYTES),
    ("grpc.max_metadata_size", 16_384),
)
_SERVER_OPTIONS = (
    *_OPTIONS,
    ("grpc.so_reuseport", 0),  # two agents on one port are a mistake, not a cluster
    ("grpc.max_concurrent_streams", 16),
    ("grpc.server_handshake_timeout_ms", 10_000),  # a stranger who only connects does not keep a descriptor
    ("grpc.max_allowed_incoming_connections", 256),  # nor do many: the application and the disk need some
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # Certificates are looked at when a connection begins: one that has expired since is found out within the hour.
    ("grpc.max_connection_age_ms", 3_600_000),
    ("grpc.max_connection_age_grace_ms", 5_000),
)
_DIALLER_OPTIONS = (
    *_OPTIONS,
    # A neighbour that is back after a restart is found again within about a second.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A connection that is dead and not used is noticed; see also GIVES_UP_AFTER.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),  # the link's clock tries again
    ("grpc.enable_http_proxy", 0),  # a proxy from the environment would see who talks to whom
)


GIVES_UP_AFTER = 2
"""Calls in a row without an answer after which a connection is taken for dead: a firewall may have forgotten it, and
gRPC, whose pings of an open connection have limits of their own, may not notice for many minutes."""


class TurnsAway(RuntimeError):
    """Raised by a handler: the caller is refused. ``reason`` is counted, the message is told and logged."""

    def __init__(self, reason: str, message: str, code: grpc.StatusCode = grpc.StatusCode.PERMISSION_DENIED) -> None:
        """Say why."""
        self.reason, self.code = reason, code
        super().__init__(message)


class Unreachable(RuntimeError):
    """The neighbour did not answer, or is not who it should be."""


class TurnedAway(RuntimeError):
    """The neighbour answered that it refuses, and why."""

    def __init__(self, message: str, other_terms: bool) -> None:
        """``other_terms``: because the terms of the federation differ."""
        self.other_terms = other_terms
        super().__init__(message)


@dataclass(frozen=True)
class Call:
    """One call that came in: from whom, as its certificate says (None: without TLS), and what it says."""

    caller: str | None
    data: bytes


Handler = Callable[[Call], Awaitable[bytes]]


class GossipServer:
    """Listens for neighbours. ``handlers`` answer the calls of a method; ``refused`` hears of those turned away."""

    def __init__(
        self,
        address: Address,
        tls: TlsFiles | None,
        handlers: Mapping[str, Handler],
        refused: Callable[[str, str], None],
    ) -> None:
        """Take the address; ``start`` begins to listen."""
        self._refused = refused
        self._server = grpc.aio.server(options=_SERVER_OPTIONS, maximum_concurrent_rpcs=64)
        methods = {name: _bytes_in_bytes_out(self._method(handler)) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        try:
            self.port = self._listen(str(address), tls)
        except RuntimeError as error:
            reason = str(error).partition("; set GRPC_VERBOSITY")[0]
            raise OSError(f"cannot listen for neighbours on {address}: {reason}") from None
        if self.port == 0:
            raise OSError(f"cannot listen for neighbours on {address}")
        self._secure = tls is not None

    def _listen(self, address: str, tls: TlsFiles | None) -> int:
        if tls is None:
            return self._server.add_insecure_port(address)
        pair = (tls.key, tls.certificate)
        return self._server.add_secure_port(
            address, grpc.ssl_server_credentials([pair], root_certificates=tls.ca, require_client_auth=True)
        )

    def _method(self, handler: Handler) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
        async def answer(messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                call = Call(self._caller(context), await self._message(messages))
                return await handler(call)
            except TurnsAway as refusal:
                self._refused(refusal.reason, f"{context.peer()}: {refusal}")
                await context.abort(refusal.code, str(refusal))
            except Exception as error:
                # gRPC would log a traceback for every such call.
                self._refused("mistake of this agent", f"{context.peer()}: {type(error).__name__}: {error}")
                await context.abort(grpc.StatusCode.INTERNAL, "a mistake in the agent; its log says more")

        return answer

    @staticmethod
    async def _message(messages: AsyncIterator[bytes]) -> bytes:
        try:
            async with asyncio.timeout(PATIENCE):
                async for data in messages:
                    return data
        except TimeoutError:
            raise TurnsAway("message", f"none came within {PATIENCE:g} s", grpc.StatusCode.DEADLINE_EXCEEDED) from None
        raise TurnsAway("message", f"no message, or one of more than {MAX_BYTES} bytes", _TOO_LARGE)

    def _caller(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> str | None:
        """The name in the caller's certificate, which the handshake has checked against the CA and the time."""
        if not self._secure:
            return None
        presented = context.auth_context()
        names = list(presented.get("x509_subject_alternative_name", []))  # of any type: also addresses and e-mail
        if len(names) != 1 or names != list(presented.get("peer_dns", [])):
            raise TurnsAway("certificate", f"a certificate must have one name (SAN), a DNS name, not {names}")
        return names[0].decode(errors="replace")

    async def start(self) -> None:
        """Begin to listen."""
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Let calls end, for at most so many seconds."""
        await self._server.stop(grace)


def _bytes_in_bytes_out(
    answer: Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]],
) -> "grpc.RpcMethodHandler[bytes, bytes]":
    """A method whose messages stay bytes: ``wire`` reads them.

    On the wire a stream of one message is a message. Of one that is too large gRPC's core tells a method for single
    messages nothing; here the stream is empty, and that can be counted.
    """
    return cast("grpc.RpcMethodHandler[bytes, bytes]", grpc.stream_unary_rpc_method_handler(cast(Any, answer)))


class Dialler:
    """The way to one neighbour: a channel that is kept open, and opened again when it breaks."""

    def __init__(self, neighbour: str, address: Address, tls: TlsFiles | None) -> None:
        """Nothing is dialled before the first call."""
        self._neighbour, self._address, self._tls = neighbour, str(address), tls
        self._unanswered = 0
        self._channel = self._opened()

    def _opened(self) -> grpc.aio.Channel:
        if self._tls is None:
            return grpc.aio.insecure_channel(self._address, options=_DIALLER_OPTIONS)
        # The neighbour's certificate must bear its name, whatever host it listens on.
        options = (*_DIALLER_OPTIONS, ("grpc.ssl_target_name_override", self._neighbour))
        credentials = grpc.ssl_channel_credentials(self._tls.ca, self._tls.key, self._tls.certificate)
        return grpc.aio.secure_channel(self._address, credentials, options=options)

    async def call(self, method: str, data: bytes, timeout: float) -> bytes:
        """Ask, and wait for the answer for at most so many seconds."""
        if self._unanswered >= GIVES_UP_AFTER:
            await self.close()
            self._channel, self._unanswered = self._opened(), 0
        try:
            answer = cast(bytes, await self._channel.unary_unary(f"/{SERVICE}/{method}")(data, timeout=timeout))
            self._unanswered = 0
            return answer
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
            self._unanswered = self._unanswered + 1 if code == grpc.StatusCode.DEADLINE_EXCEEDED else 0
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
                if "Hostname Verification" in details:
                    details = f"the certificate there does not bear the name {self._neighbour}"
                raise Unreachable(f"{code.name.lower().replace('_', ' ')}: {details}") from None
            raise TurnedAway(details or code.name, code == grpc.StatusCode.FAILED_PRECONDITION) from None

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()
