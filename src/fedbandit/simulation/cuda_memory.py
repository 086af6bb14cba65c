"""Where the numbers of an agent lie on a GPU: an agent whose record has two parts, and views of memory.

What an agent reads in every round, and what its neighbours read, is ``near``: in shared memory. The rest is ``far``: in
the thread's own memory or in the GPU's. A page sees one agent with one set of names.

* ``agents_of(near, far)``: agents whose parts lie in two arrays
* ``as_rows(records)``: the same memory as rows of numbers
* ``same_for_all(array)``: an array of one entry that every first index finds
* ``value_for_all(value)``: the same value at every index
* ``streams_of(seed, trial)``: the names of agents' streams, computed when asked for

Numba's CUDA simulator, which plays kernels in plain Python, has its own versions of these.
"""

import operator
from typing import Any, NamedTuple

import numpy as np
from numba import config

from fedbandit.simulation.streams import ARRIVALS, DELAYS, NOISE, NORMALS, PICKS, REWARDS, SHARES, stream

__all__ = ["agents_of", "as_rows", "same_for_all", "streams_of", "value_for_all"]

_config: Any = config


class _Streams(NamedTuple):
    """The names of one agent's streams; the last four by arm."""

    picks: Any
    arrivals: Any
    shares: Any
    rewards: Any
    noise: Any
    normals: Any
    delays: Any


if _config.ENABLE_CUDASIM:

    class _SimulatedAgent:
        def __init__(self, near: Any, far: Any) -> None:
            object.__setattr__(self, "parts", (near, far))

        def __getattr__(self, name: str) -> Any:
            return self._part(name)[name]

        def __setattr__(self, name: str, value: Any) -> None:
            self._part(name)[name] = value

        def _part(self, name: str) -> Any:
            near, far = self.__dict__["parts"]
            return near if name in near.dtype.names else far

    class _SimulatedAgents:
        def __init__(self, near: Any, far: Any) -> None:
            self._near, self._far = near, far

        def __len__(self) -> int:
            return len(self._near)

        def __getitem__(self, i: int) -> _SimulatedAgent:
            return _SimulatedAgent(self._near[i], self._far[i])

    def agents_of(near: Any, far: Any) -> Any:
        """Agents whose parts lie in two arrays."""
        return _SimulatedAgents(near, far)

    def as_rows(records: Any) -> Any:
        """The same memory as rows of numbers."""
        return records.view(np.float64).reshape(len(records), -1)

    def same_for_all(array: Any) -> Any:
        """An array of one entry that every first index finds."""
        return np.lib.stride_tricks.as_strided(array, (2**20, *array.shape[1:]), (0, *array.strides[1:]))

    class _SimulatedValue:
        def __init__(self, value: Any) -> None:
            self._value = value

        def __getitem__(self, i: int) -> Any:
            return self._value

    def value_for_all(value: Any) -> Any:
        """The same value at every index."""
        return _SimulatedValue(value)

    class _SimulatedStreams:
        def __init__(self, *name: Any) -> None:
            self._name = name

        def __getitem__(self, i: int) -> Any:
            seed, trial, *of_arm = self._name
            if of_arm:
                return stream(seed, trial, *of_arm, np.uint64(i))
            agent, zero = np.uint64(i), np.uint64(0)
            once = [stream(seed, trial, purpose, agent, zero) for purpose in (PICKS, ARRIVALS, SHARES)]
            by_arm = [_SimulatedStreams(seed, trial, purpose, agent) for purpose in (REWARDS, NOISE, NORMALS, DELAYS)]
            return _Streams(*once, *by_arm)

    def streams_of(seed: Any, trial: Any) -> Any:
        """The names of agents' streams, computed when asked for."""
        return _SimulatedStreams(seed, trial)

else:
    from numba.cuda import cgutils, types
    from numba.cuda.extending import (
        infer_getattr,
        intrinsic,
        lower_getattr_generic,
        lower_setattr_generic,
        models,
        overload,
        register_jitable,
        register_model,
    )
    from numba.cuda.np.arrayobj import make_array, populate_array
    from numba.cuda.typing.templates import AttributeTemplate, signature

    class _Agent(types.Type):
        """An agent in two records."""

        def __init__(self, near: Any, far: Any) -> None:
            self.near, self.far = near, far
            super().__init__(name=f"Agent({near}, {far})")

        def part(self, name: str) -> str:
            return "near" if name in self.near.fields else "far"

    class _Agents(types.Type):
        """Agents in two arrays of records."""

        def __init__(self, near: Any, far: Any) -> None:
            self.near, self.far = near, far
            super().__init__(name=f"Agents({near}, {far})")

    @register_model(_Agent)
    class _TwoPlaces(models.StructModel):
        """Of an agent, where its records lie: Numba cannot return a record within another value."""

        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, [("near", types.voidptr), ("far", types.voidptr)])

    @register_model(_Agents)
    class _TwoParts(models.StructModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, [("near", kind.near), ("far", kind.far)])

    @infer_getattr
    class _Names(AttributeTemplate):
        key = _Agent

        def generic_resolve(self, agent: Any, name: str) -> Any:
            return self.context.resolve_getattr(getattr(agent, agent.part(name)), name)

    def _record_with(name: str, context: Any, builder: Any, agent: Any, value: Any) -> tuple[Any, Any]:
        kind = getattr(agent, agent.part(name))
        place = getattr(cgutils.create_struct_proxy(agent)(context, builder, value), agent.part(name))
        return kind, builder.bitcast(place, context.get_value_type(kind))

    @lower_getattr_generic(_Agent)
    def _read(context: Any, builder: Any, agent: Any, value: Any, name: str) -> Any:
        kind, record = _record_with(name, context, builder, agent, value)
        return context.get_getattr(kind, name)(context, builder, kind, record, name)

    @lower_setattr_generic(_Agent)
    def _write(context: Any, builder: Any, call: Any, arguments: Any, name: str) -> Any:
        agent, kind_of_value = call.args
        kind, record = _record_with(name, context, builder, agent, arguments[0])
        write = context.get_setattr(name, signature(types.void, kind, kind_of_value))
        return write(builder, (record, arguments[1]))

    @intrinsic
    def _agent_of(typing: Any, near: Any, far: Any) -> Any:
        agent = _Agent(near, far)

        def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
            made = cgutils.create_struct_proxy(agent)(context, builder)
            made.near, made.far = (builder.bitcast(part, cgutils.voidptr_t) for part in arguments)
            return made._getvalue()

        return agent(near, far), make

    @intrinsic
    def agents_of(typing: Any, near: Any, far: Any) -> Any:
        """Agents whose parts lie in two arrays."""
        agents = _Agents(near, far)

        def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
            made = cgutils.create_struct_proxy(agents)(context, builder)
            made.near, made.far = arguments
            return made._getvalue()

        return agents(near, far), make

    def _part_of(name: str) -> Any:
        @intrinsic
        def part_of(typing: Any, agents: Any) -> Any:
            def take(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
                return getattr(cgutils.create_struct_proxy(agents)(context, builder, arguments[0]), name)

            return getattr(agents, name)(agents), take

        return part_of

    _near_of, _far_of = _part_of("near"), _part_of("far")

    @overload(operator.getitem)
    def _at(agents: Any, i: Any) -> Any:
        if not isinstance(agents, _Agents):
            return None

        def at(agents: Any, i: Any) -> Any:
            return _agent_of(_near_of(agents)[i], _far_of(agents)[i])

        return at

    @overload(len)
    def _len(agents: Any) -> Any:
        if not isinstance(agents, _Agents):
            return None

        def length(agents: Any) -> Any:
            return len(_near_of(agents))

        return length

    @intrinsic
    def as_rows(typing: Any, records: Any) -> Any:
        """The same memory as rows of numbers."""
        kind, size = types.Array(types.float64, 2, "A"), records.dtype.size

        def make(context: Any, builder: Any, call: Any, arguments: Any) -> Any:
            source, made = make_array(records)(context, builder, arguments[0]), make_array(kind)(context, builder)
            number = context.get_constant
            populate_array(
                made,
                data=builder.bitcast(source.data, made.data.type),
                shape=[builder.extract_value(source.shape, 0), number(types.intp, size // 8)],
                strides=[number(types.intp, size), number(types.intp, 8)],
                itemsize=number(types.intp, 8),
                meminfo=source.meminfo,
                parent=source.parent,
            )
            return made._getvalue()

        return kind(records), make

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
        return _Streams(
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
