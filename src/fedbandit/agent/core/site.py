"""One site as a pure state machine: an event changes its state and yields records to write and a result to send.

No I/O, clock or randomness: times, draws and the source of noise are arguments. The algorithm is the policy's page,
which ``player`` plays; privacy is in ``fedbandit.privacy.mechanism``. The driver:

* commits ``step.records``, then uses ``step.result``: nothing is sent before it is on disk
* may continue after ``Refused`` and ``InvalidArgument``: nothing has changed
* discards the site and loads it from the journal if a commit fails, or if an event raises anything else
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

from fedbandit.agent.core.answer import (
    Answer,
    Belief,
    Estimates,
    Holdout,
    answer_before_exchange,
    answer_of,
    errors_of,
    holdout,
    over_whom,
)
from fedbandit.agent.core.arms import Accepts, ArmChange, ArmChanged, Arms, ChangeKind, Sign, in_words_of_stops
from fedbandit.agent.core.bounds import DAY, Bounds, Carried, LinkWatch
from fedbandit.agent.core.decisions import (
    ANY,
    Choice,
    Expired,
    Request,
    RequestIndex,
    SiteDraws,
    Slots,
    as_bits,
    choice,
    key_tag,
    subject_tag,
)
from fedbandit.agent.core.decisions import decision_id as id_of
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import (
    MAX_COUNT,
    HeldSeals,
    Message,
    Offer,
    Reply,
    Seal,
    aligned,
    check_lengths,
    is_genuine,
    sealed,
    widened,
)
from fedbandit.agent.core.notices import (
    Privacy,
    privacy_of,
    warnings_of,
    warnings_of_arms,
    warnings_of_claims,
    warnings_of_network,
    warnings_of_processes,
    warnings_of_second_draws,
    warnings_of_unbelieved,
)
from fedbandit.agent.core.player import Player
from fedbandit.agent.core.records import (
    DecisionCancelled,
    DecisionNotFound,
    DecisionRecord,
    Forgotten,
    HorizonReached,
    Kept,
    KeyTaken,
    Link,
    NoArmLeft,
    NoSuchNeighbour,
    Numbering,
    Opened,
    OtherFederation,
    Record,
    Refused,
    Rewarded,
    SiteTimes,
    Step,
    StoppedMeanwhile,
    Stored,
    WindowOver,
)
from fedbandit.agent.core.release_guard import Doubt, Presence, Restored, records_of_new_incarnation
from fedbandit.agent.core.standings import Standing, Standings
from fedbandit.checks import InvalidArgument, closest, finite_number, shortened, whole_number
from fedbandit.policies import FedBatch
from fedbandit.policies.registry import is_built_in
from fedbandit.privacy.noise import NoiseSource, from_grid, laplace
from fedbandit.rules import flow
from fedbandit.rules.belief import is_sure
from fedbandit.rules.gossip import LEAST_WEIGHT, ratio

__all__ = [
    "LONGEST_GAP",
    "MAX_EXPIRED",
    "MAX_SETTLED",
    "DecisionNotFound",
    "HorizonReached",
    "NoSuchNeighbour",
    "OtherFederation",
    "Outcome",
    "Refused",
    "Site",
    "SiteDraws",
    "Step",
]


MAX_EXPIRED = 1000
"""The most decisions that one call forgets, so that its transaction stays short."""

MAX_SETTLED = 1000
"""The most rewards that one call lets the page observe, for the same reason."""

LONGEST_GAP = 7 * 24 * 3600.0
"""Seconds that count at most between two events when a rate is measured: a clock may jump by decades."""

Outcome = bool | Refused | InvalidArgument
"""What came of one reward: whether it counts, or why it was refused."""

PAST_RUNS = 16
"""So many earlier processes of a neighbour are known, so that their late messages are not taken for a living one's."""

_Result = TypeVar("_Result")
_Message = TypeVar("_Message", bound=Message)

Changes = tuple[ArmChange, ...]


class NothingWaits(InvalidArgument):
    """Refused: no change of the arm waits for consent."""

    def __init__(self, arm: str, waiting: Sequence[str]) -> None:
        """``waiting``: the arms of which some do."""
        names = ", ".join(map(repr, waiting))
        super().__init__(
            "arm", arm, f"an arm with changes that wait: {names or 'there is none'}", closest(arm, waiting)
        )
        others = f"; changes of {names} do" if waiting else ""
        self.args = (f"no change of the arm {shortened(repr(arm))} waits{others}. {self.hint}".rstrip(". "),)


class Site:
    """One agent: what it knows, and the events that change it.

    * ``stored``: what its journal holds
    * ``noise``: OpenDP's but in tests
    * ``keeps_rewards``: rewards stay in the file, for the site's log, until their decisions are forgotten
    * ``most_sites``: as its operator knows; more do not make it surer (``standings.believed``)
    """

    reported = 0
    """Rewards that came since the site was loaded, late ones too; a repetition is not another."""

    def __init__(
        self,
        name: str,
        terms: Federation,
        stored: Stored,
        noise: NoiseSource = laplace,
        presence: Presence | None = None,
        keeps_rewards: bool = False,
        most_sites: int | None = None,
    ) -> None:
        """The site as it was when the last of its records was written; ``presence`` is the process's."""
        self._keeps_rewards, self._most_sites = keeps_rewards, most_sites
        self.name, self.terms, self._noise = name, terms, noise
        self._digest, self._bounds, self._is_built_in = terms.digest(), Bounds.of(terms), is_built_in(terms.policy)
        self._presence = presence or Presence()
        self._presence.begin(stored)
        self._split: set[str] = set()  # neighbours of whom two processes have spoken
        self._past_runs: dict[str, deque[int]] = {}  # processes of neighbours that others have followed
        self._drawn_twice: set[str] = set()  # neighbours that have released again what was seen here
        self._take_over(stored)
        self._compare_with_this()

    def _take_over(self, stored: Stored) -> None:
        name, terms, noise = self.name, self.terms, self._noise
        self._arms = Arms.of(terms.arms, stored.arm_changes)
        num_arms = len(self._arms.names)
        expected = [link.neighbour for link in stored.links.values() if link.incarnation > 0 and not link.left]
        most = self._bounds.weight, expected, self._most_sites
        self._standings = Standings(name, terms.most_agents, num_arms, *most)
        self._has_standings = isinstance(terms.policy, FedBatch) or terms.catches_up
        self._player = Player(terms, stored, noise, self.num_agents, num_arms)
        self._tried: list[int] = self._player.me.tried
        self._stored = replace(stored, known={}, released={})  # they are the player's from here on: one copy in memory
        self._slots = Slots(terms, self._stored.decisions, num_arms)
        self._requests = RequestIndex(self._stored.decisions.values())
        self._clock = max([stored.times.clock, *(decision.at for decision in stored.decisions.values())])
        self._since: float | None = stored.times.since  # when the rate's time begins
        for link in self._stored.links.values():  # from when there were fewer arms
            self._stored.links[link.neighbour] = replace(link, register=widened(link.register, num_arms))
        self._watch, self._counted = LinkWatch(terms, self._bounds, self._standings if self._has_standings else None), 0
        self._watch.name_arms(self._arms.names)
        self._at_exchange: Estimates | None = None  # what was known at the last one, once anything has been taken since
        self._has_exchanged = False
        self._count()
        self._player.look(self.gossiped, range(num_arms))

    def _compare_with_this(self, anew: bool = False) -> None:
        """What neighbours show of other processes is compared with the file as it is now."""
        places = {it.neighbour: self._place(it) for it in self._stored.links.values()}
        self._presence.compare_with(places, (self.incarnation, sum(self.releases)), anew)

    def _count(self) -> None:
        """Tell the page how many sites take part, and what they have released, as far as is known here."""
        player, num_agents = self._player, self.num_agents
        if num_agents != self._counted:
            self._counted = num_agents
            self._watch.count(num_agents)
        is_told = self._is_built_in and player.page.trust is not None
        player.count(num_agents, self._standings.others(player.terms) if is_told else ())

    @property
    def stored(self) -> Stored:
        """What the journal holds once all records of this site are committed."""
        return replace(self._stored, known=self._player.known, released=self._player.marks)

    # ---------------------------------------------------------------- what can be seen

    @property
    def arms(self) -> Arms:
        """The arms, and which of them are stopped."""
        return self._arms

    @property
    def stopped(self) -> frozenset[int]:
        """The numbers of arms that are given to nobody."""
        return self._arms.stopped

    @property
    def incarnation(self) -> int:
        """When this site began, as a number: a lost disk ends an incarnation."""
        return self._stored.numbering.incarnation

    @property
    def num_agents(self) -> int:
        """N: the sites that take part, as far as is known here, this one among them.

        A policy from outside plays with the number with which it was tried.
        """
        return self._standings.num_agents if self._is_built_in else self.terms.most_agents

    @property
    def doubt(self) -> Doubt | None:
        """Why nothing is released now; None: it is.

        A site that never had a link has sent nobody anything.
        """
        doubt = self._presence.doubt
        return None if doubt is not None and doubt.why == "unconfirmed" and not self._stored.links else doubt

    @property
    def may_release(self) -> bool:
        """Whether what is written now may be shown to others as this file's next."""
        return self._presence.doubt is None

    @property
    def waits(self) -> str:
        """For whom the site waits before it releases (``Presence.is_waiting``)."""
        return self._presence.is_waiting(self.neighbours)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The neighbours that have not answered since the start, while the site waits for them."""
        return () if self.doubt is None else self._presence.waits_for(self.neighbours)

    @property
    def run(self) -> int:
        """The number of this process; 0 in a simulation without faults."""
        return self._presence.run

    @property
    def own_means(self) -> tuple[float | None, ...]:
        """The own mean of each arm, as others may see it; None before its first release."""
        own, num_arms = self.own, self._player.num_arms
        values, weights = own[:num_arms], own[num_arms:]
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

        Of sites that have not left. A site that claims more than time allows counts as much as time allows.
        """
        own = self._player.announced
        return self._standings.counts(own, self._most_decisions) if own else ()

    @property
    def _most_decisions(self) -> int:
        return self._bounds.most_decisions(self._elapsed)

    @property
    def _elapsed(self) -> float:
        """Since the first decision, up to the last time that anything was decided or settled."""
        return 0.0 if self._since is None else self._clock - self._since

    @property
    def decided(self) -> int:
        """Decisions handed out since the file was made."""
        return self._stored.numbering.decisions

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
        """The largest time that this site has seen: it never goes back.

        After a restart it is the largest at which a decision was made, or anything settled: a file keeps no time that
        depends on when a reward came.
        """
        return self._clock

    @property
    def remembered(self) -> int:
        """Decisions that have not expired."""
        return len(self._stored.decisions)

    def decision(self, decision_id: str) -> DecisionRecord:
        """A decision that is remembered."""
        decision = self._stored.decisions.get(decision_id)
        if decision is None:
            raise DecisionNotFound(f"no decision has the id {decision_id!r}, or it has expired")
        return decision

    def oldest_pending(self) -> Iterator[DecisionRecord]:
        """The oldest decision of each arm that has no reward and does not count yet."""
        return (decision for decision in self._slots.oldest() if not decision.rewarded)

    def log(self, after: int = 0) -> tuple[list[DecisionRecord], Mapping[str, float]]:
        """All decisions that are remembered with a number beyond ``after``, and the rewards that are kept.

        As they are now: neither changes any more.
        """
        decisions = [it for it in self._stored.decisions.values() if it.number > after]
        return decisions, dict(self._stored.kept)

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
        row = self.gossiped[self._player.num_arms :]
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
        return tuple(self._player.theta(k) for k in range(self._player.num_arms))

    @property
    def radius(self) -> tuple[float | None, ...]:
        """The uncertainty of each arm that the index uses now; None for an arm that is unknown."""
        now = self._player.now
        return tuple(self._player.radius(k, now) for k in range(self._player.num_arms))

    # ---------------------------------------------------------------- what people are told

    @property
    def errors(self) -> tuple[float | None, ...]:
        """The typical error of each estimate; None for an arm that is unknown, or where the policy has none.

        The standard deviation of the index, and more where other sites have released less than this one.
        """
        return self._errors(self._estimates)

    def _errors(self, it: Estimates) -> tuple[float | None, ...]:
        standings = self._standings.all(it.own, self._most_decisions)
        step = from_grid(1.0, 0.0, self.terms.high - self.terms.low)
        return errors_of(it, standings, self.terms.page_terms, step, self._most_sites)

    @property
    def _estimates(self) -> Estimates:
        """What is known now."""
        player, arms = self._player, range(self._player.num_arms)
        has_errors = isinstance(self.terms.policy, FedBatch)
        deviation = tuple(player.deviation(k) if has_errors else None for k in arms)
        is_mixed = self._is_alone or (player.is_mixed and self._standings.is_whole)
        return Estimates(self.theta, deviation, self.weights, is_mixed, self._standing, player.num_agents)

    @property
    def _is_alone(self) -> bool:
        return all(link.left for link in self._stored.links.values())

    def _remember(self) -> None:
        """Before this site takes rewards, which it may release: what it tells people is what the last exchange left.

        What it releases counts in full here until others have averaged with it. If none can, it would be sure of what
        its own patients say.
        """
        if self._at_exchange is None and not self._is_alone:
            self._at_exchange = self._estimates

    @property
    def answer(self) -> Answer:
        """Which arm is best, as far as was known here at the last exchange; where there are no neighbours, now."""
        belief = self.belief
        if not self._is_alone and not self._has_exchanged and sum(belief.active) > 1:
            return answer_before_exchange(len(belief.names))
        return answer_of(belief)

    @property
    def belief(self) -> Belief:
        """All that the answer is made of."""
        names, is_alone = self._arms.names, self._is_alone
        status = [self._arms.standing(name).status for name in names]
        it = self._at_exchange
        it = self._estimates if is_alone or it is None else it.grown(len(names))
        whose = over_whom(self.num_agents, self.terms.counted)
        return Belief(names, status, it.theta, self._errors(it), it.weights, it.is_mixed, whose)

    def privacy(self) -> Privacy:
        """What is promised to the one whose reward it is."""
        return privacy_of(self.terms, sum(self.releases))

    def warnings(self) -> tuple[str, ...]:
        """What an operator should know."""
        names, num_agents = self._arms.names, max(self.num_agents, 1 + len(self.neighbours))  # also those to come
        said = warnings_of(self.terms, num_agents, names, self._tried, self.n_max, self._slots.held_up())
        beyond = self._standings.beyond(self._most_decisions) if self.terms.catches_up else []
        flows = {link.neighbour: link.register[0] for link in self._stored.links.values() if not link.left}
        return (
            *warnings_of_processes(self.doubt, self.waits_for, self._presence.namesakes, self._split),
            *warnings_of_second_draws(self._presence.drawn_twice.values(), self._drawn_twice),
            *said,
            *warnings_of_arms(self._arms, self.terms.shares),
            *warnings_of_network(self._arms.names, self.holdout, self._player.unrest),
            *warnings_of_claims(self.terms, beyond, self._most_decisions, self._standings.surplus()),
            *warnings_of_unbelieved(self._standings.unbelieved()),
            *self._watch.warnings(flows, self.gossiped),
        )

    def carried(self, neighbour: str) -> Carried:
        """What the link to a neighbour carries, and how it moved."""
        link = self._stored.links.get(neighbour)
        return self._watch.carried(neighbour, () if link is None else link.register[0])

    @property
    def holdout(self) -> Holdout | None:
        """The site whose few releases alone leave open which arm is best, if there is one.

        It takes the largest variance that rewards may have, ``answer`` the one that was learnt: what is settled there
        is not open here.
        """
        if not isinstance(self.terms.policy, FedBatch):
            return None
        standings = self._standings.all(self._standing, self._most_decisions)
        found = holdout(standings, self._player.estimates, self.terms.page_terms)
        if found is None:
            return None  # an answer takes longer: only where it matters
        chance = self.answer.chance
        return None if chance is not None and is_sure(chance) else found

    @property
    def _standing(self) -> Standing:
        player = self._player
        if self.terms.catches_up:
            return self._standings.state(self.incarnation, 1.0, player.announced)
        weight = max(getattr(player.me, "share", 1.0), LEAST_WEIGHT)  # 0 says that a site has left
        return self._standings.state(self.incarnation, weight, player.released)

    # ---------------------------------------------------------------- decisions and rewards

    @overload
    def decide(self, at: float, draws: SiteDraws, request: Request = ANY) -> Step[DecisionRecord]: ...

    @overload
    def decide(
        self, at: float, draws: Sequence[SiteDraws], request: Request = ANY
    ) -> Step[tuple[DecisionRecord, ...]]: ...

    def decide(
        self, at: float, draws: SiteDraws | Sequence[SiteDraws], request: Request = ANY
    ) -> Step[DecisionRecord] | Step[tuple[DecisionRecord, ...]]:
        """Hand out arms, and with each the next slot of the arm; ``draws`` for each decision that is asked for.

        Each is chosen in turn, as if it had been asked for alone. A request whose key is remembered gets the decisions
        that it got before, and nothing changes.
        """
        at, is_one = finite_number("at", at), isinstance(draws, SiteDraws)
        drawn = (draws,) if isinstance(draws, SiteDraws) else tuple(draws)
        if len(drawn) != request.count:
            raise InvalidArgument("draws", len(drawn), f"those of {request.count} decisions")
        key = key_tag(self._stored.key, request) if request.key is not None else b""
        if key and (found := self._again(key, request)):
            return Step(found[0]) if is_one else Step(found)
        allowed = self._allowed(request)
        subject = subject_tag(self._stored.key, request.subject) if request.subject is not None else b""
        chosen = self._chosen(drawn, allowed, subject)
        at, before = self._tick(at), self._stored.numbering.decisions
        numbering = Numbering(self.incarnation, before + len(chosen))
        eligible = b"" if allowed is None else as_bits(allowed)
        made: list[DecisionRecord] = []
        for number, (arm, propensity) in enumerate(chosen, before + 1):
            name = id_of(self._stored.key, self.run, numbering.incarnation, number, at)
            state = None, False, False, False, False
            made.append(DecisionRecord(name, number, arm, at, *state, propensity, key, subject, eligible))
        if self._since is None:
            self._since = at
        times = self._stored.times
        is_later = self._since != times.since
        records = *made, numbering, *([replace(times, since=self._since)] if is_later else [])
        self._stored.apply(records)
        for decision in made:
            self._slots.add(decision)
            self._requests.add(decision)
        return Step(made[0], records) if is_one else Step(tuple(made), records)

    def _again(self, key: bytes, request: Request) -> tuple[DecisionRecord, ...]:
        """The decisions that this request got before; none: it is new. It never tells whether any is rewarded."""
        found = tuple(self._stored.decisions[name] for name in self._requests.with_key(key))
        if any(it.key != key for it in found):
            raise KeyTaken("this key was used for another request")
        if found and len(found) < request.count:
            raise KeyTaken(f"{request.count - len(found)} of the {request.count} decisions of this key are forgotten")
        for it in found:
            if it.cancelled:
                raise DecisionCancelled(f"the decision {it.id} of this key was cancelled")
            if it.arm in self.stopped:
                raise StoppedMeanwhile(
                    f"{self.arms.names[it.arm]}, the arm of the decision {it.id} of this key, was stopped"
                )
        return found

    def _allowed(self, request: Request) -> tuple[int, ...] | None:
        """The arms that a request may get; None: all."""
        stopped = self.stopped
        allowed = request.arms(len(self.arms.names), stopped)
        if allowed is not None and not allowed:
            asked = request.arms(len(self.arms.names), frozenset())
            words = in_words_of_stops(self.arms, stopped if asked is None else stopped.intersection(asked))
            raise NoArmLeft("no arm is left for this request" + (f": {words}" if words else ""))
        return allowed

    def _chosen(self, drawn: Sequence[SiteDraws], allowed: tuple[int, ...] | None, subject: bytes) -> list[Choice]:
        """An arm for each draw; all of them are counted as tried, or none."""
        name = self._requests.newest_of(subject) if subject else None
        kept = None if name is None else self._stored.decisions[name].arm
        chosen: list[Choice] = []
        try:
            for draws in drawn:
                if kept is not None and self._may_have(kept, allowed):
                    one = Choice(kept, 1.0)  # given what is remembered, no other arm was possible
                else:
                    one = choice(self.terms, self._player, self.n_max, draws, allowed)
                kept = one.arm if subject else None
                self._tried[one.arm] += 1
                chosen.append(one)
        except BaseException:
            for one in chosen:
                self._tried[one.arm] -= 1
            raise
        return chosen

    def _may_have(self, arm: int, allowed: tuple[int, ...] | None) -> bool:
        most = self.terms.max_pulls
        return (allowed is None or arm in allowed) and (most is None or self._tried[arm] < most)

    def cancel(self, decision_id: str, at: float) -> Step[None]:
        """A decision was not used: it loses its slot, and does not count as tried. Idempotent.

        Only before it counts, and before a reward has come. As a request, it must not depend on the outcome.
        """
        decision = self.decision(decision_id)
        if decision.cancelled:
            return Step(None)
        if decision.rewarded:
            raise Rewarded("a reward of this decision was reported: it was used, and cannot be cancelled")
        if decision.played or self._slots.is_over(decision, max(self._clock, finite_number("at", at))):
            raise WindowOver("the reward window of this decision is over: the federation's default counts")
        now = self._tick(at)
        cancelled = replace(decision, cancelled=True)
        self._stored.apply([cancelled])
        self._tried[decision.arm] -= 1
        self._slots.remove(cancelled)
        has_none = self.terms.reward_window == 0.0 and self.doubt is None
        due = self._slots.take_due(now, MAX_SETTLED) if has_none else []  # what has waited for it
        return self._played(None, due, cancelled)

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Take the reward of a decision; False if it came too late, and does not count.

        Idempotent: a repetition changes nothing, whatever its value, and the answer tells nothing of the first one. A
        report looks at no clock: it is late once anything was decided or settled after the end of its window.
        """
        decision = self.decision(decision_id)
        low, high, reward = self.terms.low, self.terms.high, finite_number("reward", reward)
        if not low <= reward <= high:
            raise InvalidArgument("reward", reward, f"a number from {low:g} to {high:g}")
        if decision.cancelled:
            raise DecisionCancelled("this decision was cancelled: it takes no reward")
        if decision.rewarded:
            return Step(True)
        if decision.late:
            return Step(False)
        if decision.played or self._slots.is_over(decision, self._clock):
            self.reported += 1
            return self._step(False, replace(decision, late=True), replace(self._stored.times, late=self.late + 1))
        self.reported += 1
        decision = decision.after_reward(reward)
        kept = [Kept(decision.id, decision.number, reward)] if self._keeps_rewards else []
        self._stored.apply([decision])
        is_playing = self.terms.reward_window == 0.0 and self.doubt is None
        due = self._slots.take_due(self._clock, MAX_SETTLED) if is_playing else []
        return self._played(True, due, *(() if decision in due else (decision,)), *kept)

    def report_all(self, rewards: Sequence[tuple[str, float]]) -> Step[tuple[Outcome, ...]]:
        """Take several rewards in one transaction: what ``report`` returns of each, or raises."""
        outcomes: list[Outcome] = []
        records: list[Record] = []
        for decision_id, reward in rewards:
            try:
                step = self.report(decision_id, reward)
            except (Refused, InvalidArgument) as error:
                outcomes.append(error)
            else:
                outcomes.append(step.result)
                records += step.records
        return Step(tuple(outcomes), tuple(records))

    def is_due(self, now: float) -> bool:
        """Whether ``settle`` has anything to do."""
        return self.doubt is None and self._slots.is_due(max(now, self._clock))

    def settle(self, now: float) -> Step[int]:
        """Let the page observe what is due, oldest first in each arm; how many. Nothing while nothing may be released.

        With a window: each decision whose window is over, with its reward, or the default if none came. So contents and
        times of releases depend on decisions and the clock alone. At most ``MAX_SETTLED`` at once: call it again while
        ``is_due``. The driver calls it now and then, and before all other events but ``report``: what is settled, and
        when, must not depend on when rewards come.
        """
        now = self._tick(now)
        due = self._slots.take_due(now, MAX_SETTLED) if self.doubt is None else []
        times = [SiteTimes(now, self._stored.times.late, self._since)] if due else []
        return self._played(len(due), due, *times)

    def expire(self, before: float, keep: int) -> Step[Expired]:
        """Forget decisions whose window ended before a time, and the oldest beyond the newest ``keep``.

        Before that every one is played: without a window, one that has no reward counts with the default now. With
        one, those that have not been settled stay. All unplayed ones stay while nothing may be released. Those that
        were cancelled go when it is their turn. At most ``MAX_EXPIRED`` at once: call it again until it says 0.
        """
        before = finite_number("before", before)
        surplus = len(self._stored.decisions) - whole_number("keep", keep, 0, MAX_COUNT)
        window, gone, due = self.terms.reward_window, list[DecisionRecord](), list[DecisionRecord]()
        is_held, by_age, by_keep = self.doubt is not None, 0, 0
        for decision in self._stored.decisions.values():  # in the order of time: the clock never goes back
            is_old = decision.at + window < before
            if len(gone) == MAX_EXPIRED or not (is_old or len(gone) < surplus):
                break
            if decision.is_open:
                if is_held or window or not self._slots.is_next(decision):
                    break
                due.append(self._slots.take(decision.arm))
            if not decision.rewarded and not decision.cancelled:
                by_age, by_keep = by_age + is_old, by_keep + (not is_old)
            gone.append(decision)
        for decision in gone:
            self._requests.drop(decision)
        behind = [] if window or is_held else self._slots.take_due(self._clock, MAX_SETTLED)
        expired = Expired(len(gone), by_age, by_keep)
        return self._played(expired, behind, *[Forgotten(it.id) for it in gone], gone=due)

    def _tick(self, at: float) -> float:
        """The time of an event: no earlier than that of any before."""
        before, self._clock = self._clock, max(self._clock, finite_number("at", at))
        if self._since is not None:  # what a wrong clock skips does not count as time in which nobody came
            self._since += max(self._clock - before - LONGEST_GAP, 0.0)
        return self._clock

    def _played(
        self, result: _Result, due: Sequence[DecisionRecord], *records: Record, gone: Sequence[DecisionRecord] = ()
    ) -> Step[_Result]:
        """A step after which the page has observed what is due; before that, what is ``gone`` after this step."""
        if not due and not gone:
            return self._step(result, *records)
        missing = self.terms.missing_reward
        rewards = ((it.arm, missing if it.reward is None else it.reward) for it in (*gone, *due))
        self._remember()
        own = self._player.take(rewards, self._elapsed)
        step = self._step(result, *records, *[it.after_play() for it in due])
        self._look(*self._player.concerned(own))
        return Step(result, (*step.records, *own))

    # ---------------------------------------------------------------- arms

    def change_arm(self, kind: ChangeKind, name: str, at: int, sign: Sign) -> Step[ArmChange]:
        """The operator changes an arm: that is this site's own change, signed and accepted. A stop twice is one stop.

        ``at``: in milliseconds since 1970.
        """
        before = self._arms.made_already(kind, name, self.name)
        if before is not None:
            return Step(before)
        if not self._arms.has_room(kind, self.name):
            raise InvalidArgument("change", kind, "left out: this site has made as many changes as others keep")
        change = self._arms.next_change(kind, name, self.name, at, self._digest).signed(sign)
        return self._rearranged(change, self._arms.new([change], self.name, frozenset()))

    def receive_changes(self, changes: Sequence[ArmChange], accepts: Accepts) -> Step[Changes]:
        """Take in changes that others have signed, and whose signatures are good; those that were new.

        ``accepts``: whose changes count without the operator's consent.
        """
        for change in changes:
            if change.federation != self._digest:
                raise OtherFederation(f"{change.by} changes the arms of a federation with other terms")
        records = self._arms.new(changes, self.name, accepts)
        return self._rearranged(tuple(it.change for it in records), records)

    def accept_from(self, accepts: Accepts) -> Step[Changes]:
        """Accept what waits, and comes from whom the configuration trusts."""
        records = self._arms.accepted_of(self._arms.unaccepted, self.name, accepts)
        return self._rearranged(tuple(it.change for it in records), records)

    def accept_arm(self, name: str, retire: bool = False) -> Step[Changes]:
        """The operator accepts all changes of an arm that wait; a retirement, which is final, only with ``retire``."""
        waiting = self._arms.waiting
        names = dict.fromkeys(it.arm for it in waiting)
        if name not in names:
            raise NothingWaits(name, tuple(names))
        chosen = [it for it in waiting if it.arm == name and (retire or it.kind != "retire")]
        if not chosen:
            hint = "It is suspended here until then. To retire it is final."
            raise InvalidArgument("retire", retire, f"true: only the retirement of {name!r} waits", hint)
        records = self._arms.accepted_of(chosen, self.name, "anyone")
        return self._rearranged(tuple(it.change for it in records), records)

    def _rearranged(self, result: _Result, records: Iterable[ArmChanged]) -> Step[_Result]:
        """A step after which there may be other arms."""
        step = self._step(result, *records)
        if step.records:
            self._arms = Arms.of(self.terms.arms, self._stored.arm_changes)
            if len(self._arms.names) > self._player.num_arms:
                self._grow()
        return step

    def _grow(self) -> None:
        """Make room for arms that were accepted; of them nothing is known, nothing flows, nothing was decided."""
        num_arms = len(self._arms.names)
        self._player = self._player.grown(self.stored, num_arms)
        self._tried = self._player.me.tried
        self._slots.grow(num_arms)
        self._standings.grow(num_arms)
        self._watch.name_arms(self._arms.names)
        links = self._stored.links
        for name, link in links.items():
            links[name] = replace(link, register=widened(link.register, num_arms))
        self._look()

    # ---------------------------------------------------------------- neighbours

    def join(self, neighbour: str) -> Step[None]:
        """Begin a link. One that was there stays; one that had left begins anew, and its old messages stay refused."""
        if neighbour == self.name:
            raise InvalidArgument("neighbour", neighbour, "another site")
        link = self._stored.links.get(neighbour)
        if link is not None and not link.left:
            return Step(None)
        incarnation, own = (
            (0, 0) if link is None else (link.incarnation, self._incarnation(link) + 1)
        )  # its seals are of another link
        return self._linked(None, Link(neighbour, incarnation, flow.empty(self._player.num_arms), own_incarnation=own))

    def leave(self, neighbour: str) -> Step[None]:
        """A neighbour has left for good: drop its flow, refuse what it said in this incarnation. Idempotent."""
        if any(link.left for link in self.links if link.neighbour == neighbour):
            return Step(None)
        link = self._link(neighbour)
        least = min(link.incarnation + 1, MAX_COUNT)
        self._standings.forget(neighbour)
        self._split.discard(neighbour)
        self._drawn_twice.discard(neighbour)
        self._past_runs.pop(neighbour, None)
        self._presence.forget(neighbour)
        self._watch.forget(neighbour)
        gone = Link(
            neighbour, least, flow.empty(self._player.num_arms), left=True, own_incarnation=link.own_incarnation
        )
        return self._linked(None, gone)

    def offer(self, neighbour: str) -> Step[Offer]:
        """Begin an exchange. Nothing changes until its answer."""
        link = self._link(neighbour)
        ends = self.name, neighbour, self._incarnation(link), link.incarnation, self._digest
        besides = self._besides(link, link.seals.run)
        return Step(Offer(*ends, *link.register, self.gossiped, **besides))

    def receive_offer(self, offer: Offer) -> Step[Reply]:
        """Answer an offer: average with it, or say what is newer, or that it is from or for another incarnation."""
        link, own = self._outlived(self._checked(offer), offer), self.own
        offer = self._aligned(link, offer)
        if offer.incarnation >= link.incarnation:
            register, rest = link.register, self._rest(link, own)
            if offer.to_incarnation in (0, self._incarnation(link)):
                offered, there, limits = (offer.flow, offer.stamp), offer.gossiped, self._bounds.limits
                register = flow.answer(register, rest, offered, there, self.name, limits)
            link = self._witnessed(link, register, offer)
            self._standings.receive(offer.sender, offer.standings)
        ends = self.name, offer.sender, self._incarnation(link), link.incarnation, self._digest
        besides = self._besides(link, 0 if offer.seal is None else offer.seal.run)
        return self._changed(Reply(*ends, *link.register, **besides), link, own)

    def receive_reply(self, reply: Reply) -> Step[None]:
        """End an exchange: adopt what is newer. A reply from or to another incarnation is left out."""
        link, own = self._outlived(self._checked(reply), reply), self.own
        reply = self._aligned(link, reply)
        if reply.incarnation >= link.incarnation and reply.to_incarnation == self._incarnation(link):
            replied = reply.flow, reply.stamp
            register = flow.adopt(link.register, replied, self.name, self._bounds.limits)
            link = self._witnessed(link, register, reply)
            self._standings.receive(reply.sender, reply.standings)
        return self._changed(None, link, own)

    def _besides(self, link: Link, run: int) -> dict[str, Any]:
        """What every message over a link carries besides the register; ``run``: the neighbour's process it is for."""
        return {
            "standings": self._standings.to_send(self._standing) if self._has_standings else (),
            "seal": self._seal(link) if self.run else None,
            "to_run": run,
            "other": link.seals.beside(run),
            "most": link.seals.most,
            "arms": self._arms.added,
            "arms_version": self._arms.version,
        }

    def _incarnation(self, link: Link) -> int:
        """The incarnation of this end of a link."""
        return max(link.own_incarnation, self.incarnation)

    def _place(self, link: Link) -> tuple[int, int, int]:
        """How far this site is, as a seal says it."""
        return self._incarnation(link), sum(self.releases), link.register[1][0]

    def _seal(self, link: Link) -> Seal:
        place, other = self._place(link), self._presence.others.get(link.neighbour, 0)
        parent, opened, is_sure = self._presence.parent, self._presence.opened_releases, self._presence.doubt is None
        return sealed(self._stored.key, link.neighbour, place, self.run, other, parent, opened, is_sure)

    def _witnessed(self, link: Link, register: flow.Register, message: Message) -> Link:
        """The link after a message: another register, and its seal."""
        seals = link.seals if message.seal is None else self._seals_after(link, message.seal)
        return Link(link.neighbour, message.incarnation, register, link.left, link.own_incarnation, seals)

    def _seals_after(self, link: Link, seal: Seal) -> HeldSeals:
        seals, name = link.seals, link.neighbour
        if seal.run == seals.run:
            self._compare_draws(name, seals, seal)
            return seals.receive(seal)
        past = self._past_runs.setdefault(name, deque(maxlen=PAST_RUNS))
        if seals.other is not None and seals.other.run not in past:
            past.append(seals.other.run)
        if seal.run in past:
            if seal.other != seals.run:  # it came late, from a process that another has followed
                return seals.receive_late(seal)
            self._split.add(name)  # that process lives still: it knows of the one that followed
        else:
            self._split.discard(name)  # one that has just started, or that its operator has confirmed
            self._compare_draws(name, seals, seal)
        return seals.receive(seal)

    def _compare_draws(self, name: str, seals: HeldSeals, seal: Seal) -> None:
        """A neighbour's process may have released again what an earlier one had shown here."""
        if seals.drawn_twice(seal):
            self._drawn_twice.add(name)

    def _link(self, neighbour: str) -> Link:
        link = self._stored.links.get(neighbour)
        if link is None or link.left:
            raise NoSuchNeighbour(f"{neighbour} {'has left' if link else 'is no neighbour of'} {self.name}")
        return link

    def _rest(self, link: Link, own: tuple[float, ...]) -> tuple[float, ...]:
        """What is gossiped here without this link."""
        others = [other.register[0] for other in self._stored.links.values() if other.neighbour != link.neighbour]
        return flow.gossiped(own, others)

    def _checked(self, message: Message) -> Link:
        """The link of a message that is meant for this site, understood here, and possible."""
        link = self._link(message.sender)
        if message.federation != self._digest:
            raise OtherFederation(f"{message.sender} follows other terms of the federation than {self.name}")
        if message.receiver != self.name:
            raise InvalidArgument("receiver", message.receiver, self.name)
        check_lengths(message, self.terms.num_arms)
        self._bounds.check(message, self._stored.born, self._incarnation(link))
        if self.run:
            self._presence.receive(message, self._place(link), self._stored.key, lambda: self.neighbours, self.decided)
        return link

    def _aligned(self, link: Link, message: _Message) -> _Message:
        """The message in this site's order of arms."""
        added = self._arms.added
        if message.arms == added:
            return message
        return aligned(message, self.terms.num_arms, added, self._rest(link, self.own))

    def _outlived(self, link: Link, message: Message) -> Link:
        """A link whose neighbour knows a later incarnation begins another: a disk was lost, and the clock stood behind.

        Not if that incarnation was this file's: then the file is old, and must not pass for a newer one.
        """
        most = message.most
        if message.to_incarnation <= self._incarnation(link):
            return link
        if self.run and most is not None and is_genuine(most, self._stored.key, link.neighbour):
            return link
        return replace(link, own_incarnation=message.to_incarnation + 1)

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
        """The driver has waited long enough since all neighbours have answered."""
        self._presence.go_on(self.neighbours)
        return Step(None)

    def pause(self, run: int) -> Step[None]:
        """The process has stood still for a while; ``run`` is its new number."""
        self._presence.pause(run)
        return Step(None)

    def confirm(self, run: int) -> Step[None]:
        """The operator says that this process lives, and that its file is the latest; ``run`` is its new number."""
        self._presence.confirm(run)
        return Step(None)

    def restore(self, incarnation: int, run: int) -> Step[Restored]:
        """Begin a new incarnation with an old file.

        What was decided since no other process can know of it stays (``Presence.first``). What was there before, and
        had not been released, may have been released by another process: it is dropped.
        """
        self._presence.check_restore()
        incarnation, first = max(incarnation, self.incarnation + 1), self._presence.first or 0
        known = self._presence.last_incarnations
        incarnations = {it.neighbour: 1 + max(self._incarnation(it), known.get(it.neighbour, 0)) for it in self.links}
        records, restored = records_of_new_incarnation(self.stored, self.terms, incarnation, first, incarnations)
        stored = self.stored
        stored.apply(records)
        self._presence.renewed(run, incarnation)
        self._take_over(stored)
        self._compare_with_this(anew=True)
        return Step(restored, records)

    # ---------------------------------------------------------------- the operator's own bound

    def limit_sites(self, most_sites: int | None) -> Step[None]:
        """There can be so many sites: more do not make this one surer. None: nobody says."""
        self._most_sites = most_sites
        self._standings.limit(most_sites)
        return self._linked(None)

    # ---------------------------------------------------------------- steps

    def _look(self, *arms: int) -> None:
        """Show the page what the network holds now, of these arms or of all."""
        self._count()
        self._player.look(self.gossiped, arms or range(self._player.num_arms))

    def _step(self, result: _Result, *records: Record) -> Step[_Result]:
        self._stored.apply(records)
        return Step(result, records)

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
