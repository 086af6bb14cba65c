"""Limits the size and duration of an HTTP request, which uvicorn does not.

Its parser buffers a line of any length, and waits for a request for ever.
"""

import asyncio
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fedbandit.agent.http.schemas import HttpError

__all__ = ["CONNECTION", "MAX_REQUEST", "PATIENCE", "BoundedHttp"]

CONNECTION = "fedbandit.connection"
"""The extension of a request with which an application may ``abort`` the connection, with all that waits to be sent,
or ``narrow`` it, so that little waits."""

NARROW = 2**14
"""The bytes that wait in a narrow connection, about; by itself the system takes megabytes."""

MAX_REQUEST = 2**20
"""The most bytes of one request, headers and body; ``access`` allows far smaller bodies."""

PATIENCE = 10.0
"""Seconds from its first byte until a request must be complete, and from connecting until the first request is."""


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    _size = 0
    _under_way = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set the deadline of the first request."""
        super().connection_made(transport)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the deadline."""
        self._drop_deadline()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Set the deadline of a request."""
        self._size, self._under_way = 0, True
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: {"abort": self.transport.abort, "narrow": self._narrow}}

    def on_message_complete(self) -> None:
        """Drop the deadline: the request is complete."""
        self._under_way = False
        self._drop_deadline()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Read up to the limit."""
        super().data_received(data)
        self._size += len(data)
        if self._under_way and not self.transport.is_closing():
            if self._size > MAX_REQUEST:
                self.send_400_response(f"a request has at most {MAX_REQUEST} bytes")
            self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        """Give an unreadable request the API's error form."""
        body = HttpError(400, "invalid", msg).response().body
        headers = [
            *self.server_state.default_headers,  # those of every answer
            (b"cache-control", b"no-store"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        head = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + bytes(body))
        self.transport.close()

    def _narrow(self) -> None:
        self.transport.set_write_buffer_limits(high=0)
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NARROW)

    def _set_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(PATIENCE, self.transport.close)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
