"""Makes rules and policy pages callable from compiled code, unchanged.

A rule or a function of a page stays an ordinary Python function: ``register_jitable`` only allows Numba to
compile it where compiled code calls it. This keeps Numba out of ``rules`` and ``policies``, and so out of
a live agent.
"""

import hashlib
import math
from collections import namedtuple
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import config, extending, njit, types
from numba.core.compiler_lock import global_compiler_lock
from numpy.typing import NDArray

__all__ = [
    "INLINE",
    "SOURCES",
    "by_value",
    "compilable",
    "compile_driver",
    "compile_inner",
    "compile_rare",
    "compile_small",
    "digest_of",
    "leave_out",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_jit: Any = njit
_config: Any = config
_extending: Any = extending
_NO_DOORS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
INLINE: Any = {"_nrt": False, "error_model": "numpy", "forceinline": True, **_NO_DOORS}
"""Options of what runs in every round.

It allocates nothing, so it needs no reference counts: with them (Numba's default, atomic ones, at every view of a row)
the engine ran ten times slower. Only compiled code can call it: the wrappers for Python took almost
half of the first compilation.
"""

_known: set[FunctionType] = set()


def compile_small(function: _Function) -> _Function:
    """Compile a function of plain numbers that runs in every round. Python can call it too."""
    return _jit(_nrt=False, error_model="numpy", forceinline=True)(function)


def compile_inner(function: _Function) -> _Function:
    """Compile what runs in every round."""
    return _jit(**INLINE)(function)


def compile_rare(function: _Function) -> _Function:
    """Compile what runs in few rounds: not inlined, which keeps the first compilation short."""
    return _jit(_nrt=False, error_model="numpy", **_NO_DOORS)(function)


def compile_driver(function: _Function) -> _Function:
    """Compile a loop over rounds: cached on disk, and other Python threads run beside it.

    LLVM's superword vectoriser, which Numba leaves off, computes the beliefs of several arms at once.
    """
    driver = _jit(nogil=True, cache=True, error_model="numpy", _nrt=False)(function)
    compile_as_usual = driver.compile

    def compile_with_vectors(signature: Any) -> Any:
        with global_compiler_lock:  # Numba's own, which lets one thread compile at a time: the setting is global
            before, _config.SLP_VECTORIZE = _config.SLP_VECTORIZE, 1
            try:
                return compile_as_usual(signature)
            finally:
                _config.SLP_VECTORIZE = before

    driver.compile = compile_with_vectors
    return driver


def compilable(function: Any) -> None:
    """Let compiled code call a plain function, and the plain functions that it calls itself."""
    if isinstance(function, FunctionType) and function not in _known:
        _known.add(function)
        names = function.__code__.co_names
        used = [function.__globals__.get(name) for name in names]
        used += [cell.cell_contents for cell in function.__closure__ or ()]
        modules = [module for module in used if isinstance(module, ModuleType)]
        for called in [*used, *(getattr(module, name, None) for module in modules for name in names)]:
            if isinstance(called, FunctionType):
                compilable(called)
        _extending.register_jitable(**INLINE)(function)


def leave_out(function: FunctionType) -> None:
    """Never compile this function: engines have their own version of it."""
    _known.add(function)


@_extending.lower_builtin(math.sqrt, types.float64)
def _sqrt(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Use the processor's square root, which LLVM vectorises, where Numba calls the C library's.

    It holds for all Numba code of the process and gives the same bits.
    """
    return builder.call(builder.module.declare_intrinsic("llvm.sqrt", [ir.DoubleType()]), arguments)


def by_value(record: Any) -> Any:
    """A record of numbers as a tuple with the same names.

    Compiled code keeps its entries in registers, where it would read those of a record again after every write to
    another record: for all it knows the two may overlap.
    """
    raise NotImplementedError  # compiled only


@_extending.overload(by_value, strict=False, jit_options=INLINE)
def _by_value(record: Any) -> Any:
    names = list(record.fields)
    made = namedtuple("Terms", names)  # pyright: ignore[reportUntypedNamedTuple]
    space: dict[str, Any] = {"made": made}
    exec(f"def copy(record): return made({', '.join(f'record.{name}' for name in names)})", space)  # noqa: S102
    return space["copy"]


def _digest_of_sources() -> str:
    """A hash of the code that drivers compile from other files.

    Numba's disk cache notices changes only in the file of the cached function. The drivers take this hash into
    their closure, which is part of the cache key, so a changed rule never runs from a stale cache.
    """
    package = Path(__file__).parents[1]
    sources = [path for room in ("rules", "policies", "simulation") for path in (package / room).glob("*.py")]
    sources.append(package / "rewards.py")  # what agents know of rewards
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(sources))).hexdigest()


SOURCES = _digest_of_sources()


_COVERED = ("fedbandit", "math", "numba", "numpy")  # by SOURCES; by Numba's own key


def digest_of(function: FunctionType) -> str:
    """A hash of a function from outside this package: its code, and the functions and values that it uses.

    Values of globals count too: compiled code takes them as constants.
    """
    digest, known = hashlib.sha256(), set[int]()

    def add(value: Any) -> None:
        value = getattr(value, "py_func", value)  # of a function that Numba has compiled
        if isinstance(value, FunctionType):
            if str(value.__module__).partition(".")[0] in _COVERED:
                digest.update(f"{value.__module__}:{value.__qualname__}".encode())
            elif id(value) not in known:
                known.add(id(value))
                add(value.__code__)
                cells = [cell.cell_contents for cell in value.__closure__ or ()]
                for part in (value.__defaults__, value.__kwdefaults__, *cells, *_used_by(value)):
                    add(part)
        elif isinstance(value, CodeType):
            digest.update(repr((value.co_code, value.co_names, value.co_varnames, value.co_freevars)).encode())
            for constant in value.co_consts:
                add(constant)
        elif isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(cast("NDArray[np.float64]", value))
            digest.update(f"{array.dtype} {array.shape} {array.tolist()}".encode())
        elif isinstance(value, (tuple, list)):
            several = cast("tuple[Any, ...]", value)
            digest.update(f"{type(several).__name__} of {len(several)}".encode())
            for part in several:
                add(part)
        elif isinstance(value, (bool, int, float, complex, str, bytes, Enum, type(None))):
            digest.update(f"{type(value).__name__} {value!r}".encode())
        else:
            digest.update(type(value).__name__.encode())
        digest.update(b"\n")

    add(function)
    return digest.hexdigest()


def _used_by(function: FunctionType) -> list[Any]:
    """What a function finds in its globals, and in modules and classes there."""
    names = sorted({name for code in _codes(function.__code__) for name in code.co_names})
    used = [function.__globals__[name] for name in names if name in function.__globals__]
    spaces = [space for space in used if isinstance(space, (ModuleType, type)) and space.__name__ not in _COVERED]
    return [*used, *(getattr(space, name) for space in spaces for name in names if hasattr(space, name))]


def _codes(code: CodeType) -> list[CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(deeper for part in inner for deeper in _codes(part))]
