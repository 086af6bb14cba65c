"""Plays rounds on a GPU: a thread for each agent, the phases of ``fedbandit.simulation.phases`` in between barriers.

A team of threads plays one trial. Up to 32 agents are a part of a warp, with what they read in every round in shared
memory. More agents are a block of threads, and very many the whole grid, with everything in the GPU's memory.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, from_dtype

from fedbandit.policies.protocol import Now
from fedbandit.rules.gossip import average
from fedbandit.simulation.compiled import by_value
from fedbandit.simulation.cuda_memory import agents_of, as_rows, same_for_all, streams_of, value_for_all
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.late_rewards import Waiting
from fedbandit.simulation.layout import Population, Tape, World
from fedbandit.simulation.phases import phases_of
from fedbandit.simulation.sharing import Sharing
from fedbandit.simulation.streams import EDGES, draw, stream, whole_below

_cuda: Any = cuda
_from_dtype: Any = from_dtype


class Trials(NamedTuple):
    """All trials in flight, as arrays on the GPU: [trial, agent, ...]."""

    near: Any
    far: Any
    turns: Any
    n_max: Any


class Readings(NamedTuple):
    """What is recorded at a checkpoint, [time, trial, agent, ...]."""

    tried: Any
    error: Any
    messages: Any
    clock: Any
    caught_up: Any


@cache
def warp_kernel(kit: Kit, num_agents: int, num_arms: int, near: Any, far: Any, turn: Any, per_warp: int) -> Any:
    """The kernel for teams of at most 32 agents, each agent in a thread of its own."""
    begin, _, act, _, learn, _, _ = phases_of(kit)
    near_type, far_type, turn_type = _from_dtype(near), _from_dtype(far), _from_dtype(turn)
    columns, estimate = kit.num_averaged * num_arms, kit.estimate
    gossips = kit.network in ("gossip", "consensus")
    has_caught_up = "caught_up" in near.names or "caught_up" in far.names

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
        links: Any,
        times: Any,
        arm_means: Any,
        checkpoint: int,
        readings: Any,
    ) -> None:
        edges, first_neighbour, neighbours = links
        lane = _cuda.threadIdx.x
        team = lane // num_agents
        i = np.uint32(lane - team * num_agents)
        r = np.uint32(_cuda.blockIdx.x * per_warp + team)
        is_mine = team < per_warp and r < len(trials.near)
        if not is_mine:
            r = np.uint32(0)
        all_near = _cuda.shared.array(0, near_type)
        near = all_near[team * num_agents : (team + 1) * num_agents]
        far = _cuda.local.array(1, far_type)
        turns = _cuda.local.array(1, turn_type)
        n_max = _cuda.local.array((1, num_arms), np.int32)
        if is_mine:
            near[i] = trials.near[r, i]
            far[0] = trials.far[r, i]
            turns[0] = trials.turns[r, i]
            for k in range(num_arms):
                n_max[0, k] = trials.n_max[r, i, k]
        turn = turns[0]
        trial = np.uint64(first_trial) + np.uint64(r)
        averages = as_rows(near)
        population = Population(
            agents_of(near, same_for_all(far)),
            value_for_all(by_value(terms[i])),
            averages,
            same_for_all(n_max),
            same_for_all(turns),
            streams_of(seed, trial),
            0,
            0,
            0,
            0,
        )
        none_1 = _cuda.local.array(1, np.float64)
        none_2 = _cuda.local.array((1, 1), np.float64)
        none_3 = _cuda.local.array((1, 1, 1), np.float64)
        world = World(means[r if len(means) > 1 else np.uint32(0)], numbers, True, none_1, 0)
        tape = Tape(False, none_3, none_2, none_2, False, none_3, False, none_3, none_2)
        ways = Ways(first_neighbour, neighbours)
        edge_stream = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        if is_mine and first == 0:
            begin(population, i)
        _cuda.syncwarp()
        for t in range(first, last + 1):
            now = Now(times[t - first, 0], times[t - first, 1])
            if is_mine:
                act(population, world, ways, tape, t, now, i)
            _cuda.syncwarp()
            if gossips and is_mine and t > 0:
                e = whole_below(draw(edge_stream, np.uint64(t)), len(edges))
                a, b = edges[e, 0], edges[e, 1]
                for c in range(i, columns, num_agents):
                    mixed = average(averages[a, c], averages[b, c])
                    averages[a, c] = mixed
                    averages[b, c] = mixed
                if i == a or i == b:
                    turn.messages += 1
                    turn.mixed = 1
            _cuda.syncwarp()
            if is_mine:
                learn(population, t, i)
            _cuda.syncwarp()
        if is_mine:
            me, fixed = population.agents[i], population.terms[i]
            error = 0.0
            for k in range(num_arms):
                error += abs(estimate(me, fixed, me, k) - arm_means[k])
                readings.tried[checkpoint, r, i, k] = me.tried[k]
            readings.error[checkpoint, r, i] = error
            readings.messages[checkpoint, r, i] = turn.messages
            readings.clock[checkpoint, r, i] = turn.clock
            if has_caught_up:
                readings.caught_up[checkpoint, r, i] = me.caught_up
            trials.near[r, i] = near[i]
            trials.far[r, i] = far[0]
            trials.turns[r, i] = turns[0]
            for k in range(num_arms):
                trials.n_max[r, i, k] = n_max[0, k]

    return play


class Ways(NamedTuple):
    """What agents read of links when they act."""

    first_neighbour: Any
    neighbours: Any
