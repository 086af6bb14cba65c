"""One live agent for tests: the real agent on a real disk, behind a real server in a thread. Neighbours never call."""

import asyncio
import inspect
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fedbandit import FedBatch
from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import STATE_FILE, SqliteJournal
from fedbandit.agent.http.server import http_server, listening_socket
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import Neighbour, SiteConfig
from fedbandit.agent.process.rights import ALL_RIGHTS, Caller
from fedbandit.agent.process.runtime import Agent
from fedbandit.agent.process.serve import app_of, keep_tokens

TERMS = Federation("trial", ("none", "metformin", "glipizide"), 0.0, 1.0, FedBatch(1.0, first_batch=4), max_agents=3)
NEIGHBOURS = ("east", "south")


def unsigned(_):
    """As a site without certificates signs."""
    return b"", b""


def bulletin_of(name, terms=TERMS, reward=None, incarnation=1, number=1):
    """A bulletin of another site; with a reward it has given each arm until all have released that. Without noise."""
    site = Site(name, terms, Stored(Numbering(incarnation, 0)), lambda epsilon, count: [0] * count)
    draws = SiteDraws((0.0,) * terms.num_arms, 0.5)
    while reward is not None and min(site.releases) == 0:
        site.report(site.decide(0.0, draws).result.id, reward)
    site.presence.highest = incarnation, number - 1
    return site.publish(unsigned, 1.0).result


class Driver(Agent):
    """The agent without noise, and with ways to hurt it. By default nobody asks whether its file is old."""

    def __init__(self, folder, terms=TERMS, doubts=False, **changes):
        self._doubts = doubts
        here = Address("127.0.0.1", 0)
        neighbours = tuple(Neighbour(name, None) for name in NEIGHBOURS)
        month = 30 * 24 * 3600.0
        path = folder / "site.toml"
        config = SiteConfig("north", folder, terms, None, here, None, None, month, 1000, neighbours, path)
        super().__init__(replace(config, **changes), None)
        self.reason = None
        self.reported = {}

    async def report(self, decision_id, reward):
        counts = await super().report(decision_id, reward)
        self.reported.setdefault(decision_id, reward)
        return counts

    async def report_all(self, rewards):
        outcomes = await super().report_all(rewards)
        for (decision_id, reward), outcome in zip(rewards, outcomes, strict=True):
            if outcome in (True, False):
                self.reported.setdefault(decision_id, reward)
        return outcomes

    def _make_site(self, stored):
        keeps, presence = self.config.keep_rewards, self._presence if self._doubts else None
        site = Site("north", self.terms, stored, lambda epsilon, count: [0] * count, presence, keeps_rewards=keeps)
        self._clock.catch_up(site.clock)
        return site

    @property
    def file(self):
        """The open file."""
        self.site._commit()
        self.site._loaded()
        return self.site._journal._file

    async def not_ready(self):
        return self.reason or await super().not_ready()

    def fill_disk(self, full=True):
        """SQLite refuses to grow the file, as on a full disk; also when it is opened again."""
        self._full = full
        self._limit(self.file)

    _full = False

    def _limit(self, file):
        pages = file.execute("PRAGMA page_count").fetchone()[0]
        file.execute(f"PRAGMA max_page_count = {pages if self._full else 1_000_000}")

    def _open_journal(self):
        journal = SqliteJournal(self.config.data / STATE_FILE, "north", self.terms, incarnation=1)
        self._limit(journal._file)
        return journal


class Served:
    """A driver behind a server: ``call`` runs something of the driver in the server's thread."""

    def __init__(self, url, driver, loop):
        self.url, self.driver, self._loop = url, driver, loop
        self.port = int(url.rpartition(":")[2])

    def call(self, function):
        async def run():
            result = function(self.driver)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def rows(self):
        """All that is on disk, but for bulletins and the count of commits: those come by themselves."""

        def read(driver):
            tables = ("decision", "waiting", "kept", "known", "released", "neighbour", "excluded", "arm_change")
            queries = {table: f"SELECT * FROM {table}" for table in tables}  # noqa: S608
            queries["agent"] = "SELECT name, federation, key, incarnation, decisions, clock, late, since FROM agent"
            return {table: driver.file.execute(query).fetchall() for table, query in queries.items()}

        return self.call(read)

    def settle(self):
        """Wait until the bulletin says how many decisions were made: it does so once a second."""

        async def published(driver):
            while driver.site.in_memory.has_news(time.time() + 3600.0):
                await driver._publish()
                await asyncio.sleep(0.02)

        self.call(published)

    def hear(self, *bulletins: Signed):
        """Bulletins of other sites arrive."""
        for it in bulletins:
            self.call(lambda driver, it=it: driver.site.do(lambda site: site.merge(it, "east", time.time())))

    def rewards(self):
        """The value first acknowledged for each decision on disk; None where the disk has no reward."""

        def read(driver):
            rows = driver.file.execute("SELECT id, rewarded FROM decision ORDER BY number").fetchall()
            return {name: driver.reported[name] if rewarded else None for name, rewarded in rows}

        return self.call(read)


@contextmanager
def serving(
    folder, token=None, terms=TERMS, port=0, tokens=None, doubts=False, proxy_secret=None, keeps_tokens=False, **changes
):
    """A real server on loopback.

    * ``token``: one with all rights, ``tokens``: each with its own
    * ``doubts``: whether nothing is released until somebody confirms that the file is current
    * ``keeps_tokens``: whether they follow the files of ``role_files``
    """
    tokens = tokens if token is None else {token: ALL_RIGHTS}
    if tokens is not None:
        tokens = {it: who if isinstance(who, Caller) else Caller(f"who has {it}", who) for it, who in tokens.items()}
    ready, box = threading.Event(), {}
    # With the protocol named, or asyncio leaves Nagle on: 40 ms per answer.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))

    async def serve():
        try:
            driver = Driver(folder, terms, doubts, **changes)
            driver._tokens = tokens
            await driver.start()
            server = http_server(app_of(driver, tokens, proxy_secret))
            sockets = [bound]
            if driver.config.proxy is not None and isinstance(driver.config.proxy.peer, Path):
                sockets.append(listening_socket(driver.config.proxy.peer))
            box.update(driver=driver, server=server, loop=asyncio.get_running_loop())
            keeper = asyncio.create_task(keep_tokens(driver, tokens)) if keeps_tokens else None
            task = asyncio.create_task(server.serve(sockets))
            while not server.started and not task.done():
                await asyncio.sleep(0.005)
        finally:
            ready.set()
        await task
        if keeper is not None:
            keeper.cancel()
        await driver.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(60)
    try:
        yield Served(f"http://127.0.0.1:{bound.getsockname()[1]}", box["driver"], box["loop"])
    finally:
        box["loop"].call_soon_threadsafe(box["driver"].feed.close)
        box["server"].should_exit = True
        thread.join(60)
        bound.close()


__all__ = ["NEIGHBOURS", "TERMS", "Driver", "Served", "bulletin_of", "serving", "unsigned"]
