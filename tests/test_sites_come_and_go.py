"""Sites come and go: N is counted by gossip, one that joins uses what the network knows, and one alone learns."""

from dataclasses import replace
from math import sqrt
from random import Random

import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.agent.core.federation import MAX_AGENTS, Federation
from fedbandit.agent.core.memory_network import MemoryNetwork
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.standings import STALE, Standing
from fedbandit.privacy.mechanism import COUNTED, Mechanism, terms_in_steps
from fedbandit.privacy.noise import GRID
from fedbandit.rules.batch import PRIOR_REWARDS, scheduled_variance

ARMS = ("a", "b", "c")
POLICY = FedBatch(2.0, first_batch=3)
TERMS = Federation("test", ARMS, 0.0, 1.0, POLICY, counts="sites")
LIVE = [
    *(FedBatch(1.0, index=index) for index in ("thompson", "ucb", "kl")),
    FedUCB(1.0, horizon=100),
    GossipUCB(),
]
RING = [("0", "1"), ("1", "2"), ("2", "3"), ("3", "0")]


def play(network, names, rounds, seed=1, means=(0.2, 0.8, 0.4)):
    """Decisions and exchanges; the arms that the last of the names chose."""
    random, arms = Random(seed), []  # noqa: S311
    for _ in range(rounds):
        for name in names:
            decision = network.decide(name)
            network.report(name, decision.id, float(random.random() < means[decision.arm]))
        arms.append(decision.arm)
        sweep(network)
    return arms


def sweep(network, times=1):
    for _ in range(times):
        for link in network.links:
            if {*link} <= {*network.running}:
                network.exchange(*link)
                network.run(network.now + 60.0)


def counted(network):
    return {name: network.site(name).num_agents for name in network.running}


# ---------------------------------------------------------------- N


def test_how_many_sites_there_are_is_heard():
    network = MemoryNetwork(TERMS, RING)
    assert counted(network) == dict.fromkeys("0123", 1)
    sweep(network, 3)
    assert counted(network) == dict.fromkeys("0123", 4)
    network.join("4", ["0"])
    sweep(network, 4)
    assert counted(network) == dict.fromkeys("01234", 5)
    assert network.site("2")._player.terms.averaging == 1 / 5
    network.leave("4")
    sweep(network, 6)
    assert counted(network) == dict.fromkeys("0123", 4)
    assert network.site("2")._player.terms.averaging == 1 / 4


@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_one_that_has_released_nothing_counts_too(counts):
    """It holds a share of what is gossiped, and so belongs to N before its first reward."""
    network = MemoryNetwork(replace(TERMS, counts=counts), RING)
    play(network, ("0", "1"), 40)
    assert network.site("2").releases == (0, 0, 0)
    assert counted(network) == dict.fromkeys("0123", 4)


def test_a_dead_site_goes_in_the_end_and_sums_stay_right():
    network = MemoryNetwork(TERMS, RING)
    play(network, "0123", 20)
    network.crash("3")
    sweep(network, 2 * STALE * 4)
    assert counted(network) == dict.fromkeys("012", 3)
    network.restart("3")
    sweep(network, 40)
    assert counted(network) == dict.fromkeys("0123", 4)
    assert network.imbalance() <= 1e-12


def test_a_hub_does_not_lose_its_leaves():
    """It has as many exchanges as all of them together."""
    leaves = [f"{i}" for i in range(1, 31)]
    network = MemoryNetwork(TERMS, [("0", leaf) for leaf in leaves])
    sweep(network, 2)
    for _ in range(STALE + 20):
        sweep(network)
        assert network.site("0").num_agents == 31


def test_after_a_restart_neighbours_count_at_once_and_all_with_the_first_answer():
    network = MemoryNetwork(TERMS, [*RING, ("2", "4")])
    sweep(network, 4)
    network.restart("0")
    assert network.site("0").num_agents == 3
    network.exchange("0", "1")
    network.run()
    assert network.site("0").num_agents == 5


def test_a_liar_that_invents_sites_reaches_the_bound_and_no_further():
    site = Site("here", replace(TERMS, max_agents=8), Stored(Numbering(1, 0), 1))
    site.join("liar")
    invented = [Standing(f"x{i}", 1, 0, 1.0, (10**9,) * 3) for i in range(50)]
    site._standings.receive("liar", invented)
    site._look()
    assert site.num_agents == 8
    site._standings.receive("other", [Standing(f"y{i}", 1, 0, 1.0, (0,) * 3) for i in range(8)])
    assert any("where the terms allow 8" in said for said in site.warnings())


# ---------------------------------------------------------------- terms


def test_one_site_too_many_is_said_and_works():
    network = MemoryNetwork(replace(TERMS, max_agents=3), RING)
    play(network, "0123", 60)
    assert counted(network) == dict.fromkeys("0123", 3)
    assert all("4 sites are known, where the terms allow 3" in str(network.site(n).warnings()) for n in "0123")
    sweep(network, 60)
    assert network.imbalance() <= 1e-12
    assert network.disagreement() < 1e-6


def test_the_most_sites_are_a_term():
    assert TERMS.terms()["max_agents"] == TERMS.most_agents == MAX_AGENTS
    assert replace(TERMS, max_agents=MAX_AGENTS) == TERMS
    assert replace(TERMS, max_agents=9).digest() != TERMS.digest()


# ---------------------------------------------------------------- privacy does not depend on N


@pytest.mark.parametrize("policy", LIVE, ids=lambda policy: policy.label)
@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_only_what_is_named_depends_on_how_many_there_are(policy, counts):
    if counts == "patients" and not isinstance(policy, FedBatch):
        return
    one = terms_in_steps(policy, 1, 3, 0.0, 1.0, counts)
    for num_agents in range(2, 101):
        terms = terms_in_steps(policy, num_agents, 3, 0.0, 1.0, counts)
        differ = {name for name in terms._fields if getattr(terms, name) != getattr(one, name)}
        assert differ <= {*COUNTED, "first_batch"}
        counted = Mechanism(policy, 3, 3, 0.0, 1.0, counts=counts)
        before = counted.terms
        counted.count(num_agents)
        assert {name for name in before._fields if getattr(before, name) != getattr(counted.terms, name)} <= {*COUNTED}
    assert not {*COUNTED} & {"epsilon", "epsilon_per_release", "noise_scale", "noise_variance", "first_batch", "growth"}
    assert one.share == (0.0 if counts == "patients" else 1.0)


@pytest.mark.parametrize("policy", LIVE, ids=lambda policy: policy.label)
def test_sites_that_come_and_go_change_no_release(policy):
    """The same intervals, sums and rows on disk, whatever N is meanwhile."""

    def lived(numbers):
        random = Random(3)  # noqa: S311
        mechanism = Mechanism(policy, 5, 2, 0.0, 1.0, lambda epsilon, count: [round(GRID / epsilon)] * count)
        seen = []
        for n in range(90):
            if numbers:
                mechanism.count(numbers[n % len(numbers)])
            completed = mechanism.take(n % 2, random.random())
            published = mechanism.page.published(mechanism.me, mechanism.terms, n % 2)
            seen.append((completed, published, mechanism.kept(n % 2)))
        return seen, mechanism

    (still, _), (moving, mechanism) = lived(()), lived((1, 100, 7))
    assert still == moving
    mechanism.count(5)
    fixed = Mechanism(policy, 5, 2, 0.0, 1.0)
    fixed.restore({k: mechanism.kept(k) for k in range(2)}, mechanism.ledger.marks if mechanism.ledger else {})
    for name in ("deviation", "spread", "sampling", "noise"):
        if name in policy.page().knows and policy.page().knows[name].is_kept:
            assert getattr(mechanism.me, name) == getattr(fixed.me, name)


@pytest.mark.parametrize("policy", LIVE, ids=lambda policy: policy.label)
def test_another_n_is_in_the_radii_at_once(policy):
    """As if it had been N from the beginning."""
    several = []
    for numbers in ((5, 2), (2,)):
        mechanism = Mechanism(policy, 5, 2, 0.0, 1.0, lambda epsilon, count: [1] * count)
        mechanism.count(numbers[0])
        for n in range(60):
            mechanism.take(n % 2, 0.25)
        mechanism.count(numbers[-1])
        several.append(vars(mechanism.me))
    assert several[0] == several[1]


# ---------------------------------------------------------------- one that joins


@pytest.mark.parametrize("counts", ["sites", "patients"])
@pytest.mark.parametrize("index", ["thompson", "ucb", "kl"])
def test_one_that_joins_uses_what_the_network_knows(counts, index):
    """Not a round robin of first batches: here it would try the bad arms 40 times in its first 60 decisions."""
    terms = replace(TERMS, counts=counts, policy=FedBatch(1.0, index=index, first_batch=20))
    network = MemoryNetwork(terms, RING, seed=2)
    play(network, "0123", 150)
    network.join("late", ["0", "2"])
    assert network.decide("late").arm == 0  # nothing is known yet: in turn
    sweep(network)
    assert None not in network.site("late").theta
    arms = play(network, ["0", "1", "2", "3", "late"], 60, seed=7)
    assert arms.count(1) >= 45
    assert network.imbalance() <= 1e-12


def test_it_still_tries_what_others_know():
    """By what it does not know of its own patients: in time it has released every arm itself."""
    network = MemoryNetwork(TERMS, RING, seed=2)
    play(network, "0123", 100, means=(0.5, 0.6, 0.5))
    network.join("late", ["0", "2"])
    sweep(network)
    play(network, ["late"], 200, seed=7, means=(0.5, 0.6, 0.5))
    assert min(network.site("late").releases) > 0


@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_its_uncertainty_is_that_of_the_networks_mean(counts):
    """sum_j w_j^2 V_j / (sum_j w_j)^2; its own part is that of a mean anywhere in the range."""
    network = MemoryNetwork(replace(TERMS, counts=counts), RING, seed=5)
    play(network, "0123", 50)
    network.join("late", ["0"])
    sweep(network, 6)
    late, page = network.site("late"), TERMS.page_terms
    schedule = page.first_batch, page.growth, 0.25, page.noise_variance / GRID**2
    weights = [1.0] * 4 if counts == "sites" else [network.site(n)._player.me.share for n in "0123"]
    own = 1.0 if counts == "sites" else 0.0
    for k in range(3):
        parts = [
            w * w * scheduled_variance(network.site(n).released[k], *schedule)
            for w, n in zip(weights, "0123", strict=True)
        ]
        parts.append(own * own * 0.25 / PRIOR_REWARDS)
        assert late.radius[k] == pytest.approx(sqrt(sum(parts)) / (sum(weights) + own), rel=1e-9)
        assert late.errors[k] == pytest.approx(late.radius[k], rel=1e-9), "and so people are told, with or without"
        late.limit_sites(20)


def test_half_of_the_others_must_have_released_an_arm():
    network = MemoryNetwork(TERMS, RING, seed=5)
    sweep(network, 3)
    while not all(network.site("0").releases):
        play(network, "0", 1)
    sweep(network, 5)
    assert network.site("2").theta == (None, None, None)  # one of three others
    while not all(network.site("1").releases):
        play(network, "1", 1)
    sweep(network, 5)
    assert None not in network.site("2").theta


# ---------------------------------------------------------------- one and two


@pytest.mark.parametrize("policy", LIVE, ids=lambda policy: policy.label)
def test_a_site_alone_learns_and_its_knowledge_counts_when_others_come(policy):
    terms = Federation("test", ARMS, 0.0, 1.0, policy)
    network = MemoryNetwork(terms, [("first", "second")], seed=3)
    network.leave("second")
    assert network.site("first").neighbours == ()
    arms = play(network, ["first"], 250)
    first = network.site("first")
    assert (first.doubt, first.num_agents) == (None, 1)
    assert None not in first.theta
    assert len({*arms}) > 1
    assert all(radius < 20.0 for radius in first.radius)
    network.join("third", ["first"])
    sweep(network, 30)
    assert counted(network) == {"first": 2, "third": 2}
    third = network.site("third")
    ours = network.site("first").own_means
    for k in range(3):
        assert third.gossiped[k] / third.gossiped[3 + k] == pytest.approx(ours[k], abs=1e-9)
    assert network.imbalance() <= 1e-12


def test_two_sites_and_one_of_them_returns():
    network = MemoryNetwork(TERMS, [("a", "b")], seed=4)
    play(network, "ab", 60)
    assert counted(network) == {"a": 2, "b": 2}
    network.leave("b")
    assert counted(network) == {"a": 1}
    assert network.site("a").gossiped == network.site("a").own
    play(network, "a", 20)
    network.join("b", ["a"])
    sweep(network, 10)
    assert counted(network) == {"a": 2, "b": 2}
    play(network, "ab", 60)
    sweep(network, 60)
    assert network.imbalance() <= 1e-12
    assert network.site("a").theta == pytest.approx(network.site("b").theta, abs=1e-6)


def test_one_that_joins_knows_as_much_of_some_arms_as_of_all():
    """A request that excludes an arm does not send it back to a round robin."""
    network = MemoryNetwork(TERMS, RING, seed=3)
    play(network, "0123", 30)
    network.join("new", ["0", "2"])
    sweep(network, 3)
    player = network.site("new")._player
    assert player.me.num_unknown == 0
    few, _ = player.among((0, 1))
    assert few.num_unknown == 0
    assert few.spread == player.me.spread[:2]
