"""Randomness of a simulation in compiled code: draws of a decision, noise of an interval, names of streams.

All come from counter-based streams, or from a tape.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from fedbandit.policies import protocol
from fedbandit.rules.choose import drawn, highest_drawn
from fedbandit.simulation.compiled import INLINE, compilable, compile_inner, compile_rare, leave_out
from fedbandit.simulation.streams import (
    ARRIVALS,
    DELAYS,
    NOISE,
    NORMALS,
    PICKS,
    REWARDS,
    SHARES,
    draw,
    laplace,
    normal_in_slab,
    slab_edge,
    slab_of,
    stream,
    uniform,
)

__all__ = ["DecisionDraws", "draw_noise", "name_streams"]


class DecisionDraws(NamedTuple):
    """The randomness of one decision of an agent: see ``protocol.uniform``, ``fill_with_normals``, ``highest_draw``."""

    agent: int
    clock: int
    last_arm: Any  # of the agent's last decision
    streams: Any
    tape: Any


def _is_simulated(draws: Any) -> bool:
    return isinstance(draws, types.NamedTuple) and draws.instance_class is DecisionDraws


@overload(protocol.uniform, strict=False, jit_options=INLINE)
def _uniform(draws: Any) -> Any:
    if not _is_simulated(draws):
        return None

    def pick(draws: Any) -> Any:
        if draws.tape.on:
            return draws.tape.picks[draws.clock - 1, draws.agent]
        return uniform(draw(draws.streams.picks, np.uint64(draws.clock)))

    return pick


@overload(protocol.fill_with_normals, strict=False, jit_options=INLINE)
def _fill_with_normals(row: Any, draws: Any) -> Any:
    if not _is_simulated(draws):
        return None

    def fill(row: Any, draws: Any) -> None:
        if draws.tape.has_normals:
            for k in range(len(row)):
                row[k] = draws.tape.normals[draws.clock - 1, draws.agent, k]
            return
        for k in range(len(row)):
            row[k] = _normal(draws, k)

    return fill


@compile_inner
def _slab(draws: Any, k: Any) -> Any:
    """In which slab the normal of arm k lies."""
    return slab_of(draw(draws.streams.normals[np.uint64(k) >> np.uint64(3)], np.uint64(2 * draws.clock)), k)


@compile_inner
def _normal(draws: Any, k: Any) -> Any:
    """The normal of arm k."""
    return normal_in_slab(_slab(draws, k), draw(draws.streams.normals[k], np.uint64(2 * draws.clock + 1)))


@overload(protocol.highest_draw, strict=False, jit_options=INLINE)
def _highest_draw(means: Any, spreads: Any, draws: Any) -> Any:
    if not _is_simulated(draws):
        return None

    def choose(means: Any, spreads: Any, draws: Any) -> Any:
        if draws.tape.has_normals:
            return np.int64(highest_drawn(means, spreads, draws.tape.normals[draws.clock - 1, draws.agent]))
        # The arm of the agent's last decision is likely to win again. Which other draws may reach the least that its
        # own can be? Mostly none, and only the slabs of the draws are known by then.
        likely = min(np.int64(draws.last_arm), len(means) - 1)
        least = drawn(means[likely], spreads[likely], slab_edge(_slab(draws, likely)))
        contenders = 0
        for k in range(len(means)):
            if drawn(means[k], spreads[k], slab_edge(_slab(draws, k) + np.uint64(1))) >= least:
                contenders += 1
        return likely if contenders == 1 else _highest_contender(means, spreads, draws, least)

    return choose


@compile_rare
def _highest_contender(means: Any, spreads: Any, draws: Any, least: float) -> Any:
    """The arm with the highest draw among those whose draws may reach ``least``."""
    arm, best = np.int64(0), -np.inf
    for k in range(len(means)):
        if drawn(means[k], spreads[k], slab_edge(_slab(draws, k) + np.uint64(1))) >= least:
            x = drawn(means[k], spreads[k], _normal(draws, k))
            if x > best:
                arm, best = k, x
    return arm


for _rule in (drawn, highest_drawn):
    compilable(_rule)
leave_out(protocol.uniform)
leave_out(protocol.fill_with_normals)
leave_out(protocol.highest_draw)


@compile_inner
def _noise(tape: Any, streams: Any, i: int, arm: Any, end: Any) -> Any:
    """The noise of scale 1 of the interval that ends at ``end``: always the same draw."""
    if end == 0:
        return 0.0
    if tape.has_noise:
        if end < 0 or end >= len(tape.noise):
            raise IndexError  # a user's page names an interval that the tape does not reach
        return tape.noise[end, i, arm]
    return laplace(draw(streams.noise[arm], np.uint64(end)))


def draw_noise(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
    """The noise of an interval, or of several: see ``Page.noise_due``."""
    raise NotImplementedError  # compiled only


@overload(draw_noise, strict=False, jit_options=INLINE)
def _draw_noise(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
    if isinstance(due, types.BaseTuple):

        def several(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
            first, second = due
            return (
                scale * _noise(tape, streams, i, arm, first),
                scale * _noise(tape, streams, i, arm, second),
            )

        return several

    def one(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
        return scale * _noise(tape, streams, i, arm, due)

    return one


@compile_rare
def name_streams(seed: Any, trial: Any, mine: Any, i: Any) -> None:
    """Fill in the names of an agent's streams."""
    agent = np.uint64(i)
    mine.picks = stream(seed, trial, PICKS, agent, np.uint64(0))
    mine.arrivals = stream(seed, trial, ARRIVALS, agent, np.uint64(0))
    mine.shares = stream(seed, trial, SHARES, agent, np.uint64(0))
    for k in range(len(mine.rewards)):
        arm = np.uint64(k)
        mine.rewards[k] = stream(seed, trial, REWARDS, agent, arm)
        mine.noise[k] = stream(seed, trial, NOISE, agent, arm)
        mine.normals[k] = stream(seed, trial, NORMALS, agent, arm)
        mine.delays[k] = stream(seed, trial, DELAYS, agent, arm)
