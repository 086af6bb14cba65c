"""Serves the page of a whole federation on this machine, with its events; on loopback, for whoever runs it."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedbandit.agent.http.access import LOOPBACK, AccessControl
from fedbandit.agent.http.event_stream import EventStream
from fedbandit.agent.http.feed import Feed, timed
from fedbandit.agent.http.page_files import PAGE, file_response, files_in
from fedbandit.agent.http.schemas import HttpError
from fedbandit.agent.http.state import SiteState
from fedbandit.agent.serve import http_server, listening
from fedbandit.checks import InvalidArgument, whole_number

__all__ = ["FederationShown", "GraphShown", "SiteShown", "page_door", "serving_page"]

OWN = files_in(Path(__file__).parent / "page")
"""The files of this page; it also uses those of an agent's page."""


class GraphShown(BaseModel):
    """The links: pairs of positions in ``sites``."""

    edges: list[tuple[int, int]]


class SiteShown(BaseModel):
    """One site: what only a simulation knows of it, and the state of its agent.

    * ``means``: the true mean of each arm here
    * ``best_share``: share of its latest patients who got the arm that is best on average over all
    * ``regret``: expected successes lost against that arm
    * ``age``: seconds since the agent told this state; it is asked every second. None: it never has
    """

    name: str
    url: str
    means: list[float]
    patients: int
    best_share: float | None
    regret: float
    running: bool
    state: SiteState | None
    age: float | None = None


class FederationShown(BaseModel):
    """The event ``federation``: all sites side by side, with the true means."""

    title: str
    graph: GraphShown
    arms: list[str]
    true_means: list[float]
    best_arm: int
    seconds: float
    epsilon: float
    sites: list[SiteShown]


def page_door(port: int) -> socket.socket:
    """A socket on loopback for the page; 0: a free port. A port that cannot be had is an error of ``--port``."""
    number = whole_number("--port", port, 0, 65_535)
    try:
        return listening("127.0.0.1", number)
    except OSError as error:
        hint = f"Port {number}: {error.strerror or error}."
        raise InvalidArgument("--port", port, "a free port of this machine, or left out for any", hint) from None


@asynccontextmanager
async def serving_page(door: socket.socket, shown: Callable[[], FederationShown]) -> AsyncGenerator[str]:
    """Serve the page while the block runs; its address."""

    async def read() -> tuple[FederationShown, float]:
        return timed(shown)

    feed = Feed(read, lambda error: None if error is None else f"{type(error).__name__}: {error}", "federation")
    server = http_server(_app(feed))
    serving = asyncio.create_task(server.serve(sockets=[door]))
    try:
        yield f"http://127.0.0.1:{door.getsockname()[1]}/"
    finally:
        feed.close()
        server.should_exit = True
        await serving


def _app(feed: Feed) -> Starlette:
    async def index(request: Request) -> Response:
        return file_response(OWN, "index.html", request)

    async def own_file(request: Request) -> Response:
        return file_response(OWN, request.path_params["name"], request)

    async def shared_file(request: Request) -> Response:
        return file_response(PAGE, request.path_params["name"], request)

    async def events(request: Request) -> Response:
        if request.method == "HEAD":
            raise _only_get("a stream has no HEAD")
        return EventStream(feed, feed.open())

    def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HttpError)  # noqa: S101 - what it is registered for
        return error.response()

    def not_routed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
        if error.status_code == 405:
            return HttpError(
                405, "method_not_allowed", "this path accepts GET", None, "GET", {"Allow": "GET"}
            ).response()
        return HttpError(404, "not_found", f"there is nothing at {request.url.path}").response()

    return Starlette(
        routes=[
            Route("/", index),
            Route("/local/{name:path}", own_file),
            Route("/page/{name:path}", shared_file),
            Route("/v1/federation-events", events),
        ],
        middleware=[Middleware(AccessControl, tokens=None, hosts=LOOPBACK)],
        exception_handlers={HttpError: refused, HTTPException: not_routed},
    )


def _only_get(message: str) -> HttpError:
    return HttpError(405, "method_not_allowed", message, None, "GET", {"Allow": "GET"})
