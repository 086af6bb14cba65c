"""Draws figures of sweeps: final regret against the swept parameters."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from fedbandit.figures.bands import Band, about_band, checked_band, limits
from fedbandit.figures.regret import COLOURS, DASHES, MARKERS, STYLE, plain_text
from fedbandit.figures.shown import ShownFigure

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
    "seed": "seed of the trials",
    "problem_seed": "seed of the means",
}

_NAMES = ("seed", "problem_seed")  # numbers, but not quantities: no line joins them

_REFERENCES = {"pooled": "everything pooled", "alone": "each alone"}
"""Policies without gossip, by how they know the averages: what to compare the others with."""


# The two cases of a true-or-false sweep, in words.
_CASES = {"same_means": {True: "all agents see the same means", False: "each agent sees its own means"}}


def sweep_figure(table: "xr.Dataset", band: Band = "standard error", title: str | None = None) -> Figure:
    """Final regret against each swept parameter, a panel each: mean over trials, and the ``band`` over trials as a bar.

    ``table`` comes from ``fedbandit.experiments.sweep.sweep_table``. Graphs are shown by their lambda_2. A sweep of one
    non-numeric parameter becomes a row of points per policy. Policies that pool everything, or work alone, become
    horizontal lines where the swept parameter does not change them.
    """
    import matplotlib as mpl

    rows = _sweep_rows(table, checked_band(band))
    heading = str(table.attrs["name"]) if title is None else title
    bars = about_band(band, table.sizes["trial"], "bars")
    if table.attrs["swept"] in _CASES:
        return _cases_figure(rows, str(table.attrs["swept"]), heading, bars)
    axes_names = ["lambda2" if name == "graph" else name for name in table.attrs["swept"].split()]
    if rows["epsilon"].replace(np.inf, np.nan).nunique() > 1:
        axes_names.append("epsilon")
    axes_names = [name for name in axes_names if rows[name].dtype.kind in "iuf"] or axes_names  # texts label curves
    with mpl.rc_context(STYLE):
        figure = ShownFigure(figsize=(max(5.4, 3.4 * len(axes_names)), 5.2), layout="constrained")
        panels = figure.subplots(1, len(axes_names), sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, axes_names, strict=True):
            _sweep_panel(axes, rows, name, [other for other in table.attrs["swept"].split() if other != name])
        panels[0].set_ylabel("final regret, mean per agent")
        figure.suptitle(f"{plain_text(heading)}\n{bars}", fontsize=8)
    return figure


def _sweep_rows(table: "xr.Dataset", band: Band) -> "pd.DataFrame":
    """A row per run and policy: mean, how far the band goes below and above it, and all coordinates."""
    regret = table["regret"].transpose("trial", "run", "policy")
    low, high = limits(regret.values, band)
    both = regret.mean("trial").rename("mean").to_dataset()
    both["below"], both["above"] = both["mean"] - low, high - both["mean"]
    rows = both.to_dataframe().reset_index()
    return rows if "network" in rows else rows.assign(network="")  # tables of earlier versions


def _sweep_panel(axes: "Axes", rows: "pd.DataFrame", name: str, others: list[str]) -> None:
    """Curves join points that differ only in ``name``."""
    from matplotlib.ticker import MaxNLocator

    keys = ["policy", *(other for other in others if name != "lambda2" or other != "graph")]
    keys = [keys[0], *(key for key in keys[1:] if rows[key].nunique() > 1)]
    curves: list[tuple[str, pd.DataFrame]] = []
    references: list[tuple[str, float]] = []
    for policy, of_policy in rows.groupby("policy", sort=False):
        known = _REFERENCES.get(str(of_policy["network"].iloc[0]))
        if known and _is_constant(of_policy):
            references.append((f"{policy} ({known})", float(of_policy["mean"].iloc[0])))
            continue
        for key, curve in of_policy.groupby(keys, sort=False):
            if known and _is_constant(curve):
                references.append((f"{_label(keys, key)} ({known})", float(curve["mean"].iloc[0])))
            elif name != "epsilon":
                curves.append((_label(keys, key), curve))
    if name == "epsilon":  # joins policies
        keys[0] = "family"
        private = rows[np.isfinite(rows["epsilon"])]
        curves = [(_label(keys, key), curve) for key, curve in private.groupby(keys, sort=False)]
    for position, (label, curve) in enumerate(curves):
        _draw_curve(axes, curve.sort_values(name), name, label, position)
    for position, (label, mean) in enumerate(references):
        dash = DASHES[1 + position % (len(DASHES) - 1)]
        axes.axhline(mean, color="0.45", linewidth=1.0, linestyle=dash, label=plain_text(label), zorder=1)
    axes.set_xlabel(_AXIS_TEXT.get(name, name))
    axes.set_yscale("log")
    if name in ("epsilon", "horizon"):
        axes.set_xscale("log")
    elif rows[name].dtype.kind in "iu":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # there is no seed 1.5, and no half agent
    values = np.unique(rows.loc[np.isfinite(rows["epsilon"]), "epsilon"])
    if name == "epsilon" and len(values) <= 8:
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
    if name == "reward_window":
        smallest = rows.loc[rows[name] > 0, name].min()
        linear = smallest if smallest > 0 else 1
        axes.set_xscale("symlog", linthresh=linear, linscale=0.5)
        axes.set_xlim(left=-0.3 * linear)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=6.5)


def _is_constant(curve: "pd.DataFrame") -> bool:
    means = curve["mean"].to_numpy()
    return bool(np.ptp(means) <= 1e-9 * means.max())


def _label(keys: list[str], values: Any) -> str:
    texts = [str(value) for value in values]
    return ", ".join([texts[0], *(f"{key}={text}" for key, text in zip(keys[1:], texts[1:], strict=True))])


def _draw_curve(axes: "Axes", curve: "pd.DataFrame", name: str, label: str, position: int) -> None:
    style: dict[str, Any] = {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": "none" if name in _NAMES else DASHES[position // len(COLOURS) % len(DASHES)],
        "marker": MARKERS[position % len(MARKERS)],
        "markerfacecolor": "white",
        "capsize": 2,
    }
    # No window is another rule, not a short one.
    apart = (curve[name] == 0).to_numpy() & (name == "reward_window")
    for part, said in ((curve[~apart], plain_text(label)), (curve[apart], None)):
        if len(part):
            bars = part[["below", "above"]].to_numpy().T
            axes.errorbar(part[name].to_numpy(), part["mean"].to_numpy(), yerr=bars, label=said, **style)


def _cases_figure(rows: "pd.DataFrame", swept: str, heading: str, bars: str) -> Figure:
    """A row per policy, a point per case, on a log axis; policies in the order of their worst regret."""
    import matplotlib as mpl

    order = list(rows.groupby("policy")["mean"].max().sort_values(ascending=False).index)
    with mpl.rc_context(STYLE):
        figure = ShownFigure(figsize=(7.0, 1.2 + 0.27 * len(order)), layout="constrained")
        axes = figure.subplots()
        for position, (case, points) in enumerate(rows.groupby(swept, sort=False)):
            placed = points.set_index("policy").loc[order]
            axes.errorbar(
                placed["mean"].to_numpy(),
                np.arange(len(order)) + 0.16 * (position - 0.5),
                xerr=placed[["below", "above"]].to_numpy().T,
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
        axes.set_xlabel(f"final regret, mean per agent; {bars}")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        figure.suptitle(plain_text(heading), fontsize=8)
    return figure
