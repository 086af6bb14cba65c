"""A federation in one process whose messages travel over real gRPC with mutual TLS, and whose disks are SQLite files.

The same calls as ``MemoryNetwork``, so that one test runs on both. Nothing happens by itself: links have no clocks.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import DecisionRecord
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.gossip.certificates import init, issue
from fedbandit.agent.gossip.links import NeighbourLinks
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.gossip.transport import Dialler, GossipServer
from fedbandit.agent.process.config import Address, Neighbour


class GrpcNetwork:
    def __init__(self, folder: Path, terms: Federation, links: list[tuple[str, str]], noise) -> None:
        self._loop = asyncio.new_event_loop()
        self._sites: dict[str, DurableSite] = {}
        self._links: dict[str, NeighbourLinks] = {}
        self._servers: dict[str, GossipServer] = {}
        self._diallers: dict[tuple[str, str], Dialler] = {}
        self._refused: list[str] = []
        self._loop.run_until_complete(self._start(folder, terms, links, noise))

    async def _start(self, folder: Path, terms: Federation, links: list[tuple[str, str]], noise) -> None:
        init(folder, "test CA", 1, datetime.now(UTC))
        tls: dict[str, TlsFiles] = {}
        names = dict.fromkeys(name for link in links for name in link)
        for name in names:
            written = issue(folder, name, 1, datetime.now(UTC))
            tls[name] = TlsFiles(
                written.certificate.read_bytes(), written.key.read_bytes(), (folder / "ca.crt").read_bytes()
            )
            self._sites[name] = DurableSite(
                lambda name=name: SqliteJournal(folder / f"{name}.sqlite", name, terms, 1),
                lambda stored, name=name: Site(name, terms, stored, noise),
                lambda: 0.0,
            )
            self._links[name] = NeighbourLinks(name, terms, self._sites[name], tls[name], lambda: 0.0, Random(0))  # noqa: S311
            handlers = {"Exchange": self._links[name].answer_exchange, "Compare": self._links[name].answer_compare}
            self._servers[name] = GossipServer(
                Address("127.0.0.1", 0),
                tls[name],
                handlers,
                self._links[name].admits,
                lambda reason, why: self._refused.append(f"{reason}: {why}"),
            )
            await self._servers[name].start()
        for name in names:  # nobody has an address: nobody dials but when told to
            others = [b if a == name else a for a, b in links if name in (a, b)]
            await self._links[name].use(Neighbour(other, None, 1.0) for other in others)
        for dials, listens in links:
            address = Address("127.0.0.1", self._servers[listens].port)
            self._diallers[dials, listens] = Dialler(listens, address, tls[dials])

    def site(self, name: str) -> Site:
        return self._sites[name].in_memory

    def decide(self, name: str, draws: SiteDraws) -> DecisionRecord:
        return self._loop.run_until_complete(self._sites[name].do(lambda site: site.decide(0.0, draws)))

    def report(self, name: str, decision_id: str, reward: float) -> None:
        self._loop.run_until_complete(self._sites[name].do(lambda site: site.report(decision_id, reward)))

    def exchange(self, name: str, neighbour: str) -> None:
        """One exchange, from offer to answer."""
        status = self._links[name].statuses[neighbour]
        self._loop.run_until_complete(self._links[name].exchange(status, self._diallers[name, neighbour]))
        assert status.last_error is None, (status, self._refused)

    def run(self) -> None:
        """Nothing is left on its way."""

    def close(self) -> None:
        async def stop() -> None:
            for dialler in self._diallers.values():
                await dialler.close()
            for name, server in self._servers.items():
                await server.stop(0)
                self._sites[name].close()

        self._loop.run_until_complete(stop())
        self._loop.close()
