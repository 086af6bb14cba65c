"""Measures runs on a Ray cluster on this machine: the cost of a task, and how throughput grows from one node to two.

Each node has one core. ``python benchmarks/ray_nodes.py [--runs 5] [--trials 24]`` prints two tables. Clocks are those
of the wall, and a busy machine makes them long: the load average is printed beside them.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from ray.cluster_utils import Cluster

from fedbandit import GossipUCB, Problem, graph, simulate
from fedbandit.simulation.cluster import run_parts
from fedbandit.simulation.cluster_connection import connection
from fedbandit.simulation.parts import Part

PROBLEM = Problem.random(10, 10, graph.path(10), 0)


def seconds(horizon: int, trials: int) -> float:
    """The wall clock of a run in parts of one trial, with workers that have compiled the page."""
    call = {"problem": PROBLEM, "policies": {"Gossip_UCB": GossipUCB()}, "horizon": horizon, "seed": 0}
    with tempfile.TemporaryDirectory() as folder:
        parts = [Part(call, range(r, r + 1), Path(folder) / f"{r}.nc") for r in range(trials)]
        start = time.perf_counter()
        run_parts(parts, lambda done, total: None)
        return time.perf_counter() - start


def alone(horizon: int, trials: int) -> float:
    """The same in this process, one trial after the other: played, saved, read and written again."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        for r in range(trials):
            saved = simulate(PROBLEM, GossipUCB(), horizon, range(r, r + 1), threads=1).save(Path(folder) / "part.nc")
            (Path(folder) / f"{r}.nc").write_bytes(saved.read_bytes())
        return time.perf_counter() - start


def spread(values: list[float], scale: float = 1.0) -> str:
    """The median, and the ends."""
    return f"{statistics.median(values) * scale:.3g} ({min(values) * scale:.3g} to {max(values) * scale:.3g})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--horizon", type=int, default=3_000_000)
    options = parser.parse_args()
    runs, trials, horizon = range(options.runs), options.trials, options.horizon
    pulls = trials * horizon * PROBLEM.num_agents
    alone(100, 2)  # compiles
    print(f"{options.runs} runs each; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    with connection(cluster.address):
        first = seconds(100, 1)
        small = 100
        tasks = [seconds(100, small) / small for _ in runs]
        here = [alone(100, small) / small for _ in runs]
        print("| a part of 1,000 agent-pulls | milliseconds |\n|---|---|")
        print(f"| as a task, one node | {spread(tasks, 1e3)} |\n| in one process, without Ray | {spread(here, 1e3)} |")
        print(f"| the first task of a new worker (starts, imports, loads compiled code) | {first * 1e3:.0f} |\n")
        by_nodes = {1: [seconds(horizon, trials) for _ in runs]}
        cluster.add_node(num_cpus=1)
        seconds(horizon, 4)  # the new node's worker starts
        by_nodes[2] = [seconds(horizon, trials) for _ in runs]
        print(f"| nodes | M agent-pulls per second, {trials} parts of {pulls / trials:.0e} |\n|---|---|")
        for nodes, walls in by_nodes.items():
            print(f"| {nodes} | {spread([pulls / wall for wall in walls], 1e-6)} |")
        ratio = statistics.median(by_nodes[1]) / statistics.median(by_nodes[2])
        print(f"\nTwo nodes: {ratio:.2f} times one; load average {os.getloadavg()[0]:.1f}")
    cluster.shutdown()


if __name__ == "__main__":
    main()
