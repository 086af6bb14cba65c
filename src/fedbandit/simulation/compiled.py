"""Makes the rules callable from compiled code, as they stand.

Here belongs the link between ``fedbandit.rules`` (plain Python) and Numba, and nothing else. A rule stays
an ordinary Python function: ``register_jitable`` only tells Numba that it may compile it where compiled
code calls it. Doing so from here keeps Numba out of ``rules`` and so out of a live agent.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import njit
from numba.extending import register_jitable

from fedbandit.rules import choose, gossip, mean, radius

__all__ = ["SOURCES", "compile_driver", "compile_inner"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_jit: Any = njit


def compile_inner(function: _Function) -> _Function:
    """Compile what runs in every round.

    It allocates nothing, so it needs no reference counts: with them (Numba's default, atomic ones, at
    every view of a row) the engine was measured to run ten times slower. It is forced inline, since a
    call hands over a few hundred machine words of array descriptors.
    """
    return _jit(_nrt=False, error_model="numpy", forceinline=True)(function)


def compile_driver(function: _Function) -> _Function:
    """Compile a loop over rounds: cached on disk, and other Python threads run beside it."""
    return _jit(nogil=True, cache=True, error_model="numpy", _nrt=False)(function)


for rule in (
    choose.choose,
    choose.count_lagging,
    choose.highest_belief,
    choose.nth_lagging,
    gossip.average,
    gossip.heard,
    gossip.metropolis_weight,
    gossip.with_news,
    mean.clamp,
    mean.prefix_noise,
    mean.pull_tree_add,
    mean.time_tree_add,
    mean.time_tree_first_new,
    mean.trailing_zeros,
    radius.central_sampling,
    radius.gossip_sampling,
    radius.local_sampling,
    radius.private_noise,
    radius.radius,
):
    register_jitable(_nrt=False, error_model="numpy", forceinline=True)(rule)


def _digest_of_sources() -> str:
    """One hash over the code that drivers compile from other files than their own.

    Numba's cache on disk notices changes in the file of the cached function only. The drivers take this
    hash into their closure, which is part of the cache's key, so that a changed rule is never run from a
    stale cache.
    """
    here = Path(__file__).parent
    sources = [
        *(here.parent / "rules").glob("*.py"),
        *(here / name for name in ("compiled.py", "round.py", "state.py", "streams.py")),
    ]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(sources))).hexdigest()


SOURCES = _digest_of_sources()
