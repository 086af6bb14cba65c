"""Where the numbers of an agent lie on a GPU: an agent whose record has several parts, and views of memory.

What an agent reads in every round at any arm, and what its neighbours read, is ``near``: in shared memory. What it goes
through arm by arm is its thread's ``own``: in registers, if the page's loops allow it. The rest is ``far``: in the
thread's own memory. A page sees one agent with one set of names.

* ``agents_of(near, own, far)``: agents whose parts lie in three arrays
* ``as_rows(records)``, ``as_bytes(records)``: the same memory as rows of numbers or bytes
* ``shaped(array, shape)``: a row with several axes
* ``same_for_all(array)``: an array of one entry that every first index finds
* ``value_for_all(value)``: the same value at every index
* ``streams_of(seed, trial)``: the names of agents' streams, computed when asked for

Numba's CUDA simulator, which plays kernels in plain Python, has its own versions of these.
"""

from numba import config

__all__ = ["agents_of", "as_bytes", "as_rows", "cuda_overload", "same_for_all", "shaped", "streams_of", "value_for_all"]

if config.ENABLE_CUDASIM:  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    from fedbandit.engine.cuda.memory_simulated import (
        agents_of,
        as_bytes,
        as_rows,
        cuda_overload,
        same_for_all,
        shaped,
        streams_of,
        value_for_all,
    )
else:
    from fedbandit.engine.cuda.memory_compiled import (
        agents_of,
        as_bytes,
        as_rows,
        cuda_overload,
        same_for_all,
        shaped,
        streams_of,
        value_for_all,
    )
