"""The links of one agent: who may talk to us, whom we dial, and when.

Here belong the neighbour list, the clock of each link that this end owns, and what an exchange over the network does
when it fails. What an exchange means is ``site``'s, how bytes travel is ``transport``'s.

Each link has a Poisson clock, owned by the end that can dial: all clocks together choose one uniform edge at a time if
their rates are alike, which is the gossip of Algorithm 1, line 17, in continuous time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from random import Random

import grpc

from fedbandit.agent import wire
from fedbandit.agent.config import Neighbour
from fedbandit.agent.contact import Contact
from fedbandit.agent.durable import DurableSite
from fedbandit.agent.federation import Federation
from fedbandit.agent.journal import JournalError
from fedbandit.agent.messages import Message
from fedbandit.agent.refusals import Pace
from fedbandit.agent.step import NotANeighbour, OtherFederation, Refused
from fedbandit.agent.tls import TlsFiles
from fedbandit.agent.transport import Call, Dialler, TurnedAway, TurnsAway, Unreachable
from fedbandit.agent.wire import WireError
from fedbandit.checks import InvalidArgument

__all__ = ["Links"]

TIMEOUT = 2.0
"""Seconds until an exchange is given up."""

RETRY = 0.5
"""Seconds between attempts while a neighbour cannot be reached: it should be found soon after it is back."""

_LOG = logging.getLogger("fedbandit.gossip")


class Links:
    """Talks to neighbours on behalf of a site."""

    def __init__(
        self,
        name: str,
        terms: Federation,
        site: DurableSite,
        tls: TlsFiles | None,
        clock: Callable[[], float],
        random: Random,
    ) -> None:
        """No neighbours yet: see ``use``. ``clock`` gives seconds since 1970."""
        self._name, self._terms, self._site, self._tls = name, terms, site, tls
        self._clock, self._random = clock, random
        self._changing = asyncio.Lock()  # one change of the list at a time, or a clock could be lost, or run twice
        self.contacts: dict[str, Contact] = {}

    # ---------------------------------------------------------------- who

    async def use(self, neighbours: Iterable[Neighbour]) -> None:
        """Make this the neighbour list: begin links that are new, no longer talk to those who are not in it."""
        listed = {neighbour.name: neighbour for neighbour in neighbours}
        async with self._changing:
            for name, contact in list(self.contacts.items()):
                if listed.get(name) != contact.neighbour:
                    del self.contacts[name]
                    await self._hang_up(contact)
                    if name not in listed and not self._has_left(name):
                        _LOG.warning("%s: no longer a neighbour; its flow stays until 'fedbandit leave %s'", name, name)
            for name, neighbour in listed.items():
                if name not in self.contacts:
                    await self._begin(neighbour)

    async def leave(self, name: str) -> None:
        """A neighbour has left for good: drop its flow, no longer dial nor hear it."""
        async with self._changing:
            await self._site.do(lambda site: site.leave(name))
            if name in self.contacts:
                await self._hang_up(self.contacts[name])
        _LOG.warning("%s: has left for good; its flow is dropped", name)

    async def rejoin(self, name: str) -> None:
        """Take back a neighbour that had left, with an empty link."""
        async with self._changing:
            if name not in self.contacts:
                raise NotANeighbour(f"{_short(name)} is not among the neighbours in the configuration of {self._name}")
            if not self._has_left(name):
                return
            neighbour = self.contacts[name].neighbour
            await self._site.do(lambda site: site.join(name))
            await self._begin(neighbour)
        _LOG.info("%s: is a neighbour again", name)

    async def _begin(self, neighbour: Neighbour) -> None:
        name, left = neighbour.name, self._has_left(neighbour.name)
        if not left:
            await self._site.do(lambda site: site.join(name))
        self.contacts[name] = contact = Contact(neighbour, began=self._clock(), pace=Pace(self._clock))
        if left:
            _LOG.warning("%s: has left, so it is neither dialled nor heard; 'fedbandit rejoin' takes it back", name)
        elif neighbour.address is not None:
            contact.clock = asyncio.create_task(self._run_clock(contact), name=f"link to {name}")

    def _has_left(self, name: str) -> bool:
        return any(link.left for link in self._site.look().links if link.neighbour == name)

    async def close(self) -> None:
        """Stop all clocks. An exchange that is under way comes to its end: that is at most ``TIMEOUT`` seconds."""
        async with self._changing:
            await asyncio.gather(*(self._hang_up(contact, TIMEOUT) for contact in self.contacts.values()))

    async def _hang_up(self, contact: Contact, patience: float = 0.0) -> None:
        contact.hang_up.set()
        clock, contact.clock = contact.clock, None
        if clock is not None:
            await asyncio.wait({clock}, timeout=patience)
            clock.cancel()
            await asyncio.gather(clock, return_exceptions=True)

    def notice_silence(self) -> None:
        """Look who should have called and has not. Who does not answer when we call is noticed at once."""
        for contact in self.contacts.values():
            if contact.neighbour.address is None and not self._has_left(contact.neighbour.name):
                contact.notice_silence(self._clock())

    # ---------------------------------------------------------------- we dial

    async def _run_clock(self, contact: Contact) -> None:
        """Exchange at the ticks of a Poisson clock; at once when the agent starts; often while nobody answers."""
        neighbour, pause = contact.neighbour, 0.0
        if neighbour.address is None:
            return
        dialler = Dialler(neighbour.name, neighbour.address, self._tls)
        try:
            while not await _is_set_within(contact.hang_up, pause):
                await self.exchange(contact, dialler)
                ticks = self._random.expovariate(neighbour.rate)
                pause = ticks if contact.reachable else RETRY * (0.5 + self._random.random())
        finally:
            await dialler.close()

    async def exchange(self, contact: Contact, dialler: Dialler) -> None:
        """One exchange, begun by us. Whatever goes wrong is counted, logged and left to the next tick."""
        name = contact.neighbour.name
        try:
            offer = await self._site.do(lambda site: site.offer(name))
            answer = wire.decode_answer(await dialler.call("Exchange", wire.encode(offer), TIMEOUT))
            self._check_sender(answer, name)
            contact.heard_from(answer.epoch)
            await self._site.do(lambda site: site.receive_answer(answer))
        except TurnedAway as refusal:
            reason = await self._differences(name, dialler) if refusal.other_terms else None
            contact.failed(f"it refuses: {reason or refusal}")
        except (Unreachable, Refused, JournalError, InvalidArgument, WireError) as error:
            contact.failed(str(error))
        except Exception as error:  # a clock that dies would leave the link dead until a restart
            reason = f"a mistake in the agent: {type(error).__name__}: {error}"
            if reason != contact.last_error:
                _LOG.exception("%s: a mistake in the agent", name)
            contact.failed(reason)
        else:
            contact.succeeded(self._clock())

    async def _differences(self, name: str, dialler: Dialler) -> str | None:
        """In which terms a neighbour differs. It is told, too."""
        try:
            data = await dialler.call("Compare", wire.encode_terms(self._terms.terms()), TIMEOUT)
            return _named(name, self._terms.difference(wire.decode_terms(data)))
        except (TurnedAway, Unreachable, WireError):
            return None

    # ---------------------------------------------------------------- they dial

    async def answer_exchange(self, call: Call) -> bytes:
        """An exchange that a neighbour begins."""
        contact = self._admitted(call)
        try:
            offer = wire.decode_offer(call.data)
            self._check_sender(offer, contact.neighbour.name if contact else None)
            contact = contact or self._listed(offer.sender)
            contact.heard_from(offer.epoch)
            answer = wire.encode(await self._site.do(lambda site: site.receive_offer(offer)))
        except OtherFederation as error:
            told = str(error) if contact is None or contact.differs is None else contact.differs
            raise self._refusal(contact, "other terms", told, grpc.StatusCode.FAILED_PRECONDITION) from None
        except NotANeighbour as error:
            raise self._refusal(contact, "not a neighbour", str(error), grpc.StatusCode.PERMISSION_DENIED) from None
        except (WireError, InvalidArgument) as error:
            raise self._refusal(contact, "message", str(error), grpc.StatusCode.INVALID_ARGUMENT) from None
        except JournalError:
            raise self._refusal(contact, "disk", "cannot write now", grpc.StatusCode.UNAVAILABLE) from None
        contact.succeeded(self._clock())
        return answer

    async def answer_compare(self, call: Call) -> bytes:
        """A neighbour whose terms are others wants to know which."""
        contact = self._admitted(call)
        try:
            theirs = wire.decode_terms(call.data)
        except WireError as error:
            raise self._refusal(contact, "message", str(error), grpc.StatusCode.INVALID_ARGUMENT) from None
        differences = self._terms.difference(theirs)
        if contact is not None and differences:
            contact.differs_in(_named(contact.neighbour.name, differences))
        return wire.encode_terms(self._terms.terms())

    def _admitted(self, call: Call) -> Contact | None:
        """The contact whose certificate came with a call; None without TLS."""
        if call.caller is None:
            if self._tls is not None:
                raise TurnsAway("certificate", "no name came with the call")
            return None
        return self._listed(call.caller)

    def _listed(self, name: str) -> Contact:
        contact = self.contacts.get(name)
        if contact is None:
            raise TurnsAway("not a neighbour", f"{_short(name)} is no neighbour of {self._name}")
        return contact

    @staticmethod
    def _check_sender(message: Message, name: str | None) -> None:
        """A message must come from the one whose certificate came with it."""
        if name is not None and message.sender != name:
            raise InvalidArgument("sender", message.sender, f"{name}, as in the certificate")

    @staticmethod
    def _refusal(contact: Contact | None, reason: str, message: str, code: grpc.StatusCode) -> TurnsAway:
        if contact is not None:
            contact.refused(message)
        return TurnsAway(reason, message, code)


def _named(name: str, differences: list[str]) -> str:
    told = "; ".join(differences) or "not in a term that this version knows"
    return f"the federation differs at {name}: {_short(told, 1000)}"


def _short(text: str, most: int = 80) -> str:
    """What somebody else says, fit for one line of a log."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text[: most + 1])
    return plain if len(plain) <= most else f"{plain[:most]}..."


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
