"""The GPU engine: all trials of all plans in flight at once, played from checkpoint to checkpoint by kernels.

Results agree with the CPU engine's where a page uses +, -, *, / and square roots only. The GPU's logarithms and
exponentials may differ in the last bit, and then so may a choice between two nearly equal arms.
"""

from collections.abc import Callable, Generator, Sequence
from math import ceil
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba import typeof as _typeof_of_value
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.outside.modules import globals_of
from fedbandit.policies.protocol import Page, time_of
from fedbandit.simulation.aggregates import Keep
from fedbandit.simulation.compiled import compile_driver
from fedbandit.simulation.cpu import Plan, Record, Truth, new_record
from fedbandit.simulation.cuda_books import Row, enter, stages_of
from fedbandit.simulation.cuda_rounds import OpenTrials, Readings, Trials, WarpShape, open_kernel, warp_kernel
from fedbandit.simulation.layout import Links, Population, new_population, no_tape
from fedbandit.simulation.cuda_tables import TABLES
from fedbandit.simulation.links import LINKS

__all__ = ["run_trials", "why_not"]

_cuda: Any = cuda
_typeof: Any = _typeof_of_value

_WARP = 32
_NEAR_BYTES = 376
"""Of an agent, in shared memory: with as many, and n~, 16 warps fit on a multiprocessor, as many as registers do."""

_WARPS = 4  # in a block: they share the tables
_DEFAULT_SHARED_BYTES = 48 * 1024

_FEW_TRIALS = 2_000  # in flight: each has a warp of its own, which shortens a round
_MOST_PULLS_AT_ONCE, _MOST_ROUNDS_AT_ONCE = 10**10, 200_000  # of a kernel: about a second
_BLOCK = 128  # threads of a team that is a block
_GRID_AGENTS = 4_096  # from so many on, a trial has the whole grid
_MOST_MEMORY = 0.6  # of what is free on the GPU


def why_not() -> str | None:
    """Why this machine cannot play on a GPU; ``None`` if it can."""
    if not _cuda.is_available():
        return "no NVIDIA GPU and driver that numba-cuda can use was found"
    return None


def run_trials(
    truths: Sequence[Sequence[Truth]],
    plans: Sequence[Plan],
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    on_rounds: Callable[[int], None],
    keep: Keep = "agents",
) -> list[Record]:
    """Play all trials of all plans; return a record per plan: as ``cpu.run_trials``."""
    logs = _Times(int(times[-1]))
    flights = [_fly(truths, plan, times, trials, seed, keep, logs) for plan in plans]
    records: dict[int, Record] = {}
    rounds = 0
    while len(records) < len(flights):
        for which, flight in enumerate(flights):
            if which not in records:
                try:
                    rounds += next(flight)
                except StopIteration as end:
                    records[which] = end.value
        on_rounds(rounds)
    return [records[which] for which in range(len(flights))]


def _fly(
    truths: Sequence[Sequence[Truth]],
    plan: Plan,
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    keep: Keep,
    logs: "_Times",
) -> Generator[int, None, Record]:
    """Play all trials of a plan; yields rounds times trials whenever a kernel is on its way."""
    num_agents, num_arms = truths[0][0].world.means.shape
    record = new_record(len(trials), num_agents, len(times), num_arms, keep)
    at_once = _trials_at_once(plan, num_agents, num_arms, 1 if keep == "aggregates" else len(times), len(trials))
    for start in range(0, len(trials), at_once):
        part = slice(start, min(start + at_once, len(trials)))
        mine = truths[part] if len(truths) > 1 else truths
        some = Record(*(array[part] for array in record))
        yield from _play(mine, plan, times, trials[part], seed, keep, some, logs)
    return record


def _trials_at_once(plan: Plan, num_agents: int, num_arms: int, rows: int, trials: int) -> int:
    """How many trials the GPU has memory for."""
    state = plan_bytes(new_population(plan.page, plan.terms, num_arms, plan.rounds_of_waiting, plan.shares))
    each = state + sum(array.nbytes for _, links in plan.links for array in _scratch(links))
    each += rows * num_agents * (12 * num_arms + 28)
    free = _MOST_MEMORY * _cuda.current_context().get_memory_info().free
    if each > free:
        raise InvalidArgument(
            "problem", f"{num_agents:,} agents", "smaller", f"A trial takes {each / 2**30:.1f} GiB on the GPU."
        )
    return max(1, min(trials, int(free / each), 2**20))


def plan_bytes(population: Population) -> int:
    """Of all arrays of a trial."""
    arrays = [*population, *population.shown, *population.waiting, *population.sharing]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


class _Device(NamedTuple):
    """What a plan has on the GPU: a kernel, and how to call it."""

    play: Callable[..., None]  # (stage, world's arrays)
    readings: Any


def _play(
    truths: Sequence[Sequence[Truth]],
    plan: Plan,
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    keep: Keep,
    record: Record,
    logs: "_Times",
) -> Generator[int]:
    num_agents, num_arms = truths[0][0].world.means.shape
    most = max(1, min(_MOST_ROUNDS_AT_ONCE, _MOST_PULLS_AT_ONCE // (num_agents * len(trials))))
    stages, rows = stages_of(
        times.tolist(), [truth.first for truth in truths[0]], [first for first, _ in plan.links], most
    )
    one_by_one = keep == "aggregates"
    readings = _new_readings(1 if one_by_one else len(rows), len(trials), num_agents, num_arms)
    stream = _cuda.stream()
    launch = _launcher(plan, truths, trials, seed, stream, logs)
    links = [_links_on_gpu(each, stream) for _, each in plan.links]
    worlds = [_world_on_gpu(truths, period, stream) for period in range(len(truths[0]))]
    told: list[Row] = []
    for stage in stages:
        row = 0 if one_by_one else stage.row
        launch(stage, row, worlds[stage.truth], links[stage.links], readings)
        yield (stage.last - stage.first + 1) * len(trials)
        if one_by_one and (stage is stages[-1] or stages[stages.index(stage) + 1].row != stage.row):
            stream.synchronize()
            told.append(_row_of(readings, 0))
    stream.synchronize()
    if not one_by_one:
        whole = Readings(*(array.copy_to_host() for array in readings))
        told = [Row(*(array[row] for array in whole)) for row in range(len(rows))]
    enter(told, rows, truths, record, keep)


def _row_of(readings: Readings, row: int) -> Row:
    return Row(*(array[row].copy_to_host() for array in readings))


def _new_readings(rows: int, trials: int, num_agents: int, num_arms: int) -> Readings:
    shape = (rows, trials, num_agents)
    kinds = {"tried": np.int32, "theta": np.float64, "messages": np.int64, "clock": np.int64, "caught_up": np.int32}
    per_arm = ("tried", "theta")
    return Readings(
        *(
            _cuda.device_array((*shape, num_arms) if name in per_arm else shape, kinds.get(name, np.float64))
            for name in Readings._fields
        )
    )


# ---------------------------------------------------------------- on the GPU


class _WorldOnGpu(NamedTuple):
    means: Any  # [R, N, M]: of each trial, or one for all
    rewards: Any
    in_step: bool
    rates: Any
    lateness: Any
    arm_means: Any  # [R, M]


def _on_gpu(value: Any, stream: Any) -> Any:
    """Arrays of a tuple, copied to the GPU."""
    if isinstance(value, np.ndarray):
        return _cuda.to_device(value, stream)
    if isinstance(value, tuple):
        copies = [_on_gpu(part, stream) for part in value]  # pyright: ignore[reportUnknownVariableType]
        return type(value)(*copies) if hasattr(value, "_fields") else tuple(copies)  # pyright: ignore
    return value


def _world_on_gpu(truths: Sequence[Sequence[Truth]], period: int, stream: Any) -> _WorldOnGpu:
    world = truths[0][period].world
    return _WorldOnGpu(
        means=_on_gpu(np.stack([truth[period].world.means for truth in truths]), stream),
        rewards=_on_gpu(world.rewards, stream),
        in_step=world.in_step,
        rates=_on_gpu(world.rates, stream),
        lateness=_on_gpu(world.lateness, stream),
        arm_means=_on_gpu(np.stack([truth[period].arm_means for truth in truths]), stream),
    )


def _scratch(links: Links) -> tuple[Any, ...]:
    return links.present, links.degree, links.mixed, *links.matching


def _links_on_gpu(links: Links, stream: Any) -> Links:
    """Links without their scratch memory, which each trial has for itself."""
    return links._replace(
        edges=_on_gpu(links.edges, stream),
        first_neighbour=_on_gpu(links.first_neighbour, stream),
        neighbours=_on_gpu(links.neighbours, stream),
        contact_times=_on_gpu(links.contact_times, stream),
        contact_edges=_on_gpu(links.contact_edges, stream),
        present=0,
        degree=0,
        mixed=0,
        matching=0,
        crew=0,
    )


@compile_driver(("times of rounds",))
def _fill_times(first: int, times: Any) -> None:
    for t in range(len(times)):
        now = time_of(first + t)
        times[t, 0], times[t, 1] = now.log_t, now.root_log_t


_KEPT_ROUNDS = 2**24


class _Times:
    """Logarithms of rounds on the GPU, by the CPU's library: the same bits as in its engine."""

    def __init__(self, horizon: int) -> None:
        self._start, self._here = 0, None
        self._horizon = horizon

    def of(self, stage: Any) -> Any:
        """[round, 2], for the rounds of a stage."""
        if self._here is None or not self._start <= stage.first <= stage.last < self._start + len(self._here):
            self._start = stage.first
            times = np.zeros((max(min(self._horizon + 1 - stage.first, _KEPT_ROUNDS), stage.last + 1 - stage.first), 2))
            _fill_times(stage.first, times)
            self._here = _cuda.to_device(times)
        return self._here[stage.first - self._start : stage.last + 1 - self._start]


def _launcher(
    plan: Plan, truths: Sequence[Sequence[Truth]], trials: range, seed: int, stream: Any, times: _Times
) -> Any:
    """A function that starts a kernel for a stage."""
    num_agents, num_arms = truths[0][0].world.means.shape
    in_a_warp = _fits_in_a_warp(plan, num_agents)
    make = _warp_launcher if in_a_warp else _open_launcher
    return make(plan, num_agents, num_arms, truths[0][0].world.in_step, trials, seed, stream, times)


def _fits_in_a_warp(plan: Plan, num_agents: int) -> bool:
    """Whether each agent can play in its own thread's memory: nobody but its neighbours looks at it."""
    kit = plan.kit
    by_itself = kit.network == "alone" or (kit.network in ("gossip", "consensus") and _has_one_link(plan))
    return num_agents <= _WARP and by_itself and not (kit.is_late or kit.has_shares or kit.meets or kit.has_marks)


def _has_one_link(plan: Plan) -> bool:
    return plan.kit.average_links is LINKS["one"].average


# ---------------------------------------------------------------- teams in a warp


def _warp_launcher(
    plan: Plan, num_agents: int, num_arms: int, in_step: bool, trials: range, seed: int, stream: Any, times: _Times
) -> Any:
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

    def launch(stage: Any, row: int, world: _WorldOnGpu, links: Links, readings: Readings) -> None:
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
        kernel[blocks, _WARP * shape.warps, stream, shared](*arguments)

    return launch


def _with_n_max(records: Any) -> Any:
    records["n_max"] = 1  # after the first pulls everyone has pulled every arm once
    return records


def _allow_shared_memory(kernel: Any, arguments: Any, size: int) -> None:
    """Ask for more than the 48 KiB that a block has by default."""
    if size > _DEFAULT_SHARED_BYTES:
        from cuda.bindings import driver

        compiled = kernel.compile(tuple(_typeof(argument) for argument in arguments))
        function = compiled._codelibrary.get_cufunc()
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (result,) = driver.cuKernelSetAttribute(attribute, size, function.handle, function.device.id)
        if result != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the GPU refuses {size} bytes of shared memory: {result}")


def _warp_shape(plan: Plan, num_agents: int, num_arms: int, count: int) -> tuple[WarpShape, int]:
    """How teams lie in shared memory, and how much of it a block needs."""
    population = new_population(plan.page, plan.terms, num_arms)
    near, own, far = _three_records(plan.page, population.agents.dtype)
    per_warp, warps = (1, 1) if count <= _FEW_TRIALS else (_WARP // num_agents, _WARPS)
    teams = per_warp * warps
    near_start = ceil(TABLES.nbytes / near.itemsize)
    after_near = (near_start + teams * num_agents) * near.itemsize
    after_rows = after_near + (teams * 2 * num_agents * num_arms * 4 if plan.kit.announces else 0)
    shape = WarpShape(
        num_agents,
        num_arms,
        per_warp,
        warps,
        near,
        own,
        far,
        _aligned(population.turns.dtype, population.turns.dtype.names),
        near_start,
        after_near // 4,
    )
    return shape, after_rows


def _three_records(page: Page, whole: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]]:
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
        if sum(whole[each].itemsize for each in [*near, name]) <= _NEAR_BYTES:
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


# ---------------------------------------------------------------- other teams


def _open_launcher(
    plan: Plan, num_agents: int, num_arms: int, in_step: bool, trials: range, seed: int, stream: Any, times: _Times
) -> Any:
    count = len(trials)
    is_grid = num_agents >= _GRID_AGENTS
    states = [_new_trials(plan, num_arms, 1 if is_grid else count, stream) for _ in range(count if is_grid else 1)]
    kernel = open_kernel(plan.kit, in_step, is_grid)
    terms, tape = _cuda.to_device(plan.terms, stream), _on_gpu(no_tape(), stream)
    tables = _cuda.to_device(TABLES, stream)

    def launch(stage: Any, row: int, world: _WorldOnGpu, links: Links, readings: Readings) -> None:
        rounds = times.of(stage)
        for position, state in enumerate(states):
            mine = Readings(*(array[:, position : position + 1] for array in readings)) if is_grid else readings
            several = len(world.means) > 1 and is_grid
            one = slice(position, position + 1)
            arguments = (
                stage.first,
                stage.last,
                np.uint64(seed),
                np.uint64(trials.start + position),
                state,
                terms,
                world.means[one] if several else world.means,
                world.rewards,
                world.rates,
                world.lateness,
                links,
                tape,
                rounds,
                world.arm_means[one] if several else world.arm_means,
                tables,
                row,
                stage.is_fresh,
                mine,
            )
            blocks = _blocks_of_grid(kernel, arguments, num_agents) if is_grid else count
            threads = _BLOCK if is_grid else min(_BLOCK, _WARP * ceil(num_agents / _WARP))
            kernel[blocks, threads, stream, TABLES.nbytes](*arguments)

    return launch


def _blocks_of_grid(kernel: Any, arguments: Any, num_agents: int) -> int:
    """As many blocks as can wait for each other."""
    compiled = kernel.compile(tuple(_typeof(argument) for argument in arguments))
    return min(compiled.max_cooperative_grid_blocks(_BLOCK), ceil(num_agents / _BLOCK))


def _new_trials(plan: Plan, num_arms: int, count: int, stream: Any) -> OpenTrials:
    one = new_population(plan.page, plan.terms, num_arms, plan.rounds_of_waiting, plan.shares)
    links = plan.links[0][1]

    def all_of(array: Any) -> Any:
        return _cuda.to_device(np.broadcast_to(array, (count, *array.shape)).copy(), stream)

    agents = all_of(one.agents)
    sharing = one.sharing
    most = max(len(each.present) for _, each in plan.links)
    return OpenTrials(
        agents=agents,
        turns=all_of(one.turns),
        n_max=all_of(one.n_max),
        rows=all_of(one.shown.rows),
        stirred=all_of(one.shown.stirred),
        pooled=all_of(one.pooled),
        before=all_of(one.before),
        waiting=type(one.waiting)(*(all_of(array) for array in one.waiting)),
        sharing=sharing._replace(
            few=all_of(sharing.few),
            few_bytes=all_of(sharing.few_bytes),
            fresh=all_of(sharing.fresh),
            all_bytes=all_of(sharing.all_bytes),
            places=_cuda.to_device(sharing.places, stream),
            unobserved=all_of(sharing.unobserved),
        ),
        present=all_of(np.zeros(most, np.int64)),
        degree=all_of(links.degree),
        mixed=all_of(links.mixed),
        choice=all_of(links.matching.choice),
        is_free=all_of(links.matching.is_free),
        searching=all_of(links.matching.waiting),
        board=_cuda.to_device(np.zeros(3, np.int64), stream),
    )
