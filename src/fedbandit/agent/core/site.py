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

from fedbandit.agent.core.bounds import Bounds
from fedbandit.agent.core.choice import DecisionDraws, choice
from fedbandit.agent.core.decision_ids import decision_id as id_of
from fedbandit.agent.core.events import HorizonReached, NotANeighbour, OtherFederation, Refused, Step, UnknownDecision
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import MAX_COUNT, Answer, Message, Offer
from fedbandit.agent.core.notices import Privacy, privacy_of, warnings_of, warnings_of_network
from fedbandit.agent.core.player import LEAST_ELAPSED as DAY
from fedbandit.agent.core.player import Player
from fedbandit.agent.core.records import Decision, Forgotten, Heard, Life, Link, Record, Stored
from fedbandit.agent.core.slots import Slots
from fedbandit.agent.core.standings import Holdout, Standing, Standings, holdout
from fedbandit.checks import InvalidArgument, finite_number, whole_number
from fedbandit.policies import FedBatch
from fedbandit.privacy.noise import NoiseSource, laplace
from fedbandit.rules import flow
from fedbandit.rules.gossip import heard, ratio

__all__ = [
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
        self._slots = Slots(terms, self._stored.decisions, stored.by_arrival)
        self._clock = max([stored.times.clock, *(decision.at for decision in stored.decisions.values())])
        self._standings = Standings(name, terms.num_agents, terms.num_arms)
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
        values, weights = self.own[: self.terms.num_arms], self.own[self.terms.num_arms :]
        return tuple(ratio(x, weight) if weight > 0.0 else None for x, weight in zip(values, weights, strict=True))

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
        """How many rewards of each arm the page has observed, released or not; defaults are among them."""
        return self._player.rewards

    @property
    def tried(self) -> tuple[int, ...]:
        """Decisions for each arm, pending ones counted."""
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
        return sum(self._tried) - sum(self.rewards) - self.waiting

    @property
    def waiting(self) -> int:
        """Rewards that were reported and do not count yet: their window, or an earlier slot, is still open."""
        return self._slots.waiting()

    @property
    def late(self) -> int:
        """Rewards that came after their window, and do not count."""
        return self._stored.times.late

    @property
    def clock(self) -> float:
        """The largest time that this site was told of: it never goes back.

        After a restart it is the largest at which a decision was made, or anything settled: a file keeps no time that
        depends on when a reward came.
        """
        return self._clock

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
    def weights(self) -> tuple[float, ...]:
        """How much of the federation has released each arm, as far as is known here: 1 where all have.

        Where patients count, it is relative to the arm that has the most.
        """
        row = self.gossiped[self.terms.num_arms :]
        most = max(row) if self.terms.counted == "patients" else 1.0
        return tuple(weight / most if most > 0.0 else 0.0 for weight in row)

    @property
    def per_day(self) -> float | None:
        """Decisions per day, by which this site counts; None before its first release, or where sites count alike."""
        by_rate = self.terms.counted == "patients" and any(self.releases)
        return self._player.me.share * DAY if by_rate else None

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
        said = warnings_of(self.terms, self._tried, self.n_max, self._slots.held_up())
        return *said, *warnings_of_network(self.terms, self.holdout, self._player.unrest)

    @property
    def holdout(self) -> Holdout | None:
        """The site whose few releases alone leave open which arm is best, if there is one."""
        if not isinstance(self.terms.policy, FedBatch):
            return None
        return holdout(self._standings.all(self._standing), self._player.estimates, self.terms.page_terms)

    @property
    def _standing(self) -> Standing:
        weight = getattr(self._player.me, "share", 1.0)
        return Standing(self.name, self.epoch, sum(self.releases), weight, self.released)

    # ---------------------------------------------------------------- the application

    def decide(self, at: float, draws: DecisionDraws) -> Step[Decision]:
        """Hand out an arm, and with it the next slot of the arm."""
        arm = choice(self.terms, self._player, self.n_max, draws)
        life = Life(self.epoch, self._stored.life.decisions + 1)
        at = self._tick(at)
        decision = Decision(id_of(self._stored.key, life.epoch, life.decisions, at), life.decisions, arm, at)
        self._tried[arm] += 1
        times = (replace(self._stored.times, since=decision.at),) if self._stored.times.since is None else ()
        step = self._step(decision, life, decision, *times)
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
        times of releases depend on decisions and the clock alone. At most ``MAX_SETTLED`` at once: call it again until
        it says 0. The driver calls it now and then, and before all other events but ``report``: what is settled, and
        when, must not depend on when rewards come.
        """
        now = self._tick(now)
        due = self._slots.take_due(now, MAX_SETTLED)
        return self._played(len(due), due, *((replace(self._stored.times, clock=now),) if due else ()))

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

    @property
    def _elapsed(self) -> float:
        """Since the first decision, up to the last time that anything was decided or settled."""
        since = self._stored.times.since
        return 0.0 if since is None else self._clock - since

    def _tick(self, at: float) -> float:
        """The time of an event: no earlier than that of any before."""
        self._clock = max(self._clock, finite_number("at", at))
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
        return self._linked(None, Link(neighbour, least, flow.empty(self.terms.num_arms), left=True))

    def offer(self, neighbour: str) -> Step[Offer]:
        """Begin an exchange. Nothing changes until its answer."""
        link = self._link(neighbour)
        ends = self.name, neighbour, self.epoch, link.epoch, self._digest
        return Step(Offer(*ends, *link.register, self.gossiped, n_max=self.n_max, standings=self._told))

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
        self._standings.hear(offer.standings)
        ends = self.name, offer.sender, life.epoch, link.epoch, self._digest
        answer = Answer(*ends, *link.register, n_max=n_max, standings=self._told)
        return self._changed(answer, life, link, n_max)

    def receive_answer(self, answer: Answer) -> Step[None]:
        """End an exchange: adopt what is newer. An answer from or to another life is not heard."""
        link = self._heard(answer)
        life, n_max = self._outlived(answer), self.n_max
        if answer.epoch >= link.epoch and answer.to_epoch == self.epoch:
            register = flow.adopt(link.register, (answer.flow, answer.stamp))
            link = self._held(replace(link, epoch=answer.epoch, register=register))
            n_max = self._caught(answer)
        self._standings.hear(answer.standings)
        return self._changed(None, life, link, n_max)

    @property
    def _told(self) -> tuple[Standing, ...]:
        return self._standings.tell(self._standing) if isinstance(self.terms.policy, FedBatch) else ()

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
        step = self._step(result, *records)
        self._player.exchange(self.gossiped)
        return step

    def _linked(self, result: _Result, *records: Record) -> Step[_Result]:
        """A step after which other numbers may have flowed here."""
        step = self._step(result, *records)
        self._look()
        return step

    def _step(self, result: _Result, *records: Record) -> Step[_Result]:
        self._stored.apply(records)
        return Step(result, records)
