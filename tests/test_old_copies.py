"""Old and copied data folders: noticed, never released from twice, and brought back by a stated procedure.

Snapshots, image rollbacks and failovers put old files back every day. The schedules of faults at the end do so at any
point, and check that no reward is ever in two releases that others have seen.
"""

from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace

import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.agent.core.bounds import CENTURY
from fedbandit.agent.core.decisions import Request
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import Down, MemoryJournal, MemoryNetwork
from fedbandit.agent.core.messages import Seal
from fedbandit.agent.core.records import DecisionRecord, Known, Renewed
from fedbandit.agent.core.release_guard import FileIsCurrent, FileIsOld, Presence
from fedbandit.agent.core.site import DecisionNotFound, Site, SiteDraws
from fedbandit.agent.disk.journal import SqliteJournal
from test_agent_simulation import TERMS as FIVE
from test_agent_simulation import UNDERSTOOD, WINDOW, Story, Watched, check_rewards

TERMS = Federation("test", ("a", "b"), 0.0, 1.0, FedBatch(1.0, first_batch=4), counts="sites", max_agents=3)
DRAWS = SiteDraws((0.3, -0.2), 0.6)
TRIANGLE = [("a", "b"), ("b", "c"), ("c", "a")]
PAIR = [("a", "b")]


def teach(network, name, rewards=20, value=0.5):
    """Decisions with their rewards: enough for releases of both arms."""
    for _ in range(rewards):
        network.report(name, network.decide(name).id, value)


def talk(network, times=1):
    """Exchanges over each link, begun by both ends."""
    for _ in range(times):
        for a, b in network.links:
            for ends in ((a, b), (b, a)):
                network.exchange(*ends)
                network.run()


def releases(network, name):
    return sum(network.site(name).releases)


@pytest.fixture
def network():
    network = MemoryNetwork(TERMS, TRIANGLE, seed=3)
    for name in network.names:
        teach(network, name)
    talk(network, 3)
    return network


# ---------------------------------------------------------------- a start


def test_a_start_releases_nothing_until_neighbours_have_confirmed(network):
    network.restart("a")
    before = releases(network, "a")
    teach(network, "a", 60)
    site = network.site("a")
    assert (site.doubt.why, releases(network, "a")) == ("unconfirmed", before)
    assert (site.decided, site.waiting) == (80, 60)
    assert "fedbandit confirm" in site.warnings()[0]
    talk(network)
    network.decide("a")
    assert site.doubt is None
    assert releases(network, "a") > before, "what had waited counts now"


def test_a_new_site_need_not_ask():
    network = MemoryNetwork(TERMS, PAIR)
    teach(network, "a")
    assert network.site("a").doubt is None
    assert releases(network, "a") > 0


def test_a_site_that_never_had_a_neighbour_need_not_ask():
    site = Site("a", TERMS, MemoryJournal(1).load(), presence=Presence(1))
    site.decide(0.0, DRAWS)
    again = Site("a", TERMS, site.stored, presence=Presence(2))
    assert again.doubt is None
    again.join("b")
    assert again.doubt.why == "unconfirmed"


def test_a_start_waits_for_every_neighbour_however_often_another_confirms(network):
    network.restart("a")
    network.crash("c")
    for _ in range(100):
        network.exchange("a", "b")
        network.run(network.now + 100.0)
    site, before = network.site("a"), releases(network, "a")
    teach(network, "a", 60)
    assert (site.doubt.why, site.waits_for, releases(network, "a")) == ("unconfirmed", ("c",), before)
    assert "It waits for c." in site.warnings()[0]
    network.restart("c")
    talk(network)
    network.decide("a")
    assert (site.doubt, site.waits_for) == (None, ())
    assert releases(network, "a") > before


def test_a_neighbour_that_has_left_is_not_waited_for(network):
    network.restart("a")
    network.leave("c")
    talk(network)
    network.decide("a")
    assert network.site("a").doubt is None


def seen_by_c_alone(network):
    """A release of a was shown to c; then c cannot be reached, and a starts from a snapshot from before it."""
    snapshot = network.snapshot("a")
    teach(network, "a", 60)
    network.exchange("a", "c")
    network.run()
    network.crash("c")
    network.put_back("a", snapshot)
    network.restart("a")
    for _ in range(20):
        network.exchange("a", "b")
        network.run(network.now + 100.0)


def test_what_one_neighbour_has_seen_is_not_drawn_again_because_another_confirms(network):
    """Two draws of one batch in the hands of one neighbour cost epsilon twice."""
    seen_by_c_alone(network)
    before = releases(network, "a")
    teach(network, "a", 60)
    assert releases(network, "a") == before
    network.restart("c")
    talk(network)
    assert network.site("a").doubt.why == "old"
    teach(network, "a", 60)
    assert releases(network, "a") == before


def test_a_second_draw_is_named_by_all_who_can_see_it(network):
    """An operator has confirmed an old file. What c shows later is compared with the file as it was opened."""
    seen_by_c_alone(network)
    network.confirm("a")
    opened = releases(network, "a")
    teach(network, "a", 120)
    assert releases(network, "a") > opened + 5, "more than c knows of"
    network.restart("c")
    site = network.site("a")
    assert not any("twice" in it for name in network.names for it in network.site(name).warnings())
    talk(network)
    assert (site.doubt.why, site.doubt.by) == ("old", "c")
    assert any(it.startswith("rewards may have been released twice: c has seen") for it in site.warnings())
    assert any("a may have released rewards twice" in it for it in network.site("c").warnings())
    assert not any("twice" in it for it in network.site("b").warnings()), "it has seen one draw"
    network.restore("a")
    assert any("twice" in it for it in site.warnings()), "it is still true"


def test_a_neighbour_that_lost_its_disk_cannot_confirm():
    """It knows nothing of the file, and the file knows that it should."""
    network = MemoryNetwork(TERMS, PAIR)
    teach(network, "a")
    talk(network, 3)
    network.lose_disk("b")
    for name in network.names:
        network.restart(name)
    talk(network, 20)
    assert network.site("a").doubt.why == "unconfirmed"
    network.confirm("a")
    assert network.site("a").doubt is None


def test_an_answer_to_an_earlier_process_confirms_nothing(network):
    """It was given before the file was put back."""
    network.exchange("a", "b")
    offer = network._flying.pop()[2]
    answer = network.site("b").receive_offer(offer).result
    network.restart("a")
    network.site("a").receive_reply(answer)
    assert network.site("a").doubt.why == "unconfirmed"
    assert not network.site("a")._presence._confirmed_by


def test_while_nothing_is_released_decisions_stay(network):
    """Rewards that were acknowledged are not lost to age or number."""
    network.restart("a")
    teach(network, "a", 30)
    assert network.expire("a", before=10.0**9, keep=0) == 20, "those that were played before"
    assert network.site("a").waiting == 30
    talk(network)
    network.expire("a", before=10.0**9, keep=0)
    assert sum(network.site("a").rewards) == 50


# ---------------------------------------------------------------- a witness that no disk carries


@pytest.fixture
def witnessed(network):
    """The same, where a machine's memory outlives its agent."""
    network.has_witnesses = True
    teach(network, "a", 10)
    return network


@pytest.mark.parametrize("crash", [None, "after", "before", "torn"])
def test_a_killed_agent_goes_on_at_once_although_no_neighbour_answers(witnessed, crash):
    """Wherever it was killed: a witness that has not heard of the last commit knows no less than anybody else."""
    for name in ("b", "c"):
        witnessed.crash(name)
    witnessed.crash("a", crash)
    if crash is not None:
        with pytest.raises(Down):
            teach(witnessed, "a")
    witnessed.restart("a")
    before = releases(witnessed, "a")
    teach(witnessed, "a", 60)
    assert witnessed.site("a").doubt is None
    assert releases(witnessed, "a") > before


def test_a_snapshot_is_not_taken_for_the_latest_file(witnessed):
    snapshot = witnessed.snapshot("a")
    teach(witnessed, "a", 1)
    witnessed.put_back("a", snapshot)
    for _ in range(2):  # what it writes while it waits does not make it the latest
        witnessed.restart("a")
        before = releases(witnessed, "a")
        teach(witnessed, "a", 60)
        assert (witnessed.site("a").doubt.why, releases(witnessed, "a")) == ("unconfirmed", before)


def test_the_latest_file_is_known_again_after_a_snapshot_was_tried(witnessed):
    snapshot, latest = witnessed.snapshot("a"), None
    teach(witnessed, "a", 1)
    latest = witnessed.snapshot("a")
    witnessed.put_back("a", snapshot)
    witnessed.restart("a")
    teach(witnessed, "a", 60)
    witnessed.put_back("a", latest)
    witnessed.restart("a")
    assert witnessed.site("a").doubt is None


def test_a_snapshot_that_was_confirmed_leaves_the_latest_file_unknown(witnessed):
    """It has released: who puts the other file back must ask."""
    snapshot = witnessed.snapshot("a")
    teach(witnessed, "a", 1)
    latest = witnessed.snapshot("a")
    witnessed.put_back("a", snapshot)
    witnessed.restart("a")
    witnessed.confirm("a")
    teach(witnessed, "a", 1)
    witnessed.put_back("a", latest)
    witnessed.restart("a")
    assert witnessed.site("a").doubt.why == "unconfirmed"


def test_after_a_reboot_neighbours_are_asked(witnessed):
    witnessed.reboot("a")
    assert witnessed.site("a").doubt.why == "unconfirmed"
    talk(witnessed)
    witnessed.decide("a")
    witnessed.restart("a")
    assert witnessed.site("a").doubt is None, "it was confirmed, and is known again"


@pytest.mark.parametrize("why", ["old", "paused"])
def test_a_process_that_is_in_doubt_leaves_no_witness(witnessed, why):
    site = witnessed.site("a")
    if why == "paused":
        site.pause(10**6)
    else:
        assert after_a_copy_was_used(witnessed).doubt.why == "old"
    witnessed.decide("a")
    witnessed.restart("a")
    assert witnessed.site("a").doubt.why == "unconfirmed"


# ---------------------------------------------------------------- an old file


@pytest.mark.parametrize("told", ["releases", "exchanges"])
def test_an_old_file_is_noticed_and_releases_nothing(network, told):
    """Whether it lacks releases that a neighbour knows of, or only exchanges."""
    snapshot = network.snapshot("a")
    if told == "releases":
        teach(network, "a", 60)
    talk(network)
    network.put_back("a", snapshot)
    network.restart("a")
    before = releases(network, "a")
    talk(network, 3)
    teach(network, "a", 60)
    site = network.site("a")
    assert (site.doubt.why, releases(network, "a")) == ("old", before)
    assert "is old" in site.warnings()[0]
    with pytest.raises(FileIsOld, match="fedbandit restore"):
        network.confirm("a")
    assert site.doubt.why == "old"


def test_an_old_file_that_nobody_knows_better_goes_on(network):
    """What was lost was told to nobody: nothing can be released twice in anybody's eyes."""
    snapshot = network.snapshot("a")
    teach(network, "a", 60)
    network.put_back("a", snapshot)
    network.restart("a")
    talk(network)
    assert network.site("a").doubt is None


def test_ids_are_never_used_again(network):
    """The same file, the same time, the same number: a late reward cannot land on another patient's decision."""
    snapshot = network.snapshot("a")
    lost = [network.decide("a").id for _ in range(10)]
    network.put_back("a", snapshot)
    network.restart("a")
    again = [network.decide("a").id for _ in range(10)]
    assert [name.split("-")[0] for name in lost] == [name.split("-")[0] for name in again]
    assert not set(lost) & set(again)
    with pytest.raises(DecisionNotFound):
        network.report("a", lost[0], 0.5)


def test_restore_drops_what_may_have_been_released_and_keeps_the_rest(network):
    teach(network, "a", 3)
    open_before = network.decide("a")
    snapshot = network.snapshot("a")
    teach(network, "a", 60)
    talk(network)
    network.put_back("a", snapshot)
    network.restart("a")
    site = network.site("a")
    released, own = site.released, site.own
    collected = sum(site.rewards) - sum(released)
    mine = [network.decide("a") for _ in range(3)]
    network.report("a", mine[0].id, 1.0)
    talk(network)
    incarnation = site.incarnation
    restored = network.restore("a")
    assert (restored.rewards, restored.decisions, restored.kept) == (collected, 1, 3)
    assert collected > 0
    assert (site.doubt, site.released, site.own) == (None, released, own)
    assert site.rewards == released or site.waiting == 0
    assert site.incarnation > incarnation
    with pytest.raises(DecisionNotFound):
        network.report("a", open_before.id, 0.5)
    assert network.report("a", mine[1].id, 0.5)
    talk(network, 2)
    assert network.imbalance() <= 1e-12
    before = releases(network, "a")
    teach(network, "a", 60)
    assert releases(network, "a") > before
    talk(network, 40)
    assert network.disagreement() <= 1e-6


def test_what_is_restored_is_what_the_disk_knows(network):
    network.decide("a")
    network.restart("a")
    network.restore("a")
    site = network.site("a")
    assert network._disks["a"].load() == site.stored
    network.restart("a")
    assert network.site("a").own == site.own
    talk(network)
    assert network.site("a").doubt is None


def test_a_file_from_before_a_restored_incarnation_is_old(network):
    """It must not pass for a newer incarnation, whose clock stood behind."""
    snapshot = network.snapshot("a")
    network.restart("a")
    network.restore("a")
    talk(network, 2)
    lives = {link.neighbour: link.incarnation for link in network.site("b").links}
    network.put_back("a", snapshot)
    network.restart("a")
    talk(network, 2)
    assert network.site("a").doubt.why == "old"
    assert {link.neighbour: link.incarnation for link in network.site("b").links} == lives
    network.restore("a")
    talk(network, 3)
    assert network.site("a").doubt is None
    assert network.imbalance() <= 1e-12


def test_a_current_file_is_not_restored(network):
    with pytest.raises(FileIsCurrent):
        network.restore("a")


@pytest.mark.parametrize(
    ("policy", "kept"), [(FedUCB(10.0, horizon=200), False), (GossipUCB(), True)], ids=["fed_ucb", "gossip_ucb"]
)
def test_restored_trees_begin_anew_and_what_is_not_private_stays(policy, kept):
    """A later interval of a tree would hold a reward that an earlier incarnation has released in it already."""
    network = MemoryNetwork(replace(TERMS, policy=policy), PAIR)
    for name in network.names:
        teach(network, name)
    talk(network, 2)
    rewards = network.site("a").rewards
    network.restart("a")
    assert network.restore("a").rewards == (0 if kept else 20)
    assert network.site("a").rewards == (rewards if kept else (0, 0))
    talk(network, 3)
    assert network.imbalance() <= 1e-12
    teach(network, "a")
    network.restart("a")
    assert sum(network.site("a").rewards) == (40 if kept else 20)


def test_a_new_incarnation_in_a_real_file(tmp_path, network):
    """The same records in SQLite: marks begin anew, and what is dropped leaves the file."""
    journal = SqliteJournal(tmp_path / "a.db", "a", TERMS, 5)
    site = Site("a", TERMS, journal.load(), presence=Presence(1))
    journal.commit(site.join("b").records)
    for i in range(21):
        decided = site.decide(float(i), DRAWS)
        journal.commit(decided.records)
        journal.commit(site.report(decided.result.id, 0.5).records)
    site = Site("a", TERMS, journal.load(), presence=Presence(2))
    step = site.restore(77, 3)
    assert isinstance(step.records[0], Renewed)
    journal.commit(step.records)
    assert journal.load() == site.stored
    assert site.incarnation == 77
    journal.close()


def test_a_machine_whose_memory_was_rolled_back_is_old(network):
    """The same process, with the same run, from an earlier time: neighbours return what it never knew to have said."""
    disk, site = network.snapshot("a"), deepcopy(network.site("a"))
    teach(network, "a", 60)
    talk(network)
    network.put_back("a", disk)
    network._sites["a"] = site
    before = sum(site.releases)
    network.decide("a")
    talk(network)
    teach(network, "a", 60)
    assert (site.doubt.why, sum(site.releases)) == ("old", before)


def after_a_copy_was_used(network):
    """A copy of a's folder was started elsewhere and has released; then a goes on, and hears of it."""
    site, disk = network.site("a"), network._disks["a"]
    network._disks["a"] = network.snapshot("a")
    del network._sites["a"]
    network.restart("a")
    talk(network)
    teach(network, "a", 60)
    talk(network)
    network._sites["a"], network._disks["a"] = site, disk
    talk(network)
    return site


def test_a_copy_of_a_running_agent_leaves_nothing_to_release_of_what_both_hold(network):
    """Another process began with the file as it was a moment ago, and released: decisions until then are in doubt."""
    shared = network.decide("a")
    network.report("a", shared.id, 1.0)
    site = after_a_copy_was_used(network)
    assert site.doubt.why == "old"
    after = network.decide("a")
    assert network.restore("a").kept == 1
    assert after.id in site.stored.decisions
    assert shared.id not in site.stored.decisions or site.stored.decisions[shared.id].played
    assert site.rewards == site.released


def test_a_new_incarnation_that_could_not_be_written_has_not_begun(tmp_path, network):
    network.restart("a")
    network.decide("a")
    site = network.site("a")
    presence, before = site._presence, site.stored.numbering
    disk = network.snapshot("a")
    site.restore(99, 77)
    again = Site("a", TERMS, disk.load(), presence=presence)
    assert again.stored.numbering == before
    assert again.doubt.why == "unconfirmed"
    again.restore(99, 78)
    assert again.doubt is None


def test_a_neighbour_that_changes_its_run_all_the_time_fills_no_memory(network):
    site, other = network.site("a"), network.site("b")
    for run in range(1000, 1200):
        offer = other.offer("a").result
        site.receive_offer(replace(offer, seal=replace(offer.seal, run=run)))
    assert len(site._past_runs["b"]) <= 16


def test_a_copy_of_a_file_that_was_never_confirmed_leaves_nothing_of_what_both_hold(network):
    """A failover: the machine is cut off and restarts; its folder is started elsewhere, and released from."""
    network.restart("a")
    shared = network.decide("a")
    site = after_a_copy_was_used(network)
    assert site.doubt.why == "old"
    assert network.restore("a").kept == 0
    assert shared.id not in site.stored.decisions


def test_a_pause_is_like_a_start(network):
    """Another process may have been started meanwhile: nothing is released until neighbours have answered again."""
    site = network.site("a")
    site.pause(10**6)
    before = sum(site.releases)
    teach(network, "a", 60)
    assert (site.doubt.why, sum(site.releases)) == ("unconfirmed", before)
    talk(network)
    network.decide("a")
    assert site.doubt is None
    assert sum(site.releases) > before


def test_a_incarnation_that_a_liar_claims_does_not_become_the_sites(network):
    site = network.site("a")
    far = site.incarnation + CENTURY // 2
    site.receive_offer(replace(network.site("b").offer("a").result, to_incarnation=far, most=None))
    network.restart("a")
    network.restore("a")
    assert network.site("a").incarnation < far
    talk(network, 3)
    assert network.imbalance() <= 1e-12


def test_what_a_neighbour_told_of_processes_goes_when_it_leaves(network):
    site = network.site("a")
    offer = network.site("b").offer("a").result
    site.receive_offer(replace(offer, other=Seal(1, 0, 0, 77, site.run, 0, 0, True, bytes(16))))
    assert any("another process" in said for said in site.warnings())
    site.leave("b")
    assert not any("another process" in said for said in site.warnings())


# ---------------------------------------------------------------- two processes of one name


class Twins:
    """The process ``old`` and a copy of its file, ``new``, both of which talk to ``there``."""

    def __init__(self, is_same_file=True):
        self.there = started("there", MemoryJournal(1), 1)
        file = MemoryJournal(2)
        file.key = b"the file"
        self.old = started("a", file, 2)
        for site, other in ((self.there, "a"), (self.old, "there")):
            site.join(other)
        for _ in range(3):
            exchange(self.old, self.there)
        self.new = Site(
            "a", TERMS, fresh(self.old.stored, b"the file" if is_same_file else b"other"), silent, Presence(3)
        )

    def talk(self, times):
        for _ in range(times):
            for site in (self.old, self.new):
                exchange(site, self.there)
                exchange(self.there, site)


def silent(epsilon, count):
    return [0] * count


def started(name, file, run):
    site = Site(name, TERMS, file.load(), silent, Presence(run))
    for _ in range(20):
        site.report(site.decide(0.0, DRAWS).result.id, 0.5)
    return site


def fresh(stored, key):
    return replace(stored, key=key, decisions=dict(stored.decisions), links=dict(stored.links))


def exchange(one, other):
    one.receive_reply(other.receive_offer(one.offer(other.name).result).result)


def test_two_processes_of_one_file_both_stop_and_their_neighbour_says_so():
    twins = Twins()
    twins.talk(3)
    assert {twins.old.doubt.why, twins.new.doubt.why} <= {"split-brain", "old"}
    assert "two processes speak as a" in twins.there.warnings()[0]


def test_a_neighbour_that_comes_back_is_not_called_two_processes():
    """Its process was heard before its link was dropped: it has not been followed by another."""
    network = MemoryNetwork(TERMS, PAIR, seed=3)
    talk(network, 3)
    for name, other in (("a", "b"), ("b", "a")):
        network.site(name).leave(other)
        network.site(name).join(other)
    talk(network, 3)
    for name in network.names:
        assert not [it for it in network.site(name).warnings() if "two processes" in it]


def test_the_one_that_the_operator_confirms_goes_on():
    twins = Twins()
    twins.talk(3)
    assert twins.old.doubt.why == "split-brain"
    twins.old.confirm(4)
    for _ in range(3):
        exchange(twins.old, twins.there)
        exchange(twins.there, twins.old)
    assert twins.old.doubt is None
    assert not any("two processes" in said for said in twins.there.warnings())
    twins.talk(3)
    assert twins.old.doubt.why == "split-brain", "the other lives still"


def test_two_processes_with_different_files_are_said():
    """Neither can release what is in the other's file: a warning is enough."""
    twins = Twins(is_same_file=False)
    twins.talk(3)
    assert twins.old.doubt is None
    assert any("another process that has the name" in said for said in twins.old.warnings())
    assert "two processes speak as a" in twins.there.warnings()[0]


def test_messages_of_a_dead_process_that_come_late_prove_nothing(network):
    """Lost, late and repeated messages are no second process."""
    network.exchange("a", "b")
    late = network._flying.pop()[2]
    network.restart("a")
    talk(network)
    network.send(late)
    talk(network, 3)
    assert network.site("a").doubt is None
    assert not any("two processes" in said for name in network.names for said in network.site(name).warnings())


# ---------------------------------------------------------------- neighbours that lie


def test_a_neighbour_can_forge_no_seal(network):
    """Neither that the file is old nor that another process lives: nothing is held, at a start or later."""
    for restarted in (False, True):
        if restarted:
            network.restart("a")
        site = network.site("a")
        true = network.site("b").offer("a").result
        forged = Seal(site.incarnation, 10**6, 10**6, 77, site.run, 0, 0, True, bytes(16))
        for lie in ({"most": forged}, {"other": forged}, {"most": replace(true.most, releases=10**6)}):
            site.receive_offer(replace(network.site("b").offer("a").result, **lie))
            assert (None if site.doubt is None else site.doubt.why) == ("unconfirmed" if restarted else None)
        talk(network)
        assert site.doubt is None


def test_a_seal_for_another_neighbour_proves_nothing(network):
    """Neighbours that pass seals on cannot speak for each other."""
    snapshot = network.snapshot("a")
    teach(network, "a", 60)
    network.exchange("a", "c")
    network.run()
    network.put_back("a", snapshot)
    network.restart("a")
    site, of_c = network.site("a"), network.site("c").stored.links["a"].seals.most
    site.receive_offer(replace(network.site("b").offer("a").result, most=of_c))
    assert site.doubt.why == "unconfirmed"
    site.receive_offer(network.site("c").offer("a").result)
    assert site.doubt.why == "old"


def test_a_neighbour_that_names_later_lives_stops_no_other_link(network):
    """Each of its messages claims to know a later incarnation: only its own link is spoken of."""
    for _ in range(30):
        site = network.site("a")
        offer = network.site("b").offer("a").result
        site.receive_offer(
            replace(offer, to_incarnation=max(site.incarnation, site.stored.links["b"].own_incarnation) + 1)
        )
        before = site.stored.links["c"].register[1][0]
        network.exchange("c", "a")
        network.run()
        assert site.stored.links["c"].register[1][0] == before + 1, "the honest link no longer averages"
    talk(network, 3)
    assert network.imbalance() <= 1e-12


# ---------------------------------------------------------------- schedules of faults


class Released:
    """Which release holds the reward of which decision, from a disk's log. A copy of a disk shares its log so far."""

    def __init__(self):
        self.read, self.open, self.told = 0, {}, []

    def follow(self, disk):
        """Read what is new; ``told`` is a list of releases, each with the decisions in it."""
        for whole, records in disk._transactions[self.read :]:
            if not whole:
                break
            self.read += 1
            played = {}
            for record in records:
                match record:
                    case DecisionRecord(id=name, arm=arm, played=True):
                        played.setdefault(arm, []).append(name)
                    case Known(arm, fields) if arm >= 0:
                        self._place(arm, played.get(arm, []), fields, records)
                    case Renewed():
                        self.open = {}
        return self.told

    def _place(self, arm, names, fields, records):
        first = fields["n"] - len(names) + 1
        at = self.open.setdefault(arm, {}) | {first + i: name for i, name in enumerate(names)}
        inside = {name for place, name in at.items() if place <= fields["released"]}
        self.open[arm] = {place: name for place, name in at.items() if place > fields["released"]}
        if inside:
            self.told.append(((id(records), arm), inside))


class Seen(Watched):
    """Follows which releases others have seen: a message shows all that its sender had released when it was sent."""

    def __init__(self, *args, **options):
        self.followed, self.flying, self.shown = {}, {}, {}
        super().__init__(*args, **options)

    def followed_of(self, name):
        disk = self._disks[name]
        followed = self.followed.setdefault(id(disk), (disk, Released()))[1]
        return followed.follow(disk)

    def put_back(self, name, snapshot):
        super().put_back(name, snapshot)
        self.followed_of(name)

    def send(self, message):
        if message.sender in self._disks:
            told = self.followed_of(message.sender)
            self.flying[id(message)] = message, told, len(told)
        super().send(message)

    def _deliver(self, message):
        _, told, count = self.flying.get(id(message), (None, [], 0))
        cut = (message.sender in self._apart) != (message.receiver in self._apart)
        if not cut and message.receiver in self._sites:
            for identity, names in told[:count]:
                for name in names:
                    seen = self.shown.setdefault((message.sender, name), {})
                    seen[message.receiver] = identity
                    assert len({*seen.values()}) == 1, f"{message.sender}: the reward of {name} was released twice"
        super()._deliver(message)

    def lose_disk(self, name, clock_behind=False):
        super().lose_disk(name, clock_behind)
        self.forget(name)

    def leave(self, name):
        super().leave(name)
        self.forget(name)

    def forget(self, name):
        """What a site that is gone, or has lost its disk, has seen it can show nobody: see docs/operations.md."""
        for seen in self.shown.values():
            seen.pop(name, None)


class StoryOfCopies(Story):
    """A schedule in which snapshots are taken and put back at any time."""

    def __init__(self, seed, terms):
        self.copies, self.put_back, self.restored, self.ids = {}, 0, 0, set()
        super().__init__(seed, Seen, terms)
        self.network.has_witnesses, self.is_helped = seed % 4 < 2, seed % 3 > 0

    def fault(self):
        name = self.random.choice(self.network.names)
        what = self.random.random()
        if what < 0.25:
            self.copies[name] = (
                self.network.snapshot(name),
                [copy(its[name]) for its in self.told_by_now()],
            )
        elif what < 0.4 and name in self.copies:
            self.go_back(name)
        else:
            super().fault()
            for gone in self.copies.keys() - set(self.network.names):
                del self.copies[gone]  # it comes back as another

    def told_by_now(self):
        """All that the applications know, each by name of the site."""
        known = self.waiting, self.told, self.in_doubt, self.expired
        return *known, self.keys, self.lost_keys, self.cancelled, self.lost_cancels

    def on_a_fresh_disk(self, name):
        super().on_a_fresh_disk(name)
        self.copies.pop(name, None)

    def go_back(self, name):
        """An operator puts a snapshot back. Which neighbours can be asked then is left to chance, or they all can."""
        snapshot, then = self.copies[name]
        self.network.put_back(name, snapshot)
        self.disks.append(self.network._disks[name])
        for its, was in zip(self.told_by_now(), then, strict=True):
            its[name] = copy(was)
        self.put_back += 1
        self.network.run()  # what is under way arrives before anybody is asked
        if self.is_helped:
            self.ask_all()

    def ask_all(self):
        self.network.heal()
        for other in self.network.names:
            if other not in self.network.running:
                self.network.restart(other)
        faults, self.network.faults = self.network.faults, replace(self.network.faults, loss=0.0)
        for _ in range(3):
            self.sweep()
        self.network.faults = faults
        self.restore_old()

    def restore_old(self):
        for name in self.network.running:
            site = self.network.site(name)
            if site.doubt is not None and site.doubt.why == "old":
                with suppress(Down):
                    self.network.restore(name)
                    self.forget(name)

    def forget(self, name):
        """What a new incarnation has dropped is no longer expected."""
        self.restored += 1
        site = self.network.site(name)
        known = site.stored.decisions
        self.waiting[name] = [it for it in self.waiting[name] if it[0].id in known]
        self.told[name] = {key: it for key, it in self.told[name].items() if key in known}
        self.in_doubt[name] = {key: it for key, it in self.in_doubt[name].items() if key in known}
        self.lost_cancels[name] = [it for it in self.lost_cancels[name] if it.id in known]
        self.keys[name] = {
            key: (request, made)
            for key, (request, made) in self.keys[name].items()
            if all(it.id in known for it in made)
        }
        for k in range(site.terms.num_arms):
            self.expired[name][k] = site.rewards[k] - sum(it.played for it in known.values() if it.arm == k)

    def decide_or_report(self):
        super().decide_or_report()
        for waiting in self.waiting.values():
            self.ids |= {decision.id for decision, _ in waiting[-1:]}

    def sweep(self):
        for a, b in self.network.links:
            with suppress(Down):
                self.network.exchange(*((a, b) if self.random.random() < 0.5 else (b, a)))
            self.network.run()


def play_copies(seed, terms):
    story = StoryOfCopies(seed, terms)
    story.faulty()
    story.calm()
    network = story.network
    for _ in range(UNDERSTOOD):
        story.sweep()
    story.restore_old()
    for name in network.names:
        site = network.site(name)
        if site.waits == "for one":
            network.restore(name)  # no neighbour knows its file, for all have lost their disks: it may be old
            story.forget(name)
    for _ in range(UNDERSTOOD):
        story.sweep()
    assert network.imbalance() <= 1e-12
    assert not [name for name in network.names if network.site(name).doubt], "a site waits for ever"
    assert not [reason for reason in network.refused if "must be" in reason], "an honest message was refused"
    for name in network.names:
        check_rewards(story, name)
    return story


@pytest.mark.parametrize("block", range(2))
def test_copies_put_back_at_any_time_release_nothing_twice(block, fault_seeds):
    """No reward is in two releases that others have seen; sums are right, and nobody waits for ever."""
    put_back = restored = 0
    for seed in range(5000 + block * fault_seeds // 16, 5000 + (block + 1) * fault_seeds // 16):
        try:
            story = play_copies(seed, WINDOW if seed % 2 else FIVE)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        put_back, restored = put_back + story.put_back, restored + story.restored
    assert put_back > 2 * fault_seeds // 16
    assert restored > fault_seeds // 16


class TrustsItsFile(Presence):
    """A planted bug: a process takes its file for the latest."""

    def begin(self, stored):
        super().begin(stored)
        self.doubt = None

    def receive(self, *args):
        pass


def test_a_process_that_trusts_its_file_is_caught(monkeypatch):
    """The check can fail."""
    monkeypatch.setattr("fedbandit.agent.core.memory_network.Presence", TrustsItsFile)
    caught = 0
    for seed in range(5000, 5010):
        try:
            play_copies(seed, FIVE)
        except AssertionError as error:
            caught += "released twice" in str(error)
    assert caught > 0


def test_nothing_that_seals_and_holds_is_moved_by_a_reward(network):
    """Seals, runs and doubts are the same in two worlds that differ in rewards alone: only values tell."""

    def told(value):
        network = MemoryNetwork(TERMS, TRIANGLE, seed=3)
        messages = []
        carry = network.send
        network.send = lambda message: (messages.append(message), carry(message))
        for _ in range(2):
            for name in network.names:
                for i in range(21):  # arms in turn: the index would follow the values of releases, which are public
                    (decision,) = network.request(name, Request(eligible=(i % 2,)))
                    network.report(name, decision.id, value if name == "a" else 0.5)
            talk(network, 2)
            network.restart("a")
        return [(it.seal, it.other, it.most, it.to_run, it.incarnation, it.stamp) for it in messages]

    worlds = [told(value) for value in (0.0, 0.5, 1.0)]
    assert worlds[0] == worlds[1] == worlds[2]
