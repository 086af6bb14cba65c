"""Decisions with features: the world, whose best arm depends on them, and pages that are told them."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest

from fedbandit import FedBatch, LocalUCB, Problem, Shares, Tape, features, load, replay, simulate
from fedbandit.checks import InvalidArgument
from fedbandit.policies.protocol import ARMS, FEATURES, Count, Fields, Number, Page, highest_draw
from fedbandit.testing import check_policy
from fedbandit.world import graph
from plain_engine import PlainEngine

# ---------------------------------------------------------------- a page that takes features: one gradient step each

KNOWS = Fields(
    n=Count[ARMS],
    slopes=Number[ARMS, FEATURES],
    mean=Number[ARMS].transient,
    spread=Number[ARMS].transient,
)


class Terms(NamedTuple):
    step: float


def decide(me, terms, seen, now, draws, context):
    for k in range(len(me.n)):
        me.mean[k] = estimate(me, terms, seen, k, context)
        me.spread[k] = 1.0 / (1.0 + me.n[k]) ** 0.5
    return highest_draw(me.mean, me.spread, draws)


def observe(me, terms, arm, reward, noise, context):
    me.n[arm] += 1
    error = reward - estimate(me, terms, 0, arm, context)
    for c in range(len(context.features)):
        me.slopes[arm][c] += terms.step * error * context.features[c]


def published(me, terms, arm):
    return (me.slopes[arm][0],)


def estimate(me, terms, seen, arm, context):
    mean = 0.0
    for c in range(len(context.features)):
        mean += me.slopes[arm][c] * context.features[c]
    return mean


PAGE = Page(KNOWS, ("value",), "alone", decide, observe, published, estimate, None, context="features")


@dataclass(frozen=True)
class Gradient:
    step: float = 0.1

    def page(self):
        return PAGE

    def terms(self, setting):
        return Terms(self.step)


THETA = np.array([[[0.5, 0.4, 0.0], [0.5, -0.4, 0.1]], [[0.5, 0.3, 0.1], [0.5, -0.3, 0.0]]])


def linear(**options):
    return Problem.linear(THETA, "path:2", "ball:2", **options)


# ---------------------------------------------------------------- the world


def test_regret_is_that_of_the_features_that_came():
    """One decision at a time, with features from a single row: every decision loses the same, counted by hand."""
    x = np.array([[0.25, -0.5]])
    problem = Problem.linear(THETA, "path:2", features.rows(x))
    result = simulate(problem, Gradient(), 3000, 2, checkpoints=[1, 10, 3000])
    mean = THETA.mean(axis=0) @ [1.0, *x[0]]
    pulls = result.pulls.isel(policy=0).transpose("trial", "agent", "time", "arm").values - 1
    regret = result.regret.isel(policy=0).transpose("trial", "agent", "time").values
    np.testing.assert_allclose(regret, pulls @ (mean.max() - mean), atol=1e-9)
    best = result.dataset["best_pulls"].isel(policy=0).transpose("trial", "agent", "time").values
    np.testing.assert_array_equal(best, pulls[..., mean.argmax()])
    np.testing.assert_allclose(problem.means, (THETA * [1.0, *x[0]]).sum(axis=-1))


def test_a_page_that_is_told_the_features_learns_what_others_cannot():
    told, untold = simulate(linear(), [Gradient(), LocalUCB()], 3000, 4).mean_regret.isel(time=-1).mean("trial").values
    assert told < 100 < 300 < untold


def test_a_page_that_ignores_features_loses_half_the_expected_gap():
    """Both arms are alike on average, and it cannot know for whom: then it loses half of |theta z| in each decision.

    z uniform in the disc: E |a . z| = |a| 4 / (3 pi). The difference of the arms is (0, .7, 0) on average.
    """
    result = simulate(linear(), LocalUCB(), 20_000, 4)
    expected = 20_000 * 0.5 * np.hypot(0.7, 0.0) * 4.0 / (3.0 * np.pi)
    lost = result.regret.isel(time=-1).values.mean()
    assert abs(lost / expected - 1.0) < 5.5 / (8 * 20_000) ** 0.5 * 1.6  # of 160,000 decisions; alarms below 1e-6


def test_ball_and_rows_have_the_moments_that_they_say():
    """Arm 0 pays exactly the first feature (Gaussian of sd 1e-6), so rewards show the features that came."""
    theta = np.array([[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]] * 2)
    found = features.ball(2, centres=[[0.5, 0.0], [-0.25, 0.5]], radius=[1.0, 0.5])
    problem = Problem.linear(theta, "path:2", found, "gaussian", sigma=1e-6)
    np.testing.assert_allclose(problem.means, [[0.5, 0.5], [-0.25, -0.25]])
    result = simulate(problem, LocalUCB(), 20_000, 1, checkpoints=[20_000], shares=Shares(least_share=0.49))
    error = result.dataset["theta_error"].values.squeeze()
    # The mean of the arm at agent i is centre +- radius / 2 / sqrt(n), with some 10,000 pulls of each arm; the average
    # over agents, 0.125, is what errors count against.
    np.testing.assert_allclose(error, [0.375, 0.375], atol=5.5 * 0.5 / 100)
    mine = [np.array([[0.2, 0.1], [0.4, 0.3]]), np.array([[-0.6, 0.0]])]
    problem = Problem.linear(theta, "path:2", features.rows(mine), "gaussian", sigma=1e-6)
    np.testing.assert_allclose(problem.means[:, 0], [0.3, -0.6])
    assert features.rows(mine).norm == pytest.approx(1.36**0.5)


def test_features_change_nothing_for_a_page_that_ignores_them_where_theta_does_not():
    theta = THETA.copy()
    theta[:, :, 0] = [[0.3, 0.6], [0.5, 0.6]]
    theta[:, :, 1:] = 0.0
    policies = [FedBatch(epsilon=1.0), LocalUCB()]
    one = simulate(Problem.linear(theta, "path:2", "ball:2"), policies, 500, 3)
    other = simulate(Problem.bernoulli(theta[:, :, 0], "path:2"), policies, 500, 3)
    np.testing.assert_array_equal(one.pulls.values, other.pulls.values)
    np.testing.assert_allclose(one.regret.values, other.regret.values, rtol=1e-9)


def test_late_rewards_count_with_their_own_features():
    """A gradient step with other features than the reward's would leave an error: there is no noise here."""
    problem = Problem.linear(THETA, "path:2", "ball:2", "gaussian", sigma=1e-6, delays="geometric:20")
    own = Problem.linear(THETA[:1], "path:1", "ball:2", "gaussian", sigma=1e-6, delays="geometric:20")
    result = simulate(own, Gradient(), 4000, 2)
    assert result.theta_error.isel(time=-1).max() < 1e-3
    assert simulate(problem, Gradient(), 200, 1).regret.shape[1] == 1


def test_parts_join_and_files_are_read_again(tmp_path):
    problems = [linear(), replace(linear(), theta=THETA / 2), linear(), linear()]
    whole = simulate(problems, Gradient(), 200, 4)
    parts = [simulate(problems, Gradient(), 200, range(a, a + 2)) for a in (0, 2)]
    assert type(whole).concat(parts).dataset.equals(whole.dataset)
    assert load(whole.save(tmp_path / "x.nc")).dataset.equals(whole.dataset)
    again = simulate(problems, Gradient(), 200, 4, threads=1)
    assert again.dataset.equals(whole.dataset)


def test_features_come_from_a_table(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text("hospital,age,weight,name\nA,18,50,x\nB,100,150,y\nA,59,200,z\n")
    found = features.rows(path, {"age": (18, 100), "weight": (50, 150)}, agent="hospital")
    assert found.agents == ("A", "B")
    np.testing.assert_allclose(found.of_agents[0] * 2**0.5, [[-1.0, -1.0], [0.0, 1.0]])  # clamped to its range
    assert found.norm <= 2**0.5
    for columns, words in (({"age": (100, 18)}, "low < high"), ({"name": (0, 1)}, "column name"), (None, "range")):
        with pytest.raises(InvalidArgument, match=words):
            features.rows(path, columns, agent="hospital")


# ---------------------------------------------------------------- compiled and in plain Python


def test_compiled_code_plays_as_plain_python():
    recording = Tape.random(graph.path(3), 3, 60, 1, num_features=4)
    trace = replay(recording, Gradient())
    for t, shown in enumerate(PlainEngine(recording, PAGE, [Terms(0.1)] * 3).rounds()):
        if t > 0:
            assert trace.arms[t - 1].tolist() == shown.arms
        np.testing.assert_allclose(trace.theta[t], shown.theta, rtol=1e-12, atol=1e-12)


def test_check_policy_accepts_it_and_refuses_one_that_forgets_the_context():
    check_policy(Gradient())

    @dataclass(frozen=True)
    class Forgets(Gradient):
        def page(self):
            return PAGE._replace(context=None)

    with pytest.raises(ValueError, match="FEATURES"):
        check_policy(Forgets())


# ---------------------------------------------------------------- refused in words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"theta": THETA * 2}, r"theta\[0, 0\]"),
        ({"theta": THETA[:, :, :2]}, "the first for the constant"),
        ({"theta": np.repeat(THETA, 2, axis=0)}, "2 agents"),
        ({"theta": "many"}, "theta"),
        ({"features": "cone:2"}, "ball:4"),
        ({"features": "ball:0"}, "features"),
        ({"features": features.rows([np.zeros((2, 2))] * 3)}, "rows of 3 agents"),
        ({"strata": 2}, "strata"),
        ({"rewards": "empirical"}, "rewards"),
    ],
)
def test_bad_features_are_refused(change, words):
    given = {"theta": THETA, "graph": "path:2", "features": "ball:2"} | change
    with pytest.raises(InvalidArgument, match=words):
        Problem.linear(**given)


def test_what_has_no_meaning_with_features_is_refused():
    with pytest.raises(InvalidArgument, match="watch_radii"):
        simulate(linear(), LocalUCB(), 10, 1, watch_radii=True)
    with pytest.raises(InvalidArgument, match="features"):
        simulate(linear(), LocalUCB(), 10, 1, engine="cuda")
    with pytest.raises(InvalidArgument, match=r"Problem\.linear"):
        simulate(Problem.bernoulli([[0.5, 0.6]], "path:1"), Gradient(), 10, 1)
