"""TLS between two sites in front of gRPC: handshake, the other end's certificate, then plain bytes to and from gRPC.

gRPC's own TLS neither limits unfinished handshakes nor reads names strictly, and says nowhere why a handshake failed.
``Front`` accepts connections, and lets those in whose certificate names a neighbour; ``Tunnel`` dials one. gRPC listens
and dials on sockets without a name, which only this process reaches.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from ipaddress import IPv6Address
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from fedbandit.agent.gossip.tls import (
    Certified,
    TlsFiles,
    WrongName,
    certified,
    client_context,
    in_words,
    own_name,
    reason_of,
    server_context,
)
from fedbandit.agent.process.config import Address

__all__ = ["Front", "Nameless", "PlainEnd", "Refusal", "TlsEnd", "Tunnel", "in_any_case", "listening", "nameless"]


# ---------------------------------------------------------------- a refusal in the words of gRPC


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, 3.4
_HEADERS, _SETTINGS, _GOAWAY = 1, 4, 7
_LONGEST = 120  # longer texts need longer lengths, RFC 7541, 5.1
_HEAD = 9


class Refusal:
    """Reads a client's HTTP/2 up to its first call, and answers that with PERMISSION_DENIED and the reason.

    A connection that is closed without an answer would leave the other end's operator in the dark, and its gRPC would
    try again at once.
    """

    GREETING = bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))
    """What a server says first."""

    def __init__(self, reason: str) -> None:
        """``reason``: the reason."""
        self._reason, self._received, self._skip = reason, b"", len(_PREFACE)

    def answer(self, data: bytes) -> bytes:
        """Take bytes of the client; the answer to its call when that has begun, else nothing."""
        self._received += data
        while True:
            skipped = min(self._skip, len(self._received))
            self._received, self._skip = self._received[skipped:], self._skip - skipped
            if self._skip or len(self._received) < _HEAD:
                return b""
            if self._received[3] == _HEADERS:
                return self._refusal(int.from_bytes(self._received[5:9], "big") & 0x7FFFFFFF)
            self._skip = _HEAD + int.from_bytes(self._received[:3], "big")

    def _refusal(self, stream: int) -> bytes:
        fields = (
            b"\x88"
            + b"".join(  # :status 200
                b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
                for name, value in (
                    (b"content-type", b"application/grpc"),
                    (b"grpc-status", b"7"),
                    (b"grpc-message", quote(self._reason, safe=" ,:;'()[]").encode()[:_LONGEST]),
                )
            )
        )
        return _frame(_HEADERS, 5, stream, fields) + _frame(_GOAWAY, 0, 0, stream.to_bytes(4, "big") + bytes(4))


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


# ---------------------------------------------------------------- what must not be left open


async def in_any_case(closing: Coroutine[None, None, None]) -> None:
    """Close something to its end, also if this is cancelled meanwhile: else sockets stay open."""
    task, cancelled = asyncio.create_task(closing), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()


# ---------------------------------------------------------------- sockets without a name


Made = TypeVar("Made")


class Nameless:
    """A listening socket in no folder: the way to it is a handle of this process."""

    def __init__(self, handle: int) -> None:
        """Keep a handle to the socket's file, which has been removed."""
        self._handle = handle
        self.path = f"/proc/self/fd/{handle}"

    def close(self) -> None:
        """Forget it."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def nameless(listen: Callable[[str], Made]) -> tuple[Made, Nameless]:
    """Let ``listen`` make a socket at a path, and remove the path at once: a killed process leaves nothing behind."""
    folder = tempfile.mkdtemp(prefix="fedbandit-")  # nobody else may enter it
    inside = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    path = f"/proc/self/fd/{inside}/socket"  # short, wherever the folder is: the path of a socket has 107 bytes at most
    try:
        made = listen(path)
        return made, Nameless(os.open(path, os.O_PATH))
    finally:
        Path(path).unlink(missing_ok=True)
        os.close(inside)
        Path(folder).rmdir()


# ---------------------------------------------------------------- the two ends of a tunnel


SIZE = 32_768
"""Bytes read at once; nearly every message is smaller."""

GRACE = 1.0
"""Seconds in which the other end must take what is left when a connection closes."""


class TlsEnd(asyncio.BufferedProtocol):
    """The TLS end of a tunnel.

    * ``secure``: is called with the other's certificate after the handshake; ``failed``: with the error, if it fails
    * ``lost``: is called when the connection has ended, with the error if there was one
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
        self._refusal: Refusal | None = None
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
        if self._refusal is not None and (answer := self._refusal.answer(data)):
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

    def refuse(self, reason: str) -> None:
        """Tell the other end why it is refused, when it calls, and end the connection."""
        self._refusal = Refusal(reason)
        self._tls.write(Refusal.GREETING)
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


# ---------------------------------------------------------------- dialling


PATIENCE = 5.0
"""Seconds until a neighbour must have shown its certificate; gRPC may give up earlier."""


class Tunnel:
    """Where gRPC dials instead of the neighbour: every connection there leads to one with the neighbour."""

    def __init__(self, neighbour: str, address: Address, tls: TlsFiles) -> None:
        """Nothing is dialled before gRPC connects."""
        self._neighbour, self._address = neighbour, address
        self._context = client_context(tls)
        self._server: asyncio.Server | None = None
        self._socket: Nameless | None = None
        self._dialling: set[asyncio.Task[None]] = set()
        self._ends: set[PlainEnd] = set()
        self.problem: str | None = None
        """Why the last connection failed or broke; None if it has not."""

    async def open(self) -> str:
        """Listen; where gRPC must dial."""
        if self._socket is None:
            listener, self._socket = nameless(_listening)
            loop, ends = asyncio.get_running_loop(), self._ends

            def made() -> PlainEnd:
                end = PlainEnd(self._grpc_dials)
                ends.add(end)
                return end

            # Two steps: if the second is cancelled, ``close`` knows the server.
            self._server = await loop.create_unix_server(made, sock=listener, start_serving=False)
            await self._server.start_serving()
        return f"unix:{self._socket.path}"

    async def close(self) -> None:
        """Stop listening and end every connection. Afterwards none is open: the loop may end at once."""
        dialling, server, socket = list(self._dialling), self._server, self._socket
        ends, self._ends = self._ends, set[PlainEnd]()
        self._server = self._socket = None
        for task in dialling:
            task.cancel()
        try:
            for listener in () if server is None else server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            await asyncio.sleep(0)  # asyncio would lose a connection that it has accepted and not yet begun to serve
        finally:  # also if this is cancelled
            if server is not None:
                server.close()
            if socket is not None:
                socket.close()
        if dialling:
            await asyncio.wait(dialling)
        for end in ends:
            end.abort()  # a task that was cancelled before it began has not
            await end.ended.wait()

    def _grpc_dials(self, plain: PlainEnd) -> None:
        if plain not in self._ends:  # closed meanwhile
            plain.abort()
            return
        task = asyncio.get_running_loop().create_task(self._dial(plain))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _dial(self, plain: PlainEnd) -> None:
        """Lead a connection of gRPC to the neighbour, until both have ended."""
        loop = asyncio.get_running_loop()
        shown: asyncio.Future[bytes] = loop.create_future()

        def failed(error: Exception | None) -> None:
            if not shown.done():
                shown.set_exception(error or ConnectionResetError("it closed the connection"))
                shown.exception()  # seen, even if nobody waits any more

        end = TlsEnd(
            self._context,
            self._neighbour,
            lambda _, certificate: None if shown.done() else shown.set_result(certificate),
            lambda end, error: (failed(error), end.close())[-1],
            failed,
        )
        try:
            async with asyncio.timeout(PATIENCE):
                await loop.create_connection(lambda: end, self._address.host, self._address.port)
                who = certified(await shown)
            if who.name != self._neighbour:
                raise WrongName(f"the certificate there does not bear the name {self._neighbour}, but {who.name}")
            self.problem, end.lost = None, self._broken
            end.join(plain, who.until)
            await end.ended.wait()
            await plain.ended.wait()
        except (OSError, WrongName) as error:
            self.problem = _reason(error)
        finally:
            plain.abort()
            end.abort()
            await plain.ended.wait()
            await end.ended.wait()
            self._ends.discard(plain)

    def _broken(self, error: Exception | None) -> None:
        self.problem = None if error is None else _reason(error)  # None: gRPC knows more


def _listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(path)
    listener.listen(8)
    return listener


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {in_words(error)}"
    return f"TLS: {in_words(error)}" if isinstance(error, ssl.SSLError) else in_words(error)


# ---------------------------------------------------------------- listening


DEADLINE = 3.0
"""Seconds from connecting until the handshake must be finished."""

PER_ADDRESS, IN_ALL = 32, 128
"""The most unfinished handshakes."""

AT_ONCE = 16
"""The most connections accepted in one turn of the loop: others have their turn, too."""

BACKLOG = 512
PAUSE = 0.5
"""Seconds without accepting when the process has no descriptors left."""

UNFINISHED = "unfinished handshake"


class _Unfinished:
    """A connection whose other end is not known yet."""

    def __init__(self, caller: socket.socket, address: str, group: str) -> None:
        self.caller, self.address, self.group = caller, address, group
        self.spoke = self.counted = self.over = self.admitted = False
        self.deadline: asyncio.TimerHandle | None = None
        self.end: TlsEnd | None = None


class Front:
    """Listens for neighbours, and lets those in whose certificate names one.

    Strangers share a small allowance of unfinished handshakes, per address and in all. Whoever exceeds it pushes out
    the oldest one that has said nothing, else the oldest: silent strangers cannot keep out anyone who speaks, wherever
    they connect from. A handshake takes milliseconds; it may take ``DEADLINE`` seconds.

    * ``admits``: whether a name is a neighbour's
    * ``connected``: is called with a neighbour's connection and its address
    * ``refused``: is called for everybody else
    """

    def __init__(
        self,
        address: Address,
        tls: TlsFiles,
        admits: Callable[[str], bool],
        connected: Callable[[Certified, str, TlsEnd], None],
        refused: Callable[[str, str], None],
    ) -> None:
        """Bind the address; ``start`` begins to accept."""
        self._name = own_name(tls)
        self._admits, self._connected, self._refused = admits, connected, refused
        self._context = server_context(tls)
        self._listeners = listening(address)
        self.port: int = self._listeners[0].getsockname()[1]
        self._groups: dict[str, dict[_Unfinished, None]] = {}
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to accept."""
        for listener in self._listeners:
            self._resume(listener)

    def close(self) -> None:
        """Accept nobody any more."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        for group in list(self._groups.values()):
            for waiting in list(group):
                self._end(waiting)

    # ---------------------------------------------------------------- accepting

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                caller, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors: wait, or the loop would spin
                self._refused("no descriptors", f"cannot accept a connection: {error.strerror or error}")
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(PAUSE, self._resume, listener)
                return
            self._begin(caller, str(peer[0]), int(peer[1]))

    def _begin(self, caller: socket.socket, host: str, port: int) -> None:
        group = _group_of(host)
        self._make_room(group)
        caller.setblocking(False)
        waiting = _Unfinished(caller, str(Address(host, port)), group)
        self._groups.setdefault(group, {})[waiting] = None
        self._count += 1
        loop = asyncio.get_running_loop()
        waiting.deadline = loop.call_later(DEADLINE, self._late, waiting)
        loop.add_reader(caller, self._first_bytes, waiting)

    def _make_room(self, group: str) -> None:
        crowd = self._groups.get(group, {})
        if len(crowd) < PER_ADDRESS:
            if self._count < IN_ALL:
                return
            # The largest crowd, of those that have a silent one if there are any: whoever speaks stays.
            crowd = max(self._groups.values(), key=lambda it: (any(map(_is_silent, it)), len(it)))
        first = next(filter(_is_silent, crowd), next(iter(crowd)))  # the oldest one, of those if there are any
        self._refuse(first, UNFINISHED, f"{len(crowd)} from there at once")
        self._end(first)

    def _first_bytes(self, waiting: _Unfinished) -> None:
        """The first bytes have come, or the caller is gone."""
        loop = asyncio.get_running_loop()
        try:
            gone = not waiting.caller.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            gone = True
        if gone:
            self._lost(waiting, None)
            return
        loop.remove_reader(waiting.caller)
        waiting.spoke = True
        task = loop.create_task(self._shake_hands(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, waiting: _Unfinished) -> None:
        end = TlsEnd(
            self._context,
            None,
            lambda end, certificate: self._judge(waiting, end, certificate),
            lambda end, error: self._failed(waiting, end, error),
            lambda error: self._lost(waiting, error),
        )
        try:
            waiting.caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: end, waiting.caller)
        except OSError as error:
            waiting.caller.close()
            self._lost(waiting, error)
            return
        waiting.end = end
        if waiting.over and not waiting.admitted:  # it had to make room meanwhile
            end.abort()

    # ---------------------------------------------------------------- judging

    def _judge(self, waiting: _Unfinished, end: TlsEnd, certificate: bytes) -> None:
        try:
            who = certified(certificate)
        except WrongName as error:
            self._refuse(waiting, "certificate", str(error))
            end.refuse(str(error))
            return
        if not self._admits(who.name):
            reason = f"{who.name} is no neighbour of {self._name}, or has left"
            self._refuse(waiting, "not a neighbour", reason)
            end.refuse(reason)
            return
        self._forget(waiting)
        waiting.admitted = True
        self._connected(who, waiting.address, end)

    def _failed(self, waiting: _Unfinished, end: TlsEnd, error: ssl.SSLError) -> None:
        self._refuse(waiting, reason_of(error), in_words(error))
        end.hang_up()

    def _lost(self, waiting: _Unfinished, error: Exception | None) -> None:
        self._refuse(waiting, UNFINISHED, "closed by the caller" if error is None else in_words(error))
        self._end(waiting)

    def _late(self, waiting: _Unfinished) -> None:
        self._refuse(waiting, UNFINISHED, f"not finished within {DEADLINE:g} s")
        self._end(waiting)

    def _refuse(self, waiting: _Unfinished, reason: str, message: str) -> None:
        """Count a connection once; it may stay for a while, until its end has received the reason."""
        if not waiting.counted and not waiting.over:
            waiting.counted = True
            self._refused(reason, f"{waiting.address}: {message}")

    def _end(self, waiting: _Unfinished) -> None:
        if waiting.over:
            return
        self._forget(waiting)
        if waiting.end is not None:
            waiting.end.abort()
        elif not waiting.spoke:
            asyncio.get_running_loop().remove_reader(waiting.caller)
            waiting.caller.close()

    def _forget(self, waiting: _Unfinished) -> None:
        waiting.over = True
        if waiting.deadline is not None:
            waiting.deadline.cancel()
        group = self._groups[waiting.group]
        del group[waiting]
        self._count -= 1
        if not group:
            del self._groups[waiting.group]


def _group_of(host: str) -> str:
    """Addresses that one stranger may have: one of IPv4, a network of 64 bits of IPv6."""
    if ":" not in host:
        return host
    address = IPv6Address(host.partition("%")[0])
    return str(address.ipv4_mapped or address.packed[:8].hex())


def listening(address: Address) -> list[socket.socket]:
    """Sockets on all addresses that a host name has; ``::`` takes calls over IPv4, too."""
    listeners: list[socket.socket] = []
    port = address.port
    try:
        found = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, where in dict.fromkeys(found):
            listener = socket.socket(family, kind, protocol)
            listeners.append(listener)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address.host != "::")
            listener.bind((where[0], port, *where[2:]))
            listener.listen(BACKLOG)
            port = listener.getsockname()[1]
    except OSError as error:
        for listener in listeners:
            listener.close()
        failed = OSError(f"cannot listen for neighbours on {address}: {error.strerror or error}")
        failed.errno = error.errno
        raise failed from None
    return listeners


def _is_silent(waiting: _Unfinished) -> bool:
    return waiting.counted or not waiting.spoke
