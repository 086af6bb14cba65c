"""The GPU engine beside the CPU engine of the same machine: agent-pulls per second of whole calls, transfers included.

``python benchmarks/gpu.py [--short]`` needs an NVIDIA GPU and the extra ``cuda``. Every figure is the best of three
warm calls of ``simulate``: compilation is not counted, copies to and from the GPU are. The setting is the paper's (b),
N = M = 10 on a path, with 12,000 trials in flight; then its Figure 2 (b) at full scale; then one trial of many agents.
"""

import argparse
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

from numba import cuda

from fedbandit import FedBatch, FedUCB, GossipUCB, Problem, simulate
from fedbandit.engine.cpu import usable_cores
from fedbandit.world import graph

POLICIES = {
    "Gossip_UCB": GossipUCB(),
    "Fed_UCB": FedUCB(1.0, assume_sensitivity=1.0),
    "FedBatch Thompson": FedBatch(1.0, assume_sensitivity=1.0),
}
FIGURE = {
    "eps=1": FedUCB(1.0, assume_sensitivity=1.0),
    "eps=2": FedUCB(2.0, assume_sensitivity=1.0),
    "eps=5": FedUCB(5.0, assume_sensitivity=1.0),
    "eps=inf": GossipUCB(),
}
TRIALS = 12_000


def best_of(call: Callable[[], Any], times: int = 3) -> float:
    """Seconds of the fastest of several calls, after one that compiles."""
    call()
    return min(_seconds(call) for _ in range(times))


def _seconds(call: Callable[[], Any]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


def many_trials(rounds: int) -> None:
    """Throughput with many trials in flight."""
    problem = Problem.random(10, 10, "path", seed=0)
    cores = usable_cores()
    print(f"{'':<20}{'GPU':>16}{f'CPU, {cores} cores':>18}{'ratio':>8}")
    for name, policy in POLICIES.items():

        def on_gpu(policy: Any = policy) -> None:
            simulate(problem, policy, rounds, TRIALS, checkpoints=[rounds], engine="cuda")

        def on_cpu(policy: Any = policy) -> None:
            simulate(problem, policy, rounds, 4 * cores, checkpoints=[rounds])

        gpu = TRIALS * 10 * rounds / best_of(on_gpu)
        cpu = 4 * cores * 10 * rounds / best_of(on_cpu, 2)
        print(f"{name:<20}{gpu / 1e9:>12.1f} G/s{cpu / 1e6:>14.0f} M/s{gpu / cpu:>7.0f}x", flush=True)


def figure(rounds: int) -> None:
    """Four epsilons times 100 trials, all in flight at once: bound by the latency of a round."""
    problem = Problem.random(10, 10, "path", seed=0)
    seconds = best_of(lambda: simulate(problem, FIGURE, rounds, 100, engine="cuda"), 2)
    print(f"\nFigure 2 (b), {rounds:,} rounds: {seconds:.2f} s, {seconds / rounds * 1e6:.2f} microseconds per round")


def many_agents(rounds: int) -> None:
    """One trial of many agents: a matching in every round."""
    print(f"\n{'N':>9}{'policy':>20}{'GPU':>16}{'CPU':>16}{'ratio':>8}")
    for num_agents in (1_000, 100_000, 1_000_000):
        on = graph.random_regular(num_agents, 4)
        problem = Problem.random(num_agents, 10, on, seed=0, same_means=True, edges_per_round="matching")
        for name, policy in POLICIES.items():

            def seconds_of(engine: Any, policy: Any = policy, problem: Problem = problem) -> float:
                def call(rounds: int) -> None:
                    arguments = {"checkpoints": [rounds], "keep": "aggregates", "engine": engine}
                    simulate(problem, policy, rounds, 1, **arguments)

                call(2)
                return _seconds(lambda: call(rounds))

            gpu, cpu = seconds_of("cuda"), seconds_of("cpu")
            speeds = [num_agents * rounds / seconds / 1e6 for seconds in (gpu, cpu)]
            print(
                f"{num_agents:>9,}{name:>20}{speeds[0]:>12.0f} M/s{speeds[1]:>12.0f} M/s{cpu / gpu:>7.1f}x", flush=True
            )


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a tenth of the rounds")
    part = 10 if parser.parse_args().short else 1
    device: Any = cuda
    print(device.get_current_device().name)
    many_trials(100_000 // part)
    figure(1_000_000 // part)
    many_agents(300 // part)


if __name__ == "__main__":
    main()
