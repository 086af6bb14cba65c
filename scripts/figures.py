"""Draws the figures of docs/concepts.md with the package, into docs/images.

    .venv/bin/python scripts/figures.py

Deterministic: seeds are fixed, and files carry no date. ``--quick`` plays few rounds, for a test; ``--into`` names
another folder. Figures have a white background, so they read alike in both themes of the site.
"""

import argparse
from collections.abc import Callable
from math import exp
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedbandit import CentralUCB, FedBatch, GossipUCB, LocalUCB, Problem, Tape, replay, simulate
from fedbandit.figures.regret import COLOURS, DASHES, STYLE
from fedbandit.rules.batch import default_first_batch, noise_scale
from fedbandit.world import graph

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SITES = ("north", "east", "south", "west")
ARMS = ("A", "B", "C")
MEANS = np.array(
    [
        [0.70, 0.28, 0.60],
        [0.25, 0.75, 0.60],
        [0.65, 0.35, 0.55],
        [0.32, 0.70, 0.57],
    ]
)
EPSILONS = (0.1, 0.5, 1.0, 3.0)


def problem() -> Problem:
    """The world of all these figures: four sites on a ring, none of which sees the best treatment by itself."""
    return Problem.bernoulli(MEANS, graph.ring(4))


def heterogeneous(quick: bool = False) -> Figure:
    """What each site sees of each arm, and the mean over all sites."""
    figure = Figure(figsize=(6.4, 2.9), layout="constrained")
    axes = figure.subplots()
    for i, site in enumerate(SITES):
        spots = np.arange(3) + 0.13 * (i - 1.5)
        axes.plot(spots, MEANS[i], "o", color=COLOURS[i], markersize=6, label=site)
        best = int(MEANS[i].argmax())
        axes.plot(spots[best], MEANS[i, best], "o", color=COLOURS[i], markersize=12, markerfacecolor="none")
    means = problem().arm_means
    axes.hlines(means, np.arange(3) - 0.36, np.arange(3) + 0.36, color="black", linewidth=2.2, label="all sites")
    for k, mean in enumerate(means):
        weight = "bold" if k == problem().best_arm else "normal"
        axes.text(k + 0.38, mean, f"{mean:.2f}", va="center", weight=weight)
    axes.set_xticks(range(3), [f"treatment {arm}" for arm in ARMS])
    axes.set_xlim(-0.6, 2.65)
    axes.set_ylim(0, 1)
    axes.set_ylabel("chance of success")
    axes.legend(ncols=5, loc="upper center", frameon=False)
    axes.grid(visible=False, axis="x")
    return figure


def played(quick: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Nine sites on a ring: what each believes of an arm, what its own rewards say, and the truth at each site."""
    sites, horizon = 9, 200 if quick else 4_000
    truth = np.column_stack([np.linspace(0.1, 0.9, sites), np.full(sites, 0.3)])
    tape = Tape.random(graph.ring(sites), num_arms=2, horizon=horizon, seed=4, means=truth)
    trace = replay(tape, GossipUCB())
    return trace.theta[:, :, 0], trace.x_mean[:, :, 0], truth[:, 0]


def gossip(quick: bool = False) -> Figure:
    """Estimates of one arm at nine sites of a ring: alone they stay apart, by gossip they meet at the mean."""
    theta, own, truth = played(quick)
    figure = Figure(figsize=(7.0, 3.0), layout="constrained")
    ring, alone, together = figure.subplots(1, 3, width_ratios=[0.9, 1.2, 1.2])
    angles = 2 * np.pi * np.arange(len(truth)) / len(truth) + np.pi / 2
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.9, len(truth)))
    closed = np.append(angles, angles[0])
    ring.plot(np.cos(closed), np.sin(closed), color="0.6", zorder=1)
    ring.scatter(np.cos(angles), np.sin(angles), s=190, c=shades, zorder=2)
    for angle, mean in zip(angles, truth, strict=True):
        ring.text(1.42 * np.cos(angle), 1.42 * np.sin(angle), f"{mean:.1f}", ha="center", va="center")
    ring.set_aspect("equal")
    ring.set_xlim(-1.7, 1.7)
    ring.set_ylim(-1.7, 1.7)
    ring.axis("off")
    ring.set_title("nine sites, their true means")
    times = np.unique(np.geomspace(1, len(theta), 300).astype(int)) - 1
    for axes, rows, title in ((alone, own, "own rewards alone"), (together, theta, "after gossip")):
        for i in range(len(truth)):
            axes.plot(times + 1, rows[times, i], color=shades[i], linewidth=1.0)
        axes.axhline(truth.mean(), color="black", linestyle=DASHES[1], linewidth=1.0)
        axes.set_xscale("log")
        axes.set_ylim(-0.4, 1.4)
        axes.set_xlabel("round")
        axes.set_title(title)
    together.set_yticklabels([])
    alone.set_ylabel("estimate of the arm")
    return figure


def local(quick: bool = False) -> Figure:
    """Regret alone, by private gossip, and with everything pooled."""
    policies = {"alone": LocalUCB(), "FedBatch, epsilon 1": FedBatch(1.0), "pooled, no privacy": CentralUCB()}
    horizon, trials = (300, 2) if quick else (20_000, 40)
    result = simulate(problem(), policies, horizon=horizon, trials=trials, seed=1)
    figure = Figure(figsize=(7.0, 3.0), layout="constrained")
    lost, given = figure.subplots(1, 2)
    times = result.dataset["time"].values
    for k, name in enumerate(policies):
        curve = result.mean_regret.sel(policy=name).mean("trial")
        lost.plot(times, curve, color=COLOURS[k], linestyle=DASHES[k], label=name)
        share = result.pulls.sel(policy=name).isel(time=-1, arm=problem().best_arm).mean("trial") / (horizon + 1)
        given.bar(np.arange(4) + 0.27 * (k - 1), 100 * share, 0.25, color=COLOURS[k], label=name)
    lost.set_xlabel("patients of each site")
    lost.set_ylabel("successes lost, mean per site")
    lost.set_title("alone, the loss grows for ever")
    lost.legend(frameon=False)
    given.set_xticks(range(4), SITES)
    given.set_ylabel("patients who got treatment C, %")
    given.set_title("alone, no site finds the best treatment")
    given.grid(visible=False, axis="x")
    return figure


def belief_after(before: float, epsilon: float) -> float:
    """The largest belief of whoever sees all that leaves a site: the odds before, times e^epsilon."""
    odds = before / (1.0 - before) * exp(epsilon)
    return odds / (1.0 + odds)


def epsilon(quick: bool = False) -> Figure:
    """The first release with one patient's reward changed, and what an observer can learn of it."""
    figure = Figure(figsize=(7.0, 3.0), layout="constrained")
    release, belief = figure.subplots(1, 2)
    size, scale = default_first_batch(1.0, 10), noise_scale(1.0, 1.0)
    sums = np.linspace(1, 13, 600)
    for k, others in enumerate((6, 7)):
        density = size * np.exp(-np.abs(sums - others) / scale) / (2 * scale)
        label = f"the patient: {('failure', 'success')[k]}"
        release.plot(sums / size, density, color=COLOURS[k], linestyle=DASHES[k], label=label)
    release.set_xlabel(f"released mean of the first {size} patients")
    release.set_ylabel("density")
    release.set_ylim(0, 0.68 * size)
    release.set_title("what leaves the site, epsilon 1")
    release.legend(frameon=False)
    before = np.linspace(0.001, 0.999, 400)
    for k, value in enumerate(EPSILONS):
        after = [100 * belief_after(x, value) for x in before]
        belief.plot(100 * before, after, color=COLOURS[k], linestyle=DASHES[k], label=f"epsilon {value:g}")
    belief.plot([0, 100], [0, 100], color="0.6", linewidth=0.8)
    belief.set_xlabel("belief before, %")
    belief.set_ylabel("largest belief after, %")
    belief.set_title("what an observer can learn of one outcome")
    belief.legend(frameon=False, loc="lower right")
    return figure


FIGURES: dict[str, Callable[[bool], Figure]] = {
    "heterogeneous": heterogeneous,
    "gossip": gossip,
    "alone": local,
    "epsilon": epsilon,
}


def main() -> None:
    """Draw them all."""
    parser = argparse.ArgumentParser(description="Draw the figures of docs/concepts.md.")
    parser.add_argument("--into", type=Path, default=IMAGES, help="the folder to write to")
    parser.add_argument("--quick", action="store_true", help="play few rounds")
    options = parser.parse_args()
    with mpl.rc_context({**STYLE, "svg.hashsalt": "fedbandit", "savefig.facecolor": "white"}):
        for name, draw in FIGURES.items():
            target = options.into / f"concept-{name}.svg"
            draw(options.quick).savefig(target, metadata={"Date": None})
            print(f"wrote {target.name}")


if __name__ == "__main__":
    main()
