"""FedLinear: its estimator and posterior against NumPy, word for word on tapes, its noise, privacy and regret."""

from dataclasses import replace

import numpy as np
import pytest

from fedbandit import FedBatch, FedLinear, Problem, Tape, features, replay, simulate
from fedbandit.checks import InvalidArgument
from fedbandit.policies.registry import WrongPage
from fedbandit.rules import linear
from fedbandit.testing import check_policy
from fedbandit.world import graph
from literal_linear import LiteralFedLinear
from plain_engine import PlainEngine

SIZE = 3


def tape(seed=1, agents=4, horizon=400, arms=3):
    """Rewards that depend on features, within and beyond their range; edges of a path."""
    recording = Tape.random(graph.path(agents), arms, horizon, seed, reward_range=(-1.0, 3.0), num_features=SIZE)
    source = np.random.default_rng(seed)
    theta = source.normal(size=(agents, arms, SIZE))
    x = recording.features[arms - 1 :]
    means = np.einsum("tnf,nkf->tnk", x, theta)
    return replace(recording, rewards=means + recording.rewards - 0.5, gossip="releases")


def problems(count, agents=6, arms=3, size=3, seed=0, slope=0.3):
    """Arms whose means differ by features, and a little by agent."""
    found = []
    for j in range(count):
        source = np.random.default_rng([seed, j])
        theta = np.zeros((agents, arms, size + 1))
        direction = source.normal(size=(arms, size))
        theta[:, :, 1:] = slope * direction / np.linalg.norm(direction, axis=1)[:, None]
        theta[:, :, 0] = 0.5 + source.uniform(-0.1, 0.1, (1, arms)) + source.uniform(-0.05, 0.05, (agents, arms))
        found.append(Problem.linear(theta, f"path:{agents}", f"ball:{size}", gossip="releases"))
    return found


# ---------------------------------------------------------------- word for word


@pytest.mark.parametrize("choice", ["thompson", "greedy"])
def test_it_plays_word_for_word(choice):
    """A literal version with NumPy's matrices, from the text: the same arms in every round."""
    recording = tape()
    policy = FedLinear(2.0, choice, first_batch=8)
    norm = np.linalg.norm(recording.features, axis=-1).max()
    literal = LiteralFedLinear(recording, 2.0, norm, 8, 1.25, greedy=choice == "greedy").arms()
    np.testing.assert_array_equal(replay(recording, policy).arms, literal)
    assert len(np.unique(literal[-100:])) > 1


@pytest.mark.parametrize("mechanism", ["spherical", "laplace"])
def test_compiled_code_plays_as_plain_python(mechanism):
    recording, policy = tape(horizon=120), FedLinear(3.0, mechanism=mechanism, first_batch=6)
    trace = replay(recording, policy)
    setting_of = _settings(recording)
    terms = [policy.terms(setting) for setting in setting_of]
    for t, shown in enumerate(PlainEngine(recording, policy.page(), terms).rounds()):
        if t > 0:
            assert trace.arms[t - 1].tolist() == shown.arms
        np.testing.assert_allclose(trace.theta[t], shown.theta, rtol=1e-9, atol=1e-9)


def _settings(recording):
    from fedbandit.engine.layout import setting_of
    from fedbandit.simulation.replay import _problem_of

    problem = _problem_of(recording)
    return [setting_of(problem, recording.horizon, i) for i in range(problem.num_agents)]


# ---------------------------------------------------------------- its formulas


def test_a_batch_is_worth_its_eigenvalues():
    """An eigenvalue g of G counts g^2 / (g / 4 + s^2) in its direction."""
    source = np.random.default_rng(3)
    x = source.normal(size=(40, SIZE))
    gram, noisy, s2 = x.T @ x, source.normal(size=SIZE), 7.0
    vector, information, scratch = np.zeros(SIZE), np.zeros((SIZE, SIZE)), np.zeros((3, SIZE, SIZE))
    linear.add_batch(gram, noisy, s2, vector, information, scratch)
    g, axes = np.linalg.eigh(gram)
    np.testing.assert_allclose(information, axes @ np.diag(g**2 / (g / 4 + s2 + 1e-6)) @ axes.T)
    np.testing.assert_allclose(vector, axes @ np.diag(g / (g / 4 + s2 + 1e-6)) @ axes.T @ noisy)


@pytest.mark.parametrize("has_constant", [0, 1])
def test_the_posterior_is_that_of_the_joint_normal(has_constant):
    """Of all sites' theta, with weights that differ and sites that are not heard, for every pair of scales."""
    source = np.random.default_rng(5)
    agents, weights = 5, np.array([0.3, 0.1, 0.2, 0.25, 0.15])
    rows, joint_information = np.zeros((agents, 2 + SIZE + SIZE**2)), np.zeros((agents * SIZE,) * 2)
    score = np.zeros(agents * SIZE)
    for j in (0, 2, 3):
        x = source.normal(size=(30, SIZE))
        information, vector = x.T @ x, source.normal(size=SIZE) * 5
        rows[j] = [30, agents * weights[j], *vector, *information.ravel()]
        place = slice(j * SIZE, (j + 1) * SIZE)
        joint_information[place, place], score[place] = information, vector
    grid = linear.GRID
    evidence, means, covariances = np.zeros(grid), np.zeros((grid, SIZE)), np.zeros((grid, SIZE, SIZE))
    scratch = np.zeros((linear.VECTORS, SIZE)), np.zeros((linear.MATRICES, SIZE, SIZE))
    arguments = rows, [1, 0, 3, 2, 4], agents, float((weights**2).sum()), has_constant, *scratch
    assert linear.posterior_of_arm(*arguments, evidence, means, covariances) == 3
    average, found = np.kron(weights, np.eye(SIZE)), []
    for own in linear.SITE_SCALES:
        for common in linear.COMMON_SCALES:
            priors = [_prior(scale, has_constant) for scale in (common, own)]
            joint = np.kron(np.ones((agents, agents)), priors[0]) + np.kron(np.eye(agents), priors[1])
            covariance = np.linalg.inv(np.linalg.inv(joint) + joint_information)
            mean = covariance @ score
            log_det = np.linalg.slogdet(np.eye(len(joint)) + joint @ joint_information)[1]
            found.append((average @ mean, average @ covariance @ average.T, score @ mean / 2 - log_det / 2))
    for g, (mean, covariance, density) in enumerate(found):
        np.testing.assert_allclose(means[g], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(covariances[g], covariance, rtol=1e-9, atol=1e-12)
        assert evidence[g] - evidence[0] == pytest.approx(density - found[0][2], rel=1e-9, abs=1e-9)


def _prior(scale, has_constant):
    slopes = [scale / (SIZE - has_constant)] * (SIZE - has_constant)
    return np.diag([linear.CONSTANT] * has_constant + slopes)


# ---------------------------------------------------------------- noise and privacy


def test_a_changed_reward_moves_a_released_sum_by_one_at_most():
    """Before noise, of tapes that differ in one reward: in one batch, by |x| |r - r'| / width <= 1 (Euclidean)."""
    quiet = replace(tape(horizon=150), noise=np.zeros_like(tape(horizon=150).noise))
    policy, source = FedLinear(1.0, first_batch=6), np.random.default_rng(8)
    largest = 0.0
    for _ in range(12):
        t, i = int(source.integers(1, 30)), int(source.integers(4))
        moved = quiet.rewards.copy()
        moved[t, i] = source.choice([-50.0, 50.0], size=3)
        released = [_first_release(replace(quiet, rewards=r), policy, i, t) for r in (quiet.rewards, moved)]
        largest = max(largest, float(np.linalg.norm(released[0] - released[1])))
    assert 0.2 < largest <= 1.0 + 1e-12


def _first_release(recording, policy, i, t):
    """The noisy sum of the first batch that agent i completes from round t on, in plain Python."""
    engine = PlainEngine(recording, policy.page(), [policy.terms(setting) for setting in _settings(recording)])
    before = None
    for round_, _ in enumerate(engine.rounds()):
        count = sum(engine.me[i].releases)
        if round_ >= t and before is not None and count > before:
            return np.array(engine.me[i].noise)
        before = count
    raise AssertionError("no batch was completed")


def test_spherical_noise_is_what_it_says():
    """Released by an agent all of whose rewards are the middle of the range: b is noise alone.

    Its radius is Gamma(F) times 1 / epsilon, its direction uniform. From the vectors of 4,000 first batches.
    """
    epsilon, count = 0.5, 2000
    problem = Problem.linear(np.full((count, 2, SIZE), 0.0), f"ring:{count}", features.ball(SIZE, intercept=False))
    scale = linear.spherical_scale(epsilon)
    assert linear.spherical_variance(scale, SIZE) == (SIZE + 1) * 4.0
    z = _noise_of(epsilon, "spherical", problem)
    radius = np.linalg.norm(z, axis=1) * epsilon
    assert abs(radius.mean() - SIZE) < 5.5 * (SIZE / len(z)) ** 0.5
    assert abs((radius**2).mean() / (SIZE * (SIZE + 1)) - 1) < 5.5 * 1.2 / len(z) ** 0.5
    direction = z / np.linalg.norm(z, axis=1)[:, None]
    np.testing.assert_allclose(direction.mean(axis=0), 0.0, atol=5.5 * (1 / SIZE / len(z)) ** 0.5)
    np.testing.assert_allclose(direction.T @ direction / len(z), np.eye(SIZE) / SIZE, atol=5.5 * 0.3 / len(z) ** 0.5)


def _noise_of(epsilon, mechanism, problem):
    """The first noisy sums of every agent, whose rewards are all 0."""
    from fedbandit.engine import layout
    from fedbandit.simulation.run import compiled_policy

    problem = replace(problem, gossip="releases", rewards=type(problem.rewards)())
    policy = FedLinear(epsilon, mechanism=mechanism, first_batch=2)
    compiled = compiled_policy(policy, problem, 10)
    population = layout.new_population(
        compiled.page, compiled.terms, 2, releasing=compiled.releasing, num_features=SIZE
    )
    zero, nothing = np.uint64(0), np.zeros(problem.num_agents)
    world, links = layout.world_of(problem), compiled.links[0][1]
    arguments = zero, np.uint64(7), population, world, links, layout.no_tape(), np.zeros((len(nothing), 2))
    found = []
    for t in range(4):
        compiled.play_rounds(t, t, *arguments, np.zeros(2), nothing)
        new = population.agents["releases"].sum(axis=1) == 1
        found.append(population.agents["noise"][new & (population.agents["n"].max(axis=1) == 2)])
    return np.concatenate(found[1:2])


def test_check_policy_accepts_it_and_refuses_too_little_noise():
    check_policy(FedLinear(1.0, first_batch=6))
    check_policy(FedLinear(1.0, "greedy", "laplace", first_batch=6))
    from fedbandit.testing.page_code import check_cost_of_rows

    setting = _settings(tape())[0]
    for mechanism in ("spherical", "laplace"):
        policy = FedLinear(1.0, mechanism=mechanism)
        terms = policy.terms(setting)
        check_cost_of_rows("x", policy.page(), terms, 1.0, setting)
        with pytest.raises(WrongPage, match="spends"):
            check_cost_of_rows("x", policy.page(), terms._replace(noise_scale=0.9 * terms.noise_scale), 1.0, setting)


# ---------------------------------------------------------------- what it is worth


def test_features_pay_where_they_matter():
    found = simulate(problems(6), [FedLinear(2.0), FedBatch(2.0)], 8000, 6, checkpoints=[8000])
    told, untold = found.mean_regret.isel(time=-1).mean("trial").values
    assert told < 0.3 * untold


def test_late_rewards_and_rates():
    late = [replace(problem, rates=np.full(6, 0.5)) for problem in problems(2)]
    late = [
        Problem.linear(p.theta, p.graph, "ball:3", gossip="releases", rates=p.rates, delays="fixed:20") for p in late
    ]
    result = simulate(late, [FedLinear(2.0), FedBatch(2.0)], 8000, 2, checkpoints=[8000])
    told, untold = result.mean_regret.isel(time=-1).mean("trial").values
    assert told < 0.6 * untold


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"choice": "boldly"}, "thompson or greedy"),
        ({"mechanism": "gaussian"}, "spherical or laplace"),
        ({"growth": 1.0}, "growth"),
        ({"first_batch": 0}, "first_batch"),
    ],
)
def test_bad_parameters_are_refused(change, words):
    with pytest.raises(InvalidArgument, match=words):
        FedLinear(**{"epsilon": 1.0} | change)


def test_problems_that_it_cannot_play_are_refused():
    problem = problems(1)[0]
    with pytest.raises(InvalidArgument, match="releases"):
        simulate(replace(problem, gossip="averages"), FedLinear(1.0), 10, 1)
    with pytest.raises(InvalidArgument, match=r"Problem\.linear"):
        simulate(Problem.bernoulli([[0.5, 0.6]] * 2, "path:2", gossip="releases"), FedLinear(1.0), 10, 1)
    unbounded = Problem.linear(problem.theta, "path:6", "ball:3", "gaussian", gossip="releases")
    with pytest.raises(InvalidArgument, match="reward_range"):
        simulate(unbounded, FedLinear(1.0), 10, 1)
