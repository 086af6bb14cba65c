"""Checks from its source that a page keeps the epsilon it claims, or says at which line it does not.

A private page uses a reward and its noise only by handing them to a rule of ``rules.private``, in the first line of
``observe``. What the rule returns is public, and so is all that follows from it. So three things suffice:

* ``observe`` names reward and noise nowhere else, and noise is due as the rule says.
* No function of the page, nor any that it calls, touches the fields that belong to the rule. They have no other name:
  ``me`` is used by its fields alone, and calls go to plain functions, which are read likewise, to ``math``, and to the
  formulas of ``rules``.
* Noise is wide enough: levels times the width of the clamp, divided by the scale of noise, is at most epsilon.
"""

import ast
import math
import sys
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple, NoReturn, cast

from fedbandit import rules
from fedbandit.policies import protocol
from fedbandit.policies.protocol import ARMS, LEVELS, Count, Field, Number, Page, Setting
from fedbandit.policies.registry import WrongPage
from fedbandit.rules import private
from fedbandit.testing.page_code import ARGUMENTS, known_names, named, source_of


class Rule(NamedTuple):
    """A rule for private sums: when noise is due, what it hides, and the fields that it needs."""

    due: Callable[..., int]
    interval: Callable[..., tuple[int, int]]
    fields: Mapping[str, Field]


_TOTAL = {"n": Count[ARMS], "total": Number[ARMS]}
_RULES: dict[Any, Rule] = {
    private.collect: Rule(
        private.batch_due, private.batch_interval, {**_TOTAL, "released": Count[ARMS], "batch_end": Count[ARMS]}
    ),
    private.collect_in_tree: Rule(private.tree_due, private.tree_interval, {**_TOTAL, "slots": Number[ARMS, LEVELS]}),
}
_HIDDEN = ("total", "slots")
_COUNTS = ("n", "released")  # read by the page, and never written
_SECRET, _COUNT_ROW = "secret", "row of counts"
_WORDS = "size, noisy_sum = private.collect(me, terms, arm, reward, noise)"
_PLAIN = (
    *(abs, bool, divmod, enumerate, float, int, len, max, min, pow, range, round, sum, zip),
    *(value for value in vars(math).values() if isinstance(value, BuiltinFunctionType)),
)
_NODES = (
    *(ast.Return, ast.Assign, ast.AugAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Pass, ast.Break),
    *(ast.Continue, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.keyword, ast.Constant),
    *(ast.Attribute, ast.Subscript, ast.Name, ast.Tuple, ast.NamedExpr),
    *(ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop),
)


def _is_formula(function: FunctionType) -> bool:
    """Whether a function is one of ``rules`` or of the protocol, which need not be read if they are given numbers."""
    module = sys.modules.get(str(function.__module__))
    is_ours = module is protocol or str(function.__module__).startswith(f"{rules.__name__}.")
    return is_ours and module is not None and function.__globals__ is vars(module)


def _returns_something(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and node.value is not None


class _Refusal(Exception):
    def __init__(self, words: str, function: FunctionType, line: int) -> None:
        self.words, self.function, self.line = words, function, line


class _Function:
    """One function, and what its arguments are: ``me`` and the like, rows of counts, or a reward and its noise."""

    def __init__(self, function: FunctionType, roles: Mapping[str, str], known: Mapping[str, tuple[str, ...]]) -> None:
        self.function, self.roles, self.known = function, roles, known
        self.calls: dict[tuple[FunctionType, tuple[tuple[str, str], ...]], ast.Call] = {}
        tree = source_of(function)
        if tree is None or type(function.__globals__) is not dict or type(function.__builtins__) is not dict:
            self.refuse(None, "has no source that this check can read, or other code than its source")
        if tree.args.posonlyargs or tree.args.kwonlyargs or tree.args.vararg or tree.args.kwarg:
            self.refuse(tree, "has arguments after a star or before a slash: name them plainly")
        self.arguments = [argument.arg for argument in tree.args.args]
        self.body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
        inside = [node for statement in self.body for node in ast.walk(statement)]
        self.above = {child: node for node in inside for child in ast.iter_child_nodes(node)}
        self.inside, self.first = inside, self._first_call() if _SECRET in roles.values() else None

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
            if not isinstance(node, _NODES):
                self.refuse(node, f"has syntax that this check does not follow ({type(node).__name__})")
            if isinstance(node, ast.Constant) and type(node.value) not in (int, float, bool):
                self.refuse(node, f"uses {node.value!r}: write numbers")
            if isinstance(node, ast.Tuple) and not node.elts:
                self.refuse(node, "uses an empty tuple: write numbers")  # as an index it is another name for the row
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
        if tree is None:
            words = f"calls {ast.unparse(node.func)}, whose source this check cannot read: call plain functions"
            self.refuse(node, f"{words} at the top of a module, math, and fedbandit.rules")
        if not isinstance(self.above.get(node), ast.Expr) and not any(map(_returns_something, ast.walk(tree))):
            self.refuse(node, f"uses what {name} returns, which is nothing")
        if self.first is not None and node is self.first[1]:
            return
        if target in _RULES:
            self.refuse(node, f"calls {name} outside the first line of observe")
        given: list[tuple[str | None, ast.expr]] = [
            *zip((argument.arg for argument in tree.args.args), node.args, strict=False),
            *((keyword.arg, keyword.value) for keyword in node.keywords),
        ]
        roles = tuple((str(argument), role) for argument, it in given if (role := self._role(it)))
        if None in dict(given):
            self.refuse(node, "hands over arguments after two stars: name them plainly")
        if roles or not _is_formula(target):
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
        if node.attr in _HIDDEN and not named(self.function, node)[0]:
            self.refuse(node, f"uses {ast.unparse(node)}, which holds rewards that no noise hides yet")
        if role not in self.known:
            name, value = named(self.function, node)
            if not name or node.attr.startswith("_"):
                self.refuse(node, f"uses {ast.unparse(node)}: read fields of me, terms and seen by their names")
            self._check_global(node, name, value)
            return
        if node.attr not in self.known[role]:
            self.refuse(node, f"uses {ast.unparse(node)}: {role} has {', '.join(self.known[role])}")
        if role == "me" and node.attr in _COUNTS:
            self._check_count_row(node)
        elif role != "me" and not isinstance(node.ctx, ast.Load):
            self.refuse(node, f"writes {ast.unparse(node)}: only what me holds may change")

    def _check_name(self, node: ast.Name) -> None:
        role, above = self.roles.get(node.id, ""), self.above.get(node)
        if not role:
            name, value = named(self.function, node)
            if name:
                self._check_global(node, name, value)
            return
        if not isinstance(node.ctx, ast.Load):
            self.refuse(node, f"gives {node.id} another meaning")
        if self.first is not None and above is self.first[1]:
            return
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
        if isinstance(above, ast.Call) and len(above.args) == 1 and named(self.function, above.func)[1] in (len, sum):
            return
        if not self._is_handed_on(node):
            name = ast.unparse(node)
            self.refuse(node, f"may change {name}: only the rule counts rewards. Read its entries, {name}[k]")

    def _is_handed_on(self, node: ast.expr) -> bool:
        """Whether it is an argument of a function that is read with it."""
        above: Any = self.above.get(node)
        call: Any = self.above.get(above) if isinstance(above, ast.keyword) else above
        is_argument = isinstance(call, ast.Call) and node is not call.func
        return is_argument and isinstance(named(self.function, call.func)[1], FunctionType)

    def _check_global(self, node: ast.expr, name: str, value: Any) -> None:
        above = self.above.get(node)
        is_called = isinstance(above, ast.Call) and above.func is node
        if is_called or isinstance(above, ast.Attribute) or type(value) in (int, float, bool):
            return
        if type(value) is not tuple or not value or {type(x) for x in cast("tuple[Any, ...]", value)} - {int, float}:
            self.refuse(node, f"uses {name}, which is no number")


def check_private_page(kind: str, page: Page, terms: Any, epsilon: float) -> bool:
    """Refuse a page that uses rewards otherwise than by a rule; whether it has a tree."""
    claim, part = f"claims epsilon={epsilon:g}", "observe"
    if page.noise_due is None or page.interval is None:
        what = "asks for no noise: the page has no noise_due"
        words = "but the page has no interval: nobody can tell which rewards noise hides"
        raise WrongPage(kind, f"{claim} and {what}" if page.noise_due is None else f"{claim}, {words}")
    if page.meet is not None:
        raise WrongPage(kind, f"{claim}, but the page has meet, which sees what all agents know")
    known = {**known_names(page, terms), "draws": ("u", "normals")}  # protocol.uniform and the like
    try:
        used = _rule_of(page, known)
        _check_rule(kind, page, terms, used, f"It {claim}")
        for part, arguments in ARGUMENTS.items():
            function: Any = getattr(page, part)
            if function is not None:
                names = function.__code__.co_varnames
                roles = {name: role for name, role in zip(names, arguments, strict=False) if role in known}
                secret = dict.fromkeys(names[3:5], _SECRET) if part == "observe" else {}
                _read_all(function, roles | secret, known)
    except _Refusal as it:
        inside = "" if it.function is getattr(page, part) else f", in {it.function.__name__},"
        place = f"{Path(it.function.__code__.co_filename).name}, line {it.line}"
        raise WrongPage(kind, f"{part}{inside} {it.words} ({place}). It {claim}") from None
    return used is private.collect_in_tree


def _check_rule(kind: str, page: Page, terms: Any, used: Any, claim: str) -> None:
    """Refuse a page that asks for noise otherwise than its rule, or lacks what the rule needs."""
    rule, name = _RULES[used], f"private.{used.__name__}"
    for part, wanted in (("noise_due", rule.due), ("interval", rule.interval)):
        if getattr(page, part) is not wanted:
            raise WrongPage(kind, f"{part} must be private.{wanted.__name__}, since observe uses {name}. {claim}")
    for field, wanted in rule.fields.items():
        if page.knows.get(field) != wanted:
            shape = ", ".join("ARMS" if size == ARMS else "LEVELS" for size in wanted.shape)
            words = f"{name} needs {field}={wanted.kind.capitalize()}[{shape}] in knows, and not transient"
            raise WrongPage(kind, f"{words}. {claim}")
    if any(type(getattr(terms, bound, None)) is not float for bound in ("low", "high")):
        raise WrongPage(kind, f"the terms need low and high, floats: rewards are clamped to them. {claim}")


def _rule_of(page: Page, known: Mapping[str, tuple[str, ...]]) -> Any:
    """The rule to which ``observe`` hands its reward, at once or by another function."""
    function: Any = page.observe
    while function not in _RULES:
        names = function.__code__.co_varnames
        reading = _Function(
            function, dict(zip(names, (*ARGUMENTS["observe"][:3], _SECRET, _SECRET), strict=False)), known
        )
        function = reading.first[0] if reading.first else None
    return function


def _read_all(function: FunctionType, roles: Mapping[str, str], known: Mapping[str, tuple[str, ...]]) -> None:
    """Read a function and all that it calls, each with what it is given."""
    waiting, done = [(function, tuple(roles.items()))], set[Any]()
    while waiting:
        function, given = waiting.pop()
        if (function, given) in done or function in _RULES:
            continue
        done.add((function, given))
        reading = _Function(function, dict(given), known)
        reading.read()
        waiting += reading.calls
        if reading.first is not None:
            target: Any = reading.first[0]
            handed = dict(
                zip(target.__code__.co_varnames, (dict(given).get(it, "") for it in reading.arguments), strict=False)
            )
            waiting.append((target, tuple((name, role) for name, role in handed.items() if role)))


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
