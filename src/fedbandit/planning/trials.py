"""Plays trials of a way to act: when the best arm leads, when sites are sure of it, how many patients get a worse one.

The best arm leads *for good* from the time on at which it has a site's highest estimate at every recorded time until
the end of the run. A run lasts at least twice, as a rule ``TO_THE_END`` times, as long as the answer it gives.

Sites of a trial share their luck, so trials are what is counted. An interval is Wilson's, for as many independent sites
as would have the variance that is seen between trials. When a curve reaches the certainty is read off the curve, and
its interval off the band. That covers with few trials, too (tests/test_plan.py).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf, log
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine import cpu
from fedbandit.planning.question import CERTAINTY, MOST_PATIENTS, Question, Way, means_of_trials, problems
from fedbandit.policies import FewPatientsWarning, Policy
from fedbandit.rules.batch import PRIOR_REWARDS, largest_reward_variance
from fedbandit.rules.belief import SURE, is_sure, widening
from fedbandit.rules.propensity import chances_of_highest
from fedbandit.simulation.run import check_call, truths_of

# ---------------------------------------------------------------- curves


_Z = 1.959964  # of 95 %


@dataclass(frozen=True, eq=False)
class Share:
    """The share of sites of which something is true, against patients per site, with its 95 % band."""

    patients: NDArray[np.float64]  # per site
    mean: NDArray[np.float64]  # over sites and trials
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def last(self) -> int:
        """Patients per site that were simulated."""
        return int(self.patients[-1])

    @property
    def reached(self) -> float:
        """Patients per site from which on the share is the certainty; infinite: not in this run."""
        return crossing(self.patients, self.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of ``reached``."""
        return crossing(self.patients, self.high), crossing(self.patients, self.low)

    def at(self, patients: float) -> float:
        """The share after so many patients per site."""
        return float(np.interp(patients, self.patients, self.mean))

    def interval_at(self, patients: float) -> tuple[float, float]:
        """The 95 % interval of ``at``."""
        low, high = (float(np.interp(patients, self.patients, side)) for side in (self.low, self.high))
        return low, high


@dataclass(frozen=True, eq=False)
class Curve:
    """One way to act.

    * ``kept``: sites at which the best arm leads for good: from then on until the end of the run.
    * ``leads``: sites at which it leads at that time; arms with the same estimate share the lead.
    * ``sure``: sites that give the best arm a chance of ``SURE``, as a live site would say it.
    * ``worse``: patients per site so far who got an arm that is worse on average over all sites.
    * ``successes``: so far, of 100 patients, in expectation.
    """

    patients: NDArray[np.float64]  # per site
    kept: Share
    leads: Share
    sure: Share
    worse: NDArray[np.float64]
    successes: NDArray[np.float64]
    trials: int

    @property
    def last(self) -> int:
        """Patients per site that were simulated."""
        return self.kept.last

    @property
    def found(self) -> float:
        """Patients per site until the best arm leads for good at 95 % of the sites; infinite: not in this run."""
        return self.kept.reached

    @property
    def known(self) -> float:
        """Patients per site until 95 % of the sites are sure of it; infinite: not in the run of ``sure``."""
        return self.sure.reached

    def worse_at(self, patients: float) -> float:
        """Patients per site, of so many, who get a worse arm."""
        return float(np.interp(patients, self.patients, self.worse))

    def successes_at(self, patients: float) -> float:
        """Successes of 100, of so many patients per site."""
        return float(np.interp(patients, self.patients, self.successes))


def share_of(values: NDArray[np.float64], patients: NDArray[np.float64]) -> Share:
    """From values between 0 and 1 [trial, site, time]."""
    trials, sites = values.shape[:2]
    by_trial = values.mean(axis=1)
    mean = by_trial.mean(axis=0)
    between = by_trial.var(axis=0, ddof=1) / trials if trials > 1 else np.zeros_like(mean)
    alike = mean * (1.0 - mean)
    worth = np.divide(alike, between, out=np.full_like(mean, trials), where=between > 1e-15)
    worth = np.clip(worth, trials, trials * sites)  # independent sites
    wide = 1.0 + _Z * _Z / worth
    middle = (mean + _Z * _Z / (2.0 * worth)) / wide
    half = _Z * np.sqrt(alike / worth + (_Z / (2.0 * worth)) ** 2) / wide
    return Share(patients, mean, middle - half, middle + half)


def crossing(patients: NDArray[np.float64], share: NDArray[np.float64]) -> float:
    """Where a share reaches the certainty and stays, between two times evenly in log; infinite if it never does."""
    below = np.flatnonzero(share < CERTAINTY - 1e-12)
    if len(below) == 0:
        return float(patients[0])
    last = int(below[-1])
    if last + 1 == len(share):
        return inf
    part = (CERTAINTY - share[last]) / (share[last + 1] - share[last])
    return float(patients[last] * (patients[last + 1] / patients[last]) ** part)


# ---------------------------------------------------------------- who is sure


def deviations(agents: Any, sites: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The standard deviations of these sites' estimates [site, arm], and which of them can judge all arms.

    As on the page of a live site (``agent.core.player``): never less than that of the mean over all sites.
    """
    if "spread" not in agents.dtype.names:  # rewards in one place, or of one site
        return agents["deviation"][sites], np.ones(len(sites), bool)
    unseen = largest_reward_variance(0.0, 1.0) / PRIOR_REWARDS
    precision = np.where(agents["releases"] > 0, agents["precision"], 1.0 / unseen)
    own, share = 1.0 / precision[sites], 1.0 / len(precision)
    of_all = share * (1.0 / precision).mean(axis=0)  # sites count alike: sum of (V_j / N^2)
    wider = [[widening(v, share, all_) for v, all_ in zip(row, of_all, strict=True)] for row in own]
    return agents["spread"][sites] * np.array(wider), agents["num_unknown"][sites] == 0


def sure_of(best_arm: int, theta: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each site [site, arm] is sure, and right: its leader is the best arm."""
    rivals = [arm for arm in range(theta.shape[1]) if arm != best_arm]
    ahead = theta[:, best_arm, None] - theta[:, rivals]
    errors = np.hypot(deviation[:, best_arm, None], deviation[:, rivals])
    exact = np.where(ahead > 0.0, np.inf, -np.inf)
    closest = np.divide(ahead, errors, out=exact, where=errors > 0.0).min(axis=1)
    normal = NormalDist()
    sure = closest >= normal.inv_cdf(1.0 - (1.0 - SURE) / len(rivals))
    for site in np.flatnonzero(~sure & (closest >= normal.inv_cdf(SURE))):
        sure[site] = is_sure(chances_of_highest(theta[site].tolist(), deviation[site].tolist())[best_arm])
    return sure


# ---------------------------------------------------------------- runs


OnRun = Callable[[str, int, int], None]
"""Takes the name of a run, and the agent-pulls that it has done and will do."""

PILOT_TRIALS, LEAST_PILOT_TRIALS, FINAL_TRIALS, LEAST_FINAL_TRIALS, SURE_TRIALS = 60, 30, 600, 100, 200
FINAL_WORK, MOST_WORK = 2.5e8, 2e9
"""Agent-pulls times arms of a run: beyond the first there are fewer trials, beyond the second nothing is simulated."""
TO_THE_END = 3
_STEP, _MOST_TIMES = 0.09, 90
_SITES_ASKED = 2  # of each trial whether they are sure: sites of a trial agree


class TrialRunner(NamedTuple):
    """Plays one way to act: a policy at all sites, or at a site alone."""

    question: Question
    way: Way
    policy: Policy
    show: OnRun
    effort: float = 1.0  # of the usual number of trials

    @property
    def agents(self) -> int:
        """In one trial."""
        return 1 if self.way == "alone" or self.pulls_per_round > 1 else self.question.sites

    @property
    def pulls_per_round(self) -> int:
        """Pulls of an agent while a site sees one patient: rewards that are pooled and come late go to one agent."""
        return self.question.sites if self.way == "pooled" and self.question.waiting > 0 else 1

    @property
    def most(self) -> int:
        """Rounds beyond which nothing is simulated; before them every arm has had a patient."""
        return rounds_at_most(self.agents * self.pulls_per_round, self.question.arms) - self.question.arms

    def search(self, start: int, at_least: int = 0) -> Curve:
        """Double the number of patients until a third of them suffices to find the best arm, or they are too many."""
        rounds = min(max(start, TO_THE_END * at_least), self.most)
        while True:
            trials = self._trials(rounds, LEAST_PILOT_TRIALS, PILOT_TRIALS) * (4 if self.way == "alone" else 1)
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
            if _is_within(self.play(rounds, ceil(self.effort * LEAST_PILOT_TRIALS)).sure):
                break
        return replace(curve, sure=self.play(rounds, self._trials(rounds, LEAST_FINAL_TRIALS, SURE_TRIALS)).sure)

    def _trials(self, rounds: int, least: int, most: int) -> int:
        return ceil(self.effort * max(least, min(most, int(FINAL_WORK / self._work(rounds)))))

    def _work(self, rounds: int) -> int:
        """Agent-pulls times arms of one trial."""
        return self.agents * self.pulls_per_round * rounds * self.question.arms

    def play(self, rounds: int, trials: int | None = None, asks: bool = True) -> Curve:
        """So many patients per site, in so many trials, by default as many as take a few seconds.

        ``asks``: whether to ask sites if they are sure, which takes time.
        """
        if trials is None:
            trials = self._trials(rounds, LEAST_FINAL_TRIALS, FINAL_TRIALS)
        pace = self.pulls_per_round
        times = [pace * time for time in _times(rounds)]
        means = means_of_trials(self.question, trials)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewPatientsWarning)  # a plan says it in its own words
            worlds = problems(self.question, means, self.way)
            call = check_call(worlds, self.policy, pace * rounds, trials, self.question.seed, times)
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

        total, run = (
            trials * pace * rounds * self.agents,
            f"{self.way}, {rounds + self.question.arms:,} patients per site",
        )
        (record,) = cpu.run_trials(
            [truths_of(problem) for problem in call.problems],
            call.compiled,
            call.times,
            call.trials,
            call.seed,
            cpu.usable_cores(),
            lambda done: self.show(run, done * self.agents, total),
            on_estimates=see,
        )
        patients = (call.times + self.question.arms) / pace
        own_means = np.stack([problem.means for problem in call.problems])
        sure = judges & sure_of(best, *estimates.reshape(2, -1, self.question.arms)).reshape(heard)
        kept = np.logical_and.accumulate(leads[..., ::-1] == 1.0, axis=-1)[..., ::-1].astype(np.float64)
        return Curve(
            patients,
            share_of(kept, patients),
            share_of(leads, patients),
            share_of(sure.astype(np.float64), patients),
            (record.pulls.sum(axis=-1) - record.pulls[..., best]).mean(axis=(0, 1)) / pace,
            100.0 * np.einsum("rntk,rnk->t", record.pulls, own_means) / (trials * self.agents * pace * patients),
            trials,
        )


def _is_within(share: Share) -> bool:
    """Whether the run was long enough to tell that the share stays."""
    return 1.5 * share.reached <= share.last


def rounds_at_most(agents: int, arms: int) -> int:
    """The patients per site beyond which nothing is simulated."""
    return min(MOST_PATIENTS, int(MOST_WORK / (LEAST_FINAL_TRIALS * agents * arms)))


def work_until_sure(question: Question, rounds: float) -> float:
    """Agent-pulls times arms of all runs that it takes to see sites become sure, if the last has so many rounds."""
    of_trial = question.sites * question.arms * min(rounds, rounds_at_most(question.sites, question.arms))
    final = max(LEAST_FINAL_TRIALS, min(SURE_TRIALS, FINAL_WORK / of_trial))
    return of_trial * (final + 2.0 * LEAST_PILOT_TRIALS)  # pilots have twice as many rounds, each time


def _times(rounds: int) -> list[int]:
    first = max(1.0, rounds / 2000.0)
    count = max(2, min(_MOST_TIMES, ceil(log(max(rounds, 2) / first) / _STEP)))
    return [int(time) for time in np.unique(np.rint(np.geomspace(first, rounds, count)).astype(np.int64))]
