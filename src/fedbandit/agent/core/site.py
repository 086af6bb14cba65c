"""One site as a pure state machine: an event changes its state and yields records to write and a result to send.

No I/O, clock or randomness: times, draws and the source of noise are arguments. The algorithm is the policy's page,
which ``player`` plays; privacy is in ``fedbandit.privacy.mechanism``. The driver:

* commits ``step.records``, then uses ``step.result``: nothing is told before it is on disk
* may continue after ``Refused`` and ``InvalidArgument``: nothing has changed
* discards the site and loads it from the journal if a commit fails, or if an event raises anything else
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from fedbandit.agent.core.choice import DecisionDraws, choice
from fedbandit.agent.core.decision_ids import decision_id as id_of
from fedbandit.agent.core.events import HorizonReached, NotANeighbour, OtherFederation, Refused, Step, UnknownDecision
from fedbandit.agent.core.messages import MAX_COUNT, Answer, Message, Offer
from fedbandit.agent.core.records import Decision, Forgotten, Life, Link, Record
from fedbandit.agent.core.site_view import SiteView
from fedbandit.agent.core.standings import Standing
from fedbandit.checks import InvalidArgument, finite_number, whole_number
from fedbandit.rules import flow

__all__ = [
    "LONGEST_GAP",
    "MAX_EXPIRED",
    "MAX_SETTLED",
    "DecisionDraws",
    "HorizonReached",
    "NotANeighbour",
    "OtherFederation",
    "Refused",
    "Site",
    "Step",
    "UnknownDecision",
]

MAX_EXPIRED = 1000
"""The most decisions that one call forgets, so that its transaction stays short."""

MAX_SETTLED = 1000
"""The most rewards that one call lets the page observe, for the same reason."""

LONGEST_GAP = 7 * 24 * 3600.0
"""Seconds that count at most between two events when a rate is measured: a clock may jump by decades."""

_Result = TypeVar("_Result")


class Site(SiteView):
    """One agent: what it knows (``site_view``), and the events that change it."""

    # ---------------------------------------------------------------- the application

    def decide(self, at: float, draws: DecisionDraws) -> Step[Decision]:
        """Hand out an arm, and with it the next slot of the arm."""
        arm = choice(self.terms, self._player, self.n_max, draws)
        life = Life(self.epoch, self._stored.life.decisions + 1)
        at = self._tick(at)
        decision = Decision(id_of(self._stored.key, life.epoch, life.decisions, at), life.decisions, arm, at)
        self._tried[arm] += 1
        if self._since is None:
            self._since = at
        times = replace(self._stored.times, since=self._since)
        step = self._step(decision, life, decision, *([times] if times != self._stored.times else []))
        self._slots.add(decision)
        return step

    def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
        """Take the reward of a decision; False if it came too late, and does not count.

        Idempotent: a repetition changes nothing, whatever its value, and the answer tells nothing of the first one.
        ``at`` is the time now, by which a window is judged; None: the largest time seen so far. It moves no clock.
        """
        decision = self._stored.decisions.get(decision_id)
        if decision is None:
            raise UnknownDecision(f"no decision has the id {decision_id!r}, or it has expired")
        low, high, reward = self.terms.low, self.terms.high, finite_number("reward", reward)
        if not low <= reward <= high:
            raise InvalidArgument("reward", reward, f"a number from {low:g} to {high:g}")
        if decision.rewarded:
            return Step(True)
        if decision.late:
            return Step(False)
        now = self._clock if at is None else max(self._clock, finite_number("at", at))
        if decision.played or self._slots.is_over(decision, now):
            return self._step(False, replace(decision, late=True), replace(self._stored.times, late=self.late + 1))
        decision = replace(decision, reward=reward, rewarded=True)
        self._stored.apply([decision])
        due: list[Decision] = []
        if decision.number <= self._stored.by_arrival:
            due = [decision]
        elif self.terms.reward_window == 0.0:
            due = self._slots.take_due(now, MAX_SETTLED)
        return self._played(True, due, *(() if decision in due else (decision,)))

    def is_due(self, now: float) -> bool:
        """Whether ``settle`` has anything to do."""
        return self._slots.is_due(max(now, self._clock))

    def settle(self, now: float) -> Step[int]:
        """Let the page observe what is due, oldest first in each arm; how many.

        With a window: each decision whose window is over, with its reward, or the default if none came. So contents and
        times of releases depend on decisions and the clock alone. At most ``MAX_SETTLED`` at once: call it again while
        ``is_due``. The driver calls it now and then, and before all other events but ``report``: what is settled, and
        when, must not depend on when rewards come.
        """
        now = self._tick(now)
        due = self._slots.take_due(now, MAX_SETTLED)
        times = replace(self._stored.times, clock=now, since=self._since)
        return self._played(len(due), due, *([times] if due else []))

    def expire(self, before: float, keep: int) -> Step[int]:
        """Forget decisions whose window ended before a time, and the oldest beyond the newest ``keep``; how many.

        Before that every one is played: without a window, one that has no reward counts with the default now. With
        one, those that have not been settled stay. At most ``MAX_EXPIRED`` at once: call it again until it says 0.
        """
        before = finite_number("before", before)
        surplus = len(self._stored.decisions) - whole_number("keep", keep, 0, MAX_COUNT)
        window, gone, due = self.terms.reward_window, list[Record](), list[Decision]()
        for decision in self._stored.decisions.values():  # in the order of time: the clock never goes back
            if len(gone) == MAX_EXPIRED or (decision.at + window >= before and len(gone) >= surplus):
                break
            if decision.number <= self._stored.by_arrival:
                self._tried[decision.arm] -= not decision.played
            elif not decision.played:
                if window or not self._slots.is_next(decision):
                    break
                due.append(self._slots.take(decision.arm))
            gone.append(Forgotten(decision.id))
        behind = [] if window else self._slots.take_due(self._clock, MAX_SETTLED)
        return self._played(len(gone), behind, *gone, gone=due)

    def _tick(self, at: float) -> float:
        """The time of an event: no earlier than that of any before."""
        before, self._clock = self._clock, max(self._clock, finite_number("at", at))
        if self._since is not None:  # what a wrong clock skips does not count as time in which nobody came
            self._since += max(self._clock - before - LONGEST_GAP, 0.0)
        return self._clock

    def _played(
        self, result: _Result, due: Sequence[Decision], *records: Record, gone: Sequence[Decision] = ()
    ) -> Step[_Result]:
        """A step after which the page has observed what is due; before that, what is ``gone`` after this step."""
        if not due and not gone:
            return self._step(result, *records)
        missing = self.terms.missing_reward
        rewards = ((it.arm, missing if it.reward is None else it.reward) for it in (*gone, *due))
        own = self._player.take(rewards, self._elapsed)
        step = self._step(result, *records, *(replace(it, reward=None, played=True) for it in due))
        self._look(*self._player.concerned(own))
        return replace(step, records=(*step.records, *own))

    # ---------------------------------------------------------------- neighbours

    def join(self, neighbour: str) -> Step[None]:
        """Begin a link. One that was there stays; one that had left begins anew, and its old messages stay refused."""
        if neighbour == self.name:
            raise InvalidArgument("neighbour", neighbour, "another site")
        link = self._stored.links.get(neighbour)
        if link is not None and not link.left:
            return Step(None)
        return self._linked(None, Link(neighbour, link.epoch if link else 0, flow.empty(self.terms.num_arms)))

    def leave(self, neighbour: str) -> Step[None]:
        """A neighbour has left for good: drop its flow, refuse what it said in this life. Idempotent."""
        if any(link.left for link in self.links if link.neighbour == neighbour):
            return Step(None)
        least = min(self._link(neighbour).epoch + 1, MAX_COUNT)
        self._standings.forget(neighbour)
        self._watch.forget(neighbour)
        return self._linked(None, Link(neighbour, least, flow.empty(self.terms.num_arms), left=True))

    def offer(self, neighbour: str) -> Step[Offer]:
        """Begin an exchange. Nothing changes until its answer."""
        link = self._link(neighbour)
        ends = self.name, neighbour, self.epoch, link.epoch, self._digest
        return Step(Offer(*ends, *link.register, self.gossiped, n_max=self.n_max, standings=self._told))

    def receive_offer(self, offer: Offer) -> Step[Answer]:
        """Answer an offer: average with it, or say what is newer than it, or that it is from or for another life."""
        link = self._heard(offer)
        life = self._outlived(offer)
        if offer.epoch >= link.epoch:
            register = link.register
            if offer.to_epoch in (0, life.epoch):
                offered = offer.flow, offer.stamp
                there, limits = offer.gossiped, self._bounds.limits
                register = flow.answer(register, self._rest(link), offered, there, self.name, limits)
            link = replace(link, epoch=offer.epoch, register=register)
            self._hear(offer)
        ends = self.name, offer.sender, life.epoch, link.epoch, self._digest
        answer = Answer(*ends, *link.register, n_max=self.n_max, standings=self._told)
        return self._changed(answer, life, link)

    def receive_answer(self, answer: Answer) -> Step[None]:
        """End an exchange: adopt what is newer. An answer from or to another life is not heard."""
        link = self._heard(answer)
        life = self._outlived(answer)
        if answer.epoch >= link.epoch and answer.to_epoch == self.epoch:
            answered = answer.flow, answer.stamp
            register = flow.adopt(link.register, answered, self.name, self._bounds.limits)
            link = replace(link, epoch=answer.epoch, register=register)
            self._hear(answer)
        return self._changed(None, life, link)

    @property
    def _told(self) -> tuple[Standing, ...]:
        return self._standings.tell(self._standing) if self._has_standings else ()

    def _hear(self, message: Message) -> None:
        self._standings.hear(message.sender, message.standings, message.epoch, message.n_max)

    def _link(self, neighbour: str) -> Link:
        link = self._stored.links.get(neighbour)
        if link is None or link.left:
            raise NotANeighbour(f"{neighbour} {'has left' if link else 'is no neighbour of'} {self.name}")
        return link

    def _rest(self, link: Link) -> tuple[float, ...]:
        """What is gossiped here without this link."""
        others = [other.register[0] for other in self._stored.links.values() if other.neighbour != link.neighbour]
        return flow.gossiped(self.own, others)

    def _heard(self, message: Message) -> Link:
        """The link of a message that is meant for this site, understood here, and possible."""
        link = self._link(message.sender)
        if message.federation != self._digest:
            raise OtherFederation(f"{message.sender} follows other terms of the federation than {self.name}")
        if message.receiver != self.name:
            raise InvalidArgument("receiver", message.receiver, self.name)
        self._bounds.check(message, self._stored.born, self.epoch)
        return link

    def _outlived(self, message: Message) -> Life:
        """This life; a later one if a neighbour has heard a later one: a disk was lost, and the clock stood behind."""
        life = self._stored.life
        return replace(life, epoch=message.to_epoch + 1) if message.to_epoch > life.epoch else life

    def _look(self, *arms: int) -> None:
        """Show the page what the network holds now, of these arms or of all."""
        self._player.look(self.gossiped, arms or range(self.terms.num_arms))

    # ---------------------------------------------------------------- steps

    def _changed(self, result: _Result, life: Life, link: Link) -> Step[_Result]:
        """A step that writes only what has changed."""
        records: list[Record] = []
        before = self._stored.links[link.neighbour].register[0]
        if life != self._stored.life:
            records.append(life)
        if link != self._stored.links[link.neighbour]:
            records.append(link)
        step = self._step(result, *records)
        row = self.gossiped
        self._player.exchange(row)
        self._watch.exchanged(link.neighbour, before, link.register[0], row)
        return step

    def _linked(self, result: _Result, *records: Record) -> Step[_Result]:
        """A step after which other numbers may have flowed here."""
        step = self._step(result, *records)
        self._look()
        return step

    def _step(self, result: _Result, *records: Record) -> Step[_Result]:
        self._stored.apply(records)
        return Step(result, records)
