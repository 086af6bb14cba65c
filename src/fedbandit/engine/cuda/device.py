"""What the kernels of a GPU share: the loop over rounds, teams of threads, tables of random draws, arrays.

A team of threads plays one trial, and a thread plays agents of it. The order of events is that of
``fedbandit.policies.order``, and the phases are those of ``fedbandit.engine.phases``, as on the CPU.
"""

from collections.abc import Sequence
from math import isfinite
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numba import cuda, types

from fedbandit.engine.accounting import Truth
from fedbandit.engine.compiled import allow, compilable, compile_driver, is_ours
from fedbandit.engine.cuda.memory import cuda_overload
from fedbandit.engine.layout import LinkArrays
from fedbandit.engine.links import divides
from fedbandit.engine.phases import Specialisation, phases_of
from fedbandit.engine.streams import SLAB_EDGES, SLABS, inner_edge, signed_edge, slab_edge
from fedbandit.engine.threads import barrier, for_team, stopped, total_of
from fedbandit.policies.order import Arrangement, rounds_of
from fedbandit.policies.protocol import Now, time_of
from fedbandit.policies.registry import globals_of

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


def loop_of(spec: Specialisation, one_each: bool, hearing: tuple[Any, Any] | None = None) -> Any:
    """The loop over rounds, for one thread of a team: the order of ``policies.order``.

    ``one_each``: a thread has one agent or none, and what depends on the agent alone is computed before the loop.
    ``hearing``: as in ``phases_of``.
    """
    for function in spec.functions:
        _allow_on_gpu(function)
    arrangement = Arrangement(
        now_at=_now_at,
        barrier=barrier,
        stopped=stopped,
        index=_same,
        one_each=one_each,
        is_apart=True,
        all_exchange=spec.page.network != "pooled" and divides(spec.links.average),
    )
    return _cuda.jit(device=True)(rounds_of(phases_of(spec, is_apart=True, hearing=hearing), arrangement))


@_cuda.jit(device=True, forceinline=True)
def _now_at(world: Any, t: int, first: int) -> Any:
    return Now(world.times[t - first, 0], world.times[t - first, 1])


@_cuda.jit(device=True, forceinline=True)
def _same(i: Any) -> Any:
    return i


# ---------------------------------------------------------------- teams of threads


class WarpTeam(NamedTuple):
    """A thread of a warp."""

    first: Any
    last: Any
    part: Any
    parts: Any


def _meet_in_warp(team: Any) -> None:
    _cuda.syncwarp()


def _never(team: Any) -> bool:
    return False


class BlockTeam(NamedTuple):
    """A thread of a block."""

    first: Any
    last: Any
    part: Any
    parts: Any


def _meet_in_block(team: Any) -> None:
    _cuda.syncthreads()


def _any_in_block(team: Any, number: Any, pass_number: Any) -> Any:
    return np.int64(_cuda.syncthreads_or(np.int32(number > 0)))


class GridTeam(NamedTuple):
    """A thread of a grid."""

    first: Any
    last: Any
    part: Any
    parts: Any
    counters: Any


def _meet_in_grid(team: Any) -> None:
    _cuda.cg.this_grid().sync()


def _total_in_grid(team: Any, number: Any, pass_number: Any) -> Any:
    """Of three places, one is being summed up, the next is empty, and some may still read the one before."""
    _cuda.atomic.add(team.counters, pass_number % 3, number)
    _cuda.cg.this_grid().sync()
    total = team.counters[pass_number % 3]
    if team.part == 0:
        team.counters[(pass_number + 2) % 3] = 0
    return total


for _team, _meet, _total in (
    (WarpTeam, _meet_in_warp, None),
    (BlockTeam, _meet_in_block, _any_in_block),
    (GridTeam, _meet_in_grid, _total_in_grid),
):
    for_team(_team, barrier, _meet, cuda_overload)
    if _total is not None:  # matchings do not play in a warp
        for_team(_team, total_of, _total, cuda_overload)
    for_team(_team, stopped, _never, cuda_overload)


def block_team(num_agents: int, counters: Any) -> BlockTeam:
    """The team of a thread whose block plays a trial."""
    part, parts = _cuda.threadIdx.x, _cuda.blockDim.x
    return BlockTeam(num_agents * part // parts, num_agents * (part + 1) // parts, part, parts)


def grid_team(num_agents: int, counters: Any) -> GridTeam:
    """The team of a thread where all threads play one trial."""
    part, parts = _cuda.grid(1), _cuda.gridsize(1)
    return GridTeam(num_agents * part // parts, num_agents * (part + 1) // parts, part, parts, counters)


compilable(block_team)
compilable(grid_team)


# ---------------------------------------------------------------- tables of random draws


_LAYERS = 256

_SIGNED = np.array([signed_edge(np.uint64(place)) for place in range(2 * _LAYERS)])
_INNER = np.array([inner_edge(np.int64(layer)) for layer in range(_LAYERS)])
TABLES = np.concatenate([_SIGNED, _INNER, SLAB_EDGES])
_INNER_START, _SLAB_START = len(_SIGNED), len(_SIGNED) + len(_INNER)
assert len(SLAB_EDGES) == SLABS + 1  # noqa: S101


def _signed_edge(place: Any) -> Any:
    return _cuda.shared.array(0, types.float64)[place]


def _inner_edge(layer: Any) -> Any:
    return _cuda.shared.array(0, types.float64)[_INNER_START + layer]


def _slab_edge(place: Any) -> Any:
    return _cuda.shared.array(0, types.float64)[np.uint64(_SLAB_START) + place]


def _use_on_gpu(function: Any, version: Any) -> None:
    """Let code for the GPU call a version of its own where it calls this function."""
    function._CUDATypingContext__dispatcher = _cuda.jit(device=True, forceinline=True)(version)


for _function, _version in ((signed_edge, _signed_edge), (inner_edge, _inner_edge), (slab_edge, _slab_edge)):
    _use_on_gpu(_function, _version)


@_cuda.jit(device=True)
def fill_tables(tables: Any) -> None:
    """Copy the tables; all threads of a block do it together."""
    here = _cuda.shared.array(0, types.float64)
    for place in range(_cuda.threadIdx.x, len(tables), _cuda.blockDim.x):
        here[place] = tables[place]
    _cuda.syncthreads()


# ---------------------------------------------------------------- worlds, links and times


class WorldOnGpu(NamedTuple):
    """``layout.World`` of all trials, while means stay the same."""

    means: Any  # [R, N, M]: of each trial, or one for all
    rewards: Any
    in_step: bool
    rates: Any
    lateness: Any
    arm_means: Any  # [R, M]


def on_gpu(value: Any, stream: Any) -> Any:
    """Arrays of a tuple, copied to the GPU."""
    if isinstance(value, np.ndarray):
        return _cuda.to_device(value, stream)
    if isinstance(value, tuple):
        copies = [on_gpu(part, stream) for part in value]  # pyright: ignore[reportUnknownVariableType]
        return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)  # pyright: ignore
    return value


def world_on_gpu(truths: Sequence[Sequence[Truth]], period: int, stream: Any) -> WorldOnGpu:
    """The world of one period, of each trial or of all."""
    world = truths[0][period].world
    return WorldOnGpu(
        means=on_gpu(np.stack([truth[period].world.means for truth in truths]), stream),
        rewards=on_gpu(world.rewards, stream),
        in_step=world.in_step,
        rates=on_gpu(world.rates, stream),
        lateness=on_gpu(world.lateness, stream),
        arm_means=on_gpu(np.stack([truth[period].arm_means for truth in truths]), stream),
    )


def scratch_of(links: LinkArrays) -> tuple[Any, ...]:
    """What each trial has for itself."""
    return links.present, links.degree, links.mixed, *links.matching


def links_on_gpu(links: LinkArrays, stream: Any) -> LinkArrays:
    """Links without their scratch memory, which each trial has for itself."""
    return links._replace(
        edges=on_gpu(links.edges, stream),
        first_neighbour=on_gpu(links.first_neighbour, stream),
        neighbours=on_gpu(links.neighbours, stream),
        contact_times=on_gpu(links.contact_times, stream),
        contact_edges=on_gpu(links.contact_edges, stream),
        present=0,
        degree=0,
        mixed=0,
        matching=0,
        team=0,
    )


@compile_driver
def _fill_times(first: int, times: Any) -> None:
    for t in range(len(times)):
        now = time_of(first + t)
        times[t, 0], times[t, 1] = now.log_t, now.root_log_t


_KEPT_ROUNDS = 2**24


class RoundTimes:
    """Logarithms of rounds on the GPU, by the CPU's library: the same bits as in its engine."""

    def __init__(self, horizon: int) -> None:
        """Nothing is computed yet."""
        self._start, self._here = 0, None
        self._horizon = horizon

    def of(self, segment: Any) -> Any:
        """[round, 2], for the rounds of a segment."""
        if self._here is None or not self._start <= segment.first <= segment.last < self._start + len(self._here):
            self._start = segment.first
            times = np.zeros(
                (max(min(self._horizon + 1 - segment.first, _KEPT_ROUNDS), segment.last + 1 - segment.first), 2)
            )
            _fill_times(segment.first, times)
            self._here = _cuda.to_device(times)
        return self._here[segment.first - self._start : segment.last + 1 - self._start]
