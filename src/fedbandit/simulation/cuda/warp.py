"""The kernel for teams in a warp: up to 32 agents, each with a thread of its own.

What an agent reads in every round lies in shared memory or registers, the rest in its thread's own memory. So nobody
but neighbours may look at an agent: pages and links that need everybody at once are played by ``open``.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, from_dtype, types

from fedbandit.rules.gossip import heard
from fedbandit.simulation.compiled import by_value, row_like
from fedbandit.simulation.cuda.crews import WarpCrew
from fedbandit.simulation.cuda.loop import GpuWorld, expect_clock, loop_of, tell_clock
from fedbandit.simulation.cuda.memory import agents_of, as_rows, same_for_all, shaped, streams_of, value_for_all
from fedbandit.simulation.cuda.tables import fill_tables
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.layout import Population, Shown, Tape

__all__ = ["Trials", "WarpShape", "warp_kernel"]

_cuda: Any = cuda
_record_of: Any = from_dtype
_NO_PART = 2**20  # of a thread without an agent: beyond all columns


class Trials(NamedTuple):
    """All trials: [trial, agent, ...]."""

    near: Any
    own: Any
    far: Any
    turns: Any
    rows: Any  # [trial, 2, agent, arm]: n~


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
    registers: int | None  # of a thread, at most


class _Links(NamedTuple):
    """What a team in a warp needs of ``layout.Links``."""

    edges: Any
    mask: Any  # of an agent's neighbours
    crew: Any


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
def warp_kernel(kit: Kit, shape: WarpShape, in_step: bool) -> Any:
    """The kernel for teams in a warp."""
    play_rounds, estimate = loop_of(kit, True, _hearing_in_warp(kit)), kit.estimate
    num_agents, num_arms, per_warp, warps = shape.num_agents, shape.num_arms, shape.per_warp, shape.warps
    near_record, own_record = _record_of(shape.near), _record_of(shape.own)
    far_record, turn_record = _record_of(shape.far), _record_of(shape.turn)
    columns, has_caught_up, announces = kit.num_averaged, kit.has_caught_up, kit.announces
    near_start, rows_start = shape.near_start, shape.rows_start
    rows_of_team, is_guarded = 2 * num_agents * num_arms, kit.is_guarded

    @_cuda.jit(max_registers=shape.registers)
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
            if is_guarded:
                expect_clock(readings, checkpoint, r, i, is_fresh)
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
            GpuWorld(means[which], numbers, in_step, rates, 0, times),
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
            if is_guarded:
                tell_clock(readings, checkpoint, r, i, mine.clock, population.averages, columns * num_arms)
            else:
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
