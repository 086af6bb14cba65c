"""Late rewards in the simulator: delays, the reward window, slots in the order of decisions.

``late_engine.py`` reads the rules a second time: it looks at every waiting slot in every round, where the simulator
puts each into a list for the round in which it counts.

Can it fail? ``mutants.py`` plants bugs in the window's end, the order of slots and the outcome.
"""

import re
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

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
    Result,
    load,
    simulate,
)
from fedbandit.engine import streams
from fedbandit.engine.compiled import compile_driver
from fedbandit.engine.late_rewards import _delay, lateness_of
from fedbandit.experiments.experiment import ExperimentError, read_experiment, read_sweep
from fedbandit.experiments.sweep import sweep_table
from fedbandit.figures.sweep import sweep_figure
from fedbandit.simulation.result import describe
from fedbandit.world import delays, graph
from late_engine import LateEngine, LateSites, compiled_rounds, late_problem
from sites_on_tape import tape_on_the_grid

MEANS = np.random.default_rng(3).random((4, 3))
THOMPSON = FedBatch(2.0, first_batch=3)


def bernoulli(**late):
    return Problem.bernoulli(MEANS, "path:4", **late)


# ---------------------------------------------------------------- what delays are


@pytest.mark.parametrize(
    "given",
    [
        delays.fixed(7),
        delays.geometric(0.1),
        delays.geometric(1 / 3),
        delays.by_outcome(low=0, high=300),
        delays.by_outcome(delays.geometric(2.5), delays.fixed(1)),
    ],
)
def test_a_text_says_all(given):
    assert delays.parse(str(given)) == given


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: delays.fixed(-1), "rounds must be a whole number from 0"),
        (lambda: delays.fixed(1.5), "rounds must be a whole number"),
        (lambda: delays.geometric(0.0), "mean must be a number above 0"),
        (lambda: delays.geometric(inf), "mean must be"),
        (lambda: delays.by_outcome(0, "geometric:3"), "high must be a number of rounds, fixed"),
        (lambda: delays.by_outcome(delays.by_outcome(0, 1), 0), "low must be a number of rounds, fixed"),
        (lambda: delays.parse("geometrc:3"), "Did you mean 'geometric'"),
        (lambda: delays.parse("fixed"), "delays must be fixed:ROUNDS"),
        (lambda: delays.parse("by_outcome:fixed:1"), "by_outcome:LOW,HIGH"),
        (lambda: bernoulli(delays=100), r"delays must be fixed\(...\)"),
        (lambda: bernoulli(delays=["fixed:1"] * 3), "delays must be one for all agents, or 4 entries, not '3 entries'"),
        (lambda: bernoulli(reward_window=-1), "reward_window must be a whole number from 0"),
        (lambda: bernoulli(reward_window="30 days"), "reward_window must be a whole number"),
        (lambda: bernoulli(reward_window=9, default_reward=2.0), "default_reward must be a reward, from 0 to 1"),
        (lambda: bernoulli(default_reward=0.0), "default_reward must be left out without a reward_window"),
        (
            lambda: Problem.gaussian(MEANS, "path:4", delays=delays.by_outcome(0, 9)),
            "of rewards with a range.*Declare a reward_range",
        ),
        (
            lambda: simulate(bernoulli(delays="geometric:1e6"), LocalUCB(), 10**8, 1),
            "delays must be shorter.*would take .* GiB",
        ),
    ],
)
def test_nonsense_is_refused_in_words(build, message):
    with pytest.raises(InvalidArgument, match=message):
        build()


@pytest.mark.parametrize("policy", [CentralUCB(), Fed1UCB(), GSE(), AdaPUCB(1.0)], ids=lambda policy: policy.label)
@pytest.mark.parametrize("late", [{"delays": "fixed:0"}, {"reward_window": 1}], ids=str)
def test_policies_that_need_each_reward_at_once_refuse_late_ones(policy, late):
    with pytest.raises(InvalidArgument, match=re.escape(f"delays must be left out for {policy.label}")):
        simulate(bernoulli(**late), policy, 10, 1)


def test_the_default_is_the_lowest_reward_as_at_a_live_site():
    assert bernoulli(reward_window=5).default_reward == 0.0
    wide = Problem.gaussian(MEANS, "path:4", reward_range=(-1.0, 3.0), reward_window=5)
    assert wide.default_reward == -1.0
    assert Problem.gaussian(MEANS, "path:4", reward_window=5).default_reward == 0.0
    assert bernoulli(reward_window=5, default_reward=0.25).default_reward == 0.25
    assert not bernoulli().is_late


def test_geometric_delays_have_their_distribution():
    """P(d >= x) = (mean / (1 + mean))^x; bounds of six standard deviations: false alarms below 1e-7 in all."""
    count = 10**6
    problem = bernoulli(delays=[*(delays.geometric(m) for m in (0.5, 7.0, 1000.0)), "by_outcome:fixed:3,geometric:20"])
    lateness = lateness_of(problem)

    @compile_driver
    def fill(i, reward, found):
        name = streams.stream(5, 0, streams.DELAYS, np.uint64(i), np.uint64(0))
        for e in range(len(found)):
            found[e] = _delay(lateness, i, reward, streams.draw(name, np.uint64(e)))

    for i, reward, mean in [(0, 1.0, 0.5), (1, 0.0, 7.0), (2, 1.0, 1000.0), (3, 1.0, 20.0)]:
        found = np.zeros(count, np.int64)
        fill(i, reward, found)
        for x in (1, 2, int(mean) + 1, int(3 * mean) + 2):
            expected = (mean / (1.0 + mean)) ** x
            assert abs((found >= x).mean() - expected) < 6 * np.sqrt(expected * (1 - expected) / count), (mean, x)
        assert found.max() <= problem.delays[i].longest
    for reward in (0.0, 0.5):
        found = np.zeros(100, np.int64)
        fill(3, reward, found)
        assert (found == 3).all(), "a bad outcome, the middle among them, takes its own time"


# ---------------------------------------------------------------- nothing changes where nothing is late


def same(one, other):
    return all(np.array_equal(one.dataset[name], other.dataset[name]) for name in one.dataset.data_vars)


SLOW = [FedUCB(1.0), LocalUCB(), CoopUCB2(), DistUCB(), FedBatch(1.0, index="kl"), FedBatch(2.0, catches_up=True)]


@pytest.mark.parametrize(
    "policy",
    [THOMPSON, GossipUCB(), *(pytest.param(policy, marks=pytest.mark.slow) for policy in SLOW)],
    ids=lambda policy: policy.label,
)
@pytest.mark.slow
def test_a_delay_of_0_and_a_window_of_1_are_the_paper(policy):
    """A reward that comes in the round of its decision counts before the next one, bit for bit."""
    at_once = simulate(bernoulli(), policy, 500, 2)
    for late in ({"delays": delays.fixed(0)}, {"reward_window": 1}, {"delays": "fixed:0", "reward_window": 1}):
        assert same(at_once, simulate(bernoulli(**late), policy, 500, 2))


def test_a_window_without_delays_is_a_fixed_delay_of_the_same_rounds():
    results = [
        simulate(bernoulli(**late), THOMPSON, 400, 3)
        for late in (
            {"reward_window": 31},
            {"delays": "fixed:30"},
            {"delays": "geometric:2", "reward_window": 31, "default_reward": 0.5},
        )
    ]
    assert same(results[0], results[1])
    assert np.array_equal(results[0].pulls[0, :, :, :5], results[2].pulls[0, :, :, :5])  # nobody knows anything yet


@pytest.mark.slow
def test_rewards_that_never_count_leave_a_round_robin():
    for late in ({"delays": "fixed:1000"}, {"reward_window": 201}, {"delays": "geometric:1e9"}):
        for policy in (THOMPSON, GossipUCB()):
            pulls = simulate(bernoulli(**late), policy, 198, 1).pulls.isel(time=-1)
            assert (pulls == 1 + 66).all()


def test_results_depend_neither_on_threads_nor_on_checkpoints_nor_on_parts():
    problem = bernoulli(delays="by_outcome:geometric:3,geometric:40", rates=[1.0, 0.3, 0.9, 0.5])
    whole = simulate(problem, THOMPSON, 600, 4, threads=1)
    finer = simulate(problem, THOMPSON, 600, 4, threads=3, checkpoints=list(range(1, 601)))
    assert np.array_equal(whole.regret.isel(time=-1), finer.regret.isel(time=-1))
    parts = [simulate(problem, THOMPSON, 600, r) for r in (range(3), range(3, 4))]
    assert same(whole, Result.concat(parts))


def test_regret_counts_decisions_whenever_their_rewards_come():
    result = simulate(bernoulli(delays="fixed:50"), THOMPSON, 300, 2, checkpoints=list(range(1, 301)))
    pulls = result.pulls.transpose("policy", "trial", "agent", "time", "arm").values
    assert (pulls.sum(-1) == np.arange(1, 301) + 3).all()
    expected = ((pulls - 1) * bernoulli().gaps).sum(-1)
    np.testing.assert_allclose(result.regret.transpose("policy", "trial", "agent", "time").values, expected, atol=1e-9)


def test_a_reward_is_of_the_round_of_its_decision():
    """Means that change while a reward is on its way do not change it."""
    ones, zeros = np.ones((4, 3)), np.zeros((4, 3))
    late = Problem.changing([(0, ones), (50, zeros)], "path:4", "bernoulli", delays="fixed:30")
    result = simulate(late, LocalUCB(), 200, 1, checkpoints=[49, 79, 80, 200])
    error = result.theta_error.isel(policy=0, trial=0, agent=0).values
    assert error[1] == 1.0, "all that has counted by round 79 was decided before round 50, when every reward was 1"
    assert error[2] < 1.0


# ---------------------------------------------------------------- slot by slot


LATE = {
    "window": {"delays": "geometric:20", "reward_window": 25, "default_reward": 0.25},
    "as they come": {"delays": "geometric:12"},
    "by outcome": {"delays": ["fixed:0", "by_outcome:fixed:0,fixed:40", "by_outcome:geometric:9,fixed:2", "fixed:13"]},
    "by outcome, window": {"delays": "by_outcome:fixed:0,geometric:30", "reward_window": 17},
}
PAGES = {  # policies of one page; the first case runs with every change
    "thompson": [THOMPSON],
    "gossip_ucb": [GossipUCB()],
    "fed_ucb": [FedUCB(4.0, noise_constant=0.01, sampling_constant=0.2)],
    "kl": [FedBatch(2.0, index="kl", first_batch=2)],
    "ucb": [FedBatch(2.0, index="ucb", first_batch=2)],
    "catching up": [replace(THOMPSON, catches_up=True)],
    "local_ucb": [LocalUCB()],
    "coop_ucb2": [CoopUCB2()],
    "dist_ucb": [DistUCB()],
}
FAST = ("thompson", "gossip_ucb")  # each page compiles again


def tape_of(epsilon=1.0, gossip="averages"):
    tape, noise = tape_on_the_grid(graph.path(4), 3, 250, 5, 0.0, 1.0, epsilon, gossip)
    return replace(tape, bounded=True), noise


@pytest.mark.parametrize(
    "page", [*FAST, *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES if page not in FAST)]
)
def test_the_simulator_plays_slots_as_they_are_defined(page):
    """The same arms; estimates and averages to 1e-9. Sums of all news are those of all that is published."""
    for policy in PAGES[page]:
        for name, late in LATE.items():
            tape, _ = tape_of()
            problem = late_problem(tape, **late)
            engine = LateEngine(tape, policy, problem)
            for t, (plain, compiled) in enumerate(
                zip(engine.rounds(), compiled_rounds(tape, policy, problem), strict=True)
            ):
                where = f"{page}, {name}, round {t}"
                assert plain.arms == compiled.arms, where
                np.testing.assert_allclose(compiled.theta, plain.theta, rtol=0, atol=1e-9, err_msg=where)
                np.testing.assert_allclose(compiled.averages, plain.averages, rtol=0, atol=1e-9, err_msg=where)
            if "window" in name:
                assert engine.defaults > 20, "rewards missed their window"
            else:
                assert engine.most_at_once > 4, "several slots counted in one round"
            assert sum(sum(row) for row in engine.observed) > 500


# ---------------------------------------------------------------- live sites


@pytest.mark.parametrize(
    "index", ["thompson", *(pytest.param(index, marks=pytest.mark.slow) for index in ("ucb", "kl"))]
)
@pytest.mark.parametrize("late", ["window", "as they come", "by outcome, window"])
def test_live_sites_are_the_simulator(index, late):
    """The same schedule, the same arms; estimates to 1e-12."""
    policy = FedBatch(2.0, index=index)
    policy, epsilon = replace(policy, first_batch=3), 2.0
    tape, noise = tape_of(epsilon=epsilon, gossip="releases")
    problem = late_problem(tape, **LATE[late])
    live, before = LateSites(tape, noise, policy, problem), None

    def look():  # after the decisions: what was due has been settled
        theta = np.array([site.theta for site in live.sites], float)
        known = ~np.isnan(theta)
        np.testing.assert_allclose(theta[known], before.theta[known], rtol=0, atol=1e-12, err_msg=f"round {t}")

    for t, now in enumerate(compiled_rounds(tape, policy, problem)):
        if t > 0:
            assert live.play(t, look) == now.arms, f"round {t}"
        before = now
    assert [list(site.tried) for site in live.sites] == before.agents["tried"].tolist()
    assert (live.late > 50) == (problem.reward_window > 0)
    assert sum(sum(site.releases) for site in live.sites) > 30


@pytest.mark.parametrize("policy", [GossipUCB(), FedUCB(4.0, horizon=250, noise_constant=0.01)], ids=lambda p: p.label)
def test_live_sites_play_the_papers_policies_with_a_window_alike(policy):
    """Against the plain engine with n~ in bulletins, as live; who has no reward of an arm has published none."""
    tape, noise = tape_of(getattr(policy, "epsilon", 1.0) / (251).bit_length(), "releases")
    problem = late_problem(tape, **LATE["window"])
    live = LateSites(tape, noise, policy, problem)
    for t, plain in enumerate(LateEngine(tape, policy, problem, n_max_by_exchange=True).rounds()):
        if t > 0:
            assert live.play(t) == plain.arms, f"round {t}"
    assert live.late > 50


# ---------------------------------------------------------------- what it costs


def test_a_window_that_is_too_short_misleads_where_good_outcomes_come_late():
    """The last site decides. With all its good outcomes lost the other arm seems better; regret is then linear.

    Regret is 0.067 a round on a wrong arm. Over 200 trials it was 1,282 (standard deviation 32) and 66 (14): with 8 a
    false alarm needs 13 standard errors.
    """
    means, horizon = [[0.50, 0.45, 0.50], [0.50, 0.45, 0.50], [0.30, 0.60, 0.30]], 20_000
    site = {"delays": ["fixed:0", "fixed:0", "by_outcome:fixed:0,geometric:300"]}
    problem = partial(Problem.bernoulli, means, "complete:3", **site)
    short, long = (
        float(simulate(problem(reward_window=w), FedBatch(1.0), horizon, 8).regret.isel(time=-1).mean())
        for w in (30, 1000)
    )
    assert short > 0.8 * horizon * 0.2 / 3
    assert long < 0.1 * horizon * 0.2 / 3


# ---------------------------------------------------------------- files


FILE = """
graph = "path:4"
horizon = 60
trials = 2

[problem]
rewards = "bernoulli"
num_arms = 3
delays = {delays}
reward_window = {window}
{more}

[[policies]]
kind = "local_ucb"
"""


def write(folder, delays='"geometric:5"', window="20", more=""):
    path = folder / "late.toml"
    path.write_text(FILE.format(delays=delays, window=window, more=more))
    return path


def test_an_experiment_file_has_delays_and_a_window(tmp_path):
    problem = read_experiment(write(tmp_path, more="default_reward = 0.5")).problem
    assert problem.delays == (delays.geometric(5),) * 4
    assert (problem.reward_window, problem.default_reward) == (20, 0.5)
    with pytest.raises(ExperimentError, match="delays must be fixed:ROUNDS"):
        read_experiment(write(tmp_path, '"slow"'))
    with pytest.raises(ExperimentError, match="reward_window must be a whole number"):
        read_experiment(write(tmp_path, window="2.5"))


def test_a_sweep_over_delays_and_windows_has_a_table_and_a_figure(tmp_path):
    own = '["fixed:0", "fixed:0", "fixed:1", "geometric:9"]'
    experiments = read_sweep(write(tmp_path, f'["fixed:2", {own}]', "[0, 1, 10]"))
    assert len(experiments) == 6
    assert len({e.problem.kind_of_world for e in experiments}) == 6
    results = [simulate(e.played, e.policies, e.horizon, e.trials) for e in experiments]
    table = sweep_table(experiments, results)
    table.to_netcdf(tmp_path / "table.nc", engine="h5netcdf")
    assert set(table["delays"].values) == {"fixed:2", "fixed:0 | fixed:0 | fixed:1 | geometric:9"}
    (axes,) = sweep_figure(table).axes
    assert axes.get_xscale() == "symlog"
    assert "window" in axes.get_xlabel()
    mine = Figure()
    left, right = mine.subplots(1, 2)
    assert sweep_figure(table, ax=left) is mine
    assert "window" in left.get_xlabel()
    assert left.get_legend() is not None
    assert not right.lines
    with pytest.raises(InvalidArgument, match="ax must be axes of matplotlib"):
        sweep_figure(table, ax=[left, right])


def test_a_result_tells_how_late_rewards_were(tmp_path):
    own = ["fixed:0", "fixed:1", "fixed:2", "by_outcome:fixed:0,geometric:3"]
    result = simulate(bernoulli(delays=own, reward_window=7), LocalUCB(), 10, 1)
    kept = load(result.save(tmp_path / "a.nc")).experiment["problem"]
    assert (kept["delays"], kept["reward_window"], kept["default_reward"]) == (own, 7, 0.0)
    one = simulate(bernoulli(delays="fixed:1"), LocalUCB(), 10, range(1))
    assert one.experiment["problem"]["delays"] == "fixed:1"
    assert "delays" not in describe(bernoulli(), {}, range(1), 10, 0)["problem"]
    with pytest.raises(InvalidArgument, match=r"parts\[1\]\.problem\.delays"):
        Result.concat([one, simulate(bernoulli(delays="fixed:2"), LocalUCB(), 10, range(1, 2))])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
def test_the_printed_algorithm_runs_with_late_rewards():
    with pytest.warns(PrivacyWarning):
        policy = FedUCB(1.0, paper=True)
    assert np.isfinite(simulate(bernoulli(delays="geometric:9"), policy, 300, 1).theta_error).all()


@pytest.mark.docs
def test_the_examples_in_the_docs_run():
    page = (Path(__file__).parents[1] / "docs" / "late-rewards.md").read_text()
    space = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "docs/late-rewards.md", "exec"), space)  # noqa: S102
