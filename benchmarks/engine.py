"""How fast the engine is: agent-pulls per second on one core, and as a ratio to plain NumPy in the same run.

``make bench``. The setting is the paper's (b): N = M = 10 on a path. Every figure is the best of several
runs, since other programs on the machine can only slow a run down.
"""

import platform
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from fedbandit.simulation.plan import plan_of, world_of

from fedbandit import FedBatch, FedUCB, GossipUCB, Problem, Tape, graph, replay
from fedbandit.policies import Policy
from fedbandit.simulation.cpu import Truth, run_trials
from yardstick import run as run_numpy

AGENTS = ARMS = 10
TRIALS = 100


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


def engine_speed(policy: Policy, horizon: int, rewards: str = "gaussian") -> float:
    """Agent-pulls per second of the engine on one core, without the labelling of the result."""
    problem = Problem.random(AGENTS, ARMS, "path", seed=0, rewards=rewards)
    truth, plans = Truth(world_of(problem), problem.gaps, problem.arm_means), [plan_of(policy, problem, 10**6)]
    start = perf_counter()
    run_trials([truth], plans, np.array([horizon]), range(1), 0, 1, False, lambda rounds: None)
    return AGENTS * horizon / (perf_counter() - start)


def processor() -> str:
    """The processor's name, where the system tells it."""
    path = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in path.read_text().splitlines() if "model name" in line]
        if path.exists()
        else []
    )
    return names[0] if names else platform.processor()


def main() -> None:
    """Check, warm up, measure, print."""
    warnings.simplefilter("ignore")
    print(f"N = M = 10, path, Gaussian rewards; {processor()}, Python {platform.python_version()}, one core\n")
    print(f"{'policy':<12}{'engine':>16}{'NumPy, 100 trials':>22}{'ratio':>9}")
    for name, policy, epsilon in (
        ("Gossip_UCB", GossipUCB(), np.inf),
        ("Fed_UCB", FedUCB(1.0, assume_sensitivity=1.0), 1.0),
    ):
        check_agreement(policy, epsilon)
        engine_speed(policy, 1000)
        engine, plain = 0.0, 0.0
        for _ in range(5):
            engine = max(engine, *(engine_speed(policy, 100_000) for _ in range(10)))
            plain = max(plain, numpy_speed(epsilon, 400))
        print(f"{name:<12}{engine / 1e6:>12.1f} M/s{plain / 1e6:>18.2f} M/s{engine / plain:>8.0f}x")
    compare_with_gossip()


def compare_with_gossip() -> None:
    """FedBatch against Gossip_UCB, in turns, so that both see the machine in the same mood."""
    policies: dict[str, Policy] = {
        "Gossip_UCB": GossipUCB(),
        "FedBatch Thompson": FedBatch(1.0, assume_sensitivity=1.0),
        "FedBatch UCB": FedBatch(1.0, index="ucb", assume_sensitivity=1.0),
        "FedBatch UCB, safe": FedBatch(1.0, index="ucb", radius="safe", assume_sensitivity=1.0),
    }
    compare(policies, "gaussian")
    compare({"Gossip_UCB": GossipUCB(), "FedBatch KL": FedBatch(1.0, index="kl")}, "bernoulli")


def compare(policies: dict[str, Policy], rewards: str) -> None:
    """Speeds, and as ratios to the first."""
    best = dict.fromkeys(policies, 0.0)
    for _ in range(30):
        for name, policy in policies.items():
            best[name] = max(best[name], engine_speed(policy, 100_000, rewards))
    print(f"\n{rewards + ' rewards':<20}{'engine':>12}{'against Gossip_UCB':>22}")
    for name, speed in best.items():
        print(f"{name:<20}{speed / 1e6:>8.1f} M/s{speed / best['Gossip_UCB']:>21.2f}x")


if __name__ == "__main__":
    main()
