"""The HTTP server of an agent, and the static files of its page.

It limits the size and duration of a request, which uvicorn does not: its parser buffers a line of any length, and waits
for a request for ever. The files are listed and read when this module is imported, so no request ever becomes a path of
the disk; a strict Content-Security-Policy stands on every answer.
"""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Generator, Mapping
from errno import EACCES
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fedbandit.agent.http.bodies import HttpError

# ---------------------------------------------------------------- connections

CONNECTION = "fedbandit.connection"
"""The extension of a request with which an application may ``abort`` the connection, with all that waits to be sent,
or ``narrow`` it, so that little waits, and what it is: ``over_socket`` of this machine."""

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
        over_socket = self.transport.get_extra_info("socket").family == socket.AF_UNIX
        mine: dict[object, object] = {"abort": self.transport.abort, "narrow": self._narrow, "over_socket": over_socket}
        self.scope["extensions"] = {CONNECTION: mine}

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


# ---------------------------------------------------------------- the server

PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every response, errors among them: no script but the agent's own, no other server, in no frame."""


class HttpServer(uvicorn.Server):
    """The HTTP server without its own signal handlers: its owner sets ``should_exit``."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


def http_server(app: ASGIApp) -> HttpServer:
    """A server with bounded requests that says nothing about itself, and puts ``PAGE_HEADERS`` on every answer."""
    return HttpServer(
        uvicorn.Config(
            _not_stored(app),
            loop="asyncio",
            http=BoundedHttp,
            log_level="error",  # garbage from strangers must not fill our log
            access_log=False,
            log_config=None,
            lifespan="off",
            server_header=False,
            headers=list(PAGE_HEADERS.items()),  # of answers that no application gave, too: unreadable requests, faults
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
    )


def _not_stored(app: ASGIApp) -> ASGIApp:
    """The application, and no cache keeps an answer that does not say otherwise: answers tell of patients."""

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ())]
                if not any(name == b"cache-control" for name, _ in headers):
                    message = {**message, "headers": [*headers, (b"cache-control", b"no-store")]}
            await send(message)

        await app(scope, receive, send_on)

    return answering


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0: a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name TCP explicitly: otherwise asyncio leaves Nagle's algorithm on, and every answer waits for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def listening_socket(path: Path) -> socket.socket:
    """A unix socket that listens, for its owner and group; one that nobody listens at any more is replaced."""
    check_folder_of_socket(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and not _is_answered(path):
            path.unlink()
        before = os.umask(0o117)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def check_folder_of_socket(path: Path) -> None:
    """Whoever may write in its folder could put a socket of his own there, to which people would sign in."""
    if path.parent.stat().st_mode & stat.S_IWOTH:
        raise PermissionError(EACCES, f"everybody may write in {path.parent}: chmod o-w {path.parent}")


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dialling:
        try:
            dialling.connect(str(path))
        except ConnectionRefusedError:
            return False
        return True


# ---------------------------------------------------------------- files of the page

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Content types by the end of a name; files that end otherwise are not served."""


class PageFile(NamedTuple):
    """One file of a page."""

    content: bytes
    media_type: str
    etag: str


def files_in(folder: Path) -> dict[str, PageFile]:
    """The files of a folder and those below it, by their names relative to it."""
    found: dict[str, PageFile] = {}
    for path in sorted(folder.rglob("*")):
        media_type = _TYPES.get(path.suffix)
        if media_type is not None and path.is_file():
            content = path.read_bytes()
            etag = f'"{sha256(content).hexdigest()[:32]}"'
            found[path.relative_to(folder).as_posix()] = PageFile(content, media_type, etag)
    return found


PAGE: Mapping[str, PageFile] = files_in(Path(__file__).parent / "page")
"""The files of the agent's page."""


def is_page(path: str) -> bool:
    """Whether a path is the page's: it needs no token, and reveals nothing about the site."""
    return path == "/" or path.startswith("/page/")


def file_response(files: Mapping[str, PageFile], name: str, request: Request) -> Response:
    """A file, or 304 where the browser has it already. ``no-cache``: a browser asks every time whether it has."""
    file = files.get(name)
    if file is None:
        raise HttpError(404, "not_found", f"there is nothing at {request.url.path}")
    headers = {"Cache-Control": "no-cache", "ETag": file.etag}
    if file.etag in (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    if request.method == "HEAD":
        return Response(headers={**headers, "Content-Length": str(len(file.content)), "Content-Type": file.media_type})
    return Response(file.content, headers={**headers, "Content-Type": file.media_type})


def add_page(app: FastAPI) -> None:
    """Add the paths of the page; the server adds ``PAGE_HEADERS``."""
    methods = ["GET", "HEAD"]

    @app.api_route("/", methods=methods, operation_id="page", include_in_schema=False)
    async def page(request: Request) -> Response:
        return file_response(PAGE, "index.html", request)

    @app.api_route("/page/{name:path}", methods=methods, operation_id="page_file", include_in_schema=False)
    async def page_file(request: Request) -> Response:
        return file_response(PAGE, request.path_params["name"], request)

    _ = page, page_file
