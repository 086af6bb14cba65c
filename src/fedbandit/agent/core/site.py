"""One site as a pure state machine: an event changes its state and yields records to write and a result to send.

It composes the parts, each of which owns its events, records and warnings: ``decisions``, ``player`` (the policy's
page), ``arms``, ``board`` (the bulletins of all sites) and ``release_guard`` (may this file release). No I/O, clock or
randomness: times, draws, signatures and the source of noise are arguments. The driver:

* commits ``step.records``, then uses ``step.result``: nothing is sent before it is on disk
* publishes whenever ``has_news``. It looks once a second, and after what releases, settles or changes arms; never
  because a report came where there is a reward window: its time would show
* may continue after ``Refused`` and ``InvalidArgument``: nothing has changed
* discards the site and loads it from the journal if a commit fails, or if an event raises anything else

What may be seen of a site is what it holds in memory once all records are on disk: looking writes nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar, overload

from fedbandit.agent.core import notices
from fedbandit.agent.core.acts import acts_of, tells
from fedbandit.agent.core.answer import Answer, Belief, Holdout, Standing, answer_of, holdout, over_whom
from fedbandit.agent.core.arms import (
    MAX_ADDED,
    Accepts,
    ArmChange,
    ArmChanged,
    Arms,
    ChangeKind,
    NothingWaits,
    marked,
    receipts_of,
)
from fedbandit.agent.core.board import Board, BoardRow, Have, Outcome
from fedbandit.agent.core.board import Kept as KeptBulletin
from fedbandit.agent.core.bulletin import NO_EVALUATION, ArmEntry, Bulletin, EvaluationEntry, Signed, decode
from fedbandit.agent.core.cells import Cells
from fedbandit.agent.core.decisions import ANY, Decisions, Expired, Request, Retention, SiteDraws
from fedbandit.agent.core.decisions import Outcome as RewardOutcome
from fedbandit.agent.core.evaluator import Evaluator
from fedbandit.agent.core.federation import DAY, Federation
from fedbandit.agent.core.guardrails import NO_STRATUM, Guard, rail_of
from fedbandit.agent.core.history import History
from fedbandit.agent.core.player import Player, taken_back
from fedbandit.agent.core.records import (
    DecisionRecord,
    EvaluationReleased,
    Excluded,
    HistoryEntered,
    Included,
    Kept,
    Known,
    Neighbour,
    Opened,
    Overruled,
    OwnBulletin,
    Record,
    Released,
    Step,
    Stored,
    Unlinked,
)
from fedbandit.agent.core.release_guard import Doubt, Presence, Restored, drew_again, records_of_new_incarnation
from fedbandit.agent.core.strata_answer import StratumAnswer, answers_of_strata, words_of_strata
from fedbandit.agent.core.trail import Act, Deed, Entry, chained
from fedbandit.checks import InvalidArgument, closest
from fedbandit.policies.registry import is_built_in
from fedbandit.privacy.noise import GRID, NoiseSource, from_grid, laplace
from fedbandit.rules.belief import is_sure
from fedbandit.rules.evaluation_sums import NOTHING
from fedbandit.rules.releases import VARIANCE, WEIGHT
from fedbandit.rules.sequences import SETTLED_ERROR
from fedbandit.rules.strata_influence import mean_of_record, unpacked

PUBLISHED_EVERY = 1.0
"""Seconds between two own bulletins, but for releases and changes of arms."""

Sign = Callable[[bytes], tuple[bytes, bytes]]
"""The signature of a body, and its signer."""

_Result = TypeVar("_Result")


class Merged(NamedTuple):
    """What came of a bulletin: ``outcome`` says what it was, ``changes`` are those of arms that were new here."""

    outcome: Outcome
    changes: tuple[ArmChange, ...] = ()

    @property
    def site(self) -> str:
        """Whose it is."""
        return self.outcome.site


class Site:
    """One agent: what it knows, and the events that change it.

    * ``stored``: what its journal holds
    * ``noise``: OpenDP's but in tests
    * ``presence``: what the process knows of itself; it outlives a site that is discarded
    * ``keeps_rewards``: rewards stay in the file, for the site's log, until their decisions are forgotten
    * ``accepts``: from whom changes of arms count without the operator's consent; ``refused``: whose bulletins are
      neither taken nor passed on. Both are of the configuration, and not in the file: a site that is loaded anew is
      given them again
    """

    def __init__(
        self,
        name: str,
        terms: Federation,
        stored: Stored,
        noise: NoiseSource = laplace,
        presence: Presence | None = None,
        keeps_rewards: bool = False,
        software: str = "",
        accepts: Accepts = frozenset(),
        refused: Collection[str] = (),
    ) -> None:
        """The site as it was when the last of its records was written."""
        self.name, self.terms, self._noise, self._software = name, terms, noise, software
        self._keeps_rewards = keeps_rewards
        self._accepts: Accepts = accepts
        self.presence = presence or Presence()
        written = [it for it in (stored.own, stored.doubtful and stored.doubtful.signed) if it is not None]
        last = BoardRow(name, tuple(KeptBulletin(it, 0.0) for it in written))
        self.board = Board(name, terms, [*stored.board.values(), last])
        """The bulletins of all sites."""
        own = None if stored.own is None else self._read(stored.own)
        self.board.exclude(stored.excluded)
        self.board.refuse([it for it in refused if it != name])
        self._take_over(stored)
        self.presence.begin(stored, own, self._releases_by_name, self._has_conflict)
        for signed in self.board.kept(name) if self.run else ():
            it = self._read(signed)
            if stored.doubtful is not None and signed == stored.doubtful.signed:
                self.presence.made(it.place, signed.digest)
            elif signed != stored.own:  # it came before a restart
                self.presence.receive_own(it, signed.digest, "its board", self._releases_by_name, self.decided)
        self._published_at, self._taken_back = 0.0, dict[str, int]()
        self._drawn_twice: dict[str, str] = {}
        self._receipts: dict[str, str] = {}
        self._accepted: dict[str, str] = {}
        self._told_changes = {name: it.accepted > 0 for name, it in stored.arm_changes.items()}  # by the audit trail
        self._guard = None if terms.guardrails is None else Guard(terms)
        self._guarded: object = None  # what counted when the guardrails were last looked at
        self._acknowledge(self.board.sites)
        self._last = {it: held.bulletin for it in self.board.sites if (held := self.board.held(it)) is not None}
        self._is_urgent = own is None or self._rows_of(own.arms) != self._rows_of(self._entries())
        self._is_urgent = self._is_urgent or (own is not None and own.evaluation != self._evaluation)

    def _read(self, signed: Signed) -> Bulletin:
        return decode(signed.body, self.terms.num_columns, self.terms.num_strata)

    def _take_over(self, stored: Stored) -> None:
        self._arms = Arms.of(self.terms.arms, stored.arm_changes)
        self._player = Player(self.terms, stored, self._noise, len(self._arms.names))
        self._stored = replace(stored, known={}, released={})  # they are the player's from here on: one copy in memory
        plan = self.terms.evaluation
        self._evaluator = None if plan is None else Evaluator(self.terms, self._stored, self._noise)
        self._decisions = Decisions(self.terms, self._stored, self._player, self._keeps_rewards, self._evaluator)
        self._is_stale = True

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
        """N: the sites that count. A policy from outside plays with the number with which it was tried."""
        return self.board.num_agents if is_built_in(self.terms.policy) else self.terms.most_agents

    @property
    def doubt(self) -> Doubt | None:
        """Why nothing is released now; None: it is. A site that never had a neighbour has shown nobody anything."""
        doubt = self.presence.doubt
        return None if doubt is not None and doubt.why == "unconfirmed" and not self._stored.neighbours else doubt

    @property
    def may_release(self) -> bool:
        """Whether what is written now may be shown to others as this file's next."""
        return self.presence.doubt is None

    @property
    def waits(self) -> str:
        """For whom the site waits before it releases (``Presence.is_waiting``)."""
        return self.presence.is_waiting(self.neighbours)

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The neighbours that have not answered since the start, while the site waits for them."""
        return () if self.doubt is None else self.presence.waits_for(self.neighbours)

    @property
    def run(self) -> int:
        """The number of this process; 0 in a simulation without faults."""
        return self.presence.run

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Those with whom there is a link."""
        return tuple(self._stored.neighbours)

    @property
    def own_means(self) -> tuple[float | None, ...]:
        """The own mean of each arm, as others may see it; None before its first release."""
        return tuple(self._mean(it) if it.releases else None for it in self._entries())

    def _mean(self, it: ArmEntry) -> float:
        """Of a row that begins with a mean, or with a value that the second number weighs; or of a record of strata."""
        if self.terms.num_strata:
            size = self.terms.num_strata
            mean, _ = mean_of_record(unpacked(it.row, size), size)
            return from_grid(GRID * mean, self.terms.low, self.terms.high)
        steps = it.row[0] if len(it.row) in (1, 3) else it.row[0] / it.row[1]
        return from_grid(steps, self.terms.low, self.terms.high)

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
    def history(self) -> tuple[int, ...]:
        """How many of these, and of the decisions for each arm, are of before the federation."""
        return tuple(self._stored.history.get(k, 0) for k in range(len(self._arms.names)))

    @property
    def tried(self) -> tuple[int, ...]:
        """Decisions for each arm, pending ones counted."""
        return tuple(self._player.me.tried)

    @property
    def tried_in(self) -> tuple[tuple[int, ...], ...]:
        """The same by stratum; empty where the policy is told of none."""
        return tuple(map(tuple, self._player.cells))

    @property
    def patients_in(self) -> tuple[tuple[int, ...], ...]:
        """Decisions for each arm by stratum at all sites that count, as far as known here; empty without strata."""
        others = self.board.decisions_in(self._arms.names, self.terms.num_strata)
        each = zip(self.tried_in, others, strict=True)
        return tuple(tuple(map(sum, zip(here, there, strict=True))) for here, there in each)

    @property
    def patients(self) -> tuple[int, ...]:
        """Decisions for each arm at all sites that count, as far as their bulletins say; its own are all here."""
        others = self.board.decisions(self._arms.names)
        each = zip(self.tried, self.history, others, strict=True)
        return tuple(tried - past + there for tried, past, there in each)

    @property
    def n_max(self) -> tuple[int, ...]:
        """The most decisions for each arm by a site that counts; empty without the consistency rule."""
        if not self._player.announces:
            return ()
        most = int(self.terms.largest_rate * max(self._decisions.elapsed, DAY))
        most = most if self.terms.max_pulls is None else min(most, self.terms.max_pulls)
        others = self.board.n_max(self._arms.names, most)
        return tuple(map(max, self.tried, others))

    @property
    def decided(self) -> int:
        """Decisions handed out since the file was made."""
        return self._stored.numbering.decisions

    @property
    def pending(self) -> int:
        """Decisions that wait for their reward."""
        return sum(self.tried) - sum(self.rewards) - self.waiting

    @property
    def waiting(self) -> int:
        """Rewards that were reported and do not count yet: their window, or an earlier slot, is still open."""
        return self._decisions.slots.waiting()

    @property
    def late(self) -> int:
        """Rewards that came after their window, and do not count."""
        return self._stored.times.late

    @property
    def missing(self) -> int:
        """Decisions that counted without a reward (``Decisions.missing``)."""
        return self._decisions.missing

    @property
    def out_of_range(self) -> int:
        """Rewards that were refused (``Decisions.out_of_range``)."""
        return self._decisions.out_of_range

    @property
    def clock(self) -> float:
        """The largest time that this site has seen (``Decisions.clock``)."""
        return self._decisions.clock

    @property
    def reported(self) -> int:
        """Rewards that came since the site was loaded (``Decisions.reported``)."""
        return self._decisions.reported

    @property
    def remembered(self) -> int:
        """Decisions that have not expired."""
        return len(self._stored.decisions)

    def decision(self, decision_id: str) -> DecisionRecord:
        """A decision that is remembered."""
        return self._decisions[decision_id]

    def log(self, after: int = 0) -> tuple[list[DecisionRecord], Mapping[str, float]]:
        """All decisions that are remembered with a number beyond ``after``, and the rewards that are kept.

        As they are now: neither changes any more.
        """
        decisions = [it for it in self._stored.decisions.values() if it.number > after]
        return decisions, dict(self._stored.kept)

    # ---------------------------------------------------------------- what the board shows

    @property
    def _looking(self) -> Player:
        """The player, once it has seen what is on the board."""
        if self._is_stale:
            self._is_stale = False
            self._draft()
            self._player.look(self.board, self._arms.names, self.num_agents)
        return self._player

    @property
    def theta(self) -> tuple[float | None, ...]:
        """The estimate of each arm; None for an arm that is unknown."""
        player = self._looking
        return tuple(player.theta(k) for k in range(player.num_arms))

    @property
    def radius(self) -> tuple[float | None, ...]:
        """The uncertainty of each arm that the index uses now; None for an arm that is unknown."""
        player = self._looking
        return tuple(player.radius(k, player.now) for k in range(player.num_arms))

    @property
    def errors(self) -> tuple[float | None, ...]:
        """The typical error of each estimate; None for an arm that is unknown, or where the policy has none."""
        player = self._looking
        return tuple(player.error(k) for k in range(player.num_arms))

    @property
    def weights(self) -> tuple[float, ...]:
        """How much of all sites that count, or of their patients, has released each arm."""
        return tuple(self.board.known_share(name) for name in self._arms.names)

    @property
    def _has_variance(self) -> bool:
        return "variance" in self.terms.page.published_names

    @property
    def per_day(self) -> float | None:
        """Decisions per day, by which this site counts; None before its first release, or where sites count alike."""
        by_rate = self.terms.counted == "patients" and any(self.releases)
        return self._player.rate * DAY if by_rate else None

    @property
    def answer(self) -> Answer:
        """Which arm is best, as far as is known here; with strata for whom."""
        belief = self.belief
        found, factors = answer_of(belief), self.terms.context
        if not self.terms.num_strata or factors is None:
            return found
        strata = self._strata_of(belief)
        words = words_of_strata(belief, factors, strata, found, self._looking.matters)
        return found._replace(settled=all(it.answer.settled for it in strata), words=words)

    @property
    def strata(self) -> tuple[StratumAnswer, ...]:
        """The answer in each stratum; none where the policy is not told of any."""
        return self._strata_of(self.belief) if self.terms.num_strata else ()

    @property
    def matters(self) -> float | None:
        """The chance that strata matter; None where there are none."""
        return self._looking.matters if self.terms.num_strata else None

    def _strata_of(self, belief: Belief) -> tuple[StratumAnswer, ...]:
        player, arms, strata = self._looking, range(len(belief.names)), range(self.terms.num_strata)
        theta = [[player.theta(k, s) for k in arms] for s in strata]
        errors = [[player.error(k, s) for k in arms] for s in strata]
        status = [[self._arms.standing_in(name, s).status for name in belief.names] for s in strata]
        found = answers_of_strata(belief, theta, errors, player.frequencies, status)
        return tuple(replace(it, answer=it.answer._replace(settled=self._is_settled(it))) for it in found)

    def _is_settled(self, it: StratumAnswer) -> bool:
        """Whether the best arm of a stratum is proved to be that, of those that its patients get."""
        names, answer = self._arms.names, it.answer
        if answer.leader is None or answer.chance is None or not is_sure(answer.chance):
            return False
        stopped = self._arms.stopped_for(it.stratum)
        others = [name for k, name in enumerate(names) if k not in stopped and k != answer.leader]
        error = SETTLED_ERROR / (self.terms.num_strata * max(len(names) - 1, 1))
        return Cells(self.terms, self.board, it.stratum).leads(names[answer.leader], others, error * len(others))

    @property
    def belief(self) -> Belief:
        """All that the answer is made of."""
        names = self._arms.names
        status = [self._arms.standing(name).status for name in names]
        whose = over_whom(self.num_agents, self.terms.counted)
        rests_on = self.board.rests_on([name for name, it in zip(names, status, strict=True) if it == "active"])
        terms = self.terms
        shown = terms.low, terms.high, terms.words
        return Belief(names, status, self.theta, self.errors, self.weights, whose, rests_on, *shown)

    @property
    def holdout(self) -> Holdout | None:
        """The site whose few releases alone leave open which arm is best, if there is one."""
        if not self._has_variance:
            return None
        names, player = self._arms.names, self._looking
        rows = [self.board.rows(name)[0] for name in names]
        standings: list[Standing] = []
        for j, site in enumerate(self.board.counted()):
            held = self.board.counting(site)
            entries: Mapping[str, ArmEntry] = {} if held is None else held.bulletin.by_arm
            variance, weight = [of_arm[j][VARIANCE] for of_arm in rows], max(of_arm[j][WEIGHT] for of_arm in rows)
            released = [entries[name].rewards if name in entries else 0 for name in names]
            standings.append(Standing(site, weight, variance, released))
        found = holdout(standings, [player.estimate(k) for k in range(player.num_arms)], self.terms.page_terms)
        if found is None:
            return None  # an answer takes longer: only where it matters
        chance = self.answer.chance
        return None if chance is not None and is_sure(chance) else found

    def privacy(self) -> notices.Privacy:
        """What is promised to the one whose reward it is."""
        return notices.privacy_of(self.terms, sum(self.releases))

    @property
    def drawn_twice(self) -> Mapping[str, str]:
        """Other sites that may have released rewards twice, as their bulletins show, and how, in words."""
        found = {**self.board.drawn_twice, **self._drawn_twice}
        return {name: words for name, words in found.items() if name != self.name}

    def oddities(self, now: float) -> Mapping[str, Sequence[str]]:
        """What of other sites does not fit, in words, by name."""
        return self.board.oddities(now)

    def warnings(self) -> tuple[str, ...]:
        """What an operator should know."""
        names, num_agents = self._arms.names, max(self.num_agents, 1 + len(self.neighbours))  # also those to come
        return (
            *self.presence.warnings(self.doubt, self.waits_for),
            *notices.warnings_of_members(self.board, self.name, self._stored.excluded, self.drawn_twice),
            *notices.notes_of_shares(self.terms, self.board),
            *self._decisions.warnings(names),
            *notices.warnings_of_policy(self.terms, num_agents, self.tried, self.n_max),
            *notices.warnings_of_arms(self._arms, self.terms.shares, self.terms.context),
            *notices.notes_of_guardrails(self.terms, self._stored.overruled),
            *notices.warnings_of_holdout(names, self.holdout),
        )

    def warnings_of_forgetting(self, limits: Retention, now: float) -> Iterable[str]:
        """Decisions that still wait for their reward and are forgotten soon."""
        return self._decisions.warnings_of_forgetting(limits, now)

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
        """Hand out arms: one, or as many as there are ``draws`` (``Decisions.decide``)."""
        is_one, _ = isinstance(draws, SiteDraws), self._looking
        drawn = (draws,) if isinstance(draws, SiteDraws) else tuple(draws)
        step = self._decisions.decide(at, drawn, request, self._arms, self.n_max, self.run)
        return Step(step.result[0], step.records) if is_one else step

    def cancel(self, decision_id: str, at: float) -> Step[None]:
        """A decision was not used (``Decisions.cancel``)."""
        self._believe()
        return self._observed(self._decisions.cancel(decision_id, at, self.doubt is not None))

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Take the reward of a decision; False if it came too late, and does not count (``Decisions.report``)."""
        self._believe()
        return self._observed(self._decisions.report(decision_id, reward, self.doubt is not None))

    def report_all(self, rewards: Sequence[tuple[str, float]]) -> Step[tuple[RewardOutcome, ...]]:
        """Take several rewards in one transaction: what ``report`` returns of each, or raises."""
        self._believe()
        return self._observed(self._decisions.report_all(rewards, self.doubt is not None))

    def is_due(self, now: float) -> bool:
        """Whether ``settle`` has anything to do."""
        is_due = self._decisions.slots.is_due(max(now, self.clock))
        return self.doubt is None and (is_due or (self._evaluator is not None and self._evaluator.is_due))

    def settle(self, now: float) -> Step[int]:
        """Let the page observe what is due (``Decisions.settle``); nothing while nothing may be released.

        The driver calls it while ``is_due``, now and then and before all other events but ``report``: what is settled,
        and when, must not depend on when rewards come.
        """
        self._believe()
        step = self._decisions.settle(now, self.doubt is not None)
        if self._evaluator is not None and self.doubt is None:
            released = self._evaluator.release()
            self._stored.apply(released)
            step = Step(step.result, (*step.records, *released))
        return self._observed(step)

    def expire(self, before: float, keep: int) -> Step[Expired]:
        """Forget decisions (``Decisions.expire``); call it again until it says 0."""
        self._believe()
        return self._observed(self._decisions.expire(before, keep, self.doubt is not None))

    def lacks(self, history: History) -> tuple[str, ...]:
        """The arms of which this site could enter its history now: none until all neighbours have answered.

        A new folder does not know whether the site has released it before: its own bulletin at a neighbour says so.
        """
        if self.doubt is not None or not self.neighbours or any(map(self.presence.asks, self.neighbours)):
            return ()
        names = self._arms.names
        return tuple(it for it in history.arms if it in names and names.index(it) not in self._stored.history)

    def enter_history(self, history: History, now: float) -> Step[tuple[str, ...]]:
        """Take rewards of before the federation, once for ever: which arms'. They are released like any others."""
        lacking = self.lacks(history)
        if not lacking:
            return Step(())
        names, is_first = self._arms.names, not self._stored.history
        sums = {names.index(it): (history.arms[it].rewards, history.in_steps(it, self.terms)) for it in lacking}
        if (most := self.terms.max_pulls) is not None:
            sums = {k: it for k, it in sums.items() if self.tried[k] + it[0] <= most}
        entered = [HistoryEntered(k, rewards) for k, (rewards, _) in sums.items()]
        self._stored.apply(entered)
        times = [self._decisions.count_before(history.seconds, now)] if is_first and sums else []
        own = self._player.take_history(sums, self._decisions.elapsed)
        return self._observed(Step(tuple(names[k] for k in sums), (*entered, *times, *own)))

    def _believe(self) -> None:
        """With strata what is released depends on the board, too: on all that is on it, whoever has looked before."""
        if self.terms.num_strata:
            _ = self._looking

    def _observed(self, step: Step[_Result]) -> Step[_Result]:
        """After a step the page may have released: that goes out at once."""
        is_private = self.terms.page.noise_due is not None
        if any(isinstance(it, Released) or (isinstance(it, Known) and not is_private) for it in step.records):
            self._is_urgent = True
        if any(isinstance(it, EvaluationReleased) for it in step.records):
            self._is_urgent = True
        if any(isinstance(it, Known) for it in step.records):
            self._is_stale = True
        return step

    # ---------------------------------------------------------------- bulletins

    def has_news(self, now: float) -> bool:
        """Whether there is anything to publish: releases and changes of arms at once, decisions once a second.

        In doubt only changes of arms are published. With a reward window a driver must not look because a report came:
        a bulletin that follows it tells others its time.
        """
        own = self.board.held(self.name)
        if own is None:
            return self.doubt is None
        if self._has_new_changes(own.bulletin):
            return True
        if self.doubt is not None:
            return False
        is_time = not 0.0 <= now - self._published_at < PUBLISHED_EVERY
        return self._is_urgent or (is_time and own.bulletin.decisions != self.decided)

    def _has_new_changes(self, own: Bulletin) -> bool:
        has_more = len(self._arms.made_by(self.name)) != len(own.changes)
        is_same = (self._receipts, self._accepted) == (own.receipts, own.accepted)
        return has_more or (self.doubt is None and not is_same)

    def publish(self, sign: Sign, at: float) -> Step[Signed | None]:
        """This site's next bulletin, if there is anything new; on disk it may be sent to everybody.

        In doubt it repeats what the newest one said of releases, and nothing new.
        """
        if not self.has_news(at):
            return Step(None)
        signed = Signed(body := self._bulletin(at).encode(), *sign(body))
        self.board.draft(None)
        self.board.merge(signed, at)
        self.presence.made(self.presence.next_place, signed.digest)
        self._published_at, self._is_stale = at, True
        self._is_urgent = self._is_urgent and self.doubt is not None
        why = "" if self.doubt is None else self.doubt.why
        return self._step(signed if self._is_shown(signed) else None, OwnBulletin(signed, why))

    def _draft(self) -> None:
        """What this site has released counts here at once, before it is published."""
        if self._is_urgent and self.doubt is None and any(self._releases_by_name.values()):
            self.board.draft(self._bulletin(0.0))

    def _bulletin(self, at: float) -> Bulletin:
        presence, own = self.presence, self.board.held(self.name)
        incarnation, number = presence.next_place
        return Bulletin(
            federation=self.terms.digest(),
            site=self.name,
            incarnation=incarnation,
            number=number,
            at=max(int(1000.0 * at), 0),
            run=self.run,
            opened=presence.opened,
            answers=presence.answers,
            decisions=self.decided,
            arms=self._told(None if own is None else own.bulletin),
            evaluation=self._evaluation_told(None if own is None else own.bulletin),
            changes=self._arms.made_by(self.name),
            receipts=dict(self._receipts),
            accepted=dict(self._accepted),
            software=self._software,
        )

    def _entries(self) -> tuple[ArmEntry, ...]:
        return self._player.entries(self._arms.names)

    def _told(self, own: Bulletin | None) -> tuple[ArmEntry, ...]:
        """What a bulletin says of the arms; those that are unknown here, and with a doubt all, as the last one said."""
        if self.doubt is not None and self.presence.rival is not None:  # others know that, and not what is new here
            own = self.presence.rival
        before: dict[str, ArmEntry] = {} if own is None else dict(own.by_arm)
        mine = {it.name: it for it in self._entries()}
        if self.doubt is not None:
            none = (0.0,) * self.terms.num_columns
            mine = {k: before.get(k, replace(it, row=none, releases=0, rewards=0)) for k, it in mine.items()}
        unknown = [it for name, it in before.items() if name not in mine]
        return *mine.values(), *unknown[: MAX_ADDED - len(self._arms.added)]

    @property
    def _evaluation(self) -> EvaluationEntry:
        return NO_EVALUATION if self._evaluator is None else self._evaluator.entry

    def _evaluation_told(self, own: Bulletin | None) -> EvaluationEntry:
        """What a bulletin says of other policies: with a doubt as the last one said."""
        if self.doubt is None or self._evaluator is None:
            return self._evaluation
        before = self.presence.rival or own
        none = tuple(NOTHING for _ in self._evaluation.rows)
        return EvaluationEntry(0, none) if before is None else before.evaluation

    def _rows_of(self, entries: Iterable[ArmEntry]) -> dict[str, tuple[object, ...]]:
        return {it.name: (it.row, it.releases) for it in entries if it.releases}

    def have(self, to: str = "") -> Have:
        """What this site has of each other; of itself only once all neighbours have shown what they have of it.

        A neighbour is told which of its places are used, also by what a revoked certificate has signed.
        """
        have, theirs = self.board.have(), self.board.version_for(to)
        if theirs != have.get(to) and theirs is not None:
            have = {**have, to: theirs}
        if self.run == 0 or not any(map(self.presence.asks, self.neighbours)):
            return have
        return {name: version for name, version in have.items() if name != self.name}

    def newer_than(self, have: Have, to: str = "") -> list[Signed]:
        """What a neighbour lacks, in the order in which it is to be sent.

        One that does not say what it has of itself asks: it may have lost its file, and gets all that is kept of it.
        """
        missing, own = self.board.newer_than(have), self.board.to_send(self.name)
        asked = [] if to in have else self.board.kept(to)
        return [*asked, *(it for it in missing if it not in asked and (it not in own or self._is_shown(it)))]

    def _is_shown(self, signed: Signed) -> bool:
        own = self.board.held(self.name)
        if own is None or self.run == 0:
            return True
        is_newest = own.signed.digest == signed.digest
        it = own.bulletin if is_newest else self._read(signed)
        return not self.presence.is_withheld(it, signed.digest, self.neighbours)

    def receive_have(self, by: str, have: Have) -> Step[bool]:
        """A neighbour says what it has; ``newer_than`` is what it lacks. True: it is to show what it claims."""
        if by not in self._stored.neighbours:
            return Step(False)
        version = have.get(self.name)
        is_known = version is not None and self.board.knows(self.name, version.place, version.digest)
        was_new = self.presence.is_new
        self.presence.receive_have(by, version, is_known)
        self._is_urgent = self._is_urgent or was_new != self.presence.is_new  # what was withheld until now
        is_asked = self.presence.is_challenged
        if version is None or self._stored.neighbours[by]:
            return Step(is_asked)
        return self._step(is_asked, Neighbour(by, has_heard=True))

    def merge(self, signed: Signed, by: str, now: float) -> Step[Merged]:
        """Take in a bulletin whose signature was verified, and which a neighbour has sent."""
        outcome = self.board.merge(signed, now)
        self._is_stale = self._is_stale or outcome.kind in ("new", "conflict")
        held = outcome.held
        records: list[Record] = []
        if outcome.kind == "new" and held is not None:
            self._notice_second_draws(held.bulletin)
        if outcome.site == self.name and held is not None:
            records += self._look_at_own(held.bulletin, signed.digest, by, outcome.kind == "conflict", now)
        found: tuple[ArmChange, ...] = ()
        if held is not None and outcome.site not in self._stored.excluded:
            step = self._rearranged(None, self._arms.new(held.bulletin.changes, self.name, self._accepts))
            found = tuple(it.change for it in step.records if isinstance(it, ArmChanged))
            records += step.records
            self._acknowledge([outcome.site])
        return Step(Merged(outcome, found), tuple(records))

    def _acknowledge(self, names: Iterable[str]) -> None:
        """Note which changes in the bulletins of these sites are known here, or of arms that are not given anyway.

        And which of them this site has accepted.
        """
        arms, excluded = self._arms, self._stored.excluded
        for name in names:
            said = () if name == self.name or (held := self.board.held(name)) is None else held.bulletin.changes
            known = [it for it in said if it.id in arms.changes or not (it.arm in arms.names or name in excluded)]
            self._receipts.pop(name, None)
            self._accepted.pop(name, None)
            if known:
                self._receipts[name] = receipts_of(known)[-1]
            if marks := marked(
                known, {it.id for it in known if it.id in arms.changes and arms.changes[it.id].accepted}
            ):
                self._accepted[name] = marks

    def _notice_second_draws(self, it: Bulletin) -> None:
        before, self._last[it.site] = self._last.get(it.site), it
        if before is not None and (words := drew_again(before, it)):
            self._drawn_twice[it.site] = words

    def board_rows(self) -> Step[None]:
        """What of the board is not on disk yet; the driver asks every few seconds."""
        rows = self.board.unsaved()
        self.board.mark_saved(rows)
        return self._step(None, *rows)

    # ---------------------------------------------------------------- old and copied files

    @property
    def _releases_by_name(self) -> dict[str, int]:
        """Of each arm; under "" those of other policies."""
        return {"": self._evaluation.releases, **dict(zip(self._arms.names, self.releases, strict=True))}

    @property
    def _has_conflict(self) -> bool:
        return self.name in self.board.conflicts

    def _look_at_own(self, it: Bulletin, digest: bytes, by: str, is_conflict: bool, now: float) -> list[Record]:
        """An own bulletin has come from a neighbour: what it says of this process, and what to take back from it."""
        presence, known = self.presence, [*self._history_of(it)]
        self._stored.apply(known)
        if presence.run == 0:
            presence.highest = max(presence.highest, it.place)
            is_of_earlier_file = it.incarnation != self.incarnation
        else:
            was_new = presence.is_new
            is_of_earlier_file = presence.receive_own(it, digest, by, self._releases_by_name, self.decided)
            self._is_urgent = self._is_urgent or was_new != presence.is_new
            if is_conflict and self._has_conflict:
                presence.doubt_that(Doubt("split-brain", by), False, self.decided)
        return [*known, *(self._take_back(it, now) if is_of_earlier_file else [])]

    def _history_of(self, it: Bulletin) -> Iterator[HistoryEntered]:
        """What an own bulletin has entered of before the federation, of which this file knows nothing."""
        for k, name in enumerate(self._arms.names):
            if name in it.by_arm and it.by_arm[name].history > self._stored.history.get(k, 0):
                yield HistoryEntered(k, it.by_arm[name].history)

    def _take_back(self, it: Bulletin, now: float) -> list[Record]:
        """What the site had released before it lost its file, of arms of which it has released nothing itself since."""
        taken = self._taken_back
        unreleased = {name for name, n in self._releases_by_name.items() if n == taken.get(name, 0)}
        more = {name for name in unreleased if name in it.by_arm and it.by_arm[name].releases > taken.get(name, 0)}
        records = taken_back(self.terms, self._arms.names, self.stored, it.by_arm, more)
        if self._evaluator is not None:
            before = self._evaluator.take_back(it.evaluation)
            self._stored.apply(before)
            self._is_urgent = self._is_urgent or bool(before)
            if not records:
                return [*before]
            records = [*before, *records]
        if not records:
            return []
        taken |= {name: it.by_arm[name].releases for name in more}
        stored = self.stored
        stored.apply(records)
        self._player = Player(self.terms, stored, self._noise, len(self._arms.names))
        self._decisions.grow(self._player)
        self._is_urgent = self._is_stale = True
        rate = self._player.rate if self.terms.counted == "patients" else 0.0
        return [*records, *([self._decisions.count_since(rate, now)] if rate > 0.0 else [])]

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
        self._is_urgent = self.presence.go_on(self.neighbours) or self._is_urgent
        return Step(None)

    def dismiss_claims(self) -> Step[None]:
        """The driver has waited long enough for what neighbours claim to have of this site."""
        self._is_urgent = self.presence.dismiss_claims() or self._is_urgent
        return Step(None)

    def pause(self, run: int) -> Step[None]:
        """The process has stood still for a while; ``run`` is its new number."""
        self.presence.pause(run)
        return Step(None)

    def confirm(self, run: int) -> Step[None]:
        """The operator says that this process lives, and that its file is the latest; ``run`` is its new number."""
        self.presence.confirm(run, self._has_conflict)
        self._is_urgent = True
        return self.note(Act("confirm", "confirm"))

    def restore(self, incarnation: int, run: int) -> Step[Restored]:
        """Begin a new incarnation with an old file.

        What was decided since no other process can know of it stays (``Presence.first``). What was there before, and
        had not been released, may have been released by another process: it is dropped.
        """
        self.presence.check_restore()
        incarnation = max(incarnation, self.incarnation + 1, self.presence.highest[0] + 1)
        stored, own, first = self.stored, self.board.held(self.name), self.presence.first or 0
        told = None if own is None else own.bulletin
        found = records_of_new_incarnation(stored, self.terms, self._arms.names, incarnation, first, told)
        records, restored = found
        stored.apply(records)
        self._take_over(stored)
        self.presence.renewed(run, incarnation, self._releases_by_name)
        self._is_urgent = True
        return Step(restored, (*records, Act("restore", "restore", detail=f"incarnation {incarnation}")))

    # ---------------------------------------------------------------- arms

    def change_arm(
        self, kind: ChangeKind, name: str, at: int, reason: str = "", levels: Mapping[str, str] | None = None
    ) -> Step[ArmChange]:
        """The operator changes an arm: that is this site's own change, and accepted. A stop twice is one stop.

        ``at``: in milliseconds since 1970. ``levels``: for patients with these levels of some factors; None: for all.
        """
        strata = () if levels is None else self._strata_with(levels)
        return self._change(kind, name, at, reason, strata)

    def _strata_with(self, levels: Mapping[str, str]) -> tuple[int, ...]:
        if (factors := self.terms.context) is None:
            raise InvalidArgument("stratum", dict(levels), "left out: the terms have no [federation.context]")
        return factors.with_levels("stratum", levels)

    def _change(self, kind: ChangeKind, name: str, at: int, reason: str, strata: tuple[int, ...]) -> Step[ArmChange]:
        before = self._arms.made_already(kind, name, self.name, strata)
        if before is not None:
            return Step(before)
        change = self._arms.next_change(kind, name, self.name, at, reason, self.terms.room_for_changes, strata)
        return self._rearranged(change, self._arms.new([change], self.name, frozenset()))

    def needs_guarding(self) -> bool:
        """Whether ``guard`` has anything new to look at; in doubt it does not look."""
        return self._guard is not None and self.doubt is None and self._guarded is not self.board.counted()

    def guard(self, at: int) -> Step[tuple[ArmChange, ...]]:
        """Suspend what is worse than the guardrails of the terms allow, by this board: this site's own changes.

        Never the only arm that is given. The driver calls it before it publishes. ``at``: in milliseconds since 1970.
        """
        if self._guard is None or not self.needs_guarding():
            return Step(())
        self._guarded = self.board.counted()  # another object as soon as anything that counts has changed
        made, records = list[ArmChange](), list[Record]()
        for stratum in self._guard.strata:
            stopped = self._arms.stopped_for(None if stratum == NO_STRATUM else stratum)
            given = [name for k, name in enumerate(self._arms.names) if k not in stopped]
            for it in self._guard.breaches(self.board, given, self._stored.overruled, stratum):
                if len(given) == 1:
                    break
                where = () if stratum == NO_STRATUM else (stratum,)
                try:
                    step = self._change("suspend", it.arm, at, it.reason, where)
                except InvalidArgument:  # this site has made as many changes as others keep
                    return Step(tuple(made), tuple(records))
                given = [name for name in given if name != it.arm]
                made.append(step.result)
                records += step.records
        return Step(tuple(made), tuple(records))

    def _overruled(self, changes: Iterable[Record]) -> Iterator[Overruled]:
        """What a person knows who resumes an arm: its guardrail acts again only if it becomes worse."""
        if self._guard is not None:
            accepted = (it.change for it in changes if isinstance(it, ArmChanged) and it.accepted)
            resumed = [it for it in accepted if it.kind == "resume"]
            rails = ((it.arm, s) for it in resumed for s in self._guard.strata if not it.strata or s in it.strata)
            for arm, stratum in dict.fromkeys(rails):
                yield Overruled(rail_of(arm, stratum), self._guard.resumed(self.board, arm, stratum))

    def accept_from(self, accepts: Accepts) -> Step[tuple[ArmChange, ...]]:
        """From whom changes count without the operator's consent, from now on; those that waited and count now."""
        self._accepts = accepts
        records = self._arms.accepted_of(self._arms.unaccepted, self.name, accepts)
        return self._rearranged(tuple(it.change for it in records), records)

    def accept_arm(self, name: str, retire: bool = False) -> Step[tuple[ArmChange, ...]]:
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
        done = list[Record](records)
        done += [*self._overruled(done)]
        self._stored.apply(done)
        if any(isinstance(it, ArmChanged) and it.change.kind == "add" for it in done):
            done += self._changes_of_new_arms()
        if done:
            self._arms = Arms.of(self.terms.arms, self._stored.arm_changes)
            done += self._stops_taken_back(done)
            self._acknowledge({it.change.by for it in done if isinstance(it, ArmChanged)})
        if len(self._arms.names) > self._player.num_arms:
            self._player = self._player.grown(self.stored, len(self._arms.names))
            self._decisions.grow(self._player)
            self._acknowledge(self.board.sites)
            self._is_stale = self._is_urgent = True
            if (own := self.board.held(self.name)) is not None:  # it may have known the arm before it lost its file
                done += self._take_back(own.bulletin, self.clock)
        return Step(result, tuple(done))

    def _stops_taken_back(self, done: Iterable[Record]) -> list[ArmChanged]:
        """Others' resumes that count here now end this site's own stops: it takes those back everywhere."""
        found: list[ArmChanged] = []
        accepted = [it.change for it in done if isinstance(it, ArmChanged) and it.accepted]
        for it in accepted:
            if it.kind == "resume" and it.by != self.name:
                at = max(int(1000.0 * self.clock), it.at)
                change = self._arms.taking_back(it, self.name, at, self.terms.room_for_changes)
                if change is not None:
                    records = self._arms.new([change], self.name, frozenset())
                    self._stored.apply(records)
                    self._arms = Arms.of(self.terms.arms, self._stored.arm_changes)
                    found += records
        return found

    def _changes_of_new_arms(self) -> list[ArmChanged]:
        """Others may have changed an arm before this site knew that there is one."""
        arms, heard = Arms.of(self.terms.arms, self._stored.arm_changes), map(self.board.held, self.board.sites)
        members = (it.bulletin for it in heard if it is not None and it.bulletin.site not in self._stored.excluded)
        found = arms.new([change for it in members for change in it.changes], self.name, self._accepts)
        self._stored.apply(found)
        return found

    # ---------------------------------------------------------------- neighbours and members

    def link(self, neighbours: Collection[str]) -> Step[None]:
        """These are the neighbours now."""
        if self.name in neighbours:
            raise InvalidArgument("neighbours", self.name, "other sites than this one")
        known = self._stored.neighbours
        gone = [Unlinked(name) for name in known if name not in neighbours]
        for it in gone:
            self.presence.forget(it.name)
        return self._step(None, *gone, *(Neighbour(name, False) for name in neighbours if name not in known))

    def exclude(self, name: str, at: int, reason: str = "") -> Step[None]:
        """A member no longer counts here; its bulletins are kept and passed on. Idempotent."""
        if name in self._stored.excluded:
            return Step(None)
        names = [it for it in self.board.sites if it != self.name]
        if name not in names:
            accepted = f"one of {', '.join(names)}" if names else "another site: none is known"
            raise InvalidArgument("name", name, accepted, closest(name, names))
        return self._excluding(Excluded(name, at, reason))

    def include(self, name: str) -> Step[None]:
        """A member counts again, with the changes of arms that it has made meanwhile. Idempotent."""
        if name not in self._stored.excluded:
            return Step(None)
        step, held = self._excluding(Included(name)), self.board.held(name)
        changes = () if held is None else held.bulletin.changes
        more = self._rearranged(None, self._arms.new(changes, self.name, self._accepts))
        self._acknowledge([name])
        return Step(None, (*step.records, *more.records))

    def _excluding(self, record: Excluded | Included) -> Step[None]:
        step = self._step(None, record)
        self.board.exclude(self._stored.excluded)
        self._is_stale = True
        self._acknowledge([record.name])
        return step

    def refuse(self, names: Collection[str]) -> Step[None]:
        """These do not count, and their bulletins are neither taken nor passed on: the configuration says so."""
        self.board.refuse([name for name in names if name != self.name])
        self._is_stale = True
        return Step(None)

    def revoke(self, signers: Collection[bytes]) -> Step[None]:
        """What these have signed does not count; a bulletin of the same site that another has signed does."""
        self.board.revoke(signers)
        self._is_stale = True
        return Step(None)

    # ---------------------------------------------------------------- the audit trail

    def note(self, *acts: Act) -> Step[None]:
        """What was done that changes nothing of the site: a start, a login."""
        return Step(None, acts)

    def entries(self, records: Sequence[Record], deed: Deed, at: int) -> Sequence[Entry]:
        """What the audit trail says of an event; for the transaction of its records.

        The driver asks after every event that has records, before the next. ``at``: in milliseconds since 1970.
        """
        if not tells(records):
            return ()
        taken = self._taken_back
        releases = {name: n for name, n in self._releases_by_name.items() if n != taken.get(name, 0)}
        acts = acts_of(records, self.name, self._told_changes, self._arms.names, releases, self.terms.context)
        found = chained(self._stored.trail, acts, deed, at)
        self._stored.apply(found)
        return found

    # ---------------------------------------------------------------- steps

    def _step(self, result: _Result, *records: Record) -> Step[_Result]:
        self._stored.apply(records)
        return Step(result, records)
