"""Proves from its source that a page keeps the epsilon it claims, or says at which line the proof fails.

Rewards enter a page through ``observe`` alone. Every path through that function is followed with stand-ins for numbers:
public ones, a reward, a sum of clamped rewards, noise. A reward may be clamped, and added to a sum that stands in a row
of ``me`` under its arm; a sum may be released by adding the noise that was drawn for it. Whatever else is done with
them is refused: so nothing else depends on a reward, neither numbers nor counts nor which line runs next. Then:

* Each reward lies in one release: on every path, a sum that is released is no longer kept, and no reward is in two
  sums. In a tree (``rules.mean.pull_tree_add``) it lies in one release of each level.
* A release has fresh noise: wherever ``observe`` adds it, ``noise_due`` has asked for it, under the number of the
  reward, which no other draw has.
* No other function of the page reads or writes a sum of rewards.
* Noise is wide enough: levels times the width of the clamp, divided by the scale of noise, is at most epsilon.

A number that the page computes from releases is public, whatever it is (post-processing). Unknown calls, loops that
touch rewards and code without its source are refused: the proof covers all inputs, arms and rounds, or fails.
"""

import ast
import itertools
import operator
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, NamedTuple, NoReturn, cast

from fedbandit.policies.protocol import ARMS, Field, Page, Setting
from fedbandit.policies.registry import WrongPage
from fedbandit.rules import mean
from fedbandit.testing.page_code import ARGUMENTS, named, source_of

__all__ = ["Flow", "check_cost", "check_flow"]

MOST_PATHS = 500
MOST = 2**31  # a Count is below it in compiled code, where whole numbers wrap around and floats round
MOST_TIMES = 2**10
VERSION = "'"  # after a field, how often it has been written: at first 0 times
_NUMBERS = itertools.count()
TREE, LEVEL = mean.pull_tree_add, mean.trailing_zeros
RULES = Path(mean.__file__).parent
_PURE = {abs, bool, divmod, enumerate, float, int, len, max, min, pow, range, round, sum, tuple, zip}
_CLAMP = "min(max(reward, terms.low), terms.high), or rules.mean.clamp"
_SYMBOLS: dict[Any, str] = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"},
    **{ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="},
    **{ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"},
}


# ---------------------------------------------------------------- what stands for a number


class Public(NamedTuple):
    """A public number: a combination of names with whole coefficients, so that equal whole numbers look equal.

    ``is_whole``: compiled code computes it as Python does, without rounding or wrapping around: it is small.
    """

    parts: tuple[tuple[str, int], ...]
    constant: int | float = 0
    is_whole: bool = True

    def __str__(self) -> str:
        if self.parts and len(self.parts) == 1 and self.parts[0][1] == 1 and self.constant == 0:
            return self.parts[0][0]
        return " + ".join([*(f"{c} {name}" for name, c in self.parts), repr(self.constant)])


class Reward(NamedTuple):
    """A reward, or what was computed from it, not clamped at both ends yet."""

    low: Public | None = None
    high: Public | None = None
    may_be_nan: bool = False


class Sum(NamedTuple):
    """A sum of clamped rewards: what a row held before, and this reward.

    Nothing else: a large number would round rewards, and one of them could move the sum by more than its range.
    """

    parts: frozenset[str]


class Noise(NamedTuple):
    """The draw of this reward's interval; ``in_tree``: of all intervals that make the prefix."""

    in_tree: bool = False


class Place(NamedTuple):
    """A row of ``me``, or a part of it."""

    field: str
    at: tuple[str, ...] = ()


class Argument(NamedTuple):
    """What a function is given whole: ``me`` or ``terms``."""

    name: str


class Condition(NamedTuple):
    """Whether a whole number is 0 or below 0, or what a text says."""

    kind: str  # zero, below, text
    number: Public
    text: str = ""
    holds: bool = True


Clamp = tuple[Public, Public]
ARM = Public((("arm", 1),), 0, False)  # it is unsigned in compiled code: arm - 1 may be huge


def _named(text: str, is_whole: bool = False) -> Public:
    return Public(((text, 1),), 0, is_whole)


def _constant(value: Any) -> Public:
    return Public((), value, isinstance(value, int) and abs(value) < MOST)


def _result(target: Any, arguments: Sequence[str]) -> Public:
    """What a function of numbers returns: the same for the same arguments."""
    line = target.__code__.co_firstlineno if isinstance(target, FunctionType) else ""  # a name may be defined twice
    return _named(f"{target.__module__}.{target.__qualname__}{line}({', '.join(arguments)})")


def _combined(a: Public, b: Public, factor: int = 1) -> Public:
    """A + factor * b, both whole."""
    parts = Counter(dict(a.parts))
    for name, coefficient in b.parts:
        parts[name] += factor * coefficient
    found = tuple(sorted((n, c) for n, c in parts.items() if c))
    constant = a.constant + factor * b.constant
    if len(found) > 16 or any(abs(x) > MOST_TIMES for _, x in found) or abs(constant) >= MOST:
        return _named(f"({a} + {factor} ({b}))")
    return Public(found, constant)


def _computed(symbol: str, a: Public, b: Public) -> Public:
    whole = a.is_whole and b.is_whole
    exact = all(not x.parts and (x.is_whole or type(x.constant) is float) for x in (a, b))
    if exact and symbol in "+-*":
        return _constant({"+": operator.add, "-": operator.sub, "*": operator.mul}[symbol](a.constant, b.constant))
    if whole and symbol in "+-":
        return _combined(a, b, 1 if symbol == "+" else -1)
    if whole and symbol == "*" and not (a.parts and b.parts):
        return _combined(_constant(0), *((a, b.constant) if a.parts else (b, a.constant)))  # pyright: ignore[reportArgumentType]
    return _named(f"({a} {symbol} {b})")


def _condition(symbol: str, a: Public, b: Public) -> Condition:
    number = _combined(a, b, -1)
    if not (a.is_whole and b.is_whole and number.is_whole):
        return Condition("text", _constant(0), f"{a} {symbol} {b}")
    if symbol in ("==", "!="):
        if number.parts and number.parts[0][1] < 0:
            number = _combined(_constant(0), number, -1)
        return Condition("zero", number, holds=symbol == "==")
    first, second = (a, b) if symbol in ("<", "<=") else (b, a)
    return Condition("below", _combined(_combined(first, second, -1), _constant(1 if "=" in symbol else 0), -1))


def _negated(it: Condition) -> Condition:
    if it.kind == "below":  # n >= 0: -n - 1 < 0
        return it._replace(number=_combined(_constant(-1), it.number, -1))
    return it._replace(holds=not it.holds)


def _contradict(a: Condition, b: Condition) -> bool:
    """Whether two conditions cannot both hold; False: nobody knows."""
    if a.kind == b.kind != "below" and (a.number, a.text) == (b.number, b.text):
        return a.holds != b.holds
    if a.kind == b.kind == "below":
        both = _combined(a.number, b.number)
        return not both.parts and both.constant > -2
    if {a.kind, b.kind} == {"zero", "below"}:
        zero, below = (a, b) if a.kind == "zero" else (b, a)
        sides = [_combined(below.number, zero.number, sign) for sign in (1, -1)]
        return zero.holds and any(not side.parts and side.constant >= 0 for side in sides)
    return False


# ---------------------------------------------------------------- code, without following numbers


def _is_plain(target: Any) -> bool:
    """Python's own functions of numbers, and errors."""
    if isinstance(target, type) and issubclass(target, Exception):
        return True
    return target in _PURE or (isinstance(target, BuiltinFunctionType) and target.__module__ == "math")


def _is_simple(arguments: ast.arguments) -> bool:
    return not (arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg)


def _only_reads(target: Any, call: ast.Call, dimensions: int) -> bool:
    """Whether a function neither writes nor returns a row that it is given: Python's own, and formulas of ours.

    ``enumerate`` and the like return rows of rows, and ``max`` of two rows is one of them.
    """
    if not isinstance(target, FunctionType) or Path(target.__code__.co_filename).parent != RULES:
        return _is_plain(target) and dimensions == 1 and (target not in (min, max) or len(call.args) == 1)
    nodes = ast.walk(source_of(target) or ast.parse("x[0] = 0"))
    return not any(isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) for node in nodes)


class Mention(NamedTuple):
    """A field that code names: it reads it, may write it, or asks for its length."""

    field: str
    how: str  # read, write, length
    node: ast.expr


def _mentions(knows: Mapping[str, Field], function: FunctionType, node: ast.AST) -> Iterator[Mention]:
    """Fields below a node. A name counts whatever it is an attribute of, but for modules: an alias changes nothing."""
    children: list[ast.AST] = list(node.body if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node))
    is_view = isinstance(node, ast.Slice) or (isinstance(node, ast.Constant) and node.value in (None, ...))
    if isinstance(node, ast.Match) or (is_view and Path(function.__code__.co_filename).parent != RULES):
        what = "match" if isinstance(node, ast.Match) else "a slice, None or ..."
        raise _Refusal(f"uses {what}: read and write entries of rows, me.n[k]", function, node)
    if isinstance(node, ast.Call):
        target = named(function, node.func)[1]
        for given in node.args:
            for mention in _mentions(knows, function, given):
                if mention.node is given and isinstance(given, ast.Attribute) and target is len:
                    mention = mention._replace(how="length")
                elif mention.node is given and mention.how == "write":  # a row
                    dimensions = len(knows[mention.field].shape) - sum(
                        isinstance(it, ast.Subscript) for it in ast.walk(given)
                    )
                    mention = mention._replace(how="read" if _only_reads(target, node, dimensions) else "write")
                yield mention
        children = [node.func, *(keyword.value for keyword in node.keywords)]
    elif isinstance(node, (ast.Subscript, ast.Attribute)):
        inner: ast.expr = node
        indices: list[ast.AST] = []
        while isinstance(inner, ast.Subscript):
            indices.append(inner.slice)
            inner = inner.value
        if isinstance(inner, ast.Attribute) and not named(function, inner)[0]:
            if inner.attr.startswith("_"):
                raise _Refusal(f"uses {ast.unparse(inner)}", function, node)
            if inner.attr in knows:
                is_read = isinstance(node.ctx, ast.Load) and len(indices) >= len(knows[inner.attr].shape)
                yield Mention(inner.attr, "read" if is_read else "write", node)
                children = [*indices, inner.value]
    for child in children:
        yield from _mentions(knows, function, child)


def _check_whole(function: FunctionType, node: ast.AST, whole: set[str]) -> None:
    """Refuse code that takes ``me`` or ``seen`` apart otherwise than by fields; ``whole``: names that may mean it."""
    inside = list(ast.walk(node))
    copies = [it for it in inside if isinstance(it, ast.Assign) and isinstance(it.value, ast.Name)]
    for _, it in itertools.product(copies, copies):  # copies of copies
        if cast(ast.Name, it.value).id in whole:
            whole = whole | {target.id for target in it.targets if isinstance(target, ast.Name)}
    fine = {it.value for it in inside if isinstance(it, ast.Attribute)}
    fine |= {it.value for it in copies if all(isinstance(target, ast.Name) for target in it.targets)}
    for call in (it for it in inside if isinstance(it, ast.Call)):
        target = named(function, call.func)[1]
        tree = source_of(target) if isinstance(target, FunctionType) else None
        if tree is not None and _is_simple(tree.args):
            given = dict(zip((argument.arg for argument in tree.args.args), call.args, strict=False))
            given |= {str(keyword.arg): keyword.value for keyword in call.keywords}
            handed = {name: it for name, it in given.items() if isinstance(it, ast.Name) and it.id in whole}
            fine |= set(handed.values())
            if handed:
                _check_whole(cast(FunctionType, target), tree, set(handed))
    for it in inside:
        if isinstance(it, ast.Name) and it.id in whole and isinstance(it.ctx, ast.Load) and it not in fine:
            raise _Refusal(f"uses {it.id} as a whole: read its fields by name, {it.id}.n[k]", function, it)


def _reached(function: FunctionType, node: ast.AST) -> dict[FunctionType, ast.FunctionDef]:
    """The functions that the code below a node calls, directly or not, with their source."""
    found: dict[FunctionType, ast.FunctionDef] = {}
    waiting: list[tuple[FunctionType, ast.AST]] = [(function, node)]
    while waiting:
        here, code = waiting.pop()
        unused = {inner.value for inner in ast.walk(code) if isinstance(inner, ast.Expr)}
        for call in (inner for inner in ast.walk(code) if isinstance(inner, ast.Call)):
            target = named(here, call.func)[1]
            if not isinstance(target, FunctionType):
                target = getattr(target, "__wrapped__", target)  # functools.lru_cache
            if _is_plain(target):
                continue
            tree = source_of(target) if isinstance(target, FunctionType) else None
            if tree is None:
                words = f"calls {ast.unparse(call.func)}, whose source this check cannot read: call plain functions"
                raise _Refusal(f"{words} at the top of a module, math, and fedbandit.rules", here, call)
            if call not in unused and not any(isinstance(it, ast.Return) and it.value for it in ast.walk(tree)):
                raise _Refusal(f"uses what {ast.unparse(call.func)} returns, which is nothing", here, call)
            if target in found:
                continue
            found[target] = tree
            if Path(target.__code__.co_filename).parent != RULES:  # formulas know no fields
                waiting.append((target, tree))
    return found


# ---------------------------------------------------------------- one path through a function


class _Refusal(Exception):
    """Words, and where."""

    def __init__(self, words: str, function: FunctionType, node: ast.AST | None = None) -> None:
        self.words, self.function = words, function
        self.line: int = getattr(node, "lineno", function.__code__.co_firstlineno)
        super().__init__(words)


class _HoldsRewards(Exception):
    """The field that holds rewards: begin again, knowing that."""


class _Path:
    """One run of a function on stand-ins; ``script`` says which way to go at the first branches."""

    def __init__(self, proof: "_Proof", script: Sequence[bool]) -> None:
        self.page, self.terms, self.secret, self.slots = proof.page, proof.terms, proof.secret, proof.slots
        self.loose, self.escaped = proof.loose, set[str]()
        self.script, self.taken, self.conditions = script, list[bool](), list[Condition]()
        self.held: dict[tuple[str, tuple[str, ...]], Any] = {}
        self.versions: Counter[str] = Counter()
        self.released: tuple[frozenset[str], Any] | None = None
        self.noise_at: Any = None
        self.tree, self.tree_count = "", _constant(0)
        self.clamps: list[Clamp] = []
        self.frames: list[tuple[FunctionType, dict[str, Any]]] = []

    def refuse(self, node: ast.AST, words: str) -> NoReturn:
        raise _Refusal(words, self.frames[-1][0], node)

    def fresh(self, is_whole: bool = False) -> Public:
        """A number of which nothing is known, like no other of any path."""
        return _named(f"?{next(_NUMBERS)}", is_whole)

    # ------------------------------------------------------------ branches

    def goes(self, it: Condition) -> bool:
        """Whether the path goes where the condition holds."""
        if it.kind != "text" and not it.number.parts:
            return (it.number.constant == 0) == it.holds if it.kind == "zero" else it.number.constant < 0
        if any(_contradict(it, known) for known in self.conditions):
            return False
        if any(_contradict(_negated(it), known) for known in self.conditions):
            return True
        way = self.script[len(self.taken)] if len(self.taken) < len(self.script) else True
        self.taken.append(way)
        self.conditions.append(it if way else _negated(it))
        return way

    def truth(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BoolOp):
            ends = isinstance(node.op, ast.Or)
            return ends if any(self.truth(value) == ends for value in node.values) else not ends
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return not self.truth(node.operand)
        if isinstance(node, ast.Compare):
            left = self.value(node.left)
            for op, comparator in zip(node.ops, node.comparators, strict=True):
                right = self.value(comparator)
                if not self.goes(self.compared(node, left, op, right)):
                    return False
                left = right
            return True
        value = self.value(node)
        if isinstance(value, Condition):
            return self.goes(value)
        if not isinstance(value, Public):
            self.refuse(node, f"decides by {_words(value)}: which line runs next would tell about rewards")
        return self.goes(_condition("!=", value, _constant(0)))

    def compared(self, node: ast.expr, left: Any, op: ast.cmpop, right: Any) -> Condition:
        a, b = _plain(left), _plain(right)
        if not isinstance(a, Public) or not isinstance(b, Public):
            secret = right if isinstance(a, Public) else left
            hint = f". To clamp it, write {_CLAMP}" if isinstance(secret, Reward) else ""
            if isinstance(secret, Noise):
                hint = ". Test what noise_due tests: due = noise_due(me, terms, arm) > 0, before counting"
            self.refuse(node, f"compares {_words(secret)}: the outcome would tell about it{hint}")
        if type(op) not in _SYMBOLS:
            self.refuse(node, "compares otherwise than by == != < <= > >=")
        return _condition(_SYMBOLS[type(op)], a, b)

    # ------------------------------------------------------------ statements

    def call(self, function: FunctionType, given: Sequence[Any], by_name: dict[str, Any], node: ast.AST) -> Any:
        """What a function returns."""
        tree = source_of(function)
        if tree is None:
            self.refuse(node, f"calls {function.__name__}, whose source is not there, or not what runs")
        names = [argument.arg for argument in tree.args.args]
        defaults = function.__defaults__ or ()
        frame: dict[str, Any] = dict(zip(names[len(names) - len(defaults) :], map(_constant, defaults), strict=True))
        frame |= dict(zip(names, given, strict=False)) | by_name
        if len(self.frames) > 20 or set(frame) != set(names) or not _is_simple(tree.args):
            self.refuse(node, f"calls {function.__name__} in a way that this check cannot follow")
        self.frames.append((function, frame))
        returned = self.block(tree.body)
        self.frames.pop()
        return () if returned is None else returned[0]

    def block(self, body: Sequence[ast.stmt]) -> tuple[Any] | None:
        """Run statements; what they return, if they do."""
        for node in body:
            if isinstance(node, ast.Return):
                return (() if node.value is None else self.value(node.value),)
            if isinstance(node, ast.If):
                if (returned := self.block(node.body if self.truth(node.test) else node.orelse)) is not None:
                    return returned
            elif isinstance(node, ast.Assign):
                value = self.value(node.value)
                for target in node.targets:
                    self.assign(target, value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                self.assign(node.target, self.value(node.value))
            elif isinstance(node, ast.AugAssign):
                if any(isinstance(inner, ast.Call) for inner in ast.walk(node.target)):
                    self.refuse(node, "calls a function inside what it adds to: call it on a line of its own")
                before = self.value(cast(Any, node.target))
                self.assign(node.target, self.binary(node, before, node.op, self.value(node.value)))
            elif isinstance(node, (ast.For, ast.While)):
                self.loop(node)
            elif isinstance(node, ast.Expr):
                if isinstance(node.value, ast.Call):
                    self.called(node.value, node)
                elif not isinstance(node.value, ast.Constant):
                    self.value(node.value)
            elif not isinstance(node, (ast.Pass, ast.AnnAssign)):
                self.refuse(node, "has a statement that this check cannot follow: write assignments, if and calls")
        return None

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.frames[-1][1][target.id] = value
        elif isinstance(target, ast.Tuple):
            several = cast("Sequence[Any]", value if type(value) is tuple else [self.fresh() for _ in target.elts])
            if not isinstance(value, (tuple, Public)) or len(several) != len(target.elts):
                self.refuse(target, f"takes {_words(value)} apart")
            for each, part in zip(target.elts, several, strict=True):
                self.assign(each, part)
        else:
            place = self.place(target)
            if not isinstance(place, Place):
                self.refuse(target, f"writes {ast.unparse(target)}: only what me holds may change")
            self.store(target, place, _plain(value))

    def store(self, node: ast.expr, place: Place, value: Any) -> None:
        field, shape = place.field, self.page.knows[place.field].shape
        text = ast.unparse(node)
        if field in self.slots or isinstance(value, Noise):
            self.refuse(node, f"keeps noise in {text}: whoever knows it can take it off again")
        if isinstance(value, Reward):
            self.refuse(node, f"keeps a reward in {text} that is not clamped: write {_CLAMP}")
        if field in self.secret or isinstance(value, Sum):
            if place.at != ("arm",) or shape != (ARMS,) or self.page.knows[field].kind != "number":
                self.refuse(node, f"keeps rewards in {text}: their sum stands in a row Number[ARMS], under [arm]")
            if isinstance(value, Public) and not _is_zero(value):
                self.refuse(node, f"sets {text} to another number than 0, where it sums up rewards")
        elif not isinstance(value, Public):
            self.refuse(node, f"keeps {_words(value)} in {text}")
        kept = self.stored(place, value)
        for key in [key for key in self.held if key[0] == field and key[1] != place.at]:
            del self.held[key]  # it may be the same entry
        self.versions[field] += 1
        if field not in self.escaped:
            self.held[field, place.at] = kept

    def stored(self, place: Place, value: Any) -> Any:
        """What a field holds after a number was written: a Count wraps around, a Number rounds, a Flag is 0 or 1.

        A Count that only observe writes, by steps of 1 and constants, stays small.
        """
        kind = self.page.knows[place.field].kind
        if isinstance(value, Sum) or _is_zero(value):
            return value
        if kind != "count":
            return self.fresh()
        is_step = value.parts == ((self.text(place, 0), 1),) and abs(value.constant) <= 1
        if not (value.is_whole and (is_step or (not value.parts and abs(value.constant) <= MOST // 2))):
            self.loose.add(place.field)
        return self.fresh(True) if place.field in self.loose else value

    def text(self, place: Place, version: int) -> str:
        return f"me.{place.field}{''.join(f'[{index}]' for index in place.at)}{VERSION}{version}"

    def loop(self, node: ast.For | ast.While) -> None:
        """A loop may compute with public numbers; of what it writes nothing is known afterwards."""
        function, frame = self.frames[-1]
        forgotten: set[str] = set()
        for inner in ast.walk(node):
            if isinstance(inner, ast.Return):
                self.refuse(inner, "returns from inside a loop: write the loop as a function of its own")
            value = frame.get(inner.id) if isinstance(inner, ast.Name) else None
            rows = {value.field} if isinstance(value, Place) else set[str]()
            if rows & (self.secret | self.slots) or not isinstance(
                value, (Public, Place, Condition, Argument, NoneType)
            ):
                self.refuse(inner, f"uses {_words(value)} inside a loop: compute with rewards outside of it")
            forgotten |= rows
        _check_whole(function, node, {name for name, value in frame.items() if value == Argument("me")})
        reached = [(function, cast(ast.AST, node)), *_reached(function, node).items()]
        for here, code in reached:
            for mention in _mentions(self.page.knows, here, code):
                if mention.field in self.secret | self.slots and mention.how != "length":
                    self.refuse(mention.node, f"uses me.{mention.field} inside a loop: compute with rewards outside it")
                if mention.how == "write":
                    forgotten.add(mention.field)
        for field in forgotten:
            self.forget(field)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                frame[inner.id] = self.fresh()

    def forget(self, field: str) -> None:
        """A field that other names may now mean: of what it holds from here on nothing is known."""
        self.loose.add(field)
        self.escaped.add(field)
        self.versions[field] += 1
        for key in [key for key in self.held if key[0] == field]:
            del self.held[key]

    # ------------------------------------------------------------ values

    def place(self, node: ast.expr) -> Any:
        """A row or an entry of ``me``, or the value of anything else."""
        if isinstance(node, ast.Attribute):
            base = None if named(self.frames[-1][0], node)[0] else self.place(node.value)
            if base == Argument("me"):
                if node.attr not in self.page.knows:
                    self.refuse(node, f"uses me.{node.attr}")
                return Place(node.attr)
            if base == Argument("terms"):
                return _named(f"terms.{node.attr}", isinstance(getattr(self.terms, node.attr, None), int))
        if isinstance(node, ast.Subscript):
            base, index = self.place(node.value), self.value(node.slice)
            if type(base) is tuple and isinstance(index, Public) and not index.parts:
                return cast(Any, base)[int(index.constant)]
            if not isinstance(index, Public):
                self.refuse(node, f"uses {_words(index)} as an index")
            if isinstance(base, Place):
                return Place(base.field, (*base.at, str(index)))
            self.refuse(node, f"takes an entry of {_words(base)}")
        return self.value(node) if not isinstance(node, ast.Attribute) else self.constant(node)

    def constant(self, node: ast.expr) -> Any:
        name, value = named(self.frames[-1][0], node)
        if type(value) in (int, float, bool):
            return _constant(value)
        if isinstance(value, tuple) and all(type(x) in (int, float) for x in cast("tuple[Any, ...]", value)):
            return tuple(_constant(x) for x in cast("tuple[Any, ...]", value))
        return self.refuse(node, f"uses {name or ast.unparse(node)}, which is no number")

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            frame = self.frames[-1][1]
            return frame[node.id] if node.id in frame else self.constant(node)
        if isinstance(node, ast.Constant):
            return _constant(node.value) if isinstance(node.value, (int, float)) else ()
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            place = self.place(node)
            if isinstance(place, Place) and len(place.at) == len(self.page.knows[place.field].shape):
                return self.entry(node, place)
            return place
        if isinstance(node, ast.BinOp):
            return self.binary(node, self.value(node.left), node.op, self.value(node.right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self.compared(node, self.value(node.left), node.ops[0], self.value(node.comparators[0]))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            sign = _constant(-1 if isinstance(node.op, ast.USub) else 1)
            return self.binary(node, sign, ast.Mult(), self.value(node.operand))
        if isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            return _constant(int(self.truth(node)))
        if isinstance(node, ast.BoolOp) and all(isinstance(part, (ast.Compare, ast.BoolOp)) for part in node.values):
            return _constant(int(self.truth(node)))
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self.truth(node.test) else node.orelse)
        if isinstance(node, ast.Tuple):
            return tuple(self.value(part) for part in node.elts)
        if isinstance(node, ast.Call):
            return self.called(node)
        return self.refuse(node, f"has {ast.unparse(node)}, which this check cannot follow: write it plainer")

    def entry(self, node: ast.expr, place: Place) -> Any:
        if (place.field, place.at) in self.held:
            return self.held[place.field, place.at]
        if place.field in self.slots:
            self.refuse(node, f"reads me.{place.field}, which holds noise")
        if place.field in self.secret:
            if place.at != ("arm",):
                self.refuse(node, f"reads {ast.unparse(node)}: rewards of an arm stand under [arm]")
            return Sum(frozenset((place.field,)))
        if place.field in self.escaped:
            return self.fresh()
        text = self.text(place, self.versions[place.field])
        return _named(text, self.page.knows[place.field].kind == "count")

    def binary(self, node: ast.AST, left: Any, op: ast.operator, right: Any) -> Any:
        """The rules of arithmetic: what becomes of two stand-ins."""
        a, b, symbol = _plain(left), _plain(right), _SYMBOLS.get(type(op), "@")
        if isinstance(a, Public) and isinstance(b, Public):
            return _computed(symbol, a, b)
        pair: set[Any] = {type(a), type(b)}
        if pair <= {Reward, Public} and (symbol in "+-*" or (symbol == "/" and isinstance(b, Public))):
            return Reward(may_be_nan=True)  # any function of one reward that cannot fail: a clamp follows
        if pair == {Sum, Public} and symbol == "+":
            row = str(a if isinstance(a, Public) else b).partition(f"[arm]{VERSION}")
            if row[2] == "0" and row[0].startswith("me."):
                raise _HoldsRewards(row[0][len("me.") :])
            if _is_zero(a) or _is_zero(b):
                return a if isinstance(a, Sum) else b
        if pair == {Sum} and symbol == "+":
            if a.parts & b.parts:
                self.refuse(node, "adds the same rewards twice to a sum")
            return Sum(a.parts | b.parts)
        if symbol == "+" and (pair == {Sum, Noise} or pair == {Public, Noise}):
            rewards, noise = (b, a) if isinstance(a, Noise) else (a, b)
            return self.release(node, rewards.parts if isinstance(rewards, Sum) else frozenset(), noise)
        if Noise in pair:
            other = "an unclamped reward" if Reward in pair else "anything but the sum of rewards that it hides"
            self.refuse(node, f"computes {symbol} with noise and {other}: write sum + noise, once, and go on with that")
        if Sum in pair or Reward in pair:
            what = _words(a if isinstance(a, (Sum, Reward)) else b)
            hint = "rewards are only summed, under [arm]. Write sum + noise first, and compute with that"
            self.refuse(node, f"computes {symbol} with {what}: {f'clamp it, {_CLAMP}' if Reward in pair else hint}")
        return self.refuse(node, f"computes with {_words(b if isinstance(a, Public) else a)}")

    def release(self, node: ast.AST, rewards: frozenset[str], noise: Noise) -> Public:
        if self.released is not None or (not noise.in_tree and self.noise_at is not None):
            self.refuse(node, "uses the same noise a second time: the difference of the two shows rewards")
        self.released = rewards, (self.frames[-1][0], node)
        self.noise_at = self.released[1]
        return self.fresh()

    def called(self, node: ast.Call, statement: ast.Expr | None = None) -> Any:
        name, target = named(self.frames[-1][0], node.func)
        if any(isinstance(given, ast.Starred) for given in node.args) or any(k.arg is None for k in node.keywords):
            self.refuse(node, f"calls {ast.unparse(node.func)} with a star: name its arguments")
        given = [_plain(self.value(part)) for part in node.args]
        by_name = {str(keyword.arg): _plain(self.value(keyword.value)) for keyword in node.keywords}
        everything = [*given, *by_name.values()]
        if target is TREE:
            return self.add_to_tree(node, given)
        if target is len and len(given) == 1 and isinstance(given[0], Place):
            return _named(f"len(me.{given[0].field})", is_whole=True)
        if target in (min, max) and any(isinstance(x, Reward) for x in given) and not by_name:
            return self.clamped(node, target, given)
        rows = [x for x in everything if isinstance(x, Place)]
        for row in rows:
            if row.field in self.secret | self.slots:
                self.refuse(node, f"hands the row me.{row.field} to {name}: it holds rewards that no noise hides yet")
        secrets = [x for x in everything if not isinstance(x, (Public, Place))]
        if secrets and isinstance(target, FunctionType):
            return self.call(target, given, by_name, node)
        if secrets:
            self.refuse(node, f"hands {_words(secrets[0])} to {ast.unparse(node.func)}: only clamp and sum rewards")
        _reached(self.frames[-1][0], statement or node)  # refuses what cannot be read
        for row in rows:
            if not _only_reads(target, node, len(self.page.knows[row.field].shape) - len(row.at)):
                self.forget(row.field)
        if rows:
            return self.fresh()
        numbers = cast("list[Public]", everything)
        if target is int and len(numbers) == 1 and numbers[0].is_whole:
            return numbers[0]
        texts = [*map(str, given), *(f"{key}={x}" for key, x in sorted(by_name.items()))]
        return _result(target, texts)

    def clamped(self, node: ast.Call, target: Any, given: Sequence[Any]) -> Any:
        """One end of a clamp; with both ends it is a number of bounded sensitivity."""
        bounds = [x for x in given if isinstance(x, Public)]
        rewards = [x for x in given if isinstance(x, Reward)]
        if len(given) != 2 or len(bounds) != 1:
            self.refuse(node, f"takes {target.__name__} of a reward and something else: clamp it, {_CLAMP}")
        text = str(bounds[0])
        if bounds[0].parts and not (text.startswith("terms.") and text[len("terms.") :].isidentifier()):
            self.refuse(
                node,
                f"clamps to {_shown(bounds[0])}: the bounds are numbers of the terms, fixed before the first reward",
            )
        if rewards[0].may_be_nan and isinstance(given[0], Reward):
            words = f"computes with a reward, which may give NaN, and {target.__name__} with the reward first keeps NaN"
            self.refuse(node, f"{words}: put the bound first, min(high, max(low, x))")
        it = rewards[0]._replace(**{"low" if target is max else "high": bounds[0], "may_be_nan": False})
        if it.low is None or it.high is None:
            return it
        self.clamps.append((it.low, it.high))
        return Sum(frozenset(("reward",)))

    def add_to_tree(self, node: ast.Call, given: Sequence[Any]) -> Noise:
        """The noise of all intervals that make the prefix (``rules.mean.pull_tree_add``)."""
        row, count, noise = given if len(given) == 3 else (None, None, None)
        if not isinstance(row, Place) or row.at != ("arm",) or not isinstance(noise, Noise) or noise.in_tree:
            self.refuse(node, "calls pull_tree_add otherwise than pull_tree_add(me.slots[arm], me.n[arm], noise)")
        if self.noise_at is not None:
            self.refuse(node, "uses the same noise a second time")
        self.noise_at, self.tree, self.tree_count = (self.frames[-1][0], node), row.field, count
        return Noise(in_tree=True)


def _is_zero(value: Any) -> bool:
    return isinstance(value, Public) and not value.parts and value.constant == 0


def _shown(number: Public) -> str:
    """As the page wrote it, without versions."""
    return re.sub(rf"{VERSION}\d+", "", str(number))


def _plain(value: Any) -> Any:
    """A condition as a number, 0 or 1."""
    return _named(f"[{' '.join(map(str, value))}]") if isinstance(value, Condition) else value


def _words(value: Any) -> str:
    if isinstance(value, (Reward, Sum)):
        return "a reward" if isinstance(value, Reward) else "rewards that no noise hides yet"
    if isinstance(value, Noise):
        return "noise"
    if isinstance(value, Place):
        return f"the row me.{value.field}"
    return value.name if isinstance(value, Argument) else "something that is no number"


# ---------------------------------------------------------------- the proof


class _Proof:
    def __init__(self, page: Page, terms: Any) -> None:
        self.page, self.terms, self.secret, self.slots = page, terms, set[str](), set[str]()
        self.loose = set[str]()  # fields that may hold any number
        self.name = "observe"

    def paths(self, name: str, *given: Any) -> Iterator[tuple[_Path, Any]]:
        """Every path through a function of the page, and what it returns there."""
        function = self.function(name)
        waiting: list[list[bool]] = [[]]
        for _ in range(MOST_PATHS):
            if not waiting:
                return
            path = _Path(self, waiting.pop())
            path.frames.append((function, {}))
            returned = path.call(function, [Argument("me"), Argument("terms"), *given], {}, ast.Pass())
            yield path, _plain(returned)
            waiting += [[*path.taken[:i], not path.taken[i]] for i in range(len(path.script), len(path.taken))]
        raise _Refusal("has too many branches for this check", function)

    def observed(self) -> list[_Path]:
        """All paths through ``observe``, once it is known which rows hold rewards."""
        while True:
            known = len(self.secret) + len(self.slots) + len(self.loose)
            try:
                found = [path for path, _ in self.paths("observe", ARM, Reward(), Noise())]
            except _HoldsRewards as found_out:
                self.secret.add(str(found_out))
                continue
            for path in found:
                self.secret |= {field for (field, _), value in path.held.items() if isinstance(value, Sum)}
                self.slots |= {path.tree} - {""}
            if len(self.secret) + len(self.slots) + len(self.loose) == known:
                return found

    def check(self) -> list[Clamp]:
        """Refuse the page, or return the ranges to which it clamps rewards."""
        self.loose |= self.check_others(set())
        self.name = "observe"
        paths = self.observed()
        trees = {path.tree for path in paths}
        touched = self.check_others(self.secret | self.slots)
        self.name = "observe"
        if trees == {""}:
            self.check_releases(paths)
        else:
            self.check_tree(paths, trees)
        counters = {
            field
            for field, kind in self.page.knows.items()
            if (kind.kind, kind.shape, kind.is_kept) == ("count", (ARMS,), True) and field not in touched
            if all(path.held.get((field, ("arm",))) == self.after(field) for path in paths)
        }
        self.check_noise_due(paths, counters)
        self.check_interval("" not in trees)
        return [clamp for path in paths for clamp in path.clamps]

    def function(self, name: str) -> FunctionType:
        self.name = name
        return getattr(self.page, name)

    def after(self, field: str) -> Public:
        """A count that has grown by 1."""
        return _combined(_named(f"me.{field}[arm]{VERSION}0", True), _constant(1))

    def check_others(self, hidden: set[str]) -> set[str]:
        """Refuse a function that reads or writes rewards; the fields that functions other than ``observe`` write."""
        written: set[str] = set()
        for name in ARGUMENTS:
            entry = getattr(self.page, name)
            if entry is None or name == "observe":
                continue
            self.name = name
            tree = source_of(entry)
            if tree is None:
                raise _Refusal("has no source that this check can read, or other code than its source", entry)
            if not _is_simple(tree.args):
                raise _Refusal("has arguments after a star or before a slash: name them plainly", entry)
            roles = zip(tree.args.args, ARGUMENTS[name], strict=True)
            _check_whole(entry, tree, {it.arg for it, role in roles if role in ("me", "seen")})  # one record, compiled
            for function, code in {entry: tree, **_reached(entry, tree)}.items():
                for mention in _mentions(self.page.knows, function, code):
                    if mention.field in hidden and mention.how != "length":
                        does = "reads" if mention.how == "read" else "uses"
                        words = f"{does} me.{mention.field}, which holds rewards that no noise hides yet"
                        raise _Refusal(words, function, mention.node)
                    if mention.how == "write":
                        written.add(mention.field)
                        if name in ("noise_due", "interval"):
                            raise _Refusal(f"may change me.{mention.field}: it only answers", function, mention.node)
        return written

    def kept(self, path: _Path) -> dict[str, frozenset[str]]:
        """What each sum holds at the end of a path."""
        held = {field: path.held.get((field, ("arm",)), Sum(frozenset((field,)))) for field in sorted(self.secret)}
        return {field: it.parts if isinstance(it, Sum) else frozenset() for field, it in held.items()}

    def check_releases(self, paths: Sequence[_Path]) -> None:
        """Each reward in one release: nothing is in two sums, and what is released is not kept."""
        for path in paths:
            twice = Counter(part for parts in self.kept(path).values() for part in parts).most_common(1)
            if twice and twice[0][1] > 1:
                first, second, *_ = [field for field, parts in self.kept(path).items() if twice[0][0] in parts]
                words = f"adds one reward to two sums, me.{first} and me.{second}: each would need its own noise"
                raise _Refusal(words, self.function("observe"))
        for path in paths:
            for field, parts in self.kept(path).items():
                if path.released is not None and parts & path.released[0]:
                    words = f"releases rewards that me.{field} still holds afterwards: they would be released again"
                    raise _Refusal(f"{words}. Write me.{field}[arm] = 0 after the release", *path.released[1])

    def check_tree(self, paths: Sequence[_Path], trees: set[str]) -> None:
        """Each reward in one release of each level: one sum that is never set back, and noise for every reward."""
        here = next(path.noise_at for path in paths if path.noise_at is not None)
        if len(trees) > 1 or len(self.secret) != 1:
            words = "adds noise to its tree in some branches only, or has several sums or trees"
            raise _Refusal(f"{words}: one sum, one tree, at every reward", *here)
        (slots,), (total,) = trees, self.secret
        for field in (slots, total):
            if not self.page.knows[field].is_kept:
                raise _Refusal(f"needs me.{field} after a restart: it must not be transient", *here)
        for path in paths:
            if total not in self.kept(path)[total]:
                raise _Refusal(f"sets me.{total} back: a tree needs the sum of all rewards", *here)
            if path.released is not None and path.released[0] != self.kept(path)[total]:
                raise _Refusal(f"releases another sum than me.{total}[arm] holds afterwards", *path.released[1])

    def check_noise_due(self, paths: Sequence[_Path], counters: set[str]) -> None:
        """Fresh noise, wherever ``observe`` adds it."""
        due = list(self.paths("noise_due", ARM))
        for asked, end in due:
            if not isinstance(end, Public):
                raise _Refusal("asks for two draws: this check follows pages with one", self.function("noise_due"))
            equal = [it.number for it in asked.conditions if it.kind == "zero" and it.holds]
            equal += [_combined(_constant(0), number, -1) for number in equal] + [_constant(0)]
            gaps = [_combined(end, self.after(field), -1) for field in counters] if end.is_whole else []
            if end != _constant(0) and not any(gap in equal for gap in gaps):
                n = f"me.{min(counters, default='n')}[arm]"
                words = f"returns {_shown(end)}: return 0, or the number of the next reward, "
                words += f"{n} + 1, where observe adds 1 to {n} on every path and nothing else writes it. Noise is "
                raise _Refusal(words + "drawn once for each number", self.function("noise_due"))
        self.name = "observe"
        none = [asked.conditions for asked, end in due if end == _constant(0)]
        for path in (path for path in paths if path.noise_at is not None):
            if not all(any(_contradict(a, b) for a in path.conditions for b in conditions) for conditions in none):
                words = "adds noise where noise_due may have asked for none, and noise is 0 then: ask before counting, "
                raise _Refusal(words + "due = noise_due(me, terms, arm) > 0, and test due", *path.noise_at)
            if path.tree and path.tree_count not in [self.after(field) for field in counters]:
                raise _Refusal("hands pull_tree_add another number than that of the reward", *path.noise_at)

    def check_interval(self, has_tree: bool) -> None:
        """Intervals as the tree needs them; without one, all of one level."""
        end = _named("end", True)
        first = _computed("+", _computed("&", end, _computed("-", end, _constant(1))), _constant(1))
        tree = first, _result(LEVEL, ["end"])
        for _, found in self.paths("interval", ARM, end):
            if has_tree and found != tree:
                words = "must return (end & (end - 1)) + 1, trailing_zeros(end), as its tree needs"
                raise _Refusal(words, self.function("interval"))
            if not has_tree and not (type(found) is tuple and found[1:] == (_constant(0),)):
                words = "must return the first reward and the level 0: without a tree, releases have one level"
                raise _Refusal(words, self.function("interval"))


class Flow(NamedTuple):
    """What a page does with rewards: the ranges to which it clamps them, and whether a tree adds the noise."""

    clamps: tuple[Clamp, ...]
    has_tree: bool
    types: tuple[type, ...]  # of the terms


def check_flow(kind: str, page: Page, terms: Any, epsilon: float) -> Flow:
    """Refuse a page that lets rewards out otherwise than as sums with noise."""
    claim = f"claims epsilon={epsilon:g}"
    if page.noise_due is None or page.interval is None:
        what = "asks for no noise: the page has no noise_due"
        words = "but the page has no interval: nobody can tell which rewards noise hides"
        raise WrongPage(kind, f"{claim} and {what}" if page.noise_due is None else f"{claim}, {words}")
    if page.meet is not None:
        raise WrongPage(kind, f"{claim}, but the page has meet, which sees what all agents know")
    proof = _Proof(page, terms)
    try:
        return Flow(tuple(proof.check()), bool(proof.slots), tuple(map(type, terms)))
    except _Refusal as it:
        inside = "" if it.function is getattr(page, proof.name) else f", in {it.function.__name__},"
        place = f"{Path(it.function.__code__.co_filename).name}, line {it.line}"
        raise WrongPage(kind, f"{proof.name}{inside} {it.words} ({place}). It {claim}") from None


def check_cost(kind: str, flow: Flow, terms: Any, epsilon: float, setting: Setting) -> None:
    """Refuse noise that is too narrow for the range to which rewards are clamped."""
    if tuple(map(type, terms)) != flow.types or any(type(x) is int and abs(x) >= MOST for x in terms):
        raise WrongPage(kind, f"needs terms of the same types for all agents and arms, and whole ones below {MOST:,}")
    max_pulls: int | None = getattr(terms, "max_pulls", None)
    if flow.has_tree and type(max_pulls) is not int:
        raise WrongPage(kind, "adds noise by a tree, and the terms have no max_pulls, an int: how deep does it become?")
    levels = max(max_pulls or 0, setting.horizon + 1).bit_length() if flow.has_tree else 1

    def bound(number: Public) -> float:
        return getattr(terms, str(number)[len("terms.") :]) if number.parts else number.constant

    per_release: float = getattr(terms, "epsilon_per_release", 0.0)  # a live site draws noise for it and the range
    live = (setting.high - setting.low) / per_release if per_release > 0.0 else inf
    scale = min(terms.noise_scale, live)
    for low, high in dict.fromkeys((bound(low), bound(high)) for low, high in flow.clamps):
        cost = levels * (high - low) / scale if scale > 0.0 else inf
        if not cost <= epsilon * (1.0 + 1e-9):
            spends = f"{levels} releases that hold it" if levels > 1 else "a reward"
            raise WrongPage(
                kind,
                f"claims epsilon={epsilon:g}, but spends {cost:.4g} on {spends}: rewards are clamped to {low:g} to "
                f"{high:g}, and the noise has scale {scale:.4g}",
            )
