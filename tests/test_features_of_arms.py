"""Arms with features of their own and one theta for all: the world, OFUL and FedLinUCB word for word, refusals."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedbandit import OFUL, FedLinear, FedLinUCB, LinUCB, LocalUCB, Problem, Tape, features, replay, simulate
from fedbandit.checks import InvalidArgument
from fedbandit.engine.layout import setting_of
from fedbandit.experiments.experiment import ExperimentError, read_experiment
from fedbandit.policies.protocol import ARMS as ARMS_LENGTH
from fedbandit.policies.protocol import FEATURES, Fields, Number
from fedbandit.simulation.replay import _problem_of
from fedbandit.world import graph
from plain_engine import PlainEngine

SIZE, ARMS = 3, 4
THETA = np.array([0.5, -0.3, 0.2])


def world(shape="cube", sigma=0.1, agents=2, **options):
    """Arms whose features are drawn anew for each decision."""
    found = features.ball(SIZE, intercept=False, shape=shape, by_arm=True)
    return Problem.linear(THETA, f"path:{agents}", found, "gaussian", sigma=sigma, num_arms=ARMS, **options)


# ---------------------------------------------------------------- the world


@pytest.mark.parametrize(("shape", "square"), [("ball", 3 / 5), ("sphere", 1.0), ("cube", 1 / 3)])
def test_a_uniform_choice_loses_what_it_must(shape, square):
    """E max_k theta . x_k of four draws, by another generator; a page that is not told them may as well take any.

    E (theta . x)^2 = |theta|^2 E|x|^2 / 3: of a ball 3/5, a sphere 1, a cube with corners at 1 1/3. With 40,000
    decisions and losses below 2: an alarm in less than one of 10^6 runs.
    """
    source = np.random.default_rng(1)
    z = source.normal(size=(400_000, ARMS, SIZE))
    x = z / np.linalg.norm(z, axis=-1, keepdims=True)
    if shape == "ball":
        x *= source.random((400_000, ARMS, 1)) ** (1 / SIZE)
    if shape == "cube":
        x = source.uniform(-1, 1, z.shape) / SIZE**0.5
    means = x @ THETA
    assert (means**2).mean() == pytest.approx(THETA @ THETA * square / SIZE, rel=0.01)
    result = simulate(world(shape), LocalUCB(), 20_000, 1, checkpoints=[20_000])
    expected = means.max(axis=1).mean()
    lost = result.regret.values.sum() / 40_000
    assert abs(lost - expected) < 5.5 * (means.max(axis=1).std() + means.std()) / 200


def test_oful_learns_theta_and_alone_it_takes_longer():
    result = simulate(world(agents=6), [OFUL(central=True), FedLinUCB(), OFUL()], 1_000, 3)
    central, federated, alone = result.mean_regret.isel(time=-1).mean("trial").values
    assert central < federated < alone
    assert alone < 0.05 * 1_000 * 0.3


def test_sites_may_differ():
    """Regret is that of the average theta: a central model reaches it, a site alone learns its own."""
    found = features.ball(SIZE, intercept=False, by_arm=True)
    apart = np.array([0.0, 0.0, 0.4])
    theta = np.array([THETA + apart, THETA - apart])
    problem = Problem.linear(theta, "path:2", found, "gaussian", sigma=0.1, num_arms=ARMS)
    np.testing.assert_allclose(problem.average_theta, np.tile(THETA, (ARMS, 1)))
    central, alone = simulate(problem, [OFUL(central=True), OFUL()], 3_000, 2).mean_regret.isel(time=-1).mean("trial")
    assert central < 0.2 * alone


# ---------------------------------------------------------------- word for word


def tape(agents=3, horizon=150, seed=2):
    """With features of arms, one after the other, and rewards that follow them."""
    made = Tape.random(graph.path(agents), ARMS, horizon, seed, num_features=ARMS * SIZE)
    x = made.features.copy()
    x[:, :, 0] = np.random.default_rng(9).uniform(-1, 1, x.shape[:2])  # no constant
    rows = x.reshape(len(x), agents, ARMS, SIZE)
    rewards = np.concatenate([rows[ARMS - 1 :] @ THETA])[: len(made.rewards)] + 0.2 * made.rewards
    return replace(made, features=x, by_arm=True, rewards=rewards)


def literal(recording, policy, central, growth=None):
    """OFUL, and FedLinUCB with a growth, in NumPy's matrices, from the papers' pseudocode."""
    arms, agents = ARMS, recording.rewards.shape[1]
    rows = recording.features.reshape(*recording.features.shape[:2], arms, SIZE)
    rows = rows / np.linalg.norm(rows, axis=-1).max()
    eye = policy.ridge * np.eye(SIZE)
    server = [np.zeros((SIZE, SIZE)), np.zeros(SIZE)]
    known = [[eye.copy(), np.zeros(SIZE)] for _ in range(agents)]
    new = [[np.zeros((SIZE, SIZE)), np.zeros(SIZE)] for _ in range(agents)]
    chosen = []

    def pull(i, x, reward):
        new[i][0] += np.outer(x, x)
        new[i][1] += reward * x
        if growth is not None and np.linalg.det(known[i][0] + new[i][0]) > (1 + growth) * np.linalg.det(known[i][0]):
            server[0] += new[i][0]
            server[1] += new[i][1]
            new[i] = [np.zeros((SIZE, SIZE)), np.zeros(SIZE)]
            return True
        return False

    def exchange(sent):
        if growth is not None:
            for i in sent:
                known[i] = [eye + server[0], server[1].copy()]
        elif central:
            for part in (0, 1):
                server[part] += sum(mine[part] for mine in new)
            for i in range(agents):
                known[i], new[i] = [eye + server[0], server[1].copy()], [np.zeros((SIZE, SIZE)), np.zeros(SIZE)]
        else:
            for i in range(agents):
                known[i] = [known[i][0] + new[i][0], known[i][1] + new[i][1]]
                new[i] = [np.zeros((SIZE, SIZE)), np.zeros(SIZE)]

    exchange({i for i in range(agents) for k in range(arms) if pull(i, rows[k, i, k], recording.rewards[0, i, k])})
    for t in range(1, recording.horizon + 1):
        now = []
        for i, (a, b) in enumerate(known):
            x = rows[arms - 1 + t, i]
            spread = np.sqrt(np.einsum("kc,ck->k", x, np.linalg.solve(a, x.T)))
            now.append(int(np.argmax(x @ np.linalg.solve(a, b) + policy.width * spread)))
        chosen.append(now)
        sent = {i for i, k in enumerate(now) if pull(i, rows[arms - 1 + t, i, k], recording.rewards[t, i, k])}
        exchange(sent)
    return np.array(chosen)


@pytest.mark.parametrize("policy", [OFUL(), OFUL(central=True, width=0.8), FedLinUCB(), FedLinUCB(growth=0.2)])
def test_they_play_word_for_word(policy):
    recording = tape()
    growth = getattr(policy, "growth", None)
    expected = literal(recording, policy, getattr(policy, "central", False), growth)
    found = replay(recording, policy)
    np.testing.assert_array_equal(found.arms, expected)
    settings = [setting_of(_problem_of(recording), recording.horizon, i) for i in range(3)]
    plain = PlainEngine(recording, policy.page(), [policy.terms(each) for each in settings])
    assert [shown.arms for shown in plain.rounds()][1:] == expected.tolist()
    assert len(np.unique(expected)) == ARMS


# ---------------------------------------------------------------- refused in words


def first_feature(me, terms, arm, reward, noise, context):
    """A page that takes the row of all arms for one."""
    for c in range(len(context.features)):
        me.slopes[arm][c] += reward * context.features[c]


@dataclass(frozen=True)
class OneRow:
    def page(self):
        page = OFUL().page()
        knows = Fields(slopes=Number[ARMS_LENGTH, FEATURES], **{k: v for k, v in page.knows.items() if k != "tried"})
        return page._replace(knows=knows, observe=first_feature)

    def terms(self, setting):
        return OFUL().terms(setting)


def test_a_page_that_takes_all_rows_for_one_is_refused():
    """It would read and write behind its own row, in compiled code wherever that is."""
    with pytest.raises(ValueError, match="beyond its row"):
        simulate(world(), OneRow(), 10, 1)


def test_policies_say_what_features_they_take():
    for policy in (FedLinear(1.0), LinUCB()):
        with pytest.raises(InvalidArgument, match=r"releases|range"):
            simulate(world(), policy, 10, 1)
    bounded = Problem.linear(THETA, "path:2", features.ball(3, intercept=False, by_arm=True), "gaussian",
                             num_arms=ARMS, reward_range=(-2.0, 2.0), gossip="releases")  # fmt: skip
    for policy in (FedLinear(1.0), LinUCB()):
        with pytest.raises(InvalidArgument, match="by_arm"):
            simulate(bounded, policy, 10, 1)
    same = Problem.linear(np.full((2, ARMS, 4), 0.1), "path:2", "ball:3", "gaussian")
    for policy in (OFUL(), FedLinUCB()):
        with pytest.raises(InvalidArgument, match="by_arm"):
            simulate(same, policy, 10, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_arms": None}, "num_arms"),
        ({"theta": np.ones((3, 3))}, "3 agents"),
        ({"theta": [0.5, 0.1]}, "theta"),
        ({"features": "cube:3"}, "num_arms"),
        ({"features": "cone:3"}, "cube:4"),
    ],
)
def test_bad_worlds_are_refused(change, words):
    found = features.ball(SIZE, intercept=False, by_arm=True)
    given = {"theta": THETA, "graph": "path:2", "features": found, "rewards": "gaussian", "num_arms": ARMS} | change
    with pytest.raises(InvalidArgument, match=words):
        Problem.linear(**given)
    with pytest.raises(InvalidArgument, match="shape"):
        features.ball(3, shape="cone")


FILE = """
graph = "path:2"
horizon = 100
trials = 2
[problem]
rewards = "bernoulli"
{}
[[policies]]
kind = "local_ucb"
"""


@pytest.mark.parametrize(
    ("lines", "rows", "size"),
    [
        ('features = "ball:2"\neffect = 0.3\nnum_arms = 3\nredraw = true', 1, 3),
        ('features = "sphere:2"\nby_arm = true\nnum_arms = 3\ntheta = [0.5, 0.1, 0.1]', 3, 3),
        ('features = "cube:2"\nconstant = false\ntheta = [[0.0, 0.0], [0.0, 0.0]]\n', 1, 2),
    ],
)
def test_experiment_files_have_features(tmp_path, lines, rows, size):
    (tmp_path / "x.toml").write_text(FILE.format(lines))
    if "constant" in lines:
        (tmp_path / "x.toml").write_text(FILE.format(lines).replace("bernoulli", "gaussian"))
    problems = read_experiment(tmp_path / "x.toml").problems
    assert (problems[0].rows_of_features, problems[0].num_features) == (rows, size)
    assert len(problems) == 1 or not np.array_equal(problems[0].theta, problems[1].theta)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('features = "ball:2"\nnum_arms = 3', r"problem\.theta"),
        ('features = "cube:2"\neffect = 0.3\nnum_arms = 3', r"problem\.theta"),
        ('features = "ball:2"\neffect = 0.5\nnum_arms = 3', r"problem\.effect"),
        ('features = "ball:2"\neffect = 0.3', r"problem\.num_arms"),
        ("theta = [[0.1]]\nnum_arms = 3", r"problem\.theta"),
        ('features = "ball:2"\neffect = 0.3\nmeans = [[0.1, 0.2], [0.1, 0.2]]', r"problem\.features"),
        ('features = "ball:2"\neffect = 0.3\nnum_arms = 3\nstrata = 2', "strata"),
        ('features = "ball:2"\ntheta = [[0.5, 0, 0], [0.5, 0, 0]]\nredraw = true', r"problem\.theta"),
    ],
)
def test_bad_experiment_files_are_refused(tmp_path, lines, words):
    (tmp_path / "x.toml").write_text(FILE.format(lines))
    with pytest.raises(ExperimentError, match=words):
        read_experiment(tmp_path / "x.toml")
