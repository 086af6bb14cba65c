"""Sites come and go: N is who counts on the board, one that joins has all at once, and one alone learns."""

from dataclasses import replace
from math import sqrt
from random import Random

import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.agent.core.federation import MAX_AGENTS, Federation
from fedbandit.privacy.mechanism import COUNTED, Mechanism, terms_in_steps
from fedbandit.privacy.noise import GRID
from fedbandit.rules.releases import VARIANCE, WEIGHT
from fedbandit.testing.memory_network import MemoryNetwork

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
    for name in network.names:
        network.decide(name)
    assert counted(network) == dict.fromkeys("0123", 1)
    sweep(network, 3)
    assert counted(network) == dict.fromkeys("0123", 4)
    network.join("4", ["0"])
    sweep(network, 4)
    network.site("2").theta  # noqa: B018  # it looks at its board
    assert counted(network) == dict.fromkeys("01234", 5)
    assert network.site("2")._player.terms.averaging == 1 / 5


@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_one_that_has_released_nothing_counts_too(counts):
    """It belongs to N before its first reward."""
    network = MemoryNetwork(replace(TERMS, counts=counts), RING)
    play(network, ("0", "1"), 40)
    assert network.site("2").releases == (0, 0, 0)
    assert counted(network) == dict.fromkeys("0123", 4)


def test_what_a_dead_site_has_released_goes_on_to_count():
    """As long as nobody excludes it."""
    network = MemoryNetwork(TERMS, RING)
    play(network, "0123", 20)
    network.leave("3")
    sweep(network, 20)
    assert counted(network) == dict.fromkeys("012", 4)
    for name in "012":
        network.exclude(name, "3")
    assert counted(network) == dict.fromkeys("012", 3)
    network.join("3", ["2", "0"])
    sweep(network, 3)
    for name in "012":
        network.include(name, "3")
    sweep(network, 3)
    assert counted(network) == dict.fromkeys("0123", 4)
    assert network.differences() == []


def test_after_a_restart_all_that_were_written_count_at_once():
    network = MemoryNetwork(TERMS, [*RING, ("2", "4")])
    sweep(network, 6)
    network.save_board("0")
    network.restart("0")
    assert network.site("0").num_agents == 5


# ---------------------------------------------------------------- terms


def test_one_site_more_than_expected_works():
    network = MemoryNetwork(replace(TERMS, max_agents=3), RING)
    play(network, "0123", 60)
    assert counted(network) == dict.fromkeys("0123", 4)
    sweep(network, 3)
    assert network.differences() == []


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
            seen.append((completed, mechanism.published(n % 2), mechanism.kept(n % 2)))
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
    assert network.decide("late").propensity == 1 / 3  # nothing is known yet: each arm is as likely
    sweep(network)
    assert None not in network.site("late").theta
    arms = play(network, ["0", "1", "2", "3", "late"], 60, seed=7)
    assert arms.count(1) >= 45
    sweep(network, 3)
    assert network.differences() == []


def test_it_still_tries_what_others_know():
    """By what it does not know of its own patients: in time it has released every arm itself."""
    network = MemoryNetwork(TERMS, RING, seed=2)
    play(network, "0123", 100, means=(0.5, 0.6, 0.5))
    network.join("late", ["0", "2"])
    sweep(network)
    play(network, ["late"], 200, seed=7, means=(0.5, 0.6, 0.5))
    assert min(network.site("late").releases) > 0


@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_its_uncertainty_is_that_of_the_mean_over_all_sites(counts):
    """sum_j w_j^2 V_j / (sum_j w_j)^2, and what its own patients may differ by."""
    network = MemoryNetwork(replace(TERMS, counts=counts), RING, seed=5)
    play(network, "0123", 50)
    network.join("late", ["0"])
    sweep(network, 6)
    late = network.site("late")
    player = late._looking
    for k in range(3):
        rows, _ = late.board.rows(ARMS[k])
        known = [row for row in rows if row[VARIANCE] > 0.0]
        sampling = sum(row[WEIGHT] ** 2 * row[VARIANCE] for row in known) / sum(row[WEIGHT] for row in known) ** 2
        assert player.seen.sampling[k] == pytest.approx(sampling, rel=1e-9)
        assert player.seen.missing[k] > 0.0, "one is missing"
        assert late.errors[k] == pytest.approx(sqrt(sampling + player.seen.missing[k]) / GRID, rel=1e-9)
        assert late.radius[k] == pytest.approx(late.errors[k], rel=1e-9)


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
    if isinstance(policy, FedBatch):
        assert third.theta == pytest.approx(first.own_means, abs=1e-9)
    else:
        assert third.theta == (None, None, None), "a site tries every arm itself (Algorithm 1, line 1)"
    assert network.differences() == []


def test_two_sites_and_one_of_them_returns():
    """With what it had released, which the other has kept."""
    network = MemoryNetwork(TERMS, [("a", "b")], seed=4)
    play(network, "ab", 60)
    sweep(network, 2)
    assert counted(network) == {"a": 2, "b": 2}
    released = network.site("b").released
    network.leave("b")
    play(network, "a", 20)
    network.join("b", ["a"])
    sweep(network, 3)
    assert network.site("b").released == released
    play(network, "ab", 60)
    sweep(network, 3)
    assert network.differences() == []
    assert network.site("a").theta == network.site("b").theta


def test_one_that_joins_knows_as_much_of_some_arms_as_of_all():
    """A request that excludes an arm does not send it back to a round robin."""
    network = MemoryNetwork(TERMS, RING, seed=3)
    play(network, "0123", 30)
    network.join("new", ["0", "2"])
    sweep(network, 3)
    player = network.site("new")._looking
    assert player.me.num_unknown == 0
    few, _ = player.among((0, 1))
    assert few.num_unknown == 0
    assert few.spread == player.me.spread[:2]
