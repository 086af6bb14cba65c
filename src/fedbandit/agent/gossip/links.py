"""Keeps a link with every neighbour, and passes on what one of them has not seen: one connection, whichever end dials.

When a link opens, both ends say what they have (``Have``) and send what the other lacks. Afterwards each new bulletin
goes out at once; of each site only the newest waits, so a slow reader costs bounded memory. ``Have`` follows again every
``HAVE_EVERY`` seconds. What a link does is idempotent: lost, repeated and crossing frames need no thought.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from fedbandit.agent.core.board import Have as Versions
from fedbandit.agent.core.bulletin import Place, Signed
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import JournalError
from fedbandit.agent.gossip.connection import Closed, Connection, dial
from fedbandit.agent.gossip.frames import (
    Bulletin,
    Certificate,
    FrameError,
    Have,
    Refusal,
    decode,
    encode,
    place_in,
    terms_in,
)
from fedbandit.agent.gossip.listener import Listener
from fedbandit.agent.gossip.signatures import Forged, NotAccepted, Signatures
from fedbandit.agent.gossip.tls import TlsFiles, client_context, in_words, spoken_to
from fedbandit.agent.process.config import Address, Neighbour
from fedbandit.checks import InvalidArgument, printable

__all__ = ["SILENT_AFTER", "Links", "NeighbourStatus", "word"]

HAVE_EVERY = 30.0
"""Seconds between two ``Have`` on a link."""

TENDED_EVERY = 2.5
"""Seconds between two looks at the links."""

PING_AFTER, DEAD_AFTER = 10.0, 20.0
"""Seconds of silence after which a neighbour is asked for a sign of life, and after which the connection counts as dead:
a firewall may have dropped it without a word."""

PROBED = 3.0
"""Seconds in which an old connection must answer, when a neighbour comes with a second one."""

RETRY, LONGEST_RETRY, RETRY_REFUSED = 0.5, 5.0, 30.0
"""Seconds between attempts to dial, at first, at most, and at most where the neighbour refuses us."""

PAUSE, LONGEST_PAUSE = 10.0, 600.0
"""Seconds for which a link rests after a forged bulletin, the first time and at most."""

RATE, AT_ONCE = 2.0, 10.0
"""Bulletins of one site in a second that are taken from one link; so many may come at once. An honest site makes one a
second, and more only where arms change."""

OF_ONE_SITE = 8
"""The most bulletins of one site that wait to be verified: its newest, or both halves of a conflict and what counts."""

MOST_WAITING = 2**23
"""Bytes that wait to be verified, after which no more is read from a link."""

BATCH = 16
"""The most bulletins that are verified together."""

NOT_OPEN_YET = 4
"""The most connections of one neighbour that are open and have not said ``Have``; a further one replaces the oldest."""

CHAINS = 256
"""The most certificates of one link that no accepted bulletin has used yet."""

SILENT_AFTER = 60.0
"""Seconds without a link after which a neighbour that dials us is called silent."""

TERMS_DIFFER = 16_384
"""Bytes by which another site's terms may be longer than ours: comparing them must not delay decisions."""

_LOG = logging.getLogger("fedbandit.gossip")


class Pace:
    """Limits a log: a few lines at once, then one every ``SECONDS``."""

    AT_ONCE, SECONDS = 6, 10.0

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start with nothing logged; ``clock`` gives seconds."""
        self._clock, self._lines, self._since = clock, float(self.AT_ONCE), clock()

    def allows(self) -> bool:
        """Whether a line may be logged now; if so, it counts as logged."""
        now = self._clock()
        self._lines = min(self.AT_ONCE, self._lines + max(0.0, now - self._since) / self.SECONDS)
        self._since = now
        if self._lines < 1.0:
            return False
        self._lines -= 1.0
        return True


# ---------------------------------------------------------------- what is known of a neighbour


@dataclass
class NeighbourStatus:
    """What this process has observed of one neighbour. Times are seconds since 1970."""

    neighbour: Neighbour
    began: float = 0.0
    linked: bool = False
    since: float | None = None
    """When the link last opened or closed."""
    last_heard: float | None = None
    dialled: str | None = None
    """Which end has dialled: "here" or "there"."""
    sent: int = 0
    received: int = 0
    """Bulletins."""
    bytes_sent: int = 0
    bytes_received: int = 0
    failures: int = 0
    """Attempts to dial that failed, and links that broke."""
    refusals: int = 0
    """Connections and bulletins of this neighbour that were refused here."""
    last_error: str | None = None
    differs: str | None = None
    """The terms in which it differs."""
    suspicion: str | None = None
    """A warning for the operator: two processes have its name."""
    paused_until: float | None = None
    silent: bool = False
    pace: Pace | None = field(default=None, repr=False)

    def opened(self, now: float, dialled: bool) -> None:
        """A link has opened."""
        if self.last_error is not None or self.since is None:
            self._log(logging.INFO, "linked")
        self.linked, self.since, self.last_heard, self.silent = True, now, now, False
        self.dialled = "here" if dialled else "there"
        self.last_error = self.differs = self.paused_until = None

    def closed(self, now: float, reason: str) -> None:
        """The link has ended."""
        if self.linked:
            self.linked, self.since, self.dialled = False, now, None
        self.failed(reason)

    def failed(self, reason: str) -> None:
        """There is no link. Logged when failures begin or the reason changes."""
        if reason != self.last_error:
            self._log(logging.WARNING, f"no link: {reason}")
        self.last_error = reason
        self.failures += 1

    def refused(self, reason: str) -> None:
        """We refused it, or what it sent; the refusal is logged elsewhere."""
        self.last_error = reason
        self.refusals += 1

    def differs_in(self, difference: str) -> None:
        """It has sent us its terms, and they differ from ours."""
        if difference != self.differs:
            self._log(logging.WARNING, difference)
        self.differs = self.last_error = difference

    def suspect(self, reason: str | None) -> None:
        """Two processes seem to have its name; None: no longer."""
        if reason is not None and reason != self.suspicion:
            self._log(logging.WARNING, reason)
        self.suspicion = reason

    def notice_silence(self, now: float) -> None:
        """Notice a neighbour that should dial us and has not for ``SILENT_AFTER`` seconds."""
        since = self.began if self.since is None else self.since
        if not self.linked and not self.silent and now - since >= SILENT_AFTER:
            self.silent = True
            self.last_error = self.last_error or f"has not called for {SILENT_AFTER:.0f} s"
            self._log(logging.WARNING, f"has not called for {SILENT_AFTER:.0f} s")

    def _log(self, level: int, line: str) -> None:
        if self.pace is None or self.pace.allows():
            _LOG.log(level, "%s: %s", self.neighbour.name, line)


# ---------------------------------------------------------------- one link


@dataclass(frozen=True)
class _Waiting:
    """A bulletin that waits to be verified, and the connection that brought it."""

    site: str
    place: Place
    signed: Signed
    connection: Connection


@dataclass
class _Link:
    """A link with one neighbour: what waits to be sent, and to be verified."""

    status: NeighbourStatus
    connection: Connection | None = None
    run: int | None = None
    outbox: dict[str, tuple[Signed, ...]] = field(default_factory=dict[str, tuple[Signed, ...]])
    shown: set[bytes] = field(default_factory=set[bytes])
    """Certificates that this connection has carried."""
    inbox: dict[str, dict[bytes, _Waiting]] = field(default_factory=dict[str, dict[bytes, _Waiting]])
    waiting_bytes: int = 0
    chains: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    allowances: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    not_open_yet: list[Connection] = field(default_factory=list[Connection])
    pause: float = PAUSE
    said_have: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    dialling: "asyncio.Task[None] | None" = None
    working: "asyncio.Task[None] | None" = None

    @property
    def name(self) -> str:
        return self.status.neighbour.name

    def allows(self, site: str, now: float) -> float:
        """Take one bulletin of a site from its allowance: 0; or the seconds to wait for that."""
        left, since = self.allowances.get(site, (AT_ONCE, now))
        left = min(AT_ONCE, left + RATE * (now - since))
        if left < 1.0:
            return (1.0 - left) / RATE
        self.allowances[site] = left - 1.0, now
        return 0.0


class Links:
    """The links of one agent; ``durable`` performs what they bring."""

    def __init__(
        self,
        name: str,
        terms: Federation,
        durable: DurableSite,
        tls: TlsFiles | None,
        clock: Callable[[], float],
        random: Random,
        note: Callable[[str, float, bool, str], None] | None = None,
        refused: Callable[[str, str], None] | None = None,
    ) -> None:
        """No neighbours yet: see ``use``. ``clock`` gives seconds since 1970.

        ``note`` is called with each bulletin: neighbour, time, whether it was sent, whose it is; ``refused`` with each
        refusal: reason, message.
        """
        self._name, self._terms, self._durable, self._tls = name, terms, durable, tls
        self._clock, self._random, self._note = clock, random, note
        self._refused = refused or (lambda *_: None)
        self._digest = terms.digest()
        self._own_terms = json.dumps(terms.terms()).encode()
        self._run = random.getrandbits(63)
        self._signatures = Signatures(tls, clock)
        self._context = None if tls is None else client_context(tls)
        self._links: dict[str, _Link] = {}
        self._unwanted: frozenset[str] = frozenset()
        self._revoked: Collection[str] = frozenset()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tending: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._pace = Pace(clock)

    # ---------------------------------------------------------------- who

    @property
    def statuses(self) -> Mapping[str, NeighbourStatus]:
        """What is known of each neighbour."""
        return {name: link.status for name, link in self._links.items()}

    def sign(self, body: bytes) -> tuple[bytes, bytes]:
        """The signature of an own bulletin, and the certificate."""
        return self._signatures.sign(body)

    def listen(self, address: Address) -> Listener:
        """Bind an address; the listener's ``start`` begins to accept."""
        self._listener = Listener(
            address, self._tls, word(self._digest, self._name), self._judge, self._opened, self._refused
        )
        return self._listener

    async def use(self, neighbours: Iterable[Neighbour]) -> None:
        """Replace the list of neighbours: begin new links, end those that are no longer listed."""
        listed = {it.name: it for it in neighbours}
        await self._durable.do(lambda site: site.link(tuple(listed)))
        for name, link in list(self._links.items()):
            if listed.get(name) != link.status.neighbour:
                del self._links[name]
                await self._end(link, f"{name} is no neighbour of {self._name} any more")
                if name not in listed:
                    _LOG.info("%s: no longer a neighbour", name)
        for name, neighbour in listed.items():
            if name not in self._links:
                status = NeighbourStatus(neighbour, began=self._clock(), pace=Pace(self._clock))
                self._links[name] = link = _Link(status)
                if neighbour.address is not None:
                    link.dialling = asyncio.create_task(self._keep_dialling(link), name=f"link to {name}")
        if self._tending is None:
            self._tending = asyncio.create_task(self._tend(), name="links")

    async def refuse(self, names: Collection[str], crl: bytes | None) -> None:
        """Take over ``[members] refuse``, and the list of revoked certificates; None: it has not changed.

        Connections are closed, and bulletins no longer counted, at once. ``InvalidArgument`` if the list is none.
        """
        if crl is not None:
            self._signatures.revoke(crl)
        self._unwanted = frozenset(names)
        self._apply_refusals()
        for link in self._links.values():
            for connection in (link.connection, *link.not_open_yet):
                if connection is not None and (found := self._unwelcome(link.name, connection)) is not None:
                    self._refuse(link, connection, *found)

    def _apply_refusals(self) -> None:
        """Tell the site whose rows do not count: those refused, and those whose bulletin a revoked key has signed."""
        board = self._durable.in_memory.board
        held = {name: it.signed.signer for name in board.sites if (it := board.held(name)) is not None}
        self._revoked = {site for site, signer in held.items() if self._signatures.is_revoked(signer)}
        names = self._unwanted | frozenset(self._revoked)
        self._durable.at_once(lambda site: site.refuse(names))

    async def close(self) -> None:
        """End all links."""
        if self._listener is not None:
            self._listener.close()
        if self._tending is not None:
            self._tending.cancel()
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(self._end(link, "stopping") for link in links))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end(self, link: _Link, words: str) -> None:
        for task in (link.dialling, link.working):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        open_ones = [it for it in (link.connection, *link.not_open_yet) if it is not None]
        for connection in open_ones:
            connection.lost = lambda *_: None
            connection.close(words)
        for connection in open_ones:
            await connection.ended.wait()

    def notice_silence(self) -> None:
        """Notice neighbours that should dial us and do not. Failures of those that we dial show at once."""
        for link in self._links.values():
            if link.status.neighbour.address is None:
                link.status.notice_silence(self._clock())

    # ---------------------------------------------------------------- opening a link

    def _judge(self, connection: Connection) -> tuple[str, str] | None:
        """Why the one that dials us is refused: a reason to count, and words."""
        if connection.who is None:
            return None  # without TLS: ``Have`` names the site
        name = connection.who.name
        if name not in self._links:
            return "not a neighbour", f"{name} is no neighbour of {self._name}"
        return self._unwelcome(name, connection)

    def _unwelcome(self, name: str, connection: Connection) -> tuple[str, str] | None:
        link = self._links[name]
        if name in self._unwanted:
            return "refused member", f"{self._name} refuses {name}"
        if connection.who is not None and connection.who.issued in self._signatures.revoked:
            return "certificate revoked", f"the certificate of {name} has been revoked"
        left = (link.status.paused_until or 0.0) - self._clock()
        if left > 0.0:
            return "paused", f"{self._name} rests this link for {left:.0f} s: {link.status.last_error}"
        return None

    async def _keep_dialling(self, link: _Link) -> None:
        """Dial while there is no link."""
        failures = 0
        while True:
            link.changed.clear()
            if link.connection is not None and link.connection.is_open:
                failures = 0
                await link.changed.wait()
                continue
            pause = (link.status.paused_until or 0.0) - self._clock()
            if pause <= 0.0 and link.name not in self._unwanted:
                refused = not await self._dial(link)
                if link.connection is not None:
                    continue
                failures += 1
                longest = RETRY_REFUSED if refused else LONGEST_RETRY
                pause = min(longest, RETRY * 2.0 ** min(failures - 1, 10)) * (0.5 + self._random.random())
            try:
                async with asyncio.timeout(max(pause, RETRY)):
                    await link.changed.wait()
            except TimeoutError:
                pass

    async def _dial(self, link: _Link) -> bool:
        """Dial once, and wait until the link is adopted or has failed; False if the neighbour refuses us."""
        neighbour, status = link.status.neighbour, link.status
        assert neighbour.address is not None  # noqa: S101 - else nobody dials
        said = spoken_to(neighbour.name, word(self._digest, neighbour.name))
        connection = Connection(self._context, (neighbour.address, said))

        def judge(connection: Connection, _: bytes | None) -> str | None:
            if connection.who is None:
                return None
            if connection.who.name != neighbour.name:
                there = connection.who.name
                return f"the certificate there does not bear the name {neighbour.name}, but {there}"
            found = self._unwelcome(neighbour.name, connection)
            return None if found is None else found[1]

        connection.judge, connection.opened = judge, self._opened
        failures = status.failures
        try:
            await dial(connection, neighbour.address, neighbour.proxy)
        except Closed as error:
            status.failed(str(error))
            return not str(error).startswith("it refuses")
        except (OSError, TimeoutError) as error:
            status.failed(in_words(error))
            return True
        except Exception as error:  # a dead task would leave the link dead until a restart
            _LOG.exception("%s: internal error", neighbour.name)
            status.failed(f"internal error: {type(error).__name__}: {error}")
            return True
        ended = asyncio.create_task(connection.ended.wait())
        changed = asyncio.create_task(link.changed.wait())
        try:
            await asyncio.wait({ended, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            changed.cancel()
        return link.connection is not None or status.failures == failures

    def _opened(self, connection: Connection) -> None:
        """A connection is open. The end that has dialled says what it has; the other one answers if it adopts it."""
        link = None if connection.who is None else self._links.get(connection.who.name)
        connection.received = self._greeted
        connection.lost = self._lost_unadopted
        connection.failed = lambda _, error: self._misbehaved(link, error)
        if link is not None:
            if len(link.not_open_yet) >= NOT_OPEN_YET:
                self._refused("connections", f"{link.name} at {connection.address}: more than {NOT_OPEN_YET} at once")
                link.not_open_yet.pop(0).abort()
            link.not_open_yet.append(connection)
        asyncio.get_running_loop().call_later(DEAD_AFTER, self._never_greeted, connection)
        if connection.dialled:
            self._soon(self._say_have(connection), "have")

    def _never_greeted(self, connection: Connection) -> None:
        if connection.received == self._greeted:
            connection.close("it does not say what it has")

    async def _say_have(self, connection: Connection) -> None:
        have = await self._durable.shown(lambda site: dict(site.have()))
        connection.send(encode(Have(self._name, self._digest, self._run, have)))

    def _greeted(self, connection: Connection, data: bytes) -> None:
        """The first frame of a connection."""
        who = connection.who
        link = None if who is None else self._links.get(who.name)
        try:
            have = decode(data)
        except FrameError as error:
            self._refuse(link, connection, "message", str(error))
            return
        if isinstance(have, Refusal):
            self._hear_refusal(link, connection, have)
            return
        if not isinstance(have, Have):
            self._refuse(link, connection, "message", "the first frame must be Have")
            return
        if who is not None and have.site != who.name:
            self._refuse(link, connection, "message", f"it says that it is {have.site}: its certificate is for {who.name}")
            return
        link = self._links.get(have.site)
        if link is None:
            self._refuse(link, connection, "not a neighbour", f"{have.site} is no neighbour of {self._name}")
            return
        if (found := self._unwelcome(have.site, connection)) is not None:
            self._refuse(link, connection, *found)
            return
        if have.federation != self._digest:
            words = f"{have.site} follows other terms of the federation than {self._name}"
            self._refuse(link, connection, "other terms", words, self._own_terms)
            return
        if have.run == 0:
            connection.send(encode(Have(self._name, self._digest, self._run, {})))
            connection.close("asked and answered")
            return
        connection.received = self._received
        self._decide(link, connection, have)

    def _decide(self, link: _Link, connection: Connection, have: Have) -> None:
        """Adopt a connection, or keep the one that there is.

        Where both ends have dialled, both keep the connection that the end with the smaller name has dialled. A process
        that dials anew has lost its old connection. Of two processes with one name, the one that is linked and answers
        stays: they do not replace each other in turns.
        """
        old = link.connection
        if old is None or not old.is_open:
            self._adopt(link, connection, have)
        elif link.run != have.run:
            self._soon(self._probe(link, old, connection, have), "probe")
        elif connection.dialled == old.dialled or connection.dialled == (self._name < link.name):
            self._adopt(link, connection, have)
        else:
            connection.close("another connection of this link is kept")

    async def _probe(self, link: _Link, old: Connection, connection: Connection, have: Have) -> None:
        asked, deadline = old.heard_at, asyncio.get_running_loop().time() + PROBED
        old.ping()
        while old.is_open and old.heard_at == asked and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        if link.connection is old and old.is_open and old.heard_at != asked:
            words = f"another process with the name {link.name} is linked, from {old.address}, and answers"
            link.status.suspect(f"two processes have the name {link.name}: {old.address} and {connection.address}")
            self._refuse(None, connection, "two processes", words)
        elif link.connection in (old, None):
            self._adopt(link, connection, have)
        else:
            connection.close("another connection of this link is kept")

    def _adopt(self, link: _Link, connection: Connection, have: Have) -> None:
        if not connection.is_open or self._links.get(link.name) is not link:
            return
        old, link.connection, link.run = link.connection, connection, have.run
        if old is not None:
            old.lost = lambda *_: None
            old.close("another connection of this link is kept")
        if connection in link.not_open_yet:
            link.not_open_yet.remove(connection)
        link.outbox.clear()
        link.shown.clear()
        link.said_have = self._clock()
        connection.writable = lambda _: self._send_waiting(link)
        connection.lost = partial(self._lost, link)
        link.status.opened(self._clock(), connection.dialled)
        link.changed.set()
        self._soon(self._begin(link, connection, have.versions), "answer")

    async def _begin(self, link: _Link, connection: Connection, theirs: Versions) -> None:
        if not connection.dialled:
            await self._say_have(connection)
        await self._answer(link, connection, theirs)

    def _lost_unadopted(self, connection: Connection, error: Exception) -> None:
        link = None if connection.who is None else self._links.get(connection.who.name)
        if link is not None and connection in link.not_open_yet:
            link.not_open_yet.remove(connection)
            if link.connection is None:
                link.status.failed(in_words(error))

    def _lost(self, link: _Link, connection: Connection, error: Exception) -> None:
        self._count_bytes(link, connection)
        if link.connection is connection:
            link.connection = None
            link.outbox.clear()
            link.status.closed(self._clock(), in_words(error))
            link.changed.set()

    # ---------------------------------------------------------------- sending

    def announce(self, *bulletins: Signed) -> None:
        """Send bulletins that are on disk, or another site's."""
        for signed in bulletins:
            self._pass_on(place_in(signed.body)[0], (signed,), None)

    def _pass_on(self, site: str, bulletins: tuple[Signed, ...], source: _Link | None) -> None:
        for link in self._links.values():
            if link is not source and link.connection is not None:
                link.outbox[site] = bulletins
                self._send_waiting(link)

    def _send_waiting(self, link: _Link) -> None:
        connection = link.connection
        while connection is not None and link.outbox and connection.has_room:
            site = next(iter(link.outbox))
            for signed in link.outbox.pop(site):
                fingerprint = self._signatures.fingerprint(signed.signer)
                if fingerprint and fingerprint not in link.shown:
                    link.shown.add(fingerprint)
                    connection.send(encode(Certificate(signed.signer)))
                connection.send(encode(Bulletin(fingerprint, signed.signature, signed.body)))
                link.status.sent += 1
            self._noted(link, True, site)

    async def _answer(self, link: _Link, connection: Connection, theirs: Versions) -> None:
        """Send what the other end lacks."""
        self._durable.at_once(lambda site: site.receive_have(link.name, theirs))
        lacking = await self._durable.shown(lambda site: site.newer_than(theirs))
        if link.connection is connection:
            found: dict[str, tuple[Signed, ...]] = {}
            for signed in lacking:
                site = place_in(signed.body)[0]
                found[site] = (*found.get(site, ()), signed)
            link.outbox |= found
            self._send_waiting(link)

    # ---------------------------------------------------------------- receiving

    def _received(self, connection: Connection, data: bytes) -> None:
        link = self._link_of(connection)
        if link is None:
            return
        link.status.last_heard = self._clock()
        try:
            match decode(data):
                case Have() as have:
                    self._soon(self._answer(link, connection, have.versions), "answer")
                case Certificate() as certificate:
                    self._keep_chain(link, certificate.chain)
                case Bulletin() as bulletin:
                    self._hear(link, connection, bulletin)
                case Refusal() as refusal:
                    self._hear_refusal(link, connection, refusal)
        except FrameError as error:
            self._refuse(link, connection, "message", str(error))
        except JournalError:
            pass  # the next Have brings it again

    def _link_of(self, connection: Connection) -> _Link | None:
        if connection.who is not None:
            return self._links.get(connection.who.name)
        return next((it for it in self._links.values() if it.connection is connection), None)

    def _keep_chain(self, link: _Link, chain: bytes) -> None:
        try:
            key = self._signatures.fingerprint_or(chain)
        except NotAccepted as error:
            raise FrameError(f"a certificate: {error}") from None
        if self._signatures.known(key) != chain:
            link.chains[key] = chain
            while len(link.chains) > CHAINS:
                del link.chains[next(iter(link.chains))]

    def _hear(self, link: _Link, connection: Connection, bulletin: Bulletin) -> None:
        """A bulletin waits to be verified, unless it is known."""
        site, place = place_in(bulletin.body)
        link.status.received += 1
        self._noted(link, False, site)
        signer = self._signatures.known(bulletin.signer)
        if signer is None or bulletin.signer in link.chains:
            signer = link.chains.get(bulletin.signer)
        if signer is None:
            raise FrameError(f"a bulletin of {site} without the certificate of its signer")
        signed = Signed(bulletin.body, bulletin.signature, signer)
        if site in self._unwanted or self._durable.in_memory.board.knows(site, place, signed.digest):
            return
        waiting = link.inbox.setdefault(site, {})
        if signed.digest in waiting:
            return
        waiting[signed.digest] = _Waiting(site, place, signed, connection)
        link.waiting_bytes += len(bulletin.body)
        if len(waiting) > OF_ONE_SITE:
            oldest = min(waiting.values(), key=lambda it: it.place)
            link.waiting_bytes -= len(waiting.pop(oldest.signed.digest).signed.body)
        connection.hold(link.waiting_bytes > MOST_WAITING)
        if link.working is None:
            link.working = self._soon(self._work(link), "verify")

    async def _work(self, link: _Link) -> None:
        """Verify and merge what waits, as fast as each site's allowance lets it."""
        loop = asyncio.get_running_loop()
        try:
            while link.inbox:
                batch, pause = self._batch(link, loop.time())
                if not batch:
                    await asyncio.sleep(pause)
                    continue
                began = loop.time()
                verdicts = await self._verified(batch)
                if link.connection is not None:
                    link.connection.spend(loop.time() - began)
                self._merge(link, [it for it, error in zip(batch, verdicts, strict=True) if error is None])
                for it, error in zip(batch, verdicts, strict=True):
                    if isinstance(error, Forged):
                        self._rest(link, it, str(error))
                        return
                    if error is not None:
                        self._not_accepted(link, it.site, str(error))
                for connection in {it.connection for it in batch}:
                    connection.hold(link.waiting_bytes > MOST_WAITING)
        except Exception:  # the next Have brings it again
            _LOG.exception("%s: internal error", link.name)
        finally:
            link.working = None

    def _batch(self, link: _Link, now: float) -> tuple[list[_Waiting], float]:
        """What may be verified now; if nothing, the seconds to wait."""
        batch: list[_Waiting] = []
        pause = 1.0
        for site in list(link.inbox):
            waiting = link.inbox[site]
            while waiting and len(batch) < BATCH:
                wait = link.allows(site, now)
                if wait > 0.0:
                    pause = min(pause, wait)
                    break
                first = waiting.pop(next(iter(waiting)))
                link.waiting_bytes -= len(first.signed.body)
                batch.append(first)
            if not waiting:
                del link.inbox[site]
            if len(batch) == BATCH:
                break
        return batch, pause

    async def _verified(self, batch: list[_Waiting]) -> list[Exception | None]:
        """What is wrong with each; in a thread where that takes longer than a millisecond."""

        def verify() -> list[Exception | None]:
            return [self._verdict(it) for it in batch]

        if sum(self._signatures.cost(it.signed.signer) for it in batch) <= 0.001:
            return verify()
        return await asyncio.to_thread(verify)

    def _verdict(self, waiting: _Waiting) -> Exception | None:
        signed = waiting.signed
        try:
            self._signatures.verify(waiting.site, signed.body, signed.signature, signed.signer)
        except (Forged, NotAccepted) as error:
            return error
        return None

    def _merge(self, link: _Link, genuine: list[_Waiting]) -> None:
        """Merge and pass on; nothing here waits for the disk."""
        is_renewed = False
        for it in genuine:
            try:
                merged = self._durable.at_once(lambda site, it=it: site.merge(it.signed, link.name, self._clock()))
            except InvalidArgument as error:
                self._not_accepted(link, it.site, str(error))
                continue
            if merged.outcome.kind in ("new", "conflict") and it.site != self._name:
                self._pass_on(it.site, tuple(self._durable.in_memory.board.to_send(it.site)), link)
            is_renewed = is_renewed or it.site in self._revoked  # it may have a new certificate
        if is_renewed:
            self._apply_refusals()

    def _not_accepted(self, link: _Link, site: str, words: str) -> None:
        self._refused("bulletin", f"of {site}, from {link.name}: {words}")

    def _rest(self, link: _Link, waiting: _Waiting, words: str) -> None:
        """It has sent a forged bulletin: the link rests."""
        link.inbox.clear()
        link.waiting_bytes = 0
        told = f"it sent a forged bulletin of {waiting.site}: {words}"
        link.status.paused_until = self._clock() + link.pause
        link.pause = min(LONGEST_PAUSE, 2.0 * link.pause)
        if link.status.last_error != told:
            _LOG.warning("%s: %s; the link rests", link.name, told)
        for connection in {waiting.connection, link.connection, *link.not_open_yet} - {None}:
            self._refuse(link, connection, "forged bulletin", told)

    # ---------------------------------------------------------------- refusals

    def _refuse(
        self, link: _Link | None, connection: Connection, reason: str, words: str, terms: bytes = b""
    ) -> None:
        """End a connection; the other end and the operator receive the reason."""
        if not connection.is_open:
            return
        name = "" if connection.who is None else f"{connection.who.name} at "
        self._refused(reason, f"{name}{connection.address}: {words}")
        if link is not None:
            link.status.refused(words)
        connection.send(encode(Refusal(f"it refuses: {words}", terms)))
        connection.close(words)

    def _hear_refusal(self, link: _Link | None, connection: Connection, refusal: Refusal) -> None:
        """The other end refuses us, in words; if it has other terms, say in which they differ."""
        words = printable(refusal.words, 1000)
        if link is None:
            _LOG.warning("%s: %s", connection.address, words)
            connection.close()
            return
        if refusal.terms:
            try:
                theirs = terms_in(refusal, len(self._own_terms) + TERMS_DIFFER)
                told = "; ".join(self._terms.difference(theirs)) or "not in a term that this version knows"
                words = f"the federation differs at {link.name}: {printable(told, 1000)}"
            except FrameError as error:
                self._refused("message", f"{link.name}: {error}")
            if link.connection is not connection:
                self._refuse(link, connection, "other terms", f"{link.name} follows other terms", self._own_terms)
            link.status.differs_in(words)
        link.status.failed(words)
        connection.close(words)

    def _misbehaved(self, link: _Link | None, error: Exception) -> None:
        self._refused("message", f"{'a neighbour' if link is None else link.name}: {error}")
        if link is not None:
            link.status.refused(str(error))

    # ---------------------------------------------------------------- tending

    async def _tend(self) -> None:
        """Say from time to time what we have; notice connections that are dead."""
        while True:
            await asyncio.sleep(TENDED_EVERY)
            for link in list(self._links.values()):
                connection = link.connection
                if connection is None:
                    continue
                self._count_bytes(link, connection)
                silent = asyncio.get_running_loop().time() - connection.heard_at
                if silent >= DEAD_AFTER:
                    connection.abort()
                elif silent >= PING_AFTER:
                    connection.ping()
                if not 0.0 <= self._clock() - link.said_have < HAVE_EVERY and connection.has_room:
                    link.said_have = self._clock()
                    self._soon(self._say_have(connection), "have")

    def _count_bytes(self, link: _Link, connection: Connection) -> None:
        link.status.bytes_sent += connection.bytes_out
        link.status.bytes_received += connection.bytes_in
        connection.bytes_out = connection.bytes_in = 0

    def _noted(self, link: _Link, sent: bool, site: str) -> None:
        if self._note is not None:
            self._note(link.name, self._clock(), sent, site)

    def _soon(self, what: Any, name: str) -> "asyncio.Task[None]":
        """Run something beside; a disk that fails is told elsewhere, and the next Have begins anew."""

        async def run() -> None:
            try:
                await what
            except JournalError:
                pass
            except Exception:
                _LOG.exception("internal error: %s", name)

        task = asyncio.create_task(run(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def word(digest: str, name: str) -> str:
    """What those who know the terms of the federation say to a site, in 32 letters."""
    return hmac.new(digest.encode(), name.encode(), "sha256").hexdigest()[:32]

