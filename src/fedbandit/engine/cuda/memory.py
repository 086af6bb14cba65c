"""Where the numbers of an agent lie on a GPU: an agent in several records, and views of memory.

What an agent reads in every round at any arm, and what its neighbours read, is ``near``: in shared memory. What it goes
through arm by arm is its thread's ``own``: in registers, if the page's loops allow it. The rest is ``far``: in the
thread's own memory. A page sees one agent with one set of names. These are extensions of numba-cuda.
"""

import operator
from importlib import import_module
from typing import Any

import numpy as np

from fedbandit.engine.streams import ARRIVALS, DELAYS, NOISE, NORMALS, PICKS, REWARDS, SHARES, Streams, stream

# They have no types.
_cuda: Any = import_module("numba.cuda")
types: Any = import_module("numba.cuda.types")
cgutils: Any = import_module("numba.cuda.cgutils")
_extending: Any = import_module("numba.cuda.extending")
_arrays: Any = import_module("numba.cuda.np.arrayobj")
_templates: Any = import_module("numba.cuda.typing.templates")

infer_getattr, intrinsic, overload = _extending.infer_getattr, _extending.intrinsic, _extending.overload
lower_getattr_generic, lower_setattr_generic = _extending.lower_getattr_generic, _extending.lower_setattr_generic
models, register_model, register_jitable = _extending.models, _extending.register_model, _extending.register_jitable
make_array, populate_array = _arrays.make_array, _arrays.populate_array

cuda_overload = overload


@_extending.overload_method(types.Integer, "bit_length")
def _bit_length(x: Any) -> Any:
    def bit_length(x: Any) -> int:
        return 64 - _cuda.clz(np.int64(x))

    return bit_length


class _Agent(types.Type):
    """An agent in several records."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts
        super().__init__(name=f"Agent({', '.join(map(str, parts))})")

    def place(self, name: str) -> int:
        return next(place for place, part in enumerate(self.parts) if name in part.fields)


class _Agents(types.Type):
    """Agents in several arrays of records."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts
        super().__init__(name=f"Agents({', '.join(map(str, parts))})")


@register_model(_Agent)
class _Places(models.StructModel):
    """Of an agent, where its records lie: Numba cannot return a record within another value."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [(f"part{p}", types.voidptr) for p in range(len(kind.parts))])


@register_model(_Agents)
class _Parts(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [(f"part{p}", part) for p, part in enumerate(kind.parts)])


@infer_getattr
class _Names(_templates.AttributeTemplate):
    key = _Agent

    def generic_resolve(self, agent: Any, name: str) -> Any:
        return self.context.resolve_getattr(agent.parts[agent.place(name)], name)


def _record_with(name: str, context: Any, builder: Any, agent: Any, value: Any) -> tuple[Any, Any]:
    p = agent.place(name)
    place = getattr(cgutils.create_struct_proxy(agent)(context, builder, value), f"part{p}")
    return agent.parts[p], builder.bitcast(place, context.get_value_type(agent.parts[p]))


@lower_getattr_generic(_Agent)
def _read(context: Any, builder: Any, agent: Any, value: Any, name: str) -> Any:
    kind, record = _record_with(name, context, builder, agent, value)
    return context.get_getattr(kind, name)(context, builder, kind, record, name)


@lower_setattr_generic(_Agent)
def _write(context: Any, builder: Any, call: Any, arguments: Any, name: str) -> Any:
    agent, kind_of_value = call.args
    kind, record = _record_with(name, context, builder, agent, arguments[0])
    write = context.get_setattr(name, _templates.signature(types.void, kind, kind_of_value))
    return write(builder, (record, arguments[1]))


@intrinsic
def _agent_of(typing: Any, near: Any, own: Any, far: Any) -> Any:
    agent = _Agent((near, own, far))

    def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        made = cgutils.create_struct_proxy(agent)(context, builder)
        for p, part in enumerate(arguments):
            setattr(made, f"part{p}", builder.bitcast(part, cgutils.voidptr_t))
        return made._getvalue()

    return agent(near, own, far), make


@intrinsic
def agents_of(typing: Any, near: Any, own: Any, far: Any) -> Any:
    """Agents whose parts lie in three arrays."""
    agents = _Agents((near, own, far))

    def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        made = cgutils.create_struct_proxy(agents)(context, builder)
        for p, part in enumerate(arguments):
            setattr(made, f"part{p}", part)
        return made._getvalue()

    return agents(near, own, far), make


def _part_of(p: int) -> Any:
    @intrinsic
    def part_of(typing: Any, agents: Any) -> Any:
        def take(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
            return getattr(cgutils.create_struct_proxy(agents)(context, builder, arguments[0]), f"part{p}")

        return agents.parts[p](agents), take

    return part_of


_near_of, _own_of, _far_of = _part_of(0), _part_of(1), _part_of(2)


@overload(operator.getitem)
def _at(agents: Any, i: Any) -> Any:
    if not isinstance(agents, _Agents):
        return None

    def at(agents: Any, i: Any) -> Any:
        return _agent_of(_near_of(agents)[i], _own_of(agents)[i], _far_of(agents)[i])

    return at


def _seen_as(entry: Any, records: Any) -> Any:
    """The memory of records as rows of numbers of another kind."""
    kind, size, width = types.Array(entry, 2, "A"), records.dtype.size, entry.bitwidth // 8

    def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        source, made = make_array(records)(context, builder, arguments[0]), make_array(kind)(context, builder)
        number = context.get_constant
        populate_array(
            made,
            data=builder.bitcast(source.data, made.data.type),
            shape=[builder.extract_value(source.shape, 0), number(types.intp, size // width)],
            strides=[number(types.intp, size), number(types.intp, width)],
            itemsize=number(types.intp, width),
            meminfo=source.meminfo,
            parent=source.parent,
        )
        return made._getvalue()

    return kind(records), make


@intrinsic
def as_rows(typing: Any, records: Any) -> Any:
    """The same memory as rows of numbers."""
    return _seen_as(types.float64, records)


@intrinsic
def as_bytes(typing: Any, records: Any) -> Any:
    """The same memory as rows of bytes."""
    return _seen_as(types.uint8, records)


@intrinsic
def shaped(typing: Any, array: Any, shape: Any) -> Any:
    """A row with several axes: ``reshape`` without Numba's call of a function in C."""
    kind = array.copy(ndim=len(shape), layout="C")

    def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        source, made = make_array(array)(context, builder, arguments[0]), make_array(kind)(context, builder)
        sizes = cgutils.unpack_tuple(builder, arguments[1])
        sizes = [context.cast(builder, size, each, types.intp) for size, each in zip(sizes, shape, strict=True)]
        strides = [source.itemsize]
        for size in sizes[:0:-1]:
            strides.insert(0, builder.mul(strides[0], size))
        populate_array(
            made,
            data=source.data,
            shape=sizes,
            strides=strides,
            itemsize=source.itemsize,
            meminfo=source.meminfo,
            parent=source.parent,
        )
        return made._getvalue()

    return kind(array, shape), make


@intrinsic
def same_for_all(typing: Any, array: Any) -> Any:
    """An array of one entry that every first index finds."""
    kind = array.copy(layout="A")

    def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        source, made = make_array(array)(context, builder, arguments[0]), make_array(kind)(context, builder)
        strides = cgutils.unpack_tuple(builder, source.strides)
        populate_array(
            made,
            data=source.data,
            shape=cgutils.unpack_tuple(builder, source.shape),
            strides=[context.get_constant(types.intp, 0), *strides[1:]],
            itemsize=source.itemsize,
            meminfo=source.meminfo,
            parent=source.parent,
        )
        return made._getvalue()

    return kind(array), make


# ---------------------------------------------------------------- values that are computed, not stored


class _Holder(types.Type):
    """Holds a value, for an index to be answered with it or from it."""

    def __init__(self, held: Any) -> None:
        self.held = held
        super().__init__(name=f"{type(self).__name__}({held})")


class _Value(_Holder):
    """The same value at every index."""


class _NamesOfAgents(_Holder):
    """(seed, trial): the names of an agent's streams at its index."""


class _NamesOfArms(_Holder):
    """(seed, trial, purpose, agent): the name of a stream at an arm's index."""


@register_model(_Value)
@register_model(_NamesOfAgents)
@register_model(_NamesOfArms)
class _HolderModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("held", kind.held)])


def _holding(kind: Any) -> Any:
    def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        made = cgutils.create_struct_proxy(kind)(context, builder)
        (made.held,) = arguments
        return made._getvalue()

    return kind(kind.held), make


@intrinsic
def value_for_all(typing: Any, value: Any) -> Any:
    """The same value at every index."""
    return _holding(_Value(value))


@intrinsic
def _names_of_agents(typing: Any, name: Any) -> Any:
    return _holding(_NamesOfAgents(name))


@intrinsic
def _names_of_arms(typing: Any, name: Any) -> Any:
    return _holding(_NamesOfArms(name))


@intrinsic
def _held(typing: Any, holder: Any) -> Any:
    def take(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
        return cgutils.create_struct_proxy(holder)(context, builder, arguments[0]).held

    return holder.held(holder), take


@overload(operator.getitem)
def _answer(holder: Any, i: Any) -> Any:
    if isinstance(holder, _Value):
        return _same_value
    if isinstance(holder, _NamesOfArms):
        return _name_of_arm
    return _names_of_agent if isinstance(holder, _NamesOfAgents) else None


def _same_value(holder: Any, i: Any) -> Any:
    return _held(holder)


def _name_of_arm(holder: Any, i: Any) -> Any:
    seed, trial, purpose, agent = _held(holder)
    return stream(seed, trial, purpose, agent, np.uint64(i))


def _names_of_agent(holder: Any, i: Any) -> Any:
    seed, trial = _held(holder)
    agent, zero = np.uint64(i), np.uint64(0)
    return Streams(
        stream(seed, trial, PICKS, agent, zero),
        stream(seed, trial, ARRIVALS, agent, zero),
        stream(seed, trial, SHARES, agent, zero),
        _names_of_arms((seed, trial, REWARDS, agent)),
        _names_of_arms((seed, trial, NOISE, agent)),
        _names_of_arms((seed, trial, NORMALS, agent)),
        _names_of_arms((seed, trial, DELAYS, agent)),
    )


def streams_of(seed: Any, trial: Any) -> Any:
    """The names of agents' streams, computed when asked for."""
    return _names_of_agents((seed, trial))


register_jitable(streams_of)
