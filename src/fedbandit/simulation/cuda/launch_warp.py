"""Starts the kernel for teams in a warp: what of an agent lies where, and how many teams share a block."""

from importlib import import_module
from math import ceil
from types import FunctionType
from typing import Any, NamedTuple, cast

import numpy as np
from numba import cuda
from numba import typeof as _type_of  # pyright: ignore[reportUnknownVariableType]

from fedbandit.outside.modules import globals_of
from fedbandit.policies.protocol import Page
from fedbandit.simulation.cpu import Plan
from fedbandit.simulation.cuda.arrays import Times, WorldOnGpu
from fedbandit.simulation.cuda.loop import Readings
from fedbandit.simulation.cuda.tables import TABLES
from fedbandit.simulation.cuda.warp import Trials, WarpShape, warp_kernel
from fedbandit.simulation.layout import Links, new_population
from fedbandit.simulation.links import LINKS

__all__ = ["fits_in_a_warp", "warp_launcher"]

_cuda: Any = cuda
_typeof: Any = cast(Any, _type_of)

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


def fits_in_a_warp(plan: Plan, num_agents: int, num_arms: int) -> bool:
    """Whether each agent can play in its own thread's memory: nobody but its neighbours looks at it."""
    kit = plan.kit
    needs = TABLES.nbytes + num_agents * num_arms * (8 * kit.num_averaged + 4 + 8 + 8) + num_agents * _ALL
    if needs > MOST_SHARED_BYTES:
        return False
    has_one_link = kit.average_links is LINKS["one"].average
    by_itself = kit.network == "alone" or (kit.network in ("gossip", "consensus") and has_one_link)
    return num_agents <= WARP and by_itself and not (kit.is_late or kit.has_shares or kit.meets or kit.has_marks)


def warp_launcher(
    plan: Plan, num_agents: int, num_arms: int, in_step: bool, trials: range, seed: int, stream: Any, times: Times
) -> Any:
    """A function that starts a kernel for a stage."""
    count = len(trials)
    shape, shared = _warp_shape(plan, num_agents, num_arms, count)
    state = Trials(
        near=_zeros((count, num_agents), shape.near, stream),
        own=_cuda.to_device(_with_n_max(np.zeros((count, num_agents), shape.own)), stream),
        far=_zeros((count, num_agents), shape.far, stream),
        turns=_zeros((count, num_agents), shape.turn, stream),
        rows=_cuda.to_device(np.ones((count, 2, num_agents, num_arms), np.int32), stream),
    )
    kernel = warp_kernel(plan.kit, shape, in_step)
    blocks = ceil(count / (shape.per_warp * shape.warps))
    terms, tables = _cuda.to_device(plan.terms, stream), _cuda.to_device(TABLES, stream)

    def launch(stage: Any, row: int, world: WorldOnGpu, links: Links, readings: Readings) -> None:
        arguments = (
            stage.first,
            stage.last,
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
            times.of(stage),
            world.arm_means,
            tables,
            row,
            stage.is_fresh,
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
        compiled = kernel.compile(tuple(_typeof(argument) for argument in arguments))
        function = compiled._codelibrary.get_cufunc()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (result,) = driver.cuKernelSetAttribute(attribute, size, function.handle, function.device.id)
        if result != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the GPU refuses {size} bytes of shared memory: {result}")


def _warp_shape(plan: Plan, num_agents: int, num_arms: int, count: int) -> tuple[WarpShape, int]:
    """How teams lie in shared memory, and how much of it a block needs: as many as fit, but each for itself if few."""
    population = new_population(plan.page, plan.terms, num_arms)
    whole, turn = population.agents.dtype, population.turns.dtype
    room = Room(_ALL, None) if count <= FEW_TRIALS else MANY_WARPS
    near, own, far = _three_records(plan.page, whole, room.near_bytes)
    if room is MANY_WARPS and far.itemsize > _MOST_FAR_BYTES:
        room = MANY_REGISTERS
        near, own, far = _three_records(plan.page, whole, room.near_bytes)
    start = ceil(TABLES.nbytes / near.itemsize)
    rows = 2 * num_arms * 4 if plan.kit.announces else 0
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
        _aligned(turn, turn.names),
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
    often = {name for function in (page.noise_due, page.observe) if function for name in function.__code__.co_names}
    for name in whole.names or ():
        if name in names and name in page.knows and (name == "belief" or not page.knows[name].shape):
            own.append(name)
    rest = [name for name in whole.names or () if name not in [*near, *own, "padding"]]
    for name in sorted(rest, key=lambda name: (name not in names, name not in often, whole[name].itemsize)):
        if sum(whole[each].itemsize for each in [*near, name]) <= near_bytes:
            near.append(name)
    far = [name for name in whole.names or () if name not in [*near, *own, "padding"]]
    return _aligned(whole, near, odd=True), _aligned(whole, own), _aligned(whole, far)


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
