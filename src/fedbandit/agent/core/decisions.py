"""The events of a site's application: decisions are handed out, rewards reported, settled and forgotten."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, overload

from fedbandit.agent.core.arms import in_words_of_stops
from fedbandit.agent.core.choice import Choice, DecisionDraws, choice
from fedbandit.agent.core.decision_ids import decision_id as id_of
from fedbandit.agent.core.events import (
    ArmStopped,
    Cancelled,
    KeyReused,
    NoArm,
    NotNow,
    Refused,
    Rewarded,
    Step,
    WindowOver,
)
from fedbandit.agent.core.forgetting import Expired
from fedbandit.agent.core.messages import MAX_COUNT
from fedbandit.agent.core.records import Decision, Forgotten, Kept, Life, Record, Times
from fedbandit.agent.core.requests import ANY, Request, as_bits, key_tag, subject_tag
from fedbandit.agent.core.site_answers import SiteAnswers
from fedbandit.checks import InvalidArgument, finite_number, whole_number

__all__ = ["LONGEST_GAP", "MAX_EXPIRED", "MAX_SETTLED", "Decisions", "Outcome"]

MAX_EXPIRED = 1000
"""The most decisions that one call forgets, so that its transaction stays short."""

MAX_SETTLED = 1000
"""The most rewards that one call lets the page observe, for the same reason."""

LONGEST_GAP = 7 * 24 * 3600.0
"""Seconds that count at most between two events when a rate is measured: a clock may jump by decades."""

Outcome = bool | Refused | InvalidArgument
"""What came of one reward: whether it counts, or why it was refused."""

_Result = TypeVar("_Result")


class Decisions(SiteAnswers):
    """What a site knows (``site_view``) and tells, and what its application changes of it. ``site`` adds neighbours."""

    reported = 0
    """Rewards that came since the site was loaded, late ones too; a repetition is not another."""

    @overload
    def decide(self, at: float, draws: DecisionDraws, request: Request = ANY) -> Step[Decision]: ...

    @overload
    def decide(
        self, at: float, draws: Sequence[DecisionDraws], request: Request = ANY
    ) -> Step[tuple[Decision, ...]]: ...

    def decide(
        self, at: float, draws: DecisionDraws | Sequence[DecisionDraws], request: Request = ANY
    ) -> Step[Decision] | Step[tuple[Decision, ...]]:
        """Hand out arms, and with each the next slot of the arm; ``draws`` for each decision that is asked for.

        Each is chosen in turn, as if it had been asked for alone. A request whose key is remembered gets the decisions
        that it got before, and nothing changes.
        """
        at, is_one = finite_number("at", at), isinstance(draws, DecisionDraws)
        drawn = (draws,) if isinstance(draws, DecisionDraws) else tuple(draws)
        if len(drawn) != request.count:
            raise InvalidArgument("draws", len(drawn), f"those of {request.count} decisions")
        key = key_tag(self._stored.key, request) if request.key is not None else b""
        if key and (found := self._again(key, request)):
            return Step(found[0]) if is_one else Step(found)
        allowed = self._allowed(request)
        subject = subject_tag(self._stored.key, request.subject) if request.subject is not None else b""
        chosen = self._chosen(drawn, allowed, subject)
        at, before = self._tick(at), self._stored.life.decisions
        life = Life(self.epoch, before + len(chosen))
        eligible = b"" if allowed is None else as_bits(allowed)
        made: list[Decision] = []
        for number, (arm, propensity) in enumerate(chosen, before + 1):
            name = id_of(self._stored.key, self.run, life.epoch, number, at)
            state = None, False, False, False, False
            made.append(Decision(name, number, arm, at, *state, propensity, key, subject, eligible))
        if self._since is None:
            self._since = at
        times = self._stored.times
        is_later = self._since != times.since
        records = *made, life, *([replace(times, since=self._since)] if is_later else [])
        self._stored.apply(records)
        for decision in made:
            self._slots.add(decision)
            self._requests.add(decision)
        return Step(made[0], records) if is_one else Step(tuple(made), records)

    def _again(self, key: bytes, request: Request) -> tuple[Decision, ...]:
        """The decisions that this request got before; none: it is new."""
        found = tuple(self._stored.decisions[name] for name in self._requests.with_key(key))
        if any(it.key != key for it in found):
            raise KeyReused("this key was used for another request")
        if found and len(found) < request.count:
            raise KeyReused(f"{request.count - len(found)} of the {request.count} decisions of this key are forgotten")
        for it in found:
            if it.cancelled:
                raise Cancelled(f"the decision {it.id} of this key was cancelled")
            if it.arm in self.stopped and not it.rewarded:
                raise ArmStopped(f"{self.arms.names[it.arm]}, the arm of the decision {it.id} of this key, was stopped")
        return found

    def _allowed(self, request: Request) -> tuple[int, ...] | None:
        """The arms that a request may get; None: all."""
        stopped = self.stopped
        allowed = request.arms(len(self.arms.names), stopped)
        if allowed is not None and not allowed:
            asked = request.arms(len(self.arms.names), frozenset())
            words = in_words_of_stops(self.arms, stopped if asked is None else stopped.intersection(asked))
            raise NoArm("no arm is left for this request" + (f": {words}" if words else ""))
        return allowed

    def _chosen(self, drawn: Sequence[DecisionDraws], allowed: tuple[int, ...] | None, subject: bytes) -> list[Choice]:
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
        if decision.number > self._stored.by_arrival:
            self._slots.remove(cancelled)
        has_none = self.terms.reward_window == 0.0 and self.doubt is None
        due = self._slots.take_due(now, MAX_SETTLED) if has_none else []  # what has waited for it
        return self._played(None, due, cancelled)

    def report(self, decision_id: str, reward: float, at: float | None = None) -> Step[bool]:
        """Take the reward of a decision; False if it came too late, and does not count.

        Idempotent: a repetition changes nothing, whatever its value, and the answer tells nothing of the first one.
        ``at`` is the time now, by which a window is judged; None: the largest time seen so far. It moves no clock.
        """
        decision = self.decision(decision_id)
        low, high, reward = self.terms.low, self.terms.high, finite_number("reward", reward)
        if not low <= reward <= high:
            raise InvalidArgument("reward", reward, f"a number from {low:g} to {high:g}")
        if decision.cancelled:
            raise Cancelled("this decision was cancelled: it takes no reward")
        if decision.rewarded:
            return Step(True)
        if decision.late:
            return Step(False)
        now = self._clock if at is None else max(self._clock, finite_number("at", at))
        if decision.played or self._slots.is_over(decision, now):
            self.reported += 1
            return self._step(False, replace(decision, late=True), replace(self._stored.times, late=self.late + 1))
        by_arrival = decision.number <= self._stored.by_arrival
        if by_arrival and self.doubt is not None:
            raise NotNow("a reward of a decision from before this version is taken once this site releases again")
        self.reported += 1
        decision = decision.after_reward(reward)
        kept = [Kept(decision.id, decision.number, reward)] if self._keeps_rewards else []
        self._stored.apply([decision])
        due: list[Decision] = []
        if by_arrival:
            due = [decision]
        elif self.terms.reward_window == 0.0 and self.doubt is None:
            due = self._slots.take_due(now, MAX_SETTLED)
        return self._played(True, due, *(() if decision in due else (decision,)), *kept)

    def report_all(self, rewards: Sequence[tuple[str, float]], at: float | None = None) -> Step[tuple[Outcome, ...]]:
        """Take several rewards in one transaction: what ``report`` returns of each, or raises."""
        outcomes: list[Outcome] = []
        records: list[Record] = []
        for decision_id, reward in rewards:
            try:
                step = self.report(decision_id, reward, at)
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
        times = [Times(now, self._stored.times.late, self._since)] if due else []
        return self._played(len(due), due, *times)

    def expire(self, before: float, keep: int) -> Step[Expired]:
        """Forget decisions whose window ended before a time, and the oldest beyond the newest ``keep``.

        Before that every one is played: without a window, one that has no reward counts with the default now. With
        one, those that have not been settled stay. All unplayed ones stay while nothing may be released. Those that
        were cancelled go when it is their turn. At most ``MAX_EXPIRED`` at once: call it again until it says 0.
        """
        before = finite_number("before", before)
        surplus = len(self._stored.decisions) - whole_number("keep", keep, 0, MAX_COUNT)
        window, gone, due = self.terms.reward_window, list[Decision](), list[Decision]()
        is_held, by_age, by_keep = self.doubt is not None, 0, 0
        for decision in self._stored.decisions.values():  # in the order of time: the clock never goes back
            is_old = decision.at + window < before
            if len(gone) == MAX_EXPIRED or not (is_old or len(gone) < surplus):
                break
            if decision.number <= self._stored.by_arrival:
                self._tried[decision.arm] -= decision.is_open
            elif decision.is_open:
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
        self, result: _Result, due: Sequence[Decision], *records: Record, gone: Sequence[Decision] = ()
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

    # ---------------------------------------------------------------- steps

    def _look(self, *arms: int) -> None:
        """Show the page what the network holds now, of these arms or of all."""
        self._count()
        self._player.look(self.gossiped, arms or range(self._player.num_arms))

    def _step(self, result: _Result, *records: Record) -> Step[_Result]:
        self._stored.apply(records)
        return Step(result, records)
