"""Stand-ins for a page's arguments that refuse what compiled code would do wrongly or not at all.

A row has a fixed length and whole indices within it; a field takes numbers of its kind; only ``me`` can be written to.
Each refusal says in words what the function did.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, cast

from fedbandit.outside.inspection import known_names, unknown_name
from fedbandit.policies.protocol import Count, Field, Now, Number, Page

__all__ = ["Edges", "Fault", "StrictDraws", "StrictRow", "strict_me", "strict_now", "strict_seen", "strict_terms"]

MAX_COUNT = 2**31


class Fault(Exception):
    """What a function of a page did wrong: a phrase that begins with a verb."""


def _is_whole(value: Any) -> bool:
    return type(value) is int


class StrictRow:
    """A view of a list."""

    __slots__ = ("_field", "_items", "_name", "_writable")

    def __init__(self, name: str, field: Field, items: list[Any], writable: bool) -> None:
        """Look at ``items``, the row of a field."""
        self._name, self._field, self._items, self._writable = name, field, items, writable

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self._items)))

    def __bool__(self) -> NoReturn:
        raise Fault(f"asks whether {self._name} is true: it is a row, ask of its entries")

    def __getattr__(self, name: str) -> NoReturn:
        raise Fault(f"uses {self._name}.{name}: a row has a fixed length and its entries, nothing else")

    def __getitem__(self, index: Any) -> Any:
        self._check(index, "reads")
        value = self._items[index]
        return (
            StrictRow(f"{self._name}[{index}]", self._field, cast("list[Any]", value), self._writable)
            if isinstance(value, list)
            else value
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index, "writes")
        place = f"{self._name}[{index}]"
        if not self._writable:
            raise Fault(f"writes {place}: only what me holds may change")
        if isinstance(self._items[index], list):
            raise Fault(f"writes {place}, which is a row: write its entries")
        self._items[index] = checked_value(place, self._field, value)

    def _check(self, index: Any, does: str) -> None:
        if isinstance(index, tuple):
            inner = "][".join(str(part) for part in cast("tuple[Any, ...]", index))
            raise Fault(f"{does} {self._name} with a pair of indices: write {self._name}[{inner}]")
        if isinstance(index, slice):
            raise Fault(f"takes a slice of {self._name}: write a loop over its entries")
        if not _is_whole(index):
            raise Fault(f"{does} {self._name}[{index!r}]: an index is a whole number, write int(...)")
        if not 0 <= index < len(self._items):
            raise Fault(f"{does} {self._name}[{index}], beyond its row: indices go from 0 to {len(self._items) - 1}")


def checked_value(place: str, field: Field, value: Any) -> Any:
    """A value that a field can hold."""
    if field.kind != "number" and isinstance(value, bool):
        return int(value)
    if type(value) not in (int, float):
        raise Fault(f"writes {_shown(value)} to {place}, which is a {field.kind.capitalize()}")
    if value != value:
        raise Fault(f"writes NaN to {place}")
    if field.kind == "count" and not (_is_whole(value) and abs(value) < MAX_COUNT):
        raise Fault(f"writes {value!r} to {place}, which is a Count of whole numbers: declare it as Number, or round")
    if field.kind == "flag" and value not in (0, 1):
        raise Fault(f"writes {value!r} to {place}, which is a Flag: 0 or 1")
    return value


def _shown(value: Any) -> str:
    return f"a row ({value._name})" if isinstance(value, StrictRow) else repr(value)  # pyright: ignore[reportPrivateUsage]


class _Strict:
    """An argument with known attributes."""

    def __init__(
        self, argument: str, page: Page, terms: Any, fields: Mapping[str, Field], values: dict[str, Any]
    ) -> None:
        vars(self).update(
            _argument=argument, _page=page, _terms=terms, _fields=fields, _values=values, _may_write=argument == "me"
        )

    def __getattr__(self, name: str) -> Any:
        given = vars(self)
        values, argument = given["_values"], given["_argument"]
        if name not in values:
            raise Fault(unknown_name(given["_page"], given["_terms"], argument, name))
        value = values[name]
        if isinstance(value, list):
            return StrictRow(
                f"{argument}.{name}", given["_fields"][name], cast("list[Any]", value), given["_may_write"]
            )
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        given = vars(self)
        values, argument = given["_values"], given["_argument"]
        if argument != "me":
            raise Fault(f"writes {argument}.{name}: only what me holds may change")
        if name not in values:
            raise Fault(unknown_name(given["_page"], given["_terms"], argument, name).replace("reads", "writes", 1))
        if isinstance(values[name], list):
            raise Fault(f"writes me.{name}, which is a row: write its entries")
        values[name] = checked_value(f"me.{name}", given["_fields"][name], value)

    def __getitem__(self, index: Any) -> NoReturn:
        argument = vars(self)["_argument"]
        known = ", ".join(known_names(vars(self)["_page"], vars(self)["_terms"])[argument])
        raise Fault(
            f"reads {argument}[{index!r}]: a function sees one agent, never a neighbour; {argument} has {known}"
        )

    def __iter__(self) -> NoReturn:
        raise Fault(f"runs over {vars(self)['_argument']}: read its fields by name")


def strict_me(page: Page, terms: Any, values: dict[str, Any]) -> Any:
    """What one agent knows."""
    return _Strict("me", page, terms, page.knows, values)


def strict_seen(page: Page, terms: Any, values: dict[str, Any], writable: bool = False) -> Any:
    """What the network shows an agent; ``writable``: for ``meet``, which may change it."""
    seen = _Strict("seen", page, terms, dict.fromkeys(page.averaged, Number) | {"n_max": Count}, values)
    vars(seen)["_may_write"] = writable
    return seen


def strict_terms(page: Page, terms: Any) -> Any:
    """The fixed numbers."""
    return _Strict("terms", page, terms, {}, terms._asdict())


def strict_now(page: Page, terms: Any, now: Now) -> Any:
    """The time of a decision."""
    return _Strict("now", page, terms, {}, now._asdict())


class StrictDraws:
    """The randomness of a decision, for ``uniform`` and ``fill_with_normals``."""

    def __init__(self, u: float, normals: list[float]) -> None:
        """The draws."""
        self.u, self.normals = u, normals

    def __getattr__(self, name: str) -> NoReturn:
        raise Fault(f"reads draws.{name}: write uniform(draws) or fill_with_normals(row, draws)")


class Edges(list[tuple[int, int]]):
    """Pairs of agents, read as ``edges[e, 0]``."""

    def __getitem__(self, index: Any) -> Any:
        """The end of an edge."""
        if isinstance(index, tuple):
            e, side = cast("tuple[int, int]", index)
            return super().__getitem__(e)[side]
        return cast(Any, super().__getitem__(index))
