"""One site as a pure state machine: an event changes its state and yields records to write and a result to send.

No I/O, clock or randomness: times, draws and the source of noise are arguments. The algorithm is the policy's page,
which ``player`` plays; privacy is in ``fedbandit.privacy.mechanism``. The driver:

* commits ``step.records``, then uses ``step.result``: nothing is told before it is on disk
* may continue after ``Refused`` and ``InvalidArgument``: nothing has changed
* discards the site and loads it from the journal if a commit fails, or if an event raises anything else
"""

from dataclasses import replace
from typing import TypeVar

from fedbandit.agent.core.bounds import Bounds
from fedbandit.agent.core.choice import DecisionDraws, choice
from fedbandit.agent.core.events import (
    HorizonReached,
    NotANeighbour,
    OtherFederation,
    Refused,
    RewardConflict,
    Step,
    UnknownDecision,
)
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import MAX_COUNT, Answer, Message, Offer
from fedbandit.agent.core.notices import Privacy, privacy_of, warnings_of
from fedbandit.agent.core.player import Player
from fedbandit.agent.core.records import Decision, Forgotten, Heard, Life, Link, Record, Stored
from fedbandit.checks import InvalidArgument, finite_number, whole_number
from fedbandit.privacy.noise import NoiseSource, laplace
from fedbandit.rules import flow
from fedbandit.rules.gossip import heard

__all__ = [
    "MAX_EXPIRED",
    "DecisionDraws",
    "HorizonReached",
    "NotANeighbour",
    "OtherFederation",
    "Refused",
    "RewardConflict",
    "Site",
    "Step",
    "UnknownDecision",
]

MAX_EXPIRED = 1000
"""The most decisions that one call forgets, so that its transaction stays short."""

_Result = TypeVar("_Result")


class Site:
    """One agent. ``stored`` is what its journal holds; ``noise`` is OpenDP's but in tests."""

    def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource = laplace) -> None:
        """The site as it was when the last of its records was written."""
        self.name, self.terms = name, terms
        self._digest, self._bounds = terms.digest(), Bounds.of(terms)
        self._player = Player(terms, stored, noise)
        self._tried: list[int] = self._player.me.tried
        self._stored = replace(stored, known={}, released={})  # they are the player's from here on: one copy in memory
        self._look()

    @property
    def stored(self) -> Stored:
        """What the journal holds once all records of this site are committed."""
        return replace(self._stored, known=self._player.known, released=self._player.marks)

    # ---------------------------------------------------------------- what can be seen

    @property
    def epoch(self) -> int:
        """The life of this site."""
        return self._stored.life.epoch

    @property
    def own_means(self) -> tuple[float | None, ...]:
        """The own mean of each arm, as others may see it; None before its first release."""
        return tuple(x if n else None for x, n in zip(self.own, self.releases, strict=False))

    @property
    def releases(self) -> tuple[int, ...]:
        """How often something of each arm was released."""
        return self._player.releases

    @property
    def released(self) -> tuple[int, ...]:
        """How many rewards of each arm are in releases."""
        return self._player.released

    @property
    def rewards(self) -> tuple[int, ...]:
        """How many rewards of each arm were taken, released or not."""
        return self._player.rewards

    @property
    def tried(self) -> tuple[int, ...]:
        """Decisions for each arm, pending ones counted, expired ones without a reward not."""
        return tuple(self._tried)

    @property
    def n_max(self) -> tuple[int, ...]:
        """The most decisions for each arm by anyone, as far as is known here; empty without the consistency rule.

        It never decreases: a maximum does not record whose it was. After a site leaves or loses its disk, the others
        catch up with its count once.
        """
        own = self._player.announced
        return tuple(heard(n, other) for n, other in zip(own, self._stored.n_max or own, strict=True))

    @property
    def decided(self) -> int:
        """Decisions handed out since the file was made."""
        return self._stored.life.decisions

    @property
    def pending(self) -> int:
        """Decisions that wait for their reward."""
        return sum(self._tried) - sum(self.rewards)

    @property
    def remembered(self) -> int:
        """Decisions that have not expired."""
        return len(self._stored.decisions)

    @property
    def links(self) -> tuple[Link, ...]:
        """All links, also those of neighbours that have left."""
        return tuple(self._stored.links.values())

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Those with whom there is a link."""
        return tuple(link.neighbour for link in self._stored.links.values() if not link.left)

    @property
    def own(self) -> tuple[float, ...]:
        """The own value of each arm, then the own weight: 0 until the first release."""
        return self._player.own

    @property
    def gossiped(self) -> tuple[float, ...]:
        """Value of each arm, then weights: the own ones and what has flowed here."""
        return flow.gossiped(self.own, [link.register[0] for link in self._stored.links.values()])

    @property
    def theta(self) -> tuple[float | None, ...]:
        """The estimate of each arm; None for an arm that is unknown."""
        return tuple(self._player.theta(k) for k in range(self.terms.num_arms))

    @property
    def radius(self) -> tuple[float | None, ...]:
        """The uncertainty of each arm that the index uses now; None for an arm that is unknown."""
        now = self._player.now
        return tuple(self._player.radius(k, now) for k in range(self.terms.num_arms))

    def privacy(self) -> Privacy:
        """What is promised to the one whose reward it is."""
        return privacy_of(self.terms, sum(self.releases))

    def warnings(self) -> tuple[str, ...]:
        """What an operator should know."""
        return warnings_of(self.terms, self._tried, self.n_max)

    # ---------------------------------------------------------------- the application

    def decide(self, at: float, draws: DecisionDraws) -> Step[Decision]:
        """Hand out an arm."""
        arm = choice(self.terms, self._player, self.n_max, draws)
        life = Life(self.epoch, self._stored.life.decisions + 1)
        decision = Decision(life.epoch, life.decisions, arm, finite_number("at", at))
        self._tried[arm] += 1
        return self._step(decision, life, decision)

    def report(self, decision_id: str, reward: float) -> Step[None]:
        """Take the reward of a decision. Idempotent."""
        decision = self._stored.decisions.get(decision_id)
        if decision is None:
            raise UnknownDecision(f"no decision has the id {decision_id!r}, or it has expired")
        low, high, reward = self.terms.low, self.terms.high, finite_number("reward", reward)
        if not low <= reward <= high:
            raise InvalidArgument("reward", reward, f"a number from {low:g} to {high:g}")
        if decision.reward is not None:
            if decision.reward != reward:
                raise RewardConflict(f"decision {decision_id} has another reward already")
            return Step(None)
        most = self.terms.max_pulls
        if most is not None and self.rewards[decision.arm] >= most:  # ``decide`` leaves room: a file was changed
            raise HorizonReached(f"arm {decision.arm} has had {most} rewards, for which policy.horizon pays")
        own = self._player.take(decision.arm, reward)
        step = self._step(None, replace(decision, reward=reward))
        self._look(decision.arm)
        return replace(step, records=(*step.records, *own))

    def expire(self, before: float, keep: int) -> Step[int]:
        """Forget decisions handed out before a time, and the oldest beyond the newest ``keep``; how many.

        At most ``MAX_EXPIRED`` at once: call it again until it says 0. Those without a reward no longer count as tried.
        """
        before = finite_number("before", before)
        surplus = len(self._stored.decisions) - whole_number("keep", keep, 0, MAX_COUNT)
        forgotten: list[Record] = []
        newest = next((it.at for it in reversed(self._stored.decisions.values())), before)
        for decision in self._stored.decisions.values():  # in the order of time, but where the clock was set back
            if len(forgotten) == MAX_EXPIRED:
                break
            if decision.at >= before and len(forgotten) >= surplus:
                if decision.at <= newest:
                    break
                continue  # the clock was ahead: those that follow must not wait for that time
            forgotten.append(Forgotten(decision.id))
            self._tried[decision.arm] -= decision.reward is None
        return self._step(len(forgotten), *forgotten)

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
        return self._linked(None, Link(neighbour, least, flow.empty(self.terms.num_arms), left=True))

    def offer(self, neighbour: str) -> Step[Offer]:
        """Begin an exchange. Nothing changes until its answer."""
        link = self._link(neighbour)
        ends = self.name, neighbour, self.epoch, link.epoch, self._digest
        return Step(Offer(*ends, *link.register, self.gossiped, n_max=self.n_max))

    def receive_offer(self, offer: Offer) -> Step[Answer]:
        """Answer an offer: average with it, or say what is newer than it, or that it is from or for another life."""
        link = self._heard(offer)
        life, n_max = self._outlived(offer), self.n_max
        if offer.epoch >= link.epoch:
            register = link.register
            if offer.to_epoch in (0, life.epoch):
                offered = offer.flow, offer.stamp
                register = flow.answer(register, self._rest(link), offered, offer.gossiped, self.name)
            link = self._held(replace(link, epoch=offer.epoch, register=register))
            n_max = self._caught(offer)
        answer = Answer(self.name, offer.sender, life.epoch, link.epoch, self._digest, *link.register, n_max=n_max)
        return self._changed(answer, life, link, n_max)

    def receive_answer(self, answer: Answer) -> Step[None]:
        """End an exchange: adopt what is newer. An answer from or to another life is not heard."""
        link = self._heard(answer)
        life, n_max = self._outlived(answer), self.n_max
        if answer.epoch >= link.epoch and answer.to_epoch == self.epoch:
            register = flow.adopt(link.register, (answer.flow, answer.stamp))
            link = self._held(replace(link, epoch=answer.epoch, register=register))
            n_max = self._caught(answer)
        return self._changed(None, life, link, n_max)

    def _link(self, neighbour: str) -> Link:
        link = self._stored.links.get(neighbour)
        if link is None or link.left:
            raise NotANeighbour(f"{neighbour} {'has left' if link else 'is no neighbour of'} {self.name}")
        return link

    def _rest(self, link: Link) -> tuple[float, ...]:
        """What is gossiped here without this link."""
        others = [other.register[0] for other in self._stored.links.values() if other.neighbour != link.neighbour]
        return flow.gossiped(self.own, others)

    def _held(self, link: Link) -> Link:
        """The link after an exchange, if this site then still says what its neighbours accept."""
        self._bounds.check_held(link.register[0], flow.gossiped(self._rest(link), [link.register[0]]))
        return link

    def _heard(self, message: Message) -> Link:
        """The link of a message that is meant for this site, understood here, and possible."""
        link = self._link(message.sender)
        if message.federation != self._digest:
            raise OtherFederation(f"{message.sender} follows other terms of the federation than {self.name}")
        if message.receiver != self.name:
            raise InvalidArgument("receiver", message.receiver, self.name)
        self._bounds.check(message, self._stored.born, self.epoch)
        return link

    def _caught(self, message: Message) -> tuple[int, ...]:
        """Algorithm 1, line 5."""
        return tuple(heard(n, other) for n, other in zip(self.n_max, message.n_max, strict=True))

    def _outlived(self, message: Message) -> Life:
        """This life; a later one if a neighbour has heard a later one: a disk was lost, and the clock stood behind."""
        life = self._stored.life
        return replace(life, epoch=message.to_epoch + 1) if message.to_epoch > life.epoch else life

    def _look(self, *arms: int) -> None:
        """Show the page what the network holds now, of these arms or of all."""
        self._player.look(self.gossiped, arms or range(self.terms.num_arms))

    # ---------------------------------------------------------------- steps

    def _changed(self, result: _Result, life: Life, link: Link, n_max: tuple[int, ...]) -> Step[_Result]:
        """A step that writes only what has changed."""
        records: list[Record] = []
        if life != self._stored.life:
            records.append(life)
        if link != self._stored.links[link.neighbour]:
            records.append(link)
        if n_max != self.n_max:
            records.append(Heard(n_max))
        return self._linked(result, *records)

    def _linked(self, result: _Result, *records: Record) -> Step[_Result]:
        """A step after which other numbers may have flowed here."""
        step = self._step(result, *records)
        self._look()
        return step

    def _step(self, result: _Result, *records: Record) -> Step[_Result]:
        self._stored.apply(records)
        return Step(result, records)
