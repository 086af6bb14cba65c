"""Errors and checks shared by several rooms: bad input fails at once, naming the argument and what it accepts.

A live agent uses this file, so it does not import NumPy; ``Real`` covers NumPy's numbers.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from numbers import Real
from sys import float_info
from types import FunctionType
from typing import Any, Literal, cast

__all__ = [
    "MAX_STRATA",
    "Counts",
    "FileError",
    "Gossip",
    "InvalidArgument",
    "InvalidArguments",
    "checked_counts",
    "checked_gossip",
    "closest",
    "finite_number",
    "instance",
    "listed",
    "number_above",
    "number_between",
    "printable",
    "shortened",
    "true_or_false",
    "whole_number",
]


# Beyond these, squares and reciprocals overflow a float.
SMALLEST, LARGEST = 1e-9, 1e12
LARGEST_FLOAT = float_info.max  # Python's integers can be larger


class InvalidArgument(ValueError):
    """The caller's mistake: ``argument`` has a value that is not ``accepted``."""

    def __init__(self, argument: str, value: object, accepted: str, hint: str = "") -> None:
        """Name the argument, what it accepts, its value, and a hint."""
        if isinstance(value, type) and not hint:
            hint = f"{value.__name__} is a class: write {value.__name__}(...)."
        self.argument, self.value, self.accepted, self.hint = argument, value, accepted, hint
        super().__init__(f"{argument} must be {accepted}, not {_told(value)}{'. ' if hint else ''}{hint}")

    def __reduce__(self) -> tuple[type["InvalidArgument"], tuple[str, object, str, str]]:
        return InvalidArgument, (self.argument, self.value, self.accepted, self.hint)

    def at(self, place: str) -> "InvalidArgument":
        """The same error, with the argument's name as the caller knows it."""
        return InvalidArgument(f"{place}.{self.argument}", self.value, self.accepted, self.hint)


class InvalidArguments(InvalidArgument):
    """Several mistakes of one call, a line each; ``argument``, ``value`` and so on are those of the first."""

    def __init__(self, errors: Sequence[InvalidArgument]) -> None:
        """All of them, in the order of the arguments."""
        first = errors[0]
        super().__init__(first.argument, first.value, first.accepted, first.hint)
        self.errors = tuple(errors)
        self.args = ("\n".join(str(error) for error in errors),)

    def __reduce__(self) -> Any:
        return InvalidArguments, (self.errors,)

    def at(self, place: str) -> "InvalidArguments":
        """The same errors, with the arguments' names as the caller knows them."""
        return InvalidArguments([error.at(place) for error in self.errors])


Counts = Literal["sites", "patients"]
"""Whose average decides which arm is best: every site counts alike (the paper), or every patient."""


def checked_counts(argument: str, counts: Any) -> Counts:
    """Whose average counts, or an error."""
    if not isinstance(counts, str) or counts not in ("sites", "patients"):
        raise InvalidArgument(argument, counts, "sites or patients")
    return counts


MAX_STRATA = 24
"""The most strata of decisions: more would leave too few decisions in each."""

Gossip = Literal["averages", "releases"]
"""What agents exchange over a link: averages of what both hold (the paper), or what each agent has published itself."""


def checked_gossip(argument: str, gossip: Any) -> Gossip:
    """What links exchange, or an error."""
    if not isinstance(gossip, str) or gossip not in ("averages", "releases"):
        raise InvalidArgument(argument, gossip, "averages or releases")
    return gossip


class FileError(ValueError):
    """A file that cannot be used; the message has a line per error."""


def shortened(text: str, most: int = 80) -> str:
    """The text, or its beginning and three dots: what others send may be of any length."""
    return text if len(text) <= most else text[: most - 3] + "..."


def _told(value: object, most: int = 80) -> str:
    """The beginning of a value's ``repr``, whatever it is: of a list no more is looked at than is told."""
    told = ""
    for piece in _pieces(value, most):
        told += piece
        if len(told) > most:
            break
    return shortened(told, most)


def _pieces(value: object, most: int) -> Iterator[str]:
    """What ``repr`` says, bit by bit; each level says something, so who stops after a while stops at that depth."""
    kind = type(value)
    if kind is list or kind is tuple:
        items, is_list = cast(Sequence[object], value), kind is list
        yield "[" if is_list else "("
        for k, item in enumerate(items):
            yield ", " if k else ""
            yield from _pieces(item, most)
        yield "]" if is_list else ",)" if len(items) == 1 else ")"
    elif kind is dict:
        yield "{"
        for k, (key, item) in enumerate(cast(dict[object, object], value).items()):
            yield ", " if k else ""
            yield from _pieces(key, most)
            yield ": "
            yield from _pieces(item, most)
        yield "}"
    elif isinstance(value, str | bytes) and len(value) > most:
        yield repr(value[: most + 1])
    else:
        try:
            yield repr(value)
        except Exception:  # a number with very many digits, or an object of others that is deep or broken
            yield f"a value of type {kind.__name__}"


def printable(text: str, most: int = 80) -> str:
    """Another's text, safe for one line of a log or a terminal: no control character, shortened."""
    return shortened("".join(letter if letter.isprintable() else "?" for letter in text[: most + 1]), most)


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names as a sentence has them: a, b and c; of more than ``most`` the first ones, and how many others."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def whole_number(argument: str, value: Any, low: int, high: int) -> int:
    """``value`` as an int between ``low`` and ``high``. Accepts 1e6, refuses 1.5, True and NaN."""
    if type(value) is int and low <= value <= high:  # the usual case first: an abstract class takes long to ask
        return value
    if not _is_number(value) or not low <= value <= high or value != int(value):
        raise InvalidArgument(argument, value, f"a whole number from {low} to {high}")
    return int(value)


def finite_number(argument: str, value: Any) -> float:
    """``value`` as a float that is neither infinite nor NaN."""
    if type(value) is float and -LARGEST_FLOAT <= value <= LARGEST_FLOAT:  # the usual case first
        return value
    if not _is_number(value) or not -LARGEST_FLOAT <= value <= LARGEST_FLOAT:
        raise InvalidArgument(argument, value, "a finite number")
    return float(value)


def number_above(argument: str, value: Any, low: float, allow_inf: bool = False) -> float:
    """``value`` as a float above ``low``, within sensible limits; infinity only where it is meaningful."""
    accepted = f"a number above {low:g}" + (" (inf allowed)" if allow_inf else "")
    if not _is_number(value) or not value > low:
        raise InvalidArgument(argument, value, accepted)
    if value == inf and not allow_inf:
        raise InvalidArgument(argument, value, accepted)
    if value < SMALLEST or LARGEST < value < inf:
        raise InvalidArgument(argument, value, f"between {SMALLEST:g} and {LARGEST:g}")
    return float(value)


def number_between(argument: str, value: Any, low: float, high: float) -> float:
    """``value`` as a float above ``low`` and at most ``high``."""
    if not _is_number(value) or not low < value <= high:
        raise InvalidArgument(argument, value, f"a number above {low:g} and at most {high:g}")
    return float(value)


def closest(word: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt word: 'Did you mean ...?' or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"Did you mean '{near[0]}'?" if near else ""


def instance(argument: str, value: object, kind: Any, accepted: str) -> None:
    """Refuse a value of another type. A function is told apart from what it returns: ``ring`` is not ``ring(10)``."""
    if not isinstance(value, kind):
        name = value.__name__ if isinstance(value, FunctionType) else ""
        hint = f"{name} is a function: write {name}(...)." if name.isidentifier() else ""
        if type(value).__module__.partition(".")[0] == "networkx":
            hint = "This is a graph of networkx: write graph.from_networkx(...)."
        raise InvalidArgument(argument, value, accepted, hint)


def true_or_false(argument: str, value: Any) -> bool:
    """Accept only a bool: the text "false" would count as true."""
    if not isinstance(value, bool):
        raise InvalidArgument(argument, value, "true or false")
    return value


def __dir__() -> list[str]:
    return __all__
