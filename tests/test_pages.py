"""Every page plays the same in plain Python, compiled, and at a live site: the same arms on the same tape.

The plain version (``plain_engine.py``) reads the contract in ``policies.protocol`` a second time, without the simulator.
"""

import warnings
from dataclasses import replace
from functools import partial
from math import inf
from typing import get_args

import numpy as np
import pytest

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
    InvalidArgument,
    LocalUCB,
    PrivacyWarning,
    Problem,
    Tape,
    graph,
    replay,
)
from fedbandit.policies import POLICIES
from fedbandit.policies.protocol import Network, Page
from fedbandit.rules.batch import largest_reward_variance
from fedbandit.simulation.layout import setting_of
from plain_engine import PlainEngine
from sites_on_tape import SitesOnTape, tape_on_the_grid

HORIZON = 300

Thompson, Kl = partial(FedBatch, index="thompson"), partial(FedBatch, index="kl")
Ucb, Safe = partial(FedBatch, index="ucb"), partial(FedBatch, index="ucb", radius="safe")
SMALL = {"noise_constant": 0.01, "sampling_constant": 0.2}  # so that C~ does not hide the estimates

# The number of arms, and policies with one page: it is compiled once. Made in the test, since some of them warn.
CASES = {
    "gossip_ucb": (3, [GossipUCB, partial(FedUCB, inf, sampling_constant=0.2)]),
    "fed_ucb": (3, [partial(FedUCB, 1.0), partial(FedUCB, 4.0, horizon=500, assume_sensitivity=1.0, **SMALL)]),
    "fed_ucb as printed": (2, [partial(FedUCB, 1.0, paper=True), partial(FedUCB, 8.0, paper=True, **SMALL)]),
    "fed_batch": (
        3,
        [
            partial(FedBatch, 1.0),
            partial(Thompson, inf, first_batch=2),
            partial(Thompson, 2.0, sigma=0.5, growth=1.5),
            partial(Thompson, 4.0, first_batch=3, assume_sensitivity=2.0),
        ],
    ),
    "fed_batch, ucb": (3, [partial(Ucb, 1.0), partial(Ucb, 8.0, sigma=0.5, first_batch=1)]),
    "fed_batch, safe": (2, [partial(Safe, 1.0), partial(Safe, inf, first_batch=2, growth=1.2)]),
    "fed_batch, kl": (3, [partial(Kl, 1.0), partial(Kl, inf, first_batch=2)]),
    "fed_batch, catching up": (2, [partial(Thompson, 8.0, catches_up=True)]),
    "fed_batch, ucb, catching up": (3, [partial(Ucb, 8.0, catches_up=True)]),
    "fed_batch, safe, catching up": (3, [partial(Safe, 8.0, catches_up=True)]),
    "fed_batch, kl, catching up": (2, [partial(Kl, 8.0, catches_up=True)]),
    "local_ucb": (2, [LocalUCB]),
    "central_ucb": (3, [CentralUCB, partial(CentralUCB, alpha=0.7, learns_variance=True)]),
    "central_ucb, thompson": (2, [partial(CentralUCB, index="thompson")]),
    "central_ucb, kl": (3, [partial(CentralUCB, index="kl")]),
    "dist_ucb": (3, [DistUCB]),
    "coop_ucb2": (2, [CoopUCB2]),
    "fed1_ucb": (3, [Fed1UCB]),
    "adap_ucb": (2, [partial(AdaPUCB, 1.0), partial(AdaPUCB, inf)]),
    "gse": (3, [GSE]),
}

# The policies that live sites play; none warns.
LIVE = {
    "gossip_ucb": GossipUCB(),
    "fed_ucb": FedUCB(1.0, horizon=HORIZON),
    "fed_ucb, small": FedUCB(8.0, horizon=HORIZON, **SMALL),
    "fed_batch": FedBatch(1.0),
    "fed_batch, sigma": Thompson(8.0, sigma=0.5, first_batch=2),
    "fed_batch, ucb": Ucb(1.0),
    "fed_batch, safe": Safe(1.0),
    "fed_batch, kl": Kl(1.0),
}


def made(policy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return policy()


def tapes(num_arms):
    """Continuous rewards on three graphs and ranges, one of them none; and rewards of 0 and 1."""

    def tape(world, seed, reward_range, gap=1.0):
        means = gap * np.random.default_rng(seed).random((world.num_agents, num_arms))
        return Tape.random(world, num_arms, HORIZON, seed, means, reward_range)

    binary = tape(graph.path(3), 4, (0.0, 1.0))
    return {
        "path, [0, 1]": tape(graph.path(4), 1, (0.0, 1.0)),
        "star, [-1, 3]": tape(graph.star(4), 2, (-1.0, 3.0), gap=3.0),
        "complete, any": tape(graph.complete(3), 3, None, gap=2.0),
        "path, 0 or 1": replace(binary, rewards=(binary.rewards > 0.5).astype(float)),
    }


def engine_on(tape, policy, page=None, bounded=False, **options):
    """The plain engine in the world of ``replay``; ``bounded``: in that of a live site, which knows the range only."""
    problem = Problem(np.zeros(tape.rewards.shape[1:]), tape.graph, "gaussian", reward_range=tape.reward_range)
    settings = [setting_of(problem, tape.horizon, i) for i in range(problem.num_agents)]
    if bounded:
        low, high = tape.reward_range
        variance = largest_reward_variance(low, high)
        settings = [s._replace(bounded=True, scale=high - low, reward_variance=variance) for s in settings]
    policy.check(settings[0])
    rule = policy.links(settings[0]) if hasattr(policy, "links") else None
    return PlainEngine(tape, page or policy.page(), [policy.terms(s) for s in settings], rule, **options)


def engines_on(tapes, policy, **options):
    """By tape, where the policy accepts its rewards."""
    for name, tape in tapes.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyWarning)
                yield name, engine_on(tape, policy, **options)
        except InvalidArgument:
            assert policy.label.startswith(("FedBatch", "Fed_UCB", "AdaP", "Central KL")), "others accept all rewards"


def assert_same(where, what, expected, actual, most=1e-9):
    """Equal up to ``most``, or an error that names the first agent and arm that differ."""
    expected, actual = np.array(expected, float), np.array(actual, float)
    assert expected.shape == actual.shape, f"{where}: {what} of shape {actual.shape}, not {expected.shape}"
    off = ~np.isclose(actual, expected, rtol=0.0, atol=most, equal_nan=True)
    if off.any():
        at = tuple(np.argwhere(off)[0].tolist())
        raise AssertionError(f"{where}: {what}{list(at)} is {actual[at]}, in plain Python {expected[at]}")


# ---------------------------------------------------------------- plain Python and compiled


@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_page_plays_the_same_compiled(case):
    """The same arms; estimates, own means and averages to 1e-9; n~ exactly."""
    num_arms, policies = CASES[case]
    all_tapes, compared = tapes(num_arms), 0
    caught_up, dropped = 0, 0
    for policy in map(made, policies):
        for name, engine in engines_on(all_tapes, policy):
            trace, page = replay(engine.tape, policy), engine.page
            for t, plain in enumerate(engine.rounds()):
                where = f"{policy.label} on {name}, round {t}"
                if t > 0:
                    assert_same(where, "arm", plain.arms, trace.arms[t - 1], 0)
                assert_same(where, "theta", plain.theta, trace.theta[t])
                if "x_mean" in page.knows:
                    assert_same(where, "x_mean", plain.x_mean, trace.x_mean[t])
                columns = trace.gossiped.shape[2]
                assert_same(where, "averages", [row[:columns] for row in plain.averages], trace.gossiped[t])
                if page.announced is not None:
                    assert_same(where, "n~", plain.n_max, trace.n_max[t + 1], 0)
            compared += 1
            caught_up += sum(getattr(me, "caught_up", 0) for me in engine.me)
            dropped += sum(num_arms - getattr(me, "num_live", num_arms) for me in engine.me)
            assert len(np.unique(trace.arms)) == num_arms
            if hasattr(engine.me[0], "releases"):
                assert min(min(me.releases) for me in engine.me) > 0, f"{where}: an arm was never released"
    assert compared >= 2, "little was compared"
    print(case, compared, "caught up", caught_up, "dropped", dropped)


# ---------------------------------------------------------------- at live sites
