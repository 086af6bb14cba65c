"""Looks for a miss of the proved radius on hostile networks: losses, delays, partitions, rates, tiny batches.

``python benchmarks/proved_radius.py`` prints a line per network: the looks (agents x arms x rounds x trials), and how
many estimates were off by more than their radius. docs/theorem.md has what is proved of them, and what was seen.
"""

import argparse
from typing import Any

from fedbandit import FedBatch, Problem, simulate


def split(t: int, i: int, j: int, u: float) -> bool:
    """A link loses 19 of 20 messages; in every other 1,000 rounds the network falls into two parts."""
    return u < 0.05 and not (t % 2000 < 1000 and i < 5 <= j)


def far_apart(t: int, i: int, j: int, u: float) -> bool:
    """Nobody hears from anybody but for 20 rounds in every 5,000."""
    return t % 5000 < 20


NETWORKS: dict[str, dict[str, Any]] = {
    "one edge per round of a path": {"graph": "path"},
    "19 of 20 messages lost, and partitions": {"graph": "complete", "edges_per_round": split},
    "silence but for 20 of 5,000 rounds": {"graph": "complete", "edges_per_round": far_apart},
    "rates from 1 to 1:200": {
        "graph": "ring",
        "edges_per_round": 0.1,
        "rates": [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 1, 1],
    },
    "rewards of 0 late by 300 rounds": {"graph": "star", "delays": "by_outcome:fixed:0,geometric:300"},
    "weights from 1 to 1:50": {"graph": "path", "weights": [0.5, 0.25, 0.12, 0.06, 0.02, 0.01, 0.01, 0.01, 0.01, 0.01]},
}
POLICIES = [
    FedBatch(1.0, "ucb", "proved", first_batch=2),
    FedBatch(0.2, "ucb", "proved"),
    FedBatch(8.0, "ucb", "proved", first_batch=1, growth=1.25),
]


def main() -> None:
    """Play all networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=20_000)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    all_looks, all_misses = 0, 0.0
    for name, options in NETWORKS.items():
        problems = [
            Problem.random(10, 10, seed=100 + trial, rewards="bernoulli", gossip="releases", **options)
            for trial in range(args.trials)
        ]
        result = simulate(
            problems,
            POLICIES,
            args.horizon,
            args.trials,
            seed=9,
            watch_radii=True,
            threads=args.threads,
            checkpoints=[1],
        )
        looks = len(POLICIES) * args.trials * args.horizon * 100
        misses = float(result.dataset["misses"].isel(time=-1).sum()) * args.horizon * 10  # a share of arms and rounds
        all_looks, all_misses = all_looks + looks, all_misses + misses
        print(f"{name}: {looks:,} looks, {misses:.0f} misses", flush=True)
    print(f"all: {all_looks:,} looks, {all_misses:.0f} misses")


if __name__ == "__main__":
    main()
