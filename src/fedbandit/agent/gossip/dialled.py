"""Dials a neighbour over TLS, checks who answers, and gives gRPC a socket that leads there."""

import asyncio
import socket
import ssl

from fedbandit.agent.gossip.handshakes import client_context, in_words
from fedbandit.agent.gossip.identity import WrongName, certified
from fedbandit.agent.gossip.nameless import Nameless, nameless
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.gossip.tunnel import PlainEnd, TlsEnd
from fedbandit.agent.process.config import Address

__all__ = ["Tunnel"]

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
            self.problem = _told(error)
        finally:
            plain.abort()
            end.abort()
            await plain.ended.wait()
            await end.ended.wait()
            self._ends.discard(plain)

    def _broken(self, error: Exception | None) -> None:
        self.problem = None if error is None else _told(error)  # None: gRPC knows more


def _listening(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(path)
    listener.listen(8)
    return listener


def _told(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {in_words(error)}"
    return f"TLS: {in_words(error)}" if isinstance(error, ssl.SSLError) else in_words(error)
