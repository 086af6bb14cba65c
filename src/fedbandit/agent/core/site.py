"""One site as a pure state machine: an event changes its state and yields records to write and a result to send.

No I/O, clock or randomness: times, draws and the source of noise are arguments. The algorithm is the policy's page,
which ``player`` plays; privacy is in ``fedbandit.privacy.mechanism``. The driver:

* commits ``step.records``, then uses ``step.result``: nothing is told before it is on disk
* may continue after ``Refused`` and ``InvalidArgument``: nothing has changed
* discards the site and loads it from the journal if a commit fails, or if an event raises anything else
"""

from collections import deque
from dataclasses import replace
from typing import Any, TypeVar

from fedbandit.agent.core.aligned_rows import aligned, check_lengths
from fedbandit.agent.core.arm_events import ArmEvents
from fedbandit.agent.core.choice import DecisionDraws
from fedbandit.agent.core.events import (
    HorizonReached,
    NotANeighbour,
    NotNow,
    OtherFederation,
    Refused,
    Step,
    UnknownDecision,
)
from fedbandit.agent.core.messages import MAX_COUNT, Answer, Message, Offer
from fedbandit.agent.core.records import Kept, Link, Opened, Record
from fedbandit.agent.core.restore import Restored, records_of_new_life
from fedbandit.agent.core.seals import Seal, Told, is_genuine, sealed
from fedbandit.agent.core.standings import Standing
from fedbandit.checks import InvalidArgument
from fedbandit.rules import flow

__all__ = [
    "DecisionDraws",
    "HorizonReached",
    "NotANeighbour",
    "NotNow",
    "OtherFederation",
    "Refused",
    "Site",
    "Step",
    "UnknownDecision",
]

PAST_RUNS = 16
"""So many earlier processes of a neighbour are known, so that their late messages are not taken for a living one's."""

_Result = TypeVar("_Result")
_Message = TypeVar("_Message", bound=Message)


class Site(ArmEvents):
    """One agent: what it knows, and the events that change it.

    Those of the application are in ``decisions``, changes of the arms in ``arm_events``; here are those of neighbours,
    and of its own files.
    """

    # ---------------------------------------------------------------- neighbours

    def join(self, neighbour: str) -> Step[None]:
        """Begin a link. One that was there stays; one that had left begins anew, and its old messages stay refused."""
        if neighbour == self.name:
            raise InvalidArgument("neighbour", neighbour, "another site")
        link = self._stored.links.get(neighbour)
        if link is not None and not link.left:
            return Step(None)
        epoch, own = (0, 0) if link is None else (link.epoch, self._life(link) + 1)  # its seals are of another link
        return self._linked(None, Link(neighbour, epoch, flow.empty(self._player.num_arms), own_epoch=own))

    def leave(self, neighbour: str) -> Step[None]:
        """A neighbour has left for good: drop its flow, refuse what it said in this life. Idempotent."""
        if any(link.left for link in self.links if link.neighbour == neighbour):
            return Step(None)
        link = self._link(neighbour)
        least = min(link.epoch + 1, MAX_COUNT)
        self._standings.forget(neighbour)
        self._twins.discard(neighbour)
        self._past_runs.pop(neighbour, None)
        self._presence.forget(neighbour)
        self._watch.forget(neighbour)
        gone = Link(neighbour, least, flow.empty(self._player.num_arms), left=True, own_epoch=link.own_epoch)
        return self._linked(None, gone)

    def offer(self, neighbour: str) -> Step[Offer]:
        """Begin an exchange. Nothing changes until its answer."""
        link = self._link(neighbour)
        ends = self.name, neighbour, self._life(link), link.epoch, self._digest
        besides = self._besides(link, link.told.run)
        return Step(Offer(*ends, *link.register, self.gossiped, n_max=self.n_max, **besides))

    def receive_offer(self, offer: Offer) -> Step[Answer]:
        """Answer an offer: average with it, or say what is newer than it, or that it is from or for another life."""
        link, own = self._outlived(self._heard(offer), offer), self.own
        offer = self._aligned(link, offer)
        if offer.epoch >= link.epoch:
            register, rest = link.register, self._rest(link, own)
            if offer.to_epoch in (0, self._life(link)):
                offered, there, limits = (offer.flow, offer.stamp), offer.gossiped, self._bounds.limits
                register = flow.answer(register, rest, offered, there, self.name, limits)
            link = self._witnessed(link, register, offer)
            self._hear(offer)
        ends = self.name, offer.sender, self._life(link), link.epoch, self._digest
        besides = self._besides(link, 0 if offer.seal is None else offer.seal.run)
        return self._changed(Answer(*ends, *link.register, n_max=self.n_max, **besides), link, own)

    def receive_answer(self, answer: Answer) -> Step[None]:
        """End an exchange: adopt what is newer. An answer from or to another life is not heard."""
        link, own = self._outlived(self._heard(answer), answer), self.own
        answer = self._aligned(link, answer)
        if answer.epoch >= link.epoch and answer.to_epoch == self._life(link):
            answered = answer.flow, answer.stamp
            register = flow.adopt(link.register, answered, self.name, self._bounds.limits)
            link = self._witnessed(link, register, answer)
            self._hear(answer)
        return self._changed(None, link, own)

    def _besides(self, link: Link, run: int) -> dict[str, Any]:
        """What every message over a link carries besides the register; ``run``: the neighbour's process it is for."""
        return {
            "standings": self._told,
            "seal": self._seal(link) if self.run else None,
            "to_run": run,
            "other": link.told.beside(run),
            "most": link.told.most,
            "arms": self._arms.added,
            "arms_version": self._arms.version,
        }

    @property
    def _told(self) -> tuple[Standing, ...]:
        return self._standings.tell(self._standing) if self._has_standings else ()

    def _hear(self, message: Message) -> None:
        self._standings.hear(message.sender, message.standings, message.epoch, message.n_max)

    def _life(self, link: Link) -> int:
        """The epoch of this end of a link."""
        return max(link.own_epoch, self.epoch)

    def _place(self, link: Link) -> tuple[int, int, int]:
        """How far this site is, as a seal says it."""
        return self._life(link), sum(self.releases), link.register[1][0]

    def _seal(self, link: Link) -> Seal:
        place, other = self._place(link), self._presence.others.get(link.neighbour, 0)
        parent, is_sure = self._presence.parent, self._presence.doubt is None
        return sealed(self._stored.key, link.neighbour, place, self.run, other, parent, is_sure)

    def _witnessed(self, link: Link, register: flow.Register, message: Message) -> Link:
        """The link after a message: another register, and what its seal tells."""
        told = link.told if message.seal is None else self._told_by(link, message.seal)
        return Link(link.neighbour, message.epoch, register, link.left, link.own_epoch, told)

    def _told_by(self, link: Link, seal: Seal) -> Told:
        told, name = link.told, link.neighbour
        if seal.run == told.run:
            return told.hear(seal)
        past = self._past_runs.setdefault(name, deque(maxlen=PAST_RUNS))
        if told.other is not None and told.other.run not in past:
            past.append(told.other.run)
        if seal.run in past:
            if seal.other != told.run:  # it came late, from a process that another has followed
                return told.hear_late(seal)
            self._twins.add(name)  # that process lives still: it has been told of the one that followed
        else:
            self._twins.discard(name)  # one that has just started, or that its operator has confirmed
        return told.hear(seal)

    def _link(self, neighbour: str) -> Link:
        link = self._stored.links.get(neighbour)
        if link is None or link.left:
            raise NotANeighbour(f"{neighbour} {'has left' if link else 'is no neighbour of'} {self.name}")
        return link

    def _rest(self, link: Link, own: tuple[float, ...]) -> tuple[float, ...]:
        """What is gossiped here without this link."""
        others = [other.register[0] for other in self._stored.links.values() if other.neighbour != link.neighbour]
        return flow.gossiped(own, others)

    def _heard(self, message: Message) -> Link:
        """The link of a message that is meant for this site, understood here, and possible."""
        link = self._link(message.sender)
        if message.federation != self._digest:
            raise OtherFederation(f"{message.sender} follows other terms of the federation than {self.name}")
        if message.receiver != self.name:
            raise InvalidArgument("receiver", message.receiver, self.name)
        check_lengths(message, self.terms.num_arms)
        self._bounds.check(message, self._stored.born, self._life(link))
        if self.run:
            self._presence.hear(message, self._place(link), self._stored.key, lambda: self.neighbours, self.decided)
        return link

    def _aligned(self, link: Link, message: _Message) -> _Message:
        """The message in this site's order of arms."""
        added = self._arms.added
        if message.arms == added:
            return message
        return aligned(message, self.terms.num_arms, added, self._rest(link, self.own))

    def _outlived(self, link: Link, message: Message) -> Link:
        """A link whose neighbour has heard a later life begins another: a disk was lost, and the clock stood behind.

        Not if that life was this file's: then the file is old, and must not pass for a newer one.
        """
        most = message.most
        if message.to_epoch <= self._life(link):
            return link
        if self.run and most is not None and is_genuine(most, self._stored.key, link.neighbour):
            return link
        return replace(link, own_epoch=message.to_epoch + 1)

    # ---------------------------------------------------------------- old and copied files

    def open(self) -> Step[None]:
        """A process begins: its run is written before anything else, so that a copy of the file tells whose it was.

        Rewards that were kept for the log leave the file if the site no longer keeps any.
        """
        records: list[Record] = [] if self._keeps_rewards else [Kept(it, 0, None) for it in self._stored.kept]
        if self.run:
            records.append(Opened(self.run))
        return self._step(None, *records)

    def go_on(self) -> Step[None]:
        """The driver has waited long enough since a neighbour confirmed the file."""
        self._presence.go_on()
        return Step(None)

    def pause(self, run: int) -> Step[None]:
        """The process has stood still for a while; ``run`` is its new number."""
        self._presence.pause(run)
        return Step(None)

    def confirm(self, run: int) -> Step[None]:
        """The operator says that this process lives, and that its file is the latest; ``run`` is its new number."""
        self._presence.confirm(run)
        return Step(None)

    def restore(self, epoch: int, run: int) -> Step[Restored]:
        """Begin a new life with an old file.

        What was decided since no other process can know of it stays (``Presence.first``). What was there before, and
        had not been released, may have been released by another process: it is dropped.
        """
        self._presence.check_restore()
        epoch, first = max(epoch, self.epoch + 1), self._presence.first or 0
        known = self._presence.last_epochs
        lives = {it.neighbour: 1 + max(self._life(it), known.get(it.neighbour, 0)) for it in self.links}
        records, restored = records_of_new_life(self.stored, self.terms, epoch, first, lives)
        stored = self.stored
        stored.apply(records)
        self._presence.renewed(run, epoch)
        self._take_over(stored)
        return Step(restored, records)

    # ---------------------------------------------------------------- the operator's own bound

    def limit_sites(self, most_sites: int | None) -> Step[None]:
        """There can be so many sites: more do not make this one surer. None: nobody says."""
        self._most_sites = most_sites
        self._standings.limit(most_sites)
        return self._linked(None)

    # ---------------------------------------------------------------- steps

    def _changed(self, result: _Result, link: Link, own: tuple[float, ...]) -> Step[_Result]:
        """A step that writes only what has changed."""
        records: list[Record] = []
        before, stamp = self._stored.links[link.neighbour].register
        if link != self._stored.links[link.neighbour]:
            records.append(link)
        step = self._step(result, *records)
        row = flow.gossiped(own, [it.register[0] for it in self._stored.links.values()])
        self._count()
        self._player.exchange(row)
        self._watch.exchanged(link.neighbour, before, link.register[0], row)
        if link.register[1] != stamp:  # the two have averaged
            self._at_exchange, self._has_exchanged = None, True
        return step

    def _linked(self, result: _Result, *records: Record) -> Step[_Result]:
        """A step after which other numbers may have flowed here."""
        step = self._step(result, *records)
        self._look()
        return step
