"""Kernels that play rounds on a GPU: the loop of ``fedbandit.simulation.round``, by teams of threads.

A team plays one trial, and a thread plays agents of it. Up to 32 agents are a part of a warp, each with a thread of its
own: what an agent reads in every round lies in shared memory, the rest in its thread's own. Where a page or its links
need everybody at once, or agents are many, a team is a block of threads or the whole grid, and everything lies in the
GPU's memory.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, from_dtype, types

from fedbandit.policies.protocol import Now
from fedbandit.simulation.compiled import by_value, compilable
from fedbandit.simulation.crew import for_crew, meet, stopped, total_of
from fedbandit.simulation.cuda_memory import agents_of, as_rows, cuda_overload, same_for_all, streams_of, value_for_all
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.late_rewards import Waiting
from fedbandit.simulation.layout import Links, Population, Tape
from fedbandit.simulation.matching import Matching
from fedbandit.simulation.round import loop_of
from fedbandit.simulation.sharing import Sharing

__all__ = ["OpenTrials", "Readings", "Trials", "open_kernel", "warp_kernel"]

_cuda: Any = cuda
_record_of: Any = from_dtype


class Trials(NamedTuple):
    """All trials of a team in a warp: [trial, agent, ...]."""

    near: Any
    far: Any
    turns: Any
    n_max: Any


class OpenTrials(NamedTuple):
    """All trials of other teams: [trial, ...], each as in ``layout.Population`` and ``layout.Links``."""

    agents: Any
    turns: Any
    n_max: Any
    pooled: Any
    before: Any
    waiting: Any
    sharing: Any
    present: Any
    degree: Any
    mixed: Any
    choice: Any
    is_free: Any
    searching: Any
    board: Any  # [3]: by which threads of a grid add up


class Readings(NamedTuple):
    """What is recorded at a checkpoint: [time, trial, agent, ...]."""

    tried: Any
    theta: Any
    messages: Any
    clock: Any
    caught_up: Any
    misses: Any


class _World(NamedTuple):
    """As ``layout.World``, with the times of rounds, so that logarithms are computed once for all threads."""

    means: Any
    rewards: Any
    in_step: bool
    rates: Any
    lateness: Any
    times: Any  # [round, 2]


class _Links(NamedTuple):
    """What a team in a warp needs of ``layout.Links``."""

    edges: Any
    first_neighbour: Any
    neighbours: Any
    crew: Any


def _time_of_round(world: Any, t: int, first: int) -> Now:
    return Now(world.times[t - first, 0], world.times[t - first, 1])


compilable(_time_of_round)


# ---------------------------------------------------------------- crews


class WarpCrew(NamedTuple):
    """A thread of a warp."""

    first: int
    last: int
    part: int
    parts: int


def _meet_in_warp(crew: Any) -> None:
    _cuda.syncwarp()


def _never(crew: Any) -> bool:
    return False


def _any_in_warp(crew: Any, number: Any, pass_number: Any) -> Any:
    return np.int64(_cuda.any_sync(0xFFFFFFFF, number > 0))


class BlockCrew(NamedTuple):
    """A thread of a block."""

    first: int
    last: int
    part: int
    parts: int


def _meet_in_block(crew: Any) -> None:
    _cuda.syncthreads()


def _any_in_block(crew: Any, number: Any, pass_number: Any) -> Any:
    return np.int64(_cuda.syncthreads_or(np.int32(number > 0)))


class GridCrew(NamedTuple):
    """A thread of a grid."""

    first: int
    last: int
    part: int
    parts: int
    board: Any


def _meet_in_grid(crew: Any) -> None:
    _cuda.cg.this_grid().sync()


def _total_in_grid(crew: Any, number: Any, pass_number: Any) -> Any:
    """Of three places, one is being summed up, the next is empty, and some may still read the one before."""
    _cuda.atomic.add(crew.board, pass_number % 3, number)
    _cuda.cg.this_grid().sync()
    total = crew.board[pass_number % 3]
    if crew.part == 0:
        crew.board[(pass_number + 2) % 3] = 0
    return total


for _crew, _meet, _total in (
    (WarpCrew, _meet_in_warp, _any_in_warp),
    (BlockCrew, _meet_in_block, _any_in_block),
    (GridCrew, _meet_in_grid, _total_in_grid),
):
    for_crew(_crew, meet, _meet, cuda_overload)
    for_crew(_crew, total_of, _total, cuda_overload)
    for_crew(_crew, stopped, _never, cuda_overload)

_NO_PART = 2**20  # of a thread without an agent: beyond all columns


@cache
def warp_kernel(
    kit: Kit, num_agents: int, num_arms: int, near: Any, far: Any, turn: Any, in_step: bool, per_warp: int
) -> Any:
    """The kernel for teams in a warp. ``near``, ``far``, ``turn``: records of an agent."""
    play_rounds = _cuda.jit(device=True)(loop_of(kit, _time_of_round, False))
    near_record, far_record, turn_record = _record_of(near), _record_of(far), _record_of(turn)
    columns = kit.num_averaged
    has_caught_up = kit.has_caught_up

    @_cuda.jit
    def play(
        first: int,
        last: int,
        seed: Any,
        first_trial: Any,
        trials: Any,
        terms: Any,
        means: Any,
        numbers: Any,
        rates: Any,
        edges: Any,
        first_neighbour: Any,
        neighbours: Any,
        times: Any,
        arm_means: Any,
        checkpoint: int,
        is_fresh: bool,
        readings: Any,
    ) -> None:
        lane = _cuda.threadIdx.x
        team = lane // num_agents
        i = np.uint32(lane - team * num_agents)
        r = np.uint32(_cuda.blockIdx.x * per_warp + team)
        is_mine = team < per_warp and r < len(trials.near)
        if not is_mine:
            r = np.uint32(0)
        all_near = _cuda.shared.array(0, near_record)
        near = all_near[team * num_agents : (team + 1) * num_agents]
        far = _cuda.local.array(1, far_record)
        turns = _cuda.local.array(1, turn_record)
        n_max = _cuda.local.array((1, num_arms), types.int32)
        before = _cuda.local.array((1, num_arms, columns), types.float64)
        theta = _cuda.local.array((1, num_arms), types.float64)
        misses = _cuda.local.array(1, types.float64)
        if is_mine:
            near[i] = trials.near[r, i]
            far[0] = trials.far[r, i]
            turns[0] = trials.turns[r, i]
            misses[0] = 0.0 if is_fresh else readings.misses[checkpoint, r, i]
            for k in range(num_arms):
                n_max[0, k] = trials.n_max[r, i, k]
        _cuda.syncwarp()
        population = Population(
            agents_of(near, same_for_all(far)),
            value_for_all(by_value(terms[i])),
            as_rows(near),
            same_for_all(n_max),
            same_for_all(turns),
            streams_of(seed, np.uint64(first_trial) + np.uint64(r)),
            0,
            same_for_all(before),
            0,
            0,
        )
        if is_mine:
            crew = WarpCrew(np.int64(i), np.int64(i) + 1, np.int64(i), num_agents)
        else:
            crew = WarpCrew(0, 0, _NO_PART, 1)
        no_cube = _cuda.local.array((1, 1, 1), types.float64)
        no_row = _cuda.local.array((1, 1), types.float64)
        play_rounds(
            first,
            last,
            seed,
            np.uint64(first_trial) + np.uint64(r),
            population,
            _World(means[r if len(means) > 1 else np.uint32(0)], numbers, in_step, rates, 0, times),
            _Links(edges, first_neighbour, neighbours, crew),
            Tape(False, no_cube, no_row, no_row, False, no_cube, False, no_cube, no_row),
            same_for_all(theta),
            arm_means[r if len(arm_means) > 1 else np.uint32(0)],
            same_for_all(misses),
        )
        if is_mine:
            me, mine = population.agents[i], turns[0]
            for k in range(num_arms):
                readings.theta[checkpoint, r, i, k] = theta[0, k]
                readings.tried[checkpoint, r, i, k] = me.tried[k]
            readings.messages[checkpoint, r, i] = mine.messages
            readings.clock[checkpoint, r, i] = mine.clock
            readings.misses[checkpoint, r, i] = misses[0]
            if has_caught_up:
                readings.caught_up[checkpoint, r, i] = me.caught_up
            trials.near[r, i] = near[i]
            trials.far[r, i] = far[0]
            trials.turns[r, i] = turns[0]
            for k in range(num_arms):
                trials.n_max[r, i, k] = n_max[0, k]

    return play


@cache
def open_kernel(kit: Kit, in_step: bool, is_grid: bool) -> Any:
    """The kernel for teams that are a block, or with ``is_grid`` all threads."""
    play_rounds = _cuda.jit(device=True)(loop_of(kit, _time_of_round, False))
    crew_of = _grid_crew if is_grid else _block_crew
    has_caught_up = kit.has_caught_up

    @_cuda.jit
    def play(
        first: int,
        last: int,
        seed: Any,
        first_trial: Any,
        trials: Any,
        terms: Any,
        means: Any,
        numbers: Any,
        rates: Any,
        lateness: Any,
        links: Any,
        tape: Any,
        times: Any,
        arm_means: Any,
        checkpoint: int,
        is_fresh: bool,
        readings: Any,
    ) -> None:
        r = np.uint32(0 if is_grid else _cuda.blockIdx.x)
        which = r if len(means) > 1 else np.uint32(0)
        trial = np.uint64(first_trial) + np.uint64(r)
        agents, turns, wait, share = trials.agents[r], trials.turns[r], trials.waiting, trials.sharing
        crew = crew_of(len(agents), trials.board)
        misses = readings.misses[checkpoint, r]
        if is_fresh:
            for i in range(crew.first, crew.last):
                misses[i] = 0.0
        play_rounds(
            first,
            last,
            seed,
            trial,
            Population(
                agents,
                terms,
                as_rows(agents),
                trials.n_max[r],
                turns,
                streams_of(seed, trial),
                trials.pooled[r],
                trials.before[r],
                Waiting(
                    wait.arm[r],
                    wait.reward[r],
                    wait.after[r],
                    wait.first[r],
                    wait.last[r],
                    wait.latest[r],
                    wait.unobserved[r],
                    wait.num_unobserved[r],
                    wait.news[r],
                    wait.before[r],
                ),
                Sharing(
                    share.control,
                    share.control_share,
                    share.least_share,
                    share.few[r],
                    share.few_bytes[r],
                    share.fresh[r],
                    share.all_bytes[r],
                    share.places,
                    share.unobserved[r],
                ),
            ),
            _World(means[which], numbers, in_step, rates, lateness, times),
            Links(
                links.edges,
                links.first_neighbour,
                links.neighbours,
                links.presence,
                links.weight,
                links.contact_times,
                links.contact_edges,
                trials.present[r],
                trials.degree[r],
                trials.mixed[r],
                Matching(trials.choice[r], trials.is_free[r], trials.searching[r]),
                crew,
            ),
            tape,
            readings.theta[checkpoint, r],
            arm_means[which],
            misses,
        )
        for i in range(crew.first, crew.last):
            me, turn = agents[i], turns[i]
            for k in range(len(me.tried)):
                readings.tried[checkpoint, r, i, k] = me.tried[k]
            readings.messages[checkpoint, r, i] = turn.messages
            readings.clock[checkpoint, r, i] = turn.clock
            if has_caught_up:
                readings.caught_up[checkpoint, r, i] = me.caught_up

    return play


def _block_crew(num_agents: int, board: Any) -> BlockCrew:
    part, parts = _cuda.threadIdx.x, _cuda.blockDim.x
    return BlockCrew(num_agents * part // parts, num_agents * (part + 1) // parts, part, parts)


def _grid_crew(num_agents: int, board: Any) -> GridCrew:
    part, parts = _cuda.grid(1), _cuda.gridsize(1)
    return GridCrew(num_agents * part // parts, num_agents * (part + 1) // parts, part, parts, board)


compilable(_block_crew)
compilable(_grid_crew)
