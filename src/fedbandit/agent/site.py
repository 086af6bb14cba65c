"""One site as a state machine: an event comes in, its state changes, and it says what to write and what to tell.

Here belongs what a site does, and no I/O, clock or randomness: times, draws and the source of noise are arguments,
files are ``journal``'s, and whoever drives it sends. Formulas are the rules', privacy is the mechanism's. The driver:

* commits ``step.records``, then uses ``step.result``: nothing is told before it is on disk
* may go on after ``Refused`` and ``InvalidArgument``: nothing has changed
* throws the site away and loads it from the journal if a commit fails, or an event raises anything else
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Generic, TypeVar

from fedbandit.agent.estimate import NOTHING, Estimate, with_release
from fedbandit.agent.federation import Federation
from fedbandit.agent.messages import MAX_COUNT, Answer, Message, Offer
from fedbandit.agent.records import Batch, Decision, Forgotten, Life, Link, Record, Stored
from fedbandit.checks import InvalidArgument, finite_number
from fedbandit.privacy.mechanism import Batches
from fedbandit.privacy.noise import NoiseSource, laplace
from fedbandit.rules import flow
from fedbandit.rules.choose import fewest_pulls, highest_belief
from fedbandit.rules.gossip import is_known, ratio
from fedbandit.rules.kl import highest_kl_index
from fedbandit.rules.radius import CALIBRATED_ALPHA, deviation, radius, variance_sampling

__all__ = ["NotANeighbour", "OtherFederation", "Refused", "RewardConflict", "Site", "Step", "UnknownDecision"]

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Step(Generic[_Result]):
    """What to do after an event: commit the records in one transaction, then use the result."""

    result: _Result
    records: tuple[Record, ...] = ()


class Refused(RuntimeError):
    """An event that changed nothing."""


class UnknownDecision(Refused):
    """The application's mistake: no decision has this id, or it has expired."""


class RewardConflict(Refused):
    """The application's mistake: this decision has another reward already."""


class NotANeighbour(Refused):
    """The sender's mistake: there is no link between it and this site, or no longer."""


class OtherFederation(Refused):
    """The sender's mistake: its terms are not ours."""


class Site:
    """One agent. ``stored`` is what its journal holds; ``noise`` is OpenDP's but in tests."""

    def __init__(self, name: str, terms: Federation, stored: Stored, noise: NoiseSource = laplace) -> None:
        """The site as it was when the last of its records was written."""
        self.name, self.terms, self._stored = name, terms, stored
        self._digest = terms.digest()
        self._mechanism = _mechanism(terms, stored, noise)
        self._estimates = [NOTHING] * terms.num_arms
        for release in stored.releases:
            self._estimates[release.arm] = with_release(self._estimates[release.arm], release, terms)
        self._tried = [0] * terms.num_arms  # decisions so far: rewarded ones, and those that wait
        for batch in stored.batches.values():
            self._tried[batch.arm] = self._estimates[batch.arm].released + batch.count
        for decision in stored.decisions.values():
            self._tried[decision.arm] += decision.reward is None

    # ---------------------------------------------------------------- what can be seen

    @property
    def epoch(self) -> int:
        """The life of this site."""
        return self._stored.life.epoch

    @property
    def estimates(self) -> tuple[Estimate, ...]:
        """The own numbers of each arm."""
        return tuple(self._estimates)

    @property
    def tried(self) -> tuple[int, ...]:
        """Decisions for each arm, pending ones counted, expired ones without a reward not."""
        return tuple(self._tried)

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Those with whom there is a link."""
        return tuple(link.neighbour for link in self._stored.links.values() if not link.left)

    @property
    def own(self) -> tuple[float, ...]:
        """The own mean of each arm, then the own weight: 0 until the first release."""
        known = self._estimates
        return (*(arm.x_mean for arm in known), *(1.0 if arm.releases else 0.0 for arm in known))

    @property
    def gossiped(self) -> tuple[float, ...]:
        """Value of each arm, then weights: the own ones and what has flowed here."""
        return flow.gossiped(self.own, [link.register[0] for link in self._stored.links.values()])

    @property
    def theta(self) -> tuple[float | None, ...]:
        """The estimate of each arm; None for an arm that is unknown."""
        row, num_arms = self.gossiped, self.terms.num_arms
        return tuple(
            ratio(row[k], row[num_arms + k])
            if is_known(row[num_arms + k], self._estimates[k].releases, 1.0, self.terms.num_agents)
            else None
            for k in range(num_arms)
        )

    # ---------------------------------------------------------------- the application

    def decide(self, at: float, normals: Sequence[float] = ()) -> Step[Decision]:
        """Hand out an arm. ``normals``: a standard normal draw for each arm, for the Thompson index."""
        arm = self._choose(normals)
        life = Life(self.epoch, self._stored.life.decisions + 1)
        decision = Decision(life.epoch, life.decisions, arm, finite_number("at", at))
        self._tried[arm] += 1
        return self._step(decision, life, decision)

    def _choose(self, normals: Sequence[float]) -> int:
        terms, arms = self.terms, self._estimates
        policy = terms.policy
        if policy.index == "thompson" and len(normals) != terms.num_arms:
            raise InvalidArgument("normals", normals, f"{terms.num_arms} draws, one for each arm")
        theta = [x for x in self.theta if x is not None]
        if len(theta) < terms.num_arms:
            return fewest_pulls(self._tried, [x is None for x in self.theta])
        log_t = log(max(sum(self._tried) + 1 - terms.num_arms, 1))  # Alg. 1, line 1: each arm's first pull is at t = 0
        if policy.index == "kl":
            return highest_kl_index(theta, [terms.num_agents * arm.released for arm in arms], log_t, policy.epsilon)
        mixed = [arm.variance / terms.num_agents for arm in arms]
        if policy.index == "thompson":
            return highest_belief(theta, [deviation(v) * z for v, z in zip(mixed, normals, strict=True)])
        return highest_belief(
            theta, [radius(variance_sampling(CALIBRATED_ALPHA, v), 0.0, log_t, 1.0, 0.0) for v in mixed]
        )

    def report(self, decision_id: str, reward: float) -> Step[None]:
        """Take the reward of a decision. The same one again is fine and changes nothing."""
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
        arm = decision.arm
        release = self._mechanism.add(arm, reward)
        state = self._mechanism.state()
        records: list[Record] = [
            replace(decision, reward=reward),
            Batch(arm, state["counts"][arm], state["totals"][arm]),
        ]
        if release is not None:
            records.append(release)
            self._estimates[arm] = with_release(self._estimates[arm], release, self.terms)
        return self._step(None, *records)

    def expire(self, before: float) -> Step[int]:
        """Forget the decisions handed out before a time; how many. Those without a reward no longer count as tried."""
        forgotten: list[Record] = []
        for decision in self._stored.decisions.values():  # in the order of time
            if decision.at >= before:
                break
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
        least = 0 if link is None else link.epoch
        return self._step(None, Link(neighbour, least, flow.empty(self.terms.num_arms)))

    def leave(self, neighbour: str) -> Step[None]:
        """A neighbour has left for good: drop its flow, refuse what it said in this life."""
        least = min(self._link(neighbour).epoch + 1, MAX_COUNT)
        return self._step(None, Link(neighbour, least, flow.empty(self.terms.num_arms), left=True))

    def offer(self, neighbour: str) -> Step[Offer]:
        """Begin an exchange. Nothing changes until its answer."""
        link = self._link(neighbour)
        row, stamp = link.register
        return Step(Offer(self.name, neighbour, self.epoch, link.epoch, self._digest, row, stamp, self.gossiped))

    def receive_offer(self, offer: Offer) -> Step[Answer]:
        """Answer an offer: average with it, or say what is newer than it, or that it is from or for another life."""
        link = self._heard(offer)
        life = self._outlived(offer)
        if offer.epoch >= link.epoch:
            register = link.register
            if offer.to_epoch in (0, life.epoch):
                rest = flow.gossiped(self.own, [other.register[0] for other in self._others(link)])
                register = flow.answer(register, rest, (offer.flow, offer.stamp), offer.gossiped, self.name)
            link = replace(link, epoch=offer.epoch, register=register)
        answer = Answer(self.name, offer.sender, life.epoch, link.epoch, self._digest, *link.register)
        return self._changed(answer, life, link)

    def receive_answer(self, answer: Answer) -> Step[None]:
        """End an exchange: adopt what is newer. An answer from or to another life is not heard."""
        link = self._heard(answer)
        life = self._outlived(answer)
        if answer.epoch >= link.epoch and answer.to_epoch == self.epoch:
            register = flow.adopt(link.register, (answer.flow, answer.stamp))
            link = replace(link, epoch=answer.epoch, register=register)
        return self._changed(None, life, link)

    def _link(self, neighbour: str) -> Link:
        link = self._stored.links.get(neighbour)
        if link is None or link.left:
            raise NotANeighbour(f"{neighbour} {'has left' if link else 'is no neighbour of'} {self.name}")
        return link

    def _others(self, link: Link) -> list[Link]:
        return [other for other in self._stored.links.values() if other.neighbour != link.neighbour]

    def _heard(self, message: Message) -> Link:
        """The link of a message that is meant for this site and understood here."""
        link = self._link(message.sender)
        if message.federation != self._digest:
            raise OtherFederation(f"{message.sender} follows other terms of the federation than {self.name}")
        if message.receiver != self.name:
            raise InvalidArgument("receiver", message.receiver, self.name)
        if len(message.flow) != 2 * self.terms.num_arms:
            raise InvalidArgument("flow", f"{len(message.flow)} columns", f"{2 * self.terms.num_arms} columns")
        return link

    def _outlived(self, message: Message) -> Life:
        """This life; a later one if a neighbour has heard a later one: a disk was lost, and the clock stood behind."""
        life = self._stored.life
        if message.to_epoch > life.epoch:
            return replace(life, epoch=min(message.to_epoch + 1, MAX_COUNT))
        return life

    # ---------------------------------------------------------------- steps

    def _changed(self, result: _Result, life: Life, link: Link) -> Step[_Result]:
        """A step that writes only what has changed."""
        records: list[Record] = []
        if life != self._stored.life:
            records.append(life)
        if link != self._stored.links[link.neighbour]:
            records.append(link)
        return self._step(result, *records)

    def _step(self, result: _Result, *records: Record) -> Step[_Result]:
        self._stored.apply(records)
        return Step(result, records)


def _mechanism(terms: Federation, stored: Stored, noise: NoiseSource) -> Batches:
    """The mechanism as the journal knows it: what has been released is never drawn again."""
    policy, arms = terms.policy, range(terms.num_arms)
    empty = Batches(terms.num_arms, policy.epsilon, terms.low, terms.high, terms.first_batch, policy.growth)
    batches = [stored.batches.get(k, Batch(k, 0, 0)) for k in arms]
    return Batches.restore(
        {
            **empty.state(),
            "counts": [batch.count for batch in batches],
            "totals": [batch.total for batch in batches],
            "released": [[release.arm, 0, release.first, release.last] for release in stored.releases],
        },
        noise,
    )
