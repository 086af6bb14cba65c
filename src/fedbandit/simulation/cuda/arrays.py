"""Arrays of a simulation on the GPU: worlds, links, times of rounds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fedbandit.policies.protocol import time_of
from fedbandit.simulation.compiled import SOURCES, compile_driver
from fedbandit.simulation.cpu import Truth
from fedbandit.simulation.layout import Links

__all__ = ["Times", "WorldOnGpu", "links_on_gpu", "on_gpu", "scratch_of", "world_on_gpu"]

_cuda: Any = cuda


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


def scratch_of(links: Links) -> tuple[Any, ...]:
    """What each trial has for itself."""
    return links.present, links.degree, links.mixed, *links.matching


def links_on_gpu(links: Links, stream: Any) -> Links:
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
        crew=0,
    )


@compile_driver((SOURCES, "times of rounds"))
def _fill_times(first: int, times: Any) -> None:
    for t in range(len(times)):
        now = time_of(first + t)
        times[t, 0], times[t, 1] = now.log_t, now.root_log_t


_KEPT_ROUNDS = 2**24


class Times:
    """Logarithms of rounds on the GPU, by the CPU's library: the same bits as in its engine."""

    def __init__(self, horizon: int) -> None:
        """Nothing is computed yet."""
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
