"""Spreads changes of the arms over links at once, whatever the rate of exchanges.

Each end that dials keeps a call open, which is answered when there is a change. Both ends say which changes they have.
The call is answered at once if either lacks any, and otherwise when the answering end receives one; when the calling
end does, it calls again. So a stop crosses a link in either direction within a round trip, and is passed on from there.
Only what is on disk is sent.
"""

import asyncio
import logging
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import pairwise

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificates

from fedbandit.agent.core.arms import Accepts, ArmChange, Arms, Proof
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import OtherFederation, Refused
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import JournalError
from fedbandit.agent.gossip import wire
from fedbandit.agent.gossip.tls import TlsFiles, WrongName, is_issued, the_name_in
from fedbandit.agent.gossip.transport import Dialler, NeighbourUnreachable, Pace, TurnedAway
from fedbandit.agent.gossip.wire import MOST_CHANGES, ArmDelta, WireError
from fedbandit.checks import InvalidArgument

__all__ = ["ArmSpread", "Signatures"]


# ---------------------------------------------------------------- signatures


LONGEST_CHAIN = 4
"""The most certificates of a signer, from its own on."""

_PSS = padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH)


class Signatures:
    """A site's key, and the CA that it trusts; without TLS nothing is signed, and only that is accepted.

    A change carries the signer's certificate: issued by the federation's CA, for the name that the change gives. Its
    dates are not checked: a change must hold for years, and outlives the certificate that signed it.
    """

    def __init__(self, tls: TlsFiles | None) -> None:
        """Keys are read when they are first needed."""
        self._tls = tls

    def sign(self, content: bytes) -> Proof:
        """The site's certificates, and its signature of a change."""
        if self._tls is None:
            return b"", b""
        key = load_pem_private_key(self._tls.key, password=None)
        match key:
            case ec.EllipticCurvePrivateKey():
                signature = key.sign(content, ec.ECDSA(SHA256()))
            case rsa.RSAPrivateKey():
                signature = key.sign(content, _PSS, SHA256())
            case Ed25519PrivateKey():
                signature = key.sign(content)
            case _:
                kind = type(key).__name__.removesuffix("PrivateKey")
                raise InvalidArgument(
                    "tls.key", kind, "an elliptic curve, RSA or Ed25519 key, to sign a change of the arms"
                )
        chain = _in_order(load_pem_x509_certificates(self._tls.certificate))
        return b"".join(it.public_bytes(Encoding.PEM) for it in chain), signature

    def why_not(self, change: ArmChange) -> str | None:
        """Why a change is not genuine; None: it is."""
        if self._tls is None:
            return "it is signed, and this agent has no certificates" if change.signature else None
        try:
            chain = load_pem_x509_certificates(change.certificates)
        except ValueError:
            return "it has no certificate"
        try:
            name = the_name_in(chain[0])
        except (WrongName, ValueError) as error:
            return str(error)
        if name != change.by:
            return f"{name} has signed it"
        issued = len(chain) <= LONGEST_CHAIN and all(is_issued(it, by) for it, by in pairwise(chain))
        if not issued or not any(is_issued(chain[-1], ca) for ca in self._cas):
            return "its certificate is not of this federation's CA"
        return None if _is_good(chain[0], change) else "its signature is wrong"

    @cached_property
    def _cas(self) -> list[Certificate]:
        return [] if self._tls is None else load_pem_x509_certificates(self._tls.ca)


def _in_order(found: list[Certificate]) -> list[Certificate]:
    """A site's certificate, and those after it in its file that lead to the CA."""
    chain, others = found[:1], found[1:]
    while len(chain) < LONGEST_CHAIN and (issuer := next((it for it in others if is_issued(chain[-1], it)), None)):
        others.remove(issuer)
        chain.append(issuer)
    return chain


def _is_good(certificate: Certificate, change: ArmChange) -> bool:
    try:
        match key := certificate.public_key():
            case ec.EllipticCurvePublicKey():
                key.verify(change.signature, change.content, ec.ECDSA(SHA256()))
            case rsa.RSAPublicKey():
                key.verify(change.signature, change.content, _PSS, SHA256())
            case Ed25519PublicKey():
                key.verify(change.signature, change.content)
            case _:
                return False
    except (InvalidSignature, ValueError):
        return False
    return True


# ---------------------------------------------------------------- spreading


WAIT = 20.0
"""Seconds after which a call is answered though nothing has changed."""

PATIENCE = WAIT + 5.0

RETRY = 1.0
"""Seconds between calls while a neighbour is unreachable."""

LONGEST_PAUSE = 60.0
"""Seconds between calls that bring nothing, though an end claims to lack something: it lies, or has no room."""

MOST_CALLS, IN = 50, 10.0
"""So many calls in so many seconds are made at a neighbour without a pause, whatever it answers."""

MOST_BYTES = 2**19
"""Of changes in one message, with their proofs; one change at least. Stops come first."""

MOST_REFUSED = 2000
"""So many changes that were refused are remembered, so that they are not sent again."""

_LOG = logging.getLogger("fedbandit.arms")


class ArmSpread:
    """Sends changes of the arms to an agent's neighbours, and receives theirs."""

    def __init__(
        self, name: str, terms: Federation, site: DurableSite, tls: TlsFiles | None, clock: Callable[[], float]
    ) -> None:
        """Nobody's changes are accepted yet: see ``accept``. ``clock`` gives seconds."""
        self._name, self._digest, self._site, self._clock = name, terms.digest(), site, clock
        self._signatures = Signatures(tls)
        self._accepts: Accepts = frozenset()
        self._changed, self._closed = asyncio.Event(), False
        self._waiting: dict[str, asyncio.Event] = {}
        self._refused: dict[bytes, None] = {}
        self._pace = Pace(clock)
        self._cached: tuple[Arms, dict[bytes, ArmChange]] | None = None

    # ---------------------------------------------------------------- this site

    def sign(self, content: bytes) -> Proof:
        """Sign a change of this site's own."""
        return self._signatures.sign(content)

    async def accept(self, accepts: Accepts) -> None:
        """Take over from whom the configuration accepts changes."""
        self._accepts = accepts
        for change in await self._site.do(lambda site: site.accept_from(accepts)):
            _LOG.warning("%s: accepted, as the configuration says", change.in_words())

    def announce(self) -> None:
        """There is something new on disk: whoever waits is answered."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        """Answer all who wait."""
        self._closed = True
        self.announce()

    def _known(self) -> dict[bytes, ArmChange]:
        arms = self._site.arms_on_disk
        if self._cached is None or self._cached[0] is not arms:
            self._cached = arms, {it.change.key: it.change for it in arms.changes.values()}
        return self._cached[1]

    def _delta(self, known: Mapping[bytes, ArmChange], lacking: Iterable[bytes]) -> ArmDelta:
        changes: list[ArmChange] = []
        room = MOST_BYTES
        for change in sorted((known[key] for key in lacking), key=lambda it: (not it.is_stop, it.order)):
            room -= len(change.content) + len(change.certificates) + len(change.signature)
            if changes and (room < 0 or len(changes) == MOST_CHANGES):
                break
            changes.append(change)
        return ArmDelta(self._name, self._digest, frozenset(known), frozenset(self._refused), tuple(changes))

    # ---------------------------------------------------------------- hearing

    async def _take(self, delta: ArmDelta) -> tuple[ArmChange, ...]:
        """Write what is new and genuine; refuse the rest, once."""
        if delta.federation != self._digest:
            raise OtherFederation(f"{delta.sender} follows other terms of the federation than {self._name}")
        known, ids = self._known(), self._site.arms_on_disk.changes
        genuine = [it for it in delta.changes if it.key not in known and self._is_genuine(it, delta.sender, ids)]
        if not genuine:
            return ()
        new: tuple[ArmChange, ...] = ()
        for is_stop in (True, False):  # stops by themselves: nothing that is wrong with the rest holds them up
            some = [it for it in genuine if it.is_stop == is_stop]
            new += await self._site.do(lambda site, some=some: site.receive_changes(some, self._accepts))
            if new:
                self.announce()
        arms = self._site.arms_on_disk
        ids = arms.changes
        for change in genuine:
            if change.id not in ids:
                self._refuse(change, delta.sender, "its site has made as many changes as are kept")
        for change in new:
            how = (
                ""
                if change not in arms.waiting
                else f"; it does not count here until 'fedbandit arm accept {shlex.quote(change.arm)}'"
            )
            _LOG.warning("%s, as %s says%s", change.in_words(), delta.sender, how)
        return new

    def _is_genuine(self, change: ArmChange, sender: str, ids: Mapping[str, object]) -> bool:
        if change.key in self._refused:
            return False
        if change.id in ids:  # signed twice
            self._remember(change.key)
            return False
        why = self._signatures.why_not(change)
        if why is None and change.federation != self._digest:
            why = "it is of another federation"
        if why is not None:
            self._refuse(change, sender, why)
        return why is None

    def _refuse(self, change: ArmChange, sender: str, why: str) -> None:
        self._remember(change.key)
        if self._pace.allows():
            _LOG.warning("refused a change that %s sends: %s: %s", sender, ascii(change.in_words())[1:200], why)

    def _remember(self, key: bytes) -> None:
        self._refused[key] = None
        while len(self._refused) > MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    # ---------------------------------------------------------------- they dial

    async def answer(self, delta: ArmDelta) -> bytes:
        """Answer a neighbour's call, when there is a change, or after ``WAIT`` seconds.

        Its earlier call, if one still waits, is answered now: a neighbour has one place.
        """
        earlier = self._waiting.pop(delta.sender, None)
        if earlier is not None:
            earlier.set()
        changed = self._changed
        await asyncio.shield(self._take(delta))  # if the caller hangs up, others must receive it all the same
        known = self._known()
        lacking = known.keys() - delta.known - delta.refused
        lacks = delta.known - known.keys() - self._refused.keys()
        if not lacking and not lacks and not self._closed and not changed.is_set():
            self._waiting[delta.sender] = superseded = asyncio.Event()
            try:
                await _first_of(self._changed, superseded)
            finally:
                if self._waiting.get(delta.sender) is superseded:
                    del self._waiting[delta.sender]
            known = self._known()
            lacking = known.keys() - delta.known - delta.refused
        return wire.encode_arm_delta(self._delta(known, lacking))

    # ---------------------------------------------------------------- we dial

    async def poll(self, neighbour: str, dialler: Dialler) -> None:
        """Keep a call open at a neighbour, as long as the link lasts."""
        theirs: ArmDelta | None = None
        pause, useless = 0.0, 0
        calls: deque[float] = deque(maxlen=MOST_CALLS)
        while True:
            changed = self._changed
            if pause:
                await _first_of(changed, within=pause)
                changed = self._changed
            if len(calls) == MOST_CALLS and self._clock() - calls[0] < IN:
                await asyncio.sleep(RETRY)
            calls.append(self._clock())
            try:
                known, begun = self._known(), self._clock()
                lacking = known.keys() - theirs.known - theirs.refused if theirs is not None else set[bytes]()
                answer = await self._called(dialler, self._delta(known, lacking), changed)
                if answer is None:  # there is a change here
                    pause = 0.0
                    continue
                if answer.sender != neighbour:
                    raise InvalidArgument("sender", answer.sender, neighbour)
                theirs = answer
                helped = bool(await asyncio.shield(self._take(answer))) or bool(lacking & answer.known)
                is_first = not lacking and bool(self._known().keys() - answer.known - answer.refused)
                idle = self._clock() - begun > RETRY
                useless = 0 if helped or is_first or idle else useless + 1
                pause = min(RETRY * 2.0 ** (useless - 1), LONGEST_PAUSE) if useless else 0.0
            except TurnedAway:
                pause, theirs = 10.0 * RETRY, None
            except (NeighbourUnreachable, JournalError):
                pause, theirs = RETRY, None
            except (WireError, InvalidArgument, Refused) as error:
                pause, theirs = LONGEST_PAUSE, None
                if self._pace.allows():
                    _LOG.warning("%s: changes of the arms: %s", neighbour, error)
            except Exception:  # a dead task would leave the link without changes until a restart
                pause, theirs = LONGEST_PAUSE, None
                _LOG.exception("%s: internal error", neighbour)

    async def _called(self, dialler: Dialler, delta: ArmDelta, changed: asyncio.Event) -> ArmDelta | None:
        """The answer to a call; None if something new comes here before it."""
        call = asyncio.create_task(dialler.wait("ArmChanges", wire.encode_arm_delta(delta), PATIENCE))
        local = asyncio.create_task(changed.wait())
        try:
            await asyncio.wait({call, local}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return None
            if call.cancelled():
                raise NeighbourUnreachable("the connection was closed")
            return wire.decode_arm_delta(call.result())
        finally:
            for task in (call, local):
                task.cancel()
            await asyncio.gather(call, local, return_exceptions=True)


async def _first_of(*events: asyncio.Event, within: float = WAIT) -> None:
    """Wait for one of these, or so long."""
    tasks = [asyncio.create_task(it.wait()) for it in events]
    try:
        await asyncio.wait(tasks, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
