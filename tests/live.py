"""One live agent for tests: a real site on a real disk, behind a real server in a thread."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import uvicorn

from fedbandit import FedBatch
from fedbandit.agent.api import make_app
from fedbandit.agent.federation import Federation
from fedbandit.agent.journal import JournalError, SqliteJournal
from fedbandit.agent.site import NotANeighbour, Site
from fedbandit.agent.state import ArmState, DecisionState, FederationState, NeighbourState, PrivacyState, State

TERMS = Federation("trial", 3, ("none", "metformin", "glipizide"), 0.0, 1.0, FedBatch(1.0, first_batch=4))
NEIGHBOURS = ("east", "south")


def small_noise(epsilon, count):
    return [0] * count


class Driver:
    """Commits before it tells; throws the site away when the disk fails. A decision's time is its number."""

    def __init__(self, path, terms=TERMS):
        self.path, self.terms, self.at, self.reason = path, terms, 0.0, None
        self.journal = SqliteJournal(path, "north", terms, epoch=1)
        self.exchanges = 0
        self._load()
        for neighbour in NEIGHBOURS:
            self._commit(self.site.join(neighbour))

    def _load(self):
        self.stored = self.journal.load()
        self.site = Site("north", self.terms, self.stored, small_noise)

    def _commit(self, step):
        try:
            self.journal.commit(step.records)
        except JournalError:
            self._load()
            raise
        return step.result

    async def decide(self):
        self.at += 1.0
        return self._commit(self.site.decide(self.at, (0.0,) * self.terms.num_arms))

    async def report(self, decision_id, reward):
        self._commit(self.site.report(decision_id, reward))

    async def leave(self, neighbour):
        self._commit(self.site.leave(neighbour))

    async def rejoin(self, neighbour):
        if neighbour not in NEIGHBOURS:
            raise NotANeighbour(f"{neighbour} is no neighbour of north")
        self._commit(self.site.join(neighbour))

    def not_ready(self):
        return self.reason

    def expire(self):
        self._commit(self.site.expire(self.at + 1.0))

    def fill_disk(self, full=True):
        """SQLite refuses to grow the file, as on a full disk."""
        pages = self.journal._file.execute("PRAGMA page_count").fetchone()[0]
        self.journal._file.execute(f"PRAGMA max_page_count = {pages if full else 1_000_000}")

    def state(self):
        site, terms = self.site, self.terms
        decisions = list(self.stored.decisions.values())
        arms = [
            ArmState(
                name=terms.arms[k],
                estimate=site.theta[k],
                radius=None if site.theta[k] is None else site.estimates[k].variance,
                own_mean=site.estimates[k].x_mean if site.estimates[k].releases else None,
                weight=site.gossiped[terms.num_arms + k],
                pulls=site.tried[k],
                rewards=site.tried[k] - sum(d.arm == k and d.reward is None for d in decisions),
                releases=site.estimates[k].releases,
            )
            for k in range(terms.num_arms)
        ]
        neighbours = [
            NeighbourState(
                name=name,
                address=None if name == "south" else "127.0.0.1:9",
                reachable=name == "east",
                last_exchange=1_700_000_000.5 if name == "east" else None,
                exchanges=7 if name == "east" else 0,
                failures=2,
                refusals=1,
                last_error=None if name == "east" else "refused",
                left=name not in site.neighbours,
            )
            for name in NEIGHBOURS
        ]
        policy = terms.policy
        return State(
            name="north",
            version="0.1.0",
            epoch=site.epoch,
            started=1_700_000_000.0,
            insecure=False,
            federation=FederationState(
                name=terms.name,
                num_agents=terms.num_agents,
                arms=list(terms.arms),
                low=terms.low,
                high=terms.high,
                policy=policy.kind,
                digest=terms.digest(),
            ),
            decisions=DecisionState(
                handed_out=self.stored.life.decisions,
                pending=sum(d.reward is None for d in decisions),
                remembered=len(decisions),
            ),
            arms=arms,
            neighbours=neighbours,
            privacy=PrivacyState(
                mechanism="batches",
                epsilon_per_reward=policy.epsilon,
                releases=len(self.stored.releases),
                promise="each reward is in one release",
            ),
            refused={"wrong certificate": 3},
            warnings=["one"],
        )


class Served:
    """A driver behind a server: ``call`` runs something of the driver in the server's thread."""

    def __init__(self, url, driver, loop):
        self.url, self.driver, self._loop = url, driver, loop
        self.port = int(url.rpartition(":")[2])

    def call(self, function):
        async def run():
            return function(self.driver)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def rows(self):
        """All that is on disk."""

        def read(driver):
            tables = ("agent", "decision", "batch", "release", "link")
            return {table: driver.journal._file.execute(f"SELECT * FROM {table}").fetchall() for table in tables}  # noqa: S608

        return self.call(read)


@contextmanager
def serving(folder, token=None, terms=TERMS, port=0):
    """A real server on loopback."""
    ready, box = threading.Event(), {}
    # With the protocol named, or asyncio leaves Nagle on: 40 ms per answer.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))

    async def serve():
        try:
            driver = Driver(folder / "north.db", terms)
            config = uvicorn.Config(
                make_app(driver, token), http="httptools", access_log=False, log_config=None, lifespan="off"
            )
            server = uvicorn.Server(config)
            server.install_signal_handlers = lambda: None
            box.update(driver=driver, server=server, loop=asyncio.get_running_loop())
            task = asyncio.create_task(server.serve([bound]))
            while not server.started and not task.done():
                await asyncio.sleep(0.005)
        finally:
            ready.set()
        await task
        driver.journal.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait(10)
    try:
        yield Served(f"http://127.0.0.1:{bound.getsockname()[1]}", box["driver"], box["loop"])
    finally:
        box["server"].should_exit = True
        thread.join(10)
        bound.close()


__all__ = ["NEIGHBOURS", "TERMS", "Driver", "Served", "serving"]
