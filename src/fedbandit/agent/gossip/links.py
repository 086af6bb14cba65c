"""Keeps the links of one agent: admits neighbours that call, and dials the others when their clocks tick.

``core.site`` performs an exchange, ``transport`` carries the bytes.

Each link has a Poisson clock, owned by the end that dials. If the rates are equal, all clocks together choose one
uniform edge at a time, which is the gossip of Algorithm 1, line 17, in continuous time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import grpc

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import Message, has_averaged
from fedbandit.agent.core.records import NoSuchNeighbour, OtherFederation, Refused
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import JournalError
from fedbandit.agent.gossip import wire
from fedbandit.agent.gossip.arm_spread import ArmSpread
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.gossip.transport import Dialler, IncomingCall, NeighbourUnreachable, Pace, TurnedAway, TurnsAway
from fedbandit.agent.gossip.tunnel import in_any_case
from fedbandit.agent.gossip.wire import WireError
from fedbandit.agent.process.config import Neighbour
from fedbandit.checks import InvalidArgument, printable

__all__ = ["SILENT_AFTER", "NeighbourLinks", "NeighbourStatus"]


# ---------------------------------------------------------------- what is known of a neighbour


SILENT_AFTER = 60.0
"""Seconds after its last exchange for which a neighbour that dials us counts as reachable."""

UNHEARD = 3
"""Exchanges in turn that average nothing, and are then called failures: a new incarnation is understood after two."""

QUIET = 100
"""Exchanges in turn after which a neighbour that spoke from an earlier incarnation is no longer suspected."""

_LOG = logging.getLogger("fedbandit.gossip")


@dataclass
class NeighbourStatus:
    """What this process has observed of one neighbour."""

    neighbour: Neighbour
    began: float = 0.0
    reachable: bool = False
    last_exchange: float | None = None
    exchanges: int = 0
    failures: int = 0
    refusals: int = 0
    unheard: int = 0
    """Exchanges in which one end did not know the incarnation of the other, so that nothing was averaged."""
    unheard_in_turn: int = 0
    heard_in_turn: int = 0
    last_error: str | None = None
    differs: str | None = None
    """The terms in which it differs, if it has sent us its own."""
    incarnation: int | None = None
    """The incarnation of its last message."""
    suspicion: str | None = None
    """A warning for the operator; it ends after ``QUIET`` exchanges in turn with one incarnation."""
    arms_version: int = 0
    """How many changes of the arms it knew when it last sent anything."""
    silent: bool = False
    pace: Pace | None = field(default=None, repr=False)
    clock: "asyncio.Task[None] | None" = field(default=None, repr=False)
    hang_up: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def answered(self, averaged: bool, now: float) -> None:
        """An exchange was answered. One that averaged nothing is none."""
        if averaged:
            self.unheard_in_turn = 0
            self.heard_in_turn += 1
            if self.heard_in_turn >= QUIET:
                self.suspicion = None
            self.succeeded(now)
            return
        self.heard_in_turn = 0
        self.unheard += 1
        self.unheard_in_turn += 1
        if self.unheard_in_turn >= UNHEARD:
            self.failed("its exchanges average nothing: one end speaks of another incarnation")

    def succeeded(self, now: float) -> None:
        """An exchange succeeded."""
        if self.last_error is not None or self.exchanges == 0:
            self._log(logging.INFO, "exchanges succeed")
        self.reachable, self.last_exchange, self.last_error, self.differs = True, now, None, None
        self.exchanges += 1
        self.silent = False
        _LOG.debug("%s: exchange %d completed", self.neighbour.name, self.exchanges)

    def failed(self, reason: str) -> None:
        """An exchange that we began failed. Logged when failures begin or the reason changes."""
        if reason != self.last_error:
            self._log(logging.WARNING, f"no exchange: {reason}")
        self.reachable, self.last_error = False, reason
        self.failures += 1

    def refused(self, reason: str) -> None:
        """We refused a call from it; the refusal is logged elsewhere."""
        self.last_error = reason
        self.refusals += 1

    def differs_in(self, difference: str) -> None:
        """It has sent us its terms, and they differ from ours."""
        if difference != self.differs:
            self._log(logging.WARNING, difference)
        self.differs = self.last_error = difference

    def received_from(self, incarnation: int) -> None:
        """A message came from this incarnation. A lost disk begins a new one; honest sites never go back."""
        if self.incarnation is not None and incarnation > self.incarnation:
            why = "its disk was lost, or it was restored, or has rejoined"
            self._log(logging.WARNING, f"began a new incarnation: {why}; its old numbers are replaced")
        elif self.incarnation is not None and incarnation < self.incarnation:
            told = (
                "spoke from an earlier incarnation: two agents have this name, or an old copy of its data folder was "
                "started"
            )
            self.suspicion, self.heard_in_turn = f"{self.neighbour.name} {told}", 0
            self._log(logging.WARNING, told)
        self.incarnation = incarnation

    def notice_silence(self, now: float) -> None:
        """Mark a neighbour that dials us as unreachable after ``SILENT_AFTER`` seconds without a call."""
        last = self.began if self.last_exchange is None else self.last_exchange
        if now - last >= SILENT_AFTER and not self.silent:
            self.silent, self.reachable = True, False
            self.last_error = self.last_error or f"has not called for {SILENT_AFTER:.0f} s"
            self._log(logging.WARNING, f"has not called for {SILENT_AFTER:.0f} s")

    def _log(self, level: int, line: str) -> None:
        if self.pace is None or self.pace.allows():
            _LOG.log(level, "%s: %s", self.neighbour.name, line)


# ---------------------------------------------------------------- links


TIMEOUT = 2.0
"""Seconds until an exchange times out."""

RETRY = 0.5
"""Seconds between attempts while a neighbour is unreachable: short, to find it soon after it returns."""

TERMS_DIFFER = 16_384
"""Bytes by which another site's terms may be longer than ours: comparing them must not delay decisions."""


class NeighbourLinks:
    """Talks to neighbours on behalf of a site."""

    def __init__(
        self,
        name: str,
        terms: Federation,
        site: DurableSite,
        tls: TlsFiles | None,
        clock: Callable[[], float],
        random: Random,
        on_exchange: Callable[[str, float, bool, bool], None] | None = None,
    ) -> None:
        """No neighbours yet: see ``use``. ``clock`` gives seconds since 1970.

        ``on_exchange`` is called with each exchange: neighbour, time, whether we began it, whether it averaged.
        """
        self._name, self._terms, self._site, self._tls = name, terms, site, tls
        self._clock, self._random, self._on_exchange = clock, random, on_exchange
        self._own_terms = wire.encode_terms(terms.terms())
        self._most_terms = len(self._own_terms) + TERMS_DIFFER
        self._most_bytes = wire.most_bytes(terms.num_arms, terms.most_agents)
        self._changing = asyncio.Lock()  # one change at a time: otherwise a clock could be lost or run twice
        self.statuses: dict[str, NeighbourStatus] = {}
        self.arms = ArmSpread(name, terms, site, tls, clock)
        """Tells neighbours of changes of the arms."""

    # ---------------------------------------------------------------- who

    async def use(self, neighbours: Iterable[Neighbour]) -> None:
        """Replace the neighbour list: start new links, end those no longer listed."""
        listed = {neighbour.name: neighbour for neighbour in neighbours}
        async with self._changing:
            for name, status in list(self.statuses.items()):
                if listed.get(name) != status.neighbour:
                    del self.statuses[name]
                    await self._hang_up(status)
                    if name not in listed and not self._has_left(name):
                        _LOG.info("%s: no longer a neighbour", name)  # its flow stays: the state warns of that
            for name, neighbour in listed.items():
                if name not in self.statuses:
                    await self._begin(neighbour)

    async def leave(self, name: str) -> None:
        """Drop the flow of a neighbour that has left for good; stop dialling and admitting it."""
        async with self._changing:
            await self._site.do(lambda site: site.leave(name))
            if name in self.statuses:
                await self._hang_up(self.statuses[name])
        _LOG.warning("%s: has left for good; its flow is dropped", name)

    async def rejoin(self, name: str) -> None:
        """Accept a neighbour that had left, with an empty link."""
        async with self._changing:
            if name not in self.statuses:
                who = printable(name)
                raise NoSuchNeighbour(f"{who} is not among the neighbours in the configuration of {self._name}")
            if not self._has_left(name):
                return
            neighbour = self.statuses[name].neighbour
            await self._site.do(lambda site: site.join(name))
            await self._begin(neighbour)
        _LOG.info("%s: is a neighbour again", name)

    async def _begin(self, neighbour: Neighbour) -> None:
        name, left = neighbour.name, self._has_left(neighbour.name)
        if not left:
            await self._site.do(lambda site: site.join(name))
        self.statuses[name] = status = NeighbourStatus(neighbour, began=self._clock(), pace=Pace(self._clock))
        if left:
            _LOG.warning("%s: has left and stays refused until 'fedbandit rejoin'", name)
        elif neighbour.address is not None:
            status.clock = asyncio.create_task(self._run_clock(status), name=f"link to {name}")

    def admits(self, name: str) -> bool:
        """Whether a name is that of a neighbour that has not left."""
        try:
            return name in self.statuses and not self._has_left(name)
        except JournalError:  # the site refuses those who have left, too
            return name in self.statuses

    def _has_left(self, name: str) -> bool:
        return any(link.left for link in self._site.in_memory.links if link.neighbour == name)

    async def close(self) -> None:
        """Stop all clocks. An exchange in progress may finish, within ``TIMEOUT`` seconds."""
        async with self._changing:
            await asyncio.gather(*(self._hang_up(status, TIMEOUT) for status in self.statuses.values()))

    async def _hang_up(self, status: NeighbourStatus, patience: float = 0.0) -> None:
        status.hang_up.set()
        clock, status.clock = status.clock, None
        if clock is not None:
            await asyncio.wait({clock}, timeout=patience)
            clock.cancel()
            await asyncio.gather(clock, return_exceptions=True)

    def notice_silence(self) -> None:
        """Mark silent inbound neighbours as unreachable. Failures of those that we dial show at once."""
        for status in self.statuses.values():
            if status.neighbour.address is None and not self._has_left(status.neighbour.name):
                status.notice_silence(self._clock())

    # ---------------------------------------------------------------- we dial

    async def _run_clock(self, status: NeighbourStatus) -> None:
        """Exchange at the ticks of a Poisson clock; at once at the start; often while the neighbour does not answer."""
        neighbour, pause = status.neighbour, 0.0
        if neighbour.address is None:
            return
        dialler = Dialler(neighbour.name, neighbour.address, self._tls)
        polling = asyncio.create_task(self.arms.poll(neighbour.name, dialler), name=f"arms of {neighbour.name}")
        try:
            while not await _is_set_within(status.hang_up, pause):
                await self.exchange(status, dialler)
                ticks = self._random.expovariate(neighbour.rate)
                pause = ticks if status.reachable else RETRY * (0.5 + self._random.random())
        finally:
            await in_any_case(_end(polling, dialler))

    async def exchange(self, status: NeighbourStatus, dialler: Dialler) -> None:
        """One exchange that we begin. Errors are counted, logged and left to the next tick."""
        name, averaged = status.neighbour.name, False
        try:
            offer = await self._site.do(lambda site: site.offer(name))
            answer = wire.decode_reply(await dialler.call("Exchange", wire.encode(offer), TIMEOUT), self._most_bytes)
            self._check_sender(answer, name)
            await self._site.do(lambda site: site.receive_reply(answer))
            status.arms_version = answer.arms_version
            status.received_from(answer.incarnation)  # only now: who is refused has no incarnation here
            averaged = has_averaged(offer, answer)
        except TurnedAway as refusal:
            reason = await self._differences(name, dialler) if refusal.other_terms else None
            status.failed(f"it refuses: {reason or refusal}")
        except (NeighbourUnreachable, Refused, JournalError, InvalidArgument, WireError) as error:
            status.failed(str(error))
        except Exception as error:  # a dead clock would leave the link dead until a restart
            reason = f"internal error: {type(error).__name__}: {error}"
            if reason != status.last_error:
                _LOG.exception("%s: internal error", name)
            status.failed(reason)
        else:
            status.answered(averaged, self._clock())
        self._exchanged(name, True, averaged)

    def _exchanged(self, name: str, began_by_us: bool, completed: bool) -> None:
        if self._on_exchange is not None:
            self._on_exchange(name, self._clock(), began_by_us, completed)

    async def _differences(self, name: str, dialler: Dialler) -> str | None:
        """The terms in which a neighbour differs. So the neighbour knows, too."""
        try:
            data = await dialler.call("Compare", self._own_terms, TIMEOUT)
            return _named(name, self._terms.difference(wire.decode_terms(data, self._most_terms)))
        except (TurnedAway, NeighbourUnreachable, WireError):
            return None

    # ---------------------------------------------------------------- they dial

    async def answer_exchange(self, call: IncomingCall) -> bytes:
        """Answer an exchange that a neighbour begins."""
        status = self._admitted(call)
        try:
            offer = wire.decode_offer(call.data, self._most_bytes)
            self._check_sender(offer, status.neighbour.name if status else None)
            status = status or self._listed(offer.sender)
            answer = await self._site.do(lambda site: site.receive_offer(offer))
            status.arms_version = offer.arms_version
            status.received_from(offer.incarnation)
        except OtherFederation as error:
            told = str(error) if status is None or status.differs is None else status.differs
            raise self._refusal(status, "other terms", told, grpc.StatusCode.FAILED_PRECONDITION) from None
        except NoSuchNeighbour as error:
            raise self._refusal(status, "not a neighbour", str(error), grpc.StatusCode.PERMISSION_DENIED) from None
        except (WireError, InvalidArgument) as error:
            raise self._refusal(status, "message", str(error), grpc.StatusCode.INVALID_ARGUMENT) from None
        except JournalError:
            raise self._refusal(status, "disk", "cannot write now", grpc.StatusCode.UNAVAILABLE) from None
        averaged = has_averaged(offer, answer)
        status.answered(averaged, self._clock())
        self._exchanged(status.neighbour.name, False, averaged)
        return wire.encode(answer)

    async def answer_compare(self, call: IncomingCall) -> bytes:
        """Tell a neighbour with different terms in which fields they differ."""
        status = self._admitted(call)
        try:
            theirs = wire.decode_terms(call.data, self._most_terms)
        except WireError as error:
            raise self._refusal(status, "message", str(error), grpc.StatusCode.INVALID_ARGUMENT) from None
        differences = self._terms.difference(theirs)
        if status is not None and differences:
            status.differs_in(_named(status.neighbour.name, differences))
        return self._own_terms

    async def answer_arm_changes(self, call: IncomingCall) -> bytes:
        """Tell a neighbour of changes of the arms: at once if there are any, else when there are, or after a while."""
        status = self._admitted(call)
        try:
            delta = wire.decode_arm_delta(call.data)
            if status is not None and delta.sender != status.neighbour.name:
                raise InvalidArgument("sender", delta.sender, f"{status.neighbour.name}, as in the certificate")
            status = status or self._listed(delta.sender)
            return await self.arms.answer(delta)
        except (WireError, InvalidArgument) as error:
            raise self._refusal(status, "message", str(error), grpc.StatusCode.INVALID_ARGUMENT) from None
        except OtherFederation as error:
            raise self._refusal(status, "other terms", str(error), grpc.StatusCode.FAILED_PRECONDITION) from None
        except JournalError:
            raise self._refusal(status, "disk", "cannot write now", grpc.StatusCode.UNAVAILABLE) from None

    def _admitted(self, call: IncomingCall) -> NeighbourStatus | None:
        """The status of the neighbour whose certificate came with a call; None without TLS."""
        if call.caller is None:
            if self._tls is not None:
                raise TurnsAway("certificate", "no name came with the call")
            return None
        return self._listed(call.caller)

    def _listed(self, name: str) -> NeighbourStatus:
        status = self.statuses.get(name)
        if status is None:
            raise TurnsAway("not a neighbour", f"{printable(name)} is no neighbour of {self._name}")
        return status

    @staticmethod
    def _check_sender(message: Message, name: str | None) -> None:
        """The sender of a message must be the certified caller."""
        if name is not None and message.sender != name:
            raise InvalidArgument("sender", message.sender, f"{name}, as in the certificate")

    @staticmethod
    def _refusal(status: NeighbourStatus | None, reason: str, message: str, code: grpc.StatusCode) -> TurnsAway:
        if status is not None:
            status.refused(message)
        return TurnsAway(reason, message, code)


def _named(name: str, differences: list[str]) -> str:
    told = "; ".join(differences) or "not in a term that this version knows"
    return f"the federation differs at {name}: {printable(told, 1000)}"


async def _end(polling: asyncio.Task[None], dialler: Dialler) -> None:
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    await dialler.close()


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
