"""The CPU engine: trials spread over threads, each played from checkpoint to checkpoint in compiled code."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.engine.accounting import (
    Keep,
    Reading,
    ReadingEnd,
    Record,
    RegretAccounting,
    Segment,
    Truth,
    new_record,
    segments_of,
)
from fedbandit.engine.layout import LinkArrays, new_population, no_tape, with_own_scratch
from fedbandit.engine.phases import Specialisation
from fedbandit.engine.threads import Team, stop, team_of
from fedbandit.policies.protocol import Page
from fedbandit.shares import Shares

_MOST_ROUNDS_AT_ONCE, _MOST_WORK_AT_ONCE = 65536, 100_000_000
"""Rounds, and rounds times agents times arms, between progress reports and checks for a stop."""

_LEAST_AGENTS_PER_THREAD = 2_000
_LINKS = 6  # their place among the arguments of the compiled loop


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
    releasing: Any = None  # [N]: N times each agent's weight, where releases spread


def usable_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_trial(
    truths: Sequence[Truth],
    policy: CompiledPolicy,
    cut: tuple[list[Segment], list[ReadingEnd]],
    seed: int,
    trial: int,
    record: Record,
    keep: Keep,
    threads: int,
    on_estimates: Callable[[int, NDArray[np.float64], Any], None],
) -> Iterator[int]:
    """Play a trial in so many threads; yields the number of rounds done."""
    num_agents, num_arms = truths[0].world.means.shape
    population = new_population(
        policy.page, policy.terms, num_arms, policy.rounds_of_waiting, policy.shares, policy.releasing
    )
    links, tape = [with_own_scratch(each) for _, each in policy.links], no_tape()
    theta, misses = np.zeros((num_agents, num_arms)), np.zeros(num_agents)
    agents, steps, nothing = population.agents, population.steps, np.zeros(num_agents, np.int32)
    caught_up = agents["caught_up"] if "caught_up" in policy.page.knows else nothing
    read = (agents["tried"], theta, steps["messages"], steps["clock"], caught_up, misses)
    reading, accounting = (
        Reading(*(array[None] for array in read)),
        RegretAccounting(record, [truths], keep, num_agents),
    )
    segments, ends = cut
    for segment, after in zip_longest(segments, segments[1:]):
        if segment.has_new_links:
            population.shown.stirred[:] = 1  # to a new neighbour, everything is new
        truth = truths[segment.truth]
        _play_together(
            policy.play_rounds,
            threads,
            segment.first,
            segment.last,
            np.uint64(seed),
            np.uint64(trial),
            population,
            truth.world,
            links[segment.links],
            tape,
            theta,
            truth.arm_means,
            misses,
        )
        yield segment.last
        if after is None or after.is_fresh:
            end = ends[segment.row]
            accounting.enter(reading, end)
            misses[:] = 0.0
            if end.is_checkpoint:
                on_estimates(end.checkpoint, theta, agents)


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
    policies: Sequence[CompiledPolicy],
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    threads: int,
    on_rounds: Callable[[int], None],
    keep: Keep = "agents",
    on_estimates: Callable[[int, int, int, NDArray[np.float64], Any], None] | None = None,
) -> list[Record]:
    """Play all trials of all policies; return a record per policy.

    ``on_rounds`` receives the number of rounds done so far. ``on_estimates`` receives policy, position of the trial,
    checkpoint, all estimates [agent, arm] and the agents' records, whose memory is used again; it is called from
    several threads.

    If there are more threads than trials, several play a large trial together.

    ``truths`` has one entry for all trials, or one for each: the truth of each period with the same means.

    An exception, including Ctrl-C, stops the other threads within some ten thousand rounds.
    """
    num_agents, num_arms = truths[0][0].world.means.shape
    records = [new_record(len(trials), num_agents, len(times), num_arms, keep) for _ in policies]
    together = max(1, min(threads // (len(policies) * len(trials)), num_agents // _LEAST_AGENTS_PER_THREAD))
    at_once = max(1, min(_MOST_ROUNDS_AT_ONCE, _MOST_WORK_AT_ONCE // (num_agents * num_arms)))
    truth_starts = [truth.first for truth in truths[0]]
    cuts = [
        segments_of(times.tolist(), truth_starts, [first for first, _ in policy.links], at_once) for policy in policies
    ]
    stopped = False
    rounds_done = np.zeros(len(policies) * len(trials), np.int64)

    def run(job: int) -> None:
        which, position = divmod(job, len(trials))
        mine = truths[position if len(truths) > 1 else 0]
        record = records[which].of(slice(position, position + 1))

        def tell(c: int, theta: NDArray[np.float64], agents: Any) -> None:
            if on_estimates is not None:
                on_estimates(which, position, c, theta, agents)

        for done in _run_trial(
            mine, policies[which], cuts[which], seed, trials[position], record, keep, together, tell
        ):
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
