"""The paper's policies in a live federation, and what a site accepts and tells: sentences of docs/agent.md."""

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import literal
from fedbandit import FedBatch, FedUCB, GossipUCB, InvalidArgument, PrivacyWarning
from fedbandit.agent.core.bulletin import ArmEntry, Bulletin, Signed
from fedbandit.agent.core.decisions import MAX_EXPIRED, SiteDraws
from fedbandit.agent.core.federation import DAY, LARGEST_RATE
from fedbandit.agent.core.records import DecisionRecord, HorizonReached, Numbering, Released, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.privacy.noise import GRID
from fedbandit.rules.kl import kl_index
from fedbandit.testing.memory_network import Down, MemoryNetwork, simulated_signature
from fedbandit.world import graph
from sites_on_tape import SitesOnTape, tape_on_the_grid
from test_agent_simulation import EXACT, TERMS, TREE, Watched
from test_site import exchange, publish

DRAWS = SiteDraws((0.3, -0.2, 0.1), 0.0)
NEVER = 10**9


def silent(epsilon, count):
    return [0] * count


def new_site(terms, name="here", neighbours=("there",), noise=silent, stored=None):
    site = Site(name, terms, stored or Stored(Numbering(1, 0)), noise)
    site.link(neighbours)
    return site


def pull(site, reward=0.5, draws=DRAWS):
    decision = site.decide(0.0, draws).result
    site.report(decision.id, reward)
    return decision.arm


# ---------------------------------------------------------------- without faults: Algorithm 1


def algorithm_1(tape, acts, mean, radius):
    """Algorithm 1 where bulletins spread, with sample means and counts: arms, theta and n_max of each round; the lags.

    Independent of ``fedbandit.rules`` and of ``fedbandit.agent`` on purpose.
    """
    agents, arms = range(tape.rewards.shape[1]), range(tape.rewards.shape[2])
    seen = [[[(0, tape.rewards[0, i, k])] for k in arms] for i in agents]
    n = np.ones((len(agents), len(arms)), int)
    boards = [{i: (0, [mean(i, k, seen[i][k]) for k in arms], n[i].copy())} for i in agents]
    clock, lagged, story = [0] * len(agents), 0, []

    def known(i):
        theta = np.mean([means for _, means, _ in boards[i].values()], axis=0)
        return theta, np.max([n[i], *(counts for *_, counts in boards[i].values())], axis=0)

    for t in range(1, tape.horizon + 1):
        chosen, before = {}, n.copy()
        for i in (i for i in agents if acts(t, i)):
            clock[i] += 1
            theta, n_max = known(i)
            lagging = [k for k in arms if n[i, k] < n_max[k] - len(agents)]
            belief = [theta[k] + radius(before, i, k, clock[i]) for k in arms]
            chosen[i] = lagging[int(tape.picks[t - 1, i] * len(lagging))] if lagging else belief.index(max(belief))
            lagged += bool(lagging)
        for i, k in chosen.items():
            n[i, k] += 1
        a, b = tape.edges[t - 1]
        for j in agents:
            newest = max((boards[i][j] for i in (a, b) if j in boards[i]), key=lambda it: it[0], default=None)
            if newest is not None:
                boards[a][j] = boards[b][j] = newest
        for i, k in chosen.items():
            seen[i][k].append((t, tape.rewards[t, i, k]))
            boards[i][i] = (t, [mean(i, k, seen[i][k]) for k in arms], n[i].copy())
        story.append((chosen, *(np.array(rows) for rows in zip(*map(known, agents), strict=True))))
    return story, lagged


@pytest.mark.parametrize("world", [graph.path(4), graph.complete(3)], ids=["path", "complete"])
@pytest.mark.parametrize("policy", [GossipUCB(), FedUCB(8.0, horizon=500)], ids=["gossip_ucb", "fed_ucb"])
def test_without_faults_agents_are_algorithm_1(policy, world):
    """The same arms; theta to 1e-9; n_max exactly."""
    num_arms, agents = 3, world.num_agents
    tape, noise = tape_on_the_grid(world, num_arms, 500, 11, 0.0, 1.0, 8.0 / (501).bit_length())
    tape.rewards[:, :, 1] = np.round((0.2 + 0.8 * tape.rewards[:, :, 1]) * GRID) / GRID
    mean, radius = literal.sample_mean, literal.c(agents)
    if isinstance(policy, FedUCB):
        mean = literal.private_mean(lambda end, i, k: noise[end, i, k], 1 / GRID, 0.0, 1.0)
        radius = literal.c_private(agents, 500, 8.0)

    def acts(t, i):
        return i > 0 or t % 3 == 0  # a slow agent, which lags

    story, lagged = algorithm_1(tape, acts, mean, radius)
    assert lagged > 50, "the consistency rule was hardly used: little was compared"

    live = SitesOnTape(tape, noise, policy)
    for t, (chosen, theta, n_max) in enumerate(story, 1):
        assert live.play(t, acts) == chosen
        np.testing.assert_allclose([site.theta for site in live.sites], theta, rtol=0, atol=1e-9)
        np.testing.assert_array_equal([site.n_max for site in live.sites], n_max)
    for i, site in enumerate(live.sites):
        expected = [radius(live.pulls, i, k, sum(site.tried) + 1 - num_arms) for k in range(num_arms)]
        assert site.radius == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------- the consistency rule


def hear(site, counts, *names):
    """Bulletins of other sites that have made so many decisions for each arm."""
    terms, columns = site.terms, len(site.terms.page.published_names)
    entries = [ArmEntry(arm, (0.0,) * columns, 0, 0, n) for arm, n in zip(terms.arms, counts, strict=True)]
    for name in names or ("there",):
        body = Bulletin(terms.digest(), name, 1, 1, 0, decisions=sum(counts), arms=tuple(entries)).encode()
        site.merge(Signed(body, *simulated_signature(name)(body)), "there", 0.0)


def lagging_site(terms, n_max, u):
    site = new_site(terms)
    for _ in range(3):
        pull(site)
    hear(site, n_max, "b", "c", "d", "e")
    return site.decide(0.0, SiteDraws((), u)).result.arm


@pytest.mark.parametrize(
    ("n_max", "u", "arm"),
    [
        ((7, 1, 7), 0.0, 0),
        ((7, 1, 7), 0.49, 0),
        ((7, 1, 7), 0.5, 2),
        ((7, 1, 7), 0.999, 2),
        ((6, 7, 6), 0.3, 1),
        ((6, 6, 6), 0.999, 0),  # N = 5 behind is not too far: the index decides, and the first of equals wins
    ],
)
def test_if_an_arm_lags_one_is_drawn_uniformly_from_those_that_do(n_max, u, arm):
    """Algorithm 1, lines 6 and 13: "n < n_max - N"; each of m lagging arms has 1/m of the draws."""
    assert lagging_site(EXACT, n_max, u) == arm


def test_pending_decisions_count_for_the_rule():
    """So that a site whose rewards are late does not ask for the lagging arm without end."""
    site = new_site(EXACT)
    for _ in range(3):
        pull(site)
    hear(site, (1, 1, 16), "b", "c", "d", "e")
    arms = [site.decide(0.0, DRAWS).result.arm for _ in range(12)]
    assert arms[:10] == [2] * 10
    assert site.tried[2] == 11
    assert arms[10:] != [2, 2]


def test_n_max_spreads_with_bulletins_and_goes_with_an_excluded_site():
    """Each count is somebody's."""
    network = MemoryNetwork(EXACT, [("a", "b"), ("b", "c")])
    for _ in range(10):
        network.report("a", network.decide("a").id, 0.5)
    most = network.site("a").tried
    for _ in range(2):
        for link in (("b", "a"), ("b", "c")):
            network.exchange(*link)
            network.run()
    assert network.site("b").n_max == network.site("c").n_max == most
    network.exclude("b", "a")
    assert network.site("b").n_max == (0, 0, 0)
    assert network.site("c").n_max == most


def test_a_count_that_time_does_not_allow_counts_as_much_as_it_allows():
    site = new_site(EXACT)
    hear(site, (10**11, 1, 1))
    assert site.n_max == (LARGEST_RATE * DAY, 1, 1)


def test_a_lost_disk_takes_its_counts_along():
    network = MemoryNetwork(EXACT, [("a", "b")])
    for _ in range(10):
        network.report("a", network.decide("a").id, 0.5)
    network.exchange("b", "a")
    network.run()
    network.lose_disk("a")
    network.restart("a")
    for _ in range(3):
        network.exchange("b", "a")
        network.run()
    assert network.site("a").n_max == network.site("b").n_max == (0, 0, 0)


def test_only_policies_with_the_rule_look_at_counts():
    here = new_site(TREE)
    hear(here, (1, 0, 0))
    assert here.n_max == (1, 0, 0)
    assert new_site(TERMS).n_max == ()


# ---------------------------------------------------------------- the own numbers


def test_gossip_ucb_owns_the_exact_mean():
    site, rewards = new_site(EXACT), [0.1, 0.7, 0.3, 0.9, 0.2, 0.6]
    taken = [(pull(site, reward), reward) for reward in rewards]
    for k in range(3):
        mean = math.fsum(r for arm, r in taken if arm == k) / sum(arm == k for arm, _ in taken)
        assert site.own_means[k] == pytest.approx(mean, abs=1e-15)
    assert site.stored.released == {}
    assert len(site.stored.known) == 3, "a record for each arm, none for each reward"


@pytest.mark.parametrize("terms", [EXACT, TREE], ids=["gossip_ucb", "fed_ucb"])
def test_a_site_without_a_reward_of_an_arm_does_not_count_as_zero(terms):
    here, there = new_site(terms), new_site(terms, "there", ("here",))
    for _ in range(3):
        pull(there, 0.75)
    before = there.theta
    assert here.own_means == (None, None, None)
    exchange(here, there)
    assert here.weights == there.weights == (0.5, 0.5, 0.5)
    assert there.theta == before


def test_fed_ucb_releases_at_every_reward_and_keeps_a_record_for_each_arm():
    """The noise of pull 3 is that of the interval 1-2 and that of 3 (Algorithm 2)."""
    draws = []

    def noise(epsilon, count):
        draws.append((len(draws) + 1) * 1000)
        return [draws[-1]] * count

    site = new_site(replace(TREE, arms=("a", "b")), noise=noise)
    for reward in (0.25, 0.25, 0.5, 0.5, 1.0):  # arms 0, 1, then by the index
        pull(site, reward, SiteDraws((), 0.0))
    assert len(draws) == 5
    stored = site.stored
    assert sum(fields["n"] for fields in stored.known.values()) == 5
    again = Site("here", site.terms, deepcopy(stored), silent)
    assert (again.own_means, again.tried) == (site.own_means, site.tried)

    draws = iter([100, 10, 1])
    three = new_site(replace(TREE, arms=("a", "b")), noise=lambda *_: [next(draws)])
    three._player.take([(0, None, 0.25)], 0.0)  # noise 100 for pull 1, 10 for pulls 1-2, 1 for pull 3
    three._player.take([(0, None, 0.5)], 0.0)
    three._player.take([(0, None, 0.5)], 0.0)
    known = three.stored.known[0]
    assert (known["n"], known["total"], known["slots"][:2]) == (3, GRID + GRID // 4, [11, 10])
    assert three.own_means[0] == (1.25 + 11 / GRID) / 3


def test_nothing_grows_with_the_number_of_rewards():
    site = new_site(replace(TREE, policy=FedUCB(1.0, horizon=10**6)))
    for _ in range(3000):
        pull(site)
        site.expire(1.0, NEVER)
    assert sum(site.rewards) == 3000
    assert not site.stored.decisions
    assert len(site.stored.known) == 3
    assert len(site.stored.released) <= 3 * 20


@pytest.mark.parametrize("where", ["before", "torn", "after"])
@pytest.mark.parametrize("terms", [TREE, TERMS], ids=["tree", "batches"])
def test_no_interval_is_drawn_twice_at_any_crash_point(terms, where):
    """Every write of a short story is the last one before a crash; what was seen before is what is seen after."""
    for fatal in range(40):
        network, writes, crashed = Watched(terms, [("a", "b")], seed=fatal), 0, False
        for _ in range(20):
            for event in ("decide", "report", "exchange"):
                writes += 1
                if writes == fatal:
                    network.crash("a", at_next_write=where)
                try:
                    if event == "decide":
                        decision = network.decide("a")
                    elif event == "report":
                        network.report("a", decision.id, 0.5)
                    else:
                        network.exchange("a", "b")
                        network.run()
                except Down:
                    crashed = True
                if "a" not in network.running:
                    crashed = True
                    network.restart("a")
                    network.exchange("a", "b")  # ``Watched`` compares what it says now with what it said before
                    network.run()
                    if event == "decide":
                        decision = network.decide("a")
                    elif event == "report":
                        network.report("a", decision.id, 0.5)
        assert crashed == (fatal > 0)
        network.expire("a", 1.0)  # a decision that nobody heard of counts with the default
        assert sum(network.site("a").rewards) == network.site("a").decided in (20, 21)


@pytest.mark.parametrize("terms", [EXACT, TREE], ids=["gossip_ucb", "fed_ucb"])
def test_the_file_knows_all_that_memory_does(terms, tmp_path):
    path, other = tmp_path / "here.db", new_site(terms, "there", ("here",))
    journal = SqliteJournal(path, "here", terms, 5)
    site = Site("here", terms, journal.load(), silent)
    journal.commit(site.link(["there"]).records)
    for _ in range(30):
        decision = site.decide(0.0, DRAWS)
        journal.commit(decision.records)
        journal.commit(site.report(decision.result.id, 1 / 3).records)
        pull(other, 0.9)
        journal.commit(site.publish(simulated_signature("here"), 0.0).records)
        journal.commit(site.merge(publish(other), "there", 0.0).records)
        journal.commit(site.board_rows().records)
        assert journal.load() == site.stored
    journal.close()
    journal = SqliteJournal(path, "here", terms, 77)
    again = Site("here", terms, journal.load(), silent)
    journal.close()
    assert again.incarnation == 5
    for seen in ("own_means", "theta", "radius", "tried", "rewards", "decided"):
        assert getattr(again, seen) == getattr(site, seen)


def test_a_tree_never_goes_backwards_on_disk(tmp_path):
    """Also if a site should ask for it: the file refuses, and nothing of that event is kept."""
    journal = SqliteJournal(tmp_path / "here.db", "here", TREE, 1)
    site = Site("here", TREE, journal.load(), silent)
    for _ in range(6):
        journal.commit(site._player.take([(0, None, 0.5)], 0.0))
    before = journal.load()
    assert before.released == {(0, 0): 5, (0, 1): 6, (0, 2): 4}
    for level, last in ((0, 5), (0, 3), (1, 6), (1, 2), (2, 4)):
        with pytest.raises(JournalError, match=f"pull {last} of arm 0 has been released already at level {level}"):
            journal.commit([DecisionRecord("1-1", 1, 0, 0.0), Released(0, level, last)])
        assert journal.load() == before
    journal.commit(site._player.take([(0, None, 0.5)], 0.0))
    assert journal.load().released[0, 0] == 7
    journal.close()


# ---------------------------------------------------------------- a full tree


def test_a_full_arm_is_not_handed_out_and_then_nothing_is():
    """Pending decisions count: their rewards must find room. So do expired ones, with the default."""
    terms = replace(TREE, policy=FedUCB(1.0, horizon=2))
    site = new_site(terms)
    decisions = [site.decide(float(i), DRAWS).result for i in range(9)]
    assert site.tried == (3, 3, 3)
    before = deepcopy(site.stored)
    with pytest.raises(HorizonReached, match=r"the 3 decisions for which policy\.horizon pays"):
        site.decide(9.0, DRAWS)
    assert site.stored == before
    for decision in decisions[1:]:
        site.report(decision.id, 1.0)
    assert site.tried == (3, 3, 3)
    assert site.rewards == (0, 3, 3)
    site.expire(1.0, NEVER)
    assert site.rewards == (3, 3, 3)
    with pytest.raises(HorizonReached):
        site.decide(10.0, DRAWS)


def test_a_choice_is_among_the_arms_that_have_room():
    """A full arm neither wins nor lags; the others are judged as if it were not there."""
    terms = replace(TREE, policy=FedUCB(1000.0, horizon=3, noise_constant=1e-9, sampling_constant=1e-9))
    site = new_site(terms)
    for _ in range(4):
        for k, reward in ((0, 1.0), (1, 0.2), (2, 0.6)):
            if site.tried[k] < (4, 2, 2)[k]:
                site._player.take([(k, None, reward)], 0.0)
                site._player.me.tried[k] += 1
    site._is_stale = site._is_urgent = True
    assert site.theta == pytest.approx((1.0, 0.2, 0.6), abs=1e-4)
    assert site.tried == (4, 2, 2)
    assert deepcopy(site).decide(0.0, DRAWS).result.arm == 2
    lagging = deepcopy(site)
    hear(lagging, (4, 5, 5))
    assert lagging.n_max == (4, 4, 4), "nobody can have more"
    lagging.board.exclude(["there"])  # so that it lags behind by more than N = 1
    lagging.board.n_max = lambda arms, most: (4, 4, 4)
    arms = {deepcopy(lagging).decide(0.0, SiteDraws((), u)).result.arm for u in (0.0, 0.4, 0.6, 0.99)}
    assert arms == {1, 2}


def test_a_file_with_more_decisions_than_its_tree_has_room_for_is_refused():
    terms = replace(TREE, policy=FedUCB(1.0, horizon=1))
    full = new_site(terms)
    for _ in range(2):
        full._player.take([(0, None, 0.5)], 0.0)
    stored = replace(full.stored, numbering=Numbering(1, 1), decisions={"1-1": DecisionRecord("1-1", 1, 0, 0.0)})
    with pytest.raises(InvalidArgument, match="decisions of an arm must be at most 2"):
        new_site(terms, stored=stored)


# ---------------------------------------------------------------- bounds


def test_a_live_policy_keeps_its_epsilon():
    with pytest.warns(PrivacyWarning):
        paper = FedUCB(1.0, horizon=10, paper=True)
    for policy, field in (
        (FedUCB(math.inf, horizon=10), "epsilon"),
        (FedUCB(1.0), "horizon"),
        (FedUCB(1.0, horizon=10, assume_sensitivity=1.0), "assume_sensitivity"),
        (paper, "paper"),
    ):
        with pytest.raises(InvalidArgument, match=rf"policy\.{field}"):
            replace(TERMS, policy=policy)
    with pytest.raises(InvalidArgument, match="policy must be a FedBatch, FedUCB or GossipUCB"):
        replace(TERMS, policy="fed_batch")


# ---------------------------------------------------------------- what a site tells


POLICIES = {
    "gossip_ucb": GossipUCB(),
    "fed_ucb": FedUCB(5.0, horizon=1000, noise_constant=1e-3),
    "thompson": FedBatch(5.0, first_batch=2),
    "ucb": FedBatch(5.0, index="ucb", first_batch=2),
    "kl": FedBatch(5.0, index="kl", first_batch=2),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_radius_that_is_shown_is_the_one_that_is_used(policy):
    site = new_site(replace(TERMS, max_agents=1, policy=POLICIES[policy]))
    source, chosen = np.random.default_rng(3), set()
    assert site.radius == (None, None, None)
    for _ in range(300):
        draws = SiteDraws(tuple(source.normal(size=3)), source.random())
        if None not in site.theta:
            z = draws.normals if policy == "thompson" else (1.0, 1.0, 1.0)
            beliefs = [x + r * d for x, r, d in zip(site.theta, site.radius, z, strict=True)]
            if policy == "kl":
                log_t = math.log(sum(site.tried) - 2)
                worth = site.released
                assert beliefs == pytest.approx(
                    [kl_index(x, log_t / m, 5.0) for x, m in zip(site.theta, worth, strict=True)]
                )
            expected = beliefs.index(max(beliefs))
            arm = pull(site, (0.2, 0.5, 0.8)[expected], draws)
            assert beliefs[arm] == pytest.approx(max(beliefs), abs=1e-9)
            chosen.add(arm)
        else:
            pull(site, source.random(), draws)
    assert len(chosen) > 1


def test_counts_are_told():
    site = new_site(TERMS)
    for i in range(5):
        decision = site.decide(float(i), DRAWS).result
        if i < 3:
            site.report(decision.id, 0.5)
    site.expire(1.0, NEVER)
    assert (site.decided, site.pending, site.remembered, site.rewards) == (5, 2, 4, (1, 1, 1))
    site.expire(4.5, NEVER)
    assert (site.decided, site.pending, site.remembered, site.tried) == (5, 0, 0, (2, 2, 1))


def test_what_is_promised_is_told():
    private, tree, open_ = (new_site(terms) for terms in (TERMS, TREE, EXACT))
    for site in (private, tree, open_):
        for _ in range(9):
            pull(site)
    assert (private.privacy().epsilon_per_reward, private.privacy().releases) == (1.0, 3)
    assert (tree.privacy().epsilon_per_reward, tree.privacy().releases) == (10.0, 9)
    assert (open_.privacy().epsilon_per_reward, open_.privacy().releases) == (None, 9)
    assert "for ever" in private.privacy().promise
    assert "for 16 outcomes of each arm" in tree.privacy().promise
    assert open_.privacy().promise.startswith("None")


def test_an_operator_is_warned():
    assert new_site(TERMS).warnings() == ()
    assert "not private" in new_site(EXACT).warnings()[0]
    site = new_site(replace(TREE, policy=FedUCB(1.0, horizon=20)))
    (plain,) = site.warnings()
    assert "makes a slow site chase a fast one's counts" in plain
    for _ in range(16):
        pull(site)
    assert site.warnings() == (plain,)
    hear(site, (11, 11, 10))
    assert "this site is slower than others (16 decisions, where 32 are known)" in site.warnings()[0]
    while max(site.tried) < 19:
        pull(site)
    assert "19 of the 21 decisions" in site.warnings()[-1]


# ---------------------------------------------------------------- expiry


def test_all_but_the_newest_are_forgotten_a_thousand_at_a_time():
    site = new_site(EXACT)
    for i in range(2500):
        decision = site.decide(float(i), DRAWS).result
        if i % 2:
            site.report(decision.id, 0.5)
    forgotten = []
    while some := site.expire(10.0, keep=300).result.total:
        forgotten.append(some)
    assert forgotten == [MAX_EXPIRED, MAX_EXPIRED, 200]
    assert [decision.at for decision in site.stored.decisions.values()] == [float(i) for i in range(2200, 2500)]
    assert (site.pending, site.waiting, sum(site.rewards)) == (150, 0, 2350)
    assert site.expire(2300.0, keep=300).result.total == 100
    assert site.expire(0.0, keep=0).result.total == 200
    with pytest.raises(InvalidArgument, match="keep"):
        site.expire(0.0, keep=-1)


def test_a_decision_is_small():
    with pytest.raises(AttributeError):
        DecisionRecord("1-1", 1, 0, 0.0).__dict__  # noqa: B018


# ---------------------------------------------------------------- draws and terms


@pytest.mark.parametrize("wrong", [{"u": 1.0}, {"u": -0.1}, {"u": math.nan}, {"normals": (math.inf,)}])
def test_impossible_draws_are_refused(wrong):
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        SiteDraws(**{"normals": (), "u": 0.5, **wrong})
    with pytest.raises(InvalidArgument, match="normals must be 3 draws"):
        new_site(TERMS).decide(0.0, SiteDraws((0.0,), 0.5))


def test_where_terms_differ_is_named():
    ours = TERMS
    assert ours.difference(ours.terms()) == []
    assert ours.difference(replace(ours, policy=replace(ours.policy, epsilon=2.0)).terms()) == [
        "policy.epsilon: 1.0 here, 2.0 there"
    ]
    assert ours.difference(replace(ours, max_agents=6, arms=("a", "b")).terms()) == [
        'arms: ["a", "b", "c"] here, ["a", "b"] there',
        "max_agents: 5 here, 6 there",
    ]
    told = ours.difference(EXACT.terms())
    assert 'policy.kind: "fed_batch" here, "gossip_ucb" there' in told
    assert "policy.epsilon: 1.0 here, absent there" in told
    assert ours.difference({**ours.terms(), "new": "x" * 1000})[0].endswith("... there")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(st.dictionaries(st.sampled_from(["name", "arms", "policy", "low", "more"]), JSON))
def test_whatever_another_site_claims_can_be_compared(other):
    assert TERMS.difference(other)
