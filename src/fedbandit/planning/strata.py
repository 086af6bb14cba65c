"""Forecasts how many patients it takes until the best arm of each stratum leads, and what it costs to ignore strata.

Two worlds are simulated, since nobody knows beforehand which it is: in one each stratum has a best arm of its own, by
turns; in the other the same arm is best for everybody. In both the best arm of a stratum exceeds the others by the gap.
Sites differ as in ``question``, in each stratum by the same. Sites gossip bulletins (``gossip="releases"``).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.engine import cpu
from fedbandit.planning.forecast import ForecastTable, about, duration, percent
from fedbandit.planning.question import CERTAINTY, Question, means_of_trials
from fedbandit.planning.trials import Share, deviations, share_of, sure_of
from fedbandit.policies import FedBatch, FewPatientsWarning
from fedbandit.simulation.run import check_call, truths_of
from fedbandit.world.problem import Problem

MOST_STRATA_PLANNED = 12
"""More make each run too long."""

TRIALS, QUICK_TRIALS, LEAST = 100, 25, 64
WORK = 4e6
"""Agent-pulls of a run; nothing longer is simulated."""

WAYS = {"told of strata": "strata", "one arm for all": "ignore", "each stratum by itself": "separate"}
"""How strata may be taken: by name, and ``FedBatch.context``."""

OnRun = Callable[[str], None]
"""Takes the name of a run that begins."""


def shares_from(text: str) -> tuple[float, ...]:
    """How often each stratum comes: from a number of strata, or from percentages such as "60,25,10,5"."""
    accepted = (
        f"a number of strata from 2 to {MOST_STRATA_PLANNED}, or percentages with the sum 100, such as 60,25,10,5"
    )
    parts = [it.strip() for it in text.split(",")]
    try:
        numbers = [float(it) for it in parts]
    except ValueError:
        raise InvalidArgument("strata", text, accepted) from None
    if len(parts) == 1 and numbers[0] in range(2, MOST_STRATA_PLANNED + 1):
        return (1.0 / numbers[0],) * int(numbers[0])
    are_fine = 2 <= len(numbers) <= MOST_STRATA_PLANNED and min(numbers) > 0.0 and abs(sum(numbers) - 100.0) < 1e-6
    if not are_fine:
        raise InvalidArgument("strata", text, accepted)
    return tuple(it / sum(numbers) for it in numbers)


@dataclass(frozen=True, eq=False)
class StrataCurve:
    """One way to take strata in one world, against patients per site of all strata.

    * ``kept``: of each stratum the share of sites at which its best arm leads for good; ``sure``: that are sure of it
    * ``worse``: patients per site so far who got an arm that is worse for their stratum, on average over all sites
    """

    patients: NDArray[np.float64]
    kept: tuple[Share, ...]
    sure: tuple[Share, ...]
    worse: NDArray[np.float64]
    trials: int

    @property
    def last(self) -> int:
        """Patients per site that were simulated."""
        return int(self.patients[-1])

    def worse_at(self, patients: float) -> float:
        """Patients per site, of so many, who get a worse arm."""
        return float(np.interp(patients, self.patients, self.worse))


class World(NamedTuple):
    """Whether strata differ, in words, and the best arm of each stratum."""

    words: str
    best: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StrataForecast:
    """Curves of each way in both worlds; ``shares``: how often each stratum comes."""

    question: Question
    shares: tuple[float, ...]
    curves: dict[str, dict[str, StrataCurve]]

    @property
    def words(self) -> str:
        """The answer in a few sentences."""
        question = self.question
        differ, alike = self.curves.values()
        told, ignored = differ["told of strata"], differ["one arm for all"]
        found = max(it.reached for it in told.kept)
        sure = max(it.reached for it in told.sure)
        same, one = alike["told of strata"], alike["one arm for all"]
        many = f"{question.sites} sites that are told of them, with epsilon {question.epsilon:g},"
        then, later = min(found, float(told.last)), min(float(curve.last) for curve in alike.values())
        cost = max(same.worse_at(later) - one.worse_at(later), 0.0)
        return (
            f"If the best of {question.arms} arms is another one for each of {len(self.shares)} strata, {many} need "
            f"{self._in_words(found, told.last)} until it leads for good in every stratum at {percent(CERTAINTY)} of "
            f"them, and {self._in_words(sure, told.last)} until they can be sure of it. Of the first {about(then)} "
            f"patients per site about {about(told.worse_at(then))} get an arm that is worse for them; with one arm for "
            f"all it would be {about(ignored.worse_at(then))}, and it would stay so for ever. If strata do not matter, "
            f"being told of them gives {about(cost)} more of the first {about(later)} patients per site a worse arm."
        )

    def _in_words(self, patients: float, last: int) -> str:
        if patients == inf:
            return f"more than {about(last)} patients per site"
        return f"about {about(patients)} patients per site ({duration(self.question.days(patients))})"

    @property
    def tables(self) -> list[ForecastTable]:
        """Of each world: patients per site until the best arm of each stratum leads, and until sites are sure."""
        return [self._table(words, ways) for words, ways in self.curves.items()]

    def _table(self, words: str, ways: dict[str, StrataCurve]) -> ForecastTable:
        rows: list[list[str]] = []
        for name, curve in ways.items():
            for s, share in enumerate(self.shares):
                leads, sure = curve.kept[s].reached, curve.sure[s].reached
                rows.append(
                    [
                        name if s == 0 else "",
                        f"{s + 1} ({percent(share)})",
                        *(self._cell(it, curve.last) for it in (leads, sure)),
                        "-" if leads == inf else about(share * leads),
                        f"{percent(curve.worse_at(curve.last) / curve.last)}" if s == 0 else "",
                    ]
                )
        headings = [
            "",
            "stratum",
            "its best arm\nleads",
            "sites\nare sure",
            "of these in\nthe stratum",
            "get a worse\narm",
        ]
        note = f"Patients per site, of all strata. Worse arms: of the first {about(next(iter(ways.values())).last)}."
        return ForecastTable(words, headings, rows, note)

    def _cell(self, patients: float, last: int) -> str:
        return f"> {about(last)}" if patients == inf else about(patients)


def forecast_of_strata(question: Question, shares: tuple[float, ...], quick: bool, show: OnRun) -> StrataForecast:
    """Simulate both worlds, in each way."""
    if question.arms < 2 or question.waiting:
        raise InvalidArgument("reward_window", question.reward_window, "0 with strata")
    num, arms = len(shares), question.arms
    worlds = (
        World("Each stratum has its own best arm", tuple((arms - 1 - s) % arms for s in range(num))),
        World("The same arm is best for everybody", (arms - 1,) * num),
    )
    curves: dict[str, dict[str, StrataCurve]] = {}
    for world in worlds:
        rounds = _rounds(question, shares, world, quick, show)
        curves[world.words] = {
            name: _play(question, shares, world, context, rounds, quick, show) for name, context in WAYS.items()
        }
    return StrataForecast(question, shares, curves)


def _rounds(question: Question, shares: tuple[float, ...], world: World, quick: bool, show: OnRun) -> int:
    """Three times as many as it takes, told of strata, until sites are sure; or as many as may be."""
    trials = QUICK_TRIALS if quick else TRIALS
    most = int(WORK / (question.sites * trials))
    rounds = LEAST * len(shares) * question.arms
    while rounds < most:
        found = _play(question, shares, world, "strata", rounds, True, show)
        if 3.0 * max(it.reached for it in found.sure) <= rounds:
            return rounds
        rounds = min(4 * rounds, most)
    return max(most, LEAST)


def _means(question: Question, world: World, trials: int) -> NDArray[np.float64]:
    """By trial, site, stratum and arm: the best arm changes places with the last."""
    plain = means_of_trials(question, trials)
    by_stratum = np.repeat(plain[:, :, np.newaxis, :], len(world.best), axis=2)
    for s, best in enumerate(world.best):
        swap = np.arange(question.arms)
        swap[[best, question.best_arm]] = swap[[question.best_arm, best]]
        by_stratum[:, :, s] = plain[:, :, swap]
    return by_stratum


def _play(
    question: Question, shares: tuple[float, ...], world: World, context: Any, rounds: int, quick: bool, show: OnRun
) -> StrataCurve:
    trials = QUICK_TRIALS if quick else TRIALS
    show(f"{world.words}, {context}, {rounds:,} patients per site, {trials} trials")
    count = max(2, ceil(log(rounds / 8.0) / 0.12))
    times = [int(it) for it in np.unique(np.rint(np.geomspace(8.0, rounds, count)).astype(np.int64))]
    problems = [
        Problem.bernoulli(means, question.graph, edges_per_round="all", strata=shares, gossip="releases")
        for means in _means(question, world, trials)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewPatientsWarning)
        policy = FedBatch(question.epsilon, context=context)
        call = check_call(problems, policy, rounds, trials, question.seed, times)
    num, arms, sites = len(shares), question.arms, question.sites
    leads = np.zeros((num, trials, sites, len(call.times)))
    sure = np.zeros((num, trials, sites, len(call.times)))

    def see(_: int, trial: int, c: int, theta: NDArray[np.float64], agents: Any) -> None:
        cells = theta.reshape(sites, num, arms)
        for s, best in enumerate(world.best):
            estimates = cells[:, s]
            highest = estimates == estimates.max(axis=1, keepdims=True)
            leads[s, trial, :, c] = highest[:, best] / highest.sum(axis=1)
            errors, can_judge = _errors(agents, s, context)
            sure[s, trial, :, c] = can_judge & sure_of(best, estimates, errors)

    (record,) = cpu.run_trials(
        [truths_of(problem) for problem in call.problems],
        call.compiled,
        call.times,
        call.trials,
        call.seed,
        cpu.usable_cores(),
        lambda _: None,
        on_estimates=see,
    )
    patients = (call.times + arms).astype(np.float64)
    pulls = record.pulls.reshape(trials, sites, len(call.times), num, arms).sum(axis=1).mean(axis=0) / sites
    right = sum(pulls[:, s, best] for s, best in enumerate(world.best))
    kept = np.logical_and.accumulate(leads[..., ::-1] == 1.0, axis=-1)[..., ::-1].astype(np.float64)
    return StrataCurve(
        patients,
        tuple(share_of(kept[s], patients) for s in range(num)),
        tuple(share_of(sure[s], patients) for s in range(num)),
        pulls.sum(axis=(1, 2)) - right,
        trials,
    )


def _errors(agents: Any, stratum: int, context: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The standard deviations of all sites' estimates in a stratum, and who can judge all arms there."""
    if context == "ignore":
        return deviations(agents, np.arange(len(agents)))
    if context == "separate":
        return agents["spread"][:, stratum], ~agents["cell_unknown"][:, stratum].astype(bool).any(axis=1)
    return agents["error"][:, stratum], agents["num_unknown"] == 0
