"""Makes rules and policy pages callable from compiled code, unchanged.

A rule or a function of a page stays an ordinary Python function: ``register_jitable`` only allows Numba to
compile it where compiled code calls it. This keeps Numba out of ``rules`` and ``policies``, and so out of
a live agent.
"""

import hashlib
import math
from collections import namedtuple
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import config, extending, njit, types
from numba.core import caching, cgutils, codegen, compiler, cpu, errors
from numba.core.compiler_lock import global_compiler_lock

from fedbandit.policies.registry import digest_of, globals_of

_Compiler: Any = compiler.Compiler
_CPUContext: Any = cpu.CPUContext
_CodeLibrary: Any = codegen.JITCodeLibrary
_FunctionCache: Any = caching.FunctionCache
_IndexFile: Any = caching.IndexDataCacheFile
_Function = TypeVar("_Function", bound=Callable[..., Any])
_jit: Any = njit
_config: Any = config
_NamedTuple: Any = types.BaseNamedTuple
_extending: Any = extending
_PACKAGE = __name__.partition(".")[0]
_NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class _InlinedLibrary(_CodeLibrary):
    """The code of a function that others inline. It never runs by itself, so it is neither optimised nor loaded."""

    def _optimize_final_module(self) -> None:
        """Left to the driver, into which it is linked."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """None: only compiled code can call it."""
        return 0

    @property
    def codegen(self) -> Any:
        """Asked for only to tell loaded code where its globals are."""
        return SimpleNamespace(set_env=lambda name, env: None)  # pyright: ignore[reportUnknownLambdaType]


class _DriverLibrary(_CodeLibrary):
    """The code of a driver, with all that it calls.

    Numba names what a driver calls by its types, and a type of records by a number that counts within a process. So
    code from two processes may have one name for two functions, for other numbers of arms; loaded into a third, both
    drivers would call the first of them. Here a driver keeps what it calls to itself.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage.name in ("linkonce_any", "linkonce_odr"):
                function.linkage = "internal"
        base: Any = super()
        base._optimize_final_module()


def _root(x: float) -> float:
    """The processor's square root, by which ``_OurTarget`` replaces that of the C library."""
    raise NotImplementedError  # compiled only


@_extending.lower_builtin(_root, types.float64)
def _lower_root(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.call(builder.module.declare_intrinsic("llvm.sqrt", [ir.DoubleType()]), arguments)


class _OurTarget(_CPUContext):
    """Numba's target with a square root that LLVM vectorises, of the same bits. Numba calls the C library's."""

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """What lowers a call."""
        is_root = getattr(fn, "typing_key", fn) is math.sqrt and sig.args == (types.float64,)
        base: Any = super()
        return base.get_function(_root if is_root else fn, sig, _firstcall)


class _OurCompiler(_Compiler):
    """Numba's compiler, for this package's functions and pages alone."""

    def __init__(self, typing: Any, target: Any, *rest: Any) -> None:
        ours = copy(target)
        ours.__class__ = _OurTarget
        super().__init__(typing, ours, *rest)


class _InlinedCompiler(_OurCompiler):
    """For functions that drivers inline: a third less work than to make each of them run."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        super().__init__(typing, target, _InlinedLibrary(target.codegen(), "inlined"), *rest)


class _DriverCompiler(_Compiler):
    """For loops over rounds."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        own = _DriverLibrary(target.codegen(), "rounds")
        own.enable_object_caching()
        super().__init__(typing, target, own, *rest)


NOT_AN_ARM = "decide must return a whole number, the arm"

INLINE: Any = {
    "_nrt": False,
    "error_model": "numpy",
    "forceinline": True,
    "pipeline_class": _InlinedCompiler,
    **_NO_WRAPPERS,
}
"""Options of what runs in every round.

It allocates nothing, so it needs no reference counts: with them (Numba's default, atomic ones, at every view of a row)
the engine ran ten times slower. Only compiled code can call it: the wrappers for Python took almost
half of the first compilation.
"""

_OWN: Any = {**INLINE, "boundscheck": True, "error_model": "python"}
"""Options of a user's functions: an index beyond a row and a division by zero stop the run, as in plain Python."""

_known: set[FunctionType] = set()
_left_out: set[FunctionType] = set()
_guarded: dict[FunctionType, FunctionType] = {}


def compile_small(function: _Function) -> _Function:
    """Compile a function of plain numbers that runs in every round. Python can call it too."""
    return _jit(_nrt=False, error_model="numpy", forceinline=True, pipeline_class=_OurCompiler)(function)


def compile_inner(function: _Function) -> _Function:
    """Compile what runs in every round."""
    return _jit(**INLINE)(function)


def compile_rare(function: _Function) -> _Function:
    """Compile what runs in few rounds: not inlined, which keeps the first compilation short."""
    return _jit(_nrt=False, error_model="numpy", pipeline_class=_InlinedCompiler, **_NO_WRAPPERS)(function)


class _KeyedCache(_FunctionCache):
    """Numba's disk cache, which finds compiled code by a key of ours.

    Numba's own key is a hash of all that a function closes over. Compiled functions among that have another hash in
    every process, so it would never find them again. And it notices changes only in the file of the function. Ours is a
    hash of all code that the function reaches: a changed rule never runs from a stale cache, an edit of anything else
    compiles nothing anew, and checkouts that share a folder, NUMBA_CACHE_DIR, share compiled code.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._key = digest_of(function, covered=_COVERED) + _code_of_engine()
        if _config.CACHE_DIR:  # of NUMBA_CACHE_DIR: one folder for all checkouts
            self._cache_path = _config.CACHE_DIR

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Also the name of a file: Numba numbers the code in a file without a lock.

        Two processes that save at once could give one number to two loops, and each would then run the other's.
        """
        key = sig, codegen.magic_tuple(), self._key, _fields_in(sig)
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        self._cache_file = _IndexFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}-{digest}",
            source_stamp=self._key,
        )
        return key

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Stored code imports its modules. Where one is gone, or never was (``exec``), it is compiled anew."""
        base: Any = super()
        try:
            return base.load_overload(sig, target_context)
        except ModuleNotFoundError:
            return None


def _fields_in(kinds: Any) -> tuple[Any, ...]:
    """The names of the fields of named tuples, which Numba's types do not count as their own."""
    return tuple((kind.fields, _fields_in(kind)) for kind in kinds if isinstance(kind, _NamedTuple))


def compile_driver(function: _Function) -> _Function:
    """Compile a loop over rounds: cached on disk, and other Python threads run beside it.

    LLVM's superword vectoriser, which Numba leaves off, computes the beliefs of several arms at once.
    """
    driver: Any = _jit(nogil=True, error_model="numpy", _nrt=False, pipeline_class=_DriverCompiler)(function)
    with suppress(RuntimeError):  # no folder can be written to: every process compiles for itself
        driver._cache = _KeyedCache(function)
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
        closed_over = [cell.cell_contents for cell in function.__closure__ or ()]
        for called in [*closed_over, *(value for _, value in globals_of(function))]:
            if isinstance(called, FunctionType):
                compilable(called)
        if is_ours(function):
            _extending.register_jitable(**INLINE)(function)
        else:
            allow(function, _extending.overload, jit_options=_OWN, target="cpu")


def is_ours(function: FunctionType) -> bool:
    """Whether a function belongs to this package, and is no guarded copy: it is then compiled without checks."""
    return function.__module__.partition(".")[0] == _PACKAGE and function not in _guarded.values()


def allow(function: FunctionType, overload: Any, **options: Any) -> None:
    """Let compiled code call a plain function as it is, compiled with these options."""

    @overload(function, strict=False, **options)
    def itself(*arguments: Any, **named: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        return function


def leave_out(function: FunctionType) -> None:
    """Never compile this function: engines have their own version of it."""
    _known.add(function)
    _left_out.add(function)


def guarded(function: FunctionType) -> FunctionType:
    """A copy of a function in which every index is checked, also in functions of this package that it calls.

    Those count on valid indices. A user's page may hand them others, and beyond a row lie the agent's raw rewards.
    """
    if function not in _guarded:
        space = dict(function.__globals__)
        code = function.__code__.replace(co_consts=(*function.__code__.co_consts, "guarded"))  # its digest differs
        copied = FunctionType(code, space, function.__name__, function.__defaults__, function.__closure__)
        copied.__module__, copied.__qualname__ = function.__module__, function.__qualname__
        for path, used in globals_of(function):
            if isinstance(used, FunctionType) and used not in _left_out:
                _put(space, path.split("."), guarded(used))
        _guarded[function] = copied
    return _guarded[function]


def _put(space: dict[str, Any], path: list[str], value: FunctionType) -> None:
    """Give a global name, or an attribute of a module, another value, in a copy of that module."""
    name, *rest = path
    if not rest:
        space[name] = value
    elif isinstance(space[name], ModuleType):
        copied = ModuleType(space[name].__name__)
        vars(copied).update(vars(cast(ModuleType, space[name])))
        _put(vars(copied), rest, value)
        space[name] = copied


@_extending.overload_method(types.Integer, "bit_length", strict=False, jit_options=INLINE)
def _bit_length(x: Any) -> Any:
    """Let rules ask for the length of a whole number that is not negative: one instruction."""

    def bit_length(x: Any) -> int:
        return 64 - _leading_zeros(np.int64(x))

    return bit_length


@_extending.intrinsic
def _leading_zeros(typing: Any, x: Any) -> Any:
    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), make


@_extending.intrinsic
def not_negative(typing: Any, index: Any) -> Any:
    """The same index, of which the compiler then knows that it does not count from the end of an array."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.assume(builder.icmp_signed(">=", arguments[0], arguments[0].type(0)))
        return arguments[0]

    return types.int64(types.int64), make


@_extending.intrinsic
def address_of(typing: Any, array: Any) -> Any:
    """Where an array begins."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return types.int64(array), build


@_extending.intrinsic
def fetch_line(typing: Any, address: Any) -> Any:
    """Ask for a line of memory ahead of its use."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        name = "llvm.prefetch.p0i8"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        place = builder.inttoptr(arguments[0], pointer)
        builder.call(function, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(types.int64), build


@_extending.intrinsic
def row_like(typing: Any, row: Any) -> Any:
    """A row of the same length on the stack, not filled in.

    Compiled code can tell that it overlaps with nothing. So it computes such a row with vectors, where it would go
    entry by entry if each had to be stored in an array before the next one is read.
    """
    length = row.shape[0]  # of a record's row, where it is part of the type

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, number = signature.return_type, context.get_value_type(types.intp)
        entry = context.get_data_type(kind.dtype)
        size = context.get_abi_sizeof(entry)
        array = context.make_array(kind)(context, builder)
        context.populate_array(
            array,
            data=builder.bitcast(cgutils.alloca_once(builder, ir.ArrayType(entry, length)), entry.as_pointer()),
            shape=cgutils.pack_array(builder, [number(length)]),
            strides=cgutils.pack_array(builder, [number(size)]),
            itemsize=number(size),
            meminfo=None,
        )
        return array._getvalue()

    return types.Array(row.dtype, 1, "C")(row), make


def as_arm(arm: Any) -> Any:
    """The arm that a user's ``decide`` returns, if it is a whole number."""
    raise NotImplementedError  # compiled only


def _as_unsigned(arm: Any) -> Any:
    return np.uint64(arm)


@_extending.overload(as_arm, strict=False, jit_options=INLINE)
def _as_arm(arm: Any) -> Any:
    if isinstance(arm, (types.Integer, types.Boolean)):
        return _as_unsigned
    hint = "it may return None: is a return missing?" if isinstance(arm, types.Optional) else f"it returns a {arm}"
    raise errors.TypingError(f"{NOT_AN_ARM}: {hint}")


def by_value(record: Any) -> Any:
    """A record of numbers as a tuple with the same names.

    Compiled code keeps its entries in registers, where it would read those of a record again after every write to
    another record: for all it knows the two may overlap.
    """
    raise NotImplementedError  # compiled only


@_extending.overload(by_value, strict=False, jit_options=INLINE)
def _by_value(record: Any) -> Any:
    return _copier(tuple(record.fields))


@cache
def _copier(names: tuple[str, ...]) -> Any:
    """A function that copies a record; the same names are always the same kind of tuple."""
    made = namedtuple("Terms", names)  # pyright: ignore[reportUntypedNamedTuple]
    space: dict[str, Any] = {"made": made}
    exec(f"def copy(record): return made({', '.join(f'record.{name}' for name in names)})", space)  # noqa: S102
    return space["copy"]


_COVERED = ("math", "numba", "numpy")  # by Numba's own key


@cache
def _code_of_engine() -> str:
    """A hash of the files that extend Numba or hold what functions are compiled for: they do not name each other."""
    engine = Path(__file__).parent
    files = (*(engine / f"{name}.py" for name in _EXTENSIONS), engine.parent / "policies" / "protocol.py")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


_EXTENSIONS = (*("compiled", "features", "late_rewards", "links", "network", "phases", "streams", "threads"),)
