"""One connection with a neighbour: TLS, the opening of a websocket, frames; dialling it, through a proxy if need be.

``websockets`` speaks the protocol without I/O; this drives it. TLS runs here rather than in asyncio, which would drop
the alert that tells the other end why a handshake failed. What the other end can make this one keep or do is bounded.
"""

import asyncio
import logging
import ssl
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from fedbandit.agent.gossip.frames import MAX_FRAME, MAX_WORDS
from fedbandit.agent.gossip.tls import Certified, WrongName, certified, in_words
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import DIRECT
from fedbandit.checks import printable

PATH, SUBPROTOCOL = "/bulletins", Subprotocol("fedbandit.bulletins.1")

SIZE = 16_384
"""Bytes read at once."""

ENOUGH = 65_536
"""Unsent bytes above which nothing more is sent of our own accord."""

TOO_MUCH = ENOUGH + 2 * MAX_FRAME
"""Unsent bytes above which the other end counts as one that does not read: it has asked for answers (pings)."""

SHARE, BURST = 0.05, 0.5
"""The share of the processor that one connection may cost, and the seconds that it may save up."""

GRACE, PATIENCE = 1.0, 8.0
"""Seconds in which the other end must take what is left when a connection closes, and must have opened the link."""

_SILENT = logging.getLogger("fedbandit.gossip.websocket")
_SILENT.setLevel(logging.CRITICAL + 1)  # strangers must not fill the log; ``Refusals`` counts them


class Closed(ConnectionError):
    """The other end closed or refused the connection, with the reason in words."""


class Account:
    """What a neighbour has cost of the processor: ``SHARE`` of each second is free, and up to ``BURST`` is saved up."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Nothing yet."""
        self._now, self._spent, self._since = now, 0.0, now()

    def spend(self, seconds: float) -> None:
        """Count time that it has cost."""
        now = self._now()
        self._spent = max(0.0, self._spent - SHARE * (now - self._since)) + seconds
        self._since = now

    def take_over(self, other: "Account") -> None:
        """What another has cost counts here, too."""
        self.spend(other._spent)

    @property
    def overdrawn(self) -> float:
        """The seconds until it has cost no more than its share."""
        return max(0.0, (self._spent - BURST) / SHARE - (self._now() - self._since))


class Connection(asyncio.BufferedProtocol):
    """A connection that was dialled or accepted. Its owner sets what is called.

    * ``judge``: after the handshake; says why the other end (``who``; None without TLS) is refused, or None
    * ``opened``, ``received``, ``writable``: frames can be sent; one has come; there is room to send again
    * ``failed``, ``lost``: the other end has broken a rule; the connection has ended, with the reason
    """

    transport: asyncio.Transport
    judge: "Callable[[Connection], str | None]"
    opened: "Callable[[Connection], None]"
    received: "Callable[[Connection, bytes], None]"
    writable: "Callable[[Connection], None]"
    failed: "Callable[[Connection, Exception], None]"
    lost: "Callable[[Connection, Exception], None]"

    def __init__(self, context: ssl.SSLContext | None, dialled: tuple[Address, str] | None) -> None:
        """``dialled``: the address, and what is said there in the clear (SNI); None: we were dialled."""
        self.dialled, self.who, self.address = dialled is not None, None, ""
        self._ws: ClientProtocol | ServerProtocol
        if dialled is None:
            self._ws = ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=MAX_FRAME, logger=_SILENT)
        else:
            uri = WebSocketURI(context is not None, dialled[0].host, dialled[0].port, PATH, "")
            self._ws = ClientProtocol(uri, subprotocols=[SUBPROTOCOL], max_size=MAX_FRAME, logger=_SILENT)
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if dialled is None else dialled[1]
        self._tls = context and context.wrap_bio(self._received, self._to_send, dialled is None, name)
        self._buffer = memoryview(bytearray(SIZE))
        self._is_secure = self._over = self._costs_too_much = self._held = False
        self._error: Exception | None = None
        self._why_not: str | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.account = Account(self._loop.time)
        self.heard_at, self._bytes_in, self._bytes_out = self._loop.time(), 0, 0
        self.ended = asyncio.Event()
        self.judge = self.opened = self.received = self.writable = self.failed = self.lost = _nothing

    who: Certified | None

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent."""
        return self._ws.state is OPEN and not self._over

    @property
    def has_room(self) -> bool:
        """Whether a frame may be sent now."""
        return self.is_open and self.transport.get_write_buffer_size() <= ENOUGH

    def take_counts(self) -> tuple[int, int]:
        """Bytes that were sent and received since the last call."""
        counts, self._bytes_in, self._bytes_out = (self._bytes_out, self._bytes_in), 0, 0
        return counts

    # ---------------------------------------------------------------- bytes from the network

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(ENOUGH)
        if self._tls is None:
            self._secured(None)
        else:
            self._shake_hands(self._tls)

    def take(self, data: bytes) -> None:
        """Bytes that were read before this began."""
        for first in range(0, len(data), SIZE):
            piece = data[first : first + SIZE]
            self._buffer[: len(piece)] = piece
            self.buffer_updated(len(piece))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._over:
            return
        self.heard_at = self._loop.time()
        self._bytes_in += nbytes
        try:
            if self._tls is None:
                self._feed(bytes(self._buffer[:nbytes]))
            else:
                self._received.write(self._buffer[:nbytes])
                (self._decrypt if self._is_secure else self._shake_hands)(self._tls)
        except ssl.SSLError as error:
            self._fail(error)
        self.spend(self._loop.time() - self.heard_at)

    def spend(self, seconds: float) -> None:
        """Count time that this connection has cost; reading pauses while it has cost more than its share."""
        self.account.spend(seconds)
        if not self._costs_too_much:
            self._read_if_paid()

    def _read_if_paid(self) -> None:
        left = self.account.overdrawn
        self._pause(self._held, left > 0.0)
        if left > 0.0 and not self.ended.is_set():
            self._loop.call_later(left, self._read_if_paid)

    def hold(self, held: bool) -> None:
        """Read nothing meanwhile."""
        self._pause(held, self._costs_too_much)

    def _pause(self, held: bool, costs_too_much: bool) -> None:
        was_paused, is_paused = self._held or self._costs_too_much, held or costs_too_much
        self._held, self._costs_too_much = held, costs_too_much
        if was_paused != is_paused and not self.transport.is_closing():
            (self.transport.pause_reading if is_paused else self.transport.resume_reading)()

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            self.failed(self, error)
            raise
        self._flush()
        self._is_secure = True
        self._secured(tls.getpeercert(binary_form=True))
        self._decrypt(tls)  # some may have come with the handshake

    def _secured(self, certificate: bytes | None) -> None:
        """The handshake is over: who is it, and is it welcome?"""
        try:
            if certificate is not None:
                self.who = certified(certificate)
                left = (self.who.until - datetime.now(UTC)).total_seconds()
                self._expiry = self._loop.call_later(max(0.0, left), self.close, "the certificate has expired")
            self._why_not = self.judge(self)
        except WrongName as error:
            self._why_not = str(error)
            self.failed(self, error)
        if isinstance(self._ws, ClientProtocol):
            if self._why_not is not None:  # not whom we mean: nothing is sent
                self._fail(Closed(self._why_not))
                return
            self._ws.send_request(self._ws.connect())
            self._send_protocol()

    def _decrypt(self, tls: ssl.SSLObject) -> None:
        try:
            while not self._over and (data := tls.read(SIZE)):
                self._feed(data)
            if not self._over:  # it has said goodbye
                self.eof_received()
        except ssl.SSLWantReadError:
            self._flush()  # whatever TLS itself has to say

    # ---------------------------------------------------------------- the websocket

    def _feed(self, data: bytes) -> None:
        self._ws.receive_data(data)
        for event in self._ws.events_received():
            if self._over:
                return
            if isinstance(event, Request):
                self._requested(event)
            elif isinstance(event, Frame):
                self._framed(event)
            elif self.is_open:  # the answer to our request
                self.opened(self)
        if self._ws.handshake_exc is not None:
            self._error = self._error or _refused(self._ws.handshake_exc)
        self._send_protocol()

    def _requested(self, request: Request) -> None:
        assert isinstance(self._ws, ServerProtocol)  # noqa: S101 - who is dialled
        if self._why_not is not None:
            response = self._ws.reject(403, self._why_not)
        elif request.path != PATH or SUBPROTOCOL not in request.headers.get("Sec-WebSocket-Protocol", ""):
            response = self._ws.reject(404, f"bulletins are at {PATH}, in {SUBPROTOCOL}")
        else:
            response = self._ws.accept(request)
        if response.status_code != 101:
            self.failed(self, Closed(response.body.decode(errors="replace")))
        self._ws.send_response(response)
        self._send_protocol()
        if self.is_open:
            self.opened(self)

    def _framed(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY and frame.fin:
            self.received(self, bytes(frame.data))
        elif frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self.failed(self, Closed("it sends text, or a frame in pieces"))
            self._ws.fail(1003, "frames are binary, and whole")
        elif frame.opcode is Opcode.CLOSE and self._ws.close_rcvd is not None:
            reason = printable(self._ws.close_rcvd.reason or "it closed the link", MAX_WORDS)
            self._error = self._error or Closed(reason)

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        if self.is_open:
            self._ws.send_binary(frame)
            self._send_protocol()

    def ping(self) -> None:
        """Ask for a sign of life; the answer shows in ``heard_at``."""
        if self.is_open:
            self._ws.send_ping(b"")
            self._send_protocol()

    def _send_protocol(self) -> None:
        """Send what the protocol has to say; it ends with nothing when it is over."""
        for data in self._ws.data_to_send():
            if not data:
                self._end_gently()
            elif self._tls is None:
                self._write(data)
            elif not self._over:
                self._tls.write(data)
                self._flush()

    def _flush(self) -> None:
        if self._to_send.pending:
            self._write(self._to_send.read())

    def _write(self, data: bytes) -> None:
        if self._over:
            return
        self._bytes_out += len(data)
        self.transport.write(data)
        if self.transport.get_write_buffer_size() > TOO_MUCH:
            self._error = Closed("it asks for answers, and does not read them")
            self.failed(self, self._error)
            self.abort()

    # ---------------------------------------------------------------- the end

    def close(self, words: str) -> None:
        """End it; the other end receives the reason."""
        self._error = self._error or Closed(words)
        if self.is_open:
            self._ws.send_close(1000, words.encode()[:120].decode(errors="ignore"))
            self._send_protocol()
            self._loop.call_later(GRACE, self.abort)
        else:
            self.abort()

    def _fail(self, error: Exception) -> None:
        """It cannot go on. What TLS has to say of the reason is sent."""
        self._error = self._error or error
        self._flush()
        self._end_gently()

    def _end_gently(self) -> None:
        """Wait for the other end to close: a reset would overtake the reason."""
        if not self._over and not self.transport.is_closing():
            self._over = True
            with suppress(OSError):  # the other end is gone
                self.transport.write_eof()
            self._loop.call_later(GRACE, self.abort)

    def abort(self) -> None:
        """End it at once, whatever is left to send."""
        self._over = True
        if hasattr(self, "transport"):
            self.transport.abort()

    def resume_writing(self) -> None:
        """There is room again."""
        if self.is_open:
            began = self._loop.time()
            self.writable(self)
            self.spend(self._loop.time() - began)

    def eof_received(self) -> bool:
        """The other end has closed."""
        if not self._over:
            self._ws.receive_eof()
            if self._tls is not None and not self._is_secure:
                self._error = Closed("it closed the connection during the TLS handshake")
            self.transport.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._over = True
        if self._expiry is not None:
            self._expiry.cancel()
        self.ended.set()
        self.lost(self, self._error or exc or Closed("it closed the connection"))


def _nothing(*_: object) -> None:
    pass


def _refused(error: Exception) -> Exception:
    """What the other end says of a handshake that it did not accept."""
    if isinstance(error, InvalidStatus):
        words = (error.response.body or b"").decode(errors="replace").strip()
        return Closed(f"it refuses: {printable(words or f'HTTP {error.response.status_code}', MAX_WORDS)}")
    return Closed(f"no websocket: {error}")


# ---------------------------------------------------------------- dialling


async def dial(connection: Connection, address: Address, proxy: str | None) -> None:
    """Connect, until the link is open; ``OSError`` with the reason (``Closed``, ``ssl.SSLError`` among them)."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    then = connection.opened

    def opened(_: Connection) -> None:
        then(connection)  # at once: the first frame may have come with the answer
        if not done.done():
            done.set_result(None)

    def lost(_: Connection, error: Exception) -> None:
        if not done.done():
            done.set_exception(error)
            done.exception()  # seen, even if nobody waits any more

    connection.opened, connection.lost, connection.address = opened, lost, str(address)
    try:
        async with asyncio.timeout(PATIENCE):
            through = proxy_for(address, proxy)
            if through is None:
                await loop.create_connection(lambda: connection, address.host, address.port)
            else:
                await _through(through, connection, address)
            await done
    except BaseException:
        connection.abort()
        raise


def proxy_for(address: Address, proxy: str | None) -> str | None:
    """The proxy on the way to an address: as configured, or else as the environment says; none on this machine."""
    if proxy is not None:
        return None if proxy == DIRECT else proxy
    return None if address.is_loopback or proxy_bypass(address.host) else getproxies().get("https")


async def _through(proxy: str, connection: Connection, address: Address) -> None:
    """Let an HTTP proxy connect (RFC 9110, 9.3.6)."""
    where = urlsplit(proxy)
    if where.scheme != "http" or where.hostname is None:
        raise Closed("the proxy must be http://host:port")
    asked, port = f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n", where.port or 80
    if where.username is not None:
        user = f"{unquote(where.username)}:{unquote(where.password or '')}"
        asked += f"Proxy-Authorization: Basic {b64encode(user.encode()).decode()}\r\n"
    try:
        reader, writer = await asyncio.open_connection(where.hostname, port, limit=SIZE)
    except OSError as error:
        raise Closed(f"the proxy {where.hostname}:{port} cannot be reached: {in_words(error)}") from None
    try:
        writer.write(f"{asked}\r\n".encode())
        try:
            answer = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            raise Closed(f"the proxy {where.hostname} closes the connection without an answer") from None
        status = answer.split(b"\r\n", 1)[0].decode("ascii", "replace")
        if not (status.startswith("HTTP/1.") and status.partition(" ")[2].startswith("2")):
            raise Closed(f"the proxy {where.hostname} refuses to connect to {address}: {printable(status)}")
        sock = writer.get_extra_info("socket").dup()
    finally:
        writer.transport.abort()  # this handle of the socket alone: the connection lives on in the copy
    await asyncio.get_running_loop().create_connection(lambda: connection, sock=sock)
