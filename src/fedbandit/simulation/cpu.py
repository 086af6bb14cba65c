"""The CPU engine: trials spread over threads, each played from checkpoint to checkpoint in compiled code."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.policies.protocol import Page
from fedbandit.simulation.compiled import compile_driver
from fedbandit.simulation.layout import Links, World, new_population, no_tape, with_own_scratch

__all__ = ["Plan", "Record", "Truth", "run_trials", "usable_cores"]

_MOST_ROUNDS_AT_ONCE, _MOST_WORK_AT_ONCE = 65536, 100_000_000
"""Rounds, and rounds times agents times arms, between progress reports and checks for a stop."""


class Record(NamedTuple):
    """The numbers recorded at each checkpoint; the leading axis is the trial."""

    regret: NDArray[np.float64]  # [trial, agent, time]
    pulls: NDArray[np.int32]  # [trial, agent, time, arm]
    messages: NDArray[np.int64]  # [trial, agent, time]
    lagging: NDArray[np.float64]
    theta_error: NDArray[np.float64]
    misses: NDArray[np.float64]  # estimates off by more than their radius since the last checkpoint, if watched

    def of(self, trial: int) -> "Record":
        """Views of one trial."""
        return Record(*(array[trial] for array in self))


def new_record(num_trials: int, num_agents: int, num_times: int, num_arms: int) -> Record:
    """Zeros of the right shapes."""
    shape = (num_trials, num_agents, num_times)
    return Record(
        regret=np.zeros(shape),
        pulls=np.zeros((*shape, num_arms), np.int32),
        messages=np.zeros(shape, np.int64),
        lagging=np.zeros(shape),
        theta_error=np.zeros(shape),
        misses=np.zeros(shape),
    )


class Plan(NamedTuple):
    """A policy on a problem: its page, the agents' fixed numbers, the links that it uses, and the compiled rounds."""

    page: Page
    terms: Any
    links: Links
    play_rounds: Callable[..., None]


@compile_driver
def _record(
    tried: Any, clock: Any, messages: Any, caught_up: Any, theta: Any, gaps: Any, arm_means: Any, c: int, record: Any
) -> None:
    """Record a checkpoint."""
    num_agents, num_arms = tried.shape
    for i in range(num_agents):
        regret, error = 0.0, 0.0
        for k in range(num_arms):
            regret += gaps[k] * (tried[i, k] - 1)  # R_i(T) counts t >= 1: the pulls at t = 0 do not
            error += abs(theta[i, k] - arm_means[k])
            record.pulls[i, c, k] = tried[i, k]
        record.regret[i, c] = regret
        record.theta_error[i, c] = error / num_arms
        record.messages[i, c] = messages[i]
        record.lagging[i, c] = caught_up[i] / max(clock[i], 1)


def usable_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Truth(NamedTuple):
    """The world of a trial, and the truth for its regret and errors."""

    world: World
    gaps: NDArray[np.float64]
    arm_means: NDArray[np.float64]


def _run_trial(
    truth: Truth, plan: Plan, times: NDArray[np.int64], seed: int, trial: int, record: Record
) -> Iterator[int]:
    """Play a trial; yields the number of rounds done."""
    num_agents, num_arms = truth.world.means.shape
    population = new_population(plan.page, plan.terms, num_arms)
    links, theta, misses = with_own_scratch(plan.links), np.zeros((num_agents, num_arms)), np.zeros(num_agents)
    caught_up = population.agents["caught_up"] if "caught_up" in plan.page.knows else np.zeros(num_agents, np.int32)
    at_once = max(1, min(_MOST_ROUNDS_AT_ONCE, _MOST_WORK_AT_ONCE // (num_agents * num_arms)))
    done = -1
    for c, time in enumerate(times.tolist()):
        misses[:] = 0.0
        while done < time:
            first, done = done + 1, min(done + at_once, time)
            plan.play_rounds(
                first,
                done,
                np.uint64(seed),
                np.uint64(trial),
                population,
                truth.world,
                links,
                no_tape(),
                theta,
                truth.arm_means,
                misses,
            )
            yield done
        turns = population.turns
        tried, clock, messages = population.agents["tried"], turns["clock"], turns["messages"]
        _record(tried, clock, messages, caught_up, theta, truth.gaps, truth.arm_means, c, record)
        record.misses[:, c] = misses


def run_trials(
    truths: Sequence[Truth],
    plans: Sequence[Plan],
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    threads: int,
    on_rounds: Callable[[int], None],
) -> list[Record]:
    """Play all trials of all plans; return a record per plan. ``on_rounds`` receives the number of rounds done so far.

    ``truths`` has one entry for all trials, or one for each.

    An exception, including Ctrl-C, stops the other threads within some ten thousand rounds.
    """
    num_agents, num_arms = truths[0].world.means.shape
    records = [new_record(len(trials), num_agents, len(times), num_arms) for _ in plans]
    stopped = False
    rounds_done = np.zeros(len(plans) * len(trials), np.int64)

    def run(job: int) -> None:
        which, position = divmod(job, len(trials))
        truth = truths[position if len(truths) > 1 else 0]
        record = records[which].of(position)
        for done in _run_trial(truth, plans[which], times, seed, trials[position], record):
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
