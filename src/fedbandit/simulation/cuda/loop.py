"""The loop over rounds on a GPU, and what its kernels share.

A team of threads plays one trial, and a thread plays agents of it. The phases are those of
``fedbandit.simulation.phases``, which the CPU engine plays, too.
"""

from math import isfinite
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fedbandit.outside.modules import globals_of
from fedbandit.policies.protocol import Now
from fedbandit.simulation.compiled import allow, is_ours
from fedbandit.simulation.crew import meet
from fedbandit.simulation.cuda.memory import cuda_overload
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.links import divides
from fedbandit.simulation.phases import phases_of
from fedbandit.simulation.streams import EDGES, draw, stream

__all__ = ["NOT_FINITE", "GpuWorld", "Readings", "expect_clock", "loop_of", "tell_clock"]

_cuda: Any = cuda
NOT_FINITE = -3  # in place of a clock: the agent's averages are not numbers
_PLAYING, _HAS_STOPPED = -1, -2


class Readings(NamedTuple):
    """What is recorded at a checkpoint: [time, trial, agent, ...]."""

    tried: Any
    theta: Any
    messages: Any
    clock: Any
    caught_up: Any
    misses: Any


class GpuWorld(NamedTuple):
    """As ``layout.World``, with the times of rounds, so that logarithms are computed once for all threads."""

    means: Any
    rewards: Any
    in_step: bool
    rates: Any
    lateness: Any
    times: Any  # [round, 2]


@_cuda.jit(device=True)
def expect_clock(readings: Any, checkpoint: int, r: Any, i: Any, is_fresh: bool) -> None:
    """Before a user's page plays. An error ends its thread silently: then the agent tells no clock in this row."""
    is_well = is_fresh or readings.clock[checkpoint, r, i] >= 0
    readings.clock[checkpoint, r, i] = _PLAYING if is_well else _HAS_STOPPED


@_cuda.jit(device=True)
def tell_clock(readings: Any, checkpoint: int, r: Any, i: Any, clock: Any, averages: Any, columns: int) -> None:
    """After it has played."""
    if readings.clock[checkpoint, r, i] == _PLAYING:
        readings.clock[checkpoint, r, i] = clock
        for c in range(columns):
            if not isfinite(averages[i, c]):
                readings.clock[checkpoint, r, i] = NOT_FINITE


_allowed: set[FunctionType] = set()


def _allow_on_gpu(function: Any) -> None:
    """Let kernels call a user's function, and those that it calls: a GPU knows no checks of indices."""
    if isinstance(function, FunctionType) and function not in _allowed:
        _allowed.add(function)
        closed_over = [cell.cell_contents for cell in function.__closure__ or ()]
        for called in [*closed_over, *(value for _, value in globals_of(function))]:
            _allow_on_gpu(called)
        if not is_ours(function):
            allow(function, cuda_overload)


def loop_of(kit: Kit, one_each: bool, hearing: tuple[Any, Any] | None = None) -> Any:
    """The loop over rounds, for one thread of a crew: an agent learns of one round and acts in the next.

    ``one_each``: a thread has one agent or none, and what depends on the agent alone is computed before the loop.
    ``hearing``: as in ``phases_of``.
    """
    for function in kit:
        _allow_on_gpu(function)
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
