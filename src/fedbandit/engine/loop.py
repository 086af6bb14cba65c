"""Plays the rounds of a trial on cores of a CPU: the order of ``policies.order``, compiled and cached on disk."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from fedbandit.engine.compiled import compile_driver, compile_inner, not_negative
from fedbandit.engine.links import divides
from fedbandit.engine.phases import Specialisation, phases_of
from fedbandit.engine.streams import EDGES, name_streams, stream
from fedbandit.engine.threads import barrier, stopped
from fedbandit.policies.order import Arrangement, rounds_of
from fedbandit.policies.protocol import time_of

MANY = 2_000
"""With fewer agents all of them stay in the processor's cache."""

_AHEAD = 6
"""Agents by which memory is asked for ahead: about as long as it takes to come."""

_LINE = 64  # bytes, of the cache
_extending: Any = extending


@cache
def compiled_rounds(spec: Specialisation, is_many: bool = False) -> Callable[..., None]:
    """The compiled loop over rounds of a specialisation.

    ``is_many``: for so many agents that they do not stay in the cache. Then n~ lies apart from records, an agent acts
    as soon as it has learnt, while its record is at hand, and memory is asked for ahead of its use. For few agents all
    that costs a third more instructions.
    """
    arrangement = Arrangement(
        now_at=_now_at,
        barrier=barrier,
        stopped=stopped,
        index=not_negative,
        fetch=_fetch_ahead(spec.hears) if is_many else None,
        is_apart=is_many,
        all_exchange=not (spec.page.network == "pooled" or spec.has_releases) and divides(spec.links.average),
    )
    play, estimate = compile_inner(rounds_of(phases_of(spec, is_apart=is_many), arrangement)), spec.page.estimate

    @compile_driver
    def play_rounds(
        first: int,
        last: int,
        seed: Any,
        trial: Any,
        population: Any,
        world: Any,
        links: Any,
        tape: Any,
        theta: Any,
        arm_means: Any,
        misses: Any,
    ) -> None:
        """Play rounds ``first`` to ``last`` of a trial, one thread of its team.

        ``theta`` receives the final estimates; ``misses`` counts errors against ``arm_means`` larger than the radius.
        """
        team, agents, terms = links.team, population.agents, population.terms
        if first == 0:
            for j in range(team.first, team.last):
                i = not_negative(j)
                name_streams(seed, trial, population.streams[i], i)
        edges = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        play(first, last, edges, population, world, links, tape, arm_means, misses)
        for j in range(team.first, team.last):
            i = not_negative(j)
            for k in range(theta.shape[1]):
                theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds


@compile_inner
def _now_at(world: Any, t: int, first: int) -> Any:
    return time_of(t)


# ---------------------------------------------------------------- memory ahead of its use

# The processor foresees accesses in a row, and neither those to neighbours nor those that depend on the arm.


@_extending.intrinsic
def _address(typing: Any, array: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return types.int64(array), build


@_extending.intrinsic
def _fetch(typing: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        name = "llvm.prefetch.p0i8"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        place = builder.inttoptr(arguments[0], pointer)
        builder.call(function, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(types.int64), build


def _fetch_ahead(hears: bool) -> Any:
    @compile_inner
    def fetch(population: Any, world: Any, links: Any, t: Any, i: Any) -> None:
        """Ask for what a later agent will read when it acts: its record, its arms' means, and its neighbours' n~."""
        i += _AHEAD
        if i < links.team.last:
            agents = population.agents
            mine = _address(agents) + i * agents.itemsize
            for line in range(0, agents.itemsize, _LINE):
                _fetch(mine + line)
            _fetch(_address(population.steps) + i * population.steps.itemsize)
            means = _address(world.means[i])
            _fetch(means)
            _fetch(means + _LINE)
            if hears:
                for e in range(links.first_neighbour[i], links.first_neighbour[i + 1]):
                    _fetch(_address(population.shown.rows[t % 2, links.neighbours[e]]))

    return fetch
