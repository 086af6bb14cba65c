"""The links of one agent: who may talk to us, whom we dial, and when.

Here belong the neighbour list, the clock of each link that this end owns, and what an exchange over the network does
when it fails. What an exchange means is ``site``'s, how bytes travel is ``transport``'s.

Each link has a Poisson clock, owned by the end that can dial: all clocks together choose one uniform edge at a time if
their rates are alike, which is the gossip of Algorithm 1, line 17, in continuous time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import grpc

from fedbandit.agent import wire
from fedbandit.agent.config import Neighbour
from fedbandit.agent.durable import DurableSite
from fedbandit.agent.federation import Federation
from fedbandit.agent.journal import JournalError
from fedbandit.agent.messages import Message
from fedbandit.agent.step import NotANeighbour, OtherFederation, Refused
from fedbandit.agent.tls import TlsFiles
from fedbandit.agent.transport import Call, Dialler, TurnedAway, TurnsAway, Unreachable
from fedbandit.agent.wire import WireError
from fedbandit.checks import InvalidArgument

__all__ = ["Contact", "Links"]

TIMEOUT = 2.0
"""Seconds until an exchange is given up."""

RETRY = 0.5
"""Seconds between attempts while a neighbour cannot be reached: it should be found soon after it is back."""

_LOG = logging.getLogger("fedbandit.gossip")


@dataclass
class Contact:
    """What this process has seen of one neighbour."""

    neighbour: Neighbour
    reachable: bool = False
    last_exchange: float | None = None
    exchanges: int = 0
    failures: int = 0
    refusals: int = 0
    last_error: str | None = None
    clock: "asyncio.Task[None] | None" = field(default=None, repr=False)

    def succeeded(self, now: float) -> None:
        """An exchange came through."""
        if self.last_error is not None or self.exchanges == 0:
            _LOG.info("%s: exchanges come through", self.neighbour.name)
        self.reachable, self.last_exchange, self.last_error = True, now, None
        self.exchanges += 1

    def failed(self, reason: str) -> None:
        """An exchange that we began did not come through. The log has a line when that begins, or changes."""
        if reason != self.last_error:
            _LOG.warning("%s: no exchange: %s", self.neighbour.name, reason)
        self.reachable, self.last_error = False, reason
        self.failures += 1


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
        self.contacts: dict[str, Contact] = {}

    # ---------------------------------------------------------------- who

    async def use(self, neighbours: Iterable[Neighbour]) -> None:
        """Make this the neighbour list: begin links that are new, no longer talk to those who are not in it."""
        listed = {neighbour.name: neighbour for neighbour in neighbours}
        for name, contact in list(self.contacts.items()):
            if listed.get(name) != contact.neighbour:
                await self._hang_up(contact)
                del self.contacts[name]
                if name not in listed:
                    _LOG.warning("%s: no longer a neighbour; its flow stays until 'fedbandit leave %s'", name, name)
        for name, neighbour in listed.items():
            if name not in self.contacts:
                await self._begin(neighbour)

    async def leave(self, name: str) -> None:
        """A neighbour has left for good: drop its flow, no longer dial nor hear it."""
        await self._site.do(lambda site: site.leave(name))
        if name in self.contacts:
            await self._hang_up(self.contacts[name])
        _LOG.warning("%s: has left for good; its flow is dropped", name)

    async def rejoin(self, name: str) -> None:
        """Take back a neighbour that had left, with an empty link."""
        if name not in self.contacts:
            raise NotANeighbour(f"{name} is not among the neighbours in the configuration of {self._name}")
        neighbour = self.contacts[name].neighbour
        await self._site.do(lambda site: site.join(name))
        await self._hang_up(self.contacts[name])
        await self._begin(neighbour)

    async def _begin(self, neighbour: Neighbour) -> None:
        name = neighbour.name
        self.contacts[name] = contact = Contact(neighbour)
        if any(link.left for link in self._site.look().links if link.neighbour == name):
            _LOG.warning("%s: has left, so it is neither dialled nor heard; 'fedbandit rejoin' takes it back", name)
            return
        await self._site.do(lambda site: site.join(name))
        if neighbour.address is not None:
            contact.clock = asyncio.create_task(self._run_clock(contact), name=f"link to {name}")

    async def close(self) -> None:
        """Stop all clocks."""
        for contact in self.contacts.values():
            await self._hang_up(contact)

    async def _hang_up(self, contact: Contact) -> None:
        if contact.clock is not None:
            clock, contact.clock = contact.clock, None
            clock.cancel()
            await asyncio.gather(clock, return_exceptions=True)

    # ---------------------------------------------------------------- we dial

    async def _run_clock(self, contact: Contact) -> None:
        """Exchange at the ticks of a Poisson clock; at once when the agent starts; often while nobody answers."""
        neighbour, pause = contact.neighbour, 0.0
        if neighbour.address is None:
            return
        dialler = Dialler(neighbour.name, neighbour.address, self._tls)
        try:
            while True:
                await asyncio.sleep(pause)
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
            await self._site.do(lambda site: site.receive_answer(answer))
        except TurnedAway as refusal:
            reason = await self._differences(name, dialler) if refusal.other_terms else None
            contact.failed(f"it refuses: {reason or refusal}")
        except (Unreachable, Refused, JournalError, InvalidArgument, WireError) as error:
            contact.failed(str(error))
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
            answer = wire.encode(await self._site.do(lambda site: site.receive_offer(offer)))
        except OtherFederation as error:
            raise self._refusal(contact, "other terms", str(error), grpc.StatusCode.FAILED_PRECONDITION) from None
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
        if contact is not None:
            contact.last_error = _named(contact.neighbour.name, self._terms.difference(theirs))
            _LOG.warning("%s", contact.last_error)
        return wire.encode_terms(self._terms.terms())

    def _admitted(self, call: Call) -> Contact | None:
        """The contact whose certificate came with a call; None without TLS."""
        return None if call.caller is None else self._listed(call.caller)

    def _listed(self, name: str) -> Contact:
        contact = self.contacts.get(name)
        if contact is None:
            raise TurnsAway("not a neighbour", f"{name} is no neighbour of {self._name}")
        return contact

    @staticmethod
    def _check_sender(message: Message, name: str | None) -> None:
        """A message must come from the one whose certificate came with it."""
        if name is not None and message.sender != name:
            raise InvalidArgument("sender", message.sender, f"{name}, as in the certificate")

    @staticmethod
    def _refusal(contact: Contact | None, reason: str, message: str, code: grpc.StatusCode) -> TurnsAway:
        if contact is not None:
            contact.refusals += 1
            contact.last_error = message
        return TurnsAway(reason, message, code)


def _named(name: str, differences: list[str]) -> str:
    return f"the federation differs at {name}: {'; '.join(differences) or 'not in a term that this version knows'}"
