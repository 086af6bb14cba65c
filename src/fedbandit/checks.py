"""Bad input fails at once, with a message that names the argument and what it accepts.

Here belong the error and the checks that several rooms share.
"""

import difflib
from collections.abc import Iterable
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["InvalidArgument", "closest", "finite_matrix", "number_above", "number_between", "whole_number"]


class InvalidArgument(ValueError):
    """The caller's mistake: ``argument`` has a value that is not among the ``accepted`` ones."""

    def __init__(self, argument: str, value: object, accepted: str) -> None:
        """Say which argument, what it accepts, and what it was."""
        self.argument, self.value, self.accepted = argument, value, accepted
        super().__init__(f"{argument} must be {accepted}, not {_short(value)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def whole_number(argument: str, value: Any, low: int, high: int) -> int:
    """``value`` as an int between ``low`` and ``high``. Accepts 1e6, refuses 1.5, True and NaN."""
    accepted = f"a whole number from {low} to {high}"
    if not _is_number(value) or not low <= value <= high or value != int(value):
        raise InvalidArgument(argument, value, accepted)
    return int(value)


def number_above(argument: str, value: Any, low: float, allow_inf: bool = False) -> float:
    """``value`` as a float above ``low``; infinity only where it has a meaning."""
    accepted = f"a number above {low:g}" + (" (inf allowed)" if allow_inf else "")
    if not _is_number(value) or not value > low:
        raise InvalidArgument(argument, value, accepted)
    if value == inf and not allow_inf:
        raise InvalidArgument(argument, value, accepted)
    return float(value)


def number_between(argument: str, value: Any, low: float, high: float) -> float:
    """``value`` as a float above ``low`` and at most ``high``."""
    if not _is_number(value) or not low < value <= high:
        raise InvalidArgument(argument, value, f"a number above {low:g} and at most {high:g}")
    return float(value)


def finite_matrix(argument: str, value: ArrayLike) -> NDArray[np.float64]:
    """``value`` as a read-only matrix of finite floats."""
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(argument, value, "a matrix of numbers, one row per agent") from None
    if matrix.ndim != 2 or matrix.size == 0:
        raise InvalidArgument(
            argument, f"an array of shape {matrix.shape}", "a matrix: a row per agent, a column per arm"
        )
    if not np.isfinite(matrix).all():
        i, k = np.argwhere(~np.isfinite(matrix))[0]
        raise InvalidArgument(f"{argument}[{i}, {k}]", float(matrix[i, k]), "finite")
    matrix.flags.writeable = False
    return matrix


def closest(word: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt word: ' Did you mean ...?' or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{near[0]}'?" if near else ""
