"""Each test is a sentence of the paper (or of our corrections to it), quoted in its docstring.

Statistical tests have fixed seeds; each states the chance that it fails although the sentence is true.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit import CentralUCB, FedUCB, GossipUCB, LocalUCB, Problem, Tape, replay, simulate, theory
from fedbandit.rules.choose import highest
from fedbandit.rules.mean import (
    dyadic_intervals,
    epsilon_per_node,
    paper_epsilon_per_node,
    pull_tree_add,
    time_tree_add,
    time_tree_first_new,
)
from fedbandit.world import graph
from literal import algorithm_2, algorithm_3, c_private, on_tape, private_mean

GRAPHS = st.one_of(
    st.integers(3, 6).map(graph.path),
    st.integers(3, 6).map(graph.ring),
    st.integers(3, 5).map(graph.complete),
    st.integers(4, 6).map(graph.star),
    st.builds(graph.erdos_renyi, st.integers(4, 7), st.just(0.6), st.integers(0, 20)),
)
TAPES = st.builds(Tape.random, GRAPHS, st.just(3), st.integers(1, 120), st.integers(0, 2**31))
MORE_TAPES = st.builds(Tape.random, GRAPHS, st.integers(2, 5), st.integers(1, 120), st.integers(0, 2**31))

more_arms = pytest.mark.parametrize("num_arms", [3, *(pytest.param(m, marks=pytest.mark.slow) for m in (2, 4, 5))])
"""Each number of arms compiles anew: the quick run has three everywhere."""


def tapes(num_arms):
    return st.builds(Tape.random, GRAPHS, st.just(num_arms), st.integers(1, 120), st.integers(0, 2**31))


def long_trace(num_agents=4, num_arms=3, horizon=20_000, seed=1):
    tape = Tape.random(graph.path(num_agents), num_arms, horizon, seed)
    return tape, replay(tape, GossipUCB())


# ---------------------------------------------------------------- Section 3: Gossip_UCB


@more_arms
@given(st.data())
@settings(max_examples=50)
def test_algorithm_1_word_for_word(num_arms, data):
    """Algorithm 1: "Each agent runs this algorithm in parallel."."""
    tape = data.draw(tapes(num_arms))
    arms, theta, n, n_max, x_mean = on_tape(tape)
    trace = replay(tape, GossipUCB())
    np.testing.assert_array_equal(trace.arms, arms)
    np.testing.assert_array_equal(trace.n, n)
    np.testing.assert_array_equal(trace.n_max, n_max)
    np.testing.assert_allclose(trace.x_mean, x_mean, atol=1e-12)
    np.testing.assert_allclose(trace.theta, theta, atol=1e-12)


def test_algorithm_1_word_for_word_where_agents_lag():
    """Line 13: "a_i(t) is randomly selected from A_i". Short tapes rarely get there; this one does."""
    tape = Tape.random(graph.path(5), 4, 4000, seed=11)
    arms, _, n, n_max, _ = on_tape(tape)
    lagging = (n[:-1] < n_max[1:-1] - 5).sum(axis=2)
    assert (lagging > 0).sum() > 500
    assert (lagging > 1).sum() > 20, "the draw among several lagging arms was not tested"
    np.testing.assert_array_equal(replay(tape, GossipUCB()).arms, arms)


def test_line_1_every_agent_pulls_every_arm_once():
    """Line 1: "Each agent pulls each arm once ... theta(0) = X~(0) = X(0)" and "n~(0) = n(0)"."""
    tape, trace = long_trace(horizon=10)
    np.testing.assert_array_equal(trace.n[0], 1)
    np.testing.assert_array_equal(trace.n_max[0], 1)
    np.testing.assert_array_equal(trace.theta[0], tape.rewards[0])
    np.testing.assert_array_equal(trace.x_mean[0], tape.rewards[0])


def test_at_t_1_the_first_arm_wins_a_tie():
    """Line 10: "a_i(t) = argmax_k Q": at t = 1, log t = 0, and all beliefs are theta."""
    tape = Tape(np.zeros((3, 3, 4)), [[0, 1], [1, 2]], np.zeros((2, 3)), graph.path(3))
    np.testing.assert_array_equal(replay(tape, GossipUCB()).arms[0], 0)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=9))
def test_line_10_the_first_of_the_largest(belief):
    """Line 10: argmax; ties go to the first arm, wherever even and odd arms are compared."""
    assert highest(belief) == belief.index(max(belief))


@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
@given(TAPES)
def test_gossip_conserves_the_sum(tape):
    """Eq. (5): "theta(t) = W(t) theta(t-1) + X~(t) - X~(t-1)", so sum_i theta = sum_i X~ for ever."""
    for policy in (GossipUCB(), FedUCB(1.0, assume_sensitivity=1.0)):
        trace = replay(tape, policy)
        scale = np.abs(trace.x_mean).max() + 1
        np.testing.assert_allclose(trace.theta.sum(axis=1), trace.x_mean.sum(axis=1), atol=1e-11 * scale)


def test_lemma_1_information_propagation():
    """Lemma 1: "n~_{i,k}(t+1) = max_j n_{j,k}(t - d_{j,i})", n(t) being the count before the pull of t."""
    tape, trace = long_trace(num_agents=5, horizon=600)
    distances = tape.graph.distances
    for t in range(1, 601):
        for i in range(5):
            reached = [j for j in range(5) if t - 1 - distances[j, i] >= 0]
            expected = np.max([trace.n[t - 1 - distances[j, i], j] for j in reached], axis=0)
            np.testing.assert_array_equal(trace.n_max[t + 1, i], expected)


def test_lemma_2_actual_local_consistency():
    """Lemma 2: "n_{i,k}(t) > n~_{i,k}(t+1) - 3MN". (With room to spare: see the next test.)"""
    _, trace = long_trace()
    assert (trace.n[:-1] > trace.n_max[2:] - 3 * 3 * 4).all()


@pytest.mark.slow
def test_the_consistency_rule_is_what_keeps_agents_together():
    """Section 3.4: "This consistency requirement is essential": without line 6 agents may drift apart.

    Here only agents 0 and 1 ever exchange estimates, while counts spread over all edges.
    """
    tape = Tape.random(graph.path(4), 3, 6000, seed=3, means=np.eye(4, 3))
    stuck = Tape(tape.rewards, np.tile([0, 1], (6000, 1)), tape.picks, tape.graph)
    with_rule = replay(stuck, GossipUCB()).n[-1]
    _, _, n, _, _ = on_tape(stuck, consistent=False)
    assert np.ptp(n[-1], axis=0).max() > 2000
    assert np.ptp(with_rule, axis=0).max() < 3 * 3 * 4


def test_lemma_3_global_consistency():
    """Lemma 3: "when n_{i,k}(t) >= (3M+1)N, we have max_j n_{j,k}(t) <= 2 n_{i,k}(t)"."""
    _, trace = long_trace()
    enough = trace.n >= (3 * 3 + 1) * 4
    assert enough.mean() > 0.5, "the lemma's condition is hardly ever met: nothing was tested"
    most = trace.n.max(axis=1, keepdims=True)
    assert (most <= 2 * trace.n)[enough].all()


def thetas_at(times, num_tapes, tape_of):
    """theta[tape, time, agent, arm] of Gossip_UCB over many tapes."""
    return np.array([replay(tape_of(seed), GossipUCB()).theta[times] for seed in range(num_tapes)])


def test_lemma_5_expectation_of_theta():
    """Lemma 5's proof: "E(theta_k(t)) = W^t E(theta_k(0))", and so "|E(theta) - mu_k| <= sqrt(N) lambda_2^t".

    The proof takes X~(t) - X~(t-1) to have mean 0, which holds if choices do not depend on rewards; noise
    of 0.001 makes them independent enough. False alarm: 6 standard errors on 72 numbers, under 1e-6.
    """
    world, times, num_tapes = graph.path(4), np.array([0, 1, 3, 8, 20, 60]), 1500
    means = np.random.default_rng(0).random((4, 3))

    def tape_of(seed):
        tape = Tape.random(world, 3, 60, seed, means=np.zeros((4, 3)))
        return Tape(means + 0.001 * tape.rewards, tape.edges, tape.picks, world)

    thetas = thetas_at(times, num_tapes, tape_of)
    average, error = thetas.mean(axis=0), thetas.std(axis=0) / math.sqrt(num_tapes)
    mu = means.mean(axis=0)
    for position, t in enumerate(times):
        expected = np.linalg.matrix_power(world.gossip_matrix, int(t)) @ means
        allowed = 6 * error[position] + 1e-4
        assert (np.abs(average[position] - expected) < allowed).all()
        assert (np.abs(average[position] - mu) <= math.sqrt(4) * world.lambda2**t + allowed).all()


@pytest.mark.slow
def test_lemma_4_variance_of_theta():
    """Lemma 4's proof: "sum_j sum_h |c|^2 < 2N / n", so theta's variance is below 2N/n times a reward's.

    It cannot be below that of the pooled mean, about 1/(N n). Mean squares of 400 x 3 x 2 numbers lie within
    35 % of their expectation but for one case in 10^9 (chi-square with 400 degrees of freedom).
    """
    means, horizon, num_tapes = np.full((3, 2), 0.5), 600, 400
    squares, counts = [], []
    for seed in range(num_tapes):
        trace = replay(Tape.random(graph.complete(3), 2, horizon, seed, means=means), GossipUCB())
        squares.append((trace.theta[-1] - 0.5) ** 2)
        counts.append(trace.n[-1])
    n = np.mean(counts)
    assert n >= max(theory.mixing_horizon(0.5, 3), (3 * 2 + 1) * 3)
    variance = np.mean(squares)
    assert 0.65 / (3 * n) < variance < 2 * 3 / n
    assert variance < 3 / (3 * n), "gossip does not average: theta is no better than one agent's own mean"


def test_theorem_1_radius_covers():
    """Eq. (9): "P(|theta - mu| >= C) < 2/t^2" once n >= max(L, (3M+1)N).

    Summed over all rounds, agents, arms and tapes the expected number of misses is below 20; none is seen.
    """
    for seed in range(20):
        means = np.random.default_rng(seed).random((3, 3))
        trace = replay(Tape.random(graph.complete(3), 3, 3000, seed, means=means), GossipUCB())
        n, t = trace.n[1:], np.arange(1, 3001)[:, None, None]
        enough = n.min(axis=1, keepdims=True) >= max(theory.mixing_horizon(0.5, 3), (3 * 3 + 1) * 3)
        radius = np.sqrt(2 * 3 / n * np.log(t)) + 64 / 3**17
        assert enough.mean() > 0.5
        assert (np.abs(trace.theta[1:] - means.mean(axis=0)) < radius)[np.broadcast_to(enough, n.shape)].all()


@pytest.fixture(scope="module")
def gossip_and_local():
    means = [[0.9, 0.1, 0.5], [0.1, 0.9, 0.6], [0.2, 0.2, 0.9]]  # best on average: arm 2, by 0.27
    problem = Problem.gaussian(means, graph.complete(3))
    return simulate(problem, [GossipUCB(), LocalUCB()], 200_000, 12, seed=4, checkpoints=[2_000, 20_000, 200_000])


def test_regret_is_logarithmic(gossip_and_local):
    """Remark 1: "the order of R_i(T) is O(max{NM log T, ...})": equal growth from decade to decade.

    Growth per decade has a relative standard deviation of about 0.1 over 12 trials; a factor 2 is 7 of them.
    """
    mean = gossip_and_local.regret.sel(policy="Gossip_UCB").mean(["trial", "agent"]).values
    first, second = np.diff(mean)
    assert 0.5 < second / first < 2.0
    assert mean[-1] / 200_000 < 0.1 * mean[0] / 2_000, "not o(T)"


def test_no_single_agent_can_learn_alone(gossip_and_local):
    """Section 2: "no single agent can learn the optimal decision without communication"."""
    local = gossip_and_local.regret.sel(policy="Local UCB1").mean("trial")
    rate = (local.sel(time=200_000) - local.sel(time=20_000)) / 180_000
    gaps = np.array([0.2667, 0.2667, 0.0])
    np.testing.assert_allclose(rate.values, gaps, atol=0.01)  # agents 0 and 1 keep their own favourite


# ---------------------------------------------------------------- Section 3.1: the gossip matrix


@pytest.mark.parametrize(("world", "expected"), [("complete:3", 0.5), ("path:10", 0.99456), ("ring:10", 0.98090)])
def test_lambda_2_of_the_experiments(world, expected):
    """Figure 2: "(a) N=3, lambda_2 = 0.5; (b) N=10, lambda_2 about 0.99" are the triangle and the path."""
    assert graph.parse(world).lambda2 == pytest.approx(expected, abs=5e-6)


@given(GRAPHS)
def test_the_gossip_matrix(world):
    """Section 3.1: W is "a positive semi-definite matrix whose largest eigenvalue equals 1"; "lambda_2 < 1"."""
    sums = np.zeros_like(world.gossip_matrix)
    for i, j in world.edges:
        e = np.eye(world.num_agents)[i] - np.eye(world.num_agents)[j]
        sums += np.eye(world.num_agents) - np.outer(e, e) / 2
    np.testing.assert_allclose(world.gossip_matrix, sums / len(world.edges), atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(world.gossip_matrix)
    assert eigenvalues[0] > -1e-12
    assert eigenvalues[-1] == pytest.approx(1)
    assert world.lambda2 < 1 - 1e-9


# ---------------------------------------------------------------- Section 4: Fed_UCB


@given(TAPES)
def test_gossip_ucb_is_fed_ucb_with_infinite_epsilon(tape):
    """Section 4.1: "Gossip_UCB is a special case of Fed_UCB when epsilon is infinity"."""
    for policy in (FedUCB(math.inf), FedUCB(math.inf, paper=True)):
        np.testing.assert_array_equal(replay(tape, policy).arms, replay(tape, GossipUCB()).arms)
        np.testing.assert_array_equal(replay(tape, policy).theta, replay(tape, GossipUCB()).theta)


def test_algorithm_2_literally():
    """Algorithm 2, for all t <= 2000."""
    for t in range(1, 2001):
        assert dyadic_intervals(t) == algorithm_2(t)


def test_at_most_log_t_partial_sums():
    """Section 4.1: a prefix is "the summation of no more than ceil(log t) partial sums" (log2, plus one)."""
    assert max(len(dyadic_intervals(t)) for t in range(1, 1 << 12)) == 12


def test_nodes_per_reward():
    """Erratum: one reward lies in up to T.bit_length() nodes, not in ceil(log T), whatever the logarithm."""
    for horizon in (1, 2, 7, 8, 100, 1000, 1024):
        nodes = {interval for t in range(1, horizon + 1) for interval in dyadic_intervals(t)}
        most = max(sum(first <= reward <= last for first, last in nodes) for reward in range(1, horizon + 1))
        assert most == horizon.bit_length()
        assert epsilon_per_node(1.0, horizon) * most == pytest.approx(1.0)
    spent = (10**6).bit_length() * paper_epsilon_per_node(1.0, 10**6)
    assert spent == pytest.approx(1.43, abs=0.005), "with ceil(ln T) the promise of 1 becomes 1.43"


def test_noise_of_a_prefix_costs_one_draw_and_is_algorithm_3():
    """Algorithm 3 with noise keyed by interval: the running total equals the sum over Algorithm 2's intervals."""
    noise = np.random.default_rng(1).laplace(size=5000)
    slots = [0.0] * 13
    for n in range(1, 4097):
        total = pull_tree_add(slots, n, noise[n])
        assert total == pytest.approx(sum(noise[last] for _, last in algorithm_2(n)), abs=1e-9)


@given(st.lists(st.booleans(), min_size=1, max_size=300), st.integers(0, 1000))
def test_noise_over_time_is_algorithm_3(pulled_at, seed):
    """Section 4.1: noise is added to each partial sum "if there exists observations in that partial sum"."""
    pulled = [False, *pulled_at]
    noise = np.random.default_rng(seed).laplace(size=len(pulled))
    slots, last = [0.0] * 10, 0
    for t in range(1, len(pulled)):
        if pulled[t]:
            total = time_tree_add(slots, t, last, noise[time_tree_first_new(t, last)], noise[t])
            assert total == pytest.approx(algorithm_3(pulled, noise, t), abs=1e-9)
            last = t


def ranged_tapes(num_arms):
    return st.builds(
        Tape.random,
        GRAPHS,
        st.just(num_arms),
        st.integers(1, 150),
        st.integers(0, 2**31),
        reward_range=st.sampled_from([(-0.5, 1.5), (0.0, 1.0), (0.2, 5.0)]),
    )


@more_arms
@given(st.data(), st.sampled_from([0.5, 4.0, 300.0]))
@settings(max_examples=50)
def test_fed_ucb_is_algorithm_4_repaired(num_arms, data, epsilon):
    """Algorithm 4 with a noised first pull, eps' = eps / T.bit_length(), clamped rewards, noise by interval."""
    tape = data.draw(ranged_tapes(num_arms))
    low, high = tape.reward_range
    scale = (high - low) / (epsilon / (tape.horizon + 1).bit_length())
    mean = private_mean(lambda end, i, k: tape.noise[end, i, k], scale, low, high)
    radius = c_private(tape.graph.num_agents, tape.horizon, epsilon / (high - low))
    arms, theta, _, _, x_mean = on_tape(tape, mean, radius)
    trace = replay(tape, FedUCB(epsilon))
    np.testing.assert_array_equal(trace.arms, arms)
    np.testing.assert_allclose(trace.x_mean, x_mean, atol=1e-9 * scale)
    np.testing.assert_allclose(trace.theta, theta, atol=1e-9 * scale)


@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
@more_arms
@given(st.data(), st.sampled_from([0.5, 4.0, 300.0]))
@settings(max_examples=50)
def test_fed_ucb_as_printed_is_algorithm_4(num_arms, data, epsilon):
    """Algorithm 4 as printed: X(0) raw, then a tree over time with eps' = eps / ceil(log T), C~ with log n."""
    tape = data.draw(tapes(num_arms))
    scale = max(1, math.ceil(math.log(tape.horizon))) / epsilon

    def mean(i, k, seen):
        times = {t for t, _ in seen if t > 0}
        t = seen[-1][0]
        noise = algorithm_3([tau in times for tau in range(t + 1)], tape.noise[:, i, k], t)
        return (sum(reward for _, reward in seen) + scale * noise) / len(seen)

    radius = c_private(tape.graph.num_agents, tape.horizon, epsilon, first_is_noised=False)
    arms, _, _, _, x_mean = on_tape(tape, mean, radius)
    trace = replay(tape, FedUCB(epsilon, paper=True))
    np.testing.assert_array_equal(trace.arms, arms)
    np.testing.assert_allclose(trace.x_mean, x_mean, atol=1e-9 * scale)


@given(MORE_TAPES)
@pytest.mark.slow
def test_the_floor_is_ucb1(tape):
    """Auer et al. 2002: mean + sqrt(2 log t / n) of the own rewards."""
    arms, *_ = on_tape(
        tape, radius=lambda n, i, k, t: math.sqrt(2 * math.log(t) / n[i, k]), consistent=False, network="alone"
    )
    np.testing.assert_array_equal(replay(tape, LocalUCB()).arms, arms)


@given(MORE_TAPES, st.sampled_from([0.5, 2.0]))
@pytest.mark.slow
def test_the_ceiling_is_ucb_on_everything(tape, alpha):
    """(1/N) sum_j mean_jk + sqrt(alpha log t V), V = (1/N^2) sum_j 1 / n_jk for rewards of variance 1."""
    num_agents = tape.graph.num_agents
    arms, *_ = on_tape(
        tape,
        radius=lambda n, i, k, t: math.sqrt(alpha * math.log(t) * (1 / n[:, k]).sum()) / num_agents,
        consistent=False,
        network="central",
    )
    np.testing.assert_array_equal(replay(tape, CentralUCB(alpha)).arms, arms)


def test_no_raw_reward_is_published():
    """Erratum: Algorithm 4, line 1 publishes X(0) raw; ours differs from the reward in every first entry."""
    tape = Tape.random(graph.path(4), 3, 5, reward_range=(-9, 9))
    trace = replay(tape, FedUCB(epsilon=1.0))
    assert (np.abs(trace.x_mean[0] - tape.rewards[0]) > 1e-3).all()
    np.testing.assert_array_equal(trace.theta[0], trace.x_mean[0])


def test_a_starved_arm_comes_back():
    """Erratum: with log n in C~ and the first pull noised, an arm with a bad first draw is never pulled again."""
    tape = Tape.random(graph.complete(3), 3, 2000, seed=1, reward_range=(0, 1))
    noise = tape.noise.copy()
    noise[1, :, 2] = -50.0  # the first draw of arm 2, everywhere
    unlucky = Tape(tape.rewards, tape.edges, tape.picks, tape.graph, noise, tape.reward_range)
    assert replay(unlucky, FedUCB(epsilon=1.0)).n[-1, :, 2].min() > 100


@pytest.mark.slow
def test_more_privacy_costs_more():
    """Theorem 2: the regret of Fed_UCB grows as epsilon falls. (Differences are above 50 standard errors.)"""
    problem = Problem.bernoulli([[0.9, 0.1], [0.6, 0.4], [0.3, 0.4]], graph.complete(3))
    regret = simulate(problem, [FedUCB(e) for e in (0.5, 2.0, 8.0, math.inf)], 50_000, 8).summary()["regret"]
    assert list(regret) == sorted(regret, reverse=True)
    assert regret.iloc[0] > 1.5 * regret.iloc[-1]
