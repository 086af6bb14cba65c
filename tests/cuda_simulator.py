"""Small simulations for the GPU's kernels; run as a script, it plays them on ``simulated_gpu`` and prints JSON.

``test_cuda.py`` plays the same ones on the CPU engine.
"""

import json
import os
import sys
import warnings
from typing import NamedTuple

import numpy as np

from fedbandit import GSE, CentralUCB, DistUCB, Fed1UCB, FedBatch, FedUCB, GossipUCB, LocalUCB, Problem, Shares
from fedbandit.world import delays, graph
from own_on_gpu import Beyond, Infinite, Sound

MEANS = np.random.default_rng(3).random((12, 3))
THOMPSON, UCB = FedBatch(2.0, first_batch=3), FedBatch(2.0, "ucb", first_batch=3, catches_up=True)
VARIABLES = ("pulls", "messages", "lagging", "regret", "best_pulls", "theta_error", "misses")


class Case(NamedTuple):
    """A call of ``simulate``, and how the GPU is to play it."""

    policy: object
    problem: object
    kernel: str  # warp, block, grid
    rounds: int = 25
    trials: object = 3
    checkpoints: object = (1, 7, 16)
    options: dict = {}  # noqa: RUF012
    few: bool = False  # a warp for each trial
    most: int = 10**6  # rounds of one kernel


def bernoulli(num_agents=3, shape="path", **options):
    return Problem.bernoulli(MEANS[:num_agents], f"{shape}:{num_agents}", **options)


GAUSSIAN = Problem.gaussian(MEANS[:3], "path:3", sigma=0.4)
CHANGING = Problem.changing([(0, MEANS[:3]), (9, MEANS[3:6]), (16, MEANS[6:9])], "path:3", "bernoulli")
SEVERAL = [Problem.bernoulli(MEANS[start : start + 3], "path:3") for start in (0, 3, 6, 9)]
SCHEDULE = graph.schedule([(0, graph.path(3)), (8, graph.complete(3))])
WATCHED = {"watch_radii": True}

CASES = {
    # in a warp
    "Gossip_UCB": Case(GossipUCB(), GAUSSIAN, "warp", trials=4),
    "kernels of five rounds": Case(UCB, bernoulli(), "warp", most=5, options=WATCHED),
    "several warps and blocks": Case(GossipUCB(), bernoulli(12, "ring"), "warp", 12, 5),
    "a warp for each trial": Case(GossipUCB(), bernoulli(), "warp", few=True, trials=range(2, 4)),
    "Fed_UCB": Case(FedUCB(1.0), bernoulli(), "warp", 40, options=WATCHED),
    "FedBatch Thompson": Case(THOMPSON, bernoulli(), "warp", 40, most=13),
    "FedBatch by patients, at rates": Case(THOMPSON, bernoulli(rates=[0.9, 0.5, 0.2], counts="patients"), "warp", 40),
    "Local UCB": Case(LocalUCB(), GAUSSIAN, "warp"),
    "rates": Case(GossipUCB(), bernoulli(rates=[1.0, 0.6, 0.3]), "warp"),
    "means that change": Case(UCB, CHANGING, "warp", options=WATCHED),
    "a problem for each trial": Case(GossipUCB(), SEVERAL, "warp", trials=range(1, 4)),
    "a graph that changes": Case(UCB, Problem.bernoulli(MEANS[3:6], SCHEDULE), "warp"),
    # blocks
    "Central UCB": Case(CentralUCB(), GAUSSIAN, "block", options=WATCHED),
    "GSE": Case(GSE(), bernoulli(), "block"),
    "Fed1-UCB": Case(Fed1UCB(), bernoulli(), "block"),
    "DistUCB": Case(DistUCB(), bernoulli(), "block"),
    "a matching": Case(GossipUCB(), bernoulli(12, "ring", edges_per_round="matching"), "block", 10, 2),
    "all links": Case(UCB, bernoulli(edges_per_round="all"), "block", options=WATCHED),
    "contacts": Case(
        UCB, Problem.bernoulli(MEANS[:3], graph.contacts([(t, t % 2, t % 2 + 1) for t in range(1, 30, 3)], 3)), "block"
    ),
    "late rewards": Case(THOMPSON, bernoulli(delays=delays.geometric(4.0)), "block", most=6),
    "late rewards in a window": Case(GossipUCB(), bernoulli(delays="geometric:3", reward_window=4), "block"),
    "a control arm": Case(THOMPSON, bernoulli(), "block", options={"shares": Shares(1, 0.25, 0.05)}),
    "means that change, in a block": Case(
        UCB, CHANGING, "block", options={**WATCHED, "shares": Shares(None, 0.0, 0.05)}
    ),
    "a page of one's own": Case(Sound(), bernoulli(), "warp", most=9),
    "a page of one's own, in a block": Case(Sound(), bernoulli(edges_per_round="all"), "block", most=9),
    "aggregates": Case(UCB, CHANGING, "warp", most=4, options={"keep": "aggregates", **WATCHED}),
    # the whole grid
    "a grid": Case(UCB, bernoulli(), "grid", 25, 2),
    "a grid that matches": Case(THOMPSON, bernoulli(12, "ring", edges_per_round="matching"), "grid", 10, 2),
    "a grid, a problem for each trial": Case(LocalUCB(), SEVERAL, "grid", 8, range(2)),
}

ALL_LINKS = bernoulli(edges_per_round="all")
ROUNDS_OF_WRONG_PAGES = 70
# Kernels that end before, with and after the round of the error; many rounds are played without those that have failed.
WRONG = {
    "an arm that does not exist": Case(Beyond(), bernoulli(), "warp", ROUNDS_OF_WRONG_PAGES, 1),
    "no such arm, several kernels": Case(Beyond(), bernoulli(), "warp", 150, 1, checkpoints=(149,), most=40),
    "no such arm, in a block": Case(Beyond(), ALL_LINKS, "block", ROUNDS_OF_WRONG_PAGES, 1, most=61),
    "an infinite average": Case(Infinite(), bernoulli(), "warp", ROUNDS_OF_WRONG_PAGES, 1),
    "an infinite average, in a block": Case(Infinite(), ALL_LINKS, "block", ROUNDS_OF_WRONG_PAGES, 1),
}


def call_of(case):
    """The arguments of ``simulate``."""
    times = [time for time in case.checkpoints if time < case.rounds]
    return (case.problem, case.policy, case.rounds, case.trials), {"seed": 5, "checkpoints": times, **case.options}


def numbers_of(result):
    """What is compared."""
    return {
        name: array.values.tolist() for name, array in result.dataset.data_vars.items() if name.startswith(VARIABLES)
    }


def main(names):
    """Play the cases on both engines, and tell their numbers, or what the GPU engine refuses."""
    import simulated_gpu

    engine = simulated_gpu.install()
    from fedbandit import InvalidArgument, simulate
    from fedbandit.engine.cuda import blocks, warp
    from fedbandit.simulation.run import check_call

    warp.WARPS, blocks._BLOCK = 2, 32
    warp.MANY_WARPS = warp.Room(150, 128)  # with few arms, too, something is far
    told = {}
    for name, case in (CASES | WRONG).items():
        if names and name not in names:
            continue
        is_grid = case.kernel == "grid"
        warp.FEW_TRIALS = 2_000 if case.few else 0
        blocks._GRID_AGENTS = 0 if is_grid else 4_096
        engine._MOST_ROUNDS_AT_ONCE = case.most
        engine.fits_in_a_warp = (lambda *_: False) if is_grid else warp.fits_in_a_warp
        arguments, options = call_of(case)
        (plan,) = check_call(*arguments, **options).compiled
        assert engine.fits_in_a_warp(plan, *MEANS[: len(plan.terms)].shape) == (case.kernel == "warp"), name
        if name in CASES:
            told[name] = [numbers_of(simulate(*arguments, engine=which, **options)) for which in ("cuda", "cpu")]
            continue
        with simulated_gpu.silent_errors():
            try:
                told[name] = str(simulate(*arguments, engine="cuda", **options))
            except InvalidArgument as error:
                told[name] = str(error)
    return told


if __name__ == "__main__":
    assert os.environ["NUMBA_ENABLE_CUDASIM"] == os.environ["NUMBA_DISABLE_JIT"] == "1"
    warnings.simplefilter("ignore")
    json.dump(main(sys.argv[1:]), sys.stdout)
