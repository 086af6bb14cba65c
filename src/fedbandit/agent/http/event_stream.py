"""Sends a stream of server-sent events, and ends it when the reader leaves, does not read, or the agent stops."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fedbandit.agent.http.feed import Feed, Stream
from fedbandit.agent.http.limits import CONNECTION

__all__ = ["STALLED", "EventStream"]

STALLED = 20.0
"""Seconds for which a reader may accept nothing; then its place is free."""

LAST_WORD = 0.2
"""Seconds that the end of a stream may take to be sent; the agent does not wait longer when it stops."""


class EventStream(Response):
    """The response to a reader of a feed."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, stream: Stream, headers: Mapping[str, str] | None = None) -> None:
        """Send what comes to the stream, which the feed has opened."""
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._feed, self._stream = feed, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until one end has had enough."""
        connection: Mapping[str, Callable[[], None]] = scope.get("extensions", {}).get(CONNECTION, {})
        abort = connection.get("abort")
        if (narrow := connection.get("narrow")) is not None:
            narrow()  # who does not read is noticed when what waits for it has no room
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        ending = asyncio.create_task(self._stream.ended.wait())
        tasks: set[asyncio.Task[Any]] = {sending, leaving, ending}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and not sending.done():
                await asyncio.wait({sending}, timeout=LAST_WORD)
            is_whole = sending.done() and sending.exception() is None
            if not is_whole and not leaving.done() and abort is not None:
                abort()  # what waits in the buffers would keep the connection
        finally:
            self._feed.leave(self._stream)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        while (data := await self._stream.next()) is not None:
            async with asyncio.timeout(STALLED):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
