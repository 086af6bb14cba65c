"""Streams of server-sent events: the newest state, points of the history, bulletins. Nothing waits for a slow reader.

One task reads the state for all streams, while there are any; without readers a feed costs nothing.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fedbandit.agent.disk.journal import JournalError
from fedbandit.agent.http.bodies import HttpError
from fedbandit.agent.http.server import CONNECTION

# ---------------------------------------------------------------- what streams are told

_Found = TypeVar("_Found")

MAX_STREAMS = 16
"""The most open streams: more must not take memory and time from decisions."""

EVERY = 0.5
"""Seconds between states, at least."""

BUSY = 0.03
"""The largest share of time that reading states and writing them as JSON may take: the larger a federation, the rarer
its states, so that decisions do not wait for them."""

COMMENT_EVERY = 10.0
"""Seconds without an event after which a stream sends a comment: so both ends notice that the other is gone."""

BULLETINS_PER_SECOND = 20

POINTS_WAITING = 4

_LOG = logging.getLogger("fedbandit.agent")


class Stream:
    """One reader, and what waits for it: a state and a problem at most, a few points and bulletins."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._changed, self.ended = asyncio.Event(), asyncio.Event()
        self._state: bytes | None = None
        self._problem: bytes | None = None
        self._points: deque[bytes] = deque(maxlen=POINTS_WAITING)
        self._bulletins: deque[bytes] = deque(maxlen=BULLETINS_PER_SECOND)
        self._times: deque[float] = deque(maxlen=BULLETINS_PER_SECOND)
        self.last_state: bytes | None = None
        self.last_problem: str | None = None

    def put_state(self, message: bytes) -> None:
        """A state; it replaces one that was not sent. The same one is not sent twice."""
        if message != self.last_state:
            self._state = self.last_state = message
            self._changed.set()

    def put_problem(self, said: str | None) -> None:
        """What is wrong; None: nothing is, any more. The same is not sent twice; a state follows in any case."""
        if said != self.last_problem:
            self._problem, self.last_state = _message("problem", json.dumps({"message": said})), None
            self.last_problem = said
            self._changed.set()

    def put_point(self, message: bytes) -> None:
        """A point of the history; of many that wait, the oldest are dropped."""
        self._points.append(message)
        self._changed.set()

    def put_bulletin(self, message: bytes, now: float) -> None:
        """A bulletin, unless there were too many within a second."""
        if len(self._times) == BULLETINS_PER_SECOND and now - self._times[0] < 1.0:
            return
        self._times.append(now)
        self._bulletins.append(message)
        self._changed.set()

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return (self._state is not None) + (self._problem is not None) + len(self._points) + len(self._bulletins)

    def end(self) -> None:
        """Nothing comes any more."""
        self.ended.set()
        self._changed.set()

    async def next(self, within: float = COMMENT_EVERY) -> bytes | None:
        """All that waits, or a comment after a while without an event; None: the stream has ended."""
        try:
            async with asyncio.timeout(within):
                await self._changed.wait()
        except TimeoutError:
            return b": still here\n\n"
        if self.ended.is_set():
            return None
        self._changed.clear()
        parts = [part for part in (self._problem, self._state) if part is not None]
        parts += [*self._points, *self._bulletins]
        self._problem = self._state = None
        self._points.clear()
        self._bulletins.clear()
        return b"".join(parts)


class Feed:
    """The streams of one agent."""

    def __init__(
        self,
        read: Callable[[], Awaitable[tuple[BaseModel, float]]],
        problem: Callable[[Exception | None], str | None],
        event: str,
    ) -> None:
        """Tell streams what ``read`` returns, as ``event``; with it comes how long all others waited for it.

        ``problem``: what is wrong, in words, given the error of ``read`` if there was one; None: nothing is.
        """
        self._read, self._problem, self._event = read, problem, event
        self._streams: set[Stream] = set()
        self._is_closed = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._logged: str | None = None

    def open(self) -> Stream:
        """A new stream; ``leave`` must follow."""
        if self._is_closed:
            raise HttpError(503, "unavailable", "the agent is stopping", headers={"Retry-After": "1"})
        if len(self._streams) >= MAX_STREAMS:
            says = f"{MAX_STREAMS} streams are open, which is the limit; close one, or poll /v1/state"
            raise HttpError(503, "busy", says, headers={"Retry-After": "10"})
        stream = Stream()
        self._streams.add(stream)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="feed")
        return stream

    def leave(self, stream: Stream) -> None:
        """Its reader is gone."""
        self._streams.discard(stream)
        self._wake.set()

    @property
    def num_streams(self) -> int:
        """How many are open."""
        return len(self._streams)

    def bulletin(self, neighbour: str, at: float, sent: bool, site: str) -> None:
        """Tell that a bulletin of a site has gone over a link."""
        if self._streams:
            said = {"neighbour": neighbour, "at": at, "sent": sent, "site": site}
            message, now = _message("bulletin", json.dumps(said)), asyncio.get_running_loop().time()
            for stream in self._streams:
                stream.put_bulletin(message, now)

    def point(self, point: BaseModel) -> None:
        """Tell of a new point of the history."""
        if self._streams:
            message = _message("point", point.model_dump_json())
            for stream in self._streams:
                stream.put_point(message)

    def close(self) -> None:
        """End all streams, and open no more."""
        self._is_closed = True
        for stream in self._streams:
            stream.end()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        """Read for all streams while there are any; at once for one that is new."""
        loop = asyncio.get_running_loop()
        due, cost = 0.0, 0.0
        told: set[Stream] = set()
        while self._streams:
            self._wake.clear()
            began = loop.time()
            is_due = began >= due
            readers = set(self._streams) if is_due else self._streams - told
            if readers:
                cost = await self._tell(readers)
                told = (told | readers) & self._streams
            if is_due:
                due = began + max(EVERY, cost / BUSY)
            try:
                async with asyncio.timeout(max(0.0, due - loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _tell(self, readers: set[Stream]) -> float:
        """Tell some streams; for how long nothing else could run."""
        failure, message, cost = None, None, 0.0
        try:
            found, reading = await self._read()
            written, writing = timed(found.model_dump_json)
            message, cost = _message(self._event, written), reading + writing
        except Exception as error:  # the stream says it, and goes on
            failure = error
            if not isinstance(error, JournalError) and str(error) != self._logged:
                self._logged = str(error)
                _LOG.exception("the state cannot be shown")
        said = self._problem(failure)
        for stream in readers:
            stream.put_problem(said)
            if message is not None:
                stream.put_state(message)
        return cost


def timed(read: Callable[[], _Found]) -> tuple[_Found, float]:
    """What is read, and how many seconds that took, in which no other task ran."""
    now = asyncio.get_running_loop().time
    began = now()
    return read(), now() - began


def _message(event: str, data: str) -> bytes:
    return f"event: {event}\ndata: {data}\n\n".encode()


# ---------------------------------------------------------------- how a stream is sent, and ends

STALLED = 20.0
"""Seconds for which a reader may accept nothing; then its place is free."""

LAST_WORD = 0.2
"""Seconds that the end of a stream may take to be sent; the agent does not wait longer when it stops."""


class EventStream(Response):
    """The response to a reader of a feed."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, stream: Stream, is_admitted: Callable[[], bool] = lambda: True) -> None:
        """Send what comes to the stream, which the feed has opened, as long as its reader is admitted."""
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._feed, self._stream, self._is_admitted = feed, stream, is_admitted

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
        while (data := await self._stream.next()) is not None and self._is_admitted():
            async with asyncio.timeout(STALLED):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
