"""Accepts connections, and lets those in whose certificate names a neighbour. Strangers cannot keep neighbours out.

A connection first says whom it means (TLS ClientHello). Who shows there a word that only members of the federation
know waits in a line of its own: strangers, however many and from whichever address, push out no member. Strangers make
room for each other, the oldest first, but each connection has ``GUARANTEED`` seconds to say whom it means: accepting
waits for that. Handshakes, which cost, begin at a bounded rate in each line.
"""

import asyncio
import logging
import socket
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from ipaddress import IPv6Address

from fedbandit.agent.gossip.connection import Connection
from fedbandit.agent.gossip.tls import TlsFiles, WrongName, in_words, means, reason_of, server_context
from fedbandit.agent.process.addresses import Address

DEADLINE = 3.0
"""Seconds from connecting until the link must be open."""

PER_ADDRESS, IN_ALL = 32, 128
"""The most strangers' connections that are not open yet."""

MEMBERS = 128
"""The most members' connections that are not open yet."""

GUARANTEED = 0.1
"""Seconds that a connection has to say whom it means, however large the crowd is: accepting waits for that."""

HANDSHAKES, AT_ONCE = 20.0, 50
"""Handshakes in a second in each line; so many may be saved up."""

TURN = 16
"""The most connections accepted in one turn of the loop: others have their turn, too."""

BACKLOG = 512
PAUSE = 0.5
"""Seconds without accepting when the process has no descriptors left."""

UNFINISHED = "unfinished handshake"

_HANDSHAKE, _RECORD = 22, 5
LONGEST_HELLO = 16_384 + _RECORD


# ---------------------------------------------------------------- refusals

SECONDS = 10.0
"""A reason is logged at most once in this many seconds; the next line counts the suppressed ones."""


class Refusals:
    """Counts refusals by reason, and logs few of them: strangers must not fill the disk.

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


# ---------------------------------------------------------------- the first message


def is_whole(said: bytes) -> bool:
    """Whether the first message has come, or what has come is no TLS."""
    if said and said[0] != _HANDSHAKE:
        return True
    return len(said) >= _RECORD and len(said) >= min(_RECORD + int.from_bytes(said[3:5], "big"), LONGEST_HELLO)


def server_name_in(said: bytes) -> str:
    """The name (SNI) in a TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3); nothing if there is none."""
    try:
        at = _RECORD + 4 + 2 + 32  # headers, version, random
        at += 1 + said[at]  # session
        at += 2 + int.from_bytes(said[at : at + 2], "big")  # ciphers
        at += 1 + said[at]  # compression
        end = at + 2 + int.from_bytes(said[at : at + 2], "big")
        at += 2
        while at + 4 <= min(end, len(said)):
            kind, length = int.from_bytes(said[at : at + 2], "big"), int.from_bytes(said[at + 2 : at + 4], "big")
            if kind == 0:
                return said[at + 9 : at + 4 + length].decode("ascii")
            at += 4 + length
    except (IndexError, UnicodeDecodeError):
        pass
    return ""


# ---------------------------------------------------------------- connections that are not open yet


class _Unfinished:
    """A connection whose other end is not known yet."""

    def __init__(self, caller: socket.socket, address: Address, now: float) -> None:
        self.caller, self.address, self.group, self.since = caller, address, _group_of(address.host), now
        self.said, self.is_member = b"", False
        self.counted = self.over = False
        self.deadline: asyncio.TimerHandle | None = None
        self.connection: Connection | None = None


class Listener:
    """Listens for neighbours.

    * ``judge``: why the owner of a certificate is refused (reason to count, words), or None
    * ``opened``: is called with each connection that is open
    * ``refused``: is called for all others (reason, message)
    """

    def __init__(
        self,
        address: Address,
        tls: TlsFiles | None,
        word: str,
        judge: Callable[[Connection], tuple[str, str] | None],
        opened: Callable[[Connection], None],
        refused: Callable[[str, str], None],
    ) -> None:
        """Bind the address; ``start`` begins to accept. ``word``: what members say to this site."""
        self._word, self._judge, self._opened, self._refused = word, judge, opened, refused
        self._context: ssl.SSLContext | None = None if tls is None else server_context(tls)
        self._sockets = listening(address)
        self.port: int = self._sockets[0].getsockname()[1]
        self._strangers: dict[str, dict[_Unfinished, None]] = {}
        self._members: dict[_Unfinished, None] = {}
        self._count = 0
        self._resting: set[_Unfinished] = set()
        self._lines = _Line(self._start), _Line(self._start)  # members, strangers
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to accept."""
        for listener in self._sockets:
            self._resume(listener)

    def close(self) -> None:
        """Accept nobody any more."""
        for listener in self._sockets:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for waiting in self._resting:
            waiting.caller.close()
        for waiting in [*self._members, *(it for group in self._strangers.values() for it in group)]:
            self._end(waiting)

    # ---------------------------------------------------------------- accepting

    def _resume(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _rest(self, listener: socket.socket, seconds: float, then: Callable[[], None] = lambda: None) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(seconds, lambda: (then(), self._resume(listener)))

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(TURN):
            try:
                caller, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors: wait, or the loop would spin
                self._refused("no descriptors", f"cannot accept a connection: {error.strerror or error}")
                self._rest(listener, PAUSE)
                return
            caller.setblocking(False)
            waiting = _Unfinished(caller, Address(str(peer[0]), int(peer[1])), asyncio.get_running_loop().time())
            victim = self._in_the_way(waiting.group)
            if victim is not None and (left := GUARANTEED - (waiting.since - victim.since)) > 0.0:
                self._resting.add(waiting)
                self._rest(listener, left, lambda waiting=waiting: self._begin(waiting, listener))
                return
            self._begin(waiting, listener)

    def _in_the_way(self, group: str) -> _Unfinished | None:
        """Who makes room for another stranger: the oldest from there, or of the largest crowd."""
        crowd = self._strangers.get(group, {})
        if len(crowd) < PER_ADDRESS:
            if self._count < IN_ALL:
                return None
            crowd = max(self._strangers.values(), key=len)
        return next(iter(crowd))

    def _begin(self, waiting: _Unfinished, listener: socket.socket) -> None:
        self._resting.discard(waiting)
        if listener.fileno() < 0:  # closed meanwhile
            return
        victim = self._in_the_way(waiting.group)
        if victim is not None:
            self._refuse(victim, UNFINISHED, f"{len(self._strangers[victim.group])} from there at once")
            self._end(victim)
        self._strangers.setdefault(waiting.group, {})[waiting] = None
        self._count += 1
        loop = asyncio.get_running_loop()
        waiting.deadline = loop.call_later(DEADLINE, self._late, waiting)
        loop.add_reader(waiting.caller, self._hear, waiting)
        self._hear(waiting)

    def _hear(self, waiting: _Unfinished) -> None:
        """Bytes have come, or the caller is gone."""
        try:
            said = waiting.caller.recv(LONGEST_HELLO)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._lost(waiting, None, None)
            return
        waiting.said += said
        if self._context is not None and not is_whole(waiting.said):
            return
        asyncio.get_running_loop().remove_reader(waiting.caller)
        if self._context is not None and means(server_name_in(waiting.said))[0] == self._word:
            self._remove(waiting)
            waiting.is_member = True
            if len(self._members) >= MEMBERS:
                first = next(iter(self._members))
                self._refuse(first, UNFINISHED, f"{len(self._members)} members at once")
                self._end(first)
            self._members[waiting] = None
        self._lines[0 if waiting.is_member else 1].add(waiting)

    # ---------------------------------------------------------------- the handshake

    def _start(self, waiting: _Unfinished) -> None:
        if waiting.over:
            return
        task = asyncio.get_running_loop().create_task(self._shake_hands(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake_hands(self, waiting: _Unfinished) -> None:
        waiting.connection = connection = Connection(self._context, None)
        connection.address = str(waiting.address)
        connection.judge = partial(self._judged, waiting)
        connection.failed = partial(self._failed, waiting)
        connection.opened = partial(self._let_in, waiting)
        connection.lost = partial(self._lost, waiting)
        try:
            waiting.caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, waiting.caller)
        except OSError as error:
            waiting.caller.close()
            self._lost(waiting, None, error)
            return
        if waiting.over:  # it had to make room meanwhile
            connection.abort()
            return
        connection.take(waiting.said)
        waiting.said = b""

    def _judged(self, waiting: _Unfinished, connection: Connection) -> str | None:
        found = self._judge(connection)
        if found is None:
            return None
        self._refuse(waiting, *found)
        return found[1]

    def _let_in(self, waiting: _Unfinished, connection: Connection) -> None:
        if waiting.over:
            connection.abort()
            return
        self._leave(waiting)
        self._opened(connection)

    def _failed(self, waiting: _Unfinished, _: Connection, error: Exception) -> None:
        if isinstance(error, WrongName):
            self._refuse(waiting, "certificate", str(error))
        elif isinstance(error, ssl.SSLError):
            self._refuse(waiting, reason_of(error), in_words(error))
        else:
            self._refuse(waiting, "message", str(error))

    def _lost(self, waiting: _Unfinished, _: Connection | None, error: Exception | None) -> None:
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
        self._leave(waiting)
        if waiting.connection is not None:
            waiting.connection.abort()
        else:
            asyncio.get_running_loop().remove_reader(waiting.caller)
            waiting.caller.close()

    def _leave(self, waiting: _Unfinished) -> None:
        """It is open, or has ended."""
        self._remove(waiting)
        waiting.over = True
        if waiting.deadline is not None:
            waiting.deadline.cancel()

    def _remove(self, waiting: _Unfinished) -> None:
        if waiting.is_member:
            del self._members[waiting]
            return
        group = self._strangers[waiting.group]
        del group[waiting]
        self._count -= 1
        if not group:
            del self._strangers[waiting.group]


class _Line:
    """Starts those who wait in it, so many in a second."""

    def __init__(self, start: Callable[[_Unfinished], None]) -> None:
        self._start = start
        self._waiting: deque[_Unfinished] = deque()
        self._left, self._since = float(AT_ONCE), 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiting: _Unfinished) -> None:
        self._waiting.append(waiting)
        if self._timer is None:
            self._go_on()

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        self._left = min(float(AT_ONCE), self._left + HANDSHAKES * (now - self._since))
        self._since = now
        while self._waiting and self._left >= 1.0:
            first = self._waiting.popleft()
            if not first.over:
                self._left -= 1.0
                self._start(first)
        if self._waiting:
            self._timer = loop.call_later(1.0 / HANDSHAKES, self._go_on)


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
