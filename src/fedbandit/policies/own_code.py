"""Finds code from outside the package by ``module:name``, tells whose it is, and hashes its text and what it runs."""

import dis
import hashlib
import itertools
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from fedbandit.checks import InvalidArgument, closest

__all__ = [
    "PACKAGE",
    "builtin_of",
    "digest_of",
    "globals_of",
    "is_own_code",
    "load",
    "name_of",
    "own_function",
    "source_of",
]

PACKAGE = __name__.partition(".")[0]


def name_of(module: str) -> str:
    """The name of a module, which a worker process may call otherwise."""
    return "__main__" if module == "__mp_main__" else module


# ---------------------------------------------------------------- loading


def load(where: str, text: str, folder: Path | None, accepted: str) -> Any:
    """What ``module:name`` names; the module lies in ``folder`` or, if it does not, on ``sys.path``.

    The folder then goes to the front of ``sys.path``, as that of a script does: worker processes look there too.
    """
    name, _, qualname = text.partition(":")
    if not all(part.isidentifier() for part in (*name.split("."), *qualname.split("."))):
        raise InvalidArgument(where, text, accepted)
    beside = None if folder is None else _beside(folder.resolve(), name)
    if beside is not None and str(cast(Path, folder).resolve()) not in sys.path:
        sys.path.insert(0, str(cast(Path, folder).resolve()))
        invalidate_caches()
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            looked = "on sys.path" if folder is None else f"beside the file (in {folder}) or on sys.path"
            raise InvalidArgument(where, text, f"in a module that lies {looked}") from None
        raise InvalidArgument(where, text, "a module that can be imported", f"It fails with {error}.") from None
    except Exception as error:
        words = f"It fails with {type(error).__name__}: {error}"
        raise InvalidArgument(where, text, "a module that can be imported", words) from None
    if beside is not None and _file_of(module) != beside:
        hint = f"Another module of that name is loaded already ({_file_of(module) or 'built in'}): rename yours."
        raise InvalidArgument(where, text, f"found in {beside}", hint)
    if _hash_of(vars(module)) != _hash_now(vars(module)):
        hint = "This process still has its earlier code: start a new one."
        raise InvalidArgument(where, text, "in a file that has not changed since it was loaded", hint)
    found: Any = module
    for part in qualname.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(
                where, text, accepted, f"{name} has no {qualname}. {closest(part, dir(found))}".rstrip()
            )
        found = getattr(found, part)
    return found


def own_function(argument: str, text: str, folder: Path) -> FunctionType:
    """The function that ``module:function`` names."""
    accepted = "'module:function', with a module beside the experiment file or an installed one"
    found = load(argument, text, folder, accepted)
    if not isinstance(found, FunctionType):
        raise InvalidArgument(argument, text, accepted, f"{text} is not a function.")
    return found


def _beside(folder: Path, name: str) -> Path | None:
    path = folder.joinpath(*name.split("."))
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _file_of(module: ModuleType) -> Path | None:
    path = getattr(module, "__file__", None)
    return None if path is None else Path(path).resolve()


# ---------------------------------------------------------------- source


_LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_hashes: dict[int, tuple[object, str]] = {}  # by the spec of a module, which a reload replaces


@cache
def is_own_code(module: str, home: str) -> bool:
    """Whether a module belongs to the author of a policy whose module is ``home``: no library, nothing of ours."""
    top = module.partition(".")[0]
    if top == PACKAGE or top in sys.stdlib_module_names:
        return False
    if top == home.partition(".")[0]:
        return True
    loaded = sys.modules.get(module)
    path = None if loaded is None else _file_of(loaded)
    return path is None or not any(path.is_relative_to(library) for library in _LIBRARIES)


def source_of(functions: Iterable[FunctionType], home: str) -> str:
    """A hash of the text of the module ``home``, of those of functions, and of all own modules that they import."""
    known = list(functions)
    waiting, found = [_space_of(function) for function in known], dict[str, dict[str, Any]]()
    if not any(name == home for name, _ in waiting):
        waiting.append((home, vars(sys.modules[home]) if home in sys.modules else {}))
    while waiting:
        name, space = waiting.pop(0)
        if name not in found and is_own_code(name, home):
            found[name] = space
            waiting += [_space_of(value) for value in space.values()]
    digest = hashlib.sha256()
    for name in sorted(found, key=name_of):
        text = _hash_of(found[name])
        if not text:  # typed at a prompt: there is no file
            text = repr([_code_in(function.__code__) for function in known if function.__module__ == name])
        digest.update(f"{name_of(name)}\n{text}\n".encode())
    return digest.hexdigest()


def _space_of(value: Any) -> tuple[str, dict[str, Any]]:
    """The module to which something belongs, by name, and what that contains; of a function, its own version."""
    if isinstance(value, ModuleType):
        return value.__name__, vars(value)
    name = str(getattr(value, "__module__", PACKAGE))
    if isinstance(value, FunctionType):
        return name, value.__globals__
    return (name, vars(sys.modules[name])) if name in sys.modules else (PACKAGE, {})


def _code_in(code: CodeType) -> tuple[Any, ...]:
    """What a function does, without its place in the file."""
    consts = tuple(_code_in(const) if isinstance(const, CodeType) else repr(const) for const in code.co_consts)
    return code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, consts


def _hash_of(space: dict[str, Any]) -> str:
    """The hash of a module's text as it was first asked for; ``space``: the module's contents."""
    spec = space.get("__spec__") or space
    if id(spec) not in _hashes:
        _hashes[id(spec)] = (spec, _hash_now(space))
    return _hashes[id(spec)][1]


def _hash_now(space: dict[str, Any]) -> str:
    path = Path(space.get("__file__") or "")
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


# ---------------------------------------------------------------- what a function computes from


@cache
def _paths_in(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Global names in a code, each with the attributes that are read of it at once."""
    paths: list[tuple[str, ...]] = []
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    for position, step in enumerate(steps):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            after = itertools.takewhile(lambda s: s.opname in ("LOAD_ATTR", "LOAD_METHOD"), steps[position + 1 :])
            paths.append((str(step.argval), *(str(attribute.argval) for attribute in after)))
    return tuple(dict.fromkeys(paths))


def globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function finds in its module, or in the modules and classes that it names, however deep."""
    paths = dict.fromkeys(path for code in _codes(function.__code__) for path in _paths_in(code))
    for name, *attributes in paths:
        value = function.__globals__.get(name, builtin_of(function, name))
        for attribute in attributes:
            if not isinstance(value, (ModuleType, type)):
                break
            name, value = f"{name}.{attribute}", getattr(value, attribute, None)
        yield name, value


def builtin_of(function: FunctionType, name: str) -> Any:
    """A name of Python itself, as the function finds it: its module may have others by now."""
    return function.__builtins__.get(name)


_COVERED = ("fedbandit", "math", "numba", "numpy")  # by the hash of this package; by Numba's own key


def digest_of(function: FunctionType, covered: tuple[str, ...] = _COVERED) -> str:
    """A hash of a function, by default one from outside this package: its code, and the functions and values it uses.

    Values of globals count too: compiled code takes them as constants. Of functions in ``covered`` packages only their
    names count.
    """
    digest, known = hashlib.sha256(), dict[int, int]()

    def add(value: Any) -> None:
        value = getattr(value, "py_func", value)  # of a function that Numba has compiled
        if isinstance(value, FunctionType):
            if str(value.__module__).partition(".")[0] in covered:
                digest.update(f"{value.__module__}:{value.__qualname__}".encode())
            elif id(value) in known:
                digest.update(f"function {known[id(value)]}".encode())
            else:
                known[id(value)] = len(known)
                add(value.__code__)
                cells = [cell.cell_contents for cell in value.__closure__ or ()]
                for part in (value.__defaults__, value.__kwdefaults__, *cells):
                    add(part)
                for name, used in globals_of(value):
                    digest.update(f"{name} = ".encode())
                    add(used)
        elif isinstance(value, CodeType):
            digest.update(repr((value.co_code, value.co_names, value.co_varnames, value.co_freevars)).encode())
            for constant in value.co_consts:
                add(constant)
        elif isinstance(value, type):
            digest.update(f"{value.__module__}:{value.__qualname__}".encode())
        elif hasattr(value, "dtype") and hasattr(value, "tolist"):  # of NumPy, which a live site does not load
            digest.update(f"{value.dtype} {value.shape} {value.tolist()}".encode())
        elif isinstance(value, (tuple, list)):
            several = cast("tuple[Any, ...]", value)
            digest.update(f"{type(several).__name__} of {len(several)}".encode())
            for part in several:
                add(part)
        elif isinstance(value, dict):
            add(sorted(cast("dict[Any, Any]", value).items(), key=repr))
        elif isinstance(value, (bool, int, float, complex, str, bytes, Enum, type(None))):
            digest.update(f"{type(value).__name__} {value!r}".encode())
        else:
            digest.update(type(value).__name__.encode())
        digest.update(b"\n")

    add(function)
    return digest.hexdigest()


def _codes(code: CodeType) -> list[CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(deeper for part in inner for deeper in _codes(part))]
