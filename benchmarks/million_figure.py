"""Draws docs/images/million-agents.png: regret and disagreement against the number of agents, from 10 to a million.

``python benchmarks/million_figure.py docs/images/million-agents.png [--most 1000000] [--rounds 100] [--table FILE]``.
The world is the same for all N: four arms of means 0.65, 0.5, 0.45 and 0.4 over all agents, of which each agent sees
its own variant, up to 0.3 off. So an agent alone often takes another arm for the best one; the network knows better.
With ``--table`` the numbers are kept in a file, and those that it has already are not computed again.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fedbandit import FedBatch, Graph, LocalUCB, Problem, simulate
from fedbandit.figures.regret import COLOURS, MARKERS, STYLE
from fedbandit.world import graph

GRAPHS = {
    "random regular, degree 4": lambda n: graph.random_regular(n, 4),
    "small world, degree 4, 10 % moved": lambda n: graph.small_world(n, 4, 0.1),
    "ring": graph.ring,
}
MEANS, OFF, SEED = (0.65, 0.5, 0.45, 0.4), 0.3, 15
POLICY, ALONE = FedBatch(float("inf"), index="thompson"), LocalUCB()
LABELS = {"alone": "nobody gossips (Local UCB)"}
EXCHANGES = (0.005, 0.0125, 0.025, 0.05, 0.125, 0.25, 1.0)  # probability of each of four links


def world(on: Graph, links: float | str) -> Problem:
    """Means of all agents, whose average over agents is the same for every N."""
    off = np.random.default_rng(SEED).uniform(-OFF, OFF, (on.num_agents, len(MEANS)))
    return Problem.bernoulli(np.array(MEANS) + off - off.mean(axis=0), on, edges_per_round=links)


def measure(on: Graph, links: float | str, policy: object, rounds: int, threads: int | None = None) -> dict[str, float]:
    """One trial; several where there are few agents, which one trial does not average over."""
    trials = max(1, min(100, 10_000 // on.num_agents))
    began, cpu = time.perf_counter(), time.process_time()
    result = simulate(
        world(on, links), policy, rounds, trials, SEED, checkpoints=[rounds], threads=threads, keep="aggregates"
    )
    last = result.dataset.isel(time=-1, policy=0).mean("trial")
    names = ("regret", "regret_std", "regret_max", "theta_error", "disagreement", "messages")
    spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    return {name: float(last[name]) for name in names} | {"trials": trials} | spent


def tabulate(most: int, rounds: int, path: Path | None) -> dict[str, dict[str, float]]:
    """All points of the figure, by "graph|N|links"."""
    table: dict[str, dict[str, float]] = json.loads(path.read_text()) if path is not None and path.exists() else {}
    sizes = [n for n in (10, 100, 1_000, 10_000, 100_000, 1_000_000) if n <= most]
    points = [(name, n, "matching") for n in sizes for name in GRAPHS]
    points += [("alone", n, "matching") for n in sizes if n <= 10_000]
    points += [(next(iter(GRAPHS)), min(most, 10_000), p) for p in EXCHANGES]
    for name, n, links in points:
        key = f"{name}|{n}|{links}"
        if key not in table:
            on = GRAPHS.get(name, graph.ring)(n)
            table[key] = measure(on, links, ALONE if name == "alone" else POLICY, rounds)
            print(key, {name: round(value, 4) for name, value in table[key].items()}, flush=True)
            if path is not None:
                path.write_text(json.dumps(table, indent=1))
    return table


def draw(table: dict[str, dict[str, float]], rounds: int, target: str) -> None:
    """Three panels: regret and disagreement by N, and both by exchanges per decision."""
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained")
        for position, name in enumerate([*GRAPHS, "alone"]):
            rows = {
                int(key.split("|")[1]): row
                for key, row in table.items()
                if key.startswith(f"{name}|") and key.endswith("|matching")
            }
            style = {
                "color": COLOURS[position],
                "marker": MARKERS[position],
                "label": LABELS.get(name, name),
                "markerfacecolor": "white",
            }
            panels[0].plot(list(rows), [row["regret"] for row in rows.values()], **style)
            if name != "alone":
                panels[1].plot(list(rows), [row["disagreement"] for row in rows.values()], **style)
        for axes, title in zip(panels, ("regret per agent", "disagreement of agents"), strict=False):
            axes.set(xscale="log", xlabel="agents N", title=f"{title} after {rounds} rounds", ylim=(0, None))
        panels[1].set_ylabel("standard deviation of theta over agents")
        panels[0].legend(frameon=False)
        rows = [row for key, row in table.items() if not key.endswith("|matching")]
        by = [row["messages"] / rounds for row in rows]
        panels[2].plot(by, [row["regret"] for row in rows], "o-", color=COLOURS[0], label="regret per agent")
        beside = panels[2].twinx()
        beside.plot(by, [row["disagreement"] for row in rows], "s--", color=COLOURS[1], label="disagreement (right)")
        beside.set(ylim=(0, None))
        beside.grid(visible=False)
        panels[2].set(xscale="log", xlabel="exchanges per decision of an agent", ylim=(0, None))
        n = max(int(key.split("|")[1]) for key in table if not key.endswith("|matching"))
        panels[2].set_title(f"both, N = {n:,}, random regular")
        handles, labels = panels[2].get_legend_handles_labels()
        more_handles, more_labels = beside.get_legend_handles_labels()
        panels[2].legend([*handles, *more_handles], [*labels, *more_labels], frameon=False)
        figure.savefig(target)


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target")
    parser.add_argument("--most", type=int, default=1_000_000, help="agents")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    draw(tabulate(given.most, given.rounds, given.table), given.rounds, given.target)


if __name__ == "__main__":
    main()
