"""Aggregates over agents, for results without an entry for each of them: mean, least, largest, standard deviation.

The mean keeps the variable's name, so ``regret`` is the mean regret per agent; the others add to it: ``regret_min``,
``regret_max``, ``regret_std``.
"""

import os
import sys
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.engine.layout import LinkArrays, World, new_population, no_tape, with_own_scratch
from fedbandit.engine.phases import Specialisation
from fedbandit.engine.threads import Team, stop, team_of
from fedbandit.policies.protocol import Page
from fedbandit.shares import Shares

__all__ = [
    "STATISTICS",
    "CompiledPolicy",
    "Keep",
    "Record",
    "Truth",
    "checked_keep",
    "named",
    "run_trials",
    "spread_of",
    "statistics",
    "usable_cores",
]


Keep = Literal["agents", "aggregates"]
STATISTICS = ("", "_min", "_max", "_std")
"""What is added to a variable's name, in the order of the engine's arrays."""

_WORDS = {"": "mean over agents of: ", "_min": "least of any agent: ", "_max": "largest of any agent: "}


def checked_keep(keep: Any) -> Keep:
    """What a result keeps, or an error."""
    if keep not in ("agents", "aggregates"):
        raise InvalidArgument("keep", keep, "'agents' or 'aggregates'")
    return keep


def statistics(values: NDArray[Any]) -> NDArray[np.float64]:
    """Of numbers with an entry for each agent first: one row for each of the ``STATISTICS``."""
    numbers = values.astype(np.float64)
    return np.stack([numbers.mean(axis=0), numbers.min(axis=0), numbers.max(axis=0), numbers.std(axis=0)])


def spread_of(theta: NDArray[np.float64]) -> float:
    """How far agents disagree: the standard deviation over agents of an arm's estimate, on average over arms."""
    return float(theta.std(axis=0).mean())


def named(name: str, array: NDArray[Any], about: str) -> dict[str, tuple[NDArray[Any], str]]:
    """The variables of the ``STATISTICS``, which are the third axis: [policy, trial, statistic, ...]."""
    return {
        name + suffix: (array[:, :, position], _WORDS.get(suffix, "standard deviation over agents of: ") + about)
        for position, suffix in enumerate(STATISTICS)
    }


# ---------------------------------------------------------------- the cpu engine


_MOST_NUMBERS_AT_ONCE = 1_000_000
_ALL = slice(None)
_NEVER = sys.maxsize  # a round that no run reaches
_MOST_ROUNDS_AT_ONCE, _MOST_WORK_AT_ONCE = 65536, 100_000_000
"""Rounds, and rounds times agents times arms, between progress reports and checks for a stop."""

_LEAST_AGENTS_PER_THREAD = 2_000
_LINKS = 6  # their place among the arguments of the compiled loop


class Record(NamedTuple):
    """The numbers recorded at each checkpoint; the leading axis is the trial.

    Where aggregates are kept, statistics over agents stand where agents would (``fedbandit.engine.cpu``).
    """

    regret: NDArray[np.float64]  # [trial, agent, time]
    pulls: NDArray[Any]  # [trial, agent, time, arm]
    best_pulls: NDArray[Any]  # [trial, agent, time]: pulls of the best arm of the moment
    messages: NDArray[Any]
    lagging: NDArray[np.float64]
    theta_error: NDArray[np.float64]
    misses: NDArray[np.float64]  # estimates off by more than their radius since the last checkpoint, if watched
    disagreement: NDArray[np.float64]  # [trial, time]: where aggregates are kept

    def of(self, trial: int) -> "Record":
        """Views of one trial."""
        return Record(*(array[trial] for array in self))


def new_record(num_trials: int, num_agents: int, num_times: int, num_arms: int, keep: Keep = "agents") -> Record:
    """Zeros of the right shapes."""
    aggregated = keep == "aggregates"
    shape = (num_trials, len(STATISTICS) if aggregated else num_agents, num_times)
    return Record(
        regret=np.zeros(shape),
        pulls=np.zeros((*shape, num_arms), np.float64 if aggregated else np.int32),
        best_pulls=np.zeros(shape, np.float64 if aggregated else np.int64),
        messages=np.zeros(shape, np.float64 if aggregated else np.int64),
        lagging=np.zeros(shape),
        theta_error=np.zeros(shape),
        misses=np.zeros(shape),
        disagreement=np.zeros((num_trials, num_times if aggregated else 0)),
    )


class CompiledPolicy(NamedTuple):
    """A policy on a problem: its page, the agents' fixed numbers, the links that it uses, and the compiled rounds."""

    page: Page
    terms: Any
    links: Sequence[tuple[int, LinkArrays]]  # by their first round
    play_rounds: Callable[..., None]
    specialisation: Specialisation
    rounds_of_waiting: int = 0  # how long a reward may wait until it counts; 0: all count at once
    shares: Shares | None = None
    kind: str = ""  # the policy's name in messages


def usable_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Truth(NamedTuple):
    """The world of a trial while its means stay the same, and the truth for its regret and errors."""

    first: int  # round
    world: World
    gaps: NDArray[np.float64]
    arm_means: NDArray[np.float64]


class _Books:
    """What one trial has cost so far: pulls since the last change of the means, and the loss before it."""

    def __init__(self, num_agents: int, num_arms: int) -> None:
        self.lost = np.zeros(num_agents)
        self.best = np.zeros(num_agents, np.int64)
        self.counted = np.ones((num_agents, num_arms), np.int32)  # R_i(T) counts t >= 1: the pulls at t = 0 do not

    def regret(self, truth: Truth, tried: NDArray[np.int32]) -> NDArray[np.float64]:
        """R_i so far, for pulls under ``truth`` since the last change."""
        return self.lost + _sum_over_arms(lambda part: truth.gaps * (tried[part] - self.counted[part]), *tried.shape)

    def best_pulls(self, truth: Truth, tried: NDArray[np.int32]) -> NDArray[np.int64]:
        """Pulls of the best arm of the moment."""
        arm = int(truth.gaps.argmin())
        return self.best + tried[:, arm] - self.counted[:, arm]

    def settle(self, truth: Truth, tried: NDArray[np.int32]) -> None:
        """The means of ``truth`` end here."""
        self.lost, self.best = self.regret(truth, tried), self.best_pulls(truth, tried)
        self.counted = tried.copy()


def _sum_over_arms(
    terms: Callable[[slice], NDArray[np.float64]], num_agents: int, num_arms: int
) -> NDArray[np.float64]:
    """For each agent the sum of its terms, one arm after the other; in parts, to save memory."""
    at_once = max(1, _MOST_NUMBERS_AT_ONCE // num_arms)
    if num_agents <= at_once:
        return terms(_ALL).cumsum(axis=1)[:, -1]
    sums = np.empty(num_agents)
    for start in range(0, num_agents, at_once):
        part = slice(start, start + at_once)
        sums[part] = terms(part).cumsum(axis=1)[:, -1]
    return sums


def _run_trial(
    truths: Sequence[Truth],
    plan: CompiledPolicy,
    times: NDArray[np.int64],
    seed: int,
    trial: int,
    record: Record,
    keep: Keep,
    threads: int,
    on_estimates: Callable[[int, NDArray[np.float64], Any], None],
) -> Iterator[int]:
    """Play a trial in so many threads; yields the number of rounds done."""
    num_agents, num_arms = truths[0].world.means.shape
    population = new_population(plan.page, plan.terms, num_arms, plan.rounds_of_waiting, plan.shares)
    tried, messages, clock = population.agents["tried"], population.steps["messages"], population.steps["clock"]
    links, tape = [with_own_scratch(each) for _, each in plan.links], no_tape()
    theta, misses, books = np.zeros((num_agents, num_arms)), np.zeros(num_agents), _Books(num_agents, num_arms)
    caught_up = population.agents["caught_up"] if "caught_up" in plan.page.knows else np.zeros(num_agents, np.int32)
    at_once = max(1, min(_MOST_ROUNDS_AT_ONCE, _MOST_WORK_AT_ONCE // (num_agents * num_arms)))
    truth_starts, link_starts = [truth.first for truth in truths], [first for first, _ in plan.links]
    changes = [*sorted({*truth_starts, *link_starts}), _NEVER]
    done, truth = -1, truths[0]
    told = statistics if keep == "aggregates" else _as_it_is
    for c, time in enumerate(times.tolist()):
        if keep == "agents":
            misses[:] = 0.0
        while done < time:
            first = done + 1
            if truths[bisect(truth_starts, first) - 1] is not truth:
                books.settle(truth, tried)
                truth = truths[bisect(truth_starts, first) - 1]
            if first in link_starts:
                population.shown.stirred[:] = 1  # to a new neighbour, all is news
            next_change = changes[bisect(changes, first)]
            done = min(done + at_once, time, next_change - 1)
            _play_together(
                plan.play_rounds,
                threads,
                first,
                done,
                np.uint64(seed),
                np.uint64(trial),
                population,
                truth.world,
                links[bisect(link_starts, first) - 1],
                tape,
                theta,
                truth.arm_means,
                misses,
            )
            yield done
        error = _sum_over_arms(lambda part: np.abs(theta[part] - truth.arm_means), num_agents, num_arms)  # noqa: B023
        record.pulls[:, c] = told(tried)
        record.regret[:, c] = told(books.regret(truth, tried))
        record.best_pulls[:, c] = told(books.best_pulls(truth, tried))
        record.theta_error[:, c] = told(error / num_arms)
        record.messages[:, c] = told(messages)
        record.lagging[:, c] = told(caught_up / np.maximum(clock, 1))
        record.misses[:, c] = told(misses)
        on_estimates(c, theta, population.agents)
        if keep == "aggregates":
            record.disagreement[c] = spread_of(theta)


def _as_it_is(values: NDArray[Any]) -> NDArray[Any]:
    return values


def _play_together(play_rounds: Callable[..., None], threads: int, *arguments: Any) -> None:
    """Play rounds of a trial, each thread with a slice of its agents; bit for bit as one thread does."""
    if threads == 1:
        play_rounds(*arguments)
        return
    links: LinkArrays = arguments[_LINKS]
    counters, team = team_of(len(links.degree), threads)

    def play(part: Team) -> None:
        try:
            play_rounds(*arguments[:_LINKS], links._replace(team=part), *arguments[_LINKS + 1 :])
        except BaseException:
            stop(counters)
            raise

    with ThreadPoolExecutor(threads - 1) as pool:
        try:
            others = [pool.submit(play, part) for part in team[1:]]
            play(team[0])
        except BaseException:  # also if a thread cannot start
            stop(counters)
            raise
        for other in others:
            other.result()


def run_trials(
    truths: Sequence[Sequence[Truth]],
    plans: Sequence[CompiledPolicy],
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    threads: int,
    on_rounds: Callable[[int], None],
    keep: Keep = "agents",
    on_estimates: Callable[[int, int, int, NDArray[np.float64], Any], None] | None = None,
) -> list[Record]:
    """Play all trials of all plans; return a record per plan. ``on_rounds`` receives the number of rounds done so far.

    ``on_estimates`` receives plan, position of the trial, checkpoint, all estimates [agent, arm] and the agents'
    records, whose memory is used again; called from several threads.

    If there are more threads than trials, several play a large trial together.

    ``truths`` has one entry for all trials, or one for each: the truth of each period with the same means.

    An exception, including Ctrl-C, stops the other threads within some ten thousand rounds.
    """
    num_agents, num_arms = truths[0][0].world.means.shape
    records = [new_record(len(trials), num_agents, len(times), num_arms, keep) for _ in plans]
    together = max(1, min(threads // (len(plans) * len(trials)), num_agents // _LEAST_AGENTS_PER_THREAD))
    stopped = False
    rounds_done = np.zeros(len(plans) * len(trials), np.int64)

    def run(job: int) -> None:
        which, position = divmod(job, len(trials))
        mine = truths[position if len(truths) > 1 else 0]
        record = records[which].of(position)

        def tell(c: int, theta: NDArray[np.float64], agents: Any) -> None:
            if on_estimates is not None:
                on_estimates(which, position, c, theta, agents)

        for done in _run_trial(mine, plans[which], times, seed, trials[position], record, keep, together, tell):
            rounds_done[job] = done
            if stopped:
                return

    with ThreadPoolExecutor(threads) as pool:
        try:
            _wait({pool.submit(run, job) for job in range(len(rounds_done))}, rounds_done, on_rounds)
        except BaseException:
            stopped = True
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return records


def _wait(pending: set[Future[None]], rounds_done: NDArray[np.int64], on_rounds: Callable[[int], None]) -> None:
    while pending:
        done, pending = wait(pending, timeout=0.1, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        on_rounds(int(rounds_done.sum()))
