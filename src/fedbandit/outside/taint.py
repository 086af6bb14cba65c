"""Numbers that remember whether they hold rewards that no noise hides yet.

A ``Raw`` number stays raw through + - * /; adding ``Noise`` makes it a plain float. A page may collect raw numbers and
compute with them, and compare them in ``observe``, as a clamp does. It must not compare them elsewhere, return them, or
hand them to ``math``, which would forget what they are.
"""

import operator as _operator
from collections.abc import Callable
from typing import Any

from fedbandit.outside.strict import Fault

__all__ = ["Noise", "Raw"]

_op: Any = _operator

_HIDDEN = "rewards that no noise hides yet"


class Noise(float):
    """A draw of noise, a multiple of it, or a sum with it."""

    def __mul__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Raw) else Noise(float(self) * other)

    __rmul__ = __mul__

    def __neg__(self) -> "Noise":
        return Noise(-float(self))

    def __truediv__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Raw) else Noise(float(self) / other)

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Raw) else Noise(float(self) + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Raw) else Noise(float(self) - other)

    def __rsub__(self, other: Any) -> Any:
        return Noise(other - float(self))


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Raw) else x


def _arithmetic(operation: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[["Raw", Any], Any]:
    hides = operation in (_op.add, _op.sub)

    def result(self: "Raw", other: Any) -> Any:
        left, right = (_value(other), self.value) if swapped else (self.value, _value(other))
        outcome = operation(left, float(right) if isinstance(right, Noise) else right)
        return float(outcome) if hides and isinstance(other, Noise) else Raw(outcome, self.stage)

    return result


def _comparison(operation: Callable[[Any, Any], bool]) -> Callable[["Raw", Any], bool]:
    def result(self: "Raw", other: Any) -> bool:
        if self.stage.playing != "observe":
            raise Fault(f"compares {_HIDDEN}")
        return operation(self.value, _value(other))

    return result


class Raw:
    """A reward, or what was computed from rewards without noise. ``stage.playing`` names the function that runs."""

    def __init__(self, value: Any, stage: Any) -> None:
        """The value, and the stage on which it is played."""
        self.value, self.stage = value, stage

    def _refuse(self, *_: Any) -> Any:
        raise Fault(f"hands {_HIDDEN} to a function of math or to int: compute with + - * / until noise is added")

    __add__, __radd__ = _arithmetic(_op.add), _arithmetic(_op.add, swapped=True)
    __sub__, __rsub__ = _arithmetic(_op.sub), _arithmetic(_op.sub, swapped=True)
    __mul__, __rmul__ = _arithmetic(_op.mul), _arithmetic(_op.mul, swapped=True)
    __truediv__, __rtruediv__ = _arithmetic(_op.truediv), _arithmetic(_op.truediv, swapped=True)
    __pow__ = _arithmetic(_op.pow)
    __lt__, __le__ = _comparison(_op.lt), _comparison(_op.le)
    __gt__, __ge__ = _comparison(_op.gt), _comparison(_op.ge)
    __eq__ = _comparison(_op.eq)  # pyright: ignore[reportAssignmentType]
    __ne__ = _comparison(_op.ne)  # pyright: ignore[reportAssignmentType]
    __float__ = __int__ = __index__ = __round__ = __bool__ = __hash__ = _refuse  # pyright: ignore[reportAssignmentType]

    def __neg__(self) -> "Raw":
        return Raw(-self.value, self.stage)

    def __abs__(self) -> "Raw":
        return Raw(abs(self.value), self.stage)

    def __repr__(self) -> str:
        return f"{self.value} (raw)"
