"""Regret where sites have very different numbers of patients: the tables of docs/fedbatch.md.

Run with ``python benchmarks/site_sizes.py``; ``--quick`` plays a tenth of the rounds. Prints Markdown.
"""

import argparse
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedbandit import FedBatch, LocalUCB, Problem, simulate

TRIALS = 40


class Instance(NamedTuple):
    """Means for each trial, and how the sites are linked and how often they act."""

    name: str
    means: list[np.ndarray]
    graph: str
    rates: list[float] | None
    horizon: int
    edges_per_round: str = "one"


def main() -> None:
    """Print a row for each instance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    print(
        "| | eps | sites count: large (worst) | small, per pull | patients count: large (worst) | small, per pull "
        "| UCB1 alone, large | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for instance in instances():
        if quick:
            instance = instance._replace(horizon=instance.horizon // 10)
        for epsilon in (1.0, 0.1):
            print(row(instance, epsilon), flush=True)


def instances() -> Iterator[Instance]:
    """Those of the design, and the same on other graphs and links."""
    same = [np.tile([0.525, 0.475], (3, 1))] * TRIALS
    for rate in (0.001, 0.0001):
        for horizon in (10**5, 10**6):
            yield Instance(
                f"same means, rates 1, 1, {rate:g}, T = {horizon:.0e}", same, "complete:3", [1, 1, rate], horizon
            )
    own = [np.clip(np.tile([0.525, 0.475], (3, 1)) + bias(i), 0, 1) for i in range(TRIALS)]
    yield Instance("own means, rates 1, 1, 0.001", own, "complete:3", [1, 1, 0.001], 10**5)
    drawn = [np.random.default_rng(100 + i).random((10, 10)) for i in range(TRIALS)]
    mixed = np.random.default_rng(7)
    five = [*mixed.permutation([1.0] * 5 + [0.01] * 5)]
    few = [*mixed.permutation([1.0] * 5 + [0.001] * 5)]
    one = [*mixed.permutation([1.0] * 9 + [0.01])]
    for graph in ("path:10", "ring:10"):
        for edges in ("one", "matching"):
            yield Instance(f"random means, five at 1:100, {graph}, {edges}", drawn, graph, five, 50_000, edges)
    yield Instance("random means, five at 1:1000, path:10, one", drawn, "path:10", few, 50_000)
    yield Instance("random means, one at 1:100, path:10, one", drawn, "path:10", one, 50_000)
    yield Instance("random means, all in step, path:10, one", drawn, "path:10", None, 50_000)
    yield Instance("random means, all at 1/2, path:10, one", drawn, "path:10", [0.5] * 10, 50_000)
    slope = np.linspace(-0.3, 0.3, 10)[:, None] * [1, -1]
    yield Instance(
        "sorted bias, gap 0.02, in step, path:10, one",
        [np.tile([0.51, 0.49], (10, 1)) + slope] * TRIALS,
        "path:10",
        None,
        10**5,
    )


def bias(seed: int) -> np.ndarray:
    """Of each site, such that they cancel in the mean over sites."""
    drawn = np.random.default_rng(seed).uniform(-0.2, 0.2, (3, 2))
    return drawn - drawn.mean(axis=0)


def row(instance: Instance, epsilon: float) -> str:
    """Regret of large and small sites, where sites count and where patients count, beside UCB1 alone."""
    rates = np.ones(len(instance.means[0])) if instance.rates is None else np.array(instance.rates)
    large, cells, ratio = rates >= rates.max(), [], 0.0
    for counts in ("sites", "patients"):
        problems = [
            Problem.bernoulli(
                means, instance.graph, rates=instance.rates, counts=counts, edges_per_round=instance.edges_per_round
            )
            for means in instance.means
        ]
        policies = {"FedBatch": FedBatch(epsilon), "UCB1": LocalUCB()}
        result = simulate(
            problems, policies, horizon=instance.horizon, trials=TRIALS, seed=5, checkpoints=[instance.horizon]
        )
        batch, alone = result.dataset.regret.values[..., -1]
        of_large = batch[:, large].mean(axis=1)
        cells.append(f"{of_large.mean():,.0f} ± {of_large.std() / TRIALS**0.5:,.0f} ({of_large.max():,.0f})")
        small = batch[:, ~large].mean() / (instance.horizon * rates[~large].mean()) if not large.all() else None
        cells.append("" if small is None else f"{small:.5f}")
        ratio = of_large.mean() / alone[:, large].mean()
    return f"| {instance.name} | {epsilon:g} | {' | '.join(cells)} | {alone[:, large].mean():,.0f} | {ratio:.2f} |"


if __name__ == "__main__":
    main()
