"""FedBatch: each test is a sentence of docs/fedbatch.md.

Statistical tests have fixed seeds; each states the chance that it fails although the sentence is true.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import literal_batch
from fedbandit import CentralUCB, FedBatch, FedUCB, InvalidArgument, PrivacyWarning, Problem, Tape, replay, simulate
from fedbandit.engine.layout import setting_of
from fedbandit.privacy.mechanism import setting_in_steps
from fedbandit.rules.batch import batch_size, default_first_batch, learnt_reward_variance, least_reward_variance
from fedbandit.rules.kl import highest_kl_index, kl_index, private_divergence
from fedbandit.world import graph

GRAPHS = st.one_of(st.integers(3, 6).map(graph.path), st.integers(3, 5).map(graph.complete), st.just(graph.star(5)))


def tapes(reward_range=(-0.5, 1.5), longest=150, num_arms=(2, 3, 4)):
    arms, horizons, seeds = st.sampled_from(num_arms), st.integers(1, longest), st.integers(0, 2**31)
    return st.builds(Tape.random, GRAPHS, arms, horizons, seeds, reward_range=st.just(reward_range))


def agree(tape, policy, **options):
    """The product and the word for word version, arm by arm and number by number."""
    num_agents = 10 if policy.index == "kl" else tape.graph.num_agents
    first = policy.first_batch or default_first_batch(policy.epsilon, num_agents)
    expected = literal_batch.fed_batch(tape, policy.epsilon, first, policy.growth or 1.25, policy.index, **options)
    trace = replay(tape, policy)
    num_arms = tape.rewards.shape[2]
    np.testing.assert_array_equal(trace.arms, expected["arms"])
    np.testing.assert_allclose(trace.x_mean, expected["x_mean"], atol=1e-9)
    np.testing.assert_allclose(trace.gossiped[:, :, :num_arms], expected["value"], atol=1e-9)
    np.testing.assert_allclose(trace.gossiped[:, :, num_arms:], expected["weight"], atol=1e-12)
    return trace


# ---------------------------------------------------------------- the algorithm


@pytest.mark.parametrize("num_arms", [3, *(pytest.param(m, marks=pytest.mark.slow) for m in (2, 4))])
@given(
    st.data(), st.sampled_from(["ucb", "thompson"]), st.sampled_from([0.5, 4.0, 100.0]), st.sampled_from([1, 3, None])
)
def test_fed_batch_word_for_word(num_arms, data, index, epsilon, first):
    """Batches, weights by variance, value and weight gossiped, the own variance in the bonus."""
    agree(data.draw(tapes(num_arms=[num_arms])), FedBatch(epsilon, index=index, first_batch=first))


@given(tapes((0.0, 1.0)), st.sampled_from([0.5, 4.0, 100.0]), st.sampled_from([1, 4]))
@pytest.mark.slow
def test_the_kl_index_word_for_word(tape, epsilon, first):
    """max{q : d_eps(theta, q) <= log t / (N n)}."""
    agree(tape, FedBatch(epsilon, index="kl", first_batch=first))


@pytest.mark.slow
def test_catching_up_word_for_word():
    """With ``catches_up`` line 6 of Algorithm 1 comes before the index; the tape is long enough for it to matter."""
    tape = Tape.random(graph.path(4), 3, 1500, seed=3, reward_range=(-4, 5))
    trace = agree(tape, FedBatch(20.0, index="ucb", first_batch=2, catches_up=True), catches_up=True)
    behind = (trace.n[:-1] < trace.n_max[1:-1] - 4).any(axis=2)
    assert behind.sum() > 50, "nobody lagged: the rule was not tested"


@given(tapes(), st.sampled_from(["ucb", "thompson"]))
@pytest.mark.slow
def test_gossip_conserves_value_and_weight(tape, index):
    """For every arm at every t: sum of values = sum of the own means, sum of weights = agents that have released it."""
    trace = replay(tape, FedBatch(3.0, index=index))
    num_arms = tape.rewards.shape[2]
    value, weight = trace.gossiped[:, :, :num_arms], trace.gossiped[:, :, num_arms:]
    np.testing.assert_allclose(value.sum(axis=1), trace.x_mean.sum(axis=1), atol=1e-10)
    np.testing.assert_allclose(weight.sum(axis=1), (trace.releases > 0).sum(axis=1), atol=1e-10)


@given(tapes(), st.integers(0, 5))
@pytest.mark.slow
def test_what_is_not_released_yet_changes_nothing(tape, seed):
    """Rewards in a batch that is still being filled leave no trace: not in what is gossiped, not in any arm."""
    policy = FedBatch(1.0, first_batch=4)
    trace = replay(tape, policy)
    rewards = tape.rewards.copy()
    n, horizon = trace.n, tape.horizon
    source = np.random.default_rng(seed)
    changed = 0
    for i in range(n.shape[1]):
        for k in range(n.shape[2]):
            released = 0
            for t in range(horizon + 1):
                if trace.releases[t, i, k] > (trace.releases[t - 1, i, k] if t else 0):
                    released = n[t, i, k]
            for t in range(horizon + 1):
                pulled = t == 0 or trace.arms[t - 1, i] == k
                if pulled and n[t, i, k] > released:
                    rewards[t, i, k] = source.uniform(*tape.reward_range)
                    changed += 1
    other = replay(
        Tape(rewards, tape.edges, tape.picks, tape.graph, tape.noise, tape.reward_range, tape.normals), policy
    )
    np.testing.assert_array_equal(other.arms, trace.arms)
    np.testing.assert_array_equal(other.gossiped, trace.gossiped)
    assert changed > 0 or (n[-1] == 0).any() or trace.releases[-1].all()


@given(st.integers(1, 50), st.floats(1.01, 3.0), st.integers(1, 60))
def test_a_batch_never_shrinks(first, growth, releases):
    """So that the newest noise has the largest coefficient in the mean, as the proved radius needs."""
    n, sizes = 0, []
    for _ in range(releases):
        sizes.append(batch_size(n, first, growth))
        n += sizes[-1]
        if n > 10**8:
            break
    assert sizes[0] == first
    assert sizes == sorted(sizes)


def test_the_first_batch_grows_as_epsilon_shrinks():
    assert [default_first_batch(e, 10) for e in (0.1, 1.0, 4.0, 100.0, math.inf)] == [120, 12, 3, 1, 1]


def test_the_first_batch_grows_where_there_are_few_sites():
    """12 sqrt(10 / N) / epsilon below ten sites, and 12 / epsilon from there on."""
    assert [default_first_batch(1.0, n) for n in (1, 2, 3, 5, 9, 10, 11, 1000)] == [38, 27, 22, 17, 13, 12, 12, 12]
    assert [default_first_batch(0.1, n) for n in (1, 4, 10)] == [380, 190, 120]
    assert default_first_batch(math.inf, 1) == 1
    assert default_first_batch(1e-308, 1) == 10**9
    sizes = {
        index: [FedBatch(1.0, index).terms(setting_in_steps(n, 2, 0.0, 1.0)).first_batch for n in (1, 3, 10)]
        for index in ("thompson", "ucb", "kl")
    }
    assert sizes == {"thompson": [38, 22, 12], "ucb": [38, 22, 12], "kl": [12, 12, 12]}


@pytest.mark.slow
def test_a_lone_site_locks_in_less_often():
    """Two arms, gap 0.2, epsilon 0.3: 0.7 % of trials lose more than twice the mean, 4.5 % with first batches of 40.

    By Chernoff's bound the counts of 2,000 trials come out the other way round less often than once in 10^10.
    """
    problem = Problem.bernoulli([[0.6, 0.4]], "complete:1")
    policies = {"default": FedBatch(0.3), "forty": FedBatch(0.3, first_batch=40)}
    regret = simulate(problem, policies, 5000, 2000, seed=3, checkpoints=[5000]).regret.isel(time=-1).mean("agent")
    locked = (regret > 70.0).sum("trial")
    assert locked.sel(policy="default") < locked.sel(policy="forty")


def test_a_site_without_a_release_does_not_count_as_zero():
    """Two agents see 0.8; the third never acts. The estimate is 0.8, not two thirds of it. (12 sd.)"""
    problem = Problem.beta(np.full((3, 2), 0.8), graph.complete(3), concentration=50, rates=[1.0, 1.0, 1e-9])
    result = simulate(problem, FedBatch(2.0), 4000, 4)
    assert (result.theta_error.isel(time=-1).sel(agent=[0, 1]) < 0.05).all()
    assert (result.pulls.isel(time=-1).sel(agent=2) == 1).all()


@pytest.mark.slow
def test_weights_decide_what_is_learnt():
    """With all weight on agent 2, everyone learns agent 2's means, also those whose own weight is 0."""
    problem = Problem.bernoulli([[0.9, 0.1], [0.9, 0.1], [0.2, 0.6]], graph.complete(3), weights=[0.0, 0.0, 1.0])
    result = simulate(problem, [FedBatch(2.0, index=index) for index in ("ucb", "thompson", "kl")], 30_000, 4)
    assert (result.summary()["best_arm_share"] > 0.9).all()


def test_a_heavy_site_that_never_acts_does_not_stop_the_others():
    """Arms are known by what has been heard of; the rest of the weight may stay silent for ever."""
    means = [[0.2, 0.8, 0.1], [0.3, 0.7, 0.1], [0.9, 0.1, 0.1]]
    problem = Problem.bernoulli(means, graph.path(3), weights=[0.05, 0.05, 0.9], rates=[1.0, 1.0, 1e-9])
    result = simulate(problem, FedBatch(2.0), 5000, 3)
    share = result.pulls.isel(time=-1).sel(agent=[0, 1], arm=1) / 5000
    assert (share > 0.9).all(), "the arm that is best where anything is known"


# ---------------------------------------------------------------- index and radius


@given(st.floats(-0.5, 1.5), st.floats(1e-6, 20.0), st.sampled_from([0.1, 1.0, 5.0, 40.0]))
def test_kl_index_is_the_largest_mean_not_ruled_out(x, limit, epsilon):
    assert kl_index(x, limit, epsilon) == pytest.approx(literal_batch.kl_index(x, limit, epsilon), abs=1e-7)


@given(st.floats(0.0, 0.99), st.floats(0.0, 1.0), st.sampled_from([0.1, 1.0, 5.0]))
def test_the_private_divergence_is_d_eps(x, step, epsilon):
    q = x + step * (0.999 - x)
    if 0 < q < 1:
        assert private_divergence(x, q, epsilon) == pytest.approx(literal_batch.d_eps(x, q, epsilon), abs=1e-9)


@given(
    st.lists(st.floats(-0.3, 1.3), min_size=2, max_size=6),
    st.lists(st.floats(1, 500), min_size=6, max_size=6),
    st.floats(0.0, 14.0),
    st.sampled_from([0.2, 1.0, math.inf]),
)
def test_the_shortcut_finds_the_highest_kl_index(theta, counts, log_t, epsilon):
    """Most arms are settled by one divergence; the result is the arm with the largest index all the same."""
    indices = [kl_index(x, log_t / c, epsilon) for x, c in zip(theta, counts, strict=False)]
    chosen = highest_kl_index(theta, counts[: len(theta)], log_t, epsilon)
    assert indices[chosen] == pytest.approx(max(indices), abs=1e-9)


def test_the_variance_learnt_from_the_mean():
    """x (1 - x) + Var x: mu (1 - mu) on average for rewards 0 and 1; between half of the most and the most."""
    mu, most = 0.3, 0.25
    x = np.random.default_rng(2).binomial(400, mu, size=100_000) / 400  # in (0.2, 0.4) but for 4 sd: no limit matters
    learnt = np.mean([learnt_reward_variance(v, mu * (1 - mu) / 400, 0.0, 1.0, most / 2, most) for v in x])
    assert learnt == pytest.approx(mu * (1 - mu), abs=2e-4)  # 6 sd
    assert learnt_reward_variance(0.5, 0.3, 0.0, 1.0, most / 2, most) == most
    assert learnt_reward_variance(7.0, 0.01, -1.0, 1.0, least_reward_variance(1.0), 1.0) == 0.5


# ---------------------------------------------------------------- what it is worth


@pytest.fixture(scope="module")
def instances():
    return [Problem.random(10, 10, "path", seed=500 + s, rewards="bernoulli") for s in range(20)]


@pytest.mark.slow
def test_privacy_costs_little(instances):
    """At eps = 1 FedBatch is within 2.2 times of all pooled without privacy, Fed_UCB more than 50 times above it.

    T = 50,000, 20 instances. Measured 1.7 and 120, with standard errors of 4 % and 2 %: more than 6 away.
    """
    result = simulate(instances, [FedBatch(1.0), CentralUCB(index="thompson"), FedUCB(1.0)], 50_000, 20, seed=5)
    ours, central, paper = result.summary()["regret"]
    assert ours < 2.2 * central
    assert paper > 50 * ours


@pytest.mark.slow
def test_the_radii_cover(instances):
    """|theta - mu| exceeds the calibrated radius rarely once gossip has mixed."""
    result = simulate(instances, FedBatch(1.0, index="ucb"), 20_000, 20, checkpoints=[2000], watch_radii=True)
    misses = result.dataset["misses"].mean(["trial", "agent"])
    late = misses.isel(time=-1) * 20_000 - misses.isel(time=0) * 2000
    assert late[0] / 18_000 < 1e-3
    assert (misses[0, 0] > 0).all(), "before mixing it must be exceeded, or nothing was counted"


# ---------------------------------------------------------------- agents that do not act in step


@pytest.mark.slow
def test_rates_of_one_are_in_step(instances):
    """Acting with probability 1 in every round is acting in step, to the last bit."""
    means = instances[0].means
    policies = [FedBatch(1.0), FedBatch(1.0, index="ucb", catches_up=True), FedUCB(1.0), CentralUCB()]
    both = [
        simulate(Problem.bernoulli(means, graph.path(10), rates=rates), policies, 3000, 2)
        for rates in (None, [1.0] * 10)
    ]
    np.testing.assert_array_equal(both[0].pulls, both[1].pulls)
    np.testing.assert_array_equal(both[0].theta_error, both[1].theta_error)


def test_agents_act_at_their_rates():
    """An agent's clock is its own pulls: binomial in the rounds. (6 sd: below 1e-8 per agent.)"""
    rates = np.array([1.0, 0.5, 0.02, 0.2])
    problem = Problem.random(4, 3, "path", seed=1, rewards="bernoulli", rates=rates)
    result = simulate(problem, [FedBatch(1.0), FedUCB(1.0)], 20_000, 3)
    own = result.pulls.isel(time=-1).sum("arm") - 3
    sd = np.sqrt(20_000 * rates * (1 - rates))
    assert (np.abs(own - 20_000 * rates) <= 6 * sd).all()
    table = result.by_agent()
    assert list(table.loc["FedBatch Thompson, eps=1"]["rate"]) == rates.tolist()
    np.testing.assert_allclose(table["regret_per_pull"], table["regret"] / table["pulls"])


@pytest.mark.slow
def test_a_slow_agent_need_not_chase_a_fast_one():
    """reading: the paper's catch-up rule makes a slow agent pull what others have pulled, for ever.

    Half the agents at a tenth of the speed, 20 trials: per pull the slow ones lose at least 1.5 times as much with the
    rule (measured 2.4, standard error 0.1).
    """
    rates = [1.0, 0.1] * 4
    problems = [Problem.random(8, 5, "path", seed=s, rewards="bernoulli", rates=rates) for s in range(20)]
    policies = [FedBatch(1.0, index="ucb"), FedBatch(1.0, index="ucb", catches_up=True)]
    table = simulate(problems, policies, 100_000, 20).by_agent().reset_index()
    slow = table[table["rate"] < 1].groupby("policy", sort=False)["regret_per_pull"].mean()
    assert slow.iloc[1] > 1.5 * slow.iloc[0]
    assert (table[table["policy"].str.contains("catching")]["lagging"] > 0).any()


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be a number above 0"),
        ({"index": "best"}, "index must be one of ucb, thompson, kl, not 'best'"),
        ({"radius": "wide"}, "radius must be one of calibrated, proved"),
        ({"radius": "proved"}, "radius must be calibrated unless index is ucb"),
        ({"first_batch": 0}, "first_batch must be a whole number from 1"),
        ({"growth": 1.0}, "growth must be a number above 1"),
        ({"index": "ucb", "radius": "proved", "growth": 1.05}, "growth must be a number above 1.05"),
        ({"index": "ucb", "radius": "proved", "sigma": 0.5}, "sigma must be left out"),
        ({"sigma": -1.0}, "sigma must be a number above 0"),
        ({"catches_up": "no"}, "catches_up must be true or false"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(InvalidArgument, match=message):
        FedBatch(**({"epsilon": 1.0} | parameters))


def test_gaussian_rewards_need_a_range():
    gaussian = Problem.random(3, 3, "complete")
    with pytest.raises(InvalidArgument, match="reward_range must be declared for FedBatch Thompson, eps=1"):
        simulate(gaussian, FedBatch(1.0), 10, 1)
    with pytest.warns(PrivacyWarning, match="epsilon does not hold") as caught:
        simulate(gaussian, FedBatch(1.0, assume_sensitivity=1.0), 10, 1)
    assert caught[0].filename == __file__, "the warning points at the caller"
    with pytest.raises(InvalidArgument, match=r"reward_range must be \(0, 1\) for FedBatch KL"):
        simulate(gaussian, FedBatch(1.0, index="kl", assume_sensitivity=1.0), 10, 1)
    simulate(gaussian, FedBatch(math.inf), 10, 1)


@pytest.mark.parametrize("rates", [[1, 1], [0, 1, 1], [1, 1, 2], [1, 1, "x"], [1, 1, math.nan]])
def test_bad_rates(rates):
    with pytest.raises(InvalidArgument, match="rates must be 3 numbers above 0 and at most 1, one per agent"):
        Problem.random(3, 2, "complete", rates=rates)


# ---------------------------------------------------------------- means drawn anew for every trial


@pytest.mark.slow
def test_trial_r_plays_problem_r(instances):
    together = simulate(instances[:4], [FedBatch(1.0), CentralUCB()], 500, 4, seed=2)
    for r in (0, 3):
        alone = simulate(instances[r], [FedBatch(1.0), CentralUCB()], 500, range(r, r + 1), seed=2)
        np.testing.assert_array_equal(together.regret.isel(trial=r), alone.regret.isel(trial=0))
        assert together.dataset["best_arm"].values[r] == instances[r].best_arm
    share = together.summary()["best_arm_share"]
    assert ((share > 0) & (share < 1)).all()


def test_problems_of_one_call_are_of_one_kind(instances):
    with pytest.raises(InvalidArgument, match=r"problem must be one for each trial \(up to 5\), not '2 problems'"):
        simulate(instances[:2], FedBatch(1.0), 10, 5)
    with pytest.raises(InvalidArgument, match="of one kind"):
        simulate([instances[0], Problem.random(10, 10, "ring", rewards="bernoulli")], FedBatch(1.0), 10, 2)
    with pytest.raises(InvalidArgument, match="a Problem, or several: one per trial"):
        simulate([instances[0], 3], FedBatch(1.0), 10, 2)


# ---------------------------------------------------------------- what a policy means on a problem


def test_the_variance_of_a_reward():
    """(high - low)^2 / 4, or sigma^2 if the user knows it; for Gaussian rewards if it is less or nothing is clamped."""
    bernoulli = Problem.random(3, 2, "complete", rewards="bernoulli")
    wide = Problem.gaussian(bernoulli.means, bernoulli.graph, sigma=10.0, reward_range=(-1.0, 3.0))
    narrow = Problem.gaussian(bernoulli.means, bernoulli.graph, sigma=0.1, reward_range=(-1.0, 3.0))
    for problem, policy, variance, learns in (
        (bernoulli, FedBatch(1.0), 0.25, True),
        (bernoulli, FedBatch(1.0, sigma=0.3), 0.09, False),
        (wide, FedBatch(1.0), 4.0, True),
        (narrow, FedBatch(1.0), 0.01, True),
        (wide, FedBatch(math.inf), 100.0, False),
    ):
        terms = policy.terms(setting_of(problem, 100))
        assert terms.most_variance == pytest.approx(variance)
        assert (terms.least_variance < terms.most_variance) is learns


def test_clamped_rewards_vary_no_more_than_their_range():
    """Gaussian rewards of sigma 10 clamped to [0, 1]: to be told sigma = 0.5 changes little; taking 10 cost 6 times."""
    problems = [Problem.random(5, 3, "path", seed=s, sigma=10.0, reward_range=(0.0, 1.0)) for s in range(6)]
    policies = {"default": FedBatch(1.0), "told": FedBatch(1.0, sigma=0.5)}
    default, told = simulate(problems, policies, 20_000, 6).summary()["regret"]
    assert default < 1.5 * told


def test_weights_change_the_variance_of_theta():
    """After mixing theta varies by sum_j weight_j^2 V_j, which is V / N where all weigh the same."""
    means = np.full((3, 2), 0.5)
    for weights, averaging in ((None, 1 / 3), ([0.5, 0.25, 0.25], 0.375), ([0.0, 0.0, 1.0], 1.0)):
        problem = Problem.bernoulli(means, graph.complete(3), weights=weights)
        assert FedBatch(1.0).terms(setting_of(problem, 100)).averaging == pytest.approx(averaging)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e6])
@pytest.mark.parametrize("growth", [1.0001, 1e6])
def test_extreme_parameters_run(epsilon, growth):
    problem = Problem.random(3, 3, "complete", rewards="bernoulli")
    result = simulate(problem, FedBatch(epsilon, growth=growth), 500, 2)
    assert np.isfinite(result.regret).all()
    assert (result.pulls.isel(time=-1).sum("arm") == 503).all()
