"""Draws intervals as SVG, for a page that is read and printed: a row of a forest plot, its axis, and lines over time.

Lengths are pixels of the page. Colours are those of the page's style (``page.STYLE``), by class.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

__all__ = ["Scale", "Span", "axis", "lines_over_time", "row", "vertical"]

WIDTH, HEIGHT = 250, 20
"""Of a row of a forest plot."""

_EDGE = 15
"""Room beside the ends of an axis, for half of a number."""


class Span(NamedTuple):
    """A number and an interval around it; None: unknown."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Scale:
    """From numbers to pixels, with round ticks."""

    def __init__(self, values: Sequence[float], least: float, most: float, length: float) -> None:
        """For these values, as far as they are between ``least`` and ``most``."""
        known = [min(max(it, least), most) for it in values if isfinite(it)]
        low, high = (min(known), max(known)) if known else (least, most)
        if high - low < 1e-9 * (most - least):
            low, high = max(low - 0.05 * (most - least), least), min(high + 0.05 * (most - least), most)
        self.step = _round_step((high - low) / 5.0)
        self.low, self.high = self.step * floor(low / self.step + 1e-9), self.step * ceil(high / self.step - 1e-9)
        self._length = length

    def __call__(self, value: float) -> float:
        """Where a value lies; at the end if it lies beyond."""
        part = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return _EDGE + part * (self._length - 2 * _EDGE)

    def holds(self, value: float) -> bool:
        """Whether it lies on the scale."""
        return self.low <= value <= self.high

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Values and their labels."""
        decimals = max(0, -floor(log10(self.step) + 1e-9))
        count = round((self.high - self.low) / self.step)
        return [(tick := self.low + i * self.step, f"{tick + 0.0:.{decimals}f}") for i in range(count + 1)]


def _round_step(width: float) -> float:
    """The smallest of 1, 2, 5, 10, ... that is not below it."""
    power = 10.0 ** floor(log10(width))
    return next(it * power for it in (1.0, 2.0, 5.0, 10.0) if it * power >= width * (1.0 - 1e-9))


def _svg(width: float, height: float, name: str, parts: Iterator[str], label: str) -> str:
    said = f'role="img" aria-label="{escape(label)}"' if label else 'aria-hidden="true"'
    return f'<svg class="{name}" viewBox="0 0 {width:g} {height:g}" {said}>{"".join(parts)}</svg>'


def _line(name: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


# ---------------------------------------------------------------- a forest plot


def row(scale: Scale, it: Span, marked: float | None = None, wide: Span | None = None, is_average: bool = False) -> str:
    """A dot with its interval, or a diamond for the average; ``wide``: an interval behind it; ``marked``: a line."""
    return _svg(WIDTH, HEIGHT, "row", _row(scale, it, marked, wide, is_average), "")


def _row(scale: Scale, it: Span, marked: float | None, wide: Span | None, is_average: bool) -> Iterator[str]:
    middle = HEIGHT / 2
    if marked is not None and scale.holds(marked):
        yield _line("zero", scale(marked), 0, scale(marked), HEIGHT)
    if wide is not None and wide.low is not None and wide.high is not None:
        yield _line("always", scale(wide.low), middle, scale(wide.high), middle)
    if it.value is None:
        return
    x = scale(it.value)
    if it.low is not None and it.high is not None:
        a, b = scale(it.low), scale(it.high)
        if is_average:
            left, right = min(a, x - 1.5), max(b, x + 1.5)
            corners = f"M{left:.1f} {middle}L{x:.1f} 3 {right:.1f} {middle} {x:.1f} {HEIGHT - 3}Z"
            yield f'<path class="average" d="{corners}"/>'
            return
        yield _line("interval", a, middle, b, middle)
        for end, value in ((a, it.low), (b, it.high)):
            if scale.holds(value):
                yield _line("interval", end, middle - 4, end, middle + 4)
    yield f'<circle class="{"average" if is_average else "site"}" cx="{x:.1f}" cy="{middle}" r="4"/>'


def axis(scale: Scale, label: str) -> str:
    """The axis of rows, for the heading of their column."""
    return _svg(WIDTH, 22, "row", _axis(scale), label)


def _axis(scale: Scale) -> Iterator[str]:
    ticks = scale.ticks
    yield _line("rule", _EDGE, 21, WIDTH - _EDGE, 21)
    for i, (value, label) in enumerate(ticks):
        yield _line("rule", scale(value), 17, scale(value), 21)
        if len(ticks) <= 6 or i % 2 == 0:
            yield f'<text x="{scale(value):.1f}" y="13" text-anchor="middle">{label}</text>'


# ---------------------------------------------------------------- lines over time


LINES_WIDTH, LINES_HEIGHT = 660, 150
_LEFT, _BOTTOM, _TOP = 44, 20, 6


class _Time(NamedTuple):
    """From times to pixels."""

    start: float
    end: float

    def __call__(self, at: float) -> float:
        return _LEFT + (at - self.start) / (self.end - self.start) * (LINES_WIDTH - _LEFT - 10)


def lines_over_time(
    at: Sequence[float], end: float, spans: Sequence[Span], wide: Sequence[Span], scale: Scale, label: str
) -> str:
    """An estimate over time, with its interval as a band, and a wider one behind it; each holds until the next."""
    time = _Time(at[0], max(end, at[-1], at[0] + 1.0))
    return _svg(LINES_WIDTH, LINES_HEIGHT, "lines", _lines(time, [*at, time.end], spans, wide, scale), label)


def vertical(values: Sequence[float], least: float, most: float) -> Scale:
    """The scale of ``lines_over_time``."""
    return Scale(values, least, most, LINES_HEIGHT - _BOTTOM - _TOP + 2 * _EDGE)


def _lines(
    time: _Time, at: Sequence[float], spans: Sequence[Span], wide: Sequence[Span], scale: Scale
) -> Iterator[str]:
    def y(value: float) -> float:
        return LINES_HEIGHT - _BOTTOM - (scale(value) - _EDGE)

    for value, label in scale.ticks:
        yield _line("grid", _LEFT, y(value), LINES_WIDTH - 10, y(value))
        yield f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>'
    for x, label in _times(time):
        yield _line("rule", x, LINES_HEIGHT - _BOTTOM, x, LINES_HEIGHT - _BOTTOM + 4)
        yield f'<text x="{x:.1f}" y="{LINES_HEIGHT - 4}" text-anchor="middle">{label}</text>'
    for name, band in (("always-band", wide), ("band", spans)):
        yield f'<path class="{name}" d="{"".join(_bands(time, at, band, y))}"/>'
    path, is_on = "", False
    for left, right, it in zip(at, at[1:], spans, strict=False):
        if it.value is None:
            is_on = False
            continue
        path += f"{'L' if is_on else 'M'}{time(left):.1f} {y(it.value):.1f}H{time(right):.1f}"
        is_on = True
    yield f'<path class="estimate" d="{path}"/>'


def _bands(time: _Time, at: Sequence[float], band: Sequence[Span], y: Callable[[float], float]) -> Iterator[str]:
    """Outlines of stepped bands, one for each stretch of time without a gap: along the top, and back below."""
    above, below = "", ""
    for left, right, it in zip(at, at[1:], band, strict=False):
        if it.low is None or it.high is None:
            if above:
                yield f"M{above[1:]}{below}Z"
            above, below = "", ""
            continue
        above += f"L{time(left):.1f} {y(it.high):.1f}H{time(right):.1f}"
        below = f"L{time(right):.1f} {y(it.low):.1f}H{time(left):.1f}{below}"
    if above:
        yield f"M{above[1:]}{below}Z"


def _times(time: _Time) -> Iterator[tuple[float, str]]:
    """Five times with their labels: days where they are far apart, else hours."""
    length = time.end - time.start
    how = "%Y-%m-%d" if length > 5 * 86_400 else "%m-%d %H:%M" if length > 3_600 else "%H:%M:%S"
    for i in range(5):
        at = time.start + (0.08 + 0.21 * i) * length
        yield time(at), datetime.fromtimestamp(at, UTC).strftime(how)
