"""Figures. Here belongs how things look, and nothing that computes a result.

Curves differ in colour, dash and marker, so that they can be told apart in black and white and by the
colour-blind (colours: Okabe and Ito 2008).
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.figure import Figure

from fedbandit.checks import InvalidArgument

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

    from fedbandit.simulation.result import Result

__all__ = ["Band", "Scale", "regret_figure", "sweep_figure"]

Band = Literal["minmax", "quantiles", "none"]
Scale = Literal["linear", "log", "both"]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1.5, 2)), (0, (2.5, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P")  # 7 colours, 5 dashes, 6 markers: 210 different curves
_BAND_TEXT = {
    "minmax": "band: smallest to largest of {trials} trials",
    "quantiles": "band: 10 % to 90 % of {trials} trials",
    "none": "{trials} trials",
}

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


def regret_figure(result: "Result", band: Band = "minmax", scale: Scale = "both", title: str | None = None) -> Figure:
    """Mean cumulative regret per agent over time, a curve per policy, averaged over trials and agents.

    ``band`` is over trials (of the mean over agents): ``minmax`` as in the paper, 10-90 % ``quantiles``, or
    ``none``. ``scale`` is that of the time axis; ``both`` puts two panels side by side: on a log axis a
    logarithmic regret is a straight line.
    """
    import matplotlib as mpl

    if band not in _BAND_TEXT:
        raise InvalidArgument("band", band, f"one of {', '.join(_BAND_TEXT)}")
    if scale not in ("linear", "log", "both"):
        raise InvalidArgument("scale", scale, "one of linear, log, both")
    scales = ("linear", "log") if scale == "both" else (scale,)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.5 * len(scales), 3.3), layout="constrained")
        panels = figure.subplots(1, len(scales), sharey=True, squeeze=False)[0]
        for axes, axis_scale in zip(panels, scales, strict=True):
            _regret_panel(axes, result, band, axis_scale)
        panels[0].set_ylabel("cumulative regret, mean per agent")
        handles, labels = panels[0].get_legend_handles_labels()
        columns = min(len(labels), 3 * len(scales) - 1)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2)
        caption = _BAND_TEXT[band].format(trials=result.dataset.sizes["trial"])
        figure.suptitle(f"{_plain_text(title)}\n{caption}" if title else caption, fontsize=8)
    return figure


def _plain_text(text: str) -> str:
    """A label as it is: without this, ``$`` begins a formula and a leading ``_`` hides a curve from the legend."""
    return f"\u200b{text}".replace("$", r"\$") if text.startswith("_") else text.replace("$", r"\$")


def _regret_panel(axes: "Axes", result: "Result", band: Band, scale: str) -> None:
    from matplotlib.ticker import EngFormatter

    times = result.dataset["time"].values
    for position, label in enumerate(result.policies):
        per_trial = result.regret.sel(policy=label).mean("agent").transpose("trial", "time").values
        colour = _COLOURS[position % len(_COLOURS)]
        axes.plot(
            times,
            per_trial.mean(axis=0),
            color=colour,
            linestyle=_DASHES[position % len(_DASHES)],
            marker=_MARKERS[position % len(_MARKERS)],
            markevery=_marks(times, scale, position, len(result.policies)),
            markerfacecolor="white",
            markeredgewidth=0.9,
            label=_plain_text(label),
            zorder=3,
        )
        if band != "none":
            low, high = _limits(per_trial, band)
            axes.fill_between(times, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.set_xscale(scale)
    axes.set_xlabel("round t" if scale == "linear" else "round t (log scale)")
    axes.set_ylim(bottom=0)
    axes.set_xlim(0 if scale == "linear" else min(times[0], 0.9 * times[-1]), times[-1])
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    if scale == "linear":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _limits(per_trial: Any, band: Band) -> tuple[Any, Any]:
    if band == "minmax":
        return per_trial.min(axis=0), per_trial.max(axis=0)
    return np.quantile(per_trial, 0.1, axis=0), np.quantile(per_trial, 0.9, axis=0)


def _marks(times: Any, scale: str, position: int, curves: int) -> list[int]:
    """Where a curve has its markers: evenly on the axis, shifted from curve to curve."""
    fractions = (np.arange(6) + (position + 0.5) / curves) / 6
    at = fractions * times[-1] if scale == "linear" else times[-1] ** fractions
    return sorted({int(index) for index in times.searchsorted(at) if index < len(times)})


_AXIS_TEXT = {
    "lambda2": "$\\lambda_2$ of the graph (1: slowest)",
    "num_agents": "number of agents N",
    "num_arms": "number of arms M",
    "epsilon": "privacy $\\varepsilon$ of one reward",
    "horizon": "rounds T",
}


def sweep_figure(table: "xr.Dataset") -> Figure:
    """Final regret against each swept parameter, a panel each: mean over trials with its standard error.

    ``table`` is that of ``fedbandit.simulation.sweep.sweep_table``. Graphs are shown by their lambda_2.
    """
    import matplotlib as mpl

    rows = _sweep_rows(table)
    axes_names = ["lambda2" if name == "graph" else name for name in table.attrs["swept"].split()]
    if rows["epsilon"].replace(np.inf, np.nan).nunique() > 1:
        axes_names.append("epsilon")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(4.2, 3.4 * len(axes_names)), 5.2), layout="constrained")
        panels = figure.subplots(1, len(axes_names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, axes_names, strict=True):
            _sweep_panel(axes, rows, name, [other for other in table.attrs["swept"].split() if other != name])
        panels[0].set_ylabel("final regret, mean per agent")
        trials = table.sizes["trial"]
        bars = f"bars: standard error over {trials} trials" if trials > 1 else "one trial, no error bars"
        figure.suptitle(f"{_plain_text(table.attrs['name'])}\n{bars}", fontsize=8)
    return figure


def _sweep_rows(table: "xr.Dataset") -> "pd.DataFrame":
    """A row per run and policy: mean, standard error and all coordinates."""
    regret = table["regret"]
    both = regret.mean("trial").rename("mean").to_dataset()
    trials = table.sizes["trial"]
    both["error"] = (
        regret.std("trial", ddof=1) / np.sqrt(trials) if trials > 1 else 0.0 * regret.isel(trial=0, drop=True)
    )
    return both.to_dataframe().reset_index()


def _sweep_panel(axes: "Axes", rows: "pd.DataFrame", name: str, others: list[str]) -> None:
    """Curves join points that differ in ``name`` alone."""
    if name == "epsilon":
        rows = rows[np.isfinite(rows["epsilon"])]
        keys = ["family", *others]
    elif name == "lambda2":
        keys = ["policy", *(other for other in others if other != "graph")]
    else:
        keys = ["policy", *others]
    for position, (key, curve) in enumerate(rows.groupby(keys, sort=False)):
        ordered = curve.sort_values(name)
        texts = [str(part) for part in key]
        axes.errorbar(
            ordered[name].to_numpy(),
            ordered["mean"].to_numpy(),
            yerr=ordered["error"].to_numpy(),
            color=_COLOURS[position % len(_COLOURS)],
            linestyle=_DASHES[position // len(_COLOURS) % len(_DASHES)],
            marker=_MARKERS[position % len(_MARKERS)],
            markerfacecolor="white",
            capsize=2,
            label=", ".join([texts[0], *(f"{other}={text}" for other, text in zip(keys[1:], texts[1:], strict=True))]),
        )
    axes.set_xlabel(_AXIS_TEXT.get(name, name))
    axes.set_yscale("log")
    if name in ("epsilon", "horizon"):
        axes.set_xscale("log")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=6.5)
