"""Draws a forecast: at how many sites the best arm leads, and is known, against patients per site."""

from itertools import pairwise
from math import ceil, floor, inf, log10
from textwrap import fill
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedbandit.figures.regret import COLOURS, DASHES, drawing, finish, plain_text

if TYPE_CHECKING:
    from matplotlib.axis import Axis

    from fedbandit.planning.forecast import Forecast

_WIDTH = 7.0  # inches
_LETTERS_PER_LINE = 120  # of the heading
_AXIS, _LETTER = 6.0, 0.07  # of the axis and of a letter of its numbers, in inches


def plan_figure(forecast: "Forecast", ax: Axes | None = None) -> Figure:
    """A curve with a 95 % band for each way to act, the 95 % line, where each crosses it, and when sites are sure.

    What the patients in question give stands in the heading, and has no curve. It was simulated for twice as many
    patients, the others for many more: who leads "for good" until then cannot be compared. ``ax``: your own axes to
    draw into, in your own style.
    """
    question = forecast.question
    then = f"\n{fill(f'dotted: {forecast.by_then}', _LETTERS_PER_LINE)}" if forecast.by_then else ""
    with drawing((_WIDTH, 4.4), ax=ax) as (figure, (axes,)):
        _curves(axes, forecast)
        axes.axhline(forecast.certainty, color="0.35", linewidth=0.8, linestyle=(0, (4, 3)))
        if question.patients is not None:
            axes.axvline(question.patients, color="0.35", linewidth=1.0, linestyle=":")
            axes.annotate(
                f"{question.patients:,} patients",
                (question.patients, 0.5),
                xytext=(3, 0),
                textcoords="offset points",
                rotation=90,
                va="center",
                fontsize=7,
                color="0.25",
            )
        label = f"below {forecast.fewest:,.0f} no method reaches 95 %,\neven without privacy"
        axes.axvspan(1e-9, forecast.fewest, color="0.5", alpha=0.15, linewidth=0, label=label)
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis, axes.get_xlim())
        axes.set_ylim(0.0, 1.02)
        axes.set_yticks([0.0, 0.25, 0.5, 0.75, 0.95], ["0 %", "25 %", "50 %", "75 %", "95 %"])
        axes.set_ylabel("sites at which the best arm leads for good")
        axes.set_xlabel("patients per site")
        _days_above(axes, question.patients_per_day, question.pace)
        heading = plain_text(
            f"{question.sites} sites, {question.arms} arms, gap {question.gap:g}, {question.graph.name}; an arm's "
            f"means at the sites lie within {question.bias:g} of their average\n"
            "band: 95 % interval over simulated trials; thin line: sites that are sure of the best arm"
            f"{then}"
        )
        finish(figure, [axes], heading, handlelength=3.0)
    return figure


def _curves(axes: Axes, forecast: "Forecast") -> None:
    certainty = forecast.certainty
    last = max(forecast.together.sure.last, *(curve.last for curve in forecast.ways.values()))
    for position, (name, curve) in enumerate(forecast.ways.items()):
        colour, at, kept = COLOURS[position], curve.patients, curve.kept
        axes.plot(at, kept.mean, color=colour, linestyle=DASHES[position], label=plain_text(name), zorder=3)
        axes.fill_between(at, kept.low, kept.high, color=colour, alpha=0.18, linewidth=0)
        if curve is forecast.together:
            label = "together, sites are sure"
            axes.plot(curve.sure.patients, curve.sure.mean, color=colour, linewidth=0.9, label=label, zorder=3)
            if curve.known < inf:
                axes.plot([curve.known], [certainty], "o", color=colour, markerfacecolor="white", zorder=4)
                axes.annotate(
                    f"{curve.known:,.0f}",
                    (curve.known, certainty),
                    xytext=(4, -11),
                    textcoords="offset points",
                    fontsize=7.5,
                    color=colour,
                )
        if curve.found < inf:
            axes.plot([curve.found] * 2, [0.0, certainty], color=colour, linewidth=0.9, zorder=2)
            axes.plot([curve.found], [certainty], "o", color=colour, markerfacecolor="white", zorder=4)
            axes.annotate(
                f"{curve.found:,.0f}",
                (curve.found, 0.0),
                xytext=(3, 4 + 11 * position),  # close ones do not touch
                textcoords="offset points",
                fontsize=7.5,
                color=colour,
                fontweight="bold",
                bbox={"boxstyle": "square,pad=0.1", "color": "white", "alpha": 0.75, "linewidth": 0},
                zorder=5,
            )
    least = min(float(curve.patients[0]) for curve in forecast.ways.values())
    first = max(least, last / 3000.0)
    axes.set_xlim(min(first, 0.9 * (forecast.question.patients or inf)), last)


def _days_above(axes: Axes, patients_per_day: float, pace: str) -> None:
    def days(patients: Any) -> Any:
        return patients / patients_per_day

    def patients(days: Any) -> Any:
        return days * patients_per_day

    above = axes.secondary_xaxis("top", functions=(days, patients))
    low, high = axes.get_xlim()
    _plain_ticks(above.xaxis, (days(low), days(high)))
    above.set_xlabel(f"days at {pace}")


def _plain_ticks(axis: "Axis", limits: tuple[float, float]) -> None:
    """Numbers as people write them; 1, 2 and 5 of every power of ten, or fewer where they would touch."""
    steps = next((steps for steps in ((1.0, 2.0, 5.0), (1.0, 3.0)) if _have_room(steps, limits)), (1.0,))
    axis.set_major_locator(LogLocator(10.0, steps, numticks=30))
    axis.set_major_formatter(FuncFormatter(_plainly))
    axis.set_minor_formatter(NullFormatter())


def _have_room(steps: tuple[float, ...], limits: tuple[float, float]) -> bool:
    """Whether a letter fits between any two neighbours."""
    low, high = (log10(limit) for limit in limits)
    ticks = [step * 10.0**power for power in range(floor(low), ceil(high) + 1) for step in steps]
    return all(
        log10(right / left) / (high - low) * _AXIS > _LETTER * (1.0 + len(_plainly(left) + _plainly(right)) / 2.0)
        for left, right in pairwise(tick for tick in ticks if limits[0] <= tick <= limits[1])
    )


def _plainly(x: float, _: object = None) -> str:
    if x >= 999_999.5:
        return f"{x / 1e6:,g} million"
    return f"{x:,.0f}" if x >= 1.0 else f"{x:g}"
