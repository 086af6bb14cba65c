"""A wire between two agents that can be made bad: late, cut, swallowed, in crumbs."""

import asyncio
import contextlib
import threading


class BadWire:
    """Passes bytes on to ``target`` on loopback, in a thread of its own, as ``mode`` says:

    * *well*: at once
    * *late*: a fifth of a second later
    * *crumbs*: seven bytes at a time
    * *cut*: connections are reset, old ones and new ones
    * *hole*: nothing arrives, and nobody is told; what was sent is lost
    """

    def __init__(self, target):
        self._target, self.mode = target, "well"
        self._loop = asyncio.new_event_loop()
        self._open = set()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self):
        self._thread.start()
        self.port = self._run(self._listen())
        return self

    def __exit__(self, *_):
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def become(self, mode):
        async def change():
            self.mode = mode
            if mode == "cut":
                self._reset()

        self._run(change())

    def forget(self):
        """Old connections are dead from now on, and nobody is told: what a firewall does that was restarted."""

        async def change():
            for connection in self._open:
                connection.forgotten = True

        self._run(change())

    def _run(self, what):
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(60)

    async def _listen(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _end(self):
        self._server.close()
        self._reset()
        await asyncio.sleep(0.1)

    def _reset(self):
        for connection in list(self._open):
            for writer in connection.writers:
                writer.transport.abort()

    async def _connected(self, reader, writer):
        if self.mode == "cut":
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection([writer, there_writer])
        self._open.add(connection)
        try:
            await asyncio.gather(
                self._pass(connection, reader, there_writer), self._pass(connection, there_reader, writer)
            )
        finally:
            self._open.discard(connection)
            for it in connection.writers:
                it.transport.abort()

    async def _pass(self, connection, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self.mode == "hole" or connection.forgotten:
                    connection.forgotten = True  # bytes are missing: this connection is of no more use
                    continue
                if self.mode == "late":
                    await asyncio.sleep(0.2)
                size = 7 if self.mode == "crumbs" else len(data)
                for first in range(0, len(data), size):
                    writer.write(data[first : first + size])
                    await writer.drain()
        writer.transport.abort()


class _Connection:
    def __init__(self, writers):
        self.writers, self.forgotten = writers, False
