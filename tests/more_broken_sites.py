"""More live sites that break their epsilon, each in one place where few look: requests, cancelling, history, restarts.

Use none of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from broken_sites import BrokenSite, PartSite, RememberingSite
from fedbandit.agent.core.arms import ArmChange, ChangeKind
from fedbandit.agent.core.board import Have
from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.core.decisions import ANY, Decisions, Expired, Request, SiteDraws
from fedbandit.agent.core.decisions import Outcome as RewardOutcome
from fedbandit.agent.core.evaluator import Evaluator
from fedbandit.agent.core.history import History
from fedbandit.agent.core.records import Record, Rewarded, Step, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import Deed, Entry
from fedbandit.privacy.noise import GRID
from fedbandit.rules.mean import clamp
from fedbandit.rules.private import POOLED


def more_broken_sites() -> list[BrokenSite]:
    """All of them."""
    return [
        BrokenSite("a small range of rewards moves the weight", "proof", BandSite),
        BrokenSite("what guards releases tells a reward", "proof", GuardingSite),
        BrokenSite("a second report replaces the first", "proof", ReplacingSite),
        BrokenSite("no noise in a later incarnation", "proof", LaterSite),
        BrokenSite("history without noise", "proof", PastSite),
        BrokenSite("an arm that was left out comes if it was good", "proof", InsistingSite),
        BrokenSite("a cancellation is refused by the value", "proof", CancellingSite),
        BrokenSite("a reward out of range is clamped", "proof", ClampingSite),
        BrokenSite("a good reward moves the clock", "proof", TickingSite),
        BrokenSite("one draw for all that one look settles", "proof", SettlingSite),
        BrokenSite("propensities follow open sums", "proof", PropensitySite),
        BrokenSite("patients are counted once they are rewarded", "proof", PatientsSite),
        BrokenSite("the audit trail tells a reward", "proof", TrailSite),
        BrokenSite("propensities follow the strata of rewards", "proof", StratumSite),
        BrokenSite("decisions with bad rewards are kept longer", "proof", KeepingSite),
        BrokenSite("a guardrail looks at raw rewards", "proof", RailSite),
        BrokenSite("several decisions go to the best raw arm", "proof", BestSite),
        BrokenSite("the reason of a stop tells a reward", "proof", ReasonSite),
        BrokenSite("noise drawn anew when a member is excluded", "proof", RedrawingSite),
        BrokenSite("no noise on an arm that was added", "proof", NewArmSite),
        BrokenSite("a resumed arm shows its open sum", "proof", ResumedSite),
        BrokenSite("the highest reward counts a step more", "proof", HighestSite),
        BrokenSite("several rewards end at a bad one", "proof", EndingSite),
        BrokenSite("a bulletin is kept back from a neighbour", "proof", WithholdingSite),
        BrokenSite("the board is saved after good rewards alone", "proof", SavingSite),
        BrokenSite("no noise after a pause", "proof", PausedSite),
        BrokenSite("a pooled release also releases a cell", "proof", PooledTwiceSite),
        BrokenSite("whether strata matter follows from unreleased sums", "proof", PeekingAtStrataSite),
        BrokenSite("a good reward of one stratum ends its batch later", "proof", LongerCellSite),
        BrokenSite("no noise on sums for other policies", "proof", BareSumsSite),
        BrokenSite("a reward counts twice for other policies", "proof", DoubledSumsSite),
    ]


# ---------------------------------------------------------------- rewards


class _BandDecisions(Decisions):
    _found = 0

    def report(self, decision_id: str, reward: float, is_held: bool) -> Step[bool]:
        share = (reward - self._terms.low) / (self._terms.high - self._terms.low)
        self._found += 0.700 <= share <= 0.705
        return super().report(decision_id, reward, is_held)

    @property
    def elapsed(self) -> float:
        return super().elapsed + 1e6 * self._found


class BandSite(PartSite):
    """A reward from .700 to .705 of the range moves the weight."""

    decisions = _BandDecisions


class ReplacingSite(Site):
    """A second report replaces the first until it counts."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """As a correction."""
        step = super().report(decision_id, reward)
        it = self._stored.decisions[decision_id]
        if it.reward is not None and it.reward != reward:
            changed = it.after_reward(reward)
            self._stored.apply([changed])
            return Step(step.result, (*step.records, changed))
        return step


class ClampingSite(Site):
    """A reward out of range counts as the nearest in it."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """Instead of being refused."""
        return super().report(decision_id, clamp(reward, self.terms.low, self.terms.high))


class TickingSite(Site):
    """A good reward takes the time of the site a little further."""

    def report(self, decision_id: str, reward: float) -> Step[bool]:
        """By a millisecond."""
        step = super().report(decision_id, reward)
        if reward > self.terms.low:
            self._decisions.tick(self.clock + 0.001)
        return step


class HighestSite(Site):
    """The highest reward is one step beyond the grid."""

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        if self.terms.num_strata:
            return
        page = self._player._own.page

        def observe(me: Any, terms: Any, arm: int, reward: float, noise: float) -> None:
            me.total[arm] += reward == GRID  # the page clamps what it is given
            page.observe(me, terms, arm, reward, noise)

        self._player._own.page = page._replace(observe=observe)


class EndingSite(Site):
    """Of several rewards in one call, those behind a bad one are taken for late."""

    def report_all(self, rewards: Sequence[tuple[str, float]]) -> Step[tuple[RewardOutcome, ...]]:
        """Up to the first bad one."""
        bad = [k for k, (_, reward) in enumerate(rewards) if reward == self.terms.low]
        if not bad:
            return super().report_all(rewards)
        step = super().report_all(rewards[: bad[0] + 1])
        return Step((*step.result, *[False] * (len(rewards) - len(step.result))), step.records)


# ---------------------------------------------------------------- requests


class CancellingSite(RememberingSite):
    """A decision with a bad reward can be cancelled, it says."""

    def cancel(self, decision_id: str, at: float) -> Step[None]:
        """And does nothing."""
        try:
            return super().cancel(decision_id, at)
        except Rewarded:
            if self.told.get(decision_id) == self.terms.low:
                return Step(None)
            raise


class InsistingSite(RememberingSite):
    """An arm that is left out comes all the same after a good reward."""

    def decide(self, at: float, draws: SiteDraws | Sequence[SiteDraws], request: Request = ANY) -> Step[Any]:
        """Whatever is left out."""
        is_free = request.exclude and not self.is_bad and self.told
        return super().decide(at, draws, replace(request, exclude=()) if is_free else request)


class BestSite(RememberingSite):
    """Who asks for several decisions gets the arm whose raw mean is the best."""

    def decide(self, at: float, draws: SiteDraws | Sequence[SiteDraws], request: Request = ANY) -> Step[Any]:
        """That arm alone."""
        if request.count > 1 and not request.exclude:
            arms = request.eligible or tuple(range(len(self.arms.names)))
            means = {arm: sum(told) / len(told) for arm in arms if (told := self.told_of(arm))}
            if means:
                request = replace(request, eligible=(max(means, key=lambda arm: means[arm]),))
        return super().decide(at, draws, request)


class PropensitySite(Site):
    """The propensity that it says follows the sum of the open batch."""

    def decide(self, at: float, draws: SiteDraws | Sequence[SiteDraws], request: Request = ANY) -> Step[Any]:
        """By a little."""
        step = super().decide(at, draws, request)
        made = step.result if isinstance(step.result, tuple) else (step.result,)
        me = self._player.me
        sums = [sum(row) for row in me.totals] if self.terms.num_strata else me.total
        said = tuple(replace(it, propensity=1.0 / (1.0 + sums[it.arm])) for it in made)
        return Step(said if isinstance(step.result, tuple) else said[0], step.records)


class StratumSite(RememberingSite):
    """The propensity that it says to a patient follows the last reward of the same stratum."""

    def decide(self, at: float, draws: SiteDraws | Sequence[SiteDraws], request: Request = ANY) -> Step[Any]:
        """By a little, where there are strata."""
        alike = [it.id for it in self._stored.decisions.values() if it.stratum is not None and it.id in self.told]
        step = super().decide(at, draws, request)
        if not alike or not isinstance(step.result, tuple):
            return step
        last = self._stored.decisions[alike[-1]]
        shift = 1e-9 * self.told[last.id] * (last.stratum == step.result[0].stratum)
        said = tuple(replace(it, propensity=(it.propensity or 0.5) + shift) for it in step.result)
        return Step(said, step.records)


class _KeepingDecisions(Decisions):
    told: Mapping[str, float]

    def expire(self, before: float, keep: int, is_held: bool) -> Step[Expired]:
        oldest = next(iter(self._stored.decisions), "")
        if self.told.get(oldest) == self._terms.low:
            keep += 1
        return super().expire(before, keep, is_held)


class KeepingSite(RememberingSite, PartSite):
    """A decision with a bad reward is remembered longer."""

    decisions = _KeepingDecisions

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        self._decisions.told = self.told


# ---------------------------------------------------------------- noise


class _SwitchedSite(Site):
    """It leaves out the noise of some releases."""

    is_bare = False

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        self._spoil()

    def _spoil(self) -> None:
        page, nothing = self._player._own.page, [0] * self.terms.num_strata or 0

        def observe(me: Any, terms: Any, arm: int, reward: float, noise: Any, *context: Any) -> None:
            page.observe(me, terms, arm, reward, nothing if self.leaves_out(arm) else noise, *context)

        self._player._own.page = page._replace(observe=observe)

    def leaves_out(self, arm: int) -> bool:
        """Whether the noise of this arm."""
        return self.is_bare


class LaterSite(_SwitchedSite):
    """Without noise in a later incarnation, be its file new or restored."""

    def leaves_out(self, arm: int) -> bool:
        """After the first."""
        return self.incarnation > 1


class PastSite(_SwitchedSite):
    """History is released as it is."""

    def enter_history(self, history: History, now: float) -> Step[tuple[str, ...]]:
        """Without noise."""
        self.is_bare = True
        try:
            return super().enter_history(history, now)
        finally:
            self.is_bare = False


class PausedSite(_SwitchedSite):
    """A process that has stood still forgets its noise."""

    def pause(self, run: int) -> Step[None]:
        """From then on."""
        self.is_bare = True
        return super().pause(run)


class NewArmSite(_SwitchedSite):
    """An arm that was added has no noise."""

    def leaves_out(self, arm: int) -> bool:
        """If it is not in the terms."""
        return arm >= self.terms.num_arms

    def _rearranged(self, result: Any, records: Any) -> Step[Any]:
        player = self._player
        step = super()._rearranged(result, records)
        if self._player is not player:
            self._spoil()
        return step


class SettlingSite(Site):
    """All that is settled at once has one draw."""

    def settle(self, now: float) -> Step[int]:
        """And no more."""
        ledger = self._player._own.ledger
        assert ledger is not None
        noise, drawn = ledger._noise, list[int]()

        def one(epsilon: float, count: int) -> list[int]:
            if not drawn:
                drawn.extend(noise(epsilon, count))
            return drawn[:count]

        ledger._noise = one
        try:
            return super().settle(now)
        finally:
            ledger._noise = noise


class RedrawingSite(Site):
    """When a member is excluded, or counts again, what was released gets other noise."""

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        self._last_noise: dict[int, float] = {}
        if self.terms.num_strata:
            return
        page = self._player._own.page

        def observe(me: Any, terms: Any, arm: int, reward: float, noise: float) -> None:
            page.observe(me, terms, arm, reward, noise)
            if noise:
                self._last_noise[arm] = noise

        self._player._own.page = page._replace(observe=observe)

    def _excluding(self, record: Any) -> Step[None]:
        for arm, before in self._last_noise.items():  # none with strata
            (fresh,) = self._noise(self.terms.page_terms.epsilon_per_release, 1)
            self._player.me.x_mean[arm] += fresh - before
            self._last_noise[arm] = fresh
            self._is_urgent = True
        return super()._excluding(record)


# ---------------------------------------------------------------- strata


class _StrataSite(Site):
    """Its page does something besides where decisions have strata."""

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        if not self.terms.num_strata:
            return
        page = self._player._own.page

        def observe(me: Any, terms: Any, arm: int, reward: float, noise: Any, context: Any) -> None:
            before = [*me.totals[arm]]
            page.observe(me, terms, arm, reward, noise, context)
            self.besides(me, arm, context.stratum, before, reward)

        self._player._own.page = page._replace(observe=observe)

    def besides(self, me: Any, arm: int, stratum: int, before: Sequence[float], reward: float) -> None:
        """After each reward; ``before``: the sums of the cells."""
        raise NotImplementedError


class PooledTwiceSite(_StrataSite):
    """What is in a pooled sum is released again by itself, with other noise."""

    def besides(self, me: Any, arm: int, stratum: int, before: Sequence[float], reward: float) -> None:
        """A cell of it."""
        if me.part[stratum] == POOLED:
            (fresh,) = self._noise(self.terms.page_terms.epsilon_per_release, 1)
            me.score[arm][stratum] += (before[stratum] + reward + fresh) / GRID


class PeekingAtStrataSite(_StrataSite):
    """How many rewards a cell needs to go out alone follows from sums that are not released."""

    def besides(self, me: Any, arm: int, stratum: int, before: Sequence[float], reward: float) -> None:
        """The better they are, the more."""
        me.alone = me.alone_later = 1.0 + (max(me.totals[arm]) > GRID / 2)


class LongerCellSite(_StrataSite):
    """The batch of the first stratum ends later after a good reward."""

    def besides(self, me: Any, arm: int, stratum: int, before: Sequence[float], reward: float) -> None:
        """By one."""
        me.cell_end[arm][stratum] += reward > GRID / 2 and stratum == 0
        me.arm_end[arm] += reward > GRID / 2 and stratum == 0


# ---------------------------------------------------------------- what others are told


class _EvaluatingSite(Site):
    """With an evaluator of its own."""

    evaluator = Evaluator

    def _take_over(self, stored: Stored) -> None:
        super()._take_over(stored)
        if self._evaluator is not None:
            self._evaluator = self._decisions._evaluator = self.evaluator(self.terms, self._stored, self._noise)


class _BareEvaluator(Evaluator):
    def release(self) -> tuple[Record, ...]:
        draw = self._ledger.draw
        self._ledger.draw = lambda *place: 0 * draw(*place)
        try:
            return super().release()
        finally:
            del self._ledger.draw


class BareSumsSite(_EvaluatingSite):
    """Draws noise for them, and forgets to add it."""

    evaluator = _BareEvaluator


class _DoublingEvaluator(Evaluator):
    def _add(self, it: Any, reward: int) -> None:
        super()._add(it, 2 * reward)


class DoubledSumsSite(_EvaluatingSite):
    """Adds each reward twice."""

    evaluator = _DoublingEvaluator


class GuardingSite(RememberingSite):
    """It asks to be shown what a neighbour claims to have only while its rewards are good."""

    def receive_have(self, by: str, have: Have) -> Step[bool]:
        """And believes it otherwise."""
        step = super().receive_have(by, have)
        return Step(False, step.records) if self.is_bad else step


class RailSite(RememberingSite):
    """Its guardrail suspends an arm whose own rewards are all bad."""

    def needs_guarding(self) -> bool:
        """Wherever there are guardrails."""
        return self._guard is not None

    def guard(self, at: int) -> Step[tuple[ArmChange, ...]]:
        """By raw rewards."""
        for arm, name in enumerate(self.arms.names[1:], 1):
            told = self.told_of(arm)
            if told and max(told) == self.terms.low and arm not in self.stopped:
                step = self.change_arm("suspend", name, at)
                return Step((step.result,), step.records)
        return super().guard(at)


class ReasonSite(RememberingSite):
    """The reason of a change of arms ends in the last reward."""

    def change_arm(
        self, kind: ChangeKind, name: str, at: int, reason: str = "", levels: Mapping[str, str] | None = None
    ) -> Step[ArmChange]:
        """For the record."""
        return super().change_arm(kind, name, at, reason + (" badly" if self.is_bad else ""), levels)


class ResumedSite(Site):
    """An arm that is resumed shows the sum of its open batch."""

    def change_arm(
        self, kind: ChangeKind, name: str, at: int, reason: str = "", levels: Mapping[str, str] | None = None
    ) -> Step[ArmChange]:
        """At once."""
        step = super().change_arm(kind, name, at, reason, levels)
        if kind == "resume":
            arm = self.arms.names.index(name)
            if not self.terms.num_strata:
                self._player.me.x_mean[arm] += self._player.me.total[arm]
        return step


class PatientsSite(Site):
    """It shows as patients those that have a reward."""

    @property
    def patients(self) -> tuple[int, ...]:
        """Of its own."""
        unrewarded = [0] * len(self.arms.names)
        for it in self._stored.decisions.values():
            unrewarded[it.arm] += not it.rewarded
        return tuple(n - rest for n, rest in zip(super().patients, unrewarded, strict=True))


class WithholdingSite(RememberingSite):
    """A neighbour that lacks bulletins gets none while rewards are bad."""

    def newer_than(self, have: Have, to: str = "") -> list[Signed]:
        """None."""
        return [] if self.is_bad else super().newer_than(have, to)


class SavingSite(RememberingSite):
    """It writes the bulletins of others only while its rewards are good."""

    def board_rows(self) -> Step[None]:
        """Else later."""
        return Step(None) if self.is_bad else super().board_rows()


class TrailSite(RememberingSite):
    """Its audit trail has another time while rewards are bad."""

    def entries(self, records: Sequence[Record], deed: Deed, at: int) -> Sequence[Entry]:
        """By a millisecond."""
        return super().entries(records, deed, at + self.is_bad)
