"""Plays trials of a way to act, and watches when the best arm leads and how many patients get a worse one.

The best arm leads *for good* from the time on at which it has a site's highest estimate at every recorded time until
the end of the run. A run lasts at least twice, as a rule ``TO_THE_END`` times, as long as the answer it gives.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from math import ceil, inf, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine import cpu
from fedbandit.planning.curves import Curve, Share, share_of
from fedbandit.planning.question import MOST_PATIENTS, Question, means_of_trials, problems
from fedbandit.planning.sureness import deviations, sure_of
from fedbandit.policies import FedBatch, FewPatientsWarning, Policy
from fedbandit.simulation.run import check_call, truths_of

__all__ = ["OnRun", "Player", "rounds_at_most"]

OnRun = Callable[[str, int, int], None]
"""Takes the name of a run, and the agent-pulls that it has done and will do."""

PILOT_TRIALS, LEAST_PILOT_TRIALS, FINAL_TRIALS, LEAST_FINAL_TRIALS, SURE_TRIALS = 60, 30, 600, 100, 200
FINAL_WORK, MOST_WORK = 2.5e8, 2e9
"""Agent-pulls times arms of a run: beyond the first there are fewer trials, beyond the second nothing is simulated.

Two cores do about 1e8 in a second.
"""
TO_THE_END = 3
_STEP, _MOST_TIMES = 0.09, 90
_SITES_ASKED = 2  # of each trial whether they are sure: sites of a trial agree


class Player(NamedTuple):
    """Plays one way to act: a policy at all sites, or at a site alone."""

    question: Question
    policy: Policy
    alone: bool
    show: OnRun

    @property
    def agents(self) -> int:
        """In one trial."""
        return 1 if self.alone else self.question.sites

    @property
    def most(self) -> int:
        """Rounds beyond which nothing is simulated; before them every arm has had a patient."""
        return rounds_at_most(self.agents, self.question.arms) - self.question.arms

    @property
    def way(self) -> str:
        """What it plays, in a word."""
        return "alone" if self.alone else "together" if isinstance(self.policy, FedBatch) else "pooled"

    def search(self, start: int, at_least: int = 0) -> Curve:
        """Double the number of patients until a third of them suffices to find the best arm, or they are too many."""
        rounds = min(max(start, TO_THE_END * at_least), self.most)
        while True:
            trials = self._trials(rounds, LEAST_PILOT_TRIALS, PILOT_TRIALS) * (4 if self.alone else 1)
            pilot = self.play(rounds, trials, asks=False)
            if TO_THE_END * pilot.found <= rounds or rounds >= self.most:
                break
            rounds = min(2 * rounds, self.most)
        if pilot.found == inf:
            return pilot
        curve = self.play(rounds)
        is_short = 2 * curve.found > rounds  # the pilot was lucky
        return self.play(min(2 * rounds, self.most)) if is_short and rounds < self.most else curve

    def until_sure(self, curve: Curve) -> Curve:
        """The same curve, with ``sure`` from longer runs if its own is too short to see sites become sure."""
        if curve.found == inf or _is_within(curve.sure):
            return curve
        rounds, most = min(curve.last, self.most), self.most
        while rounds < most:
            rounds = min(2 * rounds, most)
            if _is_within(self.play(rounds, LEAST_PILOT_TRIALS).sure):
                break
        return replace(curve, sure=self.play(rounds, self._trials(rounds, LEAST_FINAL_TRIALS, SURE_TRIALS)).sure)

    def _trials(self, rounds: int, least: int, most: int) -> int:
        return max(least, min(most, int(FINAL_WORK / (self.agents * rounds * self.question.arms))))

    def play(self, rounds: int, trials: int | None = None, asks: bool = True) -> Curve:
        """So many patients per site, in so many trials, by default as many as take a few seconds.

        ``asks``: whether to ask sites if they are sure, which takes time.
        """
        if trials is None:
            trials = self._trials(rounds, LEAST_FINAL_TRIALS, FINAL_TRIALS)
        times = _times(rounds)
        means = means_of_trials(self.question, trials)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewPatientsWarning)  # a plan says it in its own words
            call = check_call(
                problems(self.question, means, self.alone), self.policy, rounds, trials, self.question.seed, times
            )
        best, asked = self.question.best_arm, min(_SITES_ASKED, self.agents)
        leads = np.zeros((trials, self.agents, len(call.times)))
        heard = min(trials, SURE_TRIALS) if asks else 1, asked, len(call.times)
        judges, estimates = np.zeros(heard, bool), np.zeros((2, *heard, self.question.arms))

        def see(_: int, trial: int, c: int, theta: NDArray[np.float64], agents: Any) -> None:
            highest = theta == theta.max(axis=1, keepdims=True)
            leads[trial, :, c] = highest[:, best] / highest.sum(axis=1)
            if asks and trial < len(judges):
                sites = (trial + np.arange(asked) * (self.agents // asked)) % self.agents
                estimates[0, trial, :, c] = theta[sites]
                estimates[1, trial, :, c], judges[trial, :, c] = deviations(agents, sites)

        total, run = trials * rounds * self.agents, f"{self.way}, {rounds + self.question.arms:,} patients per site"
        (record,) = cpu.run_trials(
            [truths_of(problem) for problem in call.problems],
            call.plans,
            call.times,
            call.trials,
            call.seed,
            cpu.usable_cores(),
            lambda done: self.show(run, done * self.agents, total),
            on_estimates=see,
        )
        patients = (call.times + self.question.arms).astype(np.float64)
        own_means = np.stack([problem.means for problem in call.problems])
        sure = judges & sure_of(best, *estimates.reshape(2, -1, self.question.arms)).reshape(heard)
        kept = np.logical_and.accumulate(leads[..., ::-1] == 1.0, axis=-1)[..., ::-1].astype(np.float64)
        return Curve(
            patients,
            share_of(kept, patients),
            share_of(leads, patients),
            share_of(sure.astype(np.float64), patients),
            (record.pulls.sum(axis=-1) - record.pulls[..., best]).mean(axis=(0, 1)),
            100.0 * np.einsum("rntk,rnk->t", record.pulls, own_means) / (trials * self.agents * patients),
            trials,
        )


def _is_within(share: Share) -> bool:
    """Whether the run was long enough to tell that the share stays."""
    return 1.5 * share.reached <= share.last


def rounds_at_most(agents: int, arms: int) -> int:
    """The patients per site beyond which nothing is simulated."""
    return min(MOST_PATIENTS, int(MOST_WORK / (LEAST_FINAL_TRIALS * agents * arms)))


def _times(rounds: int) -> list[int]:
    first = max(1.0, rounds / 2000.0)
    count = max(2, min(_MOST_TIMES, ceil(log(max(rounds, 2) / first) / _STEP)))
    return [int(time) for time in np.unique(np.rint(np.geomspace(first, rounds, count)).astype(np.int64))]
