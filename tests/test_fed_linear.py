"""FedLinear: its estimator and posterior against NumPy, word for word on tapes, its noise, privacy and regret."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedbandit import FedBatch, FedLinear, LinTS, LinUCB, Problem, Tape, TreeLinUCB, features, replay, simulate
from fedbandit.checks import InvalidArgument
from fedbandit.policies.registry import WrongPage
from fedbandit.rules import linear, private
from fedbandit.testing import check_policy
from fedbandit.testing.page_code import check_cost_of_rows
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
    """A literal version with NumPy's matrices, from the text: the same arms in every round. Greedy in plain Python."""
    recording = tape(horizon=160)
    policy = FedLinear(2.0, choice=choice, first_batch=8)
    norm = np.linalg.norm(recording.features, axis=-1).max()
    literal = LiteralFedLinear(recording, 2.0, norm, 8, 1.25, greedy=choice == "greedy").arms()
    if choice == "greedy":
        terms = [policy.terms(setting) for setting in _settings(recording)]
        played = [shown.arms for shown in PlainEngine(recording, policy.page(), terms).rounds()][1:]
    else:
        played = replay(recording, policy).arms
    np.testing.assert_array_equal(played, literal)
    assert len(np.unique(literal[-100:])) > 1


@pytest.mark.parametrize(("mechanism", "choice"), [("spherical", "thompson"), ("laplace", "greedy")])
def test_compiled_code_plays_as_plain_python(mechanism, choice):
    recording, policy = tape(horizon=120), FedLinear(3.0, mechanism=mechanism, choice=choice, first_batch=6)
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


def test_a_batch_holds_its_own_rewards_alone_and_features_of_norm_one():
    """Without noise: features beyond the declared norm are scaled, rewards clamped, and a released batch is over."""
    me = SimpleNamespace(total=[[0.0, 0.0]], n=[0], released=[0], batch_end=[2])
    terms = SimpleNamespace(norm=1.0, low=0.0, high=2.0, centre=1.0)
    long, short = SimpleNamespace(features=[30.0, 40.0]), SimpleNamespace(features=[0.0, 0.5])
    for begin, (first, second) in enumerate([(9.0, -9.0), (2.0, 1.5)]):
        me.batch_end[0], noise = 2 * begin + 2, [0.0, 0.0]
        assert private.collect_row(me, terms, 0, first, noise, long) == 0
        assert private.collect_row(me, terms, 0, second, noise, short) == 2
        last = (min(max(second, 0.0), 2.0) - 1.0) / 2.0
        np.testing.assert_allclose(noise, [0.3, 0.4 + 0.5 * last])


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
    check_policy(FedLinear(1.0, choice="greedy", mechanism="laplace", first_batch=6))
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


@pytest.mark.slow
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


# ---------------------------------------------------------------- features are protected, too

RECORDS = FedLinear(4.0, protects="record", first_batch=12)


def test_no_decision_moves_a_release_by_more_than_it_says():
    """Over norms, angles, rewards and arms, by search; the largest found is within 1 % of the bound."""
    source, count = np.random.default_rng(4), 300_000
    x, y = (source.normal(size=(count, 3)) for _ in range(2))
    norms = source.random((2, count)) ** source.choice([0.0, 1.0], size=(2, count))
    x, y = ((norm / np.linalg.norm(z, axis=1))[:, None] * z for norm, z in zip(norms, (x, y), strict=True))
    p, q = np.where(source.random((2, count)) < 0.5, source.choice([-0.5, 0.5], size=(2, count)), 0.5 - norms)
    grams = np.einsum("na,nb->nab", x, x), np.einsum("na,nb->nab", y, y)
    sums = x * q[:, None], y * p[:, None]
    one_arm = ((grams[0] - grams[1]) ** 2).sum(axis=(1, 2)) + ((sums[0] - sums[1]) ** 2).sum(axis=1)
    two_arms = sum((gram**2).sum(axis=(1, 2)) for gram in grams) + sum((b**2).sum(axis=1) for b in sums)
    largest = max(one_arm.max(), two_arms.max()) ** 0.5
    assert 0.99 * linear.RECORD < largest <= linear.RECORD + 1e-12


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-6), (3.0, 1e-9)])
def test_gaussian_noise_is_as_wide_as_epsilon_and_delta_need(epsilon, delta):
    """Delta is the integral of the positive part of p - e^eps q, of two normal densities one sensitivity apart."""
    deviation = linear.gaussian_scale(epsilon, delta) / linear.RECORD
    x = np.linspace(-40 * deviation, 40 * deviation, 2_000_001)
    p, q = (np.exp(-0.5 * ((x - m) / deviation) ** 2) / deviation / (2 * np.pi) ** 0.5 for m in (0.0, 1.0))
    found = np.maximum(p - np.exp(epsilon) * q, 0.0).sum() * (x[1] - x[0])
    assert found == pytest.approx(delta, rel=1e-3)
    assert linear.gaussian_delta(epsilon, 1.001 * deviation) < delta


def test_compiled_code_plays_records_as_plain_python():
    recording = tape(horizon=90)
    trace = replay(recording, RECORDS)
    terms = [RECORDS.terms(setting) for setting in _settings(recording)]
    for t, shown in enumerate(PlainEngine(recording, RECORDS.page(), terms).rounds()):
        if t > 0:
            assert trace.arms[t - 1].tolist() == shown.arms
        np.testing.assert_allclose(trace.theta[t], shown.theta, rtol=1e-8, atol=1e-8)


@dataclass(frozen=True)
class PublishesFeatures:
    """All its functions are proved ones, and it passes on x . theta of the newest decision."""

    epsilon: float = 1.0

    def page(self):
        return RECORDS.page()._replace(records=("worth", "share", "vector", "information", "belief"))

    def terms(self, setting):
        return replace(RECORDS, epsilon=self.epsilon).terms(setting)


def test_check_policy_knows_what_records_need():
    check_policy(RECORDS)
    with pytest.raises(WrongPage, match="FedLinear alone"):
        check_policy(PublishesFeatures())
    setting = _settings(tape())[0]
    terms = RECORDS.terms(setting)
    with pytest.raises(WrongPage, match="delta"):
        check_cost_of_rows("x", RECORDS.page(), terms._replace(noise_scale=0.99 * terms.noise_scale), 4.0, setting)


def test_records_are_refused_where_the_proof_does_not_hold():
    late = Problem.linear(problems(1)[0].theta, "path:6", "ball:3", gossip="releases", delays="fixed:3")
    with pytest.raises(InvalidArgument, match="delays"):
        simulate(late, RECORDS, 10, 1)
    for change in (
        {"delta": 1e-5},
        {"delta": 0.0},
        {"choice": "greedy"},
        {"mechanism": "laplace"},
        {"protects": "all"},
    ):
        with pytest.raises(InvalidArgument, match=next(iter(change))):
            replace(RECORDS, **change)


@pytest.mark.slow
def test_protecting_features_costs_regret_and_still_learns():
    both = [replace(RECORDS, epsilon=8.0, first_batch=None), FedLinear(8.0), FedBatch(8.0)]
    found = simulate(problems(4), both, 12_000, 4, checkpoints=[12_000]).mean_regret.isel(time=-1).mean("trial")
    hidden, told, untold = found.values
    assert told < hidden < 0.5 * untold


# ---------------------------------------------------------------- others to compare with


class LiteralRidge:
    """LinUCB and LinTS of one agent, or of all pooled, in NumPy's matrices."""

    def __init__(self, tape, central, factor, draws):
        self.tape, self.factor, self.draws = tape, factor, draws
        self.num_agents, self.num_arms = tape.rewards.shape[1:]
        groups = 1 if central else self.num_agents
        self.gram = np.tile(np.eye(SIZE), (groups, self.num_arms, 1, 1))
        self.vector = np.zeros((groups, self.num_arms, SIZE))
        self.norm = np.linalg.norm(tape.features, axis=-1).max()

    def arms(self):
        found, everyone = [], range(self.num_agents)
        for t in range(self.tape.horizon + 1):
            x = self.tape.features[self.num_arms - 1 + t] / self.norm
            chosen = [self.choose(t, i, x[i]) for i in everyone] if t > 0 else []
            for i in everyone:
                for k in range(self.num_arms) if t == 0 else [chosen[i]]:
                    mine = self.tape.features[k, i] / self.norm if t == 0 else x[i]
                    low, high = self.tape.reward_range
                    q = (np.clip(self.tape.rewards[t, i, k], low, high) - (low + high) / 2) / (high - low)
                    self.gram[i % len(self.gram), k] += np.outer(mine, mine)
                    self.vector[i % len(self.gram), k] += q * mine
            found += [chosen] if t > 0 else []
        return np.array(found)

    def choose(self, t, i, x):
        inverse = np.linalg.inv(self.gram[i % len(self.gram)])
        mean = np.einsum("kab,kb,a->k", inverse, self.vector[i % len(self.gram)], x)
        spread = self.factor * np.sqrt(np.einsum("a,kab,b->k", x, inverse, x))
        return int(np.argmax(mean + spread * (self.tape.normals[t - 1, i] if self.draws else 1.0)))


@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize(("policy", "factor"), [(LinUCB(alpha=0.7), 0.7), (LinTS(), 0.5)])
def test_ridge_regression_word_for_word(policy, factor, central):
    recording = tape(horizon=150)
    literal = LiteralRidge(recording, central, factor, isinstance(policy, LinTS)).arms()
    np.testing.assert_array_equal(replay(recording, replace(policy, central=central)).arms, literal)


def test_the_tree_sums_up_all_batches_with_the_noise_of_its_nodes():
    """In plain Python: after batch 6 = 110b the noise is that of nodes 4 and 6; sums themselves are exact."""
    recording = tape(agents=2, horizon=40, arms=2)
    policy = TreeLinUCB(1.0, batch=7)
    terms = [policy.terms(setting._replace(horizon=40)) for setting in _settings(recording)]
    engine = PlainEngine(recording, policy.page(), terms)
    for _ in engine.rounds():
        pass
    me = engine.me[0]
    assert (me.decisions, me.sent) == (42, 6)
    noise = recording.noise[[28, 42], 0, : 2 * SIZE].sum(axis=0).reshape(2, SIZE) * terms[0].noise_scale
    np.testing.assert_allclose(np.array(me.vector) - np.array(me.own_vector), noise, atol=1e-9)
    compiled = replay(recording, policy)
    plain = list(PlainEngine(recording, policy.page(), terms).rounds())
    assert compiled.arms.tolist() == [shown.arms for shown in plain[1:]]


def test_all_of_them_learn_and_are_refused_where_they_cannot():
    few, policies = problems(3), [LinUCB(alpha=0.5), LinTS(), LinTS(central=True), FedBatch(2.0)]
    found = simulate(few, policies, 6000, 3, checkpoints=[6000]).mean_regret.isel(time=-1).mean("trial").values
    assert max(found[:3]) < 0.6 * found[3]
    assert found[2] < 0.5 * found[1]
    check_policy(LinTS())
    check_policy(LinUCB(central=True))
    rates = Problem.linear(few[0].theta, "path:6", "ball:3", rates=np.full(6, 0.5))
    with pytest.raises(InvalidArgument, match="rates"):
        simulate(rates, TreeLinUCB(1.0), 10, 1)
    for wrong in ({"alpha": 0.0}, {"ridge": 0.0}, {"central": 1}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            LinUCB(**wrong)
