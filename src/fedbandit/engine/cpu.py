"""The CPU engine: trials spread over threads, each played from checkpoint to checkpoint in compiled code.

Its loop over rounds is the order of ``policies.order``, compiled and cached on disk.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import cache
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
from fedbandit.engine.compiled import address_of, compile_driver, compile_inner, fetch_line, not_negative
from fedbandit.engine.layout import LinkArrays, new_population, no_tape, with_own_scratch
from fedbandit.engine.links import divides
from fedbandit.engine.phases import Specialisation, phases_of
from fedbandit.engine.streams import CONTEXTS, EDGES, name_streams, stream
from fedbandit.engine.threads import Team, barrier, stop, stopped, team_of
from fedbandit.policies.order import Arrangement, rounds_of
from fedbandit.policies.protocol import Context, Page, time_of
from fedbandit.shares import Shares

MANY = 2_000
"""With fewer agents all of them stay in the processor's cache."""

_AHEAD = 6
"""Agents by which memory is asked for ahead: about as long as it takes to come."""

_LINE = 64  # bytes, of the cache

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
    num_strata: int = 0
    num_features: int = 0
    rows_of_features: int = 1


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
    num_agents, num_cells = truths[0].world.means.shape
    num_strata, num_arms = policy.num_strata, num_cells // max(policy.num_strata, 1)
    population = new_population(
        policy.page,
        policy.terms,
        num_arms,
        policy.rounds_of_waiting,
        policy.shares,
        policy.releasing,
        num_strata,
        policy.num_features,
        policy.rows_of_features,
    )
    links, tape = [with_own_scratch(each) for _, each in policy.links], no_tape()
    theta, misses = np.zeros((num_agents, num_cells)), np.zeros(num_agents)
    agents, steps, nothing = population.agents, population.steps, np.zeros(num_agents, np.int32)
    caught_up = agents["caught_up"] if "caught_up" in policy.page.knows else nothing
    tried, first = (population.contexts.pulls, population.contexts.first) if num_strata else (agents["tried"], None)
    counted = (population.contexts.lost[None], population.contexts.best[None]) if policy.num_features else None
    read = (tried, theta, steps["messages"], steps["clock"], caught_up, misses)
    reading, accounting = (
        Reading(*(array[None] for array in read), counted=counted),
        RegretAccounting(record, [truths], keep, num_agents, num_strata, first),
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
    num_agents, num_cells = truths[0][0].world.means.shape
    strata = policies[0].num_strata
    records = [new_record(len(trials), num_agents, len(times), num_cells, keep, strata) for _ in policies]
    together = max(1, min(threads // (len(policies) * len(trials)), num_agents // _LEAST_AGENTS_PER_THREAD))
    at_once = max(1, min(_MOST_ROUNDS_AT_ONCE, _MOST_WORK_AT_ONCE // (num_agents * num_cells)))
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


# ---------------------------------------------------------------- the compiled loop


@cache
def compiled_rounds(spec: Specialisation, is_many: bool = False) -> Callable[..., None]:
    """The compiled loop over rounds of a specialisation.

    ``is_many``: for so many agents that they do not stay in the cache. Then n~ lies apart from records, an agent acts
    as soon as it has learnt, while its record is at hand, and memory is asked for ahead of its use. For few agents all
    that costs a third more instructions.
    """
    arrangement = Arrangement(
        now_at=_now_at,
        barrier=barrier,
        stopped=stopped,
        index=not_negative,
        fetch=_fetch_ahead(spec.hears) if is_many else None,
        is_apart=is_many,
        all_exchange=not (spec.page.network == "pooled" or spec.has_releases) and divides(spec.links.average),
    )
    play, estimate = compile_inner(rounds_of(phases_of(spec, is_apart=is_many), arrangement)), spec.page.estimate
    has_strata, takes_strata = spec.has_strata, spec.page.context == "strata"
    has_features, takes_features = spec.has_features, spec.page.context == "features"

    @compile_driver
    def play_rounds(
        first: int,
        last: int,
        seed: Any,
        trial: Any,
        population: Any,
        world: Any,
        links: Any,
        tape: Any,
        theta: Any,
        arm_means: Any,
        misses: Any,
    ) -> None:
        """Play rounds ``first`` to ``last`` of a trial, one thread of its team.

        ``theta`` receives the final estimates; ``misses`` counts errors against ``arm_means`` larger than the radius.
        """
        team, agents, terms = links.team, population.agents, population.terms
        if first == 0:
            for j in range(team.first, team.last):
                i = not_negative(j)
                name_streams(seed, trial, population.streams[i], i)
                if has_strata or has_features:
                    population.contexts.names[i] = stream(seed, trial, CONTEXTS, i, np.uint64(0))
        edges = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        play(first, last, edges, population, world, links, tape, arm_means, misses)
        for j in range(team.first, team.last):
            i = not_negative(j)
            if takes_features:
                for c in range(population.contexts.x.shape[1]):
                    population.contexts.drawn[i, c] = world.features.average[c % len(world.features.average)]
                for k in range(theta.shape[1]):
                    average = Context(stratum=0, features=population.contexts.drawn[i])
                    theta[i, k] = estimate(agents[i], terms[i], agents[i], k, average)
            elif takes_strata:
                num_arms = len(agents[i].tried)
                for s in range(theta.shape[1] // num_arms):
                    for k in range(num_arms):
                        theta[i, s * num_arms + k] = estimate(agents[i], terms[i], agents[i], k, Context(s, ()))
            elif has_strata:
                num_arms = len(agents[i].tried)
                for k in range(theta.shape[1]):
                    theta[i, k] = estimate(agents[i], terms[i], agents[i], k % num_arms)
            else:
                for k in range(theta.shape[1]):
                    theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds


@compile_inner
def _now_at(world: Any, t: int, first: int) -> Any:
    return time_of(t)


# ---------------------------------------------------------------- memory ahead of its use

# The processor foresees accesses in a row, and neither those to neighbours nor those that depend on the arm.


def _fetch_ahead(hears: bool) -> Any:
    @compile_inner
    def fetch(population: Any, world: Any, links: Any, t: Any, i: Any) -> None:
        """Ask for what a later agent will read when it acts: its record, its arms' means, and its neighbours' n~."""
        i += _AHEAD
        if i < links.team.last:
            agents = population.agents
            mine = address_of(agents) + i * agents.itemsize
            for line in range(0, agents.itemsize, _LINE):
                fetch_line(mine + line)
            fetch_line(address_of(population.steps) + i * population.steps.itemsize)
            means = address_of(world.means[i])
            fetch_line(means)
            fetch_line(means + _LINE)
            if hears:
                for e in range(links.first_neighbour[i], links.first_neighbour[i + 1]):
                    fetch_line(address_of(population.shown.rows[t % 2, links.neighbours[e]]))

    return fetch
