"""Runs an agent behind its HTTP server: opens the socket, starts both, and stops both in the right order."""

import asyncio
import logging
import socket
from collections.abc import Coroutine, Mapping
from pathlib import Path

from fastapi import FastAPI

from fedbandit.agent.disk.journal import STATE_FILE, JournalError
from fedbandit.agent.disk.state_files import may_be_there
from fedbandit.agent.gossip.listener import listening as listening_for_neighbours
from fedbandit.agent.http.access import LOOPBACK, Door
from fedbandit.agent.http.api import make_app
from fedbandit.agent.http.proxy import ProxyWord
from fedbandit.agent.http.server import http_server, listening, listening_socket
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import SiteConfig, changed_at
from fedbandit.agent.process.rights import Caller
from fedbandit.agent.process.runtime import WATCH_EVERY, Agent
from fedbandit.agent.process.tokens import token_files, tokens_now

_LOG = logging.getLogger("fedbandit.agent")


def try_ports(config: SiteConfig) -> None:
    """Before a first start: bind both ports, and let go of them. If one is in use, no data folder is made.

    A site that has a state opens it first: it says better than a port that its agent runs already.
    """
    if may_be_there(config.data / STATE_FILE):
        return
    _close(_listeners(config), config)
    if config.gossip is None:
        return
    for listener in listening_for_neighbours(config.gossip):
        listener.close()


async def serve(agent: Agent, tokens: dict[str, Caller] | None, proxy_secret: str | None, stop: asyncio.Event) -> None:
    """Run an agent until ``stop`` is set; ``tokens`` follow their files."""
    keeping = None if tokens is None else asyncio.create_task(keep_tokens(agent, tokens))
    try:
        listeners = _listeners(agent.config)
        try:
            await _serve_at(listeners, agent, app_of(agent, tokens, proxy_secret), stop)
        finally:
            _close(listeners, agent.config)
    finally:
        if keeping is not None:
            keeping.cancel()
        await _in_any_case(agent.stop())
        _LOG.info("stopped")


async def keep_tokens(agent: Agent, tokens: dict[str, Caller]) -> None:
    """Take over tokens whose files change. One that is gone, or cannot be read, is no longer valid."""
    config = agent.config
    files = [path for _, path, _ in token_files(config)]
    seen, said = [changed_at(path) for path in files], list[str]()
    while True:
        found, wrong = tokens_now(config)
        for words in wrong:
            if words not in said:
                _LOG.error("%s; until then this token is not valid", words)
        before = {caller.name: token for token, caller in tokens.items()}
        changed = [caller.name for token, caller in found.items() if before.get(caller.name) != token]
        if changed:
            _LOG.warning("tokens have changed, and sessions of the old ones end: %s", ", ".join(changed))
        is_another = found != tokens
        tokens.clear()
        tokens.update(found)
        if is_another:
            try:
                await agent.note_tokens()
            except JournalError as error:
                _LOG.error("the audit trail does not tell of it: %s", error)
        said = wrong
        while (now := [changed_at(path) for path in files]) == seen:
            await asyncio.sleep(WATCH_EVERY)
        seen = now


def app_of(agent: Agent, tokens: Mapping[str, Caller] | None, proxy_secret: str | None) -> FastAPI:
    """Its HTTP API, for callers by the names and through the proxy that its configuration names."""
    config = agent.config
    host = config.http.host
    # Other machines may call the agent by any name; ``read_config`` then requires tokens.
    hosts = (f"[{host}]" if ":" in host else host, *LOOPBACK) if config.http.is_loopback else None
    proxy = ProxyWord(config.proxy, proxy_secret, agent.refused_callers.count)
    return make_app(agent, tokens, Door(hosts, config.url, proxy))


async def _serve_at(listeners: list[socket.socket], agent: Agent, app: FastAPI, stop: asyncio.Event) -> None:
    host, http_port = agent.config.http.host, listeners[0].getsockname()[1]
    http = http_server(app)
    await agent.start()
    serving = asyncio.create_task(http.serve(sockets=listeners))
    port = agent.gossip_port
    gossip = "nobody can dial this agent" if port is None else f"neighbours on port {port}"
    _LOG.info("ready: http://%s for the application, %s", Address(host, http_port), gossip)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    http.should_exit = True
    await asyncio.gather(serving, agent.hang_up())


async def _in_any_case(closing: Coroutine[None, None, None]) -> None:
    """Close something to its end, also if this is cancelled meanwhile: else sockets stay open."""
    task, cancelled = asyncio.create_task(closing), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    task.result()


def _listeners(config: SiteConfig) -> list[socket.socket]:
    """For the application, and for a proxy that has a socket of its own."""
    try:
        application = listening(config.http.host, config.http.port)
    except OSError as error:
        raise OSError(f"cannot listen for the application on {config.http}: {error.strerror or error}") from None
    path = None if config.proxy is None else config.proxy.peer
    if not isinstance(path, Path):
        return [application]
    try:
        return [application, listening_socket(path)]
    except OSError as error:
        application.close()
        raise OSError(f"cannot listen for the trusted proxy at {path}: {error.strerror or error}") from None


def _close(listeners: list[socket.socket], config: SiteConfig) -> None:
    """Close them; a unix socket leaves no file behind, which would look as if somebody listened."""
    for listener in listeners:
        listener.close()
    if config.proxy is not None and isinstance(config.proxy.peer, Path):
        config.proxy.peer.unlink(missing_ok=True)
