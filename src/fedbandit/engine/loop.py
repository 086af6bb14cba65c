"""Asks for memory ahead of its use, in compiled code: with many agents it is not in the processor's cache.

The processor foresees accesses in a row, and neither those to neighbours nor those that depend on the arm.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from fedbandit.engine.compiled import compile_driver, compile_inner, not_negative
from fedbandit.engine.links import divides
from fedbandit.engine.phases import Kit, phases_of
from fedbandit.engine.streams import EDGES, draw, name_streams, stream
from fedbandit.engine.threads import barrier, stopped
from fedbandit.policies.protocol import time_of

__all__ = ["AHEAD", "MANY", "fetch_agent", "rounds_of", "rounds_of_many"]


_extending: Any = extending
_LINE = 64  # bytes

MANY = 2_000
"""With fewer agents all of them stay in the cache."""

AHEAD = 6
"""Agents: about as long before their turn as memory takes."""


@_extending.intrinsic
def _address(typing: Any, array: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return types.int64(array), build


@_extending.intrinsic
def _fetch(typing: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        name = "llvm.prefetch.p0i8"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        place = builder.inttoptr(arguments[0], pointer)
        builder.call(function, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(types.int64), build


@compile_inner
def fetch_agent(population: Any, world: Any, links: Any, t: Any, i: Any, hears: bool) -> None:
    """Ask for what agent i will read when it acts: its record, the means of its arms, and n~ of its neighbours."""
    agents = population.agents
    mine = _address(agents) + i * agents.itemsize
    for line in range(0, agents.itemsize, _LINE):
        _fetch(mine + line)
    _fetch(_address(population.steps) + i * population.steps.itemsize)
    means = _address(world.means[i])
    _fetch(means)
    _fetch(means + _LINE)
    if hears:
        for e in range(links.first_neighbour[i], links.first_neighbour[i + 1]):
            _fetch(_address(population.shown.rows[t % 2, links.neighbours[e]]))


# ---------------------------------------------------------------- plays rounds of all agents of a trial in compiled


@cache
def rounds_of(kit: Kit) -> Callable[..., None]:
    """The compiled loop over rounds of a kit."""
    begin, mark, act, exchange, learn, gather, watch = phases_of(kit)
    has_marks, meets, watches, estimate = kit.has_marks, kit.meets, kit.watches, kit.estimate
    exchanges = kit.network in ("gossip", "consensus", "pooled")
    all_exchange = kit.network != "pooled" and divides(kit.average_links)

    @compile_driver(kit)
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
        """Play rounds ``first`` to ``last`` of a trial; round 0 is the first pull of every arm.

        The thread plays the agents of its slice, ``links.team``, and alone what is not divided if it is the first.
        ``theta`` receives the final estimates; ``misses`` counts errors against ``arm_means`` larger than the radius.
        """
        team = links.team
        edge_stream = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        if first == 0:
            for j in range(team.first, team.last):
                i = not_negative(j)
                name_streams(seed, trial, population.streams[i], i)
                begin(population, i)
        for t in range(first, last + 1):
            now, bits = time_of(t), draw(edge_stream, np.uint64(t))
            if has_marks and t > 0:
                if team.part == 0:
                    mark(population, links, t, bits)
                barrier(team)
            for j in range(team.first, team.last):
                act(population, world, links, tape, t, now, not_negative(j))
            barrier(team)
            if exchanges:
                if all_exchange or team.part == 0:
                    exchange(population, links, tape, t, bits)
                barrier(team)
            for j in range(team.first, team.last):
                learn(population, t, not_negative(j))
            barrier(team)
            if meets and t > 0:
                if team.part == 0:
                    gather(population, links)
                barrier(team)
            if watches and t > 0:
                for j in range(team.first, team.last):
                    watch(population, arm_means, misses, not_negative(j))
            if stopped(team):
                return
        agents, terms = population.agents, population.terms
        for j in range(team.first, team.last):
            i = not_negative(j)
            for k in range(theta.shape[1]):
                theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds


# ---------------------------------------------------------------- plays rounds of very many agents


@cache
def rounds_of_many(kit: Kit) -> Callable[..., None]:
    """The compiled loop over rounds of a kit, for so many agents that they do not stay in the cache."""
    begin, mark, act, exchange, learn, gather, watch = phases_of(kit, shows=True)
    has_marks, meets, watches, estimate = kit.has_marks, kit.meets, kit.watches, kit.estimate
    # Where nothing lies between, an agent learns of one round and acts in the next while its record is at hand.
    sweeps = 2 if has_marks or meets or watches else 1
    hears = kit.announces and not kit.has_marks
    exchanges = kit.network in ("gossip", "consensus", "pooled")
    all_exchange = kit.network != "pooled" and divides(kit.average_links)

    @compile_driver(kit)
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
        """Play rounds ``first`` to ``last`` of a trial; round 0 is the first pull of every arm.

        The thread plays the agents of its slice, ``links.team``, and alone what is not divided if it is the first.
        ``theta`` receives the final estimates; ``misses`` counts errors against ``arm_means`` larger than the radius.
        """
        team = links.team
        edge_stream = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        if first == 0:
            for j in range(team.first, team.last):
                i = not_negative(j)
                name_streams(seed, trial, population.streams[i], i)
                begin(population, i)
        for t in range(first, last + 2):
            now, bits = time_of(t), draw(edge_stream, np.uint64(t))
            for sweep in range(sweeps):
                learns, acts = t > first and sweep == 0, t <= last and sweep == sweeps - 1
                if has_marks and acts and t > 0:
                    if team.part == 0:
                        mark(population, links, t, bits)
                    barrier(team)
                for j in range(team.first, team.last):
                    i = not_negative(j)
                    if learns:
                        learn(population, t - 1, i)
                    if acts:
                        if i + AHEAD < team.last:
                            fetch_agent(population, world, links, t, i + AHEAD, hears)
                        act(population, world, links, tape, t, now, i)
                barrier(team)
                if meets and learns and t > 1:
                    if team.part == 0:
                        gather(population, links)
                    barrier(team)
                if watches and learns and t > 1:
                    for j in range(team.first, team.last):
                        i = not_negative(j)
                        watch(population, arm_means, misses, i)
            if exchanges:
                if t <= last and (all_exchange or team.part == 0):
                    exchange(population, links, tape, t, bits)
                barrier(team)
            if stopped(team):
                return
        agents, terms = population.agents, population.terms
        for j in range(team.first, team.last):
            i = not_negative(j)
            for k in range(theta.shape[1]):
                theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds
