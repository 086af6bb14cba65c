"""Rewards that come late, or never: what is released, and when, depends on decisions and the clock alone."""

from collections import deque
from dataclasses import replace
from random import Random

import pytest

from broken_sites import ArrivalSite
from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.agent.core.decisions import MAX_SETTLED, SiteDraws
from fedbandit.agent.core.federation import MAX_WINDOW, Federation
from fedbandit.agent.core.records import DecisionNotFound, Numbering, Released, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.process.clock import LASTS, SteadyClock
from fedbandit.audit.attacks import on_delays
from fedbandit.audit.measure import audit
from fedbandit.checks import InvalidArgument
from fedbandit.testing.memory_network import Down, MemoryNetwork

PLAIN = Federation("test", ("a", "b"), 0.0, 1.0, FedBatch(1.0, first_batch=2), max_agents=2)
WINDOW = replace(PLAIN, reward_window=10.0)
DRAWS, NEVER = SiteDraws((0.0, 0.0), 0.0), 10**9


def counting():
    """Noise that tells its draws apart."""
    drawn = []

    def noise(epsilon, count):
        drawn.append(len(drawn) + 1)
        return [1000 * drawn[-1]] * count

    return noise


def site_of(terms, noise=None):
    return Site("here", terms, Stored(Numbering(1, 0)), noise or counting())


def decided(site, count, start=0.0):
    """Decisions, one a second."""
    return [site.decide(start + i, DRAWS).result for i in range(count)]


def total(site, arm=0):
    """What the page knows of an arm: rewards, and their sum since the last release in units of the reward."""
    known = site.stored.known.get(arm, {"n": 0, "total": 0})
    return known["n"], known["total"] / 2**16


# ---------------------------------------------------------------- the terms


def test_window_and_default_are_terms():
    assert (PLAIN.terms()["reward_window"], PLAIN.terms()["default_reward"]) == (0.0, 0.0)
    assert replace(PLAIN, default_reward=0.0) == PLAIN
    assert replace(PLAIN, default_reward=0.0).digest() == PLAIN.digest()
    assert replace(WINDOW, default_reward=0.5).terms()["default_reward"] == 0.5
    assert len({PLAIN.digest(), WINDOW.digest(), replace(PLAIN, default_reward=0.5).digest()}) == 3
    assert PLAIN.missing_reward == 0.0
    assert replace(PLAIN, low=-1.0).missing_reward == -1.0
    assert WINDOW.difference(PLAIN.terms()) == ["reward_window: 10 seconds here, 0 seconds there"]


@pytest.mark.parametrize("field", ["reward_window", "default_reward"])
@pytest.mark.parametrize("value", [-1.0, 2.0 * MAX_WINDOW, float("nan"), "1"])
def test_wrong_ones_are_named(field, value):
    with pytest.raises(InvalidArgument, match=field):
        replace(PLAIN, **{field: value})


# ---------------------------------------------------------------- without a window: the order of decisions


def test_rewards_count_in_the_order_of_decisions():
    site = site_of(PLAIN)
    first, _, third, _ = decided(site, 4)  # arms 0, 1, 0, 1
    assert site.report(third.id, 1.0).result
    assert (site.rewards, site.waiting, site.pending, site.own_means[0]) == ((0, 0), 1, 3, None)
    step = site.report(first.id, 0.0)
    assert site.rewards == (2, 0)
    assert [it for it in step.records if isinstance(it, Released)] == [Released(0, 0, 2)]
    assert (site.waiting, site.pending) == (0, 2)


def test_an_operator_hears_of_a_decision_that_holds_up_others():
    site = site_of(PLAIN)
    decisions = decided(site, 6)
    for decision in decisions[2::2]:
        site.report(decision.id, 1.0)
    (warning,) = site.warnings()
    assert warning.startswith("2 rewards of a wait for that of the decision of 1970-01-01 00:00:00+00:00")
    assert not any(it.id in warning for it in decisions), "ids are for the application alone"
    site.expire(1.0, NEVER)
    assert site.warnings() == ()
    assert site.rewards == (3, 0)


def test_an_expired_decision_counts_with_the_default_and_what_waited_follows():
    site = site_of(replace(PLAIN, default_reward=0.25, policy=FedBatch(1.0, first_batch=10)))
    decisions = decided(site, 6)
    for decision in decisions[2::2]:
        site.report(decision.id, 1.0)
    assert site.expire(1.0, NEVER).result.total == 1
    assert total(site) == (3, 2.25)
    assert site.tried == (3, 3), "its slot is taken"


def test_many_that_waited_follow_a_thousand_at_a_time():
    site = site_of(replace(PLAIN, policy=GossipUCB()))
    decisions = decided(site, 2 * MAX_SETTLED + 10)
    by_arm = [[it for it in decisions if it.arm == k] for k in range(2)]
    mine = max(by_arm, key=len)
    for decision in mine[1:]:
        site.report(decision.id, 1.0)
    site.report(mine[0].id, 1.0)
    assert sum(site.rewards) == min(MAX_SETTLED, len(mine))
    while site.is_due(0.0):
        site.settle(0.0)
    assert sum(site.rewards) == len(mine)


# ---------------------------------------------------------------- with a window


def test_a_reward_counts_when_its_window_ends():
    site = site_of(WINDOW)
    first, _, third, _ = decided(site, 4)
    for decision in (third, first):
        assert site.report(decision.id, 1.0).result
    assert (site.rewards, site.waiting, site.pending) == ((0, 0), 2, 2)
    assert not site.is_due(9.9)
    assert site.settle(9.9).result == 0
    assert site.is_due(10.0)
    assert site.settle(10.0).result == 1
    assert total(site) == (1, 1.0)
    assert site.releases == (0, 0)
    assert site.settle(12.0).result == 2
    assert (site.rewards, site.releases) == ((2, 1), (1, 0)), "the second arm's first slot counts with the default"


def test_a_missing_reward_counts_with_the_default_and_a_late_one_does_not_count():
    site = site_of(replace(WINDOW, default_reward=0.25))
    (first,) = decided(site, 1)
    site.settle(10.0)
    assert total(site) == (1, 0.25)
    for _ in range(3):
        assert site.report(first.id, 1.0).result is False
    assert (site.late, total(site)) == (1, (1, 0.25))
    assert site.report(first.id, 0.5).result is False, "another value is as late"


def test_a_reward_is_late_once_anything_is_decided_after_its_window_even_before_it_is_settled():
    """A report looks at no clock, and a site that may not release settles nothing: what it decides tells the time."""
    site = site_of(WINDOW)
    first, second = decided(site, 2)
    assert site.report(first.id, 1.0).result is True
    site.decide(11.0, DRAWS)
    assert site.report(second.id, 1.0).result is False
    assert site.report(first.id, 1.0).result is True, "it was reported in time: a repetition says so"
    assert site.report(first.id, 0.5).result is True, "whatever its value"
    site.settle(12.0)
    assert (total(site, 0), total(site, 1)) == ((1, 1.0), (1, 0.0))


def test_a_value_out_of_range_is_refused_and_then_the_default_counts():
    site = site_of(replace(WINDOW, default_reward=0.5))
    (first,) = decided(site, 1)
    with pytest.raises(InvalidArgument, match="a number from 0 to 1"):
        site.report(first.id, 7.0)
    site.settle(10.0)
    assert total(site) == (1, 0.5)


def test_nothing_is_forgotten_before_its_window_is_over():
    site = site_of(WINDOW)
    decisions = decided(site, 6)
    assert site.expire(1e6, 0).result.total == 0
    site.settle(12.0)
    assert site.expire(12.0, NEVER).result.total == 2, "age counts from the end of the window"
    assert site.expire(0.0, 0).result.total == 1
    assert set(site.stored.decisions) == {it.id for it in decisions[3:]}
    assert (site.tried, site.rewards, site.pending) == ((3, 3), (2, 1), 3)


def test_a_clock_that_is_set_back_neither_reopens_nor_prolongs_a_window():
    site = site_of(WINDOW)
    decided(site, 2)
    site.settle(10.5)
    late = site.decide(3.0, DRAWS).result
    assert late.at == 10.5
    assert site.settle(4.0).result == 0
    assert site.settle(11.0).result == 1
    again = Site("here", WINDOW, site.stored, counting())
    assert again.clock == 11.0, "a file knows the largest time by which anything was settled"
    assert again.decide(0.0, DRAWS).result.at == 11.0


def test_a_clock_that_jumps_ahead_for_good_ends_windows_and_goes_on_from_there():
    """Missing rewards count with the default; then the steady clock runs on, so that windows are as long as ever."""
    wall, steady = [1000.0], [0.0]
    clock = SteadyClock(lambda: wall[0], lambda: steady[0])
    site = site_of(WINDOW)
    site.decide(clock.now(), DRAWS)
    wall[0] = 4940.0
    assert clock.now() == 1000.0, "not yet"
    wall[0], steady[0] = 5000.0, LASTS
    assert site.settle(clock.now()).result == 1
    wall[0], steady[0] = 1061.0, LASTS + 1.0  # set right
    decision = site.decide(clock.now(), DRAWS).result
    assert decision.at == 5001.0
    steady[0] = LASTS + 10.9
    assert not site.is_due(clock.now())
    steady[0] = LASTS + 11.0
    assert site.is_due(clock.now())
    again = SteadyClock(lambda: 1010.0, lambda: 0.0)
    again.catch_up(site.clock)
    assert again.now() == 5001.0


def test_a_clock_that_is_wrong_for_a_moment_stays_so_only_if_it_is_read_for_more_than_a_reward():
    wall, steady = [1000.0], [0.0]
    clock = SteadyClock(lambda: wall[0], lambda: steady[0])
    wall[0], steady[0] = 1001.9, 1.0
    assert clock.peek() == 1001.9, "a small step is believed"
    clock.catch_up(500.0)
    wall[0], steady[0] = 1002.0, 2.0
    assert clock.now() == 1002.0
    wall[0] = 1002.9
    assert clock.now() == 1002.9
    wall[0], steady[0] = 1003.0, 3.0
    assert (clock.peek(), clock.now()) == (pytest.approx(1003.9), pytest.approx(1003.9))


def test_a_jump_ahead_is_believed_once_it_has_lasted():
    """By what it was at least all the time; rewards that are reported meanwhile change nothing."""
    wall, steady = [1000.0], [0.0]
    clock = SteadyClock(lambda: wall[0], lambda: steady[0])

    def at(second, ahead):
        wall[0], steady[0] = 1000.0 + second + ahead, float(second)
        return clock.peek() - 1000.0 - second

    for second in range(1, 5):
        assert at(second, 30 * 86_400.0) == 0.0
        clock.now()
    assert at(5, 0.0) == 0.0
    clock.now()
    for second in range(6, 66):
        assert at(second, 100.0 if second % 7 else 5000.0) == 0.0
        clock.now()
    assert at(66, 5000.0) == 100.0, "what has lasted, and no more"
    assert clock.now() == 1166.0


def test_as_many_as_are_due_are_settled_a_thousand_at_a_time():
    site = site_of(WINDOW)
    decided(site, MAX_SETTLED + 5)
    steps = []
    while site.is_due(5000.0):
        steps.append(site.settle(5000.0).result)
    assert steps == [MAX_SETTLED, 5]
    assert site.settle(5000.0).records == ()


# ---------------------------------------------------------------- restarts


class Delays:
    """A story on a network in memory: decisions every second, rewards by outcome, crashes at writes."""

    def __init__(self, terms, crashes=(), seed=0):
        self.network = MemoryNetwork(terms, [("a", "b")], noise=lambda epsilon, count: [0] * count)
        self.rewards, self.crashes, self.seen, self.flying = Random(seed), crashes, [], deque()  # noqa: S311

    def play(self, seconds=60):
        network = self.network
        for second in range(seconds):
            network.run(float(second))
            for where in [where for when, where in self.crashes if when == second]:
                network.crash("a", where)
            decision = self.again(lambda: network.decide("a", DRAWS))
            self.flying.append((second + self.rewards.randrange(25), decision.id, self.rewards.random()))
            for it in [it for it in self.flying if it[0] <= second]:
                self.flying.remove(it)
                self.again(lambda it=it: network.report("a", *it[1:]))
            self.seen.append((second, network.site("a").releases, network.site("a").own_means))
        return self

    def again(self, event):
        """Until it is acknowledged. A decision that nobody heard of is never reported."""
        while True:
            try:
                return event()
            except Down:
                self.network.restart("a")
                self.network.confirm("a")  # at once: until then nothing would be released


@pytest.mark.parametrize("policy", [FedBatch(1.0, first_batch=2), FedUCB(1.0, horizon=100)], ids=["batch", "tree"])
@pytest.mark.parametrize("where", ["before", "torn"])
def test_a_restart_changes_no_release(policy, where):
    """A crash between report and settle, or between settle and its commit: contents and times are what they were."""
    terms = replace(WINDOW, policy=policy)
    undisturbed = Delays(terms).play()
    assert sum(undisturbed.network.site("a").releases) >= 6
    for second in range(5, 60, 3):
        assert Delays(terms, [(second, where)]).play().seen == undisturbed.seen


def test_nothing_is_published_because_a_reward_came():
    """Another decision is news a second later: told when a reward comes, it would say that it came."""
    network = MemoryNetwork(WINDOW, [("a", "b")])
    first = network.decide("a", DRAWS)
    network.run(0.2)
    network.decide("a", DRAWS)
    network.run(1.5)
    before = network.site("a").board.held("a").place
    assert network.site("a").has_news(network.now)
    network.report("a", first.id, 1.0)
    assert network.site("a").board.held("a").place == before
    network.decide("a", DRAWS)
    assert network.site("a").board.held("a").bulletin.decisions == 3, "a decision is told"


@pytest.mark.parametrize("clock_behind", [False, True])
def test_a_reward_that_waited_on_a_lost_disk_is_in_no_later_incarnation(clock_behind):
    network = MemoryNetwork(WINDOW, [("a", "b")])
    first, second = network.decide("b", DRAWS), network.decide("b", DRAWS)
    network.report("b", first.id, 1.0)
    network.exchange("a", "b")
    network.run()
    network.lose_disk("b", clock_behind)
    network.restart("b")
    network.exchange("a", "b")  # with its clock behind it hears that it has lived before
    network.run(5.0)
    network.decide("b", DRAWS)
    for old in (first, second):
        with pytest.raises(DecisionNotFound):
            network.report("b", old.id, 1.0)
    network.run(15.0)
    network.exchange("b", "a")
    network.run()
    site = network.site("b")
    assert (site.rewards, site.tried) == ((1, 0), (1, 0))
    assert total(site) == (1, 0.0), "its own decision, with the default"


def test_a_file_knows_all_that_memory_does(tmp_path):
    journal = SqliteJournal(tmp_path / "here.db", "here", WINDOW, 1)
    site = Site("here", WINDOW, journal.load(), counting())
    ids = []
    for at in range(40):
        step = site.decide(float(at), DRAWS)
        ids.append(step.result.id)
        journal.commit(step.records)
        if at % 3:
            journal.commit(site.report(step.result.id, 0.5).records)
        if at % 7 == 6:
            journal.commit(site.report(ids[at - 7], 1.0).records if (at - 7) % 3 == 0 else ())
        journal.commit(site.settle(float(at)).records)
        assert journal.load() == site.stored
    journal.commit(site.expire(25.0, NEVER).records)
    assert journal.load() == site.stored
    again = Site("here", WINDOW, journal.load(), counting())
    for shown in ("tried", "rewards", "releases", "own_means", "pending", "waiting", "late", "clock"):
        assert getattr(again, shown) == getattr(site, shown), shown
    journal.close()


# ---------------------------------------------------------------- the promise


def releases_of(terms, delays, rewards, seconds=80):
    """When something of arm 0 is released, and what, without noise; rewards come after their delays."""
    site = Site("here", terms, Stored(Numbering(1, 0)), lambda epsilon, count: [0] * count)
    seen, due = [], []
    for second in range(seconds):
        while site.is_due(float(second)):
            site.settle(float(second))
        if second < len(rewards):
            due.append((second + delays[second], second, site.decide(float(second), DRAWS).result.id))
        for it in [it for it in sorted(due) if it[0] <= second]:
            due.remove(it)
            site.report(it[2], rewards[it[1]])
        seen.append((site.releases, site.own_means))
    return seen


def test_with_a_window_releases_do_not_depend_on_when_rewards_come():
    random = Random(3)  # noqa: S311  # a simulation
    rewards = [random.random() for _ in range(40)]
    at_once = releases_of(WINDOW, [0] * 40, rewards)
    for _ in range(20):
        assert releases_of(WINDOW, [random.randrange(10) for _ in range(40)], rewards) == at_once


def test_with_a_window_one_reward_moves_one_release_whatever_its_delay():
    """Changed to anything, or to none, at once or late: all is the same up to the release that holds it."""
    before = releases_of(WINDOW, [0] * 40, [0.5] * 40)
    for changed in (0, 2, 5, 12, 25):
        for value, delay in ((0.0, 0), (1.0, 9), (1.0, 10), (1.0, 70)):
            delays, rewards = [0] * 40, [0.5] * 40
            delays[changed], rewards[changed] = delay, value
            other = releases_of(WINDOW, delays, rewards)
            moved = next((i for i, it in enumerate(before) if it[1] != other[i][1]), len(before))
            assert before[:moved] == other[:moved]
            if moved < len(before):  # the release that holds it, at its time; later choices may differ with it
                assert before[moved][0] == other[moved][0]
                assert before[moved][0] != before[moved - 1][0], "nothing moves but by a release"


@pytest.mark.slow
def test_an_attacker_by_delays_breaks_the_order_of_arrival_and_not_a_window():
    """The bound of a true claim exceeds it by chance less than once in a million."""
    broken = on_delays(1.0, opened=ArrivalSite, window=0.0)
    found = audit(broken.sample, broken.statistic, claimed=1.0, samples=1000)
    assert found.at_least >= 3.0
    assert found.refuted
    kept = on_delays(1.0)
    assert not audit(kept.sample, kept.statistic, claimed=1.0, samples=1000).refuted
