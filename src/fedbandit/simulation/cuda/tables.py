"""Tables of the random draws on a GPU: in the shared memory of each block, at its start.

Numba puts tables into constant memory, which serves one address at a time: threads that look up different entries
would wait for each other.
"""

from typing import Any

import numpy as np
from numba import cuda, types

from fedbandit.simulation.streams import SLAB_EDGES, SLABS, inner_edge, signed_edge, slab_edge

__all__ = ["TABLES", "fill_tables"]

_cuda: Any = cuda
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
