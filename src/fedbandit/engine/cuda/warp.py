"""The kernel for teams in a warp: up to 32 agents, each with a thread of its own.

What an agent reads in every round lies in shared memory or registers, the rest in its thread's own memory. So nobody
but neighbours may look at an agent: pages and links that need everybody at once are played by ``open``.
"""

from functools import cache
from importlib import import_module
from math import ceil
from types import FunctionType
from typing import Any, NamedTuple, cast

import numpy as np
from numba import cuda, from_dtype, types
from numba import typeof as _type_of  # pyright: ignore[reportUnknownVariableType]

from fedbandit.engine.compiled import by_value, row_like
from fedbandit.engine.cpu import CompiledPolicy
from fedbandit.engine.cuda.device import (
    TABLES,
    GpuWorld,
    Readings,
    RoundTimes,
    WarpTeam,
    WorldOnGpu,
    expect_clock,
    fill_tables,
    loop_of,
    tell_clock,
)
from fedbandit.engine.cuda.memory import agents_of, as_rows, same_for_all, shaped, streams_of, value_for_all
from fedbandit.engine.layout import LinkArrays, Population, ShownCounts, TapeArrays, new_population
from fedbandit.engine.links import LINKS
from fedbandit.engine.phases import Specialisation
from fedbandit.engine.streams import EDGES, stream
from fedbandit.policies.protocol import Page
from fedbandit.policies.registry import globals_of
from fedbandit.rules import private
from fedbandit.rules.gossip import heard

_cuda: Any = cuda
_record_of: Any = from_dtype
_NO_PART = 2**20  # of a thread without an agent: beyond all columns


class Trials(NamedTuple):
    """All trials: [trial, agent, ...]."""

    near: Any
    own: Any
    far: Any
    steps: Any
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
    step: Any
    near_start: int  # in entries of each kind
    rows_start: int
    registers: int | None  # of a thread, at most


class _Links(NamedTuple):
    """What a team in a warp needs of ``layout.LinkArrays``."""

    edges: Any
    mask: Any  # of an agent's neighbours
    team: Any


def _hearing_in_warp(spec: Specialisation) -> tuple[Any, Any]:
    """Algorithm 1, line 5, by a team in a warp: who an agent's neighbours are is told by the bits of one number."""
    announced: Any = spec.page.announced

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
def warp_kernel(spec: Specialisation, shape: WarpShape, in_step: bool) -> Any:
    """The kernel for teams in a warp."""
    play_rounds, estimate = loop_of(spec, True, _hearing_in_warp(spec)), spec.page.estimate
    num_agents, num_arms, per_warp, warps = shape.num_agents, shape.num_arms, shape.per_warp, shape.warps
    near_record, own_record = _record_of(shape.near), _record_of(shape.own)
    far_record, step_record = _record_of(shape.far), _record_of(shape.step)
    page = spec.page
    columns, has_caught_up, announces = len(page.averaged), "caught_up" in page.knows, page.announced is not None
    near_start, rows_start = shape.near_start, shape.rows_start
    rows_of_team, is_guarded = 2 * num_agents * num_arms, spec.is_guarded

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
        steps = _cuda.local.array(1, step_record)
        no_rows = _cuda.local.array((1, 1), types.int32)
        before = _cuda.local.array((1, num_arms, columns), types.float64)
        misses = _cuda.local.array(1, types.float64)
        if is_mine:
            near[i] = trials.near[r, i]
            own[0] = trials.own[r, i]
            far[0] = trials.far[r, i]
            steps[0] = trials.steps[r, i]
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
            ShownCounts(rows, 0),
            same_for_all(steps),
            streams_of(seed, trial),
            0,
            same_for_all(before),
            0,
            0,
            0,
            0,
            0,
        )
        mask = np.uint32(0)
        for e in range(first_neighbour[i], first_neighbour[i + 1]):
            mask = np.uint32(mask | (np.uint32(1) << neighbours[e]))
        mine_first = np.uint64(i)
        team = WarpTeam(
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
            stream(seed, trial, EDGES, np.uint64(0), np.uint64(0)),
            population,
            GpuWorld(means[which], numbers, in_step, rates, 0, times),
            _Links(edges, mask, team),
            TapeArrays(False, no_cube, no_row, no_row, False, no_cube, False, no_cube, no_row, no_row),
            arm_means[which],
            same_for_all(misses),
        )
        if is_mine:
            me, mine, fixed = population.agents[i], steps[0], population.terms[i]
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
            trials.steps[r, i] = steps[0]
            if announces:
                for half in range(2):
                    for k in range(num_arms):
                        trials.rows[r, half, i, k] = rows[half, i, k]

    return play


# ---------------------------------------------------------------- starting it

WARP = 32
WARPS = 4  # in a block: they share the tables
FEW_TRIALS = 2_000  # each has a warp of its own, which shortens a round


class Room(NamedTuple):
    """Of an agent: bytes in shared memory, and registers of its thread at most."""

    near_bytes: int
    registers: int | None


# On an H200: 16 warps to a multiprocessor, or 12 with more room for each. Measured with benchmarks/gpu.py.
MANY_WARPS, MANY_REGISTERS = Room(376, 128), Room(480, 168)
_MOST_FAR_BYTES = 512  # which the cache can hold for 16 warps
_ALL = 1_000
_DEFAULT_SHARED_BYTES = 48 * 1024
MOST_SHARED_BYTES = 220 * 1024  # of a block


def fits_in_a_warp(policy: CompiledPolicy, num_agents: int, num_arms: int) -> bool:
    """Whether each agent can play in its own thread's memory: nobody but its neighbours looks at it."""
    spec, page = policy.specialisation, policy.page
    needs = TABLES.nbytes + num_agents * num_arms * (8 * len(page.averaged) + 4 + 8 + 8) + num_agents * _ALL
    if needs > MOST_SHARED_BYTES:
        return False
    has_one_link = spec.links == LINKS["one"]
    by_itself = page.network == "alone" or (page.network in ("gossip", "consensus") and has_one_link)
    return num_agents <= WARP and by_itself and not (spec.is_late or spec.has_shares or page.meet or spec.links.mark)


def warp_launcher(
    policy: CompiledPolicy,
    num_agents: int,
    num_arms: int,
    in_step: bool,
    trials: range,
    seed: int,
    stream: Any,
    times: RoundTimes,
) -> Any:
    """A function that starts a kernel for a segment."""
    count = len(trials)
    shape, shared = _warp_shape(policy, num_agents, num_arms, count)
    state = Trials(
        near=_zeros((count, num_agents), shape.near, stream),
        own=_cuda.to_device(_with_n_max(np.zeros((count, num_agents), shape.own)), stream),
        far=_zeros((count, num_agents), shape.far, stream),
        steps=_zeros((count, num_agents), shape.step, stream),
        rows=_cuda.to_device(np.ones((count, 2, num_agents, num_arms), np.int32), stream),
    )
    kernel = warp_kernel(policy.specialisation, shape, in_step)
    blocks = ceil(count / (shape.per_warp * shape.warps))
    terms, tables = _cuda.to_device(policy.terms, stream), _cuda.to_device(TABLES, stream)

    def launch(segment: Any, row: int, world: WorldOnGpu, links: LinkArrays, readings: Readings) -> None:
        arguments = (
            segment.first,
            segment.last,
            np.uint64(seed),
            np.uint64(trials.start),
            state,
            terms,
            world.means,
            world.rewards,
            world.rates,
            links.edges,
            links.first_neighbour,
            links.neighbours,
            times.of(segment),
            world.arm_means,
            tables,
            row,
            segment.is_fresh,
            readings,
        )
        _allow_shared_memory(kernel, arguments, shared)
        kernel[blocks, WARP * shape.warps, stream, shared](*arguments)

    return launch


def _with_n_max(records: Any) -> Any:
    records["n_max"] = 1  # after the first pulls everyone has pulled every arm once
    return records


def _allow_shared_memory(kernel: Any, arguments: Any, size: int) -> None:
    """Ask for more than the 48 KiB that a block has by default."""
    if size > _DEFAULT_SHARED_BYTES:
        driver: Any = import_module("cuda.bindings.driver")
        compiled = kernel.compile(tuple(cast(Any, _type_of)(argument) for argument in arguments))
        function = compiled._codelibrary.get_cufunc()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (result,) = driver.cuKernelSetAttribute(attribute, size, function.handle, function.device.id)
        if result != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the GPU refuses {size} bytes of shared memory: {result}")


def _warp_shape(policy: CompiledPolicy, num_agents: int, num_arms: int, count: int) -> tuple[WarpShape, int]:
    """How teams lie in shared memory, and how much of it a block needs: as many as fit, but each for itself if few."""
    population = new_population(policy.page, policy.terms, num_arms)
    whole, step = population.agents.dtype, population.steps.dtype
    room = Room(_ALL, None) if count <= FEW_TRIALS else MANY_WARPS
    near, own, far = _three_records(policy.page, whole, room.near_bytes)
    if room is MANY_WARPS and far.itemsize > _MOST_FAR_BYTES:
        room = MANY_REGISTERS
        near, own, far = _three_records(policy.page, whole, room.near_bytes)
    start = ceil(TABLES.nbytes / near.itemsize)
    rows = 2 * num_arms * 4 if policy.page.announced else 0
    options = [(1, 1)] if count <= FEW_TRIALS else [(WARP // num_agents, warps) for warps in (WARPS, 2, 1)] + [(1, 1)]
    sizes = [start * near.itemsize + teams * warps * num_agents * (near.itemsize + rows) for teams, warps in options]
    place = next(place for place, size in enumerate(sizes) if size <= MOST_SHARED_BYTES)
    per_warp, warps = options[place]
    after_near = (start + per_warp * warps * num_agents) * near.itemsize
    shape = WarpShape(
        num_agents,
        num_arms,
        per_warp,
        warps,
        near,
        own,
        far,
        _aligned(step, step.names),
        start,
        after_near // 4,
        room.registers,
    )
    return shape, sizes[place]


def _three_records(
    page: Page, whole: np.dtype[Any], near_bytes: int
) -> tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]:
    """What of an agent is near, its thread's own, and far.

    Near: what others read, then what decisions read, if there is room. Own: n~, and what decisions make anew each time.
    """
    near, own = [*page.averaged, "tried"], ["n_max"]
    names = _names_in(page.decide, set())
    often = {name for function in _at_every_reward(page) for name in function.__code__.co_names}
    for name in whole.names or ():
        if name in names and name in page.knows and (name == "belief" or not page.knows[name].shape):
            own.append(name)
    rest = [name for name in whole.names or () if name not in [*near, *own, "padding"]]
    for name in sorted(rest, key=lambda name: (name not in names, name not in often, whole[name].itemsize)):
        if sum(whole[each].itemsize for each in [*near, name]) <= near_bytes:
            near.append(name)
    far = [name for name in whole.names or () if name not in [*near, *own, "padding"]]
    return _aligned(whole, near, odd=True), _aligned(whole, own), _aligned(whole, far)


def _at_every_reward(page: Page) -> list[FunctionType]:
    """The functions that every reward calls: the page's own, and the rule for private sums that it uses."""
    called: Any = (value for _, value in globals_of(cast(FunctionType, page.observe)))
    found = [page.noise_due, page.observe, *(it for it in called if it in (private.collect, private.collect_in_tree))]
    return [function for function in found if function is not None]


def _names_in(function: FunctionType, seen: set[FunctionType]) -> set[str]:
    """Names of attributes that a function uses, or a function that it calls."""
    seen.add(function)
    names = set(function.__code__.co_names)
    for _, called in globals_of(function):
        if isinstance(called, FunctionType) and called not in seen:
            names |= _names_in(called, seen)
    return names


def _aligned(record: np.dtype[Any], names: Any, odd: bool = False) -> np.dtype[Any]:
    """A record of some fields, the widest first, of whole words.

    ``odd``: of an odd number of words, so that threads that read the same field use different banks of memory.
    """
    fields = [(name, record[name].base, record[name].shape) for name in names] or [("nothing", np.dtype("f8"), ())]
    fields.sort(key=lambda field: -field[1].itemsize)
    made = np.dtype(fields, align=True)
    if odd and made.itemsize // 8 % 2 == 0:
        made = np.dtype([*fields, ("odd", "f8")], align=True)
    return made


def _zeros(shape: tuple[int, ...], record: Any, stream: Any) -> Any:
    return _cuda.to_device(np.zeros(shape, record), stream)
