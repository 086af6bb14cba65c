"""Draws the figure of ``fedbandit up``: what each site believes, alone and together, and its regret."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedbandit.figures.regret import COLOURS, DASHES, MARKERS, STYLE, plain_text
from fedbandit.local.report import numbers, regret_over_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedbandit.local.up import Run

__all__ = ["up_figure"]

SPREAD = 0.72
"""The share of an arm's column that its points occupy."""

CROWD = 100
"""Beyond this many, points are drawn smaller."""

NAMED = 21
"""With more sites than this the legend would be larger than the figure."""

POINTS = 500
"""The most points of a curve: more would not be visible."""


def up_figure(run: "Run") -> Figure:
    """Left: means of each arm by a site's own releases (hollow) and by gossip (filled). Right: regret over time."""
    import matplotlib as mpl

    found, setting = numbers(run), run.setting
    many_arms = len(found["true_means"]) > 8
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.35, 1.0))
        _beliefs(left, found, many_arms)
        _losses(right, run, found)
        _name_sites(figure, setting.names)
        figure.suptitle(
            plain_text(
                f"{setting.problem.graph.name}: {sum(site['patients'] for site in found['sites']):,} patients in "
                f"{run.seconds:.0f} s, epsilon {setting.epsilon:g} per reward"
            ),
            fontsize=9,
        )
    return figure


def _name_sites(figure: Figure, names: tuple[str, ...]) -> None:
    from matplotlib.lines import Line2D

    if len(names) > NAMED:
        return
    handles = [
        Line2D([], [], color=_colour(i), linestyle=DASHES[i % len(DASHES)], marker=MARKERS[i % len(MARKERS)])
        for i in range(len(names))
    ]
    columns = min(len(names), int(15 * figure.get_figwidth() / (max(map(len, names)) + 8)))  # as many as fit
    labels = [plain_text(name) for name in names]
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2)


def _colour(site: int) -> str:
    return COLOURS[site % len(COLOURS)]


def _beliefs(axes: "Axes", found: dict[str, Any], many_arms: bool) -> None:
    sites = found["sites"]
    count = len(found["true_means"])
    for k, mean in enumerate(found["true_means"].values()):
        axes.hlines(mean, k - 0.45, k + 0.45, color="0.35", linewidth=1.6, zorder=1)
    for i, site in enumerate(sites):
        x = np.arange(count) + SPREAD * ((i + 0.5) / len(sites) - 0.5)
        own, together = _column(found, site, "own_mean"), _column(found, site, "estimate")
        look: dict[str, Any] = {"color": _colour(i), "marker": MARKERS[i % len(MARKERS)], "linestyle": "none"}
        if count * len(sites) > CROWD:
            look |= {"markersize": 2.5, "markeredgewidth": 0.6}
        axes.vlines(x, own, together, color=_colour(i), linewidth=0.7, alpha=0.5, zorder=2)
        axes.plot(x, own, **look, markerfacecolor="white", zorder=3)
        axes.plot(x, together, **look, zorder=4)
    axes.set_xlim(-0.6, count - 0.4)
    names = [plain_text(name) for name in found["true_means"]]
    if many_arms:
        axes.set_xticks(range(count), names, rotation=90, fontsize=6)
    else:
        axes.set_xticks(range(count), [name.replace(" ", "\n", 1) if len(name) > 10 else name for name in names])
    for tick, name in zip(axes.get_xticklabels(), found["true_means"], strict=True):
        tick.set_fontweight("bold" if name == found["best_arm"] else "normal")
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("mean reward")
    axes.set_title("What each site believes (bold: best on average)")
    grey: dict[str, Any] = {"color": "0.35", "marker": "o", "linestyle": "none"}
    axes.plot([], [], **grey, markerfacecolor="white", label="own releases: noisy, may leave [0, 1]")
    axes.plot([], [], **grey, label="by gossip")
    axes.plot([], [], color="0.35", linewidth=1.6, label="true average")
    _explain(axes, 3)


def _column(found: dict[str, Any], site: dict[str, Any], key: str) -> NDArray[np.float64]:
    """A number of each arm at a site, which may know fewer of them or in another order; NaN where there is none."""
    known = {arm["name"]: arm[key] for arm in site["arms"]}
    return np.array([known.get(name) for name in found["true_means"]], dtype=np.float64)


def _explain(axes: "Axes", columns: int) -> None:
    """A legend below the panel, under its axis."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns, frameon=False)


def _losses(axes: "Axes", run: "Run", found: dict[str, Any]) -> None:
    for i in range(len(run.visits)):
        at, lost = regret_over_time(run, i)
        if not len(at):
            continue
        shown = np.unique(np.linspace(0, len(at) - 1, POINTS).astype(int))
        axes.plot(at[shown], lost[shown], color=_colour(i), linestyle=DASHES[i % len(DASHES)])
        axes.plot(at[-1], lost[-1], MARKERS[i % len(MARKERS)], color=_colour(i), clip_on=False, zorder=4)
    uniform = float(np.mean([site["regret_of_uniform_choice"] for site in found["sites"]]))
    random: dict[str, Any] = {"color": "0.55", "linestyle": (0, (4, 3)), "label": "if arms were given at random"}
    axes.plot([0.0, run.seconds], [0.0, uniform], **random, zorder=1)
    axes.set_xlim(0.0, max(run.seconds, 1e-3))
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("seconds", labelpad=1)
    axes.set_ylabel("successes lost against the best arm, per site")
    axes.set_title("What learning costs")
    _explain(axes, 1)
