"""Plants one bug in a function of the package, which it finds by name: the language of ``mutants.py``.

A bug names a function (``count_lagging``), a method (``Ledger.draw``), a function in another (``learn`` or
``_learn.learn``) or a constant (``SURE``). The package's syntax trees are searched for it, so moving or renaming a file
changes nothing. Of several with that name it is the one that the edit fits; where it fits more than one, ``beside``
names anything else that the right module defines. Edits compare code by its ``ast.unparse``d form: spaces, quotes,
comments and line breaks do not count.

The broken module is written to a file of its own. ``planted/sitecustomize.py`` loads it in place of the real one, in
the process of a test and in all that it starts.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, NamedTuple

__all__ = ["MAY_BE_COMPILED", "Broken", "Bug", "DoesNotFit", "Package", "bug", "watchers_of"]

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "fedbandit"
MAY_BE_COMPILED = ("rules", "policies", "engine", "simulation", "world")
"""Packages whose functions may be part of a compiled loop: their bugs compile anew."""

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


class DoesNotFit(Exception):
    """A bug names what the package or the tests no longer have."""


class Bug(NamedTuple):
    """One rule to break, and the tests that should notice, the fastest first."""

    name: str
    where: str
    edits: tuple[tuple[str, Any], ...]
    watchers: tuple[str, ...]
    beside: str | None
    plain: bool | None
    limit: float


def bug(
    name: str,
    where: str,
    *watchers: str,
    swap: dict[str, str] | None = None,
    drop: str | Sequence[str] = (),
    never: str | Sequence[str] = (),
    always: str | Sequence[str] = (),
    body: str | None = None,
    value: str | None = None,
    text: dict[str, str] | None = None,
    add: dict[str, str] | None = None,
    beside: str | None = None,
    plain: bool | None = None,
    limit: float = 240.0,
) -> Bug:
    """A bug in the function, method or constant ``where``, which the tests ``watchers`` notice.

    Args:
        name: What goes wrong, in words.
        where: The name of a function, method or constant; the last parts of its qualified name suffice.
        watchers: Names of tests: ``test_x``, ``TestClass``, ``TestClass::test_x``, with ``[parameters]``
            if one will do, or ``test_file.py::test_x`` where two files have one of that name.
        swap: Code to replace, every time that it occurs: an expression by an expression, statements by statements.
        drop: Statements to leave out; of one with a body, the first line with its colon is enough.
        never: Conditions that are taken for false.
        always: Conditions that are taken for true.
        body: A new body of the function.
        value: A new value of the constant.
        text: What to replace in strings of the function or constant, as in SQL.
        add: Statements to put behind others: ``{behind: new}``.
        beside: Another name in the same module, where several modules define ``where``.
        plain: Whether no compiled loop contains the function; by default this follows from its package.
        limit: Seconds after which the run is stopped.
    """

    def each(given: str | Sequence[str]) -> Sequence[str]:
        return [given] if isinstance(given, str) else given

    edits: list[tuple[str, Any]] = [("swap", pair) for pair in (swap or {}).items()]
    edits += [("swap", (condition, "False")) for condition in each(never)]
    edits += [("swap", (condition, "True")) for condition in each(always)]
    edits += [("drop", statement) for statement in each(drop)]
    edits += [("add", pair) for pair in (add or {}).items()]
    edits += [("text", pair) for pair in (text or {}).items()]
    edits += [("body", body)] if body is not None else []
    edits += [("value", value)] if value is not None else []
    return Bug(name, where, tuple(edits), watchers, beside, plain, limit)


# ---------------------------------------------------------------- where a name is defined


class _Place(NamedTuple):
    module: str
    name: str
    node: _Definition


class Broken(NamedTuple):
    """A module with a bug in it."""

    module: str
    path: Path
    text: str
    before: str
    after: str
    may_be_compiled: bool


_WORD = re.compile(r"[^\W\d]\w*")
_DEFINED = re.compile(r"^ *(?:(?:async )?def |class )?(\w+)(?:\(| *[:=\[])", re.MULTILINE)


class Package:
    """The modules of a package, read as far as names are looked for."""

    def __init__(self, folder: Path = SOURCE) -> None:
        self._texts: dict[str, tuple[Path, str]] = {}
        self._by_word: dict[str, list[str]] = {}
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self._texts[module] = path, path.read_text()
            for word in set(_DEFINED.findall(self._texts[module][1])):
                self._by_word.setdefault(word, []).append(module)
        self._defined = cache(self._definitions_in)

    def _definitions_in(self, module: str) -> dict[str, _Definition]:
        return dict(_definitions(ast.parse(self._texts[module][1]).body, ""))  # of several the last one holds

    def _places(self, bug: Bug) -> list[_Place]:
        found = list[_Place]()
        for module in self._by_word.get(bug.where.rpartition(".")[2], []):
            names = self._defined(module)
            if bug.beside is None or bug.beside in names:
                found += [_Place(module, name, names[name]) for name in names if f".{name}".endswith(f".{bug.where}")]
        return found

    def _may_fit(self, place: _Place, bug: Bug) -> bool:
        """Whether all words of the edits are there: much faster than to try."""
        lines = self._texts[place.module][1].splitlines()[place.node.lineno - 1 : place.node.end_lineno]
        words = set(_WORD.findall("\n".join(lines)))
        old = [what if isinstance(what, str) else what[0] for kind, what in bug.edits if kind not in ("body", "value")]
        return words.issuperset(_WORD.findall(" ".join(old)))

    def broken(self, bug: Bug) -> Broken:
        """The module of a bug with the bug in it; where several functions have the name, that which the edit fits.

        Raises:
            DoesNotFit: What the bug names is not there, or not as it should be.
        """
        found, why, places = list[tuple[_Place, str]](), list[str](), self._places(bug)
        for place in [it for it in places if self._may_fit(it, bug)] or places:
            try:
                found.append((place, _edited(place.node, bug.edits)))
            except DoesNotFit as error:
                why.append(f"{place.module}.{place.name} {error}")
        if len(found) > 1:
            them = ", ".join(f"{place.module}.{place.name}" for place, _ in found)
            raise DoesNotFit(f"{bug.name!r} fits several: {them}; say which by beside=")
        if not found:
            beside = f" beside {bug.beside}" if bug.beside else ""
            raise DoesNotFit(
                f"{bug.name!r}: {'; '.join(why) or f'nothing in the package is called {bug.where}{beside}'}"
            )
        place, after = found[0]
        path, text = self._texts[place.module]
        room = place.module.split(".")[1:2]
        may_be_compiled = not bug.plain if bug.plain is not None else bool(room) and room[0] in MAY_BE_COMPILED
        return Broken(
            place.module, path, _with(text, place.node, after), ast.unparse(place.node), after, may_be_compiled
        )


def _definitions(body: Sequence[ast.stmt], prefix: str, in_function: bool = False) -> Iterator[tuple[str, _Definition]]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield prefix + node.name, node
            yield from _definitions(node.body, f"{prefix}{node.name}.", not isinstance(node, ast.ClassDef))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and not in_function:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if len(targets) == 1 and isinstance(targets[0], ast.Name):
                yield prefix + targets[0].id, node
        else:
            for inner in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(node, inner, []), prefix, in_function)


def _with(text: str, node: _Definition, after: str) -> str:
    """The text of a module with other code in the place of a definition; the lines below keep their numbers."""
    lines = text.splitlines(keepends=True)
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(it.lineno for it in decorators)]) - 1
    last = node.end_lineno or node.lineno
    new = indent(after, " " * node.col_offset) + "\n"
    new += "\n" * max(0, last - first - new.count("\n"))
    return "".join(lines[:first]) + new + "".join(lines[last:])


# ---------------------------------------------------------------- edits


class _Pattern(NamedTuple):
    code: tuple[str, ...]  # of each statement, or of one expression
    expression: type[ast.expr] | None


@cache
def _pattern(code: str) -> _Pattern:
    body = ast.parse(dedent(code).strip()).body
    if len(body) == 1 and isinstance(body[0], ast.Expr):
        return _Pattern((ast.unparse(body[0].value),), type(body[0].value))
    return _Pattern(tuple(ast.unparse(it) for it in body), None)


class _Replaced(ast.NodeTransformer):
    """Replaces expressions, or statements one after the other, wherever their code is that of a pattern."""

    def __init__(self, old: str, new: str, keep: bool = False) -> None:
        self.count, self._keep, self._old = 0, keep, _pattern(old)
        self._new = ast.parse(dedent(new).strip()).body

    def visit(self, node: ast.AST) -> Any:
        kind = self._old.expression
        is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)  # what is assigned to is no expression
        if kind is not None and is_read and isinstance(node, kind) and not self._keep:
            made = self._new[0]
            if len(self._new) == 1 and isinstance(made, ast.Expr) and ast.unparse(node) == self._old.code[0]:
                self.count += 1
                return deepcopy(made.value)
        if isinstance(node, ast.Call) and kind is None:
            node.keywords = [new for old in node.keywords for new in self._named(old)]
        self.generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            statements: Any = getattr(node, name, None)
            if isinstance(statements, list) and (kind is None or self._keep or not self._is_expression):
                setattr(node, name, self._in(statements) or ([ast.Pass()] if name == "body" else []))
        return node

    def _named(self, argument: ast.keyword) -> list[ast.keyword]:
        """A named argument ``a = b`` of a call is a pattern as well."""
        if (f"{argument.arg} = {ast.unparse(argument.value)}",) != self._old.code:
            return [argument]
        self.count += 1
        return [ast.keyword(argument.arg, deepcopy(it.value)) for it in self._new if isinstance(it, ast.Assign)]

    @property
    def _is_expression(self) -> bool:
        return len(self._new) == 1 and isinstance(self._new[0], ast.Expr)

    def _in(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        codes, size, found = [ast.unparse(it) for it in statements], len(self._old.code), list[ast.stmt]()
        place = 0
        while place < len(statements):
            if tuple(codes[place : place + size]) == self._old.code:
                self.count += 1
                found += statements[place : place + size] if self._keep else []
                found += deepcopy(self._new)
                place += size
            else:
                found.append(statements[place])
                place += 1
        return found


class _Dropped(ast.NodeTransformer):
    """Leaves out compound statements by their first line."""

    def __init__(self, first_line: str) -> None:
        self.count = 0
        self._line = ast.unparse(ast.parse(f"{first_line}\n    pass")).splitlines()[0]

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        if isinstance(node, ast.stmt) and ast.unparse(node).splitlines()[0] == self._line:
            self.count += 1
            return ast.Pass()
        return node


class _Retold(ast.NodeTransformer):
    """Replaces a part of strings."""

    def __init__(self, old: str, new: str) -> None:
        self.count, self._old, self._new = 0, old, new

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and self._old in node.value:
            self.count += 1
            return ast.copy_location(ast.Constant(node.value.replace(self._old, self._new)), node)
        return node


def _edited(node: _Definition, edits: Sequence[tuple[str, Any]]) -> str:
    """The code of a definition after some edits."""
    before = ast.unparse(node)
    edited: Any = ast.parse(before).body[0]
    for kind, what in edits:
        edited = _EDITS[kind](edited, what)
    after = ast.unparse(ast.fix_missing_locations(edited))
    if after == before:
        raise DoesNotFit("stays as it is")
    return after


def _by(edit: Any, node: Any, what: str) -> Any:
    edited = edit.visit(node)
    if edit.count == 0:
        raise DoesNotFit(f"has no {what!r}")
    return edited


def _swap(node: Any, pair: tuple[str, str]) -> Any:
    return _by(_Replaced(*pair), node, pair[0])


def _add(node: Any, pair: tuple[str, str]) -> Any:
    return _by(_Replaced(*pair, keep=True), node, pair[0])


def _drop(node: Any, statement: str) -> Any:
    edit = _Dropped(statement) if statement.rstrip().endswith(":") else _Replaced(statement, "pass")
    return _by(edit, node, statement)


def _text(node: Any, pair: tuple[str, str]) -> Any:
    return _by(_Retold(*pair), node, pair[0])


def _body(node: Any, code: str) -> Any:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise DoesNotFit("is no function")
    node.body = ast.parse(dedent(code).strip()).body
    return node


def _value(node: Any, code: str) -> Any:
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        raise DoesNotFit("is no constant")
    node.value = ast.parse(code.strip(), mode="eval").body
    return node


_EDITS = {"swap": _swap, "drop": _drop, "add": _add, "text": _text, "body": _body, "value": _value}


# ---------------------------------------------------------------- who watches


@cache
def _tests(folder: Path) -> dict[str, list[str]]:
    """Tests as pytest names them, by ``test_x``, ``TestClass`` and ``TestClass::test_x``."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("test_*.py")):
        within = ""
        for indented, kind, name in _TEST.findall(path.read_text()):
            within = name if not indented and kind == "class " else within if indented else ""
            whole = f"{within}::{name}" if indented and within else name
            for said in {name, whole}:
                if (test := f"{path.name}::{whole}") not in found.setdefault(said, []):
                    found[said].append(test)
    return found


_TEST = re.compile(r"^( *)(def |async def |class |)(test_\w+|Test\w+)(?:\(|:| = )", re.MULTILINE)


def watchers_of(bug: Bug, folder: Path = TESTS) -> list[str]:
    """The tests that a bug names, as pytest wants them.

    Raises:
        DoesNotFit: There is none of that name, or there are several.
    """
    found = list[str]()
    for watcher in bug.watchers:
        name, bracket, parameters = watcher.partition("[")
        file, _, name = name.rpartition(".py::")
        tests = [it for it in _tests(folder).get(name, []) if not file or it.startswith(f"{file}.py::")]
        if len(tests) != 1:
            said = f"several tests are called {name}: {', '.join(tests)}" if tests else f"no test is called {name}"
            raise DoesNotFit(f"{bug.name!r}: {said}")
        found.append(f"{tests[0]}{bracket}{parameters}")
    if not found:
        raise DoesNotFit(f"{bug.name!r}: nobody watches")
    return found
