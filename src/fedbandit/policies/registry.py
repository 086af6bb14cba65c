"""Policies and functions from outside the package: what they are called, how they are loaded, hashes of their code.

An own policy is a frozen dataclass with ``page()`` and ``terms(setting)`` (docs/own-policy.md). ``kind``, ``label`` and
``check`` are optional. ``testing.admission`` decides whether its page may run. Two hashes tell code apart: that of the
text of modules is the same on any machine; that of what a function runs also sees values that it computes with.
"""

import dis
import hashlib
import itertools
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from fedbandit.checks import InvalidArgument, closest
from fedbandit.policies import POLICIES, Policy

PACKAGE = __name__.partition(".")[0]
HOW = "docs/own-policy.md shows how to write one"


class WrongPage(InvalidArgument):
    """An own policy that cannot run; ``fault`` is a sentence about it, which names the function of its page."""

    def __init__(self, kind: str, fault: str) -> None:
        """Say whose fault it is and what."""
        self.kind, self.fault = kind, fault
        super().__init__("policy", kind, "one whose page is sound", fault)
        self.args = (f"{kind}: {fault}",)

    def __reduce__(self) -> Any:
        return WrongPage, (self.kind, self.fault)

    def at(self, place: str) -> InvalidArgument:
        """The same error: it names the policy already."""
        return self


# ---------------------------------------------------------------- names


def name_of(module: str) -> str:
    """The name of a module, which a worker process may call otherwise."""
    return "__main__" if module == "__mp_main__" else module


def is_built_in(policy: object) -> bool:
    """Whether it is a policy of this package, and not of a subclass."""
    return type(policy) in POLICIES.values()


def kind_of(policy: object) -> str:
    """The name in files: a built-in policy's own, or ``module:Class``."""
    if is_built_in(policy):
        return cast(Any, policy).kind
    return f"{name_of(type(policy).__module__)}:{type(policy).__qualname__}"


def label_of(policy: Policy) -> str:
    """The name in figures and tables: ``label``, or the class and its parameters."""
    label = getattr(policy, "label", None)
    if isinstance(label, str):
        return label
    values = {field.name: getattr(policy, field.name) for field in fields(cast(Any, policy))}
    epsilon = values.pop("epsilon", None)
    given = ", ".join(f"{name}={value!r}" for name, value in values.items())
    name = f"{type(policy).__name__}({given})" if given else type(policy).__name__
    return name if epsilon is None else f"{name}, eps={epsilon:g}"


def check_kind(
    argument: str, policy: object, built_in: Collection[type] = tuple(POLICIES.values()), accepted: str = ""
) -> None:
    """Refuse what is neither one of these built-in policies nor an own policy."""
    kind = type(policy)
    if kind in built_in:
        return
    accepted = accepted or f"a policy, such as FedBatch(epsilon=1.0) or GossipUCB(); {HOW}"
    if isinstance(policy, tuple(POLICIES.values())) and kind not in POLICIES.values():
        parent = next(base for base in kind.__mro__ if base in POLICIES.values()).__name__
        hint = (
            f"{kind.__name__} is a subclass of a built-in policy, which would run under the name of its parent. "
            f"Compose instead: a frozen dataclass of your own whose page() returns {parent}(...).page()._replace("
            f"decide=my_decide) and whose terms(setting) returns {parent}(...).terms(setting); {HOW}"
        )
        raise InvalidArgument(argument, policy, accepted, hint)
    missing = [name for name in ("page", "terms") if not callable(getattr(policy, name, None))]
    if isinstance(policy, type) or missing or kind in POLICIES.values():
        hint = ""
        if is_dataclass(kind):
            hint = f"{kind.__name__} has no {' and no '.join(missing)}." if missing else ""
        raise InvalidArgument(argument, policy, accepted, hint)
    if not is_dataclass(policy) or not cast(Any, policy).__dataclass_params__.frozen:
        hint = f"{kind.__name__} is not: write @dataclass(frozen=True) above it, so that nothing changes while it runs."
        raise InvalidArgument(argument, policy, "a frozen dataclass", hint)
    taken = [field.name for field in fields(cast(Any, policy)) if field.name in ("kind", "label", "source")]
    if taken:
        raise InvalidArgument(argument, policy, f"without a parameter named {taken[0]}: files use that name")
    try:
        hash(policy)
    except TypeError as error:
        raise InvalidArgument(argument, policy, "hashable: its parameters are numbers and texts", str(error)) from None


# ---------------------------------------------------------------- from files


def _load_class(where: str, kind: str, folder: Path | None) -> type:
    found = load(where, kind, folder, "module:Class, such as my_policies:EpsilonGreedy")
    if not isinstance(found, type):
        raise InvalidArgument(where, kind, "the name of a class")
    if found in POLICIES.values():
        raise InvalidArgument(where, kind, f"'{found.kind}', the name of the built-in policy")
    if not is_dataclass(found):
        raise InvalidArgument(where, kind, "a frozen dataclass", HOW)
    return found


def policy_from(
    where: str,
    given: Mapping[str, Any],
    kinds: Collection[str] = tuple(POLICIES),
    beside: Collection[str] = (),
    folder: Path | None = None,
) -> Policy:
    """Build a policy from a table of a file: its ``kind``, one of ``kinds`` or ``module:Class``, and its parameters.

    ``where`` is the table's name, for error messages; ``beside`` are further allowed keys; ``folder`` is that of the
    file, where modules are looked up first.
    """
    kind = given.get("kind")
    if isinstance(kind, str) and ":" in kind:
        chosen: Any = _load_class(f"{where}.kind", kind, folder)
    elif isinstance(kind, str) and kind in kinds:
        chosen = POLICIES[kind]
    else:
        accepted = f"one of {', '.join(kinds)}, or module:Class"
        raise InvalidArgument(f"{where}.kind", kind, accepted, closest(str(kind), kinds))
    known = [parameter for parameter in fields(chosen) if parameter.init]
    names = [parameter.name for parameter in known]
    parameters = {name: value for name, value in given.items() if name != "kind"}
    for name, value in parameters.items():
        if name not in names:
            accepted = f"one of {', '.join(['kind', *beside, *names])}"
            raise InvalidArgument(f"a key of {where} ({kind})", name, accepted, closest(name, names))
        if not isinstance(value, (str, int, float)):
            raise InvalidArgument(f"{where}.{name}", value, "one value")
    needed = [
        p.name for p in known if p.default is MISSING and p.default_factory is MISSING and p.name not in parameters
    ]
    if needed:
        raise InvalidArgument(f"{where} ({kind})", dict(given), f"given {', '.join(needed)}")
    try:
        policy = chosen(**parameters)
        check_kind("policy", policy)
    except InvalidArgument as error:
        raise error.at(where) from None
    except Exception as error:
        if chosen in POLICIES.values():
            raise
        hint = f"Its constructor fails with {type(error).__name__}: {error}"
        raise InvalidArgument(where, dict(given), f"parameters that {kind} accepts", hint) from None
    return policy


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


# ---------------------------------------------------------------- whose code it is, and its text


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


def _hash_of_text(functions: Iterable[FunctionType], home: str) -> str:
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


def source_hash(policy: Policy) -> str:
    """A hash of the text of every own module that the policy uses; the same on any machine and any Python."""
    parts = [*policy.page(), *vars(type(policy)).values()]
    functions = [part for part in parts if isinstance(part, FunctionType) and part.__code__.co_filename != "<string>"]
    return _hash_of_text(functions, type(policy).__module__)  # "<string>": what a dataclass writes


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
                add(name_of(str(value.__module__)))  # stored code imports it: a copy under another name is another
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
