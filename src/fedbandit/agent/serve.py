"""Runs an agent behind its HTTP server: opens the socket, starts both, and stops both in the right order."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Generator, Mapping

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedbandit.agent.addresses import Address
from fedbandit.agent.config import SiteConfig
from fedbandit.agent.disk.journal import STATE_FILE
from fedbandit.agent.disk.state_files import may_be_there
from fedbandit.agent.gossip import front
from fedbandit.agent.http.access import LOOPBACK
from fedbandit.agent.http.api import make_app
from fedbandit.agent.http.limits import BoundedHttp
from fedbandit.agent.http.page_files import PAGE_HEADERS
from fedbandit.agent.rights import Rights
from fedbandit.agent.runtime import Agent

__all__ = ["HttpServer", "http_server", "listening", "serve", "try_ports"]

_LOG = logging.getLogger("fedbandit.agent")


class HttpServer(uvicorn.Server):
    """The HTTP server without its own signal handlers: its owner sets ``should_exit``."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


def try_ports(config: SiteConfig, insecure: bool) -> None:
    """Before a first start: bind both ports, and let go of them. If one is in use, no data folder is made.

    A site that has a state opens it first: it says better than a port that its agent runs already.
    """
    if may_be_there(config.data / STATE_FILE):
        return
    _door(config).close()
    if config.gossip is None:
        return
    try:
        for listener in front.listening(config.gossip):
            listener.close()
    except OSError as error:
        if not insecure or error.errno == errno.EADDRINUSE:  # without TLS gRPC listens, on such addresses as it finds
            raise


async def serve(agent: Agent, tokens: Mapping[str, Rights] | None, stop: asyncio.Event) -> None:
    """Run an agent until ``stop`` is set."""
    try:
        with _door(agent.config) as door:
            await _serve_at(door, agent, tokens, stop)
    finally:
        await agent.stop()
        _LOG.info("stopped")


async def _serve_at(
    door: socket.socket, agent: Agent, tokens: Mapping[str, Rights] | None, stop: asyncio.Event
) -> None:
    host, port = agent.config.http.host, door.getsockname()[1]
    # Other machines may call the agent by any name; ``read_config`` then requires tokens.
    hosts = (f"[{host}]" if ":" in host else host, *LOOPBACK) if agent.config.http.is_loopback else None
    http = http_server(make_app(agent, tokens, hosts))
    await agent.start()
    serving = asyncio.create_task(http.serve(sockets=[door]))
    gossip = "nobody can dial this agent" if agent.gossip_port is None else f"gossip on port {agent.gossip_port}"
    _LOG.info("ready: http://%s for the application, %s", Address(host, port), gossip)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    http.should_exit = True
    await asyncio.gather(serving, agent.hang_up())


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


def _door(config: SiteConfig) -> socket.socket:
    try:
        return listening(config.http.host, config.http.port)
    except OSError as error:
        raise OSError(f"cannot listen for the application on {config.http}: {error.strerror or error}") from None


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; port 0: a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Name TCP explicitly: otherwise asyncio leaves Nagle's algorithm on, and every answer waits for 40 ms.
    door = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
        door.listen(128)
    except OSError:
        door.close()
        raise
    return door
