"""Starts the kernel for teams that are a block of threads, or the whole grid."""

from math import ceil
from typing import Any, cast

import numpy as np
from numba import cuda
from numba import typeof as _type_of  # pyright: ignore[reportUnknownVariableType]

from fedbandit.checks import InvalidArgument
from fedbandit.simulation.cpu import Plan
from fedbandit.simulation.cuda.arrays import Times, WorldOnGpu, on_gpu
from fedbandit.simulation.cuda.loop import Readings
from fedbandit.simulation.cuda.open import OpenTrials, open_kernel
from fedbandit.simulation.cuda.tables import TABLES
from fedbandit.simulation.layout import Links, new_population, no_tape

__all__ = ["open_launcher"]

_cuda: Any = cuda
_typeof: Any = cast(Any, _type_of)

_WARP = 32
_BLOCK = 128  # threads of a team that is a block
_GRID_AGENTS = 4_096  # from so many on, a trial has the whole grid


def open_launcher(
    plan: Plan, num_agents: int, num_arms: int, in_step: bool, trials: range, seed: int, stream: Any, times: Times
) -> Any:
    """A function that starts a kernel for a stage."""
    count = len(trials)
    is_grid = num_agents >= _GRID_AGENTS
    if is_grid and plan.kit.is_guarded:
        # A page that fails ends its thread, and threads of a grid may wait for it for ever.
        accepted = f"'cpu' for a policy of one's own with {_GRID_AGENTS:,} agents or more"
        raise InvalidArgument("engine", "cuda", accepted)
    states = [_new_trials(plan, num_arms, 1 if is_grid else count, stream) for _ in range(count if is_grid else 1)]
    kernel = open_kernel(plan.kit, in_step, is_grid)
    terms, tape = _cuda.to_device(plan.terms, stream), on_gpu(no_tape(), stream)
    tables = _cuda.to_device(TABLES, stream)

    def launch(stage: Any, row: int, world: WorldOnGpu, links: Links, readings: Readings) -> None:
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
                stage.has_new_links,
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
            few_bytes=0,  # the kernel sees the same memory so
            fresh=all_of(sharing.fresh),
            all_bytes=0,
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
