"""Gossip of releases: the laws of boards, every page on the same tape in plain Python and compiled, and refusals.

Literal versions are in ``literal.py`` and ``literal_batch.py``.
"""

from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import literal
import literal_batch
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
    Problem,
    Shares,
    Tape,
    replay,
    simulate,
)
from fedbandit.engine import layout
from fedbandit.engine.layout import setting_of
from fedbandit.experiments.experiment import ExperimentError, read_sweep
from fedbandit.policies.protocol import page_on
from fedbandit.policies.registry import WrongPage
from fedbandit.rules.releases import between_sites, mean_of_heard, random_effects, take_newer
from fedbandit.simulation.run import compiled_policy
from fedbandit.testing import check_policy
from fedbandit.world import graph
from plain_engine import PlainEngine

HORIZON = 250
WORLDS = [graph.path(5), graph.ring(5), graph.star(4), graph.complete(3)]


# ---------------------------------------------------------------- laws


@st.composite
def boards(draw, count):
    """Boards of three agents; the row of a version is always the same."""
    published = [[[float(100 * j + v), draw(st.floats(-1, 1))] for v in range(5)] for j in range(3)]
    versions = [[draw(st.integers(0, 4)) for _ in range(3)] for _ in range(count)]
    return [([*mine], [[*published[j][v]] for j, v in enumerate(mine)]) for mine in versions]


def merged(one, *others):
    versions, rows = [*one[0]], [[*row] for row in one[1]]
    for other in others:
        take_newer(versions, rows, *other)
    return versions, rows


@given(boards(3))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_boards_merge_in_any_order_and_any_number_of_times(found):
    a, b, c = found
    assert merged(a, a) == a
    assert merged(a, b) == merged(b, a)
    assert merged(a, b, b) == merged(a, b)
    assert merged(a, b, c) == merged(a, merged(b, c))
    assert merged(a, b)[0] == [max(x, y) for x, y in zip(a[0], b[0], strict=True)]  # the newer wins


@given(boards(2))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_a_merge_says_whether_anything_was_new(found):
    (versions, rows), other = found
    before = [*versions]
    assert take_newer(versions, rows, *other) == (versions != before)


def test_what_is_seen_is_the_mean_of_those_heard():
    rows, seen = [[1.0, 8.0], [5.0, 0.0], [3.0, 1.0]], [9.0, 9.0]
    mean_of_heard(rows, [1, 0, 7], [1.0, 1.0, 1.0], seen)
    assert seen == [2.0, 4.5]
    mean_of_heard(rows, [1, 0, 7], [0.5, 2.0, 0.5], seen)  # rows are shares times means
    assert seen == [4.0, 9.0]
    mean_of_heard(rows, [1, 1, 7], [0.3, 2.4, 0.3 - 1e-12], seen)
    assert seen == [3.0, 3.0], "with all heard, the plain average"
    mean_of_heard(rows, [0, 0, 0], [1.0, 1.0, 1.0], seen)
    assert seen == [0.0, 0.0]


# ---------------------------------------------------------------- random effects


def test_the_variance_between_sites_is_learnt_without_bias():
    """With the prior's share taken away, the mean over 4,000 draws is tau^2 within 5 standard errors (1 in 10^6)."""
    source, found = np.random.default_rng(1), []
    v, tau, prior = np.array([0.001, 0.01, 0.1, 0.02, 0.3, 0.005]), 0.2, 1 / 12
    a = prior / (prior + v)
    independent = a.sum() - (a * a).sum() / a.sum()
    for x in source.normal(0.4, np.sqrt(tau**2 + v), (4000, 6)):
        deviations = (a * (x - (a * x).sum() / a.sum()) ** 2).sum()
        learnt = between_sites(6, a.sum(), (a * a).sum(), deviations + 9.0, prior)  # 9: never cut at 0
        found.append(((3 + independent) * learnt - 3 * prior - 9.0) / independent)
    assert abs(np.mean(found) - tau**2) < 5 * np.std(found) / np.sqrt(4000)


def test_the_spread_of_sites_that_are_missing():
    """Three of five sites alike are known: (N - c) tau^2 / (c N), and sum V / c^2 of rewards and noise."""
    rows = [[0.2, 0.01, 1.0], [0.0, 0.0, 1.0], [0.8, 0.02, 1.0], [0.5, 0.03, 1.0], [9.0, 9.0, 1.0]]
    theta, sampling, missing, weight = random_effects(rows, [1, 1, 4, 2, 0], 5.0, 5.0, 1 / 12)
    assert theta == pytest.approx(0.5)
    assert sampling == pytest.approx(0.06 / 9)
    assert weight == pytest.approx(3 / 5)
    one = random_effects(rows[:1], [1], 5.0, 5.0, 1 / 12)
    assert one[2] == pytest.approx(4 / 5 / 12), "one site tells nothing of the variance between sites"
    apart = random_effects([[x, v, 1.0] for x, v in ((0.2, 0.01), (0.8, 0.02), (0.5, 0.03))], [1] * 3, 3.0, 3.0, 1 / 12)
    assert apart[2] == 0.0, "nobody is missing"
    tau2 = missing * (3 * 5) / 2
    assert 0.02 < tau2 < 0.12


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 1), st.floats(0.01, 3)), min_size=2, max_size=6))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_random_effects_word_for_word(sites):
    rows = [[*site] for site in sites]
    weights = [w for _, _, w in sites]
    total, squares = sum(weights) + 2.0, sum(w * w for w in weights) + 3.0
    theta, sampling, missing, _ = random_effects(rows, [1] * len(rows), total, squares, 1 / 12)
    expected = literal_batch.random_effects(sites, 1 / 4, total, squares)
    assert (theta, sampling + missing) == pytest.approx(expected, rel=1e-9)


def test_where_rates_count_sites_that_were_not_heard_weigh_as_the_others():
    rows = [[0.3, 0.02, 0.5], [0.7, 0.05, 1.5], [0.0, 0.0, 0.0]]
    told = random_effects(rows, [2, 1, 0], 3.0, 3.75, 1 / 12)
    assert random_effects(rows, [2, 1, 0], 0.0, 0.0, 1 / 12) == pytest.approx(told)


# ---------------------------------------------------------------- pages on tapes


def tape_on(world, seed, arms=3, reward_range=(0.0, 1.0), horizon=HORIZON):
    means = np.random.default_rng(seed).random((world.num_agents, arms))
    return replace(Tape.random(world, arms, horizon, seed, means, reward_range), gossip="releases")


def plain(tape, policy):
    problem = Problem.gaussian(
        np.zeros(tape.rewards.shape[1:]), tape.graph, reward_range=tape.reward_range, gossip="releases"
    )
    known = [setting_of(problem, tape.horizon, i) for i in range(problem.num_agents)]
    rule = policy.links(known[0]) if hasattr(policy, "links") else None
    return PlainEngine(tape, page_on(policy.page(), "releases"), [policy.terms(s) for s in known], rule)


PAGES = {
    "gossip_ucb": GossipUCB(),
    "fed_ucb": FedUCB(4.0, noise_constant=0.01, sampling_constant=0.2),
    "fed_batch": FedBatch(4.0, first_batch=3),
    "fed_batch, ucb": FedBatch(inf, index="ucb", first_batch=2),
    "fed_batch, kl, catching up": FedBatch(8.0, index="kl", first_batch=2, catches_up=True),
    "adap_ucb": AdaPUCB(2.0),
    "dist_ucb": DistUCB(),
    "gse": GSE(),
    "local_ucb": LocalUCB(),
    "central_ucb": CentralUCB(),
    "fed1_ucb": Fed1UCB(),
}


QUICK = "gossip_ucb", "fed_ucb", "fed_batch", "gse", "central_ucb"
"""A plain mean, a tree, batches, arms that are eliminated, everything pooled; the network is the same for all pages."""


@pytest.mark.parametrize("name", [it if it in QUICK else pytest.param(it, marks=pytest.mark.slow) for it in PAGES])
def test_compiled_code_plays_releases_as_plain_python_does(name):
    policy = PAGES[name]
    for seed, world in enumerate(WORLDS):
        tape = tape_on(world, seed)
        trace = replay(tape, policy)
        for t, shown in enumerate(plain(tape, policy).rounds()):
            if t > 0:
                assert trace.arms[t - 1].tolist() == shown.arms, (world.name, t)
            assert trace.theta[t] == pytest.approx(np.array(shown.theta), rel=1e-9, abs=1e-12), (world.name, t)
            if policy.page().announced is not None:
                assert trace.n_max[t + 1].tolist() == shown.n_max, (world.name, t)


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_gossip_ucb_on_releases_word_for_word(world):
    for seed in range(3):
        tape = tape_on(world, seed, reward_range=None)
        arms, theta, n, n_max, _ = literal.on_tape(tape, network="releases")
        trace = replay(tape, GossipUCB())
        assert (trace.arms == arms).all()
        assert (trace.n == n).all()
        assert (trace.n_max == n_max).all()
        assert trace.theta == pytest.approx(theta, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("index", ["thompson", "ucb"])
def test_fed_batch_on_releases_word_for_word(index):
    for seed, world in enumerate(WORLDS):
        tape = tape_on(world, 10 + seed)
        expected = literal_batch.fed_batch_on_releases(tape, 4.0, 5, 1.25, index)
        trace = replay(tape, FedBatch(4.0, index, first_batch=5))
        assert (trace.arms == expected["arms"]).all(), world.name
        assert trace.x_mean == pytest.approx(expected["x_mean"], rel=1e-9, abs=1e-12)
        assert trace.theta == pytest.approx(expected["theta"], rel=1e-9, abs=1e-12)


def test_with_everybody_heard_all_see_the_average():
    """On a complete graph, all links in every round: one round late, as Algorithm 1's order has it."""
    tape = tape_on(graph.complete(4), 0, horizon=60)
    trace = replay(tape, DistUCB())
    for t in range(1, 61):
        late = np.tile(trace.x_mean[t - 1], (4, 1, 1))
        late[np.arange(4), np.arange(4)] = trace.x_mean[t]
        assert trace.theta[t] == pytest.approx(late.mean(axis=1), rel=1e-12)


# ---------------------------------------------------------------- links of a round


def boards_after(rounds, problem, policy=None, shares=None):
    """The versions and rows that agents hold after these rounds; Gossip_UCB publishes in every round."""
    plan = compiled_policy(policy or GossipUCB(), problem, rounds[-1], shares=shares)
    population = layout.new_population(
        plan.page, plan.terms, problem.num_arms, plan.rounds_of_waiting, plan.shares, plan.releasing
    )
    theta, misses = np.zeros(problem.means.shape), np.zeros(problem.num_agents)
    world, zero, found = layout.world_of(problem), np.uint64(0), []
    starts = [first for first, _ in plan.links]
    for t in range(rounds[-1] + 1):
        _, links = plan.links[max(p for p, first in enumerate(starts) if first <= t)]
        plan.play_rounds(t, t, zero, zero, population, world, links, layout.no_tape(), theta, problem.arm_means, misses)
        if t in rounds:
            found.append((population.releases.versions.copy(), population.releases.rows.copy()))
    return found


def test_links_of_one_round_make_no_second_hop():
    """A path with all links in every round: news of an agent d hops away is d rounds old."""
    problem = Problem.gaussian(np.zeros((6, 2)), "path:6", edges_per_round="all", gossip="releases")
    for t, (versions, _) in zip((1, 3, 20), boards_after((1, 3, 20), problem), strict=True):
        for i in range(6):
            for j in range(6):
                assert versions[i, j] == max(t + 1 - abs(i - j), 0), (t, i, j)


def test_a_matching_pairs_agents_once():
    """On a star one leaf meets the centre in a round; it learns what the centre knew before."""
    problem = Problem.gaussian(np.zeros((5, 2)), "star:5", edges_per_round="matching", gossip="releases")
    rounds = tuple(range(1, 30))
    found = [versions for versions, _ in boards_after((0, *rounds), problem)]
    for before, after in pairwise(found):
        met = [i for i in range(1, 5) if after[i, 0] > before[i, 0]]
        assert len(met) == 1, "the centre publishes in every round, and one leaf hears of it"
        (leaf,) = met
        assert after[leaf, 0] == before[0, 0]
        for j in range(5):
            if j not in (0, leaf):
                newest = max(before[0, j], before[leaf, j])
                assert after[0, j] == after[leaf, j] == newest


def meets(t, i, j, u):
    """Edges of the path in turn, every third round none."""
    return t % 3 != 0 and i % 2 == t % 2


@pytest.mark.parametrize(
    "options",
    [
        {"graph": "ring:6", "edges_per_round": "one"},
        {"graph": "grid:2x3", "edges_per_round": "matching"},
        {"graph": "star:6", "edges_per_round": 0.4},
        {"graph": "path:6", "edges_per_round": meets},
        {"graph": graph.contacts([(t, t % 5, t % 5 + 1) for t in range(1, 60)], 6)},
        {"graph": graph.schedule([(0, graph.path(6)), (20, graph.star(6))])},
    ],
    ids=["one", "matching", "by chance", "own rule", "contacts", "schedule"],
)
def test_every_row_held_is_one_that_its_agent_has_published(options):
    """Whatever the links: versions never fall, and a version is the same everywhere."""
    problem = Problem.random(6, 3, seed=3, gossip="releases", rates=[1, 0.5, 1, 0.2, 1, 0.7], **options)
    published, before = {}, np.zeros((6, 6), int)
    found = boards_after(tuple(range(60)), problem)
    for versions, rows in found:
        for j in range(6):
            published[j, versions[j, j]] = rows[j, j].copy()
        assert (versions >= before).all()
        before = versions
        for i in range(6):
            for j in range(6):
                assert versions[i, j] <= versions[j, j]
                if versions[i, j] > 0:
                    assert (rows[i, j] == published[j, versions[i, j]]).all(), (i, j)
    assert (before > 0).all(), "by now everybody has heard of everybody"


def test_nothing_new_is_no_new_version():
    problem = Problem.random(3, 3, "path", seed=1, rewards="bernoulli", gossip="releases")
    policy = FedBatch(1.0, first_batch=5)
    found = boards_after((0, 4, 200), problem, policy)
    assert (np.diag(found[0][0]) == 1).all()
    assert (np.diag(found[1][0]) == 1).all(), "no batch is full before"
    assert (np.diag(found[2][0]) < 60).all()


# ---------------------------------------------------------------- options of a problem


def test_late_rewards_shares_and_weights_run_on_releases():
    problem = Problem.random(
        4,
        3,
        "path",
        seed=1,
        rewards="bernoulli",
        gossip="releases",
        delays="geometric:5",
        weights=[0.4, 0.3, 0.2, 0.1],
        edges_per_round="matching",
    )
    policies = [GossipUCB(), FedBatch(2.0, first_batch=4)]
    result = simulate(problem, policies, 4000, 4, shares=Shares(control=0, control_share=0.1))
    regret = result.dataset["regret"].isel(time=-1).mean(("trial", "agent"))
    assert (regret < 0.5 * 4000 * problem.gaps.mean()).all()
    assert (result.theta_error.isel(time=-1).sel(policy="Gossip_UCB") < 0.12).all()


def test_an_agent_is_not_heard_before_its_first_reward_counts():
    problem = Problem.gaussian(np.ones((3, 2)), "path:3", gossip="releases", delays="fixed:10", edges_per_round="all")
    early, later = boards_after((9, 14), problem)
    assert (early[0] == 0).all()
    assert (later[0] > 0).all()


def test_other_networks_do_not_change():
    played = {
        gossip: simulate(
            Problem.random(3, 3, "path", seed=2, rewards="bernoulli", gossip=gossip),
            [LocalUCB(), CentralUCB(), Fed1UCB()],
            500,
            2,
        )
        for gossip in ("averages", "releases")
    }
    assert played["averages"].dataset["regret"].equals(played["releases"].dataset["regret"])


def test_running_consensus_is_refused():
    problem = Problem.random(3, 3, "path", gossip="releases")
    with pytest.raises(InvalidArgument, match=r"gossip must be averages for coop-UCB2.*that is the algorithm"):
        simulate(problem, CoopUCB2(), 10, 1)


def test_too_many_agents_are_refused_with_the_reason():
    with pytest.raises(InvalidArgument, match=r"averages for more than 2,000 agents.*N\^2 M numbers of 8 bytes"):
        Problem.random(2001, 2, "ring", gossip="releases")
    problem = Problem.random(2000, 1000, "ring", gossip="releases", edges_per_round="all")
    with pytest.raises(InvalidArgument, match=r"2,000\^2 agents x 1,000 arms x 1 numbers of 8 bytes are 30 GiB"):
        simulate(problem, GossipUCB(), 10, 1)


def test_a_gpu_is_refused_and_never_chosen():
    problem = Problem.random(3, 3, "path", gossip="releases")
    with pytest.raises(InvalidArgument, match="engine must be 'cpu', 'ray' or 'auto' where releases spread"):
        simulate(problem, GossipUCB(), 10, 1, engine="cuda")
    simulate(problem, GossipUCB(), 10, 1, engine="auto")


@pytest.mark.parametrize("wrong", ["release", None, 1])
def test_another_gossip_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="gossip must be averages or releases"):
        Problem.random(3, 3, "path", gossip=wrong)


def test_a_result_says_what_links_exchanged():
    problems = [Problem.random(3, 3, "path", gossip=gossip) for gossip in ("averages", "releases")]
    found = [simulate(problem, GossipUCB(), 10, 1).experiment["problem"] for problem in problems]
    assert "gossip" not in found[0]
    assert found[1]["gossip"] == "releases"
    with pytest.raises(InvalidArgument, match="of one kind"):
        simulate(problems, GossipUCB(), 10, 2)


# ---------------------------------------------------------------- own pages, files


OWN = """
from dataclasses import dataclass
from typing import NamedTuple
from fedbandit.policies.protocol import ARMS, Count, Fields, Number, Page
from fedbandit.rules.choose import highest

class Terms(NamedTuple):
    share: float

def decide(me, terms, seen, now, draws):
    return highest(seen.theta)

def careful(me, terms, seen, now, draws):
    return highest(seen.theta) if seen.heard[0] > 0.7 else 0

def observe(me, terms, arm, reward, noise):
    me.n[arm] += 1
    me.x_mean[arm] += (reward - me.x_mean[arm]) / me.n[arm]

def published(me, terms, arm):
    return (terms.share * me.x_mean[arm],)

def estimate(me, terms, seen, arm):
    return seen.theta[arm]

def combine(terms, rows, versions):
    total, heard = 0.0, 0
    for j in range(len(versions)):
        if versions[j] > 0:
            total += rows[j][0]
            heard += 1
    RETURN

PAGE = Page(
    knows=Fields(n=Count[ARMS], x_mean=Number[ARMS]), averaged=("theta",), network="gossip", decide=decide,
    observe=observe, published=published, estimate=estimate, radius=None, on_releases=ON_RELEASES,
)

@dataclass(frozen=True)
class Own:
    def page(self):
        return PAGE
    def terms(self, setting):
        return Terms(setting.share)
"""
CAREFUL = '{"averaged": ("theta", "heard"), "columns": ("theta",), "combine": combine, "decide": careful}'
RIGHT = "return total / max(heard, 1), heard / len(versions)"


def own_policy(folder, monkeypatch, name, on_releases=CAREFUL, returned=RIGHT):
    (folder / f"{name}.py").write_text(OWN.replace("ON_RELEASES", on_releases).replace("RETURN", returned))
    monkeypatch.syspath_prepend(folder)
    return import_module(name).Own()


def test_an_own_page_reads_releases_its_own_way(tmp_path, monkeypatch):
    policy = own_policy(tmp_path, monkeypatch, "own_releases")
    check_policy(policy, graph=graph.path(4))
    tape = tape_on(graph.path(4), 5)
    trace = replay(tape, policy)
    heard = trace.gossiped[:, :, 3:]
    assert (trace.arms[(heard[:-1, :, 0] <= 0.7)] == 0).all()
    assert (heard[0] == 0.25).all()
    assert (heard[-1] == 1.0).all()


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("own_short", {"returned": "return (total,)"}, "combine returns .*one number for each of theta, heard"),
        ("own_far", {"returned": "return rows[9][0], 0.0"}, "combine reads rows.9., beyond its row"),
        ("own_other", {"on_releases": '{"knows": None}'}, "on_releases must be a dict of other fields"),
        ("own_columns", {"on_releases": '{"columns": ("x",)}'}, "columns stand without combine"),
    ],
)
def test_wrong_pages_for_releases_are_refused_in_words(tmp_path, monkeypatch, name, changes, words):
    policy = own_policy(tmp_path, monkeypatch, name, **changes)
    with pytest.raises(WrongPage, match=words):
        simulate(Problem.random(3, 3, "path", gossip="releases"), policy, 20, 1)


def test_a_page_made_from_another_keeps_its_own_functions():
    """A page with another ``decide`` has it where releases spread, too."""
    page = FedBatch(1.0).page()._replace(decide=GossipUCB().page().decide)
    assert page_on(page, "releases").decide is page.decide
    assert page_on(page, "releases").combine is not None
    assert page_on(page, "averages") is page


def test_experiment_files_sweep_over_gossip(tmp_path):
    (tmp_path / "it.toml").write_text(
        'graph = "path:3"\nhorizon = 100\ntrials = 2\n[problem]\nrewards = "bernoulli"\nnum_arms = 3\n'
        'gossip = ["averages", "releases"]\n[[policies]]\nkind = "fed_batch"\nepsilon = 1.0\n'
    )
    found = read_sweep(tmp_path / "it.toml")
    assert [each.problem.gossip for each in found] == ["averages", "releases"]
    assert [each.swept for each in found] == [{"problem.gossip": "averages"}, {"problem.gossip": "releases"}]
    (tmp_path / "it.toml").write_text((tmp_path / "it.toml").read_text().replace('["averages", "releases"]', '"all"'))
    with pytest.raises(ExperimentError, match="gossip must be averages or releases"):
        read_sweep(tmp_path / "it.toml")
