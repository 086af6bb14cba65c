"""Records what the simulator computes, so that a rewritten engine can be held against it bit for bit.

    python tests/golden/record.py

writes ``engine.npz`` beside this file. ``tests/test_golden_engine.py`` runs the same cases and compares. Record anew
only if a change is meant to change numbers. Everything here goes through the public names of the package.

A case is one policy on one problem (``simulate``) or on one tape (``replay``). The tables below name the policies, the
problems and the tapes, and say which policies each of them runs. There are few numbers of arms (2, 3 and 5, mostly 3),
since an engine may compile each policy for each of them.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit import (
    GSE,
    AdaPUCB,
    CentralUCB,
    CoopUCB2,
    DistUCB,
    Fed1UCB,
    FedBatch,
    FedUCB,
    GossipUCB,
    LocalUCB,
    PrivacyWarning,
    Problem,
    Tape,
    graph,
    replay,
    simulate,
)

FILE = Path(__file__).parent / "engine.npz"

Arrays = dict[str, NDArray[Any]]
Case = Callable[[], Arrays]

# Made when a case runs: some of them warn that their epsilon does not hold.
POLICIES: dict[str, Callable[[], Any]] = {
    "gossip_ucb": GossipUCB,
    "fed_ucb": partial(FedUCB, 1.0),
    "fed_ucb_tuned": partial(FedUCB, 2.0, horizon=2000, noise_constant=0.01, sampling_constant=0.2),
    "fed_ucb_inf": partial(FedUCB, inf, sampling_constant=0.5),
    "fed_ucb_paper": partial(FedUCB, 1.0, paper=True, noise_constant=1.0),
    "fed_ucb_assumed": partial(FedUCB, 4.0, assume_sensitivity=1.0, noise_constant=0.01, sampling_constant=0.3),
    "batch": partial(FedBatch, 1.0),
    "batch_first": partial(FedBatch, 0.5, first_batch=3, growth=2.0),
    "batch_inf": partial(FedBatch, inf),
    "batch_sigma": partial(FedBatch, 2.0, sigma=0.3),
    "batch_assumed": partial(FedBatch, 1.0, assume_sensitivity=2.0, first_batch=4),
    "batch_catching_up": partial(FedBatch, 1.0, catches_up=True),
    "batch_ucb": partial(FedBatch, 1.0, index="ucb"),
    "batch_ucb_inf": partial(FedBatch, inf, index="ucb", first_batch=2, growth=1.1),
    "batch_kl": partial(FedBatch, 1.0, index="kl"),
    "batch_kl_inf": partial(FedBatch, inf, index="kl"),
    "local_ucb": LocalUCB,
    "central_ucb": CentralUCB,
    "central_alpha": partial(CentralUCB, 0.7),
    "central_learning": partial(CentralUCB, learns_variance=True),
    "central_thompson": partial(CentralUCB, index="thompson"),
    "central_thompson_learning": partial(CentralUCB, index="thompson", learns_variance=True),
    "central_kl": partial(CentralUCB, index="kl"),
    "dist_ucb": DistUCB,
    "coop_ucb2": CoopUCB2,
    "fed1_ucb": Fed1UCB,
    "gse": GSE,
    "gse_present": partial(GSE, 0.6),
    "adap_ucb": partial(AdaPUCB, 1.0),
    "adap_ucb_inf": partial(AdaPUCB, inf),
    "adap_ucb_assumed": partial(AdaPUCB, 2.0, assume_sensitivity=1.0),
}

# name: the call of ``simulate`` without its policy, and the policies.
SIMULATIONS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "gaussian": (
        lambda: {"problem": Problem.random(4, 3, "path", seed=1, sigma=0.7), "horizon": 1500, "seed": 11},
        "gossip_ucb fed_ucb_inf fed_ucb_paper fed_ucb_assumed batch_inf batch_assumed batch_ucb_inf local_ucb "
        "central_ucb central_learning dist_ucb coop_ucb2 gse adap_ucb_inf adap_ucb_assumed",
    ),
    "gaussian_unit": (
        lambda: {
            "problem": Problem.random(
                5, 3, "ring", seed=2, sigma=0.5, reward_range=(0.0, 1.0), edges_per_round="matching"
            ),
            "horizon": 1400,
            "seed": 12,
        },
        "gossip_ucb fed_ucb fed_ucb_tuned batch batch_inf batch_sigma batch_kl batch_kl_inf adap_ucb",
    ),
    "gaussian_wide": (
        lambda: {
            "problem": Problem.random(
                4,
                3,
                "star",
                seed=3,
                sigma=1.5,
                reward_range=(-1.0, 3.0),
                weights=[0.4, 0.1, 0.2, 0.3],
                edges_per_round="all",
            ),
            "horizon": 1500,
            "seed": 13,
        },
        "gossip_ucb fed_ucb_tuned batch batch_first batch_ucb batch_catching_up central_thompson "
        "central_alpha adap_ucb",
    ),
    "bernoulli": (  # arms so close that a small error changes a choice
        lambda: {
            "problem": Problem.bernoulli([[0.2, 0.9, 0.4], [0.5, 0.1, 0.7], [0.7, 0.5, 0.5]], "complete:3"),
            "horizon": 1500,
            "seed": 14,
            "checkpoints": [1, 2, 10, 100, 700],
        },
        "gossip_ucb fed_ucb fed_ucb_tuned batch batch_first batch_ucb batch_kl local_ucb "
        "batch_catching_up central_ucb central_learning central_thompson_learning central_kl gse_present adap_ucb",
    ),
    "bernoulli_rates": (
        lambda: {
            "problem": Problem.random(
                5,
                3,
                "path",
                seed=5,
                rewards="bernoulli",
                rates=[1.0, 0.3, 0.7, 0.05, 0.5],
                edges_per_round=0.4,
            ),
            "horizon": 1500,
            "seed": 15,
        },
        "gossip_ucb fed_ucb_tuned fed_ucb_paper batch batch_catching_up batch_kl local_ucb central_thompson dist_ucb "
        "coop_ucb2 adap_ucb",
    ),
    "bernoulli_weights": (
        lambda: {
            "problem": Problem.random(
                6,
                3,
                "grid:2x3",
                seed=6,
                rewards="bernoulli",
                weights=[0.3, 0.05, 0.15, 0.0, 0.25, 0.25],
                edges_per_round="matching",
            ),
            "horizon": 1500,
            "seed": 16,
        },
        "gossip_ucb fed_ucb batch batch_sigma batch_kl_inf central_ucb central_kl dist_ucb",
    ),
    "beta": (
        lambda: {
            "problem": Problem.random(
                6, 3, "ring", seed=7, rewards="beta", concentration=4.0, same_means=True, edges_per_round="all"
            ),
            "horizon": 1300,
            "seed": 17,
        },
        "gossip_ucb fed_ucb_tuned batch batch_ucb_inf central_learning coop_ucb2 fed1_ucb gse_present adap_ucb_inf",
    ),
    "beta_rates": (
        lambda: {
            "problem": Problem.random(
                5,
                3,
                "star",
                seed=8,
                rewards="beta",
                concentration=0.8,
                weights=[0.1, 0.2, 0.3, 0.2, 0.2],
                rates=[0.9, 0.2, 1.0, 0.6, 0.4],
            ),
            "horizon": 1500,
            "seed": 18,
        },
        "gossip_ucb fed_ucb batch batch_first batch_kl central_alpha central_thompson_learning adap_ucb",
    ),
    "several": (  # a problem for each trial
        lambda: {
            "problem": [Problem.random(4, 3, "star", seed=s, rewards="bernoulli") for s in (20, 21, 22)],
            "horizon": 1000,
            "trials": range(1, 3),
            "seed": 2**63 + 5,
        },
        "gossip_ucb fed_ucb_tuned batch central_ucb fed1_ucb gse",
    ),
    "watched": (  # counts how often an estimate is further off than its radius
        lambda: {
            "problem": Problem.random(4, 3, "path", seed=9, rewards="bernoulli"),
            "horizon": 700,
            "seed": 19,
            "watch_radii": True,
        },
        "gossip_ucb fed_ucb_tuned batch batch_kl local_ucb central_ucb dist_ucb coop_ucb2 fed1_ucb gse adap_ucb",
    ),
    "two_arms": (
        lambda: {
            "problem": Problem.random(4, 2, "complete", seed=10, rewards="bernoulli", edges_per_round=0.4),
            "horizon": 1500,
            "seed": 20,
        },
        "gossip_ucb fed_ucb_tuned batch coop_ucb2",
    ),
    "five_arms": (
        lambda: {
            "problem": Problem.random(8, 5, "path", seed=11, rewards="bernoulli"),
            "horizon": 1500,
            "seed": 21,
        },
        "gossip_ucb fed_ucb_tuned batch coop_ucb2 gse",
    ),
    "five_arms_rates": (
        lambda: {
            "problem": Problem.random(
                8,
                5,
                "grid:2x4",
                seed=12,
                sigma=0.3,
                reward_range=(0.0, 1.0),
                rates=[1.0, 0.5, 0.25, 1.0, 0.1, 0.8, 0.6, 0.9],
                edges_per_round="matching",
            ),
            "horizon": 1500,
            "seed": 22,
        },
        "gossip_ucb fed_ucb_tuned batch coop_ucb2",
    ),
}

# name: the tape, and the policies.
REPLAYS: dict[str, tuple[Callable[[], Tape], str]] = {
    "full": (
        lambda: Tape.random(graph.path(4), 3, 250, seed=1),
        "gossip_ucb fed_ucb_assumed fed_ucb_paper batch_inf batch_assumed local_ucb central_thompson coop_ucb2",
    ),
    "apart": (  # so far that arms are dropped
        lambda: Tape.random(graph.path(4), 3, 400, seed=6, means=[[0.0, 1.0, 3.0]] * 4),
        "fed1_ucb gse gse_present",
    ),
    "bare": (  # neither noise nor normals
        lambda: replace(Tape.random(graph.star(4), 3, 200, seed=2), noise=None, normals=None),
        "gossip_ucb fed_ucb_assumed batch_assumed adap_ucb_assumed",
    ),
    "unit": (
        lambda: Tape.random(graph.complete(3), 3, 300, seed=3, reward_range=(0.0, 1.0)),
        "fed_ucb_tuned batch batch_first batch_catching_up batch_kl adap_ucb",
    ),
    "wide": (
        lambda: replace(Tape.random(graph.ring(5), 3, 200, seed=4, reward_range=(-1.0, 3.0)), normals=None),
        "gossip_ucb fed_ucb_tuned batch batch_ucb",
    ),
    "wide_quiet": (  # normals without noise
        lambda: replace(Tape.random(graph.ring(5), 3, 200, seed=5, reward_range=(-1.0, 3.0)), noise=None),
        "fed_ucb_tuned batch",
    ),
}

ROUNDS = (0, 1, 2, 10, 40, 100, 160, -1)
"""The rounds of a replay whose numbers are kept; of the arms all are."""


def cases() -> dict[str, Case]:
    """All cases by name, not yet run."""
    found: dict[str, Case] = {}
    for problem, (call, policies) in SIMULATIONS.items():
        for policy in policies.split():
            found[f"simulate/{problem}/{policy}"] = partial(simulated, call, POLICIES[policy])
    for tape, (recording, policies) in REPLAYS.items():
        for policy in policies.split():
            found[f"replay/{tape}/{policy}"] = partial(replayed, recording, POLICIES[policy])
    return found


def simulated(call: Callable[[], dict[str, Any]], policy: Callable[[], Any]) -> Arrays:
    """All variables of a result, and its times."""
    result = simulate(**{"trials": 2, "checkpoints": 7, **call(), "policies": {"it": policy()}})
    dataset = result.dataset.sel(policy="it")
    return {"time": dataset["time"].values} | {str(name): array.values for name, array in dataset.data_vars.items()}


def replayed(tape: Callable[[], Tape], policy: Callable[[], Any]) -> Arrays:
    """The arms of all rounds, and the other numbers of some."""
    trace = replay(tape(), policy())
    kept = ("theta", "x_mean", "n", "n_max", "gossiped", "releases")
    return {"arms": trace.arms} | {name: getattr(trace, name)[list(ROUNDS)] for name in kept}


def load() -> dict[str, Arrays]:
    """What was recorded, by case."""
    found: dict[str, Arrays] = {}
    with np.load(FILE) as file:
        for name in file.files:
            case, _, array = name.rpartition("/")
            found.setdefault(case, {})[array] = file[name]
    return found


def main() -> None:
    """Run all cases and write the file."""
    recorded: Arrays = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        for name, case in cases().items():
            recorded |= {f"{name}/{array}": values for array, values in case().items()}
    np.savez_compressed(FILE, **recorded)


if __name__ == "__main__":
    main()
