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
from fedbandit.rules.gossip import heard
from fedbandit.simulation.compiled import by_value, compilable, row_like
from fedbandit.simulation.crew import for_crew, meet, stopped, total_of
from fedbandit.simulation.cuda_memory import agents_of, as_rows, cuda_overload, same_for_all, shaped, streams_of, value_for_all
from fedbandit.simulation.cuda_tables import fill_tables
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.late_rewards import Waiting
from fedbandit.simulation.layout import Links, Population, Shown, Tape
from fedbandit.simulation.links import divides
from fedbandit.simulation.matching import Matching
from fedbandit.simulation.phases import phases_of
from fedbandit.simulation.sharing import Sharing
from fedbandit.simulation.streams import EDGES, draw, stream

__all__ = ["OpenTrials", "Readings", "Trials", "WarpShape", "open_kernel", "warp_kernel"]

_cuda: Any = cuda
_record_of: Any = from_dtype


class Trials(NamedTuple):
    """All trials of a team in a warp: [trial, agent, ...]."""

    near: Any
    own: Any
    far: Any
    turns: Any
    rows: Any  # [trial, 2, agent, arm]: n~


class OpenTrials(NamedTuple):
    """All trials of other teams: [trial, ...], each as in ``layout.Population`` and ``layout.Links``."""

    agents: Any
    turns: Any
    n_max: Any
    rows: Any
    stirred: Any
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


class WarpShape(NamedTuple):
    """How teams in a warp lie in a block's shared memory: tables, then what is near, then n~."""

    num_agents: int
    num_arms: int
    per_warp: int  # teams
    warps: int  # in a block
    near: Any  # records of an agent
    own: Any
    far: Any
    turn: Any
    near_start: int  # in entries of each kind
    rows_start: int


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
    mask: Any  # of an agent's neighbours
    crew: Any


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

MAX_REGISTERS: int | None = None
_NO_PART = 2**20  # of a thread without an agent: beyond all columns


def _loop(kit: Kit, one_each: bool) -> Any:
    """The loop over rounds, for one thread of a crew: an agent learns of one round and acts in the next.

    ``one_each``: a thread has one agent or none, and what depends on the agent alone is computed before the loop.
    """
    hearing = _hearing_in_warp(kit) if one_each else None
    begin, mark, act, exchange, learn, gather, watch = phases_of(kit, shows=True, hearing=hearing)
    has_marks, meets, watches = kit.has_marks, kit.meets, kit.watches
    exchanges = kit.network in ("gossip", "consensus", "pooled")
    all_exchange = kit.network != "pooled" and divides(kit.average_links)

    @_cuda.jit(device=True)
    def play_rounds(
        first: int,
        last: int,
        seed: Any,
        trial: Any,
        population: Any,
        world: Any,
        links: Any,
        tape: Any,
        arm_means: Any,
        misses: Any,
    ) -> None:
        crew = links.crew
        mine, is_mine = crew.first, crew.first < crew.last
        edge_stream = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        if first == 0:
            for i in range(crew.first, crew.last):
                begin(population, i)
        for t in range(first, last + 2):
            bits = draw(edge_stream, np.uint64(t))
            if t > first:
                if one_each:
                    if is_mine:
                        learn(population, t - 1, mine)
                else:
                    for i in range(crew.first, crew.last):
                        learn(population, t - 1, i)
                if meets:
                    meet(crew)
                    if crew.part == 0 and t > 1:
                        gather(population, links)
                    meet(crew)
                if watches and t > 1:
                    for i in range(crew.first, crew.last):
                        watch(population, arm_means, misses, i)
            if t <= last:
                now = Now(world.times[t - first, 0], world.times[t - first, 1])
                if has_marks and t > 0:
                    meet(crew)
                    if crew.part == 0:
                        mark(population, links, t, bits)
                    meet(crew)
                if one_each:
                    if is_mine:
                        act(population, world, links, tape, t, now, mine)
                else:
                    for i in range(crew.first, crew.last):
                        act(population, world, links, tape, t, now, i)
                meet(crew)
                if exchanges:
                    if all_exchange or crew.part == 0:
                        exchange(population, links, tape, t, bits)
                    meet(crew)

    return play_rounds


def _hearing_in_warp(kit: Kit) -> tuple[Any, Any]:
    """Algorithm 1, line 5, by a team in a warp: who an agent's neighbours are is told by the bits of one number."""
    announced = kit.announced

    @_cuda.jit(device=True, forceinline=True)
    def hear(population: Any, fixed: Any, links: Any, t: int, i: int) -> None:
        me, rows, next_rows = population.agents[i], population.shown.rows[t & 1], population.shown.rows[(t + 1) & 1]
        most = row_like(me.n_max)
        for k in range(len(most)):
            most[k] = announced(me, fixed, k)
        left = links.mask
        while left != 0:
            j = np.uint32(_cuda.ffs(left) - 1)
            left = np.uint32(left & (left - np.uint32(1)))
            for k in range(len(most)):
                most[k] = heard(most[k], rows[j, k])
        for k in range(len(most)):
            next_rows[i, k] = most[k]

    @_cuda.jit(device=True, forceinline=True)
    def see(population: Any, t: int, i: int) -> None:
        me, rows = population.agents[i], population.shown.rows[(t + 1) & 1]
        for k in range(len(me.n_max)):
            me.n_max[k] = rows[i, k]

    return hear, see


@cache
def warp_kernel(kit: Kit, shape: "WarpShape", in_step: bool) -> Any:
    """The kernel for teams in a warp."""
    play_rounds, estimate = _loop(kit, True), kit.estimate
    num_agents, num_arms, per_warp, warps = shape.num_agents, shape.num_arms, shape.per_warp, shape.warps
    near_record, own_record = _record_of(shape.near), _record_of(shape.own)
    far_record, turn_record = _record_of(shape.far), _record_of(shape.turn)
    columns, has_caught_up, announces = kit.num_averaged, kit.has_caught_up, kit.announces
    near_start, rows_start = shape.near_start, shape.rows_start
    rows_of_team = 2 * num_agents * num_arms

    @_cuda.jit(max_registers=MAX_REGISTERS)
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
        tables: Any,
        checkpoint: int,
        is_fresh: bool,
        readings: Any,
    ) -> None:
        fill_tables(tables)
        warp, lane = _cuda.threadIdx.x // 32, _cuda.threadIdx.x % 32
        team = lane // num_agents
        i = np.uint32(lane - team * num_agents)
        here = warp * per_warp + team  # among the teams of this block
        r = np.uint32(_cuda.blockIdx.x * warps * per_warp + here)
        is_mine = team < per_warp and r < len(trials.near)
        if not is_mine:
            r, here = np.uint32(0), 0
        start = near_start + here * num_agents
        near = _cuda.shared.array(0, near_record)[start : start + num_agents]
        start = rows_start + here * rows_of_team
        rows = shaped(_cuda.shared.array(0, types.int32)[start : start + rows_of_team], (2, num_agents, num_arms))
        own = _cuda.local.array(1, own_record)
        far = _cuda.local.array(1, far_record)
        turns = _cuda.local.array(1, turn_record)
        no_rows = _cuda.local.array((1, 1), types.int32)
        before = _cuda.local.array((1, num_arms, columns), types.float64)
        misses = _cuda.local.array(1, types.float64)
        if is_mine:
            near[i] = trials.near[r, i]
            own[0] = trials.own[r, i]
            far[0] = trials.far[r, i]
            turns[0] = trials.turns[r, i]
            misses[0] = 0.0 if is_fresh else readings.misses[checkpoint, r, i]
            if announces:
                for half in range(2):
                    for k in range(num_arms):
                        rows[half, i, k] = trials.rows[r, half, i, k]
        _cuda.syncwarp()
        trial = np.uint64(first_trial) + np.uint64(r)
        population = Population(
            agents_of(near, same_for_all(own), same_for_all(far)),
            value_for_all(by_value(terms[i])),
            as_rows(near),
            no_rows,
            Shown(rows, 0),
            same_for_all(turns),
            streams_of(seed, trial),
            0,
            same_for_all(before),
            0,
            0,
        )
        mask = np.uint32(0)
        for e in range(first_neighbour[i], first_neighbour[i + 1]):
            mask = np.uint32(mask | (np.uint32(1) << neighbours[e]))
        mine_first = np.uint64(i)
        crew = WarpCrew(
            mine_first,
            mine_first + np.uint64(is_mine),
            np.int64(i) if is_mine else np.int64(_NO_PART),
            np.int64(num_agents),
        )
        which = r if len(means) > 1 else np.uint32(0)
        no_cube = _cuda.local.array((1, 1, 1), types.float64)
        no_row = _cuda.local.array((1, 1), types.float64)
        play_rounds(
            first,
            last,
            seed,
            trial,
            population,
            _World(means[which], numbers, in_step, rates, 0, times),
            _Links(edges, mask, crew),
            Tape(False, no_cube, no_row, no_row, False, no_cube, False, no_cube, no_row),
            arm_means[which],
            same_for_all(misses),
        )
        if is_mine:
            me, mine, fixed = population.agents[i], turns[0], population.terms[i]
            for k in range(num_arms):
                readings.theta[checkpoint, r, i, k] = estimate(me, fixed, me, k)
                readings.tried[checkpoint, r, i, k] = me.tried[k]
            readings.messages[checkpoint, r, i] = mine.messages
            readings.clock[checkpoint, r, i] = mine.clock
            readings.misses[checkpoint, r, i] = misses[0]
            readings.caught_up[checkpoint, r, i] = me.caught_up if has_caught_up else 0
            trials.near[r, i] = near[i]
            trials.own[r, i] = own[0]
            trials.far[r, i] = far[0]
            trials.turns[r, i] = turns[0]
            if announces:
                for half in range(2):
                    for k in range(num_arms):
                        trials.rows[r, half, i, k] = rows[half, i, k]

    return play


@cache
def open_kernel(kit: Kit, in_step: bool, is_grid: bool) -> Any:
    """The kernel for teams that are a block, or with ``is_grid`` all threads."""
    play_rounds, estimate = _loop(kit, False), kit.estimate
    crew_of = _grid_crew if is_grid else _block_crew
    has_caught_up = kit.has_caught_up

    @_cuda.jit(max_registers=MAX_REGISTERS)
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
        tables: Any,
        checkpoint: int,
        is_fresh: bool,
        readings: Any,
    ) -> None:
        fill_tables(tables)
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
                Shown(trials.rows[r], trials.stirred[r]),
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
            arm_means[which],
            misses,
        )
        for i in range(crew.first, crew.last):
            me, turn = agents[i], turns[i]
            for k in range(len(me.tried)):
                readings.theta[checkpoint, r, i, k] = estimate(me, terms[i], me, k)
                readings.tried[checkpoint, r, i, k] = me.tried[k]
            readings.messages[checkpoint, r, i] = turn.messages
            readings.clock[checkpoint, r, i] = turn.clock
            readings.caught_up[checkpoint, r, i] = me.caught_up if has_caught_up else 0

    return play


def _block_crew(num_agents: int, board: Any) -> BlockCrew:
    part, parts = _cuda.threadIdx.x, _cuda.blockDim.x
    return BlockCrew(num_agents * part // parts, num_agents * (part + 1) // parts, part, parts)


def _grid_crew(num_agents: int, board: Any) -> GridCrew:
    part, parts = _cuda.grid(1), _cuda.gridsize(1)
    return GridCrew(num_agents * part // parts, num_agents * (part + 1) // parts, part, parts, board)


compilable(_block_crew)
compilable(_grid_crew)
