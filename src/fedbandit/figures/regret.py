"""Draws figures of one result, and has what all figures share: colours, bands over trials, pictures for notebooks.

Curves differ in colour, dash and marker, so they remain distinguishable in black and white and for the
colour-blind (colours: Okabe and Ito 2008).
"""

import io
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from math import atan, cos, pi, sin, sqrt
from typing import TYPE_CHECKING, Any, Literal, get_args

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, closest

if TYPE_CHECKING:
    from fedbandit.simulation.result import Result


# ---------------------------------------------------------------- style


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1.5, 2)), (0, (2.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P")  # 7 colours, 5 dashes, 6 markers: 210 different curves
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "figure.dpi": 150,
    "savefig.dpi": 200,
}


def plain_text(text: str) -> str:
    """Escape a label: otherwise ``$`` begins a formula and a leading ``_`` hides a curve from the legend."""
    return f"\u200b{text}".replace("$", r"\$") if text.startswith("_") else text.replace("$", r"\$")


# ---------------------------------------------------------------- where to draw


_CSS_PIXELS = 96  # per inch


class ShownFigure(Figure):
    """A figure of matplotlib with a picture for notebooks."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture and its size on the page: sharp also on screens with more pixels."""
        written = io.BytesIO()
        self.savefig(written, format="png", dpi=2 * _CSS_PIXELS)
        width, height = (int(_CSS_PIXELS * inches) for inches in self.get_size_inches())
        return written.getvalue(), {"width": width, "height": height}


@contextmanager
def drawing(size: tuple[float, float], panels: int = 1, ax: Any = None) -> Generator[tuple[Figure, list[Axes]]]:
    """A figure of our own in our style, and its panels beside each other; or the caller's axes, in the caller's style.

    ``ax``: axes of matplotlib, or a sequence with as many as there are panels.
    """
    if ax is None:
        with mpl.rc_context(STYLE):
            figure = ShownFigure(figsize=size, layout="constrained")
            yield figure, list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])
        return
    given: list[Any] = [ax] if isinstance(ax, Axes) else list(ax) if hasattr(ax, "__iter__") else []
    if len(given) != panels or not all(isinstance(each, Axes) for each in given):
        accepted = "axes of matplotlib" if panels == 1 else f"a list of {panels} axes of matplotlib, one for each panel"
        raise InvalidArgument("ax", ax, accepted)
    figure = given[0].figure
    while not isinstance(figure, Figure):  # axes of a subfigure
        figure = figure.figure
    yield figure, given


def finish(figure: Figure, panels: list[Axes], heading: str, columns: int = 3, **legend: Any) -> None:
    """The heading and one legend for all panels: around a figure of our own, else inside the caller's axes."""
    handles = {label: each for axes in panels for each, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if isinstance(figure, ShownFigure):
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns, "frameon": False}
        figure.legend(handles.values(), handles.keys(), **place, **legend)
        figure.suptitle(heading, fontsize=8)
    else:
        panels[0].set_title(heading)
        panels[-1].legend(handles.values(), handles.keys(), **legend)


def columns_in(width: float, labels: Iterable[str]) -> int:
    """As many columns of a legend as fit."""
    lengths = [len(label) for label in labels]
    return min(len(lengths), max(1, int(15 * width / (max(lengths) + 8))))


# ---------------------------------------------------------------- bands over trials


Band = Literal["minmax", "quantiles", "standard error", "confidence", "none"]

_TEXTS = {
    "minmax": "smallest to largest of {trials} trials",
    "quantiles": "10 % to 90 % of {trials} trials",
    "standard error": "standard error of the mean of {trials} trials",
    "confidence": "95 % confidence interval of the mean of {trials} trials",
}


def checked_band(band: Any) -> Band:
    """The band, or an error."""
    known = get_args(Band)
    if band not in known:
        raise InvalidArgument("band", band, f"one of {', '.join(known)}", closest(str(band), known))
    return band


def about_band(band: Band, trials: int, name: str = "band") -> str:
    """A caption: what the band spans."""
    if band == "none":
        return f"{trials} trials"
    return f"{name}: {_TEXTS[band].format(trials=trials)}" if trials > 1 else f"one trial, no {name}"


def limits(per_trial: Any, band: Band) -> tuple[Any, Any]:
    """The lower and the upper end, over the first axis."""
    if band == "minmax":
        return per_trial.min(axis=0), per_trial.max(axis=0)
    if band == "quantiles":
        return np.quantile(per_trial, 0.1, axis=0), np.quantile(per_trial, 0.9, axis=0)
    trials, mean = len(per_trial), per_trial.mean(axis=0)
    if band == "none" or trials == 1:
        return mean, mean
    error = per_trial.std(axis=0, ddof=1) / sqrt(trials) * (1.0 if band == "standard error" else _student(trials - 1))
    return mean - error, mean + error


def _student(freedom: int) -> float:
    """So many standard errors on either side hold 95 %: Student's distribution, by bisection."""
    freedom = min(freedom, 1_000)  # from there on it changes by less than 0.2 %
    low, high = 1.9, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| < t) with whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    theta = atan(t / sqrt(freedom))
    odd = freedom % 2
    term = cos(theta) if odd else 1.0
    total = 0.0
    for k in range(odd, freedom - 1, 2):  # powers of the cosine
        total += term
        term *= cos(theta) ** 2 * (k + 1) / (k + 2)
    return 2 / pi * (theta + sin(theta) * total) if odd else sin(theta) * total


# ---------------------------------------------------------------- figures of a result


Scale = Literal["linear", "log", "both"]
RegretScale = Literal["linear", "log", "auto"]


def regret_figure(
    result: "Result",
    band: Band = "minmax",
    scale: Scale = "both",
    title: str | None = None,
    regret: RegretScale = "auto",
    ax: Axes | Sequence[Axes] | None = None,
) -> Figure:
    """Mean cumulative regret per agent over time, a curve per policy, averaged over trials and agents.

    ``band`` is over trials (of the mean over agents): ``minmax`` as in the paper, 10-90 % ``quantiles``, ``standard
    error`` or 95 % ``confidence`` interval of the mean, or ``none``. ``scale`` is that of the time axis; ``both`` draws
    two panels: on a log axis a logarithmic regret is a straight line. ``regret`` is the scale of the regret axis;
    ``auto`` uses a logarithmic one if policies end more than a hundred times apart, and then draws one panel.
    ``ax``: your own axes to draw into, in your own style; two for two panels. On one of them ``both`` is ``linear``.
    """
    band = checked_band(band)
    if scale not in ("linear", "log", "both"):
        raise InvalidArgument("scale", scale, "one of linear, log, both")
    if regret not in ("linear", "log", "auto"):
        raise InvalidArgument("regret", regret, "one of linear, log, auto")
    last = result.mean_regret.isel(time=-1).mean("trial").values
    are_far_apart = bool(last.max() > 100.0 * max(float(last.min()), 1.0))
    logarithmic = regret == "log" or (regret == "auto" and are_far_apart)
    scales: tuple[str, ...] = (scale,)
    if scale == "both":
        scales = ("log",) if logarithmic else ("linear",) if isinstance(ax, Axes) else ("linear", "log")
    size = (7.0, 5.2) if logarithmic else (3.5 * len(scales), 3.3)
    with drawing(size, len(scales), ax) as (figure, panels):
        for axes, axis_scale in zip(panels, scales, strict=True):
            _regret_panel(axes, result, band, axis_scale)
            if logarithmic:
                axes.set_yscale("log")
                axes.set_ylim(bottom=1.0, top=None)
        panels[0].set_ylabel("cumulative regret, mean per agent")
        caption = about_band(band, result.dataset.sizes["trial"])
        heading = f"{plain_text(title)}\n{caption}" if title else caption
        finish(figure, panels, heading, columns_in(size[0], map(plain_text, result.policies)), handlelength=3.2)
    return figure


def _regret_panel(axes: Axes, result: "Result", band: Band, scale: str) -> None:
    from matplotlib.ticker import EngFormatter

    times = result.dataset["time"].values
    for position, label in enumerate(result.policies):
        per_trial = result.mean_regret.sel(policy=label).transpose("trial", "time").values
        colour = COLOURS[position % len(COLOURS)]
        axes.plot(
            times,
            per_trial.mean(axis=0),
            color=colour,
            linestyle=DASHES[position % len(DASHES)],
            marker=MARKERS[position % len(MARKERS)],
            markevery=_marks(times, scale, position, len(result.policies)),
            markerfacecolor="white",
            markeredgewidth=0.9,
            label=plain_text(label),
            zorder=3,
        )
        if band != "none" and len(per_trial) > 1:
            low, high = limits(per_trial, band)
            axes.fill_between(times, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.set_xscale(scale)
    axes.set_xlabel("round t" if scale == "linear" else "round t (log scale)")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0 if scale == "linear" else min(times[0], 0.9 * times[-1]), times[-1])
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    if scale == "linear":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _marks(times: Any, scale: str, position: int, curves: int) -> list[int]:
    """Marker positions of a curve: evenly spaced on the axis, shifted from curve to curve."""
    fractions = (np.arange(6) + (position + 0.5) / curves) / 6
    at = fractions * times[-1] if scale == "linear" else times[-1] ** fractions
    return sorted({int(index) for index in times.searchsorted(at) if index < len(times)})


def agents_figure(result: "Result", title: str | None = None, ax: Axes | None = None) -> Figure:
    """Final regret per own pull of each agent, a column of points per agent: who pays when rates differ.

    A bar spans the 10 % to 90 % quantiles over trials; the point is the mean over all pulls. ``ax``: your own axes to
    draw into, in your own style.
    """
    table = result.by_agent()
    last = result.dataset.isel(time=-1)
    own = last["pulls"].sum("arm") - last.sizes["arm"]
    per_pull = (last["regret"] / own.where(own > 0)).transpose("policy", "agent", "trial").values
    rates = table["rate"].to_numpy()[: last.sizes["agent"]]
    order = np.argsort(-rates, kind="stable")  # fast agents first
    names = [
        plain_text(agent) if isinstance(agent, str) else f"agent {agent}" for agent in last["agent"].values.tolist()
    ]
    with drawing((7.0, 4.0), ax=ax) as (figure, (axes,)):
        for position, label in enumerate(result.policies):
            x = np.arange(len(order)) + 0.7 * ((position + 0.5) / len(result.policies) - 0.5)
            mean = table.loc[label]["regret_per_pull"].to_numpy()[order]
            spread: NDArray[np.float64] = per_pull[position][order]  # NaN: the agent never acted
            low, high = np.quantile(np.where(np.isnan(spread), mean[:, None], spread), [0.1, 0.9], axis=1)
            colour = COLOURS[position % len(COLOURS)]
            axes.vlines(x, low, high, color=colour, linewidth=1.0, alpha=0.7)
            marker = MARKERS[position % len(MARKERS)]
            axes.plot(x, mean, marker, color=colour, markerfacecolor="white", label=plain_text(label))
        axes.set_yscale("log")
        axes.set_ylabel("regret per own pull")
        axes.set_xticks(range(len(order)), [f"{names[i]}\nrate {rates[i]:g}" for i in order])
        axes.grid(visible=False, axis="x")
        caption = f"after {int(result.dataset['time'][-1]):,} rounds; bar: 10 % to 90 % of {last.sizes['trial']} trials"
        finish(figure, [axes], f"{plain_text(title)}\n{caption}" if title else caption)
    return figure
