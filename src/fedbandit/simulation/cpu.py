"""The CPU engine: one compiled call per trial, trials spread over threads.

Here belong the loop over rounds, the record at checkpoints and the threads; a round is ``round``'s.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.simulation.compiled import SOURCES, compile_driver, compile_rare
from fedbandit.simulation.decide import set_radii
from fedbandit.simulation.round import name_streams, play_round, pull_every_arm_once
from fedbandit.simulation.state import Draws, Plan, World, new_state

__all__ = ["Record", "Truth", "no_tape", "run_trials", "usable_cores"]

_ROUNDS_BETWEEN_SIGNS_OF_LIFE = 8192


class Record(NamedTuple):
    """What is kept of trials, at each checkpoint; the leading axis is the trial."""

    regret: NDArray[np.float64]  # [trial, agent, time]
    pulls: NDArray[np.int32]  # [trial, agent, time, arm]
    messages: NDArray[np.int64]  # [trial, agent, time]
    lagging: NDArray[np.float64]
    theta_error: NDArray[np.float64]
    misses: NDArray[np.float64]  # estimates off by more than their radius since the checkpoint before, if watched

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


def no_tape(num_agents: int, num_arms: int) -> Draws:
    """Streams to be named, and an empty tape."""
    shape = (num_agents, num_arms)
    return Draws(
        edges=np.zeros(1, np.uint64),
        picks=np.zeros(num_agents, np.uint64),
        arrivals=np.zeros(num_agents, np.uint64),
        normals=np.zeros(shape, np.uint64),
        rewards=np.zeros(shape, np.uint64),
        noise=np.zeros(shape, np.uint64),
        on_tape=False,
        tape_rewards=np.zeros((1, 1, 1)),
        tape_edges=np.zeros((1, 2), np.int64),
        tape_picks=np.zeros((1, 1)),
        tape_has_noise=False,
        tape_noise=np.zeros((1, 1, 1)),
        tape_has_normals=False,
        tape_normals=np.zeros((1, 1, 1)),
    )


@compile_rare
def _count_misses(state: Any, plan: Any, arm_means: Any, i: int) -> Any:
    """How many of an agent's estimates lie further from the truth than the radius of its next decision."""
    misses = 0
    set_radii(state, plan, i, log(max(state.clock[i] + 1, 2)))
    for k in range(len(arm_means)):
        if not state.eligible[i, k] and abs(state.theta[i, k] - arm_means[k]) > state.radius[k]:
            misses += 1
    return misses


def _build(sources: str) -> Any:
    @compile_driver
    def run_trial(
        seed: Any,
        trial: Any,
        state: Any,
        world: Any,
        plan: Any,
        draws: Any,
        times: Any,
        gaps: Any,
        arm_means: Any,
        record: Any,
        watches: bool,
        rounds_done: Any,
        stop: Any,
    ) -> None:
        sources  # noqa: B018  # pyright: ignore[reportUnusedExpression]  # a part of the cache's key
        num_agents, num_arms = world.means.shape
        name_streams(seed, trial, draws)
        pull_every_arm_once(state, world, plan, draws)
        c = 0
        for t in range(1, times[-1] + 1):
            play_round(t, state, world, plan, draws)
            if watches:
                for i in range(num_agents):
                    record.misses[i, c] += _count_misses(state, plan, arm_means, i)
            if t == times[c]:
                for i in range(num_agents):
                    regret, error = 0.0, 0.0
                    for k in range(num_arms):
                        n = state.n[i, k]
                        regret += gaps[k] * (n - 1)  # R_i(T) counts t >= 1: the pulls at t = 0 do not
                        error += abs(state.theta[i, k] - arm_means[k])
                        record.pulls[i, c, k] = n
                    record.regret[i, c] = regret
                    record.theta_error[i, c] = error / num_arms
                    record.messages[i, c] = state.messages[i]
                    record.lagging[i, c] = state.lagging_rounds[i] / max(state.clock[i], 1)
                c += 1
            if t % _ROUNDS_BETWEEN_SIGNS_OF_LIFE == 0:
                rounds_done[0] = t
                if stop[0]:
                    return
        rounds_done[0] = times[-1]

    return run_trial


_run_trial = _build(SOURCES)


def usable_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Truth(NamedTuple):
    """What a trial plays on, and what its regret and errors are measured against."""

    world: World
    gaps: NDArray[np.float64]
    arm_means: NDArray[np.float64]


def run_trials(
    truths: Sequence[Truth],
    plans: Sequence[Plan],
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    threads: int,
    watches: bool,
    on_rounds: Callable[[int], None],
) -> list[Record]:
    """All trials of all plans; a record per plan. ``on_rounds`` hears how many rounds are done so far.

    ``truths`` has one entry for all trials, or one for each. ``watches``: count how often an estimate lies further
    from the truth than its radius.

    An exception, also Ctrl-C, stops the other threads within some thousand rounds.
    """
    num_agents, num_arms = truths[0].world.means.shape
    records = [new_record(len(trials), num_agents, len(times), num_arms) for _ in plans]
    stop = np.zeros(1, np.int64)
    # One row of 64 bytes per job, so that threads do not write to the same cache line.
    rounds_done = np.zeros((len(plans) * len(trials), 8), np.int64)

    def run(job: int) -> None:
        which, position = divmod(job, len(trials))
        if stop[0]:
            return
        truth = truths[position if len(truths) > 1 else 0]
        _run_trial(
            np.uint64(seed),
            np.uint64(trials[position]),
            new_state(truth.world, plans[which]),
            truth.world,
            plans[which],
            no_tape(num_agents, num_arms),
            times,
            truth.gaps,
            truth.arm_means,
            records[which].of(position),
            watches,
            rounds_done[job],
            stop,
        )

    with ThreadPoolExecutor(threads) as pool:
        try:
            _wait({pool.submit(run, job) for job in range(len(rounds_done))}, rounds_done, on_rounds)
        except BaseException:
            stop[0] = 1
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return records


def _wait(pending: set[Future[None]], rounds_done: NDArray[np.int64], on_rounds: Callable[[int], None]) -> None:
    while pending:
        done, pending = wait(pending, timeout=0.1, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        on_rounds(int(rounds_done[:, 0].sum()))
