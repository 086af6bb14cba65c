"""Reads an own page without running it: its parts, its functions' source, and whether it keeps the epsilon it claims.

What the compiler would refuse, or accept and run differently from plain Python, is refused here in words.

A private page, one of a policy with a finite epsilon, uses a reward and its noise only by handing them to a rule of
``rules.private``, in the first line of ``observe``. What the rule returns is public, and so is what follows from it. So
three things suffice:

* ``observe`` names reward and noise nowhere else, and noise is due as the rule says.
* No function of the page, nor any that it calls, touches the fields that belong to the rule. They have no other name:
  ``me`` is used by its fields alone, and calls go to plain functions, which are read likewise, to ``math``, and to the
  formulas of ``rules``.
* Noise is wide enough: levels times the width of the clamp, divided by the scale of noise, is at most epsilon.
"""

import ast
import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from math import inf, sqrt
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, NoReturn, cast, get_args

from fedbandit import rules
from fedbandit.checks import closest
from fedbandit.policies import protocol
from fedbandit.policies.fed_linear import RECORDS
from fedbandit.policies.protocol import (
    ARMS,
    FEATURES,
    LEVELS,
    STRATA,
    Context,
    Count,
    Field,
    Fields,
    Network,
    Now,
    Number,
    Page,
    Setting,
    page_on,
)
from fedbandit.policies.registry import PACKAGE, WrongPage, builtin_of, digest_of, globals_of, is_own_code
from fedbandit.rules import linear, private

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
    "take_back": ("me", "terms", "arm", "size", "row"),
    "estimate": ("me", "terms", "seen", "arm"),
    "radius": ("me", "terms", "seen", "now", "arm"),
    "margin": ("me", "terms", "seen", "now", "arm"),
    "unknown": ("me", "arm"),
    "chance": ("me", "terms", "seen", "now", "arm"),
    "meet": ("agents", "terms", "seen", "edges", "present"),
    "combine": ("terms", "rows", "versions"),
    "receive": ("me", "terms", "arm", "rows", "versions"),
}
"""The arguments of a page's functions."""

_IN_CONTEXT = ("decide", "noise_due", "observe", "estimate", "margin", "chance")
"""Those that have the context as their last argument, of a page that takes it."""


def needed_by(page: Page) -> tuple[str, ...]:
    """The functions that this page must have."""
    if page.records:
        return ("decide", "observe", "estimate", "receive")
    return ("decide", "observe", "published", "estimate")


def arguments_of(page: Page) -> dict[str, tuple[str, ...]]:
    """The arguments of the functions of this page."""
    last = () if page.context is None else ("context",)
    return {name: (*given, *last) if name in _IN_CONTEXT else given for name, given in ARGUMENTS.items()}


_SAME_EVERYWHERE = {"knows", "network", "on_releases"}
_NO_IO = "a page has no input or output"
_RANDOM = "a page has no randomness of its own: use uniform(draws) or fill_with_normals(row, draws) in decide"
_HINTS = {
    **dict.fromkeys(("print", "open", "input"), _NO_IO),
    **dict.fromkeys(("random", "secrets"), _RANDOM),
    **dict.fromkeys(("time", "datetime"), "a page has no clock: decide is told the time in now"),
    **dict.fromkeys(("numpy", "np"), "a page uses plain numbers and math"),
    **dict.fromkeys(("list", "dict", "set", "sorted", "tuple"), "it keeps what it knows in its fields (KNOWS)"),
}
_STATE = "which keeps state between calls: use a field of KNOWS"
_INSIDE = "defines a function (or a comprehension) inside: write it at the top of the module, or a loop"
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
    (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp): _INSIDE,
    (ast.Yield, ast.YieldFrom, ast.Await): "is a generator or asynchronous: it must return its value",
    (ast.Delete,): "deletes an entry: rows and fields are fixed",
    (ast.Slice,): "takes a slice: write a loop over entries",
}
_FOLLOWED = (
    *(ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Pass, ast.Break),
    *(ast.Continue, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.keyword, ast.Constant),
    *(ast.Attribute, ast.Subscript, ast.Name, ast.Tuple, ast.NamedExpr),
    *(ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop),
)
_PLAIN = (
    *(abs, bool, divmod, enumerate, float, int, len, max, min, pow, range, round, sum, zip),
    *(value for value in vars(math).values() if isinstance(value, BuiltinFunctionType)),
)


class Reached(NamedTuple):
    """The own functions that a page reaches, by the page's function that does, and a digest of their code."""

    functions: Mapping[FunctionType, str]
    digests: Mapping[FunctionType, str]
    digest: str


_GETTER = cast(Any, type(vars(Reached)["digest"]))  # of a field of a NamedTuple


# ---------------------------------------------------------------- the parts of a page


def check_parts(kind: str, page: Any) -> None:
    """Refuse a page whose fields, names or functions are not as ``protocol.Page`` says."""
    for fault in _faults_of(page):
        raise WrongPage(kind, fault)


def _faults_of(page: Any) -> Iterator[str]:
    if type(page) is not Page:
        yield f"page() must return a Page, not {page!r}"
    if type(page.knows) is not Fields:
        yield f"knows is a {type(page.knows).__name__}: write Fields(n=Count[ARMS], ...)"
    for name, field in page.knows.items():
        if type(field) is not Field:
            yield f"knows.{name} is {field!r}: write Count, Number or Flag, or a row such as Number[ARMS]"
        if name == "padding" or not name.isidentifier():
            yield f"knows must not name {name!r}: the engine uses that name"
        for size in field.shape:
            for length, context in ((STRATA, "strata"), (FEATURES, "features")):
                if size == length and page.context != context:
                    yield f"knows.{name} has a length of {length.upper()}, and the page has not context='{context}'"
            if size not in (ARMS, STRATA, FEATURES) and (type(size) is not int or size < 1):
                yield f"knows.{name} has a length of {size!r}: write ARMS, STRATA, FEATURES or a whole number above 0"
    for part, given in (("averaged", page.averaged), ("columns", page.published_names)):
        names = cast("tuple[str, ...]", given)
        if page.records and names == ():
            continue
        if not isinstance(given, tuple) or not names or {*map(type, names)} != {str}:
            yield f"{part} must be a tuple of names, such as ('theta',), not {given!r}"
        if len(set(names)) < len(names):
            yield f"{part} names something twice: {', '.join(names)}"
    for name in page.averaged:
        if name in page.knows:
            yield f"averaged and knows both name {name}: the agent's own number needs another name than the average"
        if not name.isidentifier() or name in ("n_max", "padding"):
            yield f"averaged must not name {name!r}: choose another name"
    networks = get_args(Network)
    if page.network not in networks:
        near = closest(str(page.network), networks)
        yield f"network must be one of {', '.join(networks)}, not {page.network!r}. {near}"
    if page.context not in (None, "strata", "features"):
        yield f"context must be 'strata', 'features' or left out, not {page.context!r}"
    for name, wanted in arguments_of(page).items():
        yield from _faults_of_function(name, wanted, getattr(page, name), name in needed_by(page))
    yield from _faults_of_records(page)
    if page.interval is not None and page.noise_due is None:
        yield "interval stands without noise_due, which says when noise is due"
    if page.reweigh is not None and page.believe is None:
        yield "reweigh stands without believe, which is called after it for every arm"
    if page.network == "server" and page.meet is None:
        yield "network is 'server', where only meet changes the averages, and meet is None"
    if page.columns and page.combine is None:
        yield "columns stand without combine, which makes what is seen of them"
    if page.on_releases is not None:
        other: Any = page.on_releases
        if type(other) is not dict or not set(cast("dict[Any, Any]", other)) <= {*Page._fields} - _SAME_EVERYWHERE:
            yield "on_releases must be a dict of other fields of the page, such as {'believe': believe}"
        if page.network != "gossip":
            yield f"on_releases is for a page whose network is 'gossip', not {page.network!r}"
        yield from _faults_of(page_on(page, "releases"))


def _faults_of_records(page: Page) -> Iterator[str]:
    for name in page.records:
        field = page.knows.get(name)
        if field is None or field.kind != "number" or field.shape[:1] != (ARMS,):
            yield f"records names {name}, which must be a row of knows with an entry for each arm, {name}=Number[ARMS]"
    if page.records and (page.published is not None or page.averaged or page.on_releases is not None):
        yield "records stand instead of published, averaged and on_releases: leave those out"
    if page.receive is not None and not page.records:
        yield "receive stands without records, of which it makes something"
    if page.records and page.network not in ("gossip", "alone", "pooled"):
        yield f"records are for networks 'gossip', 'alone' and 'pooled', not {page.network!r}"
    noise = page.knows.get("noise")
    if page.context == "features" and page.noise_due is not None and (noise is None or noise.kind != "number"):
        yield "noise_due asks for a row of noise, and knows has none: noise=Number[FEATURES], say"


def _faults_of_function(name: str, wanted: tuple[str, ...], function: Any, is_needed: bool) -> Iterator[str]:
    if function is None and not is_needed:
        return
    if not isinstance(function, FunctionType):
        words = "is missing" if function is None else f"is {function!r}"
        yield f"{name} {words}: it must be a plain function {name}({', '.join(wanted)})"
        return
    code = function.__code__
    given = code.co_varnames[: code.co_argcount]
    plain = not code.co_kwonlyargcount and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if len(given) != len(wanted) or not plain or function.__defaults__:
        yield (
            f"{name}({', '.join(given)}{'' if plain else ', ...'}) must take {len(wanted)} arguments without defaults: "
            f"{name}({', '.join(wanted)})"
        )


def check_terms(kind: str, page: Page, terms: Any) -> None:
    """Refuse terms that are not a NamedTuple of whole numbers and floats, or lack the scale of noise."""
    for fault in _faults_of_terms(page, terms):
        raise WrongPage(kind, fault)


def _faults_of_terms(page: Page, terms: Any) -> Iterator[str]:
    made = cast("type[Any]", type(terms))
    if made.__bases__ != (tuple,) or type(made) is not type or not hasattr(terms, "_fields"):
        yield f"terms(setting) must return a NamedTuple of numbers, not {terms!r}"
    own = [name for name, value in vars(made).items() if _is_defined(name, value)]
    entries = tuple(cast(Any, tuple).__iter__(terms))  # what engines take: in order, whatever the class says
    own += [name for name, value in zip(made._fields, entries, strict=False) if getattr(terms, name) is not value]
    if own or len(made._fields) != len(entries):
        yield f"the terms compute {', '.join(own) or 'their fields'}: a NamedTuple of numbers has none"
    values: dict[str, Any] = terms._asdict()
    if not values:
        yield "terms(setting) returns a NamedTuple without fields: give it at least one number"
    for name, value in values.items():
        if type(value) not in (int, float):
            hint = ": write int(...)" if isinstance(value, bool) else ""
            yield f"terms.{name} must be an int or a float, not the {type(value).__name__} {value!r}{hint}"
        if value != value:
            yield f"terms.{name} is NaN"
        if type(value) is int and abs(value) >= 2**63:
            yield f"terms.{name} is too large for a whole number: {value}"
    if page.noise_due is not None and type(values.get("noise_scale")) is not float:
        yield "noise_due asks for noise, but the terms have no noise_scale (a float): what is its scale?"


def _is_defined(name: str, value: Any) -> bool:
    """Whether a NamedTuple has something of its author's, beside its fields: a method, a property."""
    usual = vars(Reached).get(name)
    if not hasattr(value, "__get__") or isinstance(value, _GETTER) or name == "__new__":
        return False
    code, usual_code = (getattr(getattr(it, "__func__", it), "__code__", None) for it in (value, usual))
    return code is None or code != usual_code


# ---------------------------------------------------------------- the code of its functions


def reached_by(kind: str, page: Page, home: str) -> Reached:
    """The own functions that a page reaches; a digest that changes with anything that they compute from."""
    parts = {name: function for name in ARGUMENTS if (function := getattr(page, name)) is not None}
    functions: dict[FunctionType, str] = {}
    for name, function in parts.items():
        _collect(kind, name, function, home, functions, [])
    own = {function: digest_of(function) for function in functions}
    whole = [repr(list(page.knows.items())), repr(page._replace(**dict.fromkeys((*ARGUMENTS, "knows", "on_releases"))))]
    for name, it in parts.items():
        whole.append(f"{name} {it.__module__}:{it.__qualname__} {own.get(it, '')}")
    return Reached(functions, own, hashlib.sha256("\n".join(whole).encode()).hexdigest())


def _collect(
    kind: str, name: str, function: FunctionType, home: str, found: dict[FunctionType, str], above: list[FunctionType]
) -> None:
    if function in above:
        raise WrongPage(kind, f"{name}: {function.__name__} calls itself: write a loop")
    if function in found or not is_own_code(function.__module__, home):
        return
    for _, used in globals_of(function):
        if isinstance(used, FunctionType):
            _collect(kind, name, used, home, found, [*above, function])
    found[function] = name


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
    """The functions of a module by name and line, and their compiled code.

    Decorated ones are left out, and those in a class, where ``__x`` is another name than it says.
    """
    tree = ast.parse(text)
    waiting, codes = [compile(tree, "", "exec", dont_inherit=True)], set[CodeType]()
    while waiting:
        inner = [constant for constant in waiting.pop().co_consts if isinstance(constant, CodeType)]
        codes.update(inner)
        waiting += inner
    in_classes = {inner for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for inner in ast.walk(node)}
    plain = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and not node.decorator_list)
    found = [node for node in plain if node not in in_classes]
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


class _Refusal(Exception):
    def __init__(self, words: str, function: FunctionType, line: int) -> None:
        self.words, self.function, self.line = words, function, line


_COUNTS = ("n", "released")  # its rule alone writes them
_CELL_COUNTS = ("cells", "marks")  # also
_SECRET, _COUNT_ROW = "secret", "row of counts"
_WORDS = "size, noisy_sum = private.collect(me, terms, arm, reward, noise)"


class _Reading(NamedTuple):
    """What is known while a page is read: its names, and those of the rule if it claims an epsilon."""

    page: Page
    terms: Any
    known: Mapping[str, tuple[str, ...]]
    is_private: bool
    hidden: tuple[str, ...] = ("total", "totals", "slots")  # of a private page: its rule alone touches them


class _Function:
    """One function, and what its arguments are: ``me`` and the like, rows of counts, or a reward and its noise."""

    def __init__(self, function: FunctionType, roles: Mapping[str, str], reading: _Reading) -> None:
        self.function, self.roles, self.reading, self.is_private = function, roles, reading, reading.is_private
        self.calls: dict[tuple[FunctionType, tuple[tuple[str, str], ...]], ast.Call] = {}
        self.first: tuple[Any, ast.Call] | None = None
        self.inside: list[ast.AST] = []
        if function.__closure__:
            inner = ", ".join(function.__code__.co_freevars)
            self.refuse(
                None, f"closes over {inner}: put numbers into the terms, and functions at the top of the module"
            )
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            if type(default) not in (int, float, bool):
                self.refuse(None, f"has the default {default!r}, {_STATE}")
        if str(function.__module__).partition(".")[0] == PACKAGE and not _is_ours(function):
            self.refuse(None, f"says that it is of {function.__module__}, and is not")
        tree = source_of(function)
        if tree is None or type(function.__globals__) is not dict or type(function.__builtins__) is not dict:
            if self.is_private:
                words = "has no source that this check can read, or other code than its source"
                self.refuse(None, f"{words}: define it at the top of a module, without a decorator")
            return  # typed at a prompt: only a dry run tells
        if tree.args.posonlyargs or tree.args.kwonlyargs or tree.args.vararg or tree.args.kwarg:
            self.refuse(tree, "has arguments after a star or before a slash: name them plainly")
        self.arguments = [argument.arg for argument in tree.args.args]
        self.body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
        self.inside = [node for statement in self.body for node in (statement, *_below(statement))]
        self.above = {child: node for node in self.inside for child in ast.iter_child_nodes(node)}
        self.first = self._first_call() if _SECRET in roles.values() else None

    def refuse(self, node: Any, words: str) -> NoReturn:
        raise _Refusal(words, self.function, getattr(node, "lineno", self.function.__code__.co_firstlineno))

    def _first_call(self) -> tuple[Any, ast.Call]:
        """The call that takes the reward and its noise, and what it calls."""
        first: Any = self.body[0] if self.body else None
        call: Any = getattr(first, "value", None)
        is_call = isinstance(first, (ast.Assign, ast.Expr)) and isinstance(call, ast.Call) and not call.keywords
        given = [node.id if isinstance(node, ast.Name) else "" for node in call.args] if is_call else []
        target = named(self.function, call.func)[1] if is_call else None
        if given != self.arguments or not isinstance(target, FunctionType):
            self.refuse(first, f"must hand its reward and noise to a rule first, and use them nowhere else: {_WORDS}")
        return target, call

    def read(self) -> None:
        """Refuse what is not allowed; collect calls of functions that must be read as well."""
        for node in self.inside:
            fault = next((words for types, words in _REFUSED.items() if isinstance(node, types)), "")
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                fault = f"uses the text {node.value!r}: a page computes with numbers only"
            elif isinstance(node, ast.Constant) and type(node.value) not in (int, float, bool):
                fault = f"uses {node.value!r}: write numbers" if self.is_private else ""
            elif isinstance(node, ast.Tuple) and not node.elts:
                fault = "uses an empty tuple: write numbers"  # as an index it is another name for the row
            elif not fault and not isinstance(node, _FOLLOWED):
                fault = f"has syntax that this check does not follow ({type(node).__name__})"
            if fault:
                self.refuse(node, fault)
            if isinstance(node, ast.Call):
                self._check_call(node)
            elif isinstance(node, ast.Attribute):
                self._check_attribute(node)
            elif isinstance(node, ast.Name):
                self._check_name(node)

    def _check_call(self, node: ast.Call) -> None:
        name, target = named(self.function, node.func)
        if any(target is it for it in _PLAIN):
            return
        tree = source_of(target) if name and isinstance(target, FunctionType) else None
        if not name and isinstance(node.func, ast.Attribute):
            self.refuse(node, f"uses {ast.unparse(node.func)}: a row has a fixed length and its entries, nothing else")
        if tree is None and (self.is_private or not name):
            words = f"calls {ast.unparse(node.func)}, whose source this check cannot read: call plain functions"
            self.refuse(node, f"{words} at the top of a module, math, and fedbandit.rules")
        if tree is None:
            return
        if not isinstance(self.above.get(node), ast.Expr) and not any(map(_returns_something, ast.walk(tree))):
            self.refuse(node, f"uses what {name} returns, which is nothing")
        if self.first is not None and node is self.first[1]:
            return
        if target in RULES and self.is_private:
            self.refuse(node, f"calls {name} outside the first line of observe")
        given: list[tuple[str | None, ast.expr]] = [
            *zip((argument.arg for argument in tree.args.args), node.args, strict=False),
            *((keyword.arg, keyword.value) for keyword in node.keywords),
        ]
        if None in dict(given):
            self.refuse(node, "hands over arguments after two stars: name them plainly")
        roles = tuple((str(argument), role) for argument, it in given if (role := self._role(it)))
        is_ours = str(target.__module__).startswith(f"{PACKAGE}.")
        if (roles or not _is_formula(target)) if self.is_private else not is_ours:
            self.calls[target, roles] = node

    def _role(self, node: ast.expr) -> str:
        """What an expression is, if it is handed to a function as a whole."""
        if isinstance(node, ast.Name):
            return self.roles.get(node.id, "")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in _COUNTS:
            return _COUNT_ROW if self.roles.get(node.value.id) == "me" else ""
        return ""

    def _check_attribute(self, node: ast.Attribute) -> None:
        role = self.roles.get(node.value.id, "") if isinstance(node.value, ast.Name) else ""
        name, value = named(self.function, node)
        holds = node.attr in self.reading.hidden
        is_hidden = holds or (self.reading.page.context == "strata" and node.attr == "noise")
        if self.is_private and is_hidden and not name and role in ("", "me"):
            words = "which holds rewards that no noise hides yet" if holds else "which hides rewards"
            self.refuse(node, f"uses {ast.unparse(node)}, {words}")
        if role not in self.reading.known:
            if isinstance(named(self.function, node.value)[1], FunctionType):
                self.refuse(node, f"uses {ast.unparse(node)}, {_STATE}")
            if name and not node.attr.startswith("_"):
                self._check_global(node, name, value)
            elif self.is_private:
                self.refuse(node, f"uses {ast.unparse(node)}: read fields of me, terms and seen by their names")
            return
        if role != "me" and not isinstance(node.ctx, ast.Load):
            self.refuse(node, f"writes {ast.unparse(node)}: only what me holds may change")
        if node.attr not in self.reading.known[role] and role != "agents":
            self.refuse(node, unknown_name(self.reading.page, self.reading.terms, role, node.attr))
        if self.is_private and role == "me" and node.attr in _COUNTS:
            self._check_count_row(node)
        if self.is_private and role == "me" and node.attr in _CELL_COUNTS:
            self._check_cell(node)

    def _check_name(self, node: ast.Name) -> None:
        role, above = self.roles.get(node.id, ""), self.above.get(node)
        name, value = named(self.function, node)
        if name:
            self._check_global(node, name, value)
        if not role or not self.is_private or (self.first is not None and above is self.first[1]):
            return
        if not isinstance(node.ctx, ast.Load):
            self.refuse(node, f"gives {node.id} another meaning")
        if role == _SECRET:
            self.refuse(node, f"uses {node.id} outside the rule that it was handed to: {_WORDS}")
        if role == _COUNT_ROW:
            self._check_count_row(node)
        elif not isinstance(above, ast.Attribute) and not self._is_handed_on(node):
            self.refuse(node, f"uses {node.id} as a whole: read its fields by name, {node.id}.n[k]")

    def _check_count_row(self, node: ast.expr) -> None:
        """Counts of rewards are read by entries, or handed to a function that does."""
        above: Any = self.above.get(node)
        if isinstance(above, ast.Subscript) and above.value is node and isinstance(above.ctx, ast.Load):
            return
        is_all = isinstance(above, ast.Call) and [*above.args, *above.keywords] == [node]
        if is_all and named(self.function, cast(Any, above).func)[1] in (len, sum, min, max):
            return
        if not self._is_handed_on(node):
            name = ast.unparse(node)
            self.refuse(node, f"may change {name}: only the rule counts rewards. Read its entries, {name}[k]")

    def _check_cell(self, node: ast.expr) -> None:
        """Counts of cells are read by entries alone."""
        row: Any = self.above.get(node)
        cell: Any = self.above.get(row)
        for above, below in ((row, node), (cell, row)):
            if not (isinstance(above, ast.Subscript) and above.value is below and isinstance(above.ctx, ast.Load)):
                name = ast.unparse(node)
                self.refuse(node, f"may change {name}: only the rule counts rewards. Read its entries, {name}[k][s]")

    def _is_handed_on(self, node: ast.expr) -> bool:
        """Whether it is an argument of a function that is read with it."""
        above: Any = self.above.get(node)
        call: Any = self.above.get(above) if isinstance(above, ast.keyword) else above
        is_argument = isinstance(call, ast.Call) and node is not call.func
        return is_argument and isinstance(named(self.function, call.func)[1], FunctionType)

    def _check_global(self, node: ast.expr, name: str, value: Any) -> None:
        """A number, a tuple of numbers, or a function that is called: of Python, ours, or the author's own."""
        above, top = self.above.get(node), name.partition(".")[0]
        is_called = isinstance(above, ast.Call) and above.func is node
        if type(value) in (int, float, bool) or (isinstance(above, ast.Attribute) and type(value) is ModuleType):
            return
        if type(value) is tuple and value and {type(x) for x in cast("tuple[Any, ...]", value)} <= {int, float}:
            return
        if isinstance(value, FunctionType) and isinstance(above, ast.Attribute):
            return  # its attribute is refused
        it = cast(object, value)
        source = str(getattr(it, "__module__", None) or getattr(it, "__name__", None) or "")
        if is_called and (
            any(value is it for it in _PLAIN)
            or (isinstance(value, FunctionType) and source.startswith((f"{PACKAGE}.rules", f"{PACKAGE}.policies")))
            or (isinstance(value, FunctionType) and is_own_code(source, self.function.__module__))
        ):
            return
        if value is None and top not in self.function.__globals__ and builtin_of(self.function, top) is None:
            near = closest(name, [*self.function.__globals__, *(it.__name__ for it in _PLAIN)])
            self.refuse(node, f"uses {name}, which its module does not define. {near}".rstrip())
        if isinstance(value, (list, dict, set, bytearray)):
            kind = type(cast(object, value)).__name__
            self.refuse(
                node,
                f"uses {name}, a {kind} of its module, which can change between calls: what an agent knows stands in "
                "its fields (KNOWS), constants are numbers or tuples of numbers",
            )
        hint = _RANDOM if "random" in name.split(".") else _HINTS.get(top) or _HINTS.get(source.partition(".")[0])
        ours = "a page uses numbers, math, fedbandit.rules, fedbandit.policies and plain functions of its own module"
        self.refuse(node, f"uses {name}: {hint or ours}")


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """All that runs below a node: annotations do not."""
    for child in ast.iter_child_nodes(node):
        if child is not getattr(node, "annotation", None):
            yield child
            yield from _below(child)


def _is_formula(function: FunctionType) -> bool:
    """Whether a function is one of ``rules`` or of the protocol, which need not be read if they are given numbers."""
    name = str(function.__module__)
    return (name == protocol.__name__ or name.startswith(f"{rules.__name__}.")) and _is_ours(function)


def _is_ours(function: FunctionType) -> bool:
    """Whether a function is of the module that it names: its globals are, and its code is of that file."""
    module = sys.modules.get(str(function.__module__))
    is_inside = module is not None and function.__globals__ is vars(module)
    return is_inside and function.__code__.co_filename == getattr(module, "__file__", None)


def _returns_something(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and node.value is not None


def read_page(kind: str, page: Page, terms: Any, epsilon: float = inf) -> bool:
    """Refuse code that cannot be compiled, or that keeps or reads anything but its arguments, math and the rules.

    With a finite epsilon also a page that uses rewards otherwise than by a rule. Returns whether that rule is a tree.
    """
    part, used, claim = "observe", None, f" It claims epsilon={epsilon:g}" if epsilon < inf else ""
    known = {**known_names(page, terms), "agents": ()}
    reading = _Reading(page, terms, known, epsilon < inf)
    if reading.is_private:
        known["draws"] = ("u", "normals")  # protocol.uniform and the like
        _check_claim(kind, page, claim)
    try:
        if reading.is_private:
            used = _rule_of(page, reading)
            if used is private.collect_records:  # arms, and so counts of them, follow from what is protected
                reading = reading._replace(hidden=(*reading.hidden, "tried"))
            _check_rule(kind, page, terms, used, claim)
        for part, arguments in arguments_of(page).items():
            function: Any = getattr(page, part)
            if function is not None and part != "meet":
                names = function.__code__.co_varnames
                roles = {name: role for name, role in zip(names, arguments, strict=False) if role in known}
                is_secret = reading.is_private and part == "observe"
                _read_all(function, roles | (dict.fromkeys(names[3:5], _SECRET) if is_secret else {}), reading)
    except _Refusal as it:
        inside = "" if it.function is getattr(page, part) else f", in {it.function.__name__},"
        place = f"{Path(it.function.__code__.co_filename).name}, line {it.line}"
        raise WrongPage(kind, f"{part}{inside} {it.words} ({place}).{claim}".removesuffix(".")) from None
    return used is private.collect_in_tree


def _read_all(function: FunctionType, roles: Mapping[str, str], reading: _Reading) -> None:
    """Read a function and all that it calls, each with what it is given."""
    waiting, done = [(function, tuple(roles.items()))], set[Any]()
    while waiting:
        function, given = waiting.pop()
        if (function, given) in done or function in RULES:
            continue
        done.add((function, given))
        one = _Function(function, dict(given), reading)
        one.read()
        waiting += one.calls
        if one.first is not None:
            target: Any = one.first[0]
            handed = zip(target.__code__.co_varnames, (dict(given).get(it, "") for it in one.arguments), strict=False)
            waiting.append((target, tuple((name, role) for name, role in handed if role)))


# ---------------------------------------------------------------- a claim of epsilon


class Rule(NamedTuple):
    """A rule for private sums: when noise is due, what it hides, and the fields that it needs."""

    due: Callable[..., int]
    interval: Callable[..., tuple[int, int]] | None
    fields: Mapping[str, Field]


_TOTAL = {"n": Count[ARMS], "total": Number[ARMS]}
RULES: dict[Any, Rule] = {
    private.collect: Rule(
        private.batch_due, private.batch_interval, {**_TOTAL, "released": Count[ARMS], "batch_end": Count[ARMS]}
    ),
    private.collect_row: Rule(
        private.row_due,
        private.batch_interval,
        {"n": Count[ARMS], "total": Number[ARMS, FEATURES], "released": Count[ARMS], "batch_end": Count[ARMS]},
    ),
    private.collect_in_cells: Rule(
        private.cells_due,
        None,
        {
            "n": Count[ARMS],
            "released": Count[ARMS],
            "cells": Count[ARMS, STRATA],
            "marks": Count[ARMS, STRATA],
            "totals": Number[ARMS, STRATA],
        },
    ),
    private.collect_records: Rule(
        private.records_due,
        private.records_interval,
        {
            "total": Number[ARMS, FEATURES],
            "slots": Number[ARMS, FEATURES, FEATURES],
            "decisions": Count,
            "decided": Count,
            "batch_end": Count,
            "gram_noise": Number[ARMS, FEATURES, FEATURES].transient,
        },
    ),
    private.collect_in_tree: Rule(private.tree_due, private.tree_interval, {**_TOTAL, "slots": Number[ARMS, LEVELS]}),
}


def _check_claim(kind: str, page: Page, claim: str) -> None:
    if page.noise_due is None:
        raise WrongPage(kind, f"asks for no noise: the page has no noise_due.{claim}")
    if page.interval is None and page.context != "strata":
        raise WrongPage(kind, f"the page has no interval: nobody can tell which rewards noise hides.{claim}")
    if page.meet is not None:
        raise WrongPage(kind, f"the page has meet, which sees what all agents know.{claim}")


_LENGTHS = {ARMS: "ARMS", STRATA: "STRATA", FEATURES: "FEATURES"}


def _check_rule(kind: str, page: Page, terms: Any, used: Any, claim: str) -> None:
    """Refuse a page that asks for noise otherwise than its rule, or lacks what the rule needs."""
    rule, name = RULES[used], f"private.{used.__name__}"
    if not all(_is_ours(it) for it in (used, rule.due, rule.interval) if it is not None):
        raise WrongPage(kind, f"{name} has other code than that of fedbandit.{claim}")
    for part, wanted in (("noise_due", rule.due), ("interval", rule.interval)):
        if getattr(page, part) is not wanted:
            right = "left out" if wanted is None else f"private.{wanted.__name__}"
            raise WrongPage(kind, f"{part} must be {right}, since observe uses {name}.{claim}")
    for field, wanted in rule.fields.items():
        if page.knows.get(field) != wanted:
            shape = ", ".join(_LENGTHS.get(str(size), "LEVELS") for size in wanted.shape)
            words = f"{name} needs {field}={wanted.kind.capitalize()}[{shape}] in knows, and not transient"
            raise WrongPage(kind, f"{words}.{claim}")
    if (page.context == "strata") != (used is private.collect_in_cells):
        raise WrongPage(kind, f"{name} is {'not ' if page.context == 'strata' else ''}for pages with strata.{claim}")
    if used is private.collect_records and page != RECORDS:  # another one may keep features, and publish them
        raise WrongPage(kind, f"{name} is for FedLinear alone, whose page is proved: use private.collect_row.{claim}")
    if any(type(getattr(terms, bound, None)) is not float for bound in ("low", "high")):
        raise WrongPage(kind, f"the terms need low and high, floats: rewards are clamped to them.{claim}")


def _rule_of(page: Page, reading: _Reading) -> Any:
    """The rule to which ``observe`` hands its reward, at once or by another function."""
    function: Any = page.observe
    while function not in RULES:
        names = (*ARGUMENTS["observe"][:3], _SECRET, _SECRET, *(() if page.context is None else ("context",)))
        roles = zip(function.__code__.co_varnames, names, strict=False)
        first = _Function(function, dict(roles), reading).first
        function = None if first is None else first[0]
    return function


def check_cost_of_rows(kind: str, page: Page, terms: Any, epsilon: float, setting: Setting) -> None:
    """The same of ``private.collect_row``, which scales rewards to a width of 1 and features to a norm of 1."""
    if page.noise == "gaussian":
        deviation = terms.noise_scale / linear.RECORD
        found = linear.gaussian_delta(epsilon, deviation) if deviation > 0.0 else 1.0
        if not found <= terms.delta * (1.0 + 1e-9):
            raise WrongPage(
                kind, f"claims delta={terms.delta:g} at epsilon={epsilon:g}, but its noise needs {found:.4g}"
            )
        return
    moved = {"spherical": 1.0, "laplace": sqrt(max(setting.num_features, 1))}.get(page.noise, inf)
    cost = moved / terms.noise_scale if terms.noise_scale > 0.0 else inf
    if not cost <= epsilon * (1.0 + 1e-9):
        raise WrongPage(
            kind,
            f"claims epsilon={epsilon:g}, but spends {cost:.4g} on a reward: it moves a sum of features by up to "
            f"{moved:.4g}, and the {page.noise} noise has scale {terms.noise_scale:.4g}",
        )


def check_cost(kind: str, has_tree: bool, terms: Any, epsilon: float, setting: Setting) -> None:
    """Refuse noise that is too narrow for the range to which rewards are clamped."""
    max_pulls: int | None = getattr(terms, "max_pulls", None)
    if has_tree and type(max_pulls) is not int:
        raise WrongPage(kind, "adds noise by a tree, and the terms have no max_pulls, an int: how deep does it become?")
    levels = max(max_pulls or 0, setting.horizon + 1).bit_length() if has_tree else 1
    per_release: float = getattr(terms, "epsilon_per_release", 0.0)  # a live site draws noise for it and the range
    live = (setting.high - setting.low) / per_release if per_release > 0.0 else inf
    scale, low, high = min(terms.noise_scale, live), terms.low, terms.high
    cost = levels * (high - low) / scale if scale > 0.0 else inf
    if not cost <= epsilon * (1.0 + 1e-9):
        spends = f"{levels} releases that hold it" if levels > 1 else "a reward"
        raise WrongPage(
            kind,
            f"claims epsilon={epsilon:g}, but spends {cost:.4g} on {spends}: rewards are clamped to {low:g} to "
            f"{high:g}, and the noise has scale {scale:.4g}",
        )


# ---------------------------------------------------------------- the names that it may read and write


def known_names(page: Page, terms: Any) -> dict[str, tuple[str, ...]]:
    """The attributes of a function's arguments."""
    return {
        "me": tuple(page.knows),
        "terms": tuple(terms._fields),
        "seen": (*page.averaged, "n_max"),
        "now": Now._fields,
        "draws": (),
        "context": Context._fields,
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
