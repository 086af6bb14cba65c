"""Policies from outside the package: what they are called, how a file names them, and what their source is.

An own policy is a frozen dataclass with ``page()`` and ``terms(setting)`` (docs/own-policy.md). ``kind``, ``label`` and
``check`` are optional. ``admission`` decides whether its page may run.
"""

import hashlib
import sys
import sysconfig
from collections.abc import Collection, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

from fedbandit.checks import InvalidArgument
from fedbandit.policies.built_in import POLICIES
from fedbandit.policies.protocol import OwnPolicy

__all__ = [
    "WrongPage",
    "check_kind",
    "code_in",
    "is_built_in",
    "is_own_code",
    "kind_of",
    "label_of",
    "load_class",
    "source_hash",
]

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
        """Allow pickling."""
        return WrongPage, (self.kind, self.fault)

    def at(self, place: str) -> InvalidArgument:
        """The same error: it names the policy already."""
        return self


# ---------------------------------------------------------------- names


def is_built_in(policy: object) -> bool:
    """Whether it is a policy of this package, and not of a subclass."""
    return type(policy) in POLICIES.values()


def kind_of(policy: object) -> str:
    """The name in files: a built-in policy's own, or ``module:Class``."""
    if is_built_in(policy):
        return cast(Any, policy).kind
    return f"{_name_of(type(policy).__module__)}:{type(policy).__qualname__}"


def _name_of(module: str) -> str:
    return "__main__" if module == "__mp_main__" else module  # a worker process calls the main script so


def label_of(policy: OwnPolicy) -> str:
    """The name in figures and tables: ``label``, or the class and its parameters."""
    label = getattr(policy, "label", None)
    if isinstance(label, str):
        return label
    given = (f"{field.name}={getattr(policy, field.name)!r}" for field in fields(cast(Any, policy)))
    return f"{type(policy).__name__}({', '.join(given)})"


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
        if isinstance(policy, type):
            hint = f"{policy.__name__} is the class: write {policy.__name__}(...)."
        elif is_dataclass(policy):
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


# ---------------------------------------------------------------- loading


def load_class(where: str, kind: str, folder: Path | None) -> type:
    """The class that ``module:Class`` names; the module lies in ``folder`` or, if it does not, on ``sys.path``.

    The folder then goes to the front of ``sys.path``, as that of a script does: worker processes look there too.
    """
    name, _, qualname = kind.partition(":")
    if not all(part.isidentifier() for part in (*name.split("."), *qualname.split("."))):
        raise InvalidArgument(where, kind, "module:Class, such as my_policies:EpsilonGreedy")
    beside = None if folder is None else _beside(folder.resolve(), name)
    if beside is not None and str(cast(Path, folder).resolve()) not in sys.path:
        sys.path.insert(0, str(cast(Path, folder).resolve()))
        invalidate_caches()
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            looked = "on sys.path" if folder is None else f"beside the file (in {folder}) or on sys.path"
            raise InvalidArgument(where, kind, f"a class of a module that lies {looked}") from None
        raise InvalidArgument(where, kind, "a module that can be imported", f"It fails with {error}.") from None
    except Exception as error:
        words = f"It fails with {type(error).__name__}: {error}"
        raise InvalidArgument(where, kind, "a module that can be imported", words) from None
    if beside is not None and _file_of(module) != beside:
        hint = f"Another module of that name is loaded already ({_file_of(module) or 'built in'}): rename yours."
        raise InvalidArgument(where, kind, f"the class in {beside}", hint)
    if _hash_of(vars(module)) != _hash_now(vars(module)):
        hint = "This process still has its earlier code: start a new one."
        raise InvalidArgument(where, kind, "in a file that has not changed since it was loaded", hint)
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise InvalidArgument(where, kind, f"a class in {_file_of(module) or name}")
    if found in POLICIES.values():
        raise InvalidArgument(where, kind, f"'{found.kind}', the name of the built-in policy")
    if not is_dataclass(found):
        raise InvalidArgument(where, kind, "a frozen dataclass", HOW)
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
    if top == PACKAGE or top in sys.builtin_module_names:
        return False
    if top == home.partition(".")[0]:
        return True
    loaded = sys.modules.get(module)
    path = None if loaded is None else _file_of(loaded)
    return path is None or not any(path.is_relative_to(library) for library in _LIBRARIES)


def source_hash(policy: OwnPolicy) -> str:
    """A hash of the text of every own module that the policy uses; the same on any machine and any Python."""
    home = type(policy).__module__
    page = policy.page()
    functions = [part for part in page if isinstance(part, FunctionType)]
    functions += [
        method for base in type(policy).__mro__ for method in _methods(base) if is_own_code(base.__module__, home)
    ]
    modules = {name: space for name, space in _modules_of(functions).items() if is_own_code(name, home)}
    modules.setdefault(home, vars(sys.modules[home]) if home in sys.modules else {})
    digest = hashlib.sha256()
    for name in sorted(modules, key=_name_of):
        text = _hash_of(modules[name])
        if not text:  # typed at a prompt: there is no file
            text = repr([code_in(function.__code__) for function in functions if function.__module__ == name])
        digest.update(f"{_name_of(name)}\n{text}\n".encode())
    return digest.hexdigest()


def _methods(base: type) -> Iterable[FunctionType]:
    for value in vars(base).values():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(inner, FunctionType) and inner.__code__.co_filename != "<string>":  # those that dataclass writes
            yield inner


def _modules_of(functions: Iterable[FunctionType]) -> dict[str, dict[str, Any]]:
    """The modules of functions, and of what they use, directly or not: their contents, by name."""
    found: dict[str, dict[str, Any]] = {}
    pending, known = list(functions), set[FunctionType]()
    while pending:
        function = pending.pop()
        if function in known or function.__module__.partition(".")[0] == PACKAGE:
            continue
        known.add(function)
        found[function.__module__] = function.__globals__
        names = _names_in(function.__code__)
        used = [function.__globals__[name] for name in names if name in function.__globals__]
        modules = [value for value in used if isinstance(value, ModuleType)]
        found |= {module.__name__: vars(module) for module in modules}
        for value in [*used, *(getattr(module, name, None) for module in modules for name in names)]:
            if isinstance(value, FunctionType):
                pending.append(value)
            elif isinstance(value, type) and value.__module__.partition(".")[0] != PACKAGE:
                pending += _methods(value)
    return {name: space for name, space in found.items() if name == "__main__" or not _is_standard(name)}


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


@cache
def _names_in(code: CodeType) -> set[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*(_names_in(const) for const in inner))


def code_in(code: CodeType) -> tuple[Any, ...]:
    """What a function does, without its place in the file."""
    consts = tuple(code_in(const) if isinstance(const, CodeType) else repr(const) for const in code.co_consts)
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
