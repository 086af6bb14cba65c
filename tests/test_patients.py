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
from fedbandit.agent.core import standings
from fedbandit.agent.core.answer import holdout, widening
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import MemoryNetwork
from fedbandit.agent.core.messages import Offer
from fedbandit.agent.core.player import ENOUGH_EXCHANGES, LEAST_ELAPSED
from fedbandit.agent.core.records import Known, Numbering, Stored
from fedbandit.agent.core.site import Site, SiteDraws
from fedbandit.agent.core.standings import MOST_NUMBERS, Standing, Standings
from fedbandit.engine.layout import new_population, no_tape, setting_of, with_own_scratch, world_of
from fedbandit.experiments.experiment import ExperimentError, read_experiment, read_sweep
from fedbandit.rules.batch import batch_size, release_variance, scheduled_variance
from fedbandit.simulation.run import compiled_policy
from fedbandit.world import graph, hospital
from sites_on_tape import SitesOnTape, tape_on_the_grid

DAY = LEAST_ELAPSED
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


@pytest.mark.parametrize("index", ["thompson", "ucb"])
def test_live_sites_are_the_algorithm_word_for_word(index):
    """Sites that decide at different rates, eight rounds a day: the same arms; values and weights are per second."""
    horizon, low, high = 500, 0.0, 1.0
    tape, noise = tape_on_the_grid(graph.path(4), 3, horizon, 7, low, high, 4.0)
    acts = np.random.default_rng(5).random((horizon, 4)) < [1.0, 0.5, 0.1, 0.9]
    policy = FedBatch(4.0, index=index, first_batch=5)
    expected = literal_batch.fed_batch(tape, 4.0, 5, 1.25, index, patients=True, acts=acts)
    live = SitesOnTape(tape, noise, policy, counts="patients")
    for t in range(1, horizon + 1):
        live.network.now = t * DAY / 8
        arms = live.play(t, lambda t, i: acts[t - 1, i])
        assert [arms.get(i, -1) for i in range(4)] == [*expected["arms"][t - 1]], t
        gossiped = np.array([site.gossiped for site in live.sites]) * DAY / 8
        np.testing.assert_allclose(gossiped[:, :3], expected["value"][t], atol=1e-9)
        np.testing.assert_allclose(gossiped[:, 3:], expected["weight"][t], atol=1e-9)
    assert all(len({*expected["arms"][:, i]} - {-1}) == 3 for i in range(4))


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
    assert TERMS.difference(other.terms()) == ['counts: "patients" here, "sites" there']


# ---------------------------------------------------------------- a live site


def silent(epsilon, count):
    return [0] * count


def new_site(name="here", neighbours=("there",), terms=TERMS, stored=None):
    site = Site(name, terms, stored or Stored(Numbering(1, 0), 1), silent)
    for neighbour in neighbours:
        site.join(neighbour)
    return site


def pull(site, at, rewards=(0.75, 0.25)):
    decision = site.decide(at, SiteDraws((0.0,) * site.terms.num_arms, 0.5)).result
    site.report(decision.id, rewards[decision.arm])
    return decision.arm


def exchange(one, other):
    one.receive_reply(other.receive_offer(one.offer(other.name).result).result)


def grown(name, decisions, days, neighbours=("there",)):
    site = new_site(name, neighbours)
    for t in range(decisions):
        pull(site, t * days * DAY / (decisions - 1))
    return site


def test_a_site_counts_by_its_decisions_per_day():
    big, small = grown("here", 402, 10), grown("there", 42, 10, ("here",))
    assert big.per_day == pytest.approx(40, rel=0.1)
    assert small.per_day == pytest.approx(4, rel=0.3)
    for _ in range(2):
        exchange(big, small)
    own = np.array([site.own for site in (big, small)])
    np.testing.assert_allclose(big.gossiped, own.mean(axis=0), rtol=1e-12)
    expected = own[:, :2].sum(axis=0) / own[:, 2:].sum(axis=0)
    np.testing.assert_allclose(small.theta, expected, rtol=1e-12)
    np.testing.assert_allclose(small.weights, [1.0, 1.0], rtol=0.3)


def test_a_burst_on_the_first_day_counts_as_a_day():
    site = new_site()
    for _ in range(50):
        pull(site, 100.0)
    assert site.per_day == pytest.approx(48, rel=0.2)


def test_a_wrong_clock_does_not_cost_a_site_its_weight():
    """It stood at 1970 for the first decision, or at 2100 for one: that counts as a week."""
    today = 20_000 * DAY
    for jumps in ({0: 0.0}, {50: 50_000 * DAY}):
        site = new_site()
        for t in range(2000):
            pull(site, jumps.get(t, today + t * DAY / 100 + (30_000 * DAY if max(jumps) < t and 50 in jumps else 0.0)))
        assert site.per_day == pytest.approx(2000 / 27, rel=0.2)
        again = new_site(stored=site.stored)
        pull(again, today + 60_000 * DAY)
        assert again._elapsed == pytest.approx(site._elapsed + 7 * DAY), "also in a restart"


def a_federation_with_a_newcomer(dies):
    """Two small sites know that arm 0 is better; on day 60 a large one opens; which arms the small ones then play."""
    terms = Federation("f", ("good", "bad"), 0.0, 1.0, FedBatch(1.0), reward_window=10 * DAY, max_agents=3)
    links, source = [("a", "b"), ("b", "large"), ("a", "large")], np.random.default_rng(100)
    network, arms = MemoryNetwork(terms, links), []
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


def test_a_weight_of_nearly_nothing_makes_no_arm_known():
    """A neighbour that sends 1 with a weight of 1e-200 would make an estimate of 1e200, and its square overflow."""
    site = new_site()
    row = (1.0, 0.5, 1e-200, 1e-200)
    ends = "there", "here", 1, 0, TERMS.digest()
    offer = Offer(*ends, tuple(-x for x in row), (1, "there"), row, standings=(standing("there", 12, 12),))
    site.receive_offer(offer)
    assert site.theta == (None, None)
    assert site.warnings() == ()


def test_forged_standings_take_no_time(monkeypatch):
    """Counts of 10^12 took 13 s at every look at the state: no schedule is followed beyond what is enough."""
    asked = []
    follow = standings._of_schedule
    monkeypatch.setattr(standings, "_of_schedule", lambda *given: asked.append(given[0]) or follow(*given))
    forged = [standing(f"s{i}", 10**12 - i, 10**12 - 2 * i) for i in range(3)]
    holdout(forged, [0.5, 0.4], TERMS.page_terms)
    assert asked
    assert max(asked) <= standings.ENOUGH


def test_before_its_first_release_a_site_counts_for_nothing_and_follows_the_network():
    big, new = grown("here", 402, 10), new_site("there", ("here",))
    assert (new.per_day, new.own) == (None, (0.0,) * 4)
    exchange(big, new)
    assert None not in new.theta
    assert [pull(new, 0.0, (0.0, 0.0))] == [0], "it explored what others know"


def test_an_arm_with_less_than_half_the_weight_of_the_best_known_is_unknown_unless_it_was_released_here():
    new, old = new_site(), grown("here", 402, 10)
    for share, known in ((0.4, False), (0.6, True)):
        for site in (new, old):
            site._player.look((0.5, 0.5 * share, 1.0, share), range(2))
        assert (new.theta[1] is not None) == known
        assert old.theta[1] == pytest.approx(0.5)


def test_a_restart_keeps_the_weight():
    site = grown("here", 402, 10)
    again = new_site(stored=site.stored)
    assert (again.own, again.gossiped, again.theta, again.per_day) == (
        site.own,
        site.gossiped,
        site.theta,
        site.per_day,
    )
    assert [pull(again, 11 * DAY) for _ in range(40)] == [pull(site, 11 * DAY) for _ in range(40)]
    assert again.own == site.own


def test_the_weight_is_on_disk_with_the_release_that_moved_it():
    site = new_site()
    for t in range(3):
        pull(site, t * DAY)
    decision = site.decide(3 * DAY, SiteDraws((0.0, 0.0), 0.5)).result
    records = site.report(decision.id, 0.5).records
    weights = [record.fields for record in records if isinstance(record, Known) and record.arm == -1]
    assert weights == [{"share": 2 / (3 * DAY)}]


# ---------------------------------------------------------------- who leaves the answer open


def standing(site, *released, weight=1.0, version=1, incarnation=1):
    return Standing(site, incarnation, version, weight, released)


def test_a_schedule_tells_the_variance():
    sizes, n = [], 0
    while n < 100:
        sizes.append(batch_size(n, 12, 1.25))
        n += sizes[-1]
    expected = 1 / sum(1 / release_variance(size, 0.25, 2.0) for size in sizes)
    assert scheduled_variance(n, 12, 1.25, 0.25, 2.0) == pytest.approx(expected)


def test_the_site_that_alone_leaves_the_answer_open_is_named():
    """With the two large sites the lead of 0.05 is settled; with the small one it is not."""
    terms = replace(TERMS, counts="sites").page_terms
    theta = [0.55 * 2**16, 0.5 * 2**16]
    large = [standing("a", 10**6, 10**6), standing("b", 10**6, 10**6)]
    found = holdout([*large, standing("clinic-7", 10**6, 12)], theta, terms)
    assert (found.site, found.arm, found.released) == ("clinic-7", 1, 12)
    assert holdout([*large, standing("clinic-7", 10**6, 10**6)], theta, terms) is None, "settled"
    assert holdout([standing(name, 12, 12) for name in "abc"], theta, terms) is None, "all leave it open"
    assert holdout([*large, standing("clinic-7", 12, 12, weight=1e-3)], theta, terms) is None, "it hardly counts"
    assert holdout([*large, standing("clinic-7", 12, 0)], [theta[0], None], terms) is None, "an arm is unknown"


def test_every_site_says_so_whoever_it_talks_to():
    """On a path, the far end has never talked to the small one. After a restart one exchange tells it again."""
    terms = replace(TERMS, counts="sites", policy=FedBatch(8.0, first_batch=2))
    ends = {"clinic-7": ("middle",), "middle": ("clinic-7", "far"), "far": ("middle",)}
    sites = {name: new_site(name, neighbours, terms) for name, neighbours in ends.items()}
    for t in range(2000):
        for name in ("middle", "far"):
            decision = sites[name].decide(0.0, SiteDraws(((t % 2) * 9.0, 0.0), 0.5)).result  # both arms often
            sites[name].report(decision.id, (0.45, 0.55)[decision.arm])
    while 0 in sites["clinic-7"].releases:
        pull(sites["clinic-7"], 0.0, (0.45, 0.55))
    for _ in range(30):
        exchange(sites["clinic-7"], sites["middle"])
        exchange(sites["middle"], sites["far"])
    said = "clinic-7 has released 2 rewards of"
    for site in sites.values():
        assert any(said in it and "the main reason why the answer is not surer" in it for it in site.warnings()), (
            site.name
        )
    again = sites["far"] = new_site("far", (), terms, sites["far"].stored)
    assert not any(said in warning for warning in again.warnings())
    exchange(sites["middle"], again)
    assert any(said in warning for warning in again.warnings())
    sites["middle"].leave("clinic-7")
    for _ in range(2):  # what the far end has heard before is not believed any more
        exchange(again, sites["middle"])
    for site in (sites["middle"], again):
        assert not any(said in warning for warning in site.warnings()), site.name


def test_the_newest_standing_counts_and_nobody_tells_a_site_its_own():
    heard = Standings("here", 4, 2)
    heard.receive(
        "there", [standing("there", 5, 5, version=2), standing("there", 1, 1, version=1), standing("here", 9, 9)]
    )
    heard.receive("there", [standing("far", 1, 1, incarnation=2), standing("there", 7, 7, 7, version=9)])
    mine = standing("here", 0, 0)
    assert heard.all(mine) == [mine, standing("there", 5, 5, version=2), standing("far", 1, 1, incarnation=2)]


def test_invented_sites_take_the_room_of_who_tells_of_them():
    """Nobody else's: honest sites are heard of, and there are never more than each neighbour may tell of."""
    heard, mine = Standings("here", 4, 2), standing("here", 0, 0)
    for i in range(20):
        heard.receive("liar", [standing("liar", 1, 1, version=i), *(standing(f"ghost {i}{k}", 1, 1) for k in range(9))])
    heard.receive("a", [standing("a", 1, 1), standing("b", 1, 1)])
    names = [it.site for it in heard.all(mine)]
    assert {"liar", "a", "b"} <= {*names}
    assert len(names) == 1 + 3 + 2
    assert heard.surplus() == ("liar", 6)
    assert len({it.site for _ in range(3) for it in heard.to_send(mine)}) == 6, "all are told in turn"
    assert len(heard.to_send(mine)) == 4


def test_one_that_alone_tells_of_all_sites_is_named_when_it_tells_of_too_many():
    heard = Standings("here", 4, 2)
    heard.receive("liar", [standing("liar", 1, 1), standing("a", 1, 1), standing("b", 1, 1)])
    assert heard.surplus() is None, "as many as there may be"
    heard.receive("liar", [standing(f"ghost {k}", 1, 1) for k in range(3)])
    assert heard.surplus() == ("liar", 5)


def test_a_site_that_hears_what_it_has_not_said_says_something_newer():
    """So forged standings of other sites, and those from before a restart, are gone as fast as gossip."""
    heard = Standings("here", 3, 2)
    own = heard.state(5, 1.0, (1, 2))
    heard.receive("liar", [standing("here", 9, 9, incarnation=7, version=10**11)])
    again = heard.state(5, 1.0, (1, 2))
    assert (again.incarnation, again.version) > (7, 10**11)
    assert (own.released, again.released) == ((1, 2), (1, 2))
    heard.receive("liar", [again])
    assert heard.state(5, 1.0, (1, 2)) == again, "its own word is no news"


def test_what_a_site_has_not_renewed_is_dropped_and_not_heard_again():
    heard, mine = Standings("here", 3, 2), standing("here", 0, 0)
    ghost = standing("ghost", 1, 1)
    for version in range(3 * standings.STALE + 5):
        heard.receive("a", [standing("a", 1, 1, version=version), ghost])
    assert [it.site for it in heard.all(mine)] == ["here", "a"]
    heard.receive("a", [standing("ghost", 1, 1, version=2)])
    assert len(heard.all(mine)) == 3, "its site is there after all"


def test_who_leaves_takes_along_whom_it_has_told_of():
    heard, mine = Standings("here", 5, 2), standing("here", 0, 0)
    heard.receive("liar", [standing("liar", 1, 1, version=10**12 // 2), standing("ghost", 9, 9), standing("b", 9, 9)])
    heard.receive("a", [standing("a", 2, 2), standing("b", 1, 1, version=2)])
    assert heard.counts((0, 0), 100) == (9, 9)
    heard.forget("liar")
    assert heard.counts((0, 0), 100) == (2, 2)
    weights = {it.site: it.weight for it in heard.to_send(mine)}
    assert weights == {"here": 1.0, "liar": 0.0, "ghost": 0.0, "a": 1.0, "b": 1.0}, "and others hear it"


def test_a_message_has_room_for_some_standings_and_all_are_told_in_turn():
    many = Standings("here", 10_000, 1000)
    many.receive("other", [standing(f"site {i}", *range(1000)) for i in range(100)])
    own = standing("here", *range(1000))
    told = [many.to_send(own) for _ in range(5)]
    assert {len(it) for it in told} == {1 + MOST_NUMBERS // 1000}
    assert len({it.site for message in told for it in message}) == 101


@pytest.mark.parametrize(
    "wrong",
    [
        {"site": ""},
        {"site": "x" * 65},
        {"site": "a\nb"},
        {"incarnation": 0},
        {"version": -1},
        {"weight": float("nan")},
        {"weight": -1.0},
        {"released": (-1,)},
        {"released": (10**13,)},
    ],
)
def test_a_standing_that_no_honest_site_states_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="standing"):
        Standing(**({"site": "s", "incarnation": 1, "version": 1, "weight": 1.0, "released": (1,)} | wrong))


# ---------------------------------------------------------------- gossip that is slower than decisions


def path_of_sites(num_agents, rounds, exchanges_per_round):
    """Sites whose own rewards are sorted along the path: each end is sure of another arm."""
    names = [f"s{i}" for i in range(num_agents)]
    terms = replace(TERMS, max_agents=num_agents)
    ends = [[*names[max(i - 1, 0) : i], *names[i + 1 : i + 2]] for i in range(num_agents)]
    sites = [new_site(name, neighbours, terms) for name, neighbours in zip(names, ends, strict=True)]
    source = np.random.default_rng(3)
    for t in range(rounds):
        for i, site in enumerate(sites):
            decision = site.decide(t * DAY, SiteDraws((*source.standard_normal(2),), 0.5)).result
            bias = 0.6 * (i / (num_agents - 1) - 0.5)
            mean = 0.55 + bias if decision.arm else 0.45 - bias
            site.report(decision.id, float(source.random() < mean))
        for _ in range(source.poisson(exchanges_per_round)):
            i = source.integers(num_agents - 1)
            exchange(sites[i], sites[i + 1])
    return [any("times as many exchanges would do" in it for it in site.warnings()) for site in sites]


@pytest.mark.slow
def test_a_site_says_when_gossip_is_slower_than_decisions():
    """Where every link is used in every round nobody says so; where one of them in every third round, most do."""
    assert np.mean(path_of_sites(16, 1600, 0.33)) > 0.5
    assert not any(path_of_sites(16, 500, 15))


def test_the_warning_names_the_exchange_rate_that_would_do():
    site = grown("here", 402, 10)
    player, row = site._player, list(site.gossiped)
    for i in range(2 * ENOUGH_EXCHANGES):
        moved = row.copy()
        moved[0] += (-1) ** i * 0.05 * row[2]
        player.exchange(moved)
    warning = next(warning for warning in site.warnings() if "exchange" in warning)
    assert f"About {5 * player.unrest:.0f} times as many exchanges would do" in warning


def test_a_site_that_follows_the_network_does_not_blame_gossip():
    """Its own spread is next to nothing before its first release: what moves it is measured by an average site's."""
    big, new = grown("here", 402, 10), new_site("there", ("here",))
    for t in range(2 * ENOUGH_EXCHANGES):
        pull(big, (10 + t / 10) * DAY)
        exchange(big, new)
    assert new.releases == (0, 0)
    assert not any("exchange" in warning for warning in new.warnings())


def test_settings_say_what_counts():
    problem = Problem.bernoulli(GAP, "path:3", rates=[1, 1, 0.5], counts="patients")
    assert setting_of(problem, 10).counts == "patients"


def unequal(terms):
    """A site with 1,000 rewards of each arm and one with 2, after gossip; rewards 0.45 and 0.55 in [0, 1]."""
    few, many = new_site("few", ("many",), terms), new_site("many", ("few",), terms)
    for t in range(2000):
        decision = many.decide(0.0, SiteDraws(((t % 2) * 9.0, 0.0), 0.5)).result
        many.report(decision.id, (0.45, 0.55)[decision.arm])
    while 0 in few.releases:
        pull(few, 0.0, (0.45, 0.55))
    for _ in range(30):
        exchange(few, many)
    return few, many


def test_what_others_do_not_know_counts():
    """The index of a large site is sure, since its own pulls can settle nothing more; what people are told is not.

    Half of the mean is that of two rewards: its standard deviation is at least sqrt(0.25 / 2) / 2 = 0.18, not 0.01.
    """
    few, many = unequal(replace(TERMS, counts="sites", policy=FedBatch(8.0, first_batch=2)))
    assert max(many.radius) < 0.02
    assert 0.17 < min(many.errors) <= max(many.errors) < 0.25
    assert many.answer.chance < 0.8
    assert not many.answer.settled
    assert few.errors == pytest.approx(few.radius), "whoever knows least takes the others for no better"
    assert any("few has released 2 rewards" in warning for warning in many.warnings())


def test_where_all_know_as_much_the_error_is_that_of_the_index():
    rows = [standing(name, 500, 500) for name in "abc"]
    for by_rate in (False, True):
        terms = replace(TERMS, counts="patients" if by_rate else "sites").page_terms
        assert widening(rows, 0, terms) == pytest.approx(1.0)
        assert widening([rows[0], standing("z", 10**6, 10**6)], 0, terms) == 1.0, "claims make nobody surer"
        assert widening([rows[0], standing("z", 0, 0)], 0, terms) > 5.0
