"""Asks for memory ahead of its use, in compiled code: with many agents it is not in the processor's cache.

The processor foresees accesses in a row, and neither those to neighbours nor those that depend on the arm.
"""

from typing import Any

from llvmlite import ir
from numba import extending, types

from fedbandit.simulation.compiled import compile_inner

__all__ = ["AHEAD", "MANY", "fetch_agent"]

_extending: Any = extending
_LINE = 64  # bytes

MANY = 2_000
"""With fewer agents all of them stay in the cache."""

AHEAD = 6
"""Agents: about as long before their turn as memory takes."""


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


@compile_inner
def fetch_agent(population: Any, world: Any, links: Any, t: Any, i: Any, hears: bool) -> None:
    """Ask for what agent i will read when it acts: its record, the means of its arms, and n~ of its neighbours."""
    agents = population.agents
    mine = _address(agents) + i * agents.itemsize
    for line in range(0, agents.itemsize, _LINE):
        _fetch(mine + line)
    _fetch(_address(population.turns) + i * population.turns.itemsize)
    means = _address(world.means[i])
    _fetch(means)
    _fetch(means + _LINE)
    if hears:
        for e in range(links.first_neighbour[i], links.first_neighbour[i + 1]):
            _fetch(_address(population.shown.rows[t % 2, links.neighbours[e]]))
