"""FedBatch with strata: the same arms in plain Python, compiled and word for word; batches, refusals, learning."""

from dataclasses import replace

import numpy as np
import pytest

from fedbandit import FedBatch, Problem, Tape, replay
from fedbandit.engine.layout import setting_of
from fedbandit.policies.protocol import page_on
from fedbandit.testing import check_policy
from fedbandit.world import graph
from literal_strata import fed_strata
from plain_engine import PlainEngine

CONTEXTS = ["strata", "separate"]


def tape_of(num_strata, agents=4, arms=3, horizon=250, seed=1, world=graph.path):
    means = np.linspace(0.2, 0.8, arms) + np.zeros((agents, 1))
    tape = Tape.random(world(agents), arms, horizon, seed, means, (0.0, 1.0), num_strata)
    return replace(tape, gossip="releases")


def plain(tape, policy, counts="sites"):
    means = np.full((tape.graph.num_agents, tape.num_strata, tape.rewards.shape[2]), 0.5)
    problem = Problem.gaussian(means, tape.graph, reward_range=(0.0, 1.0), gossip="releases", counts=counts)
    known = [setting_of(problem, tape.horizon, i) for i in range(tape.graph.num_agents)]
    page = page_on(policy.page(), "releases", tape.num_strata)
    return PlainEngine(tape, page, [policy.terms(s) for s in known])


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("num_strata", [1, 3])
def test_compiled_code_plays_as_plain_python(context, num_strata):
    tape, policy = tape_of(num_strata), FedBatch(8.0, context=context, first_batch=4)
    trace = replay(tape, policy)
    for t, shown in enumerate(plain(tape, policy).rounds()):
        if t > 0:
            assert trace.arms[t - 1].tolist() == shown.arms
        np.testing.assert_allclose(trace.theta[t], shown.theta, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("context", CONTEXTS)
def test_check_policy_accepts_it(context):
    check_policy(FedBatch(8.0, context=context, first_batch=3), horizon=150)


@pytest.mark.parametrize(("num_strata", "epsilon"), [(3, 8.0), (2, 2.0)])
def test_it_plays_word_for_word(num_strata, epsilon):
    tape = tape_of(num_strata, agents=3, horizon=120, seed=num_strata)
    trace = replay(tape, FedBatch(epsilon, context="strata", first_batch=4))
    literal = fed_strata(tape, epsilon, 4)
    np.testing.assert_array_equal(trace.arms, literal["arms"])
    known = ~np.isnan(literal["theta"])
    assert known[-1].all()
    np.testing.assert_allclose(trace.theta[known], literal["theta"][known], rtol=1e-6)
