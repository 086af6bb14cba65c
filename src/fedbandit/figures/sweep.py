"""Draws figures of sweeps: final regret against the swept parameters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from fedbandit.figures.regret import (
    COLOURS,
    DASHES,
    MARKERS,
    Band,
    ShownFigure,
    about_band,
    checked_band,
    columns_in,
    drawing,
    finish,
    limits,
    plain_text,
)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

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

_GRAPHS_TEXT = "graph, by its $\\lambda_2$ (1: slowest)"
_MOST_GRAPHS = 6  # whose names fit below the axis
_TOO_CLOSE = 0.06  # of the axis: names of graphs would touch
_MOST_IN_ONE = 16  # curves and lines in one legend for all panels

_LINE, _LABEL_OF_AXIS, _LETTER = 0.16, 0.4, 0.06
"""Inches: a line of a legend, the room for numbers and label of an axis, the width of a letter."""

_NAMES = ("seed", "problem_seed")  # numbers, but not quantities: no line joins them

_REFERENCES = {"pooled": "everything pooled", "alone": "each alone"}
"""Policies without gossip, by how they know the averages: what to compare the others with."""


# The two cases of a true-or-false sweep, in words.
_CASES = {"same_means": {True: "all agents see the same means", False: "each agent sees its own means"}}


def sweep_figure(
    table: "xr.Dataset",
    band: Band = "standard error",
    title: str | None = None,
    ax: "Axes | Sequence[Axes] | None" = None,
) -> Figure:
    """Final regret against each swept parameter, a panel each: mean over trials, and the ``band`` over trials as a bar.

    ``table`` comes from ``fedbandit.experiments.sweep.sweep_table``. Graphs are shown at their lambda_2, and named if
    they are few. What is drawn alike in two panels is the same, and one legend tells it; where there are too many
    curves for that, each panel has its own. A sweep of one non-numeric parameter becomes a row of points per policy.
    Policies that pool everything, or work alone, become horizontal lines where the swept parameter does not change
    them. ``ax``: your own axes to draw into, in your own style, one for each panel.
    """
    rows = _sweep_rows(table, checked_band(band))
    heading = str(table.attrs["name"]) if title is None else title
    bars = about_band(band, table.sizes["trial"], "bars")
    if table.attrs["swept"] in _CASES:
        return _cases_figure(rows, str(table.attrs["swept"]), heading, bars, ax)
    axes_names = ["lambda2" if name == "graph" else name for name in table.attrs["swept"].split()]
    if rows["epsilon"].replace(np.inf, np.nan).nunique() > 1:
        axes_names.append("epsilon")
    axes_names = [name for name in axes_names if rows[name].dtype.kind in "iuf"] or axes_names  # texts label curves
    size = max(5.4, 3.4 * len(axes_names)), 3.4
    with drawing(size, len(axes_names), ax) as (figure, panels):
        contents = [_content(rows, name, table.attrs["swept"].split()) for name in axes_names]
        labels = list(dict.fromkeys(label for content in contents for label, _ in content.curves))
        lines = list(dict.fromkeys(label for content in contents for label, _ in content.references))
        in_one = len(labels) + len(lines) <= _MOST_IN_ONE
        for axes, name, content in zip(panels, axes_names, contents, strict=True):
            if not in_one:
                labels, lines = [label for label, _ in content.curves], [label for label, _ in content.references]
            _draw_panel(axes, name, content, labels, lines)
            _scale(axes, rows, name)
        panels[0].set_ylabel("final regret, mean per agent")
        _legends(figure, panels, f"{plain_text(heading)}\n{bars}", in_one)
    return figure


def _sweep_rows(table: "xr.Dataset", band: Band) -> "pd.DataFrame":
    """A row per run and policy: mean, how far the band goes below and above it, and all coordinates."""
    regret = table["regret"].transpose("trial", "run", "policy")
    low, high = limits(regret.values, band)
    both = regret.mean("trial").rename("mean").to_dataset()
    both["below"], both["above"] = both["mean"] - low, high - both["mean"]
    return both.to_dataframe().reset_index()


class _Content(NamedTuple):
    """What a panel shows, with labels: curves, and the regret of policies that the swept value does not change."""

    curves: "list[tuple[str, pd.DataFrame]]"
    references: list[tuple[str, float]]


def _content(rows: "pd.DataFrame", name: str, swept: list[str]) -> _Content:
    """Curves join points that differ only in ``name``."""
    others = [other for other in swept if other != name and (name != "lambda2" or other != "graph")]
    keys = ["policy", *(key for key in others if rows[key].nunique() > 1)]
    curves: list[tuple[str, pd.DataFrame]] = []
    references: list[tuple[str, float]] = []
    for _, of_policy in rows.groupby("policy", sort=False):
        known = _REFERENCES.get(str(of_policy["network"].iloc[0]))
        its_keys = _that_matter(of_policy, keys) if known else keys
        for key, curve in of_policy.groupby(its_keys, sort=False):
            if known and _is_constant(curve):
                references.append((f"{_label(its_keys, key)} ({known})", float(curve["mean"].iloc[0])))
            elif name != "epsilon":
                curves.append((_label(its_keys, key), curve))
    if name == "epsilon":  # joins policies
        keys[0] = "family"
        private = rows[np.isfinite(rows["epsilon"])]
        curves = [(_label(keys, key), curve) for key, curve in private.groupby(keys, sort=False)]
    return _Content(curves, references)


def _that_matter(of_policy: "pd.DataFrame", keys: list[str]) -> list[str]:
    """The keys without those that never change the regret of this policy, if all else is fixed."""
    for key in keys[1:]:
        fewer = [other for other in keys if other != key]
        if all(_is_constant(group) for _, group in of_policy.groupby(fewer, sort=False)):
            keys = fewer
    return keys


def _draw_panel(axes: "Axes", name: str, content: _Content, labels: list[str], lines: list[str]) -> None:
    """How a curve looks is its place among the labels."""
    for label, curve in content.curves:
        _draw_curve(axes, curve.sort_values(name), name, label, labels.index(label))
    for label, mean in content.references:
        dash = DASHES[1 + lines.index(label) % (len(DASHES) - 1)]
        axes.axhline(mean, color="0.45", linewidth=1.0, linestyle=dash, label=plain_text(label), zorder=1)


def _scale(axes: "Axes", rows: "pd.DataFrame", name: str) -> None:
    from matplotlib.ticker import MaxNLocator

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
    if name == "lambda2":
        _name_graphs(axes, rows)


def _name_graphs(axes: "Axes", rows: "pd.DataFrame") -> None:
    """Ticks at the graphs, with their names and lambda_2, if they are few; who lie together share a tick."""
    known = rows[np.isfinite(rows["lambda2"])]
    sizes = known["num_agents"].nunique() > 1
    places: dict[str, float] = {}
    for graph, agents, lambda2 in zip(known["graph"], known["num_agents"], known["lambda2"], strict=True):
        places[f"{graph}:{agents}" if sizes and ":" not in graph else str(graph)] = float(lambda2)
    if not 0 < len(places) <= _MOST_GRAPHS:
        return
    width = max(places.values()) - min(places.values())
    ticks: list[tuple[float, list[str]]] = []
    for graph, lambda2 in sorted(places.items(), key=lambda place: place[1]):
        if ticks and lambda2 - ticks[-1][0] <= _TOO_CLOSE * width:
            ticks[-1][1].append(graph)
        else:
            ticks.append((lambda2, [graph]))
    texts = [plain_text(f"{', '.join(graphs)} ({lambda2:.2g})") for lambda2, graphs in ticks]
    axes.set_xticks([lambda2 for lambda2, _ in ticks], texts, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_xlabel(_GRAPHS_TEXT)


def _legends(figure: Figure, panels: "list[Axes]", heading: str, in_one: bool) -> None:
    """The heading, and legends below the panels of our own figure, which grows with them."""
    from matplotlib.transforms import ScaledTranslation

    told: list[dict[str, Any]] = [
        dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)) for axes in panels
    ]
    width, height = figure.get_size_inches()
    if in_one:
        labels = {label for each in told for label in each}
        columns = columns_in(width, labels)
        finish(figure, panels, heading, columns)
        if isinstance(figure, ShownFigure):
            figure.set_size_inches(width, height + _LINE * -(-len(labels) // columns))
        return
    if not isinstance(figure, ShownFigure):
        panels[0].set_title(heading)
        for axes in panels:
            axes.legend()
        return
    figure.suptitle(heading, fontsize=8)
    for axes, labels in zip(panels, told, strict=True):
        room = _LABEL_OF_AXIS
        if axes.get_xlabel() == _GRAPHS_TEXT:  # at an angle of 30 degrees
            room += 0.5 * _LETTER * max(len(text.get_text()) for text in axes.get_xticklabels())
        below = axes.transAxes + ScaledTranslation(0.0, -room, figure.dpi_scale_trans)
        axes.legend(
            labels.values(),
            labels.keys(),
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            bbox_transform=below,
            frameon=False,
            fontsize=6.5,
        )
    figure.set_size_inches(width, height + _LINE * max(map(len, told)))


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


def _cases_figure(rows: "pd.DataFrame", swept: str, heading: str, bars: str, ax: Any) -> Figure:
    """A row per policy, a point per case, on a log axis; policies in the order of their worst regret."""
    order = list(rows.groupby("policy")["mean"].max().sort_values(ascending=False).index)
    with drawing((7.0, 1.2 + 0.27 * len(order)), ax=ax) as (figure, (axes,)):
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
        finish(figure, [axes], plain_text(heading), columns=2)
    return figure
