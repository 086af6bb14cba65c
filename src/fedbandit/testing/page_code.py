"""Reads an own page without running it: its parts, its functions' source, and a digest of all code that it reaches.

What the compiler would refuse, or accept and run differently from plain Python, is refused here in words.
"""

import ast
import hashlib
import inspect
import math
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, cast, get_args

from fedbandit.checks import closest
from fedbandit.policies.fed_batch import Others
from fedbandit.policies.own_code import PACKAGE, builtin_of, digest_of, globals_of, is_own_code
from fedbandit.policies.protocol import ARMS, Field, Fields, Network, Now, Page
from fedbandit.policies.registry import WrongPage

__all__ = [
    "ARGUMENTS",
    "Reached",
    "check_code",
    "check_parts",
    "check_terms",
    "known_names",
    "named",
    "reached_by",
    "source_of",
    "unknown_name",
]

ARGUMENTS = {
    "start": ("me", "terms"),
    "decide": ("me", "terms", "seen", "now", "draws"),
    "noise_due": ("me", "terms", "arm"),
    "interval": ("me", "terms", "arm", "end"),
    "observe": ("me", "terms", "arm", "reward", "noise"),
    "published": ("me", "terms", "arm"),
    "announced": ("me", "terms", "arm"),
    "reweigh": ("me", "terms", "elapsed"),
    "believe": ("me", "terms", "seen", "arm"),
    "recount": ("me", "terms", "arm"),
    "trust": ("me", "terms", "seen", "arm", "others"),
    "estimate": ("me", "terms", "seen", "arm"),
    "radius": ("me", "terms", "seen", "now", "arm"),
    "margin": ("me", "terms", "seen", "now", "arm"),
    "unknown": ("me", "arm"),
    "chance": ("me", "terms", "seen", "now", "arm"),
    "meet": ("agents", "terms", "seen", "edges", "present"),
    "combine": ("terms", "rows", "versions"),
}
"""The arguments of a page's functions."""

_NEEDED = ("decide", "observe", "published", "estimate")
_BUILTINS = {
    *("abs", "bool", "divmod", "enumerate", "float", "int", "len", "max", "min", "pow", "range", "round", "sum", "zip")
}
_NO_IO = "a page has no input or output"
_RANDOM = "a page has no randomness of its own: use uniform(draws) or fill_with_normals(row, draws) in decide"
_HINTS = {
    **dict.fromkeys(("print", "open", "input"), _NO_IO),
    **dict.fromkeys(("random", "secrets"), _RANDOM),
    **dict.fromkeys(("time", "datetime"), "a page has no clock: decide is told the time in now"),
    **dict.fromkeys(("numpy", "np"), "a page uses plain numbers and math"),
    **dict.fromkeys(("list", "dict", "set", "sorted", "tuple"), "it keeps what it knows in its fields (KNOWS)"),
}
_REFUSED: Mapping[tuple[type[ast.AST], ...], str] = {
    (ast.Import, ast.ImportFrom): "has an import: import at the top of the module",
    (ast.Global, ast.Nonlocal): "changes a global variable: what an agent knows stands in its fields (KNOWS)",
    (ast.List, ast.ListComp): "makes a list: declare a row in KNOWS, such as Number[ARMS]",
    (ast.Dict, ast.DictComp): "makes a dict: declare rows in KNOWS",
    (ast.Set, ast.SetComp): "makes a set: declare rows in KNOWS",
    (ast.With, ast.AsyncWith): f"has a with statement: {_NO_IO}",
    (ast.Try, ast.TryStar): "has a try statement: nothing may fail in compiled code",
    (ast.Raise, ast.Assert): "raises an error: check parameters in the dataclass, settings in check(setting)",
    (ast.JoinedStr,): "formats a text: a page computes with numbers only",
    (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp): (
        "defines a function (or a comprehension) inside: write it at the top of the module, or a loop"
    ),
    (ast.Yield, ast.YieldFrom, ast.Await): "is a generator or asynchronous: it must return its value",
    (ast.Delete,): "deletes an entry: rows and fields are fixed",
}


class Reached(NamedTuple):
    """The own functions that a page reaches, by the page's function that does, and a digest of their code."""

    functions: Mapping[FunctionType, str]
    digests: Mapping[FunctionType, str]
    digest: str


# ---------------------------------------------------------------- the parts of a page


def check_parts(kind: str, page: Any) -> None:
    """Refuse a page whose fields, names or functions are not as ``protocol.Page`` says."""
    if type(page) is not Page:
        raise WrongPage(kind, f"page() must return a Page, not {page!r}")
    if not isinstance(page.knows, Fields):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongPage(kind, f"knows is a {type(page.knows).__name__}: write Fields(n=Count[ARMS], ...)")
    for name, field in page.knows.items():
        _check_field(kind, name, field)
    _check_names(kind, "averaged", page.averaged)
    _check_names(kind, "columns", page.published_names)
    for name in page.averaged:
        if name in page.knows:
            raise WrongPage(
                kind, f"averaged and knows both name {name}: the agent's own number needs another name than the average"
            )
        if not name.isidentifier() or name in ("n_max", "padding"):
            raise WrongPage(kind, f"averaged must not name {name!r}: choose another name")
    if page.network not in get_args(Network):
        known = get_args(Network)
        raise WrongPage(
            kind,
            f"network must be one of {', '.join(known)}, not {page.network!r}. {closest(str(page.network), known)}",
        )
    for name in ARGUMENTS:
        _check_function(kind, name, getattr(page, name))
    if page.interval is not None and page.noise_due is None:
        raise WrongPage(kind, "interval stands without noise_due, which says when noise is due")
    if page.reweigh is not None and page.believe is None:
        raise WrongPage(kind, "reweigh stands without believe, which is called after it for every arm")
    if page.network == "server" and page.meet is None:
        raise WrongPage(kind, "network is 'server', where only meet changes the averages, and meet is None")
    if page.columns and page.combine is None:
        raise WrongPage(kind, "columns stand without combine, which makes what is seen of them")
    if page.on_releases is not None:
        _check_on_releases(kind, page, page.on_releases)


def _check_names(kind: str, field: str, names: Any) -> None:
    if type(names) is not tuple or not names or {type(name) for name in cast("tuple[Any, ...]", names)} != {str}:
        raise WrongPage(kind, f"{field} must be a tuple of names, such as ('theta',), not {names!r}")
    if len(set(cast("tuple[str, ...]", names))) < len(cast("tuple[str, ...]", names)):
        raise WrongPage(kind, f"{field} names something twice: {', '.join(cast('tuple[str, ...]', names))}")


def _check_on_releases(kind: str, page: Page, other: Any) -> None:
    """The page to play where releases spread."""
    check_parts(kind, other)
    if page.network != "gossip" or other.network != "gossip" or other.on_releases is not None:
        raise WrongPage(kind, "on_releases is for a page whose network is 'gossip', and is such a page without another")


def _check_field(kind: str, name: str, field: Any) -> None:
    if not isinstance(field, Field):
        raise WrongPage(kind, f"knows.{name} is {field!r}: write Count, Number or Flag, or a row such as Number[ARMS]")
    if name in ("n_max", "padding") or not name.isidentifier():
        raise WrongPage(kind, f"knows must not name {name!r}: the engine uses that name")
    for size in field.shape:
        if size != ARMS and (type(size) is not int or size < 1):
            raise WrongPage(kind, f"knows.{name} has a length of {size!r}: write ARMS or a whole number above 0")


def _check_function(kind: str, name: str, function: Any) -> None:
    wanted = ARGUMENTS[name]
    if function is None and name not in _NEEDED:
        return
    if not isinstance(function, FunctionType):
        words = "is missing" if function is None else f"is {function!r}"
        raise WrongPage(kind, f"{name} {words}: it must be a plain function {name}({', '.join(wanted)})")
    code = function.__code__
    given = code.co_varnames[: code.co_argcount]
    plain = not code.co_kwonlyargcount and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if len(given) != len(wanted) or not plain or function.__defaults__:
        raise WrongPage(
            kind,
            f"{name}({', '.join(given)}{'' if plain else ', ...'}) must take {len(wanted)} arguments without defaults: "
            f"{name}({', '.join(wanted)})",
        )


def check_terms(kind: str, page: Page, terms: Any) -> None:
    """Refuse terms that are not a NamedTuple of whole numbers and floats, or lack the scale of noise."""
    made = cast("type[Any]", type(terms))
    if made.__bases__ != (tuple,) or not hasattr(terms, "_fields"):
        raise WrongPage(kind, f"terms(setting) must return a NamedTuple of numbers, not {terms!r}")
    inside: dict[str, Any] = dict(vars(made))
    own = [name for name, value in inside.items() if callable(value) and not hasattr(Reached, name)]
    own += [name for name in terms._fields if type(inside[name]) is not type(vars(Reached)["digest"])]
    if own or "__getattribute__" in inside:
        raise WrongPage(kind, f"the terms compute {', '.join(own) or 'their fields'}: a NamedTuple of numbers has none")
    values: dict[str, Any] = terms._asdict()
    if not values:
        raise WrongPage(kind, "terms(setting) returns a NamedTuple without fields: give it at least one number")
    for name, value in values.items():
        if type(value) not in (int, float):
            hint = ": write int(...)" if isinstance(value, bool) else ""
            raise WrongPage(
                kind, f"terms.{name} must be an int or a float, not the {type(value).__name__} {value!r}{hint}"
            )
        if value != value:
            raise WrongPage(kind, f"terms.{name} is NaN")
        if type(value) is int and abs(value) >= 2**63:
            raise WrongPage(kind, f"terms.{name} is too large for a whole number: {value}")
    if page.noise_due is not None and type(values.get("noise_scale")) is not float:
        raise WrongPage(
            kind, "noise_due asks for noise, but the terms have no noise_scale (a float): what is its scale?"
        )


# ---------------------------------------------------------------- the code of its functions


def reached_by(kind: str, page: Page, home: str) -> Reached:
    """The own functions that a page reaches; a digest that changes with anything that they compute from."""
    functions: dict[FunctionType, str] = {}
    for name in ARGUMENTS:
        function = getattr(page, name)
        if function is not None:
            _collect(kind, name, function, home, functions, [])
    own = {function: digest_of(function) for function in functions}
    parts = [(name, getattr(page, name)) for name in ARGUMENTS]
    whole = [
        repr(list(page.knows.items())),
        repr((page.averaged, page.network, page.columns)),
        *(f"{name} {_named(function)} {own.get(function, '')}" for name, function in parts if function is not None),
    ]
    return Reached(functions, own, hashlib.sha256("\n".join(whole).encode()).hexdigest() if own else "")


def _collect(
    kind: str, name: str, function: FunctionType, home: str, found: dict[FunctionType, str], above: list[FunctionType]
) -> None:
    if function in above:
        raise WrongPage(kind, f"{name}: {function.__name__} calls itself: write a loop")
    if not is_own_code(function.__module__, home):
        return
    if function in found:
        return
    for used in _used(function):
        if isinstance(used, FunctionType):
            _collect(kind, name, used, home, found, [*above, function])
    found[function] = name


def _used(function: FunctionType) -> Iterator[Any]:
    """What a function takes from outside: global names, and attributes of modules."""
    for _, value in globals_of(function):
        if not isinstance(value, ModuleType):
            yield value


def _named(function: FunctionType) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def source_of(function: FunctionType) -> ast.FunctionDef | None:
    """The syntax tree of a function; None where there is no text, or where another code runs than its text says."""
    return _source_of(function.__code__)


@cache
def _source_of(code: CodeType) -> ast.FunctionDef | None:
    try:
        trees, codes = _functions_in("".join(inspect.findsource(code)[0]))
    except (OSError, SyntaxError):
        return None
    return trees.get((code.co_name, code.co_firstlineno)) if code in codes else None


@lru_cache(64)
def _functions_in(text: str) -> tuple[dict[tuple[str, int], ast.FunctionDef], set[CodeType]]:
    """The functions of a module by name and line, decorated ones left out, and their compiled code."""
    tree = ast.parse(text)
    waiting, codes = [compile(tree, "", "exec", dont_inherit=True)], set[CodeType]()
    while waiting:
        inner = [constant for constant in waiting.pop().co_consts if isinstance(constant, CodeType)]
        codes.update(inner)
        waiting += inner
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    return {(node.name, node.lineno): node for node in found}, codes


def named(function: FunctionType, node: ast.AST) -> tuple[str, Any]:
    """A global name, or an attribute of a module, as it is written, and its value; "" for anything else."""
    if isinstance(node, ast.Name):
        if node.id in function.__code__.co_varnames:
            return "", None
        return node.id, function.__globals__.get(node.id, builtin_of(function, node.id))
    if isinstance(node, ast.Attribute):
        name, value = named(function, node.value)
        if name and type(value) is ModuleType:
            return f"{name}.{node.attr}", vars(value).get(node.attr)
    return "", None


def check_code(kind: str, page: Page, terms: Any, reached: Reached) -> None:
    """Refuse code that cannot be compiled, or that keeps or reads anything but its arguments, math and the rules.

    Where there is no text, as of functions typed at a prompt, only a dry run tells.
    """
    for function, name in reached.functions.items():
        where = name if function is getattr(page, name) else f"{name}, in {function.__name__},"
        if function.__closure__:
            inner = ", ".join(function.__code__.co_freevars)
            raise WrongPage(
                kind, f"{where} closes over {inner}: put numbers into the terms, and functions at the top of the module"
            )
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if type(default) not in (int, float, bool):
                raise WrongPage(
                    kind, f"{where} has the default {default!r}, which keeps state between calls: use a field of KNOWS"
                )
        if (tree := source_of(function)) is not None:
            _check_syntax(kind, where, function, tree)
        for used, value in globals_of(function):
            _check_used(kind, where, function, used, value)
    for name, arguments in ARGUMENTS.items():
        function = getattr(page, name)
        if function in reached.functions and name != "meet" and (tree := source_of(function)) is not None:
            _check_attributes(kind, name, tree, arguments, page, terms)


def _check_syntax(kind: str, where: str, function: FunctionType, tree: ast.FunctionDef) -> None:
    body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    for node in (inner for statement in body for inner in ast.walk(statement)):
        fault = next((words for types, words in _REFUSED.items() if isinstance(node, types)), "")
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            fault = f"uses the text {node.value!r}: a page computes with numbers only"
        if isinstance(node, ast.Attribute) and isinstance(named(function, node.value)[1], FunctionType):
            fault = f"uses {ast.unparse(node)}, which keeps state between calls: use a field of KNOWS"
        if fault:
            raise WrongPage(kind, f"{where} {fault} (line {cast(Any, node).lineno})")


def _check_used(kind: str, where: str, function: FunctionType, name: str, value: Any) -> None:
    top = name.partition(".")[0]
    source = str(getattr(value, "__module__", None) or getattr(value, "__name__", None) or "")
    if type(value) in (int, float, bool) or value is math or any(value is it for it in vars(math).values()):
        return
    if type(value) is tuple and {type(x) for x in cast("tuple[Any, ...]", value)} <= {int, float}:
        return
    if isinstance(value, FunctionType):
        if source.startswith((f"{PACKAGE}.rules", f"{PACKAGE}.policies")):
            return
        if is_own_code(source, function.__module__):
            return
    if name in _BUILTINS and value is builtin_of(function, name) and name not in function.__globals__:
        return
    if value is None and top not in function.__globals__ and builtin_of(function, top) is None:
        near = closest(name, [*function.__globals__, *_BUILTINS])
        raise WrongPage(kind, f"{where} uses {name}, which its module does not define. {near}".rstrip())
    if isinstance(value, (list, dict, set, bytearray)):
        raise WrongPage(
            kind,
            f"{where} uses {name}, a {type(value).__name__} of its module, which can change between calls: "  # pyright: ignore[reportUnknownArgumentType]
            "what an agent knows stands in its fields (KNOWS), constants are numbers or tuples of numbers",
        )
    inner = source.partition(".")[0]
    hint = _RANDOM if "random" in name.split(".") else _HINTS.get(top) or _HINTS.get(inner)
    hint = (
        hint or "a page uses numbers, math, fedbandit.rules, fedbandit.policies and plain functions of its own module"
    )
    raise WrongPage(kind, f"{where} uses {name}: {hint}")


# ---------------------------------------------------------------- the names that it may read and write


def known_names(page: Page, terms: Any) -> dict[str, tuple[str, ...]]:
    """The attributes of a function's arguments."""
    return {
        "me": tuple(page.knows),
        "terms": tuple(terms._fields),
        "seen": (*page.averaged, "n_max"),
        "now": Now._fields,
        "draws": (),
        "others": Others._fields,
    }


def unknown_name(page: Page, terms: Any, argument: str, name: str) -> str:
    """What to say of a name that an argument does not have."""
    known = known_names(page, terms)
    if argument == "draws":
        return f"reads draws.{name}: write uniform(draws) or fill_with_normals(row, draws)"
    for other in ("me", "seen", "terms", "now"):
        if other != argument and name in known[other]:
            return f"reads {argument}.{name}, which is {other}.{name}"
    owners = {"me": "the page knows", "seen": "the network shows", "terms": "the terms are"}
    owner = owners.get(argument, f"{argument} has")
    return f"reads {argument}.{name}; {owner} {', '.join(known[argument])}. {closest(name, known[argument])}".rstrip()


def _check_attributes(
    kind: str, name: str, tree: ast.FunctionDef, arguments: tuple[str, ...], page: Page, terms: Any
) -> None:
    """Check attributes of arguments also in branches that a dry run does not take."""
    known = known_names(page, terms)
    roles = dict(zip((argument.arg for argument in tree.args.args), arguments, strict=True))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            roles.pop(node.id, None)  # the name may mean something else
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            argument = roles.get(node.value.id)
            if argument not in known:
                continue
            if not isinstance(node.ctx, ast.Load) and argument != "me":
                words = f"writes {argument}.{node.attr}: only what me holds may change"
                raise WrongPage(kind, f"{name} {words} (line {node.lineno})")
            if node.attr not in known[argument]:
                raise WrongPage(kind, f"{name} {unknown_name(page, terms, argument, node.attr)} (line {node.lineno})")
