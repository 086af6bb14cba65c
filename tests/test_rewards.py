"""Families of rewards: heavy tails, samples, and draws of one's own.

Statistical limits have a false-alarm rate below 1e-6, with fixed seeds.
"""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numba import njit
from typer.testing import CliRunner

import own_draws
from fedbandit import CentralUCB, FedBatch, GossipUCB, InvalidArgument, LocalUCB, Problem, Result, load, simulate
from fedbandit.cli import app
from fedbandit.engine.compiled import compilable
from fedbandit.engine.layout import setting_of, terms_of
from fedbandit.engine.streams import REWARDS, draw, draw_of, stream
from fedbandit.experiments.experiment import ExperimentError, read_experiment, read_sweep
from fedbandit.experiments.run_folder import RUNS
from fedbandit.experiments.sweep import _key
from fedbandit.figures.regret import agents_figure
from fedbandit.policies.registry import digest_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "own-rewards.md").read_text()
MEANS = [[0.9, 0.1], [0.2, 0.7], [0.6, 0.3]]
SAMPLES = [[[0.0, 1.0], [0.25]], [[0.5, 0.5, 2.0], [0.0, 0.0, 0.0, 1.0]], [[3.0], [1.0, 2.0]]]
RANGE = (-1.0, 2.0)

FAMILIES = {
    "student_t": lambda **options: Problem.student_t(MEANS, "path:3", degrees_of_freedom=1.5, **options),
    "empirical": lambda **options: Problem.empirical(SAMPLES, "path:3", **options),
    "own": lambda **options: Problem.own(own_draws.wide, MEANS, "path:3", variance=0.05, **options),
}


def drawn(problem, i, arm, count):
    """Rewards of an agent from an arm."""
    draw_reward = draw_of(problem.rewards)
    compilable(draw_reward)

    @njit
    def fill(numbers, means, i, arm, out):
        name = stream(3, 0, REWARDS, i, arm)
        for c in range(len(out)):
            out[c] = draw_reward(numbers, draw(name, c), means, i, arm)

    rewards = np.zeros(count)
    fill(problem.rewards.numbers, problem.means, i, arm, rewards)
    return rewards


# ---------------------------------------------------------------- any family


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_private_policies_and_threads(family, tmp_path):
    """Privacy needs a declared range; a clamped run is the same on any number of threads, and in its file."""
    with pytest.raises(InvalidArgument, match=r"reward_range must be declared for FedBatch .* unbounded unless"):
        simulate(FAMILIES[family](), FedBatch(1.0), 10, 1)
    problem = FAMILIES[family](reward_range=RANGE)
    private = simulate(problem, FedBatch(1.0), 3000, 4, seed=1, threads=1)
    assert private.dataset.equals(simulate(problem, FedBatch(1.0), 3000, 4, seed=1, threads=3).dataset)
    again = load(private.save(tmp_path / "r.nc"))
    assert again.experiment == private.experiment
    assert again.experiment["problem"]["reward_range"] == list(RANGE)
    free = simulate(FAMILIES[family](), FedBatch(math.inf), 3000, 4, seed=1)
    for result in (private, free):
        share = result.summary()["best_arm_share"].item()
        assert share > 0.6
    terms = terms_of(FedBatch(1.0), [setting_of(problem, 100)])[0]
    assert (terms["low"], terms["high"]) == RANGE


@pytest.mark.parametrize(
    "family", [pytest.param(it, marks=pytest.mark.slow) if it == "empirical" else it for it in FAMILIES]
)
def test_clamping_bounds_what_a_private_policy_sees(family):
    """A range below the rewards: with almost no noise, estimates end at its upper end."""
    problem = FAMILIES[family](reward_range=(-60.0, -50.0))
    private = simulate(problem, FedBatch(1e6), 300, 1)
    pulled = private.theta_error.isel(time=-1).values
    clamped = np.abs(-50.0 - problem.arm_means).mean()
    if family == "own":  # these never come near -50; of the others some do
        np.testing.assert_allclose(pulled, clamped, rtol=1e-3)
    else:
        assert (pulled < 60.0 + np.abs(problem.arm_means).max()).all()
        assert (pulled > 0.9 * clamped).all()


def test_the_same_means_and_other_rewards_are_other_problems():
    problems = [Problem.own(own_draws.wide, MEANS, "path:3", variance=v) for v in (0.05, 0.06)]
    with pytest.raises(InvalidArgument, match="problem must be of one kind"):
        simulate(problems, LocalUCB(), 10, 2)
    with pytest.raises(InvalidArgument, match="problem must be of one kind"):
        simulate([Problem.empirical(s, "path:3") for s in (SAMPLES, [*SAMPLES[:2], [[3.0], [1.5]]])], LocalUCB(), 10, 2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Problem.student_t(MEANS, "path:3", 1.0), "degrees_of_freedom must be a number above 1, not 1.0"),
        (lambda: Problem.student_t(MEANS, "path:3", scale=0), "scale must be a number above 0"),
        (lambda: Problem.student_t(MEANS, "path:3", reward_range=(1, 0)), "reward_range must be"),
        (lambda: Problem(MEANS, 3, "gaussian"), "graph must be a Graph"),
        (lambda: Problem(MEANS, Problem.random(3, 2, "path").graph, "gaussian"), "rewards must be a family"),
        (lambda: Problem.random(3, 2, "path", rewards="empirical"), "means of empirical rewards are those of"),
        (lambda: Problem.random(3, 2, "path", rewards="cauchy"), "rewards must be one of gaussian, bernoulli"),
        (lambda: Problem.empirical(SAMPLES, "path:4"), "one row for each of the graph's 4 agents, not '3 rows'"),
        (lambda: Problem.empirical([[[1.0], []]] * 3, "path:3"), r"samples\[0\]\[1\] must be at least one reward"),
        (lambda: Problem.empirical([[[1.0], ["x"]]] * 3, "path:3"), r"samples\[0\]\[1\] must be at least one reward"),
        (lambda: Problem.empirical([[[1], [2]], [[1]], [[1], [2]]], "path:3"), r"samples\[1\] must be as long as"),
        (lambda: Problem.empirical([[[1], [1, math.nan]]] * 3, "path:3"), r"samples\[0\]\[1\]\[1\] must be at most"),
        (lambda: Problem.empirical([[[1], [1]]] * 3, "path:3"), "largest minus smallest.* must be a number above 0"),
        (lambda: Problem.empirical(7, "path:3"), "samples must be a list of rewards for each agent and arm"),
        (lambda: Problem.empirical([[1, 2]] * 3, "path:3"), r"samples\[0\]\[0\] must be at least one reward"),
        (lambda: Problem.own(own_draws.wide, MEANS, "path:3"), "variance must be an upper bound"),
        (lambda: Problem.own(own_draws.wide, MEANS, "path:3", bounded=True), "reward_range must be declared where"),
        (
            lambda: Problem.own(own_draws.coin, [[2, 0]] * 3, "path:3", reward_range=(0, 1), bounded=True),
            r"means\[0, 0\] must be in the reward_range \(0, 1\), not 2.0",
        ),
    ],
)
def test_bad_parameters(build, message):
    with pytest.raises(InvalidArgument, match=message):
        build()


# ---------------------------------------------------------------- Student's t


def test_what_a_policy_is_told_of_heavy_tails():
    told = setting_of(Problem.student_t(MEANS, "path:3", degrees_of_freedom=4.0, scale=3.0), 10)
    assert (told.reward_variance, told.scale) == pytest.approx((18.0, math.sqrt(18.0)))
    infinite = Problem.student_t(MEANS, "path:3", degrees_of_freedom=2.0, scale=3.0)
    told = setting_of(infinite, 10)
    assert (told.reward_variance, told.scale) == (math.inf, 3.0)
    assert terms_of(CentralUCB(), [setting_of(infinite, 10)])["most_variance"][0] == 9.0
    assert terms_of(FedBatch(math.inf), [setting_of(infinite, 10)])["most_variance"][0] == 9.0
    ranged = Problem.student_t(MEANS, "path:3", degrees_of_freedom=2.0, scale=0.1, reward_range=(-4.0, 4.0))
    assert (
        terms_of(FedBatch(1.0), [setting_of(ranged, 10)])["most_variance"][0] == 16.0
    )  # clamped rewards vary by 16 at most


def test_student_t_has_its_mean_and_scale():
    """Quartiles of t(3) lie at 0.7649 scales; 200,000 draws: 6 standard errors, 0.0022 scales for each quantile."""
    problem = Problem.student_t(MEANS, "path:3", degrees_of_freedom=3.0, scale=2.0)
    quartiles = np.quantile(drawn(problem, 1, 1, 200_000), [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quartiles, 0.7 + 2.0 * 0.7649 * np.array([-1, 0, 1]), atol=6 * 2.0 * 0.005)


# ---------------------------------------------------------------- samples


def test_samples_are_drawn_with_replacement():
    """Each with its frequency: 6 standard deviations of a binomial, for 9 numbers."""
    problem = Problem.empirical(SAMPLES, "path:3")
    np.testing.assert_allclose(problem.means, [[0.5, 0.25], [1.0, 0.25], [3.0, 1.5]])
    count = 100_000
    for i, k in ((1, 0), (1, 1), (2, 0), (2, 1)):
        rewards = drawn(problem, i, k, count)
        values, expected = np.unique(SAMPLES[i][k], return_counts=True)
        share = expected / len(SAMPLES[i][k])
        found, times = np.unique(rewards, return_counts=True)
        np.testing.assert_array_equal(found, values)
        assert (np.abs(times - count * share) <= 6 * np.sqrt(count * share * (1 - share))).all()


def test_what_a_policy_is_told_of_samples():
    told = setting_of(Problem.empirical(SAMPLES, "path:3"), 10)
    assert (told.has_range, told.bounded, told.scale, told.reward_variance) == (False, False, 3.0, 2.25)
    told = setting_of(Problem.empirical(SAMPLES, "path:3", reward_range=(-1, 4)), 10)
    assert (told.low, told.high, told.bounded, told.scale, told.reward_variance) == (-1.0, 4.0, True, 5.0, 6.25)
    told = setting_of(Problem.empirical(SAMPLES, "path:3", reward_range=(0, 1)), 10)
    assert (told.bounded, told.scale) == (False, 3.0)  # 2 and 3 will be clamped


def csv_of(samples, agents, arms):
    rows = [(agents[i], arms[k], r) for i, row in enumerate(samples) for k, cell in enumerate(row) for r in cell]
    return "arm,reward,note,agent\n" + "".join(f'{k},{r},"a, b",{i}\n' for i, k, r in rows)


def test_a_csv_file_is_its_lists(tmp_path):
    path = tmp_path / "samples.csv"
    path.write_text(csv_of(SAMPLES, [0, 1, 2], [0, 1]))
    from_lists, numbered = Problem.empirical(SAMPLES, "path:3"), Problem.empirical(path, "path:3")
    assert numbered.rewards == from_lists.rewards
    np.testing.assert_array_equal(numbered.rewards.values, from_lists.rewards.values)
    path.write_text("\ufeff" + csv_of(SAMPLES, ["west", "east", "10b"], ["old", "new"]))
    named = Problem.empirical(str(path), "path:3")
    assert (named.rewards.agents, named.rewards.arms) == (("west", "east", "10b"), ("old", "new"))
    np.testing.assert_array_equal(named.means, from_lists.means)
    assert named.rewards != from_lists.rewards


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "agent,arm\n0,0\n",
            "line 1 must be the columns agent, arm and reward, not 'agent,arm'. There is no column reward",
        ),
        ("clinic,arm,reward,age\nx,a,1,70\n", "There is no column agent: call it agent, site or hospital."),
        ("site,hospital,arm,reward\n", "It is not clear which one is the agent: site and hospital."),
        ("agent,arm,reward,arm\n", "It is not clear which one is the arm: arm and arm."),
        ("agent,arm,reward\n0,0,1\n0,0,x\n", "line 3, column reward must be a number .*, not 'x'"),
        ("agent,arm,reward\n0,0,1\n0,0,inf\n", "line 3, column reward must be a number .*, not 'inf'"),
        ("agent,arm,reward\n0,0\n", "line 2 must be 3 columns, as the first, not '2 columns'"),
        ("agent,arm,reward\n,0,1\n", "line 2, column agent must be a number or a name"),
        ("agent,arm,reward\n0,0,1\n1O,0,2\n", "line 3, column agent must be a whole number, as .*, not '1O'"),
        ("agent,arm,reward\n0,a,1\n0,1,2\n", "line 3, column arm must be a name, as .*, not '1'"),
        ("agent,arm,reward\n0,1,1\n0,2,3\n", "line 3, column arm must be numbered from 0 without gaps; there is no 0"),
        ("agent,arm,reward\na,x,1\na,y,2\nb,y,2\n", "Agent b has none of arm x"),
        ("agent,arm,reward\n", "a table with at least one reward"),
        ("", "line 1 must be the columns"),
        ('agent,arm,reward\n0,0,"1\n', "a readable CSV file"),
        (None, "a readable CSV file in UTF-8, not .* No such file"),
    ],
)
def test_a_mistake_in_a_csv_file_is_named(tmp_path, text, message):
    path = tmp_path / "samples.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        Problem.empirical(path, "path:3")


def test_columns_may_have_the_names_of_the_field(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_text("hospital,treatment,outcome,age\nx,a,1,70\nx,b,0,71\ny,a,0,72\ny,b,0.5,7\nz,a,1,3\nz,b,1,2\n")
    problem = Problem.empirical(path, "path:3")
    assert (problem.agent_names, problem.arm_names) == (("x", "y", "z"), ("a", "b"))
    assert problem.means.tolist() == [[1.0, 0.0], [0.0, 0.5], [1.0, 1.0]]
    path.write_text("hospital,agent,arm,reward\nx,0,0,1\nx,0,1,0\ny,1,0,1\ny,1,1,1\nz,2,0,1\nz,2,1,1\n")
    assert Problem.empirical(path, "path:3").agent_names == (), "the column agent goes first"


def test_a_data_frame_is_its_csv_file(tmp_path):
    rows = [(i, k, r) for i, row in enumerate(SAMPLES) for k, cell in enumerate(row) for r in cell]
    frame = pd.DataFrame(rows, columns=["site", "arm", "reward"], index=[7] * len(rows))
    assert Problem.empirical(frame, "path:3").rewards == Problem.empirical(SAMPLES, "path:3").rewards
    frame["site"] = frame["site"].map({0: "west", 1: "east", 2: "10b"}).astype("category")
    frame["arm"] = frame["arm"].astype(float)  # as pandas has numbers where some were missing
    path = tmp_path / "samples.csv"
    frame.astype({"arm": int}).to_csv(path, index=False)
    assert Problem.empirical(frame, "path:3").rewards == Problem.empirical(path, "path:3").rewards
    succeeded = frame.assign(reward=[True, False] * (len(frame) // 2) + [True] * (len(frame) % 2))
    assert set(Problem.empirical(succeeded, "path:3").rewards.values) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("agent", None, "samples, row 2, column agent must be a number or a name, not ''"),
        ("agent", pd.NA, "samples, row 2, column agent must be a number or a name, not ''"),
        ("arm", math.nan, "samples, row 2, column arm must be a number or a name, not ''"),
        ("reward", "much", "samples, row 2, column reward must be a number of at most 1e\\+12 in size, not 'much'"),
        ("reward", math.nan, "samples, row 2, column reward must be a number"),
    ],
)
def test_a_mistake_in_a_data_frame_is_named(column, value, message):
    frame = pd.DataFrame({"agent": list("xxyyzz"), "arm": list("ababab"), "reward": range(6)}).astype(object)
    frame.loc[2, column] = value
    with pytest.raises(InvalidArgument, match=message):
        Problem.empirical(frame, "path:3")
    with pytest.raises(InvalidArgument, match=r"columns of samples must be .* There is no column reward"):
        Problem.empirical(frame.drop(columns="reward"), "path:3")
    with pytest.raises(InvalidArgument, match="at least one reward"):
        Problem.empirical(frame[:0], "path:3")


def test_names_of_a_file_label_the_result(tmp_path):
    """Sites and arms by name: in the dataset, on disk, in tables, in figures, and for a problem in a notebook."""
    path = tmp_path / "samples.csv"
    path.write_text(csv_of(SAMPLES, ["west", "east", "_10b"], ["old", "new"]))
    problem = Problem.empirical(path, "path:3", rates=[1, 0.5, 1])
    result = simulate(problem, GossipUCB(), 50, 4)
    halves = [simulate(problem, GossipUCB(), 50, range(*r)) for r in ((0, 2), (2, 4))]
    for each in (result, load(result.save(tmp_path / "a.nc")), Result.concat(halves)):
        assert each.dataset["agent"].values.tolist() == ["west", "east", "_10b"]
        assert each.dataset["arm"].values.tolist() == ["old", "new"]
    np.testing.assert_array_equal(result.regret.sel(agent="east"), result.regret.isel(agent=1))
    assert list(result.by_agent().loc["Gossip_UCB"].index) == ["west", "east", "_10b"]
    assert {"pulls_old", "pulls_new"} <= set(result.to_pandas().columns)
    (axes,) = agents_figure(result).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        "west\nrate 1",
        "\u200b_10b\nrate 1",
        "east\nrate 0.5",
    ]
    for said in ("west", "old", "new", f"Best on average: {problem.arm_names[problem.best_arm]}."):
        assert said in problem._repr_html_()
    assert 0 < result.summary()["best_arm_share"].iloc[0] < 1
    numbered = simulate(Problem.empirical(SAMPLES, "path:3"), GossipUCB(), 50, 1)
    assert numbered.dataset["agent"].values.tolist() == [0, 1, 2]


# ---------------------------------------------------------------- one's own


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("alone", {}, r"draw must be a plain function of two arguments, \(bits, mean\), not 'alone\(bits\)'"),
        ("compiled", {}, "Leave out @njit"),
        ("of_a_die", {}, "draw must be a function of bits and mean alone.* It returns different rewards for the same"),
        ("of_numpy", {}, "draw must be a function of bits and mean alone"),
        ("nothing", {}, "draw must be a function that returns a number, not 'own_draws:nothing'. It returned None"),
        ("text", {}, "It returned '0.1'"),
        ("remembers", {}, "draw must be a function that Numba can compile.* It does not compile: .*'heard' in globals"),
        ("lists", {}, "It does not compile: it allocates memory, for a list or an array"),
        ("rarely_nan", {}, "rewards are finite, not .* It returned nan"),
        ("divides", {}, "It raised ZeroDivisionError"),
        ("biased", {}, "the mean that it is given: regret .* It has a mean of about 0.1[45]. where 0.1 was asked for"),
        ("forgets_the_mean", {"variance": 4.0}, "the mean that it is given"),
        ("loud", {}, "variance must be at least the variance of one reward around its mean, about [89]."),
        ("strays", {"reward_range": (0, 1), "bounded": True}, r"in \[0, 1\], as bounded=True says.* It returned -0"),
        ("half_compiled", {}, "means the same in Python and compiled"),
    ],
)
def test_a_wrong_draw_is_refused_in_words(name, options, message):
    with pytest.raises(InvalidArgument, match=message) as caught:
        simulate(
            Problem.own(getattr(own_draws, name), MEANS, "path:3", **{"variance": 1.0} | options), LocalUCB(), 10, 1
        )
    assert len(str(caught.value)) < 500
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("draw", [3, "wide", max, LocalUCB, None])
def test_what_is_not_a_function_is_refused(draw):
    with pytest.raises(InvalidArgument, match="draw must be a plain function"):
        Problem.own(draw, MEANS, "path:3", variance=1.0)


def test_what_a_policy_is_told_of_a_draw():
    told = setting_of(Problem.own(own_draws.wide, MEANS, "path:3", variance=0.04), 10)
    assert (told.has_range, told.bounded, told.scale, told.reward_variance) == (False, False, 0.2, 0.04)
    assert told.rewards == "own_draws:wide"
    bounded = Problem.own(own_draws.coin, MEANS, "path:3", reward_range=(0, 1), bounded=True)
    told, coins = setting_of(bounded, 10), setting_of(Problem.bernoulli(MEANS, "path:3"), 10)
    assert told == coins._replace(rewards="own_draws:coin")
    unknown = setting_of(Problem.own(own_draws.wide, MEANS, "path:3", math.inf, (-1, 3)), 10)
    assert (unknown.reward_variance, unknown.scale) == (math.inf, 4.0)


def test_a_coin_of_ones_own_is_bernoullis():
    """The same bits, the same rewards: the family is only another name."""
    own = Problem.random(3, 3, "path", rewards=own_draws.coin, reward_range=(0, 1), bounded=True)
    results = [
        simulate(p, LocalUCB(), 500, 2).dataset for p in (own, Problem.random(3, 3, "path", rewards="bernoulli"))
    ]
    assert results[0].equals(results[1])


def test_a_digest_knows_what_a_function_uses(monkeypatch):
    def scaled(by):
        return lambda bits, mean: by * mean

    assert digest_of(scaled(1.0)) == digest_of(scaled(1.0))
    assert digest_of(scaled(1.0)) != digest_of(scaled(2.0))
    before = digest_of(own_draws.wide)
    assert before != digest_of(own_draws.loud)
    monkeypatch.setattr(own_draws, "SPREAD", 0.4)
    assert digest_of(own_draws.wide) != before


RUN = """
from fedbandit import LocalUCB, Problem, simulate
import my_rewards
result = simulate(Problem.own(my_rewards.draw, [[0.9, 0.1]] * 3, "path:3", variance=9.0), LocalUCB(), 200, 1)
print(result.theta_error.values.tolist(), result.experiment["problem"]["code"])
"""


@pytest.mark.slow
def test_an_edited_draw_is_never_run_stale(tmp_path):
    """The edit is in another module than the draw, which Numba's cache would not notice."""
    code = "from my_parts import part\n\n\ndef draw(bits, mean):\n    return mean + part(bits)\n"
    (tmp_path / "my_rewards.py").write_text(code)

    def run(factor):
        part = f"def part(bits):\n    return {factor} * standard_normal(bits)\n"
        (tmp_path / "my_parts.py").write_text(f"from fedbandit.engine.streams import standard_normal\n\n\n{part}")
        ran = subprocess.run(
            [sys.executable, "-B", "-c", RUN], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return ran.stdout.rsplit(maxsplit=1)

    (numbers, digest), (edited, other) = run(1.0), run(0.5)
    assert digest != other
    assert numbers != edited


# ---------------------------------------------------------------- experiment files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a CSV file and a module of its own."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    (tmp_path / "visits.csv").write_text(csv_of(SAMPLES, "abc", "xy"))
    (tmp_path / "my_rewards.py").write_text((ROOT / "tests" / "own_draws.py").read_text())
    yield tmp_path
    sys.modules.pop("my_rewards", None)


def written(folder, rewards, rest=""):
    path = folder / "experiment.toml"
    path.write_text(
        f'graph = "path:3"\nhorizon = 300\ntrials = 2\n[problem]\nrewards = "{rewards}"\n{rest}\n'
        '[[policies]]\nkind = "local_ucb"\n'
    )
    return path


def test_files_name_any_family(folder):
    heavy = read_sweep(written(folder, "student_t", "num_arms = 2\ndegrees_of_freedom = [1.5, 3.0]\nscale = 2.0"))
    assert [e.problem.rewards.degrees_of_freedom for e in heavy] == [1.5, 3.0]
    assert heavy[0].swept == {"problem.degrees_of_freedom": 1.5}
    given = read_experiment(written(folder, "student_t", "means = [[1, 2], [3, 4], [5, 6]]\nreward_range = [-9, 9]"))
    assert given.problem.reward_range == (-9.0, 9.0)
    data = read_experiment(written(folder, "empirical", 'samples = "visits.csv"'))
    assert data.problem.rewards == Problem.empirical(folder / "visits.csv", "path:3").rewards
    redrawn = read_experiment(written(folder, "my_rewards:wide", "num_arms = 2\nvariance = 1.0\nredraw = true"))
    assert len(redrawn.problems) == 2
    assert redrawn.problem.rewards.name == "my_rewards:wide"
    bounded = "num_arms = 2\nreward_range = [0, 1]\nbounded = true"
    assert read_experiment(written(folder, "my_rewards:coin", bounded)).problem.rewards.bounded


@pytest.mark.parametrize(
    ("rewards", "rest", "message"),
    [
        ("student", "num_arms = 2", "problem.rewards must be one of .* Did you mean 'student_t'"),
        (
            "gaussian",
            "num_arms = 2\nscale = 2.0",
            "problem.scale must be left out unless problem.rewards is 'student_t'",
        ),
        ("bernoulli", "num_arms = 2\nreward_range = [0, 1]", "left out unless problem.rewards is 'gaussian' or"),
        ("student_t", "num_arms = 2\ndegrees_of_freedom = 0.5", "degrees_of_freedom must be a number above 1"),
        ("empirical", "", "problem.samples must be a CSV file"),
        ("empirical", 'samples = "visits.csv"\nnum_arms = 2', "given samples, and no means, num_arms or hospital"),
        ("empirical", 'samples = "visits.csv"\nredraw = true', "problem.redraw must be left out"),
        ("empirical", 'samples = "missing.csv"', "samples must be a readable CSV file.* No such file"),
        ("my_rewards:wid", "num_arms = 2\nvariance = 1.0", "my_rewards has no wid. Did you mean 'wide'"),
        (
            "no_such_module:wide",
            "num_arms = 2\nvariance = 1.0",
            "problem.rewards must be in a module that lies beside the file",
        ),
        ("my_rewards:", "num_arms = 2\nvariance = 1.0", "module:function"),
        ("my_rewards:SPREAD", "num_arms = 2\nvariance = 1.0", "my_rewards:SPREAD is not a function"),
        ("my_rewards:wide", "num_arms = 2", "variance must be an upper bound"),
        ("broken:draw", "num_arms = 2\nvariance = 1.0", "SyntaxError"),
        ("json:draw", "num_arms = 2\nvariance = 1.0", "Another module of that name is loaded already .*: rename yours"),
    ],
)
def test_a_mistake_in_the_file_is_named(folder, rewards, rest, message):
    (folder / "broken.py").write_text("def draw(")
    (folder / "json.py").write_text("")
    with pytest.raises(ExperimentError, match=message):
        read_sweep(written(folder, rewards, rest))


def test_a_resumed_sweep_knows_its_rewards(folder, monkeypatch):
    """Parts are found again by a key, which changes with the samples, the draw, and the parameters."""
    paths = [("empirical", 'samples = "visits.csv"'), ("my_rewards:wide", "num_arms = 2\nvariance = 1.0")]
    before = [_key(read_experiment(written(folder, *path))) for path in paths]
    assert before == [_key(read_experiment(written(folder, *path))) for path in paths]
    same_means = [[[0.25, 0.75], SAMPLES[0][1]], *SAMPLES[1:]]
    (folder / "visits.csv").write_text(csv_of(same_means, "abc", "xy"))
    monkeypatch.setattr(sys.modules["my_rewards"], "SPREAD", 0.4)
    after = [_key(read_experiment(written(folder, *path))) for path in paths]
    assert not set(before) & set(after)


@pytest.mark.slow
def test_a_sweep_of_ones_own_rewards_runs_in_its_processes(folder):
    path = written(folder, "my_rewards:wide", "num_arms = 2\nvariance = [0.05, 1.0]")
    ran = CliRunner().invoke(app, ["run", str(path), "-o", str(folder / "out"), "-q"])
    assert ran.exit_code == 0, ran.output
    assert (folder / "out" / "sweep.png").exists()
    shown = CliRunner().invoke(app, ["show", str(folder / "out")])
    assert "variance" in shown.output
    for e in read_sweep(path):
        result = load(folder / "out" / RUNS / f"{_key(e)}.nc")
        here = simulate(e.problem, e.policies, e.horizon, e.trials, e.seed, e.checkpoints)
        assert here.dataset.equals(result.dataset)
        about = result.experiment["problem"]
        assert about["rewards"] == "my_rewards:wide"
        assert about["code"] == digest_of(e.problem.rewards.draw)
        assert about["variance"] == e.swept["problem.variance"]


# ---------------------------------------------------------------- the page in docs


@pytest.mark.docs
def test_the_examples_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(example, {"__name__": "example"})  # noqa: S102
    printed = capsys.readouterr().out
    assert "('north', 'south', 'west') ('old drug', 'new drug')" in printed
    own = next(e for e in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def delay" in e)
    (tmp_path / "my_rewards.py").write_text(own.partition("means =")[0])
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    for number, example in enumerate(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)):
        (tmp_path / f"{number}.toml").write_text(example)
        assert read_sweep(tmp_path / f"{number}.toml")
    sys.modules.pop("my_rewards", None)


def test_what_is_stored_is_json_and_short():
    many = Problem.empirical([[np.arange(1000.0), np.arange(2000.0)]] * 3, "path:3")
    told = many.rewards.parameters()
    assert len(json.dumps(told)) < 200
    assert told["samples"]["number"] == 9000
    assert GossipUCB().terms(setting_of(many, 10)).scale == 1999.0
