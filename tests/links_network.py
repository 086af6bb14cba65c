"""Sites in one process over real links: websockets with mutual TLS on loopback. Each is a board, or a whole site."""

import asyncio
import functools
import time
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import SystemRandom
from types import SimpleNamespace

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fedbandit.agent.core.board import Board
from fedbandit.agent.core.bulletin import ArmEntry, Bulletin, Signed
from fedbandit.agent.core.decisions import ANY, Request
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.gossip import frames
from fedbandit.agent.gossip.connection import Connection, dial
from fedbandit.agent.gossip.links import Links
from fedbandit.agent.gossip.tls import TlsFiles, client_context, spoken_to
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import Neighbour
from fedbandit.policies import FedBatch

DAY = timedelta(days=1)


def terms(**policy):
    return Federation("trial", ("A", "B"), 0.0, 1.0, FedBatch(**({"epsilon": 1.0} | policy)))


class Authority:
    """A CA in memory."""

    def __init__(self, title="test CA"):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
        self.certificate = self._signed(self.subject, self.key.public_key(), x509.BasicConstraints(True, None))
        self.pem = self.certificate.public_bytes(Encoding.PEM)

    def _signed(self, subject, key, *extensions, begins=-DAY, ends=DAY):
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(self.subject, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(now + begins).not_valid_after(now + ends)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def tls(self, name, key=None, crl=None, names=(), **dates):
        """Certificate, key and CA of a site."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a site")])
        names = x509.SubjectAlternativeName([x509.DNSName(it) for it in names or (name,)])
        made = self._signed(subject, key.public_key(), names, **dates).public_bytes(Encoding.PEM)
        return TlsFiles(made, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), self.pem, None, crl)

    def crl(self, *revoked):
        """A list of revoked certificates (PEM), of TlsFiles."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder(self.subject, now - DAY, now + DAY)
        for tls in revoked:
            serial = x509.load_pem_x509_certificate(tls.certificate).serial_number
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder(serial, revocation_date=now - DAY).build()
            )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


class BoardSite:
    """A site that is a board, and a disk that is always there: what links need of ``Site`` and ``DurableSite``."""

    def __init__(self, name, federation):
        self.name, self.federation = name, federation
        self.board, self.number, self.incarnation = Board(name, federation), 0, 1_700_000_000_000
        self.neighbours, self.haves, self.refused = (), {}, ()
        self.merged = []

    @property
    def in_memory(self):
        return self

    async def do(self, event):
        return event(self).result

    def at_once(self, event):
        return event(self).result

    async def shown(self, read):
        return read(self)

    def have(self, to=""):
        return self.board.have()

    def newer_than(self, have, to=""):
        return self.board.newer_than(have)

    def link(self, names):
        self.neighbours = names
        return SimpleNamespace(result=None)

    def refuse(self, names):
        self.refused = names
        self.board.refuse(names)
        return SimpleNamespace(result=None)

    def revoke(self, signers):
        self.board.revoke(signers)
        return SimpleNamespace(result=None)

    def receive_have(self, by, have):
        self.haves[by] = have
        return SimpleNamespace(result=None)

    def merge(self, signed, by, now):
        outcome = self.board.merge(signed, now)
        if outcome.kind in ("new", "conflict"):
            self.merged.append((outcome.site, time.perf_counter()))
        return SimpleNamespace(result=SimpleNamespace(outcome=outcome))

    def body(self, number=None, **fields):
        if number is None:
            self.number += 1
        given = {
            "federation": self.federation.digest(),
            "site": self.name,
            "incarnation": self.incarnation,
            "number": self.number if number is None else number,
            "at": 1000 * int(time.time()),
            "arms": tuple(ArmEntry(arm, (0.5 * 2**20,) * self.columns, 3, 30, 40) for arm in self.federation.arms),
        }
        return Bulletin(**(given | fields)).encode()

    @functools.cached_property
    def columns(self):
        return self.board._counting.num_columns

    def publish(self, links, **fields):
        """Make a bulletin and send it."""
        body = self.body(**fields)
        signed = Signed(body, *links.sign(body))
        self.board.merge(signed, time.time())
        links.announce(signed)
        return signed


class Party:
    """A site with its links, its certificate and its listener."""

    def __init__(self, name, tls, federation=None, durable=None, refused=None):
        self.name, self.tls, self.told = name, tls, []
        self.federation = federation or terms()
        self.site = durable or BoardSite(name, self.federation)
        self.links = Links(
            name, self.federation, self.site, tls, time.time, SystemRandom(), refused=lambda *it: self.told.append(it)
        )
        self.listener = None
        self.neighbours = {}

    def listen(self, port=0):
        self.listener = self.links.listen(Address("127.0.0.1", port))
        self.listener.start()
        return self.listener.port

    @property
    def address(self):
        return Address("127.0.0.1", self.listener.port)

    async def use(self, *neighbours):
        """Parties that this one dials; names of others."""
        self.neighbours = {
            it if isinstance(it, str) else it.name: None if isinstance(it, str) else it.address for it in neighbours
        }
        await self.links.use(Neighbour(name, address) for name, address in self.neighbours.items())

    def status(self, other):
        return self.links.statuses[other if isinstance(other, str) else other.name]

    def knows(self, other):
        """The number of the other's newest bulletin here."""
        held = self.site.in_memory.board.held(other if isinstance(other, str) else other.name)
        return 0 if held is None else held.bulletin.number

    def publish(self, **fields):
        return self.site.publish(self.links, **fields)


class Caller:
    """Somebody who dials a party and says what he likes."""

    def __init__(self, party, tls, word=""):
        self.tls, self.frames, self.error, self.ended = tls, [], None, False
        context = None if tls is None else client_context(tls)
        said = spoken_to(party.name, word) if word else party.name
        self.connection = Connection(context, (party.address, said))
        self._address = party.address

    async def __aenter__(self):
        def opened(connection):
            connection.received = lambda _, data: self.frames.append(frames.decode(data))
            connection.lost = self._lost

        self.connection.opened = opened
        await dial(self.connection, self._address, None)
        return self

    async def __aexit__(self, *_):
        self.connection.abort()

    def _lost(self, _, error):
        self.error, self.ended = error, True

    def say(self, *said):
        for frame in said:
            self.connection.send(frame if isinstance(frame, bytes) else frames.encode(frame))

    def have(self, site, federation=None, run=1, versions=None):
        self.say(frames.Have(site, (federation or terms()).digest(), run, versions or {}))

    def bulletin(self, signed, fingerprint):
        self.say(frames.Certificate(signed.signer), frames.Bulletin(fingerprint, signed.signature, signed.body))

    @property
    def refusals(self):
        return [it.words for it in self.frames if isinstance(it, frames.Refusal)]


async def until(condition, within=60.0, every=0.005):
    """Wait until something holds; how long it took."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > within:
            raise AssertionError("it does not come to pass")
        await asyncio.sleep(every)
    return time.perf_counter() - began


@asynccontextmanager
async def linked(edges, authority=None, make=Party):
    """Parties by name; the first of each edge dials the second."""
    authority = authority or Authority()
    names = dict.fromkeys(name for edge in edges for name in edge)
    parties = {name: make(name, authority.tls(name)) for name in names}
    try:
        for party in parties.values():
            party.listen()
        for name, party in parties.items():
            dialled = [parties[b] for a, b in edges if a == name]
            await party.use(*dialled, *(a for a, b in edges if b == name and (name, a) not in edges))
        await until(lambda: all(it.linked for party in parties.values() for it in party.links.statuses.values()), 20.0)
        yield parties
    finally:
        for party in parties.values():
            with suppress(Exception):
                await party.links.close()


def ring(count):
    return [(f"s{i}", f"s{(i + 1) % count}") for i in range(count)]


def run(scenario, within=240.0):
    """Run a scenario; the loop must not hang, nor be left with tasks."""

    async def bounded():
        async with asyncio.timeout(within):
            await scenario

    asyncio.run(bounded())


def written(folder: Path, tls: TlsFiles):
    """The files of a certificate."""
    folder.mkdir(exist_ok=True, parents=True)
    for name, content in (("site.crt", tls.certificate), ("site.key", tls.key), ("ca.crt", tls.ca)):
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return folder


class LinksNetwork:
    """Whole sites with SQLite files in one process; their bulletins travel over real links.

    The same calls as ``MemoryNetwork``, so that one test runs on both. Nothing happens by itself: a link opens for an
    exchange, and closes when both ends have the same.
    """

    def __init__(self, folder: Path, federation: Federation, links: list[tuple[str, str]], noise) -> None:
        self._loop, self._at = asyncio.new_event_loop(), 0.0
        self.links, self.names = tuple(links), tuple(dict.fromkeys(name for link in links for name in link))
        self._loop.run_until_complete(self._start(folder, federation, noise))

    async def _start(self, folder, federation, noise) -> None:
        authority = Authority()
        self._parties = {}
        for name in self.names:
            durable = DurableSite(
                lambda name=name: SqliteJournal(folder / f"{name}.sqlite", name, federation, 1),
                lambda stored, name=name: Site(name, federation, stored, noise),
                lambda: 0.0,
            )
            self._parties[name] = Party(name, authority.tls(name), federation, durable)
            self._parties[name].listen()
            await self._publish(name)

    def site(self, name: str) -> Site:
        return self._parties[name].site.in_memory

    def decide(self, name: str, draws, context=None):
        request = ANY if context is None else Request(context=context)
        return self._do(name, lambda site: site.decide(0.0, draws, request))

    def report(self, name: str, decision_id: str, reward: float) -> None:
        self._do(name, lambda site: site.report(decision_id, reward))

    def _do(self, name, event):
        async def done():
            result = await self._parties[name].site.do(event)
            await self._publish(name)
            return result

        return self._loop.run_until_complete(done())

    async def _publish(self, name) -> None:
        party, self._at = self._parties[name], self._at + 2.0
        signed = await party.site.do(lambda site: site.publish(party.links.sign, self._at))
        if signed is not None:
            party.links.announce(signed)

    def exchange(self, name: str, neighbour: str) -> None:
        async def exchanged():
            here, there = self._parties[name], self._parties[neighbour]
            await there.use(name)
            await here.use(there)
            await until(lambda: here.status(neighbour).linked and there.status(name).linked, every=0.001)
            await until(lambda: dict(here.site.in_memory.have()) == dict(there.site.in_memory.have()), every=0.001)
            await here.use()
            await there.use()
            assert not here.told, here.told
            assert not there.told, there.told

        self._loop.run_until_complete(exchanged())

    def run(self) -> None:
        """Nothing is left on its way."""

    def differences(self) -> list[str]:
        haves = [dict(self.site(name).have()) for name in self.names]
        return [name for name, have in zip(self.names, haves, strict=True) if have != haves[0]]

    def close(self) -> None:
        async def stop():
            for party in self._parties.values():
                await party.links.close()
                party.site.close()

        self._loop.run_until_complete(stop())
        self._loop.close()
