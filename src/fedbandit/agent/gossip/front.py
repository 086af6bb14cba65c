"""The door for neighbours: accepts connections, and lets those in whose certificate names a neighbour.

Strangers share a small allowance of unfinished handshakes, per address and in all. Whoever exceeds it pushes out the
oldest one that has said nothing, else the oldest: silent strangers cannot keep out anyone who speaks, wherever they
connect from. A handshake takes milliseconds; it may take ``DEADLINE`` seconds.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from ipaddress import IPv6Address

from fedbandit.agent.gossip.handshakes import in_words, own_name, reason_of, server_context
from fedbandit.agent.gossip.identity import Certified, WrongName, certified
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.gossip.tunnel import TlsEnd
from fedbandit.agent.process.config import Address

__all__ = ["Front", "listening"]

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
    """Listens for neighbours.

    * ``admits``: whether a name is a neighbour's
    * ``connected``: is told of a neighbour's connection and its address
    * ``refused``: is told of everybody else
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
        loop.add_reader(caller, self._hear, waiting)

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

    def _hear(self, waiting: _Unfinished) -> None:
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
        """Count a connection once; it may stay for a while, until its end has heard why."""
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
