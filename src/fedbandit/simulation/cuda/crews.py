"""Crews of threads on a GPU: how the threads that play a trial meet (``fedbandit.simulation.crew``)."""

from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fedbandit.simulation.compiled import compilable
from fedbandit.simulation.crew import for_crew, meet, stopped, total_of
from fedbandit.simulation.cuda.memory import cuda_overload

__all__ = ["BlockCrew", "GridCrew", "WarpCrew", "block_crew", "grid_crew"]

_cuda: Any = cuda


class WarpCrew(NamedTuple):
    """A thread of a warp."""

    first: Any
    last: Any
    part: Any
    parts: Any


def _meet_in_warp(crew: Any) -> None:
    _cuda.syncwarp()


def _never(crew: Any) -> bool:
    return False


class BlockCrew(NamedTuple):
    """A thread of a block."""

    first: Any
    last: Any
    part: Any
    parts: Any


def _meet_in_block(crew: Any) -> None:
    _cuda.syncthreads()


def _any_in_block(crew: Any, number: Any, pass_number: Any) -> Any:
    return np.int64(_cuda.syncthreads_or(np.int32(number > 0)))


class GridCrew(NamedTuple):
    """A thread of a grid."""

    first: Any
    last: Any
    part: Any
    parts: Any
    board: Any


def _meet_in_grid(crew: Any) -> None:
    _cuda.cg.this_grid().sync()


def _total_in_grid(crew: Any, number: Any, pass_number: Any) -> Any:
    """Of three places, one is being summed up, the next is empty, and some may still read the one before."""
    _cuda.atomic.add(crew.board, pass_number % 3, number)
    _cuda.cg.this_grid().sync()
    total = crew.board[pass_number % 3]
    if crew.part == 0:
        crew.board[(pass_number + 2) % 3] = 0
    return total


for _crew, _meet, _total in (
    (WarpCrew, _meet_in_warp, None),
    (BlockCrew, _meet_in_block, _any_in_block),
    (GridCrew, _meet_in_grid, _total_in_grid),
):
    for_crew(_crew, meet, _meet, cuda_overload)
    if _total is not None:  # matchings do not play in a warp
        for_crew(_crew, total_of, _total, cuda_overload)
    for_crew(_crew, stopped, _never, cuda_overload)


def block_crew(num_agents: int, board: Any) -> BlockCrew:
    """The crew of a thread whose block plays a trial."""
    part, parts = _cuda.threadIdx.x, _cuda.blockDim.x
    return BlockCrew(num_agents * part // parts, num_agents * (part + 1) // parts, part, parts)


def grid_crew(num_agents: int, board: Any) -> GridCrew:
    """The crew of a thread where all threads play one trial."""
    part, parts = _cuda.grid(1), _cuda.gridsize(1)
    return GridCrew(num_agents * part // parts, num_agents * (part + 1) // parts, part, parts, board)


compilable(block_crew)
compilable(grid_crew)
