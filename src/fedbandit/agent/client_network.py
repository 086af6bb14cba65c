"""Bounds a blocking HTTP call as a whole: sockets only know how long they may wait for the next byte."""

import socket
import ssl
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any

import httpcore

__all__ = ["BoundedBackend"]


class _Until(threading.local):
    """When the call of this thread ends."""

    time = inf


class BoundedBackend(httpcore.NetworkBackend):
    """Connections on which a server that sends a byte now and then does not prolong a call."""

    def __init__(self) -> None:
        """No call is bounded yet."""
        self._inner, self._until = httpcore.SyncBackend(), _Until()

    @contextmanager
    def bound(self, seconds: float) -> Generator[None]:
        """What this thread does within takes so long at most."""
        self._until.time = monotonic() + seconds
        try:
            yield
        finally:
            self._until.time = inf

    def left(self, timeout: float | None) -> float | None:
        """How long a socket may wait now."""
        left = self._until.time - monotonic()
        if left <= 0.0:
            raise httpcore.ReadTimeout("timed out")
        return timeout if left == inf else left if timeout is None else min(timeout, left)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that answers, within the time of the call as a whole."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for *_, address in found:
            try:
                stream = self._inner.connect_tcp(
                    str(address[0]), port, self.left(timeout), local_address, socket_options
                )
                return _BoundedStream(stream, self)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed


class _BoundedStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, backend: BoundedBackend) -> None:
        self._inner, self._backend = inner, backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._backend.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._backend.left(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._backend.left(timeout))
        return _BoundedStream(inner, self._backend)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
