"""TLS between two sites in front of gRPC: handshake, the other end's certificate, then plain bytes to and from gRPC.

gRPC's own TLS neither limits unfinished handshakes nor reads names strictly, and says nowhere why a handshake failed.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from datetime import UTC, datetime

from fedbandit.agent.gossip.farewell import Farewell

__all__ = ["PlainEnd", "TlsEnd"]

SIZE = 32_768
"""Bytes read at once; nearly every message is smaller."""

GRACE = 1.0
"""Seconds in which the other end must take what is left when a connection closes."""


class TlsEnd(asyncio.BufferedProtocol):
    """The TLS end of a tunnel.

    * ``secure``: is given the other's certificate after the handshake; ``failed``: is told why there was none
    * ``lost``: is told when the connection has ended, and of the error if there was one
    """

    transport: asyncio.Transport

    def __init__(
        self,
        context: ssl.SSLContext,
        dialled: str | None,
        secure: Callable[["TlsEnd", bytes], None],
        failed: Callable[["TlsEnd", ssl.SSLError], None],
        lost: Callable[[Exception | None], None],
    ) -> None:
        """``dialled``: whom we dial; None: we were dialled."""
        self._secure, self._failed, self.lost = secure, failed, lost
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, dialled is None, dialled)
        self._buffer = memoryview(bytearray(SIZE))
        self._connected = self._is_secure = self._refused = False
        self._expiry: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._partner: PlainEnd | None = None
        self._farewell: Farewell | None = None
        self.ended = asyncio.Event()
        self.ended.set()  # there is no connection yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, if we dialled."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream
        self.transport, self._connected = transport, True
        self.ended.clear()
        self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._refused:
            return
        self._received.write(self._buffer[:nbytes])
        if self._is_secure:
            self._decrypt()
        else:
            self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self._error = error
            self._failed(self, error)
            return
        self._flush()
        self._is_secure = True
        self.transport.pause_reading()
        certificate = self._tls.getpeercert(binary_form=True)
        assert certificate is not None  # noqa: S101 - CERT_REQUIRED
        self._secure(self, certificate)

    def join(self, partner: "PlainEnd", until: datetime) -> None:
        """Pass bytes on to and from the other end of the tunnel, until the certificate expires."""
        self._partner = partner
        left = (until - datetime.now(UTC)).total_seconds()
        self._expiry = asyncio.get_running_loop().call_later(max(0.0, left), self.close)
        self.transport.resume_reading()
        self._decrypt()  # some may have come with the handshake
        partner.join(self)

    def _decrypt(self) -> None:
        tls = self._tls
        try:
            while not self._refused and (self._received.pending or tls.pending()):
                data = tls.read(SIZE)
                if not data:  # it has said goodbye
                    self.close()
                    return
                if self._partner is not None:
                    self._partner.transport.write(data)
                else:
                    self._answer(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._error = error
            self.close()
        self._flush()

    def _answer(self, data: bytes) -> None:
        if self._farewell is not None and (answer := self._farewell.answer(data)):
            self._tls.write(answer)
            self.hang_up()

    def send(self, data: memoryview) -> None:
        """Encrypt and send."""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._error = error
            self.close()
        self._flush()

    def refuse(self, told: str) -> None:
        """Tell the other end why it is refused, when it calls, and end the connection."""
        self._farewell = Farewell(told)
        self._tls.write(Farewell.GREETING)
        self._flush()
        self.transport.resume_reading()
        self._decrypt()

    def hang_up(self) -> None:
        """Send what is left and wait for the other end to close: a reset would overtake the reason."""
        self._flush()
        self._refused = True
        if not self.transport.is_closing():
            self.transport.write_eof()
            self.transport.resume_reading()

    def _flush(self) -> None:
        if self._to_send.pending and not self._refused:
            self.transport.write(self._to_send.read())

    def close(self) -> None:
        """End the tunnel."""
        if not self.transport.is_closing():
            with contextlib.suppress(ssl.SSLError):  # the other end's goodbye is not awaited
                self._tls.unwrap()
            self._flush()
            self.transport.close()
            asyncio.get_running_loop().call_later(GRACE, self.transport.abort)
        if self._partner is not None:
            self._partner.transport.close()

    def abort(self) -> None:
        """End the tunnel at once, whatever is left to send."""
        if self._connected:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The network is slow: gRPC waits."""
        if self._partner is not None:
            self._partner.transport.pause_reading()

    def resume_writing(self) -> None:
        """The network has caught up."""
        if self._partner is not None:
            self._partner.transport.resume_reading()

    def eof_received(self) -> bool:
        """The other end has closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._partner is not None:
            self._partner.transport.close()
        self.ended.set()
        self.lost(self._error or exc)


class PlainEnd(asyncio.BufferedProtocol):
    """gRPC's end of a tunnel."""

    transport: asyncio.Transport
    _tls: TlsEnd | None = None

    def __init__(self, made: Callable[["PlainEnd"], None] | None = None) -> None:
        """``made`` is called when gRPC has connected."""
        self._made, self._buffer = made, memoryview(bytearray(SIZE))
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the other end."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream
        self.transport = transport
        transport.pause_reading()
        if self._made is not None:
            self._made(self)

    def join(self, tls: TlsEnd) -> None:
        """Pass bytes on from now on."""
        self._tls = tls
        if self.transport.is_closing():
            tls.close()
        else:
            self.transport.resume_reading()

    def abort(self) -> None:
        """End it at once; before it is connected, ``made`` does."""
        if hasattr(self, "transport"):
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what gRPC says."""
        if self._tls is not None:
            self._tls.send(self._buffer[:nbytes])

    def pause_writing(self) -> None:
        """Wait for gRPC."""
        if self._tls is not None:
            self._tls.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on: gRPC has caught up."""
        if self._tls is not None:
            self._tls.transport.resume_reading()

    def eof_received(self) -> bool:
        """Let gRPC close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end with it."""
        self.ended.set()
        if self._tls is not None:
            self._tls.close()
