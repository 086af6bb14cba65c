"""Whose average counts, and sites of very different size: each test is a sentence of docs/fedbatch.md or docs/agent.md.

Statistical tests have fixed seeds; each states the chance that it fails although the sentence is true.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import literal_batch
from fedbandit import FedBatch, FedUCB, GossipUCB, InvalidArgument, LocalUCB, Problem, Tape, replay, simulate
from fedbandit.agent.core.answer import Standing, holdout
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.federation import DAY, Federation
from fedbandit.agent.core.notices import Note
from fedbandit.engine.layout import new_population, no_tape, setting_of, with_own_scratch, world_of
from fedbandit.experiments.experiment import ExperimentError, read_experiment, read_sweep
from fedbandit.rules.batch import scheduled_variance
from fedbandit.simulation.run import compiled_policy
from fedbandit.testing.memory_network import MemoryNetwork
from fedbandit.world import graph, hospital

GAP = np.tile([0.525, 0.475], (3, 1))
TERMS = Federation("test", ("a", "b"), 0.0, 1.0, FedBatch(1.0, first_batch=2), max_agents=3)


# ---------------------------------------------------------------- the problem


def test_where_patients_count_the_best_arm_is_that_of_the_average_over_them():
    means = [[0.9, 0.1], [0.1, 0.8], [0.1, 0.8]]
    assert Problem.bernoulli(means, "complete:3", rates=[1, 0.1, 0.1]).best_arm == 1
    by_patients = Problem.bernoulli(means, "complete:3", rates=[1, 0.1, 0.1], counts="patients")
    assert by_patients.best_arm == 0
    np.testing.assert_allclose(by_patients.weights, np.array([1, 0.1, 0.1]) / 1.2)
    np.testing.assert_allclose(by_patients.gaps, [0, (0.9 + 0.02) / 1.2 - (0.1 + 0.16) / 1.2])


def test_in_step_patients_count_as_sites_do():
    problem = Problem.random(4, 3, "path", counts="patients")
    np.testing.assert_array_equal(problem.weights, [0.25] * 4)


def test_the_others_take_it_too():
    def certain(bits, mean):
        return mean

    options = {"rates": [1, 1, 0.5], "counts": "patients"}
    samples = [[[0.0, 1.0], [0.0]]] * 3
    for problem in (
        Problem.empirical(samples, "path:3", **options),
        Problem.own(certain, GAP, "path:3", variance=1.0, **options),
        Problem.drifting(GAP, 1 - GAP, "path:3", (1, 5), "bernoulli", **options),
        hospital.problem(**options),
    ):
        assert problem.weights[2] == pytest.approx(0.2)


@pytest.mark.parametrize("build", ["gaussian", "bernoulli", "beta", "student_t"])
def test_every_constructor_takes_it(build):
    assert getattr(Problem, build)(GAP, "path:3", rates=[1, 1, 0.5], counts="patients").weights[2] == 0.2
    with pytest.raises(InvalidArgument, match="counts must be sites or patients, not 'patient'"):
        getattr(Problem, build)(GAP, "path:3", counts="patient")


def test_weights_follow_from_the_rates():
    with pytest.raises(InvalidArgument, match="weights must be left out where patients count"):
        Problem.bernoulli(GAP, "path:3", rates=[1, 1, 0.5], weights=[0.2, 0.4, 0.4], counts="patients")
    with pytest.raises(InvalidArgument, match="weights must be left out where patients count"):
        Problem.bernoulli(GAP, "path:3", weights=[0.2, 0.4, 0.4], counts="patients")
    changing = Problem.changing([(0, GAP), (10, 1 - GAP)], "path:3", "bernoulli", rates=[1, 1, 0.5], counts="patients")
    assert [period.best_arm for _, period in changing.periods] == [0, 1]


def test_an_experiment_file_has_it(tmp_path):
    text = """
        graph = "path:3"
        horizon = 20
        trials = 1
        [problem]
        rewards = "bernoulli"
        num_arms = 2
        rates = [1, 1, 0.1]
        counts = {}
        [[policies]]
        kind = "fed_batch"
        epsilon = 1.0
    """
    (tmp_path / "one.toml").write_text(text.format('"patients"'))
    assert read_experiment(tmp_path / "one.toml").problem.counts == "patients"
    (tmp_path / "two.toml").write_text(text.format('["patients", "sites"]'))
    assert [it.problem.counts for it in read_sweep(tmp_path / "two.toml")] == ["patients", "sites"]
    (tmp_path / "wrong.toml").write_text(text.format('"people"'))
    with pytest.raises(ExperimentError, match="counts must be sites or patients"):
        read_experiment(tmp_path / "wrong.toml")


# ---------------------------------------------------------------- the algorithm, word for word


GRAPHS = st.one_of(st.integers(3, 5).map(graph.path), st.just(graph.star(4)))


@given(
    st.builds(
        Tape.random, GRAPHS, st.just(3), st.integers(1, 150), st.integers(0, 2**31), reward_range=st.just((-0.5, 1.5))
    ),
    st.sampled_from(["ucb", "thompson"]),
    st.sampled_from([1, 3, 8]),
)
@settings(max_examples=40)
def test_the_simulator_is_the_algorithm_word_for_word(tape, index, first):
    """Half the weight of the best-known arm suffices, and the share of all patients stands for 1 / N."""
    tape = replace(tape, counts="patients")
    expected = literal_batch.fed_batch(tape, 4.0, first, 1.25, index, patients=True)
    trace = replay(tape, FedBatch(4.0, index=index, first_batch=first))
    np.testing.assert_array_equal(trace.arms, expected["arms"])
    np.testing.assert_allclose(trace.gossiped[:, :, :3], expected["value"], atol=1e-9)
    np.testing.assert_allclose(trace.gossiped[:, :, 3:], expected["weight"], atol=1e-12)


def test_in_the_simulator_a_site_weighs_as_many_patients_as_it_had_by_its_last_release():
    """Values and weights sum to those of all sites at any time, though all arms move with a weight."""
    rates = [1.0, 0.3, 0.05, 0.6]
    problem = Problem.random(4, 3, "path", 3, "bernoulli", rates=rates, counts="patients")
    policy = FedBatch(1.0)
    plan, population = compiled_policy(policy, problem, 4000), None
    population = new_population(plan.page, plan.terms, 3)
    links, theta, last, earlier = with_own_scratch(plan.links[0][1]), np.zeros((4, 3)), -1, np.full(4, -1.0)
    for t in (50, 500, 4000):
        world, rest = world_of(problem), (no_tape(), theta, problem.arm_means, np.zeros(4))
        plan.play_rounds(last + 1, t, np.uint64(3), np.uint64(0), population, world, links, *rest)
        agents, last = population.agents, t
        assert (agents["share"] != earlier)[1:].all()  # they have released since, and are measured again
        earlier, share = agents["share"].copy(), agents["share"][:, None] * (agents["releases"] > 0)
        np.testing.assert_allclose(agents["weight"].sum(axis=0), share.sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(agents["value"].sum(axis=0), (share * agents["x_mean"]).sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(agents["share"], rates, rtol=0.25)  # the last one is the rate to 4 standard errors


@pytest.mark.slow
@pytest.mark.parametrize("index", ["kl", "ucb"])
def test_every_index_learns_with_a_tiny_site(index):
    problem = Problem.bernoulli(GAP, "complete:3", rates=[1, 1, 0.001], counts="patients")
    result = simulate(problem, FedBatch(1.0, index=index), horizon=20_000, trials=5, seed=2, checkpoints=[20_000])
    assert result.dataset.regret.values[..., -1].max() < 250  # uniform play: 500


def test_a_tiny_site_misleads_nobody_where_patients_count():
    """26 of 100 trials were linear where sites count alike: no fast site may lose half of what uniform play loses.

    False alarm: the mean of 40 trials is 35, its standard error 4; a bound of 100 is 16 of them away.
    """
    policies = {"FedBatch": FedBatch(1.0), "UCB1": LocalUCB()}

    def losses(counts):
        problem = Problem.bernoulli(GAP, "complete:3", rates=[1, 1, 0.001], counts=counts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = simulate(problem, policies, horizon=100_000, trials=40, seed=5, checkpoints=[100_000])
        return result.dataset.regret.values[:, :, :2, -1].mean(axis=2)

    batch, ucb1 = losses("patients")
    assert batch.mean() < 100 < ucb1.mean()
    assert batch.max() < 1250
    assert losses("sites")[0].max() > 2000, "the instance is no longer hard: the test shows nothing"


# ---------------------------------------------------------------- the term of the federation


def test_patients_count_by_default_and_sites_where_nobody_measures_rates():
    assert TERMS.counted == "patients" == TERMS.terms()["counts"]
    assert replace(TERMS, counts="patients") == TERMS
    for policy in (GossipUCB(), FedUCB(1.0, horizon=100)):
        terms = replace(TERMS, policy=policy)
        assert terms.counted == "sites" == terms.terms()["counts"]
        with pytest.raises(InvalidArgument, match="counts must be sites for"):
            replace(TERMS, policy=policy, counts="patients")
    with pytest.raises(InvalidArgument, match="counts must be sites or patients"):
        replace(TERMS, counts="beds")


def test_sites_that_count_differently_are_of_different_federations():
    other = replace(TERMS, counts="sites")
    assert TERMS.digest() != other.digest()
    assert TERMS.difference(other.terms()) == [
        'counts: "patients" here, "sites" there',
        "largest_share: 0.5 here, absent there",
    ]


# ---------------------------------------------------------------- live sites


def network(names=("here", "there"), terms=TERMS):
    """Sites on a path, without noise, that have linked."""
    links = [(names[k], names[k + 1]) for k in range(len(names) - 1)]
    found = MemoryNetwork(terms, links, noise=lambda epsilon, count: [0] * count, spreads=True)
    pass_on(found)
    return found


def pass_on(it):
    for link in it.links:
        it.exchange(*link)
    it.run()


def pull(it, name, at, rewards=(0.75, 0.25)):
    it.now = at
    decision = it.decide(name, SiteDraws((0.0, 0.0), 0.5))
    it.report(name, decision.id, rewards[decision.arm])
    return decision.arm


def grow(it, name, decisions, days):
    for t in range(decisions):
        pull(it, name, t * days * DAY / (decisions - 1))
    it.run()


def rows(site):
    """Of the first arm, by name: mean, variance and weight as they count."""
    return dict(zip(site.board.counted(), site.board.rows(TERMS.arms[0])[0], strict=True))


def test_a_site_counts_by_its_decisions_per_day():
    it = network()
    grow(it, "here", 402, 10)
    grow(it, "there", 42, 10)
    big, small = it.site("here"), it.site("there")
    assert big.per_day == pytest.approx(40, rel=0.1)
    assert small.per_day == pytest.approx(4, rel=0.3)
    assert rows(big) == rows(small)
    assert {name: row[2] * DAY for name, row in rows(big).items()} == pytest.approx(
        {"here": small.per_day, "there": small.per_day}
    ), "of two sites neither has more than half of all patients, the largest share"
    assert small.theta == big.theta
    assert small.weights == (1.0, 0.5), "the small one has not released the second arm"


def test_a_share_of_all_patients_is_cut_for_everybody_alike():
    it = network(("big", "a", "b", "c"), replace(TERMS, largest_share=0.4))
    grow(it, "big", 802, 10)
    for name in "abc":
        grow(it, name, 102, 10)
    for name in it.names:
        weights = {site: row[2] for site, row in rows(it.site(name)).items()}
        assert weights["big"] / sum(weights.values()) == pytest.approx(0.4)
        assert weights == {site: row[2] for site, row in rows(it.site("big")).items()}
        (said,) = [x for x in it.site(name).warnings() if "largest_share" in x]
        assert isinstance(said, Note)
        assert "of all patients, as it says, and counts as 40% (largest_share)" in said
        assert it.site(name).oddities(0.0) == {}


def test_largest_share_is_a_term_of_those_who_count_patients():
    assert TERMS.terms()["largest_share"] == 0.5
    assert "largest_share" not in replace(TERMS, counts="sites").terms()
    assert TERMS.difference(replace(TERMS, largest_share=0.3).terms()) == ["largest_share: 0.5 here, 0.3 there"]
    for wrong in (0.0, -0.1, 1.1, "half"):
        with pytest.raises(InvalidArgument, match="largest_share"):
            replace(TERMS, largest_share=wrong)
    with pytest.raises(InvalidArgument, match="left out where sites count"):
        replace(TERMS, counts="sites", largest_share=0.3)


def test_a_burst_on_the_first_day_counts_as_a_day():
    it = network()
    for _ in range(50):
        pull(it, "here", 100.0)
    assert it.site("here").per_day == pytest.approx(48, rel=0.2)


def test_a_wrong_clock_does_not_cost_a_site_its_weight():
    """It stood at 1970 for the first decision, or at 2100 for one: that counts as a week."""
    today = 20_000 * DAY
    for jumps in ({0: 0.0}, {50: 50_000 * DAY}):
        it = network()
        for t in range(2000):
            later = 30_000 * DAY if max(jumps) < t and 50 in jumps else 0.0
            pull(it, "here", jumps.get(t, today + t * DAY / 100 + later))
        assert it.site("here").per_day == pytest.approx(2000 / 27, rel=0.2)


def a_federation_with_a_newcomer(dies):
    """Two small sites know that arm 0 is better; on day 60 a large one opens; which arms the small ones then play."""
    terms = Federation("f", ("good", "bad"), 0.0, 1.0, FedBatch(1.0), reward_window=10 * DAY, max_agents=3)
    links, source = [("a", "b"), ("b", "large"), ("a", "large")], np.random.default_rng(100)
    network, arms = MemoryNetwork(terms, links, spreads=True), []
    network.crash("large")
    for day in range(120):
        if day == 60:
            network.lose_disk("large")
            network.restart("large")
        if day == 72 and dies:
            network.crash("large")
        for name, decisions in (("a", 10), ("b", 10), ("large", 30)):
            for moment in np.sort(source.random(decisions)):
                network.now = max(network.now, (day + moment) * DAY)
                if name in network.running:
                    decision = network.decide(name)
                    network.report(name, decision.id, float(source.random() < (0.8, 0.3)[decision.arm]))
                    if name != "large" and day >= 72:
                        arms.append(decision.arm)
        for link in links * 5:
            if set(link) <= {*network.running}:
                network.exchange(*link)
                network.run()
    return arms


@pytest.mark.parametrize("dies", [False, True], ids=["stays", "leaves in the middle"])
def test_a_large_site_that_opens_late_makes_nobody_forget(dies):
    assert np.mean(a_federation_with_a_newcomer(dies)) < 0.05


def test_before_its_first_release_a_site_counts_for_nothing_and_follows_the_network():
    it = network()
    grow(it, "here", 402, 10)
    new = it.site("there")
    assert new.per_day is None
    assert rows(new).get("there", (0.0, 0.0, 0.0)) == (0.0, 0.0, 0.0)
    assert None not in new.theta
    assert pull(it, "there", 10 * DAY, (0.0, 0.0)) == 0, "it explored what others know"


def test_a_restart_keeps_the_weight():
    it = network()
    grow(it, "here", 402, 10)
    before = it.site("here")
    said = before.theta, before.per_day, rows(before)
    it.restart("here")
    pass_on(it)
    again = it.site("here")
    assert (again.theta, again.per_day, rows(again)) == said


# ---------------------------------------------------------------- who leaves the answer open


def standing(site, *released, weight=1.0):
    """What counts of a site after so many rewards of each arm, by the schedule of batches."""
    page = TERMS.page_terms
    schedule = page.first_batch, page.growth, page.most_variance, page.noise_variance
    return Standing(site, weight, [scheduled_variance(n, *schedule) if n else 0.0 for n in released], released)


def test_the_site_that_alone_leaves_the_answer_open_is_named():
    """With the two large sites the lead of 0.05 is settled; with the small one it is not."""
    terms = TERMS.page_terms
    theta = [0.55 * 2**16, 0.5 * 2**16]
    large = [standing("a", 10**6, 10**6), standing("b", 10**6, 10**6)]
    found = holdout([*large, standing("clinic-7", 10**6, 12)], theta, terms)
    assert (found.site, found.arm, found.released) == ("clinic-7", 1, 12)
    assert holdout([*large, standing("clinic-7", 10**6, 10**6)], theta, terms) is None, "settled"
    assert holdout([standing(name, 12, 12) for name in "abc"], theta, terms) is None, "all leave it open"
    assert holdout([*large, standing("clinic-7", 12, 12, weight=1e-3)], theta, terms) is None, "it hardly counts"
    assert holdout([*large, standing("clinic-7", 12, 0)], [theta[0], None], terms) is None, "an arm is unknown"


def a_small_clinic():
    """On a path, the far end has never talked to the clinic, which has released two rewards of each arm."""
    terms = replace(TERMS, counts="sites", policy=FedBatch(8.0, first_batch=2))
    it = network(("clinic-7", "middle", "far"), terms)
    for t in range(2000):
        for name in ("middle", "far"):
            decision = it.decide(name, SiteDraws(((t % 2) * 9.0, 0.0), 0.5))  # both arms often
            it.report(name, decision.id, (0.45, 0.55)[decision.arm])
    while 0 in it.site("clinic-7").releases:
        pull(it, "clinic-7", 0.0, (0.45, 0.55))
    it.run()
    return it


def test_every_site_names_it_whoever_it_talks_to():
    """Also after a restart; and nobody once it does not count."""
    it = a_small_clinic()
    said = "clinic-7 has released 2 outcomes of"
    for name in it.names:
        warnings = it.site(name).warnings()
        assert any(said in text and "the main reason why the answer is not surer" in text for text in warnings), name
    it.restart("far")
    pass_on(it)
    assert any(said in text for text in it.site("far").warnings())
    it.exclude("far", "clinic-7")
    assert not any(said in text for text in it.site("far").warnings())
    assert any(said in text for text in it.site("middle").warnings())


def test_what_others_do_not_know_counts():
    """The index of a large site is sure, since its own pulls can settle nothing more; what people are told is not.

    A third of the mean is that of two rewards: its standard deviation is at least sqrt(0.25 / 2) / 3 = 0.12, not 0.01.
    """
    it = a_small_clinic()
    many = it.site("middle")
    assert max(many.radius) < 0.02
    assert 0.12 < min(many.errors) <= max(many.errors) < 0.2
    assert many.answer.chance < 0.8
    assert not many.answer.settled
    assert it.site("clinic-7").errors == many.errors == it.site("far").errors


def test_settings_say_what_counts():
    problem = Problem.bernoulli(GAP, "path:3", rates=[1, 1, 0.5], counts="patients")
    assert setting_of(problem, 10).counts == "patients"
