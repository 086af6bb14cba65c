"""Measures runs on a Ray cluster on this machine: the cost of a task, and how throughput grows from one node to two.

Each node has one core. ``python benchmarks/ray_nodes.py [--runs 5] [--trials 24]`` prints two tables: the clock on the
wall, which a busy machine makes long (the load average is printed beside it), and CPU time, of this process and of all
that it has started: Ray's own processes and the workers.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ray.cluster_utils import Cluster

from fedbandit import GossipUCB, Problem, simulate
from fedbandit.simulation.cluster import connection, run_parts
from fedbandit.simulation.parts import Part
from fedbandit.world import graph

PROBLEM = Problem.random(10, 10, graph.path(10), 0)


class Cost(NamedTuple):
    """Seconds."""

    wall: float
    cpu: float  # of all processes
    besides: float  # of these without the workers: this process and Ray's own


def cpu_seconds(besides_workers: bool = False) -> float:
    """CPU time so far of this process and of its descendants that live."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            numbers = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            if besides_workers and path.with_name("cmdline").read_bytes().startswith((b"ray::_play", b"ray::IDLE")):
                continue
            parents[pid], used[pid] = int(numbers[1]), (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return sum(seconds for pid, seconds in used.items() if is_ours(pid))


def measured(run: Callable[[], None]) -> Cost:
    """What a function costs."""
    wall, cpu, besides = time.perf_counter(), cpu_seconds(), cpu_seconds(besides_workers=True)
    run()
    return Cost(time.perf_counter() - wall, cpu_seconds() - cpu, cpu_seconds(besides_workers=True) - besides)


def on_cluster(horizon: int, trials: int) -> Cost:
    """A run in parts of one trial, with workers that have compiled the page."""
    call = {"problem": PROBLEM, "policies": {"Gossip_UCB": GossipUCB()}, "horizon": horizon, "seed": 0}
    with tempfile.TemporaryDirectory() as folder:
        parts = [Part(call, range(r, r + 1), Path(folder) / f"{r}.nc") for r in range(trials)]
        return measured(lambda: run_parts(parts, lambda done, total: None))


def alone(horizon: int, trials: int) -> Cost:
    """The same in this process, one trial after the other: played, saved, read and written again."""

    def run() -> None:
        for r in range(trials):
            saved = simulate(PROBLEM, GossipUCB(), horizon, range(r, r + 1), threads=1).save(Path(folder) / "part.nc")
            (Path(folder) / f"{r}.nc").write_bytes(saved.read_bytes())

    with tempfile.TemporaryDirectory() as folder:
        return measured(run)


def spread(values: list[float], scale: float = 1.0) -> str:
    """The median, and the ends."""
    return f"{statistics.median(values) * scale:.3g} ({min(values) * scale:.3g} to {max(values) * scale:.3g})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--horizon", type=int, default=3_000_000)
    parser.add_argument("--small", type=int, default=100, help="parts of 1,000 agent-pulls")
    options = parser.parse_args()
    runs, trials, horizon = range(options.runs), options.trials, options.horizon
    pulls = trials * horizon * PROBLEM.num_agents
    alone(100, 2)  # compiles
    print(f"{options.runs} runs each; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    with connection(cluster.address):
        first, small = on_cluster(100, 1), options.small
        print("| a part of 1,000 agent-pulls | milliseconds | of CPU | of these outside workers |\n|---|---|---|---|")
        for name, play in (("as a task, one node", on_cluster), ("in one process, without Ray", alone)):
            costs = [play(100, small) for _ in runs]
            scale = 1e3 / small
            print(f"| {name} | {' | '.join(spread(list(each), scale) for each in zip(*costs, strict=True))} |")
        print(f"| the first task of a new worker | {' | '.join(f'{each * 1e3:.0f}' for each in first)} |\n")
        by_nodes = {1: [on_cluster(horizon, trials) for _ in runs]}
        cluster.add_node(num_cpus=1)
        on_cluster(horizon, 4)  # the new node's worker starts
        by_nodes[2] = [on_cluster(horizon, trials) for _ in runs]
        print(f"| nodes | M agent-pulls per second, {trials} parts of {pulls / trials:.0e} | per CPU second |")
        print("|---|---|---|")
        for nodes, costs in by_nodes.items():
            rates = [spread([pulls / seconds for seconds in each], 1e-6) for each in list(zip(*costs, strict=True))[:2]]
            print(f"| {nodes} | {' | '.join(rates)} |")
        one, two = (statistics.median(cost.wall for cost in by_nodes[nodes]) for nodes in (1, 2))
        print(f"\nTwo nodes: {one / two:.2f} times one; load average {os.getloadavg()[0]:.1f}")
    cluster.shutdown()


if __name__ == "__main__":
    main()
