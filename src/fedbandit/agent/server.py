"""One live agent: site, journal, links and two doors, HTTP for the application and gRPC for neighbours, in one process.

Here belong start, stop and what runs in between: clocks, draws and files are the edges of the pure site. What is
answered over HTTP is ``api``'s, what is said to neighbours is ``links``'.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Generator
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

import uvicorn

from fedbandit.agent.api import make_app
from fedbandit.agent.choice import Draws
from fedbandit.agent.config import ConfigError, Neighbour, SiteConfig, read_config
from fedbandit.agent.durable import DurableSite
from fedbandit.agent.federation import Federation
from fedbandit.agent.gate import LOOPBACK
from fedbandit.agent.journal import JournalError, SqliteJournal
from fedbandit.agent.links import Contact, Links
from fedbandit.agent.records import Decision, Stored
from fedbandit.agent.refusals import Refusals
from fedbandit.agent.site import Site
from fedbandit.agent.state import ArmState, DecisionState, FederationState, NeighbourState, PrivacyState, State
from fedbandit.agent.tls import TlsFiles
from fedbandit.agent.transport import GossipServer
from fedbandit.privacy.noise import measurement_of

__all__ = ["Agent", "serve"]

STATE_FILE = "state.sqlite"

EXPIRY_EVERY = 1.0
"""Seconds between looks for decisions that have expired."""

WATCH_EVERY = 1.0
"""Seconds between looks whether the configuration file has changed."""

SILENT_AFTER = 60.0
"""A neighbour who dials us counts as reachable for so many seconds after its last exchange."""

INSECURE = "INSECURE: gossip has no certificates; anybody on this machine can pretend to be a neighbour"

_LOG = logging.getLogger("fedbandit.agent")


class Agent:
    """A running site. What the HTTP API asks for is in ``api.LocalAgent``."""

    def __init__(self, config: SiteConfig, tls: TlsFiles | None) -> None:
        """Open the state; ``JournalError`` or ``OSError`` with the reason if that cannot be."""
        self.config, self._tls = config, tls
        self.refusals = Refusals(_LOG, time.monotonic)
        self.gossip_port: int | None = None
        self._random = secrets.SystemRandom()
        self._started = time.time()
        self._problem: str | None = "starting"
        config.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.site = DurableSite(self._open_journal, self._make_site)
        measurement_of(1.0)  # loads the source of noise now, not in the middle of the first release
        self.links = Links(config.name, config.terms, self.site, tls, time.time, self._random)
        self._server: GossipServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _open_journal(self) -> SqliteJournal:
        path = self.config.data / STATE_FILE
        if not path.exists():
            _LOG.warning("%s: no state yet: a new life begins, with fresh batches of every arm", path.name)
        return SqliteJournal(path, self.config.name, self.terms, time.time_ns() // 1_000_000)

    def _make_site(self, stored: Stored) -> Site:
        return Site(self.config.name, self.terms, stored)

    # ---------------------------------------------------------------- the application

    @property
    def terms(self) -> Federation:
        """The terms of the federation."""
        return self.config.terms

    async def decide(self) -> Decision:
        """Hand out an arm."""
        draws = Draws(tuple(self._random.gauss(0.0, 1.0) for _ in self.terms.arms), self._random.random())
        return await self.site.do(lambda site: site.decide(time.time(), draws))

    async def report(self, decision_id: str, reward: float) -> None:
        """Take a reward."""
        await self.site.do(lambda site: site.report(decision_id, reward))

    async def leave(self, neighbour: str) -> None:
        """A neighbour has left for good."""
        await self.links.leave(neighbour)

    async def rejoin(self, neighbour: str) -> None:
        """A neighbour that had left is back."""
        await self.links.rejoin(neighbour)

    def not_ready(self) -> str | None:
        """Why the agent cannot serve now; None if it can."""
        if self._problem is None:
            try:
                self.site.look()
            except JournalError as error:
                return str(error)
        return self._problem

    # ---------------------------------------------------------------- running

    async def start(self) -> None:
        """Listen for neighbours, dial them, let old decisions expire, watch the configuration."""
        if self.config.gossip is not None:
            handlers = {"Exchange": self.links.answer_exchange, "Compare": self.links.answer_compare}
            self._server = GossipServer(self.config.gossip, self._tls, handlers, self.refusals.count)
            self.gossip_port = self._server.port
            await self._server.start()
        await self.links.use(self.config.neighbours)
        self._tasks = [asyncio.create_task(self._expire()), asyncio.create_task(self._watch_configuration())]
        self._problem = None

    async def stop(self) -> None:
        """End what runs, answer who is waiting, let go of the file."""
        self._problem = "stopping"
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.links.close()
        if self._server is not None:
            await self._server.stop(grace=1.0)
        self.site.close()

    async def _expire(self) -> None:
        """Forget decisions by the policy of the configuration."""
        while True:
            before = time.time() - self.config.expire_after
            try:
                if not await self.site.do(lambda site, at=before: site.expire(at, self.config.keep)):
                    await asyncio.sleep(EXPIRY_EVERY)
            except JournalError as error:
                _LOG.error("%s", error)
                await asyncio.sleep(EXPIRY_EVERY)

    async def _watch_configuration(self) -> None:
        """Take over a changed neighbour list. Taking a name out of it is how a site is kept out."""
        seen = _changed_at(self.config.path)
        while True:
            await asyncio.sleep(WATCH_EVERY)
            if _changed_at(self.config.path) != seen:
                seen = _changed_at(self.config.path)
                await self._reread()

    async def _reread(self) -> None:
        try:
            config = read_config(self.config.path)
            await self.links.use(config.neighbours)
        except (ConfigError, OSError, JournalError) as error:
            _LOG.error("the configuration has changed and is not taken over: %s", error)
            return
        _LOG.info("neighbours taken over from %s", self.config.path.name)
        if replace(config, neighbours=self.config.neighbours) != self.config:
            _LOG.warning("%s: other changes than in [[neighbours]] need a restart", self.config.path.name)
        self.config = replace(self.config, neighbours=config.neighbours)

    # ---------------------------------------------------------------- what is shown

    def state(self) -> State:
        """What ``GET /v1/state`` shows: nothing that is not on disk."""
        site, terms = self.site.look(), self.terms
        row, own, theta, radius = site.gossiped, site.estimates, site.theta, site.radius
        arms = [
            ArmState(
                name=name,
                estimate=theta[k],
                radius=radius[k],
                own_mean=own[k].x_mean if own[k].releases else None,
                weight=row[terms.num_arms + k],
                pulls=site.tried[k],
                rewards=site.rewards[k],
                releases=own[k].releases,
            )
            for k, name in enumerate(terms.arms)
        ]
        left = {link.neighbour for link in site.links if link.left}
        unlisted = [Contact(Neighbour(name, None, 1.0)) for name in sorted(left - self.links.contacts.keys())]
        return State(
            name=self.config.name,
            version=version("fedbandit"),
            epoch=site.epoch,
            started=self._started,
            insecure=self._tls is None,
            federation=FederationState(
                name=terms.name,
                num_agents=terms.num_agents,
                arms=list(terms.arms),
                low=terms.low,
                high=terms.high,
                policy=terms.policy.label,
                digest=terms.digest(),
            ),
            decisions=DecisionState(handed_out=site.decided, pending=site.pending, remembered=site.remembered),
            arms=arms,
            neighbours=[self._shown(c, left) for c in (*self.links.contacts.values(), *unlisted)],
            privacy=PrivacyState(**asdict(site.privacy())),
            refused=self.refusals.counts(),
            warnings=[*site.warnings(), *([INSECURE] if self._tls is None else [])],
        )

    def _shown(self, contact: Contact, left: set[str]) -> NeighbourState:
        name, last = contact.neighbour.name, contact.last_exchange
        reachable = contact.reachable
        if contact.neighbour.address is None:
            reachable = last is not None and time.time() - last < SILENT_AFTER
        return NeighbourState(
            name=name,
            address=None if contact.neighbour.address is None else str(contact.neighbour.address),
            reachable=reachable and name not in left,
            last_exchange=last,
            exchanges=contact.exchanges,
            failures=contact.failures,
            refusals=contact.refusals,
            last_error=contact.last_error,
            left=name in left,
        )


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class _Http(uvicorn.Server):
    """The HTTP server without its own signal handlers: the agent stops it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve(agent: Agent, token: str | None, stop: asyncio.Event) -> None:
    """Run an agent until ``stop`` is set."""
    config = agent.config
    try:
        door = _listening(config)
        http = _Http(
            uvicorn.Config(
                make_app(agent, token, (config.http.host, *LOOPBACK)),
                loop="asyncio",
                http="httptools",
                access_log=False,
                log_config=None,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )
        await agent.start()
        serving = asyncio.create_task(http.serve(sockets=[door]))
        port = door.getsockname()[1]
        gossip = "nobody can dial this agent" if agent.gossip_port is None else f"gossip on port {agent.gossip_port}"
        _LOG.info("ready: http://%s:%d for the application, %s", config.http.host, port, gossip)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        http.should_exit = True
        await serving
    finally:
        await agent.stop()
        _LOG.info("stopped")


def _listening(config: SiteConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.http.host else socket.AF_INET
    # Named TCP, or asyncio does not switch Nagle's algorithm off, and every answer waits for 40 ms.
    door = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((config.http.host, config.http.port))
        door.listen(128)
    except OSError as error:
        door.close()
        raise OSError(f"cannot listen for the application on {config.http}: {error.strerror or error}") from None
    return door


def change_stopped(config: SiteConfig, neighbour: str, comes_back: bool) -> None:
    """Write to the file of an agent that does not run that a neighbour has left, or is back."""
    path = config.data / STATE_FILE
    if not path.exists():
        raise JournalError(f"{path.name}: {config.name} has no state yet, and no agent of it runs")
    journal = SqliteJournal(path, config.name, config.terms, epoch=1)
    try:
        site = Site(config.name, config.terms, journal.load())
        journal.commit((site.join if comes_back else site.leave)(neighbour).records)
    finally:
        journal.close()
