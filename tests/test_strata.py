"""Decisions with strata: the world, whose best arm is that of the stratum, and pages that are told the stratum."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest

from fedbandit import FedBatch, LocalUCB, Problem, Shares, Tape, replay, simulate
from fedbandit.checks import InvalidArgument
from fedbandit.policies.protocol import ARMS, STRATA, Count, Fields, Number, Page
from fedbandit.testing import check_policy
from fedbandit.world import graph
from plain_engine import PlainEngine

# ---------------------------------------------------------------- a page that takes strata

KNOWS = Fields(n=Count[ARMS], cells=Count[ARMS, STRATA], sums=Number[ARMS, STRATA], belief=Number[ARMS].transient)


class Terms(NamedTuple):
    bonus: float


def decide(me, terms, seen, now, draws, context):
    s = context.stratum
    best = 0
    for k in range(len(me.n)):
        n = me.cells[k][s]
        me.belief[k] = 1e9 - n if n == 0 else me.sums[k][s] / n + terms.bonus * now.root_log_t / n**0.5
        if me.belief[k] > me.belief[best]:
            best = k
    return best


def observe(me, terms, arm, reward, noise, context):
    me.n[arm] += 1
    me.cells[arm][context.stratum] += 1
    me.sums[arm][context.stratum] += reward


def published(me, terms, arm):
    return (me.sums[arm][0],)


def estimate(me, terms, seen, arm, context):
    n = me.cells[arm][context.stratum]
    return me.sums[arm][context.stratum] / n if n > 0 else 0.0


PAGE = Page(KNOWS, ("value",), "alone", decide, observe, published, estimate, None, context="strata")


@dataclass(frozen=True)
class ByStratum:
    bonus: float = 0.5

    def page(self):
        return PAGE

    def terms(self, setting):
        return Terms(self.bonus)


def tape(num_strata=3, agents=3, arms=3, horizon=60, seed=1):
    return Tape.random(graph.path(agents), arms, horizon, seed, num_strata=num_strata)


# ---------------------------------------------------------------- the world


def test_regret_is_that_of_the_strata_that_came():
    """Counted by hand, from pulls by cell: the loss of each against the best arm of its stratum, without t = 0."""
    means = np.array([[[0.9, 0.1, 0.2], [0.3, 0.7, 0.1]], [[0.6, 0.4, 0.5], [0.2, 0.5, 0.9]]])
    problem = Problem.bernoulli(means, "path:2", strata=[0.7, 0.3])
    result = simulate(problem, ByStratum(), 4000, 3, checkpoints=[1, 50, 4000])
    average = means.mean(axis=0)
    assert problem.best_arms == (0, 1)
    gaps = average.max(axis=1, keepdims=True) - average
    np.testing.assert_allclose(problem.gaps, gaps)
    pulls = result.pulls.isel(policy=0).transpose("trial", "agent", "time", "stratum", "arm").values
    assert (pulls.sum(axis=(-2, -1)) == np.array([1, 50, 4000]) + 3).all()
    regret = result.regret.isel(policy=0).transpose("trial", "agent", "time").values
    later = pulls[:, :, 1:] - pulls[:, :, :-1]
    np.testing.assert_allclose((later * gaps).sum(axis=(-2, -1)), regret[:, :, 1:] - regret[:, :, :-1], atol=1e-9)
    by_stratum = result.dataset["regret_by_stratum"].isel(policy=0).transpose("trial", "agent", "time", "stratum")
    np.testing.assert_allclose(by_stratum.sum("stratum").values, regret)
    share = pulls[:, :, -1, 0].sum(axis=-1) / pulls[:, :, -1].sum(axis=(-2, -1))
    assert abs(share.mean() - 0.7) < 5.5 * (0.7 * 0.3 / 24_000) ** 0.5  # false alarms below 1e-7
    table = result.by_stratum()
    assert table["best_arm"].tolist() == [0, 1]
    by_hand = pulls[..., -1, [0, 1], [0, 1]].sum(axis=(0, 1)) / pulls[..., -1, :, :].sum(axis=(0, 1, 3))
    np.testing.assert_allclose(table["best_arm_share"], by_hand)


def test_a_page_that_is_told_the_stratum_learns_what_others_cannot():
    means = np.array([[[0.9, 0.1], [0.1, 0.9]]])
    problem = Problem.bernoulli(means, "path:1", strata=2)
    result = simulate(problem, [ByStratum(), LocalUCB()], 2000, 5)
    told, untold = result.mean_regret.isel(time=-1).mean("trial").values
    assert told < 40 < 300 < untold


def test_equal_strata_change_nothing_for_a_page_that_ignores_them():
    """Rewards, links, noise and draws are the same; the strata are drawn beside them."""
    with_strata = Problem.random(4, 3, "path", rewards="bernoulli", strata=4, interaction=0.0)
    without = Problem.bernoulli(with_strata.means[:, 0], "path:4")
    policies = [FedBatch(epsilon=1.0), LocalUCB()]
    one, other = (simulate(p, policies, 500, 3) for p in (with_strata, without))
    np.testing.assert_allclose(one.regret.values, other.regret.values, rtol=1e-12)
    np.testing.assert_array_equal(one.pulls.sum("stratum").values, other.pulls.values)


def test_patients_count_by_their_stratum():
    means = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.1, 0.6], [0.7, 0.3]]])
    strata, rates = [[0.9, 0.1], [0.2, 0.8]], [0.1, 0.5]
    problem = Problem.bernoulli(means, "path:2", strata=strata, rates=rates, counts="patients")
    patients = np.array(rates)[:, None] * np.array(strata)
    np.testing.assert_allclose(problem.arm_means[1], (patients[:, 1:] * means[:, 1]).sum(axis=0) / patients[:, 1].sum())
    alike = Problem.bernoulli(means, "path:2", strata=strata, rates=rates)
    np.testing.assert_allclose(alike.arm_means, means.mean(axis=0))


def test_random_problems_have_interactions_of_the_size_that_was_asked_for():
    problem = Problem.random(2, 2000, "path", rewards="bernoulli", same_means=True, strata=4, interaction=0.05)
    plain = Problem.random(2, 2000, "path", rewards="bernoulli", same_means=True)
    inside = (plain.means[0] > 0.3) & (plain.means[0] < 0.7)
    off = (problem.means - plain.means[:, None])[0][:, inside]
    assert abs(off.std() - 0.05) < 0.003  # of 3,200 normal numbers; false alarms below 1e-6
    np.testing.assert_array_equal(problem.means[0], problem.means[1])


def test_late_rewards_count_in_their_own_stratum():
    """With two strata of rewards 0 and 1, a sum that mixed them would lie between."""
    means = np.array([[[0.0, 0.0], [1.0, 1.0]]])
    problem = Problem.bernoulli(means, "path:1", strata=2, delays="geometric:20")
    result = simulate(problem, ByStratum(), 2000, 2)
    assert result.theta_error.isel(time=-1).max() == 0.0


def test_changing_means_and_shares():
    means = np.array([[[0.9, 0.1], [0.1, 0.9]]] * 2)
    problem = Problem.changing([(0, means), (500, means[:, ::-1])], "path:2", "bernoulli", strata=2)
    result = simulate(problem, ByStratum(), 1000, 2, shares=Shares(control=0, control_share=0.25))
    np.testing.assert_allclose(result.dataset["regret_by_stratum"].sum("stratum"), result.regret)
    aggregates = simulate(problem, ByStratum(), 1000, 2, keep="aggregates")
    whole = simulate(problem, ByStratum(), 1000, 2)
    np.testing.assert_allclose(aggregates.by_stratum()["regret"], whole.by_stratum()["regret"])


def test_parts_join_and_files_are_read_again(tmp_path):
    problem = Problem.random(3, 3, "path", rewards="bernoulli", strata=2)
    whole = simulate(problem, ByStratum(), 200, 4)
    parts = [simulate(problem, ByStratum(), 200, range(a, a + 2)) for a in (0, 2)]
    assert type(whole).concat(parts).dataset.equals(whole.dataset)
    from fedbandit import load

    assert load(whole.save(tmp_path / "x.nc")).dataset.equals(whole.dataset)
    assert len(whole.to_pandas().filter(like="pulls_").columns) == 6


# ---------------------------------------------------------------- compiled and in plain Python


@pytest.mark.parametrize("num_strata", [1, 3])
def test_compiled_code_plays_as_plain_python(num_strata):
    recording = tape(num_strata)
    trace = replay(recording, ByStratum())
    plain = list(PlainEngine(recording, PAGE, [Terms(0.5)] * 3).rounds())
    for t, shown in enumerate(plain):
        if t > 0:
            assert trace.arms[t - 1].tolist() == shown.arms
        np.testing.assert_allclose(trace.theta[t], shown.theta, rtol=1e-12)


def test_check_policy_accepts_it_and_refuses_one_that_forgets_the_context():
    check_policy(ByStratum())

    @dataclass(frozen=True)
    class Forgets(ByStratum):
        def page(self):
            return PAGE._replace(context=None)

    with pytest.raises(ValueError, match="STRATA"):
        check_policy(Forgets())


# ---------------------------------------------------------------- refused in words

GOOD = np.full((2, 3, 2), 0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"strata": [0.5, 0.5]}, "strata"),
        ({"strata": [0.5, 0.4, 0.0]}, "sum 1"),
        ({"strata": [0.5, 0.5, 0.0]}, "Stratum 2"),
        ({"strata": [-0.5, 1.0, 0.5]}, "at least 0"),
        ({"strata": "many"}, "strata"),
        ({"strata": 0}, "strata"),
        ({"means": GOOD[0], "strata": 3}, "by agent, stratum and arm"),
        ({"means": GOOD + 1}, r"means\[0, 0, 0\]"),
    ],
)
def test_bad_strata_are_refused(change, words):
    given = {"means": GOOD, "graph": "path:2"} | change
    with pytest.raises(InvalidArgument, match=words):
        Problem.bernoulli(**given)


def test_what_has_no_meaning_with_strata_is_refused():
    problem = Problem.bernoulli(GOOD, "path:2")
    with pytest.raises(InvalidArgument, match="watch_radii"):
        simulate(problem, LocalUCB(), 10, 1, watch_radii=True)
    with pytest.raises(InvalidArgument, match="strata"):
        simulate(problem, LocalUCB(), 10, 1, engine="cuda")
    with pytest.raises(InvalidArgument, match="interaction"):
        Problem.random(2, 2, "path", interaction=0.1)
    with pytest.raises(InvalidArgument, match="strata"):
        replace(tape(), strata=np.zeros((3, 3)))
