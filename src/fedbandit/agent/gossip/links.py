"""Keeps a link with every neighbour, and passes on what one of them has not seen: one connection, whichever end dials.

When a link opens, both ends say what they have (``Have``) and send what the other lacks. Afterwards each new bulletin
goes out at once; of each site only the newest waits, so a slow reader costs bounded memory. ``Have`` follows again from
time to time. What a link does is idempotent: lost, repeated and crossing frames need no thought.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

from fedbandit.agent.core.board import Have as Versions
from fedbandit.agent.core.bulletin import Place, Signed
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import JournalError
from fedbandit.agent.gossip import frames
from fedbandit.agent.gossip.connection import Account, Closed, Connection, dial
from fedbandit.agent.gossip.frames import Bulletin, Certificate, FrameError, Have, Refusal, place_in
from fedbandit.agent.gossip.listener import Listener
from fedbandit.agent.gossip.signatures import Forged, NotAccepted, Signatures, canonical
from fedbandit.agent.gossip.tls import TlsFiles, client_context, in_words, spoken_to
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import Neighbour
from fedbandit.checks import InvalidArgument, printable

# Seconds.
HAVE_EVERY, TENDED_EVERY = 30.0, 2.5
PING_AFTER, DEAD_AFTER = 10.0, 20.0  # of silence: a firewall may have dropped the connection without a word
PROBED = 3.0  # in which an old connection must answer when its neighbour comes with another
RETRY, LONGEST_RETRY, RETRY_REFUSED = 0.5, 5.0, 30.0  # between attempts to dial: first, most, most where we are refused
PAUSE, LONGEST_PAUSE, FORGOTTEN = 10.0, 600.0, 3600.0  # a link rests after a forged bulletin; twice as long next time

RATE, AT_ONCE = 2.0, 10.0
"""Bulletins of one site in a second that are taken from one link; so many may come at once. An honest site makes one a
second, and more only where arms change."""

RATE_IN_ALL, AT_ONCE_IN_ALL = 200.0, 2000.0
"""The same of all sites together: the name of a site is only claimed until its bulletin is verified. So many come at
once where a link opens and brings a whole board."""

OF_ONE_SITE = 8
"""The most bulletins of one site that wait to be verified: its newest, or both halves of a conflict and what counts."""

MOST_WAITING, OVERHEAD = 2**23, 1024
"""Bytes that wait to be verified, after which no more is read from a link; those of a bulletin beside its content."""

BATCH, QUICK = 16, 0.001
"""The most bulletins that are verified together; in a thread where that takes more than so many seconds."""

NOT_OPEN_YET, CHAINS = 4, 256
"""Of one neighbour: the most connections that have not said ``Have``, and certificates that no bulletin has used."""

TWIN = "another process with the name {} is linked"
"""Why the second of two processes with one name is refused."""

SUSPECTED_FOR = 300.0
"""Seconds without a call of a second process, after which there is one of a name again: it dials once a minute."""

SILENT_AFTER = 60.0
"""Seconds without a link after which a neighbour that dials us is called silent."""

TERMS_DIFFER = 16_384
"""Bytes by which another site's terms may be longer than ours: comparing them must not delay decisions."""

_LOG = logging.getLogger("fedbandit.gossip")
_KEPT = "another connection of this link is kept"


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
    """What this process has observed of one neighbour. Times are seconds since 1970.

    * ``since``: when the link last opened or closed; ``dialled``: which end has dialled, "here" or "there"
    * ``sent``, ``received``: bulletins
    * ``failures``: attempts to dial that failed, and links that broke; ``refusals``: connections and bulletins of this
      neighbour that were refused here
    * ``differs``: the terms in which it differs; ``suspicion``: a warning for the operator: two processes have its name
    """

    neighbour: Neighbour
    began: float = 0.0
    linked: bool = False
    since: float | None = None
    last_heard: float | None = None
    dialled: str | None = None
    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    failures: int = 0
    refusals: int = 0
    last_error: str | None = None
    differs: str | None = None
    suspicion: str | None = None
    suspected_at: float = 0.0
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

    def suspect(self, reason: str, now: float) -> None:
        """Two processes seem to have its name, until the other has not called for ``SUSPECTED_FOR`` seconds."""
        if self.suspicion is None:
            self.suspicion = f"{reason}, since {datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M} UTC"
            self._log(logging.WARNING, self.suspicion)
        self.suspected_at = now

    def notice_silence(self, now: float) -> None:
        """Notice a neighbour that should dial us and has not for ``SILENT_AFTER`` seconds; and who calls no more."""
        if self.suspicion is not None and now - self.suspected_at >= SUSPECTED_FOR:
            self._log(logging.INFO, f"no longer: {self.suspicion}")
            self.suspicion = None
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
    signer: bytes
    signed: Signed
    connection: Connection

    @property
    def size(self) -> int:
        """Bytes of memory, those of a chain that others share included."""
        return len(self.signed.body) + len(self.signed.signature) + len(self.signed.signer) + OVERHEAD


class _Allowance:
    """So many at once, and afterwards so many in a second."""

    __slots__ = ("_at_once", "_left", "_rate", "_since")

    def __init__(self, rate: float, at_once: float, now: float) -> None:
        self._rate, self._at_once, self._left, self._since = rate, at_once, at_once, now

    def wait(self, now: float) -> float:
        """The seconds until one may be taken."""
        self._left = min(self._at_once, self._left + self._rate * (now - self._since))
        self._since = now
        return max(0.0, (1.0 - self._left) / self._rate)

    def take(self) -> None:
        self._left -= 1.0

    def is_full(self, now: float) -> bool:
        return self._left + self._rate * (now - self._since) >= self._at_once


@dataclass
class _Link:
    """A link with one neighbour: what waits to be sent, and to be verified.

    * ``shown``: fingerprints of the certificates that it has carried to the neighbour
    * ``account``: what the neighbour costs, through all its connections
    * ``asked``: its last ``Have`` that waits to be answered
    """

    status: NeighbourStatus
    account: Account
    in_all: _Allowance
    connection: Connection | None = None
    run: int | None = None
    outbox: dict[str, tuple[Signed, ...]] = field(default_factory=dict[str, tuple[Signed, ...]])
    shown: set[bytes] = field(default_factory=set[bytes])
    inbox: dict[str, dict[bytes, _Waiting]] = field(default_factory=dict[str, dict[bytes, _Waiting]])
    waiting_bytes: int = 0
    chains: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    allowances: dict[str, _Allowance] = field(default_factory=dict[str, _Allowance])
    asked: Versions | None = None
    not_open_yet: list[Connection] = field(default_factory=list[Connection])
    pause: float = PAUSE
    said_have: float = 0.0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    dialling: "asyncio.Task[None] | None" = None
    working: "asyncio.Task[None] | None" = None
    answering: "asyncio.Task[None] | None" = None

    @property
    def name(self) -> str:
        return self.status.neighbour.name

    @property
    def connections(self) -> list[Connection]:
        return [*self.not_open_yet, *(() if self.connection is None else (self.connection,))]

    def wait(self, waiting: _Waiting) -> None:
        """Put a bulletin into the inbox; of too many of one site the oldest goes."""
        of_site = self.inbox.setdefault(waiting.site, {})
        if waiting.signed.digest not in of_site:
            of_site[waiting.signed.digest] = waiting
            self.waiting_bytes += waiting.size
            if len(of_site) > OF_ONE_SITE:
                self._taken(of_site.pop(min(of_site, key=lambda digest: of_site[digest].place)))

    def batch(self, now: float) -> tuple[list[_Waiting], float]:
        """What may be verified now; if nothing, the seconds to wait."""
        while self.allowances and next(iter(self.allowances.values())).is_full(now):
            del self.allowances[next(iter(self.allowances))]
        batch: list[_Waiting] = []
        pause = max(self.account.overdrawn, self.in_all.wait(now))
        if pause > 0.0:
            return batch, min(pause, 1.0)
        pause = 1.0
        for site, of_site in list(self.inbox.items()):
            allowance = self.allowances.pop(site, None) or _Allowance(RATE, AT_ONCE, now)
            self.allowances[site] = allowance  # the last one that was used; at the front are those that are full
            while of_site and len(batch) < BATCH and self.in_all.wait(now) <= 0.0:
                if (wait := allowance.wait(now)) > 0.0:
                    pause = min(pause, wait)
                    break
                allowance.take()
                self.in_all.take()
                batch.append(self._taken(of_site.pop(next(iter(of_site)))))
            if not of_site:
                del self.inbox[site]
            if len(batch) == BATCH:
                break
        return batch, pause

    def _taken(self, waiting: _Waiting) -> _Waiting:
        self.waiting_bytes -= waiting.size
        return waiting

    def forget(self) -> None:
        """Nothing of it is verified any more."""
        self.inbox.clear()
        self.waiting_bytes = 0

    def count_bytes(self) -> None:
        if self.connection is not None:
            sent, received = self.connection.take_counts()
            self.status.bytes_sent += sent
            self.status.bytes_received += received


def _nothing(*_: object) -> None:
    pass


def word(digest: str, name: str) -> str:
    """What those who know the terms of the federation say to a site, in 32 letters."""
    return hmac.new(digest.encode(), name.encode(), "sha256").hexdigest()[:32]


# ---------------------------------------------------------------- all links


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
        note: Callable[[str, float, bool, str], None] = _nothing,
        refused: Callable[[str, str], None] = _nothing,
    ) -> None:
        """No neighbours yet: see ``use``. ``clock`` gives seconds since 1970.

        ``note`` is called with each bulletin: neighbour, time, whether it was sent, whose it is; ``refused`` with each
        refusal: reason, message.
        """
        self._name, self._terms, self._durable, self._tls = name, terms, durable, tls
        self._clock, self._random, self._note, self._refused = clock, random, note, refused
        self._digest, self._own_terms = terms.digest(), json.dumps(terms.terms()).encode()
        self._run = 1 + random.getrandbits(63)
        self._signatures = Signatures(tls, clock)
        self._context = None if tls is None else client_context(tls)
        self._links: dict[str, _Link] = {}
        self._unwanted: frozenset[str] = frozenset()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._tending: asyncio.Task[None] | None = None
        self._listener: Listener | None = None

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
        own = word(self._digest, self._name)
        self._listener = Listener(address, self._tls, own, self._judge, self._opened, self._refused)
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
                now = asyncio.get_running_loop().time
                self._links[name] = link = _Link(status, Account(now), _Allowance(RATE_IN_ALL, AT_ONCE_IN_ALL, now()))
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
            for connection in link.connections:
                if (found := self._unwelcome(link, connection)) is not None:
                    self._refuse(link, connection, *found)

    def _apply_refusals(self) -> None:
        """Tell the site who does not count, and which bulletins: those that a revoked certificate has signed."""
        self._durable.at_once(lambda site: site.refuse(self._unwanted))
        self._durable.at_once(
            lambda site: site.revoke({signer for signer in site.board.signers if self.is_revoked(signer)})
        )

    @property
    def refused(self) -> frozenset[str]:
        """Members that the configuration refuses."""
        return self._unwanted

    def is_revoked(self, signer: bytes) -> bool:
        """Whether a certificate that has signed bulletins is on the list of revoked ones."""
        return self._signatures.is_revoked(signer)

    async def close(self) -> None:
        """End all links."""
        if self._listener is not None:
            self._listener.close()
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(self._end(link, "its agent was stopped") for link in links))
        tasks = [*self._tasks, *(() if self._tending is None else (self._tending,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end(self, link: _Link, words: str) -> None:
        for task in (link.dialling, link.working, link.answering):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        connections = link.connections
        for connection in connections:
            connection.lost = _nothing
            connection.close(words)
        for connection in connections:
            await connection.ended.wait()

    def notice_silence(self) -> None:
        """Notice neighbours that should dial us and do not. Failures of those that we dial show at once."""
        for link in self._links.values():
            if link.status.neighbour.address is None:
                link.status.notice_silence(self._clock())

    # ---------------------------------------------------------------- who is welcome

    def _link_of(self, connection: Connection) -> _Link | None:
        if connection.who is not None:
            return self._links.get(connection.who.name)
        return next((it for it in self._links.values() if connection in it.connections), None)

    def _judge(self, connection: Connection) -> tuple[str, str] | None:
        """Why the one that dials us is refused: a reason to count, and words. Without TLS only ``Have`` names it."""
        if connection.who is None:
            return None
        link = self._links.get(connection.who.name)
        if link is None:
            return "not a neighbour", f"{connection.who.name} is no neighbour of {self._name}"
        return self._unwelcome(link, connection)

    def _unwelcome(self, link: _Link, connection: Connection) -> tuple[str, str] | None:
        if link.name in self._unwanted:
            return "refused member", f"{self._name} refuses {link.name}"
        if connection.who is not None and connection.who.issued in self._signatures.revoked:
            return "certificate revoked", f"the certificate of {link.name} has been revoked"
        left = (link.status.paused_until or 0.0) - self._clock()
        if left > 0.0:
            return "paused", f"{self._name} rests this link for {left:.0f} s: {link.status.last_error}"
        return None

    def _wrong_greeting(self, connection: Connection, said: frames.Frame) -> tuple[str, str] | None:
        """What is wrong with the first frame."""
        if not isinstance(said, Have):
            return "message", "the first frame must be Have"
        if connection.who is not None and said.site != connection.who.name:
            return "message", f"it says that it is {said.site}: its certificate is for {connection.who.name}"
        link = self._links.get(said.site)
        if link is None:
            return "not a neighbour", f"{said.site} is no neighbour of {self._name}"
        return self._unwelcome(link, connection)

    # ---------------------------------------------------------------- opening a link

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
                longest = await self._dial(link)
                if link.connection is not None:
                    continue
                pause = min(longest, RETRY * 2.0**failures) * (0.5 + self._random.random())
                failures = min(failures + 1, 10)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.5 * RETRY)):
                    await link.changed.wait()

    async def _dial(self, link: _Link) -> float:
        """Dial once, until the link is adopted or has failed; the longest time until it makes sense to try again."""
        neighbour, status = link.status.neighbour, link.status
        assert neighbour.address is not None  # noqa: S101 - else nobody dials
        said = spoken_to(neighbour.name, word(self._digest, neighbour.name))
        connection = Connection(self._context, (neighbour.address, said))

        def judge(connection: Connection) -> str | None:
            if connection.who is not None and connection.who.name != neighbour.name:
                there = connection.who.name
                return f"the certificate there does not bear the name {neighbour.name}, but {there}"
            found = self._unwelcome(link, connection)
            return None if found is None else found[1]

        connection.judge, connection.opened = judge, self._opened
        try:
            await dial(connection, neighbour.address, neighbour.proxy)
        except (OSError, TimeoutError) as error:
            status.failed(in_words(error))
            is_refused = isinstance(error, Closed) and str(error).startswith("it refuses")
            return RETRY_REFUSED if is_refused else LONGEST_RETRY
        except Exception as error:  # a dead task would leave the link dead until a restart
            _LOG.exception("%s: internal error", neighbour.name)
            status.failed(f"internal error: {type(error).__name__}: {error}")
            return LONGEST_RETRY
        waiting = [asyncio.create_task(it.wait()) for it in (connection.ended, link.changed)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        return RETRY_REFUSED

    def _opened(self, connection: Connection) -> None:
        """A connection is open. The end that has dialled says what it has; the other one answers if it adopts it."""
        link = self._link_of(connection)
        connection.received = self._greeted
        connection.lost = self._lost_unadopted
        connection.failed = self._misbehaved
        if link is not None:
            self._charge(link, connection)
            if len(link.not_open_yet) >= NOT_OPEN_YET:
                self._refused("connections", f"{link.name} at {connection.address}: more than {NOT_OPEN_YET} at once")
                link.not_open_yet.pop(0).abort()
            link.not_open_yet.append(connection)
        asyncio.get_running_loop().call_later(DEAD_AFTER, self._never_greeted, connection)
        if connection.dialled:
            self._soon(self._say_have("" if link is None else link.name, connection))

    @staticmethod
    def _charge(link: _Link, connection: Connection) -> None:
        """What a connection costs is its neighbour's: who hangs up and dials anew owes as much as before."""
        if connection.account is not link.account:
            link.account.take_over(connection.account)
            connection.account = link.account

    def _never_greeted(self, connection: Connection) -> None:
        if connection.received == self._greeted:
            connection.close("it does not say what it has")

    def _greeted(self, connection: Connection, data: bytes) -> None:
        """The first frame of a connection."""
        link = self._link_of(connection)
        try:
            said = frames.decode(data)
        except FrameError as error:
            self._refuse(link, connection, "message", str(error))
            return
        if isinstance(said, Refusal):
            self._hear_refusal(link, connection, said)
        elif (found := self._wrong_greeting(connection, said)) is not None:
            self._refuse(link, connection, *found)
        elif isinstance(said, Have) and said.federation != self._digest:
            self._compare(self._links[said.site], connection, answers=said.run > 0)
        elif isinstance(said, Have) and said.run == 0:
            connection.send(frames.encode(Have(self._name, self._digest, self._run, {})))
            connection.close("asked and answered")
        elif isinstance(said, Have):
            connection.received = self._received
            self._decide(self._links[said.site], connection, said)

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
            self._soon(self._probe(link, old, connection, have))
        elif connection.dialled == old.dialled or connection.dialled == (self._name < link.name):
            self._adopt(link, connection, have)
        else:
            connection.close(_KEPT)

    async def _probe(self, link: _Link, old: Connection, connection: Connection, have: Have) -> None:
        asked, deadline = old.heard_at, asyncio.get_running_loop().time() + PROBED
        old.ping()
        while old.is_open and old.heard_at == asked and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        if link.connection is old and old.is_open and old.heard_at != asked:
            addresses = f"{old.address} and {connection.address}"
            link.status.suspect(f"two processes have the name {link.name}: {addresses}", self._clock())
            words = f"{TWIN.format(link.name)}, from {old.address}, and answers"
            self._refuse(None, connection, "two processes", words)
        elif link.connection in (old, None):
            self._adopt(link, connection, have)
        else:
            connection.close(_KEPT)

    def _adopt(self, link: _Link, connection: Connection, have: Have) -> None:
        if not connection.is_open or self._links.get(link.name) is not link:
            return
        link.count_bytes()
        old, link.connection, link.run = link.connection, connection, have.run
        if old is not None:
            old.lost = _nothing
            old.close(_KEPT)
        if connection in link.not_open_yet:
            link.not_open_yet.remove(connection)
        link.outbox.clear()
        link.shown.clear()
        self._charge(link, connection)
        link.said_have = self._clock()
        connection.writable = partial(self._send_waiting, link)
        connection.lost = partial(self._lost, link)
        link.status.opened(self._clock(), connection.dialled)
        link.changed.set()
        self._soon(self._begin(link, connection, have.versions))

    async def _begin(self, link: _Link, connection: Connection, theirs: Versions) -> None:
        if not connection.dialled:
            await self._say_have(link.name, connection)
        self._answer_soon(link, theirs)

    def _lost_unadopted(self, connection: Connection, error: Exception) -> None:
        link = self._link_of(connection)
        if link is not None and connection in link.not_open_yet:
            link.not_open_yet.remove(connection)
            if link.connection is None:
                link.status.failed(in_words(error))

    def _lost(self, link: _Link, connection: Connection, error: Exception) -> None:
        if link.connection is connection:
            link.count_bytes()
            link.connection = None
            link.outbox.clear()
            link.status.closed(self._clock(), in_words(error))
            link.changed.set()

    # ---------------------------------------------------------------- sending

    def announce(self, *bulletins: Signed) -> None:
        """Send bulletins of this site that are on disk."""
        for signed in bulletins:
            self._pass_on(place_in(signed.body)[0], (signed,), None)

    def _pass_on(self, site: str, bulletins: tuple[Signed, ...], source: _Link | None) -> None:
        for link in self._links.values():
            if link is not source and link.connection is not None:
                link.outbox[site] = bulletins
                self._send_waiting(link)

    def _send_waiting(self, link: _Link, *_: Connection) -> None:
        connection = link.connection
        while connection is not None and link.outbox and connection.has_room:
            site = next(iter(link.outbox))
            for signed in link.outbox.pop(site):
                signer = self._signatures.fingerprint(signed.signer)
                if signer and signer not in link.shown:
                    link.shown.add(signer)
                    connection.send(frames.encode(Certificate(signed.signer)))
                connection.send(frames.encode(Bulletin(signer, signed.signature, signed.body)))
                link.status.sent += 1
            self._note(link.name, self._clock(), True, site)

    async def _say_have(self, to: str, connection: Connection) -> None:
        have = await self._durable.shown(lambda site: dict(site.have(to)))
        connection.send(frames.encode(Have(self._name, self._digest, self._run, have)))

    def _answer_soon(self, link: _Link, theirs: Versions) -> None:
        """One answer of a link is under way; of those who ask meanwhile only the last is answered."""
        link.asked = theirs
        if link.answering is None and self._links.get(link.name) is link:
            link.answering = self._soon(self._answer(link))

    async def _answer(self, link: _Link) -> None:
        """Send what the other end lacks, as long as its questions cost no more than its share."""
        loop = asyncio.get_running_loop()
        try:
            while link.asked is not None:
                if (pause := link.account.overdrawn) > 0.0:
                    await asyncio.sleep(min(pause, 1.0))
                    continue
                theirs, link.asked = link.asked, None
                connection, began = link.connection, loop.time()
                is_asked = self._durable.at_once(lambda site, theirs=theirs: site.receive_have(link.name, theirs))
                if connection is not None and is_asked:
                    await self._say_have(link.name, connection)  # without the own name: it shows what it claims at once
                link.account.spend(loop.time() - began)
                found = await self._durable.shown(lambda site, theirs=theirs: self._lacking(link, site, theirs))
                if connection is not None and link.connection is connection:
                    began = loop.time()
                    link.outbox |= found
                    self._send_waiting(link)
                    connection.spend(loop.time() - began)
        finally:
            link.answering = None

    def _lacking(self, link: _Link, site: Site, theirs: Versions) -> dict[str, tuple[Signed, ...]]:
        began = asyncio.get_running_loop().time()
        found: dict[str, tuple[Signed, ...]] = {}
        for signed in site.newer_than(theirs, link.name):
            name = place_in(signed.body)[0]
            found[name] = (*found.get(name, ()), signed)
        link.account.spend(asyncio.get_running_loop().time() - began)
        return found

    # ---------------------------------------------------------------- receiving

    def _received(self, connection: Connection, data: bytes) -> None:
        link = self._link_of(connection)
        if link is None:
            return
        link.status.last_heard = self._clock()
        try:
            match frames.decode(data):
                case Have() as have:
                    if link.connection is connection:
                        self._answer_soon(link, have.versions)
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

    def _keep_chain(self, link: _Link, chain: bytes) -> None:
        try:
            signer, chain = canonical(chain)
        except ValueError:
            raise FrameError("a certificate that cannot be read") from None
        if self._signatures.known(signer) != chain:
            link.chains[signer] = chain
            while len(link.chains) > CHAINS:
                del link.chains[next(iter(link.chains))]

    def _hear(self, link: _Link, connection: Connection, bulletin: Bulletin) -> None:
        """A bulletin waits to be verified, unless it is known."""
        site, place = place_in(bulletin.body)
        link.status.received += 1
        self._note(link.name, self._clock(), False, site)
        signer = link.chains.get(bulletin.signer, self._signatures.known(bulletin.signer))
        if signer is None:
            raise FrameError(f"a bulletin of {site} without the certificate of its signer")
        signed = Signed(bulletin.body, bulletin.signature, signer)
        if not self._durable.in_memory.board.knows(site, place, signed.digest):
            link.wait(_Waiting(site, place, bulletin.signer, signed, connection))
            connection.hold(link.waiting_bytes > MOST_WAITING)
            if link.working is None:
                link.working = self._soon(self._work(link))

    async def _work(self, link: _Link) -> None:
        """Verify and merge what waits, as fast as its allowances and the link's share of the processor let it."""
        loop = asyncio.get_running_loop()
        try:
            while link.inbox:
                batch, pause = link.batch(loop.time())
                for connection in {it.connection for it in batch}:
                    connection.hold(link.waiting_bytes > MOST_WAITING)
                if not batch:
                    await asyncio.sleep(pause)
                    continue
                board = self._durable.in_memory.board  # meanwhile another link may have brought some
                batch = [it for it in batch if not board.knows(it.site, it.place, it.signed.digest)]
                if not batch:
                    await asyncio.sleep(0)
                    continue
                is_quick = sum(self._signatures.cost(it.signed.signer) for it in batch) <= QUICK
                began = loop.time()
                verdicts = self._verdicts(batch) if is_quick else await asyncio.to_thread(self._verdicts, batch)
                verifying = loop.time() - began
                began, news = loop.time(), 0
                for it, verdict in zip(batch, verdicts, strict=True):
                    if isinstance(verdict, Signed):
                        link.chains.pop(it.signer, None)
                        news += self._merge(link, it.site, verdict)
                    elif isinstance(verdict, Forged):
                        self._rest(link, it, str(verdict))
                        break
                    else:
                        self._not_accepted(link, it.site, str(verdict))
                # What tells news is worth its cost; RATE_IN_ALL bounds it.
                spent = (verifying + loop.time() - began) * (len(batch) - news) / len(batch)
                if link.connection is None:
                    link.account.spend(spent)
                else:
                    link.connection.spend(spent)
        finally:
            link.working = None

    def _verdicts(self, batch: list[_Waiting]) -> list[Signed | Forged | NotAccepted]:
        """Each as it is kept, or what is wrong with it."""
        verdicts: list[Signed | Forged | NotAccepted] = []
        for it in batch:
            try:
                verdicts.append(self._signatures.verify(it.site, it.signed))
            except (Forged, NotAccepted) as error:
                verdicts.append(error)
        return verdicts

    def _merge(self, link: _Link, site: str, signed: Signed) -> bool:
        """Merge and pass on; whether it was news. Nothing here waits for the disk."""
        try:
            merged = self._durable.at_once(lambda own: own.merge(signed, link.name, self._clock()))
        except InvalidArgument as error:
            self._not_accepted(link, site, str(error))
            return False
        is_news = merged.outcome.kind in ("new", "conflict")
        if is_news and site != self._name:
            self._pass_on(site, tuple(self._durable.in_memory.board.to_send(site)), link)
        elif merged.outcome.kind == "conflict":  # the other end has one half of the proof: it gets the other at once
            self._soon(self._show_own(link))
        return is_news

    async def _show_own(self, link: _Link) -> None:
        """Send what the other end may see of this site."""

        def own(site: Site) -> dict[str, tuple[Signed, ...]]:
            return self._lacking(link, site, {name: it for name, it in site.have().items() if name != self._name})

        link.outbox |= await self._durable.shown(own)
        self._send_waiting(link)

    # ---------------------------------------------------------------- refusals

    def _not_accepted(self, link: _Link, site: str, words: str) -> None:
        self._refused("bulletin", f"of {site}, from {link.name}: {words}")

    def _rest(self, link: _Link, waiting: _Waiting, words: str) -> None:
        """It has sent a forged bulletin: the link rests."""
        link.forget()
        told, now = f"it sent a forged bulletin of {waiting.site}: {words}", self._clock()
        link.pause = PAUSE if now - (link.status.paused_until or 0.0) > FORGOTTEN else link.pause
        link.status.paused_until = now + link.pause
        link.pause = min(LONGEST_PAUSE, 2.0 * link.pause)
        _LOG.warning("%s: %s; the link rests", link.name, told)
        for connection in {waiting.connection, *link.connections}:
            self._refuse(link, connection, "forged bulletin", told)

    def _refuse(self, link: _Link | None, connection: Connection, reason: str, words: str) -> None:
        """End a connection; the other end and the operator receive the reason."""
        if connection.is_open:
            name = "" if connection.who is None else f"{connection.who.name} at "
            self._refused(reason, f"{name}{connection.address}: {words}")
            if link is not None:
                link.status.refused(words)
            connection.send(frames.encode(Refusal(f"it refuses: {words}", b"")))
            connection.close(words)

    def _compare(self, link: _Link, connection: Connection, answers: bool) -> None:
        """The one that dials follows other terms: it receives ours, and ``answers`` with its own."""
        words = f"{link.name} follows other terms of the federation than {self._name}"
        self._refused("other terms", f"{link.name} at {connection.address}: {words}")
        link.status.refused(link.status.differs or words)
        connection.send(frames.encode(Refusal(f"it refuses: {words}", self._own_terms)))
        connection.received = partial(self._hear_their_terms, link)
        asyncio.get_running_loop().call_later(PROBED if answers else 0.0, connection.close, words)

    def _hear_their_terms(self, link: _Link, connection: Connection, data: bytes) -> None:
        try:
            said = frames.decode(data)
        except FrameError as error:
            self._refuse(link, connection, "message", str(error))
            return
        if isinstance(said, Refusal):
            self._hear_refusal(link, connection, said)
        else:
            connection.close("it goes on with other terms")

    def _hear_refusal(self, link: _Link | None, connection: Connection, refusal: Refusal) -> None:
        """The other end refuses us, in words; if it has other terms, say in which they differ."""
        words = printable(refusal.words, frames.MAX_WORDS)
        if link is not None and refusal.terms:
            try:
                theirs = frames.terms_in(refusal, len(self._own_terms) + TERMS_DIFFER)
                told = "; ".join(self._terms.difference(theirs)) or "not in a term that this version knows"
                words = f"the federation differs at {link.name}: {printable(told, frames.MAX_WORDS)}"
            except FrameError as error:
                self._refused("message", f"{link.name}: {error}")
            link.status.differs_in(words)
            if connection.dialled:  # it has not heard ours yet
                told = f"{self._name} follows other terms of the federation than {link.name}"
                connection.send(frames.encode(Refusal(told, self._own_terms)))
        if link is not None:
            link.status.failed(words)
        connection.close(words)

    def _misbehaved(self, connection: Connection, error: Exception) -> None:
        link = self._link_of(connection)
        self._refused("message", f"{connection.address if link is None else link.name}: {error}")
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
                link.count_bytes()
                silent = asyncio.get_running_loop().time() - connection.heard_at
                if silent >= DEAD_AFTER:
                    connection.abort()
                elif silent >= PING_AFTER:
                    connection.ping()
                if not 0.0 <= self._clock() - link.said_have < HAVE_EVERY and connection.has_room:
                    link.said_have = self._clock()
                    self._soon(self._say_have(link.name, connection))

    def _soon(self, what: Any) -> "asyncio.Task[None]":
        """Run something beside; a disk that fails is told elsewhere, and the next ``Have`` begins anew."""

        async def run() -> None:
            try:
                await what
            except JournalError:
                pass
            except Exception:
                _LOG.exception("internal error")

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
