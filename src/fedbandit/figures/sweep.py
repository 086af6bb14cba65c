"""Draws figures of sweeps: final regret against the swept parameters."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from fedbandit.figures.regret import COLOURS, DASHES, MARKERS, STYLE, plain_text

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

__all__ = ["sweep_figure"]

_AXIS_TEXT = {
    "lambda2": "$\\lambda_2$ of the graph (1: slowest)",
    "num_agents": "number of agents N",
    "num_arms": "number of arms M",
    "epsilon": "privacy $\\varepsilon$ of one reward",
    "horizon": "rounds T",
    "reward_window": "reward window, in rounds (0: as rewards come)",
}


# The two cases of a true-or-false sweep, in words.
_CASES = {"same_means": {True: "all agents see the same means", False: "each agent sees its own means"}}


def sweep_figure(table: "xr.Dataset") -> Figure:
    """Final regret against each swept parameter, a panel each: mean over trials with its standard error.

    ``table`` comes from ``fedbandit.experiments.sweep.sweep_table``. Graphs are shown by their lambda_2. A sweep of one
    non-numeric parameter becomes a row of points per policy.
    """
    import matplotlib as mpl

    rows = _sweep_rows(table)
    if table.attrs["swept"] in _CASES:
        return _cases_figure(rows, table)
    axes_names = ["lambda2" if name == "graph" else name for name in table.attrs["swept"].split()]
    if rows["epsilon"].replace(np.inf, np.nan).nunique() > 1:
        axes_names.append("epsilon")
    axes_names = [name for name in axes_names if rows[name].dtype.kind in "iuf"] or axes_names  # texts label curves
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(5.4, 3.4 * len(axes_names)), 5.2), layout="constrained")
        panels = figure.subplots(1, len(axes_names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, axes_names, strict=True):
            _sweep_panel(axes, rows, name, [other for other in table.attrs["swept"].split() if other != name])
        panels[0].set_ylabel("final regret, mean per agent")
        trials = table.sizes["trial"]
        bars = f"bars: standard error over {trials} trials" if trials > 1 else "one trial, no error bars"
        figure.suptitle(f"{plain_text(table.attrs['name'])}\n{bars}", fontsize=8)
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
    """Curves join points that differ only in ``name``."""
    if name == "epsilon":
        rows = rows[np.isfinite(rows["epsilon"])]
        keys = ["family", *others]
    elif name == "lambda2":
        keys = ["policy", *(other for other in others if other != "graph")]
    else:
        keys = ["policy", *others]
    keys = [keys[0], *(key for key in keys[1:] if rows[key].nunique() > 1)]
    for position, (key, curve) in enumerate(rows.groupby(keys, sort=False)):
        ordered = curve.sort_values(name)
        texts = [str(part) for part in key]
        style: dict[str, Any] = {
            "color": COLOURS[position % len(COLOURS)],
            "linestyle": DASHES[position // len(COLOURS) % len(DASHES)],
            "marker": MARKERS[position % len(MARKERS)],
            "markerfacecolor": "white",
            "capsize": 2,
        }
        label = ", ".join([texts[0], *(f"{other}={text}" for other, text in zip(keys[1:], texts[1:], strict=True))])
        apart = (ordered[name] == 0).to_numpy() & (
            name == "reward_window"
        )  # no window is another rule, not a short one
        for part, said in ((ordered[~apart], label), (ordered[apart], None)):
            if len(part):
                axes.errorbar(
                    part[name].to_numpy(), part["mean"].to_numpy(), yerr=part["error"].to_numpy(), label=said, **style
                )
    axes.set_xlabel(_AXIS_TEXT.get(name, name))
    axes.set_yscale("log")
    if name in ("epsilon", "horizon"):
        axes.set_xscale("log")
    if name == "reward_window":
        smallest = rows.loc[rows[name] > 0, name].min()
        linear = smallest if smallest > 0 else 1
        axes.set_xscale("symlog", linthresh=linear, linscale=0.5)
        axes.set_xlim(left=-0.3 * linear)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=6.5)


def _cases_figure(rows: "pd.DataFrame", table: "xr.Dataset") -> Figure:
    """A row per policy, a point per case, on a log axis; policies in the order of their worst regret."""
    import matplotlib as mpl

    swept = str(table.attrs["swept"])
    order = list(rows.groupby("policy")["mean"].max().sort_values(ascending=False).index)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.0, 1.2 + 0.27 * len(order)), layout="constrained")
        axes = figure.subplots()
        for position, (case, points) in enumerate(rows.groupby(swept, sort=False)):
            placed = points.set_index("policy").loc[order]
            axes.errorbar(
                placed["mean"].to_numpy(),
                np.arange(len(order)) + 0.16 * (position - 0.5),
                xerr=placed["error"].to_numpy(),
                fmt=MARKERS[position],
                color=COLOURS[position],
                markerfacecolor="white",
                capsize=2,
                label=_CASES[swept][bool(case)],
            )
        for position, policy in enumerate(order):
            pair = rows.loc[rows["policy"] == policy, "mean"].to_numpy()
            axes.hlines(position, pair.min(), pair.max(), color="0.7", linewidth=0.8, zorder=1)
        axes.set_xscale("log")
        axes.set_yticks(range(len(order)), [plain_text(str(policy)) for policy in order])
        axes.invert_yaxis()
        axes.set_xlabel(f"final regret, mean per agent; bars: standard error over {table.sizes['trial']} trials")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        figure.suptitle(plain_text(table.attrs["name"]), fontsize=8)
    return figure
