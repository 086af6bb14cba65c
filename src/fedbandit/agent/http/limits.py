"""Limits the size of an HTTP request and the time a caller may take for it, which uvicorn does not.

Its parser keeps a line of any length, and waits for a request for ever.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fedbandit.agent.http.schemas import HttpError

__all__ = ["MAX_REQUEST", "PATIENCE", "BoundedHttp"]

MAX_REQUEST = 2**20
"""Bytes of one request, its lines and its body in however small pieces; ``access`` allows far smaller bodies."""

PATIENCE = 10.0
"""Seconds until a request must be here, from the first byte on, and a new connection's first one."""


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    _size = 0
    _under_way = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Somebody has called."""
        super().connection_made(transport)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._drop_deadline()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._size, self._under_way = 0, True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """It has been read."""
        self._under_way = False
        self._drop_deadline()
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Read on, but not without end."""
        super().data_received(data)
        self._size += len(data)
        if self._under_way and not self.transport.is_closing():
            if self._size > MAX_REQUEST:
                self.send_400_response(f"a request has at most {MAX_REQUEST} bytes")
            self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read is answered as every mistake is."""
        body = HttpError(400, "invalid", msg).response().body
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + bytes(body))
        self.transport.close()

    def _set_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(PATIENCE, self.transport.close)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
