import math

import numpy as np
import pytest
import xarray as xr

from fedbandit import (
    CentralUCB,
    FedUCB,
    GossipUCB,
    InvalidArgument,
    LocalUCB,
    PrivacyWarning,
    Problem,
    Result,
    load,
    simulate,
)
from fedbandit.engine.streams import (
    ARRIVALS,
    EDGES,
    NOISE,
    PICKS,
    REWARDS,
    beta,
    draw,
    laplace,
    standard_normal,
    stream,
    uniform,
    whole_below,
)
from fedbandit.simulation.run import checkpoint_times
from fedbandit.world import graph
from literal import c, c_private, play, private_mean, sample_mean

PROBLEM = Problem.random(4, 3, "path", seed=1, rewards="bernoulli")
POLICIES = [LocalUCB(), GossipUCB(), FedUCB(1.0), CentralUCB()]


def run(**changes):
    call = {"problem": PROBLEM, "policies": POLICIES, "horizon": 2000, "trials": 5, "seed": 3, "checkpoints": 20}
    return simulate(**(call | changes))


@pytest.fixture(scope="module")
def result():
    return run()


def test_shapes_and_labels(result):
    assert dict(result.dataset.sizes) == {
        "policy": 4,
        "trial": 5,
        "agent": 4,
        "time": result.regret.sizes["time"],
        "arm": 3,
    }
    assert result.regret.dims == ("policy", "trial", "agent", "time")
    assert result.policies == ["Local UCB1", "Gossip_UCB", "Fed_UCB, eps=1", "Central UCB"]
    assert int(result.dataset.time[-1]) == 2000


def test_the_same_for_any_number_of_threads(result):
    for threads in (1, 3):
        assert run(threads=threads).dataset.identical(result.dataset)


def test_the_same_for_any_split_of_trials(result):
    parts = [run(trials=range(0, 2)), run(trials=range(2, 5))]
    joined = xr.concat([part.dataset for part in parts], dim="trial", combine_attrs="override")
    xr.testing.assert_equal(joined, result.dataset)


def test_another_seed_is_another_run(result):
    assert not np.array_equal(run(seed=4).regret, result.regret)


def test_trials_differ(result):
    final = result.regret.sel(policy="Gossip_UCB").isel(time=-1).mean("agent").values
    assert len(set(final.tolist())) == 5


def test_a_policy_sees_the_same_world_whoever_else_runs(result):
    alone = run(policies=[FedUCB(1.0)])
    xr.testing.assert_equal(alone.regret.squeeze("policy"), result.regret.sel(policy="Fed_UCB, eps=1"))


def test_policies_see_the_same_edges(result):
    """Who gossiped when does not depend on the policy: messages agree at every checkpoint."""
    np.testing.assert_array_equal(
        result.messages.sel(policy="Gossip_UCB"), result.messages.sel(policy="Fed_UCB, eps=1")
    )


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "beta"])
def test_the_engine_is_the_paper_on_its_own_streams(family):
    """Algorithm 1 word for word, fed with the engine's streams, gives every number that the engine records.

    So a reward is drawn by (trial, agent, arm, pull number), an edge by (trial, round), a pick by (trial, agent,
    round).
    """
    options = {"gaussian": {"sigma": 0.7}, "bernoulli": {}, "beta": {"concentration": 5.0}}[family]
    problem = Problem.random(5, 3, "path", seed=2, rewards=family, weights=[0.1, 0.2, 0.4, 0.1, 0.2], **options)
    horizon, seed, trial = 1500, 9, 3
    result = simulate(problem, {"it": GossipUCB()}, horizon, range(trial, trial + 1), seed, checkpoints=[20, 700])

    def bits(purpose, agent, arm, counter):
        return np.uint64(draw(np.uint64(stream(seed, trial, purpose, agent, arm)), counter))

    def reward(t, i, k, earlier):
        word, mean = bits(REWARDS, i, k, earlier), problem.means[i, k]
        if family == "gaussian":
            return mean + 0.7 * standard_normal(word)
        return float(uniform(word) < mean) if family == "bernoulli" else beta(word, 5 * mean, 5 * (1 - mean))

    share = 5 * problem.weights
    scale, constant = options.get("sigma", 1.0), (share**2).sum() / 5
    arms, theta, n, n_max, _ = play(
        horizon,
        3,
        problem.graph.neighbours,
        reward,
        lambda t: problem.graph.edges[whole_below(bits(EDGES, 0, 0, t), 4)],
        lambda t, i: uniform(bits(PICKS, i, 0, t)),
        sample_mean,
        lambda n, i, k, t: scale * c(5, constant)(n, i, k, t),
        share=share,
    )
    behind = (n[:-1] < n_max[1:-1] - 5).any(axis=2)
    assert family == "beta" or behind.sum() > 20, "nobody lagged: picks were not tested"
    for t in (20, 700, 1500):
        at = result.dataset.sel(policy="it", trial=trial, time=t)
        np.testing.assert_array_equal(at["pulls"], n[t])
        np.testing.assert_allclose(at["regret"], problem.gaps[arms[:t]].sum(axis=0))
        np.testing.assert_allclose(at["lagging"], behind[:t].mean(axis=0))
        np.testing.assert_allclose(at["theta_error"], np.abs(theta[t] - problem.arm_means).mean(axis=1), atol=1e-9)
    share_of_best = n[-1][:, problem.best_arm] / n[-1].sum(axis=1)
    assert result.summary()["best_arm_share"].item() == pytest.approx(share_of_best.mean())


def test_agents_that_do_not_act_in_step_word_for_word():
    """Where agents act at rates of their own, an agent's t is its own pulls; it listens and gossips in every round.

    Algorithm 1 word for word with arrivals from the engine's streams (trial, agent, round).
    """
    rates = [1.0, 0.3, 0.05, 0.6, 1.0]
    problem = Problem.random(5, 3, "path", seed=2, rewards="bernoulli", rates=rates)
    horizon, seed = 1500, 4
    result = simulate(problem, GossipUCB(), horizon, 1, seed, checkpoints=[20, 700])

    def bits(purpose, agent, arm, counter):
        return np.uint64(draw(np.uint64(stream(seed, 0, purpose, agent, arm)), counter))

    arms, theta, n, n_max, _ = play(
        horizon,
        3,
        problem.graph.neighbours,
        lambda t, i, k, earlier: float(uniform(bits(REWARDS, i, k, earlier)) < problem.means[i, k]),
        lambda t: problem.graph.edges[whole_below(bits(EDGES, 0, 0, t), 4)],
        lambda t, i: uniform(bits(PICKS, i, 0, t)),
        sample_mean,
        c(5),
        acts=lambda t, i: uniform(bits(ARRIVALS, i, 0, t)) < rates[i],
    )
    behind = (n[:-1] < n_max[1:-1] - 5).any(axis=2) & (arms >= 0)
    assert behind.sum() > 20, "nobody lagged: picks were not tested"
    for t in (20, 700, 1500):
        at = result.dataset.sel(trial=0, time=t).squeeze("policy")
        np.testing.assert_array_equal(at["pulls"], n[t])
        own = (arms[:t] >= 0).sum(axis=0)
        np.testing.assert_allclose(at["lagging"], behind[:t].sum(axis=0) / np.maximum(own, 1))
        np.testing.assert_allclose(at["theta_error"], np.abs(theta[t] - problem.arm_means).mean(axis=1), atol=1e-9)


def test_noise_is_keyed_by_arm_and_pull():
    """Fed_UCB word for word on the engine's streams: also its noise is a function of (trial, agent, arm, pull)."""
    problem = Problem.random(4, 3, "ring", seed=5, rewards="bernoulli")
    horizon, seed = 600, 1
    result = simulate(problem, FedUCB(3.0), horizon, 1, seed, checkpoints=[100])

    def bits(purpose, agent, arm, counter):
        return np.uint64(draw(np.uint64(stream(seed, 0, purpose, agent, arm)), counter))

    scale = (horizon + 1).bit_length() / 3.0
    _, _, n, _, _ = play(
        horizon,
        3,
        problem.graph.neighbours,
        lambda t, i, k, earlier: float(uniform(bits(REWARDS, i, k, earlier)) < problem.means[i, k]),
        lambda t: problem.graph.edges[whole_below(bits(EDGES, 0, 0, t), 4)],
        lambda t, i: uniform(bits(PICKS, i, 0, t)),
        private_mean(lambda end, i, k: laplace(bits(NOISE, i, k, end)), scale, 0.0, 1.0),
        c_private(4, horizon, 3.0),
    )
    for t in (100, 600):
        np.testing.assert_array_equal(result.pulls.sel(time=t).squeeze(["policy", "trial"]), n[t])


def test_counts_add_up(result):
    pulls = result.pulls.sum("arm")
    assert (pulls == result.dataset.time + 3).all()
    gaps = xr.DataArray(PROBLEM.gaps, dims="arm")
    np.testing.assert_allclose(result.regret, ((result.pulls - 1) * gaps).sum("arm"))


def test_messages(result):
    last = result.messages.isel(time=-1)
    assert (last.sel(policy="Local UCB1") == 0).all()
    assert (last.sel(policy="Gossip_UCB").sum("agent") == 2 * 2000).all()  # one edge, two messages per round
    assert (last.sel(policy="Central UCB") == 3 * 2000).all()


def test_estimates_become_right():
    error = run(policies=[GossipUCB()], horizon=30_000).theta_error
    assert error.isel(time=-1).mean() < 0.05
    assert error.isel(time=-1).mean() < 0.3 * error.isel(time=0).mean()


@pytest.mark.parametrize(("edges", "messages"), [("matching", None), ("all", 2 * 3), (0.5, 3.0)])
def test_more_edges_per_round(edges, messages):
    """A path of 4 has 3 edges: matchings have 1 or 2. (0.5: mean 3 messages per round, 6 sd = 0.3.)"""
    problem = Problem.bernoulli(PROBLEM.means, graph.path(4), edges_per_round=edges)
    result = simulate(problem, GossipUCB(), 2000, 3)
    per_round = result.messages.isel(time=-1).sum("agent").squeeze().values / 2000
    if messages is None:
        assert ((per_round > 3.0) & (per_round < 3.7)).all()  # 2/3 of the orders give two edges, so 10/3
    else:
        np.testing.assert_allclose(per_round, messages, atol=0.0 if edges == "all" else 0.3)
    assert result.theta_error.isel(time=-1).mean() < 0.15


@pytest.mark.slow
def test_more_edges_mix_faster():
    problems = [
        Problem.random(20, 2, "path", seed=2, rewards="bernoulli", edges_per_round=edges)
        for edges in ("one", "matching", "all")
    ]
    errors = [simulate(p, GossipUCB(), 300, 30).theta_error.isel(time=-1).mean().item() for p in problems]
    assert errors[0] > 1.5 * errors[1]
    assert errors[0] > 1.5 * errors[2]


def test_weights_decide_what_is_learnt():
    """With all weight on agent 2, everyone learns agent 2's means, whatever the others see."""
    means = [[0.9, 0.1, 0.0], [0.9, 0.1, 0.0], [0.2, 0.6, 0.0]]
    problem = Problem.bernoulli(means, graph.complete(3), weights=[0.0, 0.0, 1.0])
    assert problem.best_arm == 1
    np.testing.assert_allclose(problem.arm_means, [0.2, 0.6, 0.0])
    result = simulate(problem, [GossipUCB(), CentralUCB()], 60_000, 4)
    share = result.pulls.isel(time=-1).sel(arm=1) / result.pulls.isel(time=-1).sum("arm")
    assert (share > 0.9).all()
    assert result.theta_error.isel(time=-1).max() < 0.05


@pytest.mark.slow
def test_all_reward_families_have_their_means():
    for family in ("gaussian", "bernoulli", "beta"):
        problem = Problem.random(3, 3, "complete", seed=5, rewards=family)
        error = simulate(problem, CentralUCB(), 40_000, 3).theta_error.isel(time=-1).mean().item()
        assert error < 0.08


def test_privacy_needs_a_range():
    gaussian = Problem.random(3, 3, "complete")
    with pytest.raises(
        InvalidArgument,
        match=r"reward_range must be declared for Fed_UCB, eps=1, not None. Gaussian rewards are unbounded",
    ):
        simulate(gaussian, FedUCB(1.0), 10, 1)
    with pytest.warns(PrivacyWarning, match="epsilon does not hold"):
        simulate(gaussian, FedUCB(1.0, assume_sensitivity=1.0), 10, 1)
    with pytest.warns(PrivacyWarning, match="as printed"):
        simulate(gaussian, FedUCB(1.0, paper=True), 10, 1)
    simulate(gaussian, FedUCB(math.inf), 10, 1)  # no privacy claimed, none needed


def test_the_tree_refuses_to_go_past_its_horizon():
    simulate(PROBLEM, FedUCB(1.0, horizon=100), 100, 1)
    with pytest.raises(InvalidArgument, match="horizon must be at most the policy's own"):
        simulate(PROBLEM, FedUCB(1.0, horizon=100), 101, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number from 1"),
        ({"horizon": 10**12}, "horizon must be a whole number from 1 to 1000000000, not 1000000000000"),
        ({"horizon": 1.5}, "horizon must be"),
        ({"horizon": math.nan}, "horizon must be"),
        ({"horizon": "many"}, "horizon must be"),
        ({"trials": 0}, "trials must be"),
        ({"trials": range(0)}, "trials must be"),
        ({"seed": -1}, "seed must be"),
        ({"checkpoints": 0}, "checkpoints must be"),
        ({"checkpoints": [5, 3]}, "checkpoints must be"),
        ({"checkpoints": [5000]}, "checkpoints must be a whole number from 1 to 2000"),
        ({"engine": "abacus"}, "engine must be one of auto, cpu, cuda, ray, not 'abacus'$"),
        ({"policies": []}, "policies must be"),
        ({"policies": [GossipUCB(), GossipUCB()]}, "policies must be"),
        ({"policies": "gossip"}, "policies must be"),
        ({"threads": 0}, "threads must be"),
        ({"problem": "x"}, "problem must be a Problem"),
        ({"policies": {1: GossipUCB()}}, "policies must be labelled"),
        ({"policies": [3]}, "policies must be"),
        ({"trials": 10**6, "checkpoints": 10**6, "horizon": 10**6}, "checkpoints must be fewer"),
    ],
)
def test_a_bad_call_fails_at_once(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        run(**changes)


def test_numpy_numbers_are_numbers(tmp_path):
    policies = [CentralUCB(np.int64(1)), FedUCB(np.float64(np.inf), assume_sensitivity=np.int64(1))]
    for problem, some in (
        (Problem.gaussian(np.eye(3), "path:3", sigma=np.float32(2)), policies),
        (Problem.bernoulli(np.eye(3), "path:3", edges_per_round=np.float32(0.5)), policies[1]),
    ):
        result = simulate(problem, some, np.int64(50), np.int32(2), seed=np.int64(3))
        assert load(result.save(tmp_path / "r.nc")).experiment["seed"] == 3


@pytest.mark.parametrize("epsilon", [-1, 0, math.nan, True, "1", None])
def test_a_bad_epsilon_fails_at_once(epsilon):
    with pytest.raises(InvalidArgument, match="epsilon must be a number above 0"):
        FedUCB(epsilon)


def test_checkpoints():
    times = checkpoint_times(10**6, 200)
    assert times[0] == 1
    assert times[-1] == 10**6
    assert 180 <= len(times) <= 200
    assert (np.diff(times) > 0).all()
    np.testing.assert_array_equal(checkpoint_times(5, 200), [1, 2, 3, 4, 5])
    for count in range(1, 12):
        few = checkpoint_times(1000, count)
        assert few[-1] == 1000
        assert 1 <= len(few) <= count


def test_given_checkpoints_and_the_horizon():
    np.testing.assert_array_equal(run(checkpoints=[1, 10]).dataset.time, [1, 10, 2000])


def test_progress_counts_agent_pulls():
    heard = []
    run(progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (4 * 5 * 2000 * 4, 4 * 5 * 2000 * 4)


def test_an_error_in_the_progress_stops_the_run():
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(horizon=10**8, progress=interrupt)


def test_save_and_load(result, tmp_path):
    path = result.save(tmp_path / "result.nc")
    again = load(path)
    xr.testing.assert_identical(again.dataset, result.dataset)
    assert again.experiment["policies"]["Fed_UCB, eps=1"] == {
        "kind": "fed_ucb",
        "epsilon": 1.0,
        "horizon": None,
        "paper": False,
        "assume_sensitivity": None,
        "noise_constant": 128.0,
        "sampling_constant": 1.0,
    }
    assert again.experiment["problem"]["means"] == PROBLEM.means.tolist()
    assert [p.name for p in path.parent.iterdir()] == ["result.nc"]


def test_save_makes_no_folder(result, tmp_path):
    """A misspelt folder is refused, and not made."""
    with pytest.raises(InvalidArgument, match=f"path must be in a folder that exists.*There is no {tmp_path}/misspelt"):
        result.save(tmp_path / "misspelt" / "result.nc")
    assert list(tmp_path.iterdir()) == []


def test_a_table_for_latex(result):
    table = Result(result.dataset.assign_coords(policy=["a_b & 100%", *result.policies[1:]])).to_latex()
    rows = [line.removesuffix(r" \\").split(" & ") for line in table.splitlines() if line.endswith(r"\\")]
    assert rows[1][0] == r"a\_b \& 100\%"
    summary, last = result.summary(), result.regret.isel(time=-1).mean("agent").values
    for position, cells in enumerate(rows[1:]):
        expected = [summary["regret"].iloc[position], summary["std_error"].iloc[position], last[position].max()]
        assert cells[-3:] == [f"{number:.1f}" for number in expected]
    assert Result(result.dataset.isel(trial=[0])).to_latex().count(" & -- & ") == len(result.policies)


def test_load_refuses_what_is_not_a_result(tmp_path):
    with pytest.raises(InvalidArgument, match="path must be a file or folder that exists"):
        load(tmp_path / "missing.nc")
    (tmp_path / "text.nc").write_text("no")
    with pytest.raises(InvalidArgument, match="path must be a file written by"):
        load(tmp_path / "text.nc")


def test_summary_and_tidy_table(result):
    table = result.summary()
    per_trial = result.regret.isel(time=-1).mean("agent")
    np.testing.assert_allclose(table["regret"], per_trial.mean("trial"))
    np.testing.assert_allclose(table["std_error"], per_trial.std("trial", ddof=1) / math.sqrt(5))
    np.testing.assert_allclose(table["worst_percent"], per_trial.max("trial"))
    tidy = result.to_pandas()
    assert len(tidy) == result.regret.size
    row = tidy.iloc[123]
    where = {"policy": row["policy"], "trial": row["trial"], "agent": row["agent"], "time": row["time"]}
    assert row["regret"] == result.regret.sel(where).item()
    assert row["pulls_2"] == result.pulls.sel(where).sel(arm=2).item()


def test_memory_does_not_grow_with_the_horizon():
    """The state of a trial is a few arrays whose sizes do not contain T."""
    from fedbandit.engine.layout import new_population, setting_of, terms_of

    def size(horizon):
        policy, settings = FedUCB(1.0), [setting_of(PROBLEM, horizon, i) for i in range(PROBLEM.num_agents)]
        population = new_population(policy.page(), terms_of(policy, settings), PROBLEM.num_arms)
        arrays = (*population[:-2], *population.waiting, *population.sharing)
        return sum(array.nbytes for array in arrays if hasattr(array, "nbytes"))

    assert size(10**9) == size(10**3)


def test_a_subclass_of_a_policy_is_refused():
    """It would run the stock algorithm, or another one, under the stock name."""

    class MyUCB(GossipUCB):
        pass

    with pytest.raises(InvalidArgument, match="MyUCB is a subclass of a built-in policy"):
        simulate(PROBLEM, MyUCB(), 10, 1)
