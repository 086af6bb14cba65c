"""A GPU in plain Python, for the kernels of ``fedbandit.engine.cuda``: Numba's CUDA simulator with other threads.

Numba's simulator lets all threads of a block run at once, has no warps and one block per cooperative grid, and looks
for waiting threads again and again. Here one thread runs at a time, up to its next barrier, first in the order of
their numbers, then in the reverse order, and so on. So what a missing barrier allows does happen, always in
the same way.

``install`` puts it in place. It needs NUMBA_ENABLE_CUDASIM=1 and NUMBA_DISABLE_JIT=1: compiled functions are plain
ones then. Those that exist only compiled get their engine's version here.
"""

import sys
from collections import namedtuple
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace

import numba
import numpy as np
from greenlet import getcurrent, greenlet
from numba import cuda, types

__all__ = ["install", "silent_errors"]

WARP = 32
MEMORY = 2**30

# ---------------------------------------------------------------- threads and barriers


class _Ended(BaseException):
    """Another thread has failed."""


class _Thread(greenlet):
    """Runs until it waits, and then gives the turn back to its grid."""

    def __init__(self, grid, block, place):
        super().__init__()
        self.grid, self.block, self.place = grid, block, place
        self.barrier, self.vote, self.answer = None, False, False
        self.is_done, self.error = False, None

    def run(self):
        try:
            with np.errstate(over="raise"):
                self.grid.play()
        except _Ended:
            pass
        except IndexError as error:
            self.error = None if _errors.are_silent else error  # as on a GPU: the thread ends, and nobody is told
        except BaseException as error:
            self.error = error
        self.is_done, self.barrier = True, None

    def wait(self, barrier, vote=False):
        self.barrier, self.vote = barrier, bool(vote)
        self.parent.switch()
        if self.grid.has_failed:
            raise _Ended
        return self.answer

    def of_warp(self):
        return ("warp", self.block, self.place // WARP)


class _Grid:
    """Threads that can wait for each other: of all blocks."""

    def __init__(self, play, blocks, size, shared_bytes):
        self.play, self.size, self.num_blocks = play, size, len(blocks)
        self.has_failed = False
        self.shared = {block: np.zeros(shared_bytes // 8, np.float64) for block in blocks}
        self.threads = [_Thread(self, block, place) for block in blocks for place in range(size)]
        self.members = {}
        for thread in self.threads:
            for barrier in (thread.of_warp(), ("block", thread.block), ("grid",)):
                self.members.setdefault(barrier, []).append(thread)

    def run(self):
        ready, is_forward = list(self.threads), True
        while ready:
            for thread in ready if is_forward else reversed(ready):
                thread.switch()
                if thread.error is not None:
                    self._end()
                    raise thread.error
            is_forward, ready = not is_forward, self._free()

    def _free(self):
        """Threads whose barrier all others have reached; those that have ended do not count, as on a GPU."""
        waiting = [thread for thread in self.threads if not thread.is_done]
        free = []
        for barrier in {thread.barrier for thread in waiting}:
            members = [thread for thread in self.members[barrier] if not thread.is_done]
            if all(thread.barrier == barrier for thread in members):
                answer = any(thread.vote for thread in members)
                for thread in members:
                    thread.answer = answer
                free += members
        if waiting and not free:
            self._end()
            raise RuntimeError("threads wait for each other at different barriers")
        return sorted(free, key=lambda thread: (thread.block, thread.place))

    def _end(self):
        self.has_failed = True
        for thread in self.threads:
            if thread and not thread.is_done:  # it has begun
                thread.switch()


def _me():
    return getcurrent()


_errors = SimpleNamespace(are_silent=False)


@contextmanager
def silent_errors():
    """An index beyond a row ends a thread, and nobody is told."""
    _errors.are_silent = True
    try:
        yield
    finally:
        _errors.are_silent = False


# ---------------------------------------------------------------- what numba.cuda has


class _Kernel:
    def __init__(self, function):
        self.function, self.shape = function, None

    def __getitem__(self, shape):
        self.shape = shape
        return self

    def compile(self, signature):
        return SimpleNamespace(max_cooperative_grid_blocks=lambda threads: 2)

    def __call__(self, *arguments):
        blocks, size, _, shared_bytes = self.shape
        # Blocks play one after the other, unless they may wait for each other.
        is_grid = "grid_team" in {getattr(each.cell_contents, "__name__", "") for each in self.function.__closure__}
        for together in [range(blocks)] if is_grid else [[block] for block in range(blocks)]:
            _Grid(lambda: self.function(*arguments), together, size, shared_bytes).run()


def _jit(function=None, device=False, **options):
    if function is None:
        return lambda given: _jit(given, device)
    return function if device else _Kernel(function)


class _OnGpu(np.ndarray):
    def copy_to_host(self):
        return np.array(self)


def _records(array):
    """Fields of records are attributes."""
    return array.view(np.dtype((np.record, array.dtype))) if array.dtype.names else array


def _to_device(array, stream=None):
    return _records(np.array(array)).view(_OnGpu)


def _device_array(shape, dtype):
    return _records(np.full(shape, 77, dtype)).view(_OnGpu)  # whatever was there before


def _dtype_of(kind):
    return kind if isinstance(kind, np.dtype) else np.dtype(str(kind))


def _local_array(shape, kind):
    made = _records(np.empty(shape, _dtype_of(kind)))
    made.view(np.uint8)[...] = 77
    return made


def _shared_array(shape, kind):
    assert shape == 0
    here, dtype = _me().grid.shared[_me().block], _dtype_of(kind)
    return _records(here.view(np.uint8)[: here.nbytes // dtype.itemsize * dtype.itemsize].view(dtype))


def _add(array, place, number):
    before = array[place]
    array[place] += number
    return before


class _Here:
    """A number that depends on the thread that asks."""

    def __init__(self, number):
        self._number = number

    @property
    def x(self):
        return self._number(_me())


def _install_cuda():
    grid = SimpleNamespace(sync=lambda: _me().wait(("grid",)))
    memory = SimpleNamespace(get_memory_info=lambda: SimpleNamespace(free=MEMORY))
    replaced = {
        "threadIdx": _Here(lambda me: me.place),
        "blockIdx": _Here(lambda me: me.block),
        "blockDim": _Here(lambda me: me.grid.size),
        "jit": _jit,
        "to_device": _to_device,
        "device_array": _device_array,
        "local": SimpleNamespace(array=_local_array),
        "shared": SimpleNamespace(array=_shared_array),
        "atomic": SimpleNamespace(add=_add),
        "cg": SimpleNamespace(this_grid=lambda: grid),
        "grid": lambda axes: _me().block * _me().grid.size + _me().place,
        "gridsize": lambda axes: _me().grid.num_blocks * _me().grid.size,
        "syncthreads": lambda: _me().wait(("block", _me().block)),
        "syncthreads_or": lambda vote: np.int32(_me().wait(("block", _me().block), vote)),
        "syncwarp": lambda: _me().wait(_me().of_warp()),
        "any_sync": lambda mask, vote: _me().wait(_me().of_warp(), vote),
        "ffs": lambda number: (int(number) & -int(number)).bit_length(),
        "is_available": lambda: True,
        "current_context": lambda: memory,
        "get_current_device": lambda: SimpleNamespace(name=b"plain Python"),
    }
    for name, value in replaced.items():
        setattr(cuda, name, value)
    numba.from_dtype = lambda dtype: dtype
    numba.typeof = lambda value: None


# ---------------------------------------------------------------- functions that exist only compiled


def _replace(function, version):
    """In all modules of the package: they have it under the name by which they import it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fedbandit":
            for key, value in list(vars(module).items()):
                if value is function:
                    setattr(module, key, version)


@cache
def _kind_of_terms(names):
    return namedtuple("Terms", names)


def _by_value(record):
    return record if isinstance(record, tuple) else _kind_of_terms(record.dtype.names)(*record.item())


def _install_teams(threads):
    versions = {
        (threads.barrier, threads.Team): lambda team: None,  # a thread of the CPU engine is alone
        (threads.total_of, threads.Team): lambda team, number, pass_number: number,
        (threads.stopped, threads.Team): lambda team: False,
    }

    def for_team(kind, function, version, overload=None):
        versions[function, kind] = version

    def by_team(function):
        return lambda team, *rest: versions[function, type(team)](team, *rest)

    threads.for_team = for_team
    return [(function, by_team(function)) for function in (threads.barrier, threads.total_of, threads.stopped)]


def _on_gpu_only(function, version):
    return lambda place: (version if isinstance(_me(), _Thread) else function)(place)


def _by_draws(kind, function, version):
    return lambda *given: (version if isinstance(given[-1], kind) else function)(*given)


def _with_records(population):
    """For the CPU engine, which is plain Python here, too."""
    sharing = population.sharing
    return population._replace(
        agents=_records(population.agents),
        terms=_records(population.terms),
        steps=_records(population.steps),
        streams=_records(population.streams),
        sharing=sharing._replace(few=_records(sharing.few)),
    )


def _with_overflow(function, what="ignore"):
    """NumPy's numbers may overflow where random bits are mixed, and nowhere else."""

    def play(*arguments):
        with np.errstate(over=what):
            return function(*arguments)

    return play


def install():
    """Put the simulated GPU in place, before ``fedbandit.engine.cuda`` is imported; returns its engine."""
    _install_cuda()
    from fedbandit.engine import compiled, threads
    from fedbandit.policies import protocol
    from fedbandit.rules import mean

    compiled.compile_driver = lambda function: function
    teams = _install_teams(threads)
    import fedbandit.simulation.run  # noqa: F401
    import simulated_memory

    sys.modules["fedbandit.engine.cuda.memory"] = simulated_memory  # in place of extensions of a compiler
    from fedbandit.engine import cpu, layout, streams
    from fedbandit.engine.cuda import engine

    versions = [
        *teams,
        (compiled.by_value, _by_value),
        (compiled.as_arm, np.uint64),
        (compiled.not_negative, lambda index: index),
        (compiled.row_like, lambda row: np.empty(len(row), row.dtype)),
        (mean.trailing_zeros, lambda m, rule=mean.trailing_zeros: rule(int(m))),
    ]
    streams._is_simulated = lambda kind: True
    for function, version in (
        (protocol.uniform, streams._uniform(None)),
        (protocol.fill_with_normals, streams._fill_with_normals(None, None)),
        (protocol.highest_draw, streams._highest_draw(None, None, None)),
    ):
        versions.append((function, _by_draws(streams.SimulatedDraws, function, version)))
    one = streams._draw_noise(None, None, 0, None, 0.0, None)
    several = streams._draw_noise(None, None, 0, None, 0.0, types.UniTuple(types.int64, 2))
    versions.append((streams.draw_noise, lambda *given: (several if isinstance(given[-1], tuple) else one)(*given)))
    for function in (streams.stream, streams.draw, streams._next_bits):
        versions.append((function, _with_overflow(function)))
    for function in (streams.signed_edge, streams.inner_edge, streams.slab_edge):
        versions.append((function, _on_gpu_only(function, function._CUDATypingContext__dispatcher)))
    for function, version in versions:
        _replace(function, version)
    compiled_rounds = cpu.compiled_rounds
    _replace(compiled_rounds, lambda spec, many=False: _with_overflow(compiled_rounds(spec), "raise"))
    layout._KINDS["flag"] = "i4"  # 0 - 1 is 255 for NumPy's bytes, and -1 for compiled ones
    cpu.new_population = lambda *given, new=layout.new_population: _with_records(new(*given))
    return engine
