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

from fedbandit.rules import batch, choose, gossip, kl, mean, radius

__all__ = ["SOURCES", "compile_driver", "compile_inner", "compile_rare", "compile_small"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_jit: Any = njit
_NO_DOORS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compile_small(function: _Function) -> _Function:
    """Compile a function of plain numbers that runs in every round. Python can call it too."""
    return _jit(_nrt=False, error_model="numpy", forceinline=True)(function)


def compile_inner(function: _Function) -> _Function:
    """Compile what runs in every round.

    It allocates nothing, so it needs no reference counts: with them (Numba's default, atomic ones, at
    every view of a row) the engine was measured to run ten times slower. It is forced inline, since a
    call hands over a few hundred machine words of array descriptors. Nothing but compiled code can call it:
    the doors for Python took almost half of the first compilation.
    """
    return _jit(_nrt=False, error_model="numpy", forceinline=True, **_NO_DOORS)(function)


def compile_rare(function: _Function) -> _Function:
    """Compile what runs in few rounds: called, not inlined, which keeps the first compilation short."""
    return _jit(_nrt=False, error_model="numpy", **_NO_DOORS)(function)


def compile_driver(function: _Function) -> _Function:
    """Compile a loop over rounds: cached on disk, and other Python threads run beside it."""
    return _jit(nogil=True, cache=True, error_model="numpy", _nrt=False)(function)


for rule in (
    batch.batch_size,
    batch.equivalent_rewards,
    batch.last_weight,
    batch.learnt_reward_variance,
    batch.mean_variance,
    batch.release_square,
    batch.release_variance,
    batch.released,
    batch.weighted_mean,
    choose.choose,
    choose.count_lagging,
    choose.fewest_pulls,
    choose.highest_belief,
    choose.nth_lagging,
    gossip.average,
    gossip.heard,
    gossip.is_known,
    gossip.metropolis_weight,
    gossip.ratio,
    gossip.with_news,
    kl.bernoulli_kl,
    kl.highest_kl_index,
    kl.kl_index,
    kl.private_divergence,
    mean.clamp,
    mean.prefix_noise,
    mean.pull_tree_add,
    mean.time_tree_add,
    mean.time_tree_first_new,
    mean.trailing_zeros,
    radius.coop_radius,
    radius.deviation,
    radius.dist_sampling,
    radius.elimination_radius,
    radius.gossip_sampling,
    radius.gse_radius,
    radius.is_beaten,
    radius.local_sampling,
    radius.private_noise,
    radius.radius,
    radius.tail_level,
    radius.tail_slope,
    radius.tail_tilt,
    radius.variance_sampling,
):
    register_jitable(_nrt=False, error_model="numpy", forceinline=True)(rule)


def _digest_of_sources() -> str:
    """One hash over the code that drivers compile from other files than their own.

    Numba's cache on disk notices changes in the file of the cached function only. The drivers take this
    hash into their closure, which is part of the cache's key, so that a changed rule is never run from a
    stale cache.
    """
    here = Path(__file__).parent
    inner = ("compiled", "decide", "exchange", "pull", "round", "state", "streams")
    sources = [*(here.parent / "rules").glob("*.py"), *(here / f"{name}.py" for name in inner)]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(sources))).hexdigest()


SOURCES = _digest_of_sources()
