"""How fast the engine is: agent-pulls per second on one core, against plain NumPy, or against another checkout.

``make bench`` measures against NumPy. ``python benchmarks/engine.py --against CHECKOUT`` measures against an earlier
version of the project in the same run, with the time of the first compilation. The setting is the paper's (b): N = M =
10 on a path. Every figure is the best of several runs in turns, since other programs can only slow a run down.

Instructions per agent-pull: ``instructions.py``.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np

from fedbandit import FedUCB, GossipUCB, Tape, replay
from fedbandit.policies import Policy
from fedbandit.world import graph
from readme_tables import processor
from speed_worker import AGENTS, ARMS, POLICIES, run
from yardstick import run as run_numpy

TRIALS = 100
HORIZON = 400_000
HERE = Path(__file__).resolve().parent


def check_agreement(policy: Policy, epsilon: float) -> None:
    """The yardstick and the engine choose the same arms on the same tapes."""
    tapes = [Tape.random(graph.path(AGENTS), ARMS, 1500, seed) for seed in range(3)]
    stacked = {name: np.stack([getattr(t, name) for t in tapes]) for name in ("rewards", "edges", "picks", "noise")}
    trial = np.arange(3)
    arms = run_numpy(
        graph.path(AGENTS).neighbours,
        ARMS,
        1500,
        3,
        lambda t, i, arms: stacked["rewards"][trial, t, i, arms],
        lambda t: stacked["edges"][:, t - 1],
        lambda t, i: stacked["picks"][:, t - 1, i],
        None if np.isinf(epsilon) else lambda n, i, arms: stacked["noise"][trial, n, i, arms],
        epsilon,
    )
    for position, tape in enumerate(tapes):
        if not np.array_equal(replay(tape, policy).arms, arms[:, position]):
            raise SystemExit("the yardstick and the engine disagree: nothing to compare")


def numpy_speed(epsilon: float, horizon: int) -> float:
    """Agent-pulls per second of the yardstick."""
    source = np.random.default_rng(0)
    means = source.random((AGENTS, ARMS))
    edges = np.array(graph.path(AGENTS).edges)
    start = perf_counter()
    run_numpy(
        graph.path(AGENTS).neighbours,
        ARMS,
        horizon,
        TRIALS,
        lambda t, i, arms: means[i, arms] + source.standard_normal(arms.shape),
        lambda t: edges[source.integers(len(edges), size=TRIALS)],
        lambda t, i: source.random(TRIALS),
        None if np.isinf(epsilon) else lambda n, i, arms: source.laplace(size=arms.shape),
        epsilon,
    )
    return TRIALS * AGENTS * horizon / (perf_counter() - start)


def engine_speed(name: str, horizon: int) -> float:
    """Agent-pulls per second of ``simulate`` on one core."""
    return AGENTS * horizon / run(name, horizon)


def against_numpy() -> None:
    """Gossip_UCB and Fed_UCB as ratios to the yardstick; the other policies as ratios to Gossip_UCB."""
    print(f"{'policy':<20}{'engine':>12}{'NumPy, 100 trials':>22}{'ratio':>9}")
    for name, policy, epsilon in (
        ("Gossip_UCB", GossipUCB(), np.inf),
        ("Fed_UCB", FedUCB(1.0, assume_sensitivity=1.0), 1.0),
    ):
        check_agreement(policy, epsilon)
        engine_speed(name, 1000)
        engine, plain = 0.0, 0.0
        for _ in range(8):
            engine = max(engine, *(engine_speed(name, HORIZON) for _ in range(3)))
            plain = max(plain, numpy_speed(epsilon, 400))
        print(f"{name:<20}{engine / 1e6:>8.1f} M/s{plain / 1e6:>18.2f} M/s{engine / plain:>8.1f}x")
    print(f"\n{'policy':<20}{'engine':>12}{'against Gossip_UCB':>22}")
    for name in POLICIES:
        best = {name: 0.0, "Gossip_UCB": 0.0}
        for _ in range(6):
            for each in best:
                best[each] = max(best[each], engine_speed(each, HORIZON // 2))
        print(f"{name:<20}{best[name] / 1e6:>8.1f} M/s{best[name] / best['Gossip_UCB']:>21.2f}x")


class Worker:
    """A process that measures one checkout on request."""

    def __init__(self, checkout: Path, cache: str | None = None) -> None:
        """Start it; with ``cache``, where compiled code is kept instead of beside the sources."""
        env = os.environ | {"PYTHONPATH": str(checkout / "src")} | ({"NUMBA_CACHE_DIR": cache} if cache else {})
        command = [sys.executable, str(HERE / "speed_worker.py")]
        self._process = subprocess.Popen(  # noqa: S603  # our own script
            command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, *request: object) -> float:
        """One answer; the words of a request are set apart by tabs."""
        assert self._process.stdin is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdin.write("\t".join(map(str, request)) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def against_checkout(other: Path, rounds: int) -> None:
    """Speeds of two checkouts in turns, and the time of the first compilation, with and without a cache."""
    pair = [Worker(other), Worker(HERE.parent)]
    print(f"{'policy':<20}{'there':>12}{'here':>12}{'ratio':>8}")
    for name in POLICIES:
        for worker in pair:
            worker.ask("first", name)
        best = [0.0, 0.0]
        for _ in range(rounds):
            for which, worker in enumerate(pair):
                best[which] = max(best[which], worker.ask("speed", name, HORIZON))
        print(f"{name:<20}{best[0] / 1e6:>8.1f} M/s{best[1] / 1e6:>8.1f} M/s{best[1] / best[0]:>7.2f}x", flush=True)
    print(f"\n{'first call, CPU s':<20}{'there':>12}{'here':>12}{'here, from the cache':>24}")
    for name in ("Gossip_UCB", "Fed_UCB", "FedBatch Thompson"):
        with tempfile.TemporaryDirectory() as theirs, tempfile.TemporaryDirectory() as ours:
            there, here = Worker(other, theirs).ask("first", name), Worker(HERE.parent, ours).ask("first", name)
            again = Worker(HERE.parent, ours).ask("first", name)
        print(f"{name:<20}{there:>12.1f}{here:>12.1f}{again:>24.2f}", flush=True)


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="an earlier version of the project")
    parser.add_argument("--rounds", type=int, default=8, help="measurements of each policy (default: 8)")
    given = parser.parse_args()
    print(f"N = M = 10, path; {processor()}, Python {platform.python_version()}, one core\n")
    if given.against is None:
        against_numpy()
    else:
        against_checkout(given.against.resolve(), given.rounds)


if __name__ == "__main__":
    main()
