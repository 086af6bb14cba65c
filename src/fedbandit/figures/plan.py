"""Draws a forecast: at how many sites the best arm leads, and is known, against patients per site."""

from math import inf, log10
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedbandit.figures.regret import COLOURS, DASHES, STYLE, plain_text
from fedbandit.figures.shown import ShownFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from fedbandit.planning.forecast import Forecast

__all__ = ["plan_figure"]

_CERTAINTY = 0.95  # as in ``planning.question``, a room after this one


def plan_figure(forecast: "Forecast") -> Figure:
    """A curve with a 95 % band for each way to act, the 95 % line, where each crosses it, and when sites are sure."""
    import matplotlib as mpl

    question = forecast.question
    with mpl.rc_context(STYLE):
        figure = ShownFigure(figsize=(7.0, 4.4), layout="constrained")
        axes = figure.subplots()
        _curves(axes, forecast)
        axes.axhline(_CERTAINTY, color="0.35", linewidth=0.8, linestyle=(0, (4, 3)))
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
        _fewest(axes, forecast.fewest)
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis, axes.get_xlim())
        axes.set_ylim(0.0, 1.02)
        axes.set_yticks([0.0, 0.25, 0.5, 0.75, 0.95], ["0 %", "25 %", "50 %", "75 %", "95 %"])
        axes.set_ylabel("sites at which the best arm leads for good")
        axes.set_xlabel("patients per site")
        _days_above(axes, question.patients_per_day)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, handlelength=3.0)
        figure.suptitle(
            plain_text(
                f"{question.sites} sites, {question.arms} arms, gap {question.gap:g}, {question.graph.name}; an arm's "
                f"means at the sites lie within {question.bias:g} of their average\n"
                "band: 95 % interval over simulated trials; thin line: sites that are sure of the best arm"
            ),
            fontsize=8,
        )
    return figure


def _curves(axes: "Axes", forecast: "Forecast") -> None:
    last = max(forecast.together.sure.last, *(curve.last for curve in forecast.ways.values()))
    for position, (name, curve) in enumerate(forecast.ways.items()):
        colour, at, kept = COLOURS[position], curve.patients, curve.kept
        axes.plot(at, kept.mean, color=colour, linestyle=DASHES[position], label=plain_text(name), zorder=3)
        axes.fill_between(at, kept.low, kept.high, color=colour, alpha=0.18, linewidth=0)
        if curve is forecast.together:
            label = "together, sites are sure"
            axes.plot(curve.sure.patients, curve.sure.mean, color=colour, linewidth=0.9, label=label, zorder=3)
            if curve.known < inf:
                axes.plot([curve.known], [_CERTAINTY], "o", color=colour, markerfacecolor="white", zorder=4)
                axes.annotate(
                    f"{curve.known:,.0f}",
                    (curve.known, _CERTAINTY),
                    xytext=(4, -11),
                    textcoords="offset points",
                    fontsize=7.5,
                    color=colour,
                )
        if curve.found < inf:
            axes.plot([curve.found] * 2, [0.0, _CERTAINTY], color=colour, linewidth=0.9, zorder=2)
            axes.plot([curve.found], [_CERTAINTY], "o", color=colour, markerfacecolor="white", zorder=4)
            axes.annotate(
                f"{curve.found:,.0f}",
                (curve.found, 0.0),
                xytext=(3, 4),
                textcoords="offset points",
                fontsize=7.5,
                color=colour,
                fontweight="bold",
            )
    if forecast.given is not None and forecast.given is not forecast.together:
        label = f"together, expecting {forecast.question.patients:,}"
        axes.plot(forecast.given.patients, forecast.given.kept.mean, color=COLOURS[3], linestyle=DASHES[3], label=label)
    least = min(float(curve.patients[0]) for curve in forecast.ways.values())
    axes.set_xlim(max(least, last / 3000.0), last)


def _fewest(axes: "Axes", patients: float) -> None:
    """Mark the lower bound: to the left of it nothing can cross the line."""
    axes.axvspan(1e-9, patients, color="0.5", alpha=0.1, linewidth=0)
    axes.annotate(
        f"no method reaches 95 %\nwith fewer than {patients:,.0f},\neven without privacy",
        (patients, 0.92),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=7,
        color="0.3",
    )


def _days_above(axes: "Axes", patients_per_day: float) -> None:
    def days(patients: Any) -> Any:
        return patients / patients_per_day

    def patients(days: Any) -> Any:
        return days * patients_per_day

    above = axes.secondary_xaxis("top", functions=(days, patients))
    low, high = axes.get_xlim()
    _plain_ticks(above.xaxis, (days(low), days(high)))
    above.set_xlabel(f"days at {patients_per_day:g} patients per site and day")


def _plain_ticks(axis: "Axis", limits: tuple[float, float]) -> None:
    """Numbers as people write them; 1, 2 and 5 of every power of ten where there are few powers."""
    few = log10(limits[1] / limits[0]) < 3.5
    axis.set_major_locator(LogLocator(10.0, (1.0, 2.0, 5.0) if few else (1.0,), numticks=30))
    axis.set_major_formatter(FuncFormatter(_plainly))
    axis.set_minor_formatter(NullFormatter())


def _plainly(x: float, _: object) -> str:
    return f"{x:,.0f}" if x >= 1.0 else f"{x:g}"
