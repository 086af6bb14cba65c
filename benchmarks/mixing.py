"""What mixing costs: regret against the number of sites on paths and rings, averages against releases.

``python benchmarks/mixing.py --others`` prints the table of other instances: graphs that mix, and sites of other sizes.
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


TINY = [1.0, 1.0, 0.001]


def tiny(trial: int, own: bool, counts: str) -> np.ndarray:
    """Two arms with a gap of 0.05 in the average that counts; own means lie within 0.2 of it."""
    means = np.tile([0.525, 0.475], (3, 1))
    weights = np.array(TINY if counts == "patients" else [1.0] * 3)
    off = np.random.default_rng(trial).uniform(-0.2, 0.2, (3, 2)) * own
    return np.clip(means + off - (weights[:, None] / weights.sum() * off).sum(axis=0), 0.0, 1.0)


def others() -> Iterator[tuple[str, int, int, Any]]:
    """Name, horizon, how many agents are large, and a function of what links exchange that makes the problems."""

    def drawn(num_agents: int, arms: int, on: str, trials: int, **options: Any) -> Any:
        return lambda gossip: [
            Problem.random(num_agents, arms, on, seed=s, rewards="bernoulli", gossip=gossip, **options)
            for s in range(trials)
        ]

    yield "random means, ten arms, path of 10", 100_000, 10, drawn(10, 10, "path", 100)
    yield "random means, ten arms, ring of 20", 100_000, 20, drawn(20, 10, "ring", 20)
    yield (
        "random means, five arms, path of 10, five sites at 1:10",
        50_000,
        10,
        drawn(10, 5, "path", 40, rates=[1, 0.1] * 5),
    )
    same = np.tile([0.56, 0.5, 0.5, 0.5], (3, 1))
    yield (
        "same means, four arms, three sites",
        60_000,
        3,
        lambda gossip: [Problem.bernoulli(same, "complete:3", gossip=gossip)] * 300,
    )
    for counts in ("sites", "patients"):
        for own in (False, True):

            def made(gossip: Any, counts: Any = counts, own: bool = own) -> list[Problem]:
                return [
                    Problem.bernoulli(tiny(s, own, counts), "complete:3", rates=TINY, counts=counts, gossip=gossip)
                    for s in range(100)
                ]

            yield f"rates 1, 1, 0.001, {'own' if own else 'same'} means, {counts} count", 100_000, 2, made


def print_others() -> None:
    """Mean and standard error over trials of the regret of a large site, and the mean of the worst 1 % of trials."""
    print("| | averages | worst 1 % | releases | worst 1 % |\n|---|---|---|---|---|")
    for name, horizon, large, made in others():
        cells: list[str] = []
        for gossip in ("averages", "releases"):
            result = simulate(made(gossip), FedBatch(epsilon=1.0), horizon, len(made(gossip)), 1, [horizon])
            regret = np.sort(result.regret.isel(time=-1, policy=0).values[:, :large].mean(axis=1))
            error = regret.std() / len(regret) ** 0.5
            cells += [f"{regret.mean():.1f} ± {error:.1f}", f"{regret[-max(1, len(regret) // 100) :].mean():,.0f}"]
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


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
    parser.add_argument("--others", action="store_true", help="print the table of other instances instead")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.others:
        print_others()
        return
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
