"""The events of a site's application: decisions are handed out, rewards reported, settled and forgotten."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from fedbandit.agent.core.choice import DecisionDraws, choice
from fedbandit.agent.core.decision_ids import decision_id as id_of
from fedbandit.agent.core.events import NotNow, Step, UnknownDecision
from fedbandit.agent.core.messages import MAX_COUNT
from fedbandit.agent.core.records import Decision, Forgotten, Life, Record, Times
from fedbandit.agent.core.site_view import SiteView
from fedbandit.checks import InvalidArgument, finite_number, whole_number

__all__ = ["LONGEST_GAP", "MAX_EXPIRED", "MAX_SETTLED", "Decisions"]

MAX_EXPIRED = 1000
"""The most decisions that one call forgets, so that its transaction stays short."""

MAX_SETTLED = 1000
"""The most rewards that one call lets the page observe, for the same reason."""

LONGEST_GAP = 7 * 24 * 3600.0
"""Seconds that count at most between two events when a rate is measured: a clock may jump by decades."""

_Result = TypeVar("_Result")


class Decisions(SiteView):
    """What a site knows (``site_view``), and what its application changes of it. ``site`` adds neighbours."""

    def decide(self, at: float, draws: DecisionDraws) -> Step[Decision]:
        """Hand out an arm, and with it the next slot of the arm."""
        arm = choice(self.terms, self._player, self.n_max, draws)
        life = Life(self.epoch, self._stored.life.decisions + 1)
        at = self._tick(at)
        decision = Decision(id_of(self._stored.key, self.run, life.epoch, life.decisions, at), life.decisions, arm, at)
        self._tried[arm] += 1
        if self._since is None:
            self._since = at
        times = self._stored.times
        is_later = self._since != times.since
        step = self._step(decision, life, decision, *([replace(times, since=self._since)] if is_later else []))
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
        by_arrival = decision.number <= self._stored.by_arrival
        if by_arrival and self.doubt is not None:
            raise NotNow("a reward of a decision from before this version is taken once this site releases again")
        decision = decision.after_reward(reward)
        self._stored.apply([decision])
        due: list[Decision] = []
        if by_arrival:
            due = [decision]
        elif self.terms.reward_window == 0.0 and self.doubt is None:
            due = self._slots.take_due(now, MAX_SETTLED)
        return self._played(True, due, *(() if decision in due else (decision,)))

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

    def expire(self, before: float, keep: int) -> Step[int]:
        """Forget decisions whose window ended before a time, and the oldest beyond the newest ``keep``; how many.

        Before that every one is played: without a window, one that has no reward counts with the default now. With
        one, those that have not been settled stay. All unplayed ones stay while nothing may be released. At most
        ``MAX_EXPIRED`` at once: call it again until it says 0.
        """
        before = finite_number("before", before)
        surplus = len(self._stored.decisions) - whole_number("keep", keep, 0, MAX_COUNT)
        window, gone, due = self.terms.reward_window, list[Record](), list[Decision]()
        is_held = self.doubt is not None
        for decision in self._stored.decisions.values():  # in the order of time: the clock never goes back
            if len(gone) == MAX_EXPIRED or (decision.at + window >= before and len(gone) >= surplus):
                break
            if decision.number <= self._stored.by_arrival:
                self._tried[decision.arm] -= not decision.played
            elif not decision.played:
                if is_held or window or not self._slots.is_next(decision):
                    break
                due.append(self._slots.take(decision.arm))
            gone.append(Forgotten(decision.id))
        behind = [] if window or is_held else self._slots.take_due(self._clock, MAX_SETTLED)
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
        step = self._step(result, *records, *[it.after_play() for it in due])
        self._look(*self._player.concerned(own))
        return Step(result, (*step.records, *own))

    # ---------------------------------------------------------------- steps

    def _look(self, *arms: int) -> None:
        """Show the page what the network holds now, of these arms or of all."""
        self._count()
        self._player.look(self.gossiped, arms or range(self.terms.num_arms))

    def _step(self, result: _Result, *records: Record) -> Step[_Result]:
        self._stored.apply(records)
        return Step(result, records)
