"""gRPC server and client between neighbours, with mutual TLS.

A certificate names its site in its only DNS name (SAN). The server passes that name on with every call, and a dialler
talks only to the intended site. Without TLS names are not verified: only for tests on one machine.
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
"""Seconds until the message of a call must arrive: few calls run at once, and a silent one would occupy a slot."""

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
    ("grpc.server_handshake_timeout_ms", 10_000),  # a stranger that only connects must not hold a descriptor
    ("grpc.max_allowed_incoming_connections", 256),  # nor may many: the application and the disk need some
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # TLS checks certificates only when a connection begins: this detects expiry within the hour.
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


class Unreachable(RuntimeError):
    """The neighbour did not answer, or its certificate has another name."""


class TurnedAway(RuntimeError):
    """The neighbour refused the call, with a reason."""

    def __init__(self, message: str, other_terms: bool) -> None:
        """``other_terms``: because the terms of the federation differ."""
        self.other_terms = other_terms
        super().__init__(message)


@dataclass(frozen=True)
class Call:
    """One incoming call: the caller's certified name (None without TLS), and its message."""

    caller: str | None
    data: bytes


Handler = Callable[[Call], Awaitable[bytes]]


class GossipServer:
    """Listens for neighbours. ``handlers`` answer the calls of each method; ``refused`` is told of refused calls."""

    def __init__(
        self,
        address: Address,
        tls: TlsFiles | None,
        handlers: Mapping[str, Handler],
        refused: Callable[[str, str], None],
    ) -> None:
        """Bind the address; ``start`` begins to serve."""
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
                self._refused("internal error", f"{context.peer()}: {type(error).__name__}: {error}")
                await context.abort(grpc.StatusCode.INTERNAL, "internal error; see the agent's log")

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
        """Begin to serve."""
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Stop; calls in progress may finish within ``grace`` seconds."""
        await self._server.stop(grace)


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
        """Send a call, and wait at most ``timeout`` seconds for the answer."""
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
        """Close the channel."""
        await self._channel.close()
