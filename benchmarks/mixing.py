"""What mixing costs: regret against the number of sites on paths and rings, averages against releases.

``python benchmarks/mixing.py docs/images/mixing.png`` prints the table of docs/fedbatch.md and draws its figure. The
sites of one half see arm 0 at its best, those of the other half arm 1, in the order of the graph: what a site hears
from its neighbours misleads it until it has heard from the far end. One edge gossips in a round. "Everything pooled"
is the same policy with releases on a complete graph, all links in every round: a release is everywhere one round later.
"""

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from fedbandit import FedBatch, Problem, simulate

HORIZON, ARMS = 50_000, 5
SITES = (4, 8, 16, 32, 50)
CASES: dict[str, dict[str, Any]] = {
    "path, averages": {"graph": "path", "gossip": "averages"},
    "ring, averages": {"graph": "ring", "gossip": "averages"},
    "path, releases": {"graph": "path", "gossip": "releases"},
    "ring, releases": {"graph": "ring", "gossip": "releases"},
    "everything pooled": {"graph": "complete", "gossip": "releases", "edges_per_round": "all"},
}


def sorted_bias(num_agents: int) -> np.ndarray:
    """Arm 0 leads arm 1 by 0.02 on average, and by 0.92 or -0.88 at a site; the others have 0.3."""
    means = np.full((num_agents, ARMS), 0.3)
    means[: num_agents // 2, :2] = 0.95, 0.03
    means[num_agents // 2 :, :2] = 0.05, 0.93
    return means


def rows(trials: int) -> Iterator[tuple[str, int, np.ndarray]]:
    """The regret per agent of each trial, by case and number of sites."""
    for name, options in CASES.items():
        for num_agents in SITES:
            graph = f"{options['graph']}:{num_agents}"
            links: Any = options | {"graph": graph}
            problem = Problem.bernoulli(sorted_bias(num_agents), **links)
            played = 3 if name == "everything pooled" and num_agents > 16 else trials
            result = simulate(problem, FedBatch(epsilon=1.0), HORIZON, played, checkpoints=[HORIZON])
            yield name, num_agents, result.regret.isel(time=-1, policy=0).mean("agent").values


def draw(found: dict[str, dict[int, np.ndarray]], target: str) -> None:
    """Both axes logarithmic; a band from the least to the largest trial."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    styles = {"path": "o-", "ring": "s--", "ever": "^:"}
    colours = {"averages": "tab:red", "releases": "tab:blue", "everything pooled": "tab:green"}
    for name, by_sites in found.items():
        colour = colours[name.rpartition(", ")[2]]
        sites = list(by_sites)
        axes.plot(sites, [by_sites[n].mean() for n in sites], styles[name[:4]], color=colour, label=name)
        axes.fill_between(
            sites,
            [by_sites[n].min() for n in sites],
            [by_sites[n].max() for n in sites],
            color=colour,
            alpha=0.12,
            linewidth=0,
        )
    axes.set(xscale="log", yscale="log", xlabel="sites", ylabel=f"regret per site at T = {HORIZON:,}")
    axes.set_xticks(SITES, [str(n) for n in SITES])
    axes.minorticks_off()
    axes.set_title("What mixing costs: sorted bias, gap 0.02, one edge per round")
    axes.legend(title="band: least to largest trial")
    figure.savefig(target, dpi=110)


def main() -> None:
    """Print a row for each case, and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", nargs="?", help="where to save it")
    parser.add_argument("--trials", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, dict[int, np.ndarray]] = {}
    for name, num_agents, regret in rows(given.trials):
        found.setdefault(name, {})[num_agents] = regret
        error = regret.std(ddof=1) / len(regret) ** 0.5
        print(f"{name}, {num_agents} sites: {regret.mean():.1f} ± {error:.1f} (worst {regret.max():.1f})", flush=True)
    print("| sites |", " | ".join(found), "|")
    print("|---|" + "---|" * len(found))
    for num_agents in SITES:
        cells = [f"{by[num_agents].mean():,.0f} ({by[num_agents].max():,.0f})" for by in found.values()]
        print(f"| {num_agents} |", " | ".join(cells), "|")
    if given.figure:
        draw(found, given.figure)


if __name__ == "__main__":
    main()
