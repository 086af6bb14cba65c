"""What ``fedbandit.engine.cuda.memory`` exports, in plain Python: for Numba's CUDA simulator."""

import numpy as np

from fedbandit.engine.streams import ARRIVALS, DELAYS, NOISE, NORMALS, PICKS, REWARDS, SHARES, Streams, stream


class _SimulatedAgent:
    def __init__(self, parts):
        object.__setattr__(self, "parts", parts)

    def __getattr__(self, name):
        return self._part(name)[name]

    def __setattr__(self, name, value):
        self._part(name)[name] = value

    def _part(self, name):
        return next(part for part in self.__dict__["parts"] if name in part.dtype.names)


class _SimulatedAgents:
    def __init__(self, parts):
        self._parts = parts

    def __getitem__(self, i):
        return _SimulatedAgent([part[i] for part in self._parts])


def agents_of(near, own, far):
    """Agents whose parts lie in three arrays."""
    return _SimulatedAgents((near, own, far))


def as_rows(records):
    """The same memory as rows of numbers."""
    return records.view(np.float64).reshape(len(records), -1)


def as_bytes(records):
    """The same memory as rows of bytes."""
    return records.view(np.uint8).reshape(len(records), records.dtype.itemsize)


def shaped(array, shape):
    """A row with several axes; where a block has no room for it, as if nobody will look, the row."""
    return array.reshape(shape) if array.size == np.prod(shape) else array


def same_for_all(array):
    """An array of one entry that every first index finds."""
    return np.lib.stride_tricks.as_strided(array, (2**20, *array.shape[1:]), (0, *array.strides[1:]))


class _SimulatedValue:
    def __init__(self, value):
        self._value = value

    def __getitem__(self, i):
        return self._value


def value_for_all(value):
    """The same value at every index."""
    return _SimulatedValue(value)


class _SimulatedStreams:
    def __init__(self, *name):
        self._name = name

    def __getitem__(self, i):
        seed, trial, *of_arm = self._name
        if of_arm:
            purpose, agent = of_arm
            return stream(seed, trial, purpose, agent, np.uint64(i))
        agent, zero = np.uint64(i), np.uint64(0)
        once = [stream(seed, trial, purpose, agent, zero) for purpose in (PICKS, ARRIVALS, SHARES)]
        by_arm = [_SimulatedStreams(seed, trial, purpose, agent) for purpose in (REWARDS, NOISE, NORMALS, DELAYS)]
        return Streams(*once, *by_arm)


def streams_of(seed, trial):
    """The names of agents' streams, computed when asked for."""
    return _SimulatedStreams(seed, trial)


def cuda_overload(function, **options):
    """Nothing is compiled."""
    return lambda version: version
