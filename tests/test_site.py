"""The site and its journal: each test is a sentence of docs/agent.md."""

import re
import shutil
import sqlite3
import tempfile
from copy import deepcopy
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from fedbandit import FedBatch, FedUCB, GossipUCB, InvalidArgument
from fedbandit.agent.core.bulletin import Signed, decode
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import (
    DecisionNotFound,
    DecisionRecord,
    Forgotten,
    Known,
    Numbering,
    OwnBulletin,
    Released,
    Step,
    Stored,
)
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import SCHEMA, JournalError, SqliteJournal
from fedbandit.testing.memory_network import Crashed, Down, MemoryJournal, MemoryNetwork, simulated_signature

TERMS = Federation("test", ("a", "b", "c"), 0.0, 1.0, FedBatch(1.0, first_batch=2), counts="sites", max_agents=3)
DRAWS = SiteDraws((0.3, -0.2, 0.1), 0.0)
MIDDLE = SiteDraws((0.0, 0.0, 0.0), 0.0)
NEVER = 10**9  # decisions are kept


def silent(epsilon, count):
    return [0] * count


def new_site(name="here", terms=TERMS, incarnation=1, neighbours=(), noise=silent):
    site = Site(name, terms, Stored(Numbering(incarnation, 0)), noise)
    site.link(neighbours)
    return site


def pull(site, reward=0.5, draws=DRAWS):
    decision = site.decide(0.0, draws).result
    site.report(decision.id, reward)
    return decision.arm


# ---------------------------------------------------------------- decisions


def test_unknown_arms_come_first_and_pending_decisions_count():
    """So that late rewards do not starve an arm."""
    site = new_site()
    assert [site.decide(0.0, DRAWS).result.arm for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert site.theta == (None, None, None)


def test_an_arm_is_known_after_its_own_release():
    site = new_site()
    for _ in range(6):
        pull(site, 0.25)
    assert site.theta == (0.25, 0.25, 0.25)
    assert site.own_means == (0.25, 0.25, 0.25)
    assert site.releases == (1, 1, 1)


def test_estimates_are_in_units_of_the_reward():
    """Whatever the range: the page counts in steps above its low end."""
    site = new_site(terms=replace(TERMS, low=-1.0, high=3.0))
    for _ in range(6):
        pull(site, 0.5)
    assert site.theta == site.own_means == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("index", ["thompson", "ucb", "kl"])
def test_known_arms_are_judged_by_the_index(index):
    site = new_site(terms=replace(TERMS, policy=FedBatch(5.0, index=index, first_batch=20)))
    arms = [pull(site, reward=0.9 if site.tried[2] < site.tried[1] else 0.1, draws=MIDDLE) for _ in range(60)]
    assert arms == [0, 1, 2] * 20
    best = max(range(3), key=lambda k: site.own_means[k])
    assert pull(site, draws=MIDDLE) == best == 2


def test_an_expired_decision_is_forgotten_and_counts_with_the_default():
    """Its slot is taken: what follows it must not move up."""
    site = new_site()
    first = site.decide(1.0, DRAWS).result
    second = site.decide(2.0, DRAWS).result
    step = site.expire(2.0, NEVER)
    assert step.result.total == 1
    assert step.records[0] == Forgotten(first.id)
    assert (site.tried, site.rewards) == ((1, 1, 0), (1, 0, 0))
    assert site.stored.known[0]["total"] == 0
    with pytest.raises(DecisionNotFound, match="expired"):
        site.report(first.id, 0.5)
    site.report(second.id, 0.5)
    assert site.expire(3.0, NEVER).records == (Forgotten(second.id),)
    assert (site.tried, site.rewards) == ((1, 1, 0), (1, 1, 0))


def test_time_never_goes_back():
    """A clock that was ahead and is set right: later decisions have the largest time seen."""
    site = new_site()
    assert [site.decide(at, DRAWS).result.at for at in (5.0, 9.0, 1.0, 9.5)] == [5.0, 9.0, 9.0, 9.5]
    again = Site("here", TERMS, site.stored, silent)
    assert again.clock == again.decide(2.0, DRAWS).result.at == 9.5


def test_ids_of_another_incarnation_are_unknown():
    """After a lost disk an old id must not name a new decision."""
    before, after = new_site(incarnation=1), new_site(incarnation=2)
    old, new = before.decide(0.0, DRAWS).result, after.decide(0.0, DRAWS).result
    assert old.number == new.number
    with pytest.raises(DecisionNotFound):
        after.report(old.id, 0.5)


# ---------------------------------------------------------------- rewards


@pytest.mark.parametrize("window", [0.0, 10.0])
def test_a_repeated_reward_changes_nothing_and_tells_nothing(window):
    """The first counts, before it is played and after: the answer is the same whatever the value."""
    site = new_site(terms=replace(TERMS, reward_window=window))
    decision = site.decide(0.0, DRAWS).result
    assert site.report(decision.id, 0.5).result
    for now in (1.0, 11.0):
        site.settle(now)
        before = deepcopy(site.stored)
        for value in (0.5, 0.0, 0.6, 1.0):
            assert site.report(decision.id, value) == Step(True)
        assert site.stored == before
    assert site.stored.decisions[decision.id].reward is None, "played: it is needed no longer"
    assert site.rewards[decision.arm] == 1


def test_ids_cannot_be_guessed():
    """128 bits that only the file's key tells: neither the number nor the time of a decision does."""
    ids = set()
    for key in (b"", b"k" * 32, b"l" * 32):
        for start in (0.0, 0.5):
            site = Site("here", TERMS, Stored(Numbering(1, 0), key=key), silent)
            ids |= {site.decide(start + i, DRAWS).result.id for i in range(50)}
    assert len(ids) == 300
    assert all(re.fullmatch("[1-9][0-9]*-[0-9a-f]{32}", name) for name in ids)
    tags = [int(name.split("-")[1], 16) for name in ids]
    for bit in range(128):  # 300 fair coins: beyond 75 of 150 with probability below 1e-17, 1e-15 for all bits
        assert 75 < sum(tag >> bit & 1 for tag in tags) < 225


def test_every_file_has_a_key_of_its_own(tmp_path):
    """Also after a lost disk; it stays when the file is opened again."""
    keys = []
    for name in ("a.db", "b.db", "a.db"):
        journal = open_journal(tmp_path / name)
        keys.append(journal.load().key)
        journal.close()
    assert len(keys[0]) == 32
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize(
    "reward", [nan, inf, -inf, -0.01, 1.01, "0.5", None, True, [0.5], 10**400], ids=lambda x: repr(x)[:9]
)
def test_a_bad_reward_changes_nothing(reward):
    site = new_site()
    decision = site.decide(0.0, DRAWS).result
    before = deepcopy(site.stored)
    with pytest.raises(InvalidArgument, match="reward"):
        site.report(decision.id, reward)
    assert site.stored == before


def test_a_release_is_among_the_records_of_its_reward():
    """The noisy value is committed with the reward that completes the batch, and the raw sum is gone."""
    site = new_site(noise=lambda epsilon, count: [1000] * count)
    ids = [site.decide(0.0, DRAWS).result.id for _ in range(4)]
    _, known, _ = site.report(ids[0], 0.5).records
    assert (type(known), known.arm, known.fields["n"], known.fields["total"]) == (Known, 0, 1, 2**15)
    _, known, released = site.report(ids[3], 0.5).records
    assert (known.arm, known.fields["n"], known.fields["total"]) == (0, 2, 0)
    assert known.fields["x_mean"] == (2**16 + 1000) / 2
    assert released == Released(0, 0, 2)


def test_a_site_is_private():
    """No infinite epsilon, no policy whose epsilon does not hold here."""
    for policy in (
        FedBatch(inf),
        FedBatch(1.0, catches_up=True),
        FedBatch(1.0, assume_sensitivity=1.0),
        FedUCB(inf, horizon=10),
        FedUCB(1.0),
        FedUCB(1.0, horizon=10, assume_sensitivity=1.0),
    ):
        with pytest.raises(InvalidArgument, match=r"policy\."):
            replace(TERMS, policy=policy)
    with pytest.raises(InvalidArgument, match="kl"):
        replace(TERMS, high=2.0, policy=FedBatch(1.0, index="kl"))


# ---------------------------------------------------------------- bulletins


def pair(incarnation=1, terms=TERMS):
    here = new_site("here", terms, neighbours=["there"], incarnation=incarnation)
    return here, new_site("there", terms, neighbours=["here"])


def publish(site, now=0.0):
    return site.publish(simulated_signature(site.name), now).result


def exchange(one, other):
    """Both publish and say what they have; each sends what the other lacks."""
    for site in (one, other):
        publish(site)
    haves = dict(one.have()), dict(other.have())
    one.receive_have(other.name, haves[1])
    other.receive_have(one.name, haves[0])
    for to, by, have in ((other, one, haves[1]), (one, other, haves[0])):
        for signed in by.newer_than(have, to.name):
            to.merge(signed, by.name, 1e6)


def teach(site, reward):
    for _ in range(6):
        pull(site, reward)


def test_after_an_exchange_both_believe_the_mean():
    here, there = pair()
    teach(here, 0.25)
    teach(there, 0.75)
    exchange(here, there)
    assert here.theta == there.theta == (0.5, 0.5, 0.5)
    assert here.own_means == (0.25, 0.25, 0.25)
    assert here.num_agents == there.num_agents == 2
    assert here.errors == there.errors


def test_what_others_have_released_makes_an_arm_known():
    """A site that joins uses what the network knows, at once: it does not begin with a batch of every arm."""
    here, there = pair()
    publish(here)
    assert here.theta == (None, None, None)
    teach(there, 0.75)
    here.merge(publish(there) or there.board.held("there").signed, "there", 0.0)
    assert here.weights == (0.5, 0.5, 0.5)
    assert here.theta == (0.75, 0.75, 0.75)


def test_under_the_papers_policies_a_site_tries_every_arm_itself():
    """Algorithm 1, line 1: what others have pulled does not stand for an own pull."""
    here, there = pair(terms=replace(TERMS, policy=GossipUCB()))
    teach(there, 0.75)
    exchange(here, there)
    assert here.theta == (None, None, None)
    assert [pull(here) for _ in range(3)] == [0, 1, 2]


def test_a_site_counts_what_it_has_released_before_it_has_published_it():
    site = new_site()
    teach(site, 0.25)
    assert site.board.held("here") is None
    assert site.theta == (0.25, 0.25, 0.25)
    publish(site)
    assert site.theta == (0.25, 0.25, 0.25)
    assert site.board.sites == ("here",)


def test_a_bulletin_holds_what_was_released_and_nothing_else():
    site = new_site()
    decisions = [site.decide(0.0, DRAWS).result for _ in range(7)]
    for decision in (decisions[0], decisions[3], decisions[6]):  # of the first arm: a batch of two, and one more
        site.report(decision.id, 0.75)
    bulletin = decode(publish(site).body, 3)
    assert [(it.releases, it.rewards, it.decisions) for it in bulletin.arms] == [(1, 2, 3), (0, 0, 2), (0, 0, 2)]
    assert bulletin.arms[0].row[0] == 0.75 * 2**16
    assert bulletin.arms[1].row[:2] == (0.0, 0.0)
    assert (bulletin.decisions, bulletin.place) == (7, (1, 1))


def test_releases_are_news_at_once_and_decisions_once_a_second():
    site = new_site()
    publish(site, 100.0)
    site.decide(100.0, DRAWS)
    assert not site.has_news(100.9)
    assert publish(site, 100.9) is None
    assert site.has_news(101.0)
    assert decode(publish(site, 101.0).body, 3).decisions == 1
    teach(site, 0.5)
    assert site.has_news(101.0)
    publish(site, 101.0)
    assert not site.has_news(200.0)
    site.change_arm("suspend", "a", 0)
    assert site.has_news(101.0)


def test_a_reward_that_is_not_released_makes_no_news():
    """Nor does one that waits for the end of its window, whenever it comes."""
    for window in (0.0, 10.0):
        site = new_site(terms=replace(TERMS, reward_window=window, policy=FedBatch(1.0, first_batch=9)))
        made = [site.decide(0.0, DRAWS).result for _ in range(6)]
        publish(site, 1.0)
        for it in made:
            site.report(it.id, 1.0)
            assert not site.has_news(5.0)


def test_an_own_bulletin_is_written_before_it_is_sent():
    site = new_site()
    step = site.publish(simulated_signature("here"), 0.0)
    assert step.records == (OwnBulletin(step.result),)
    again = Site("here", TERMS, site.stored, silent)
    teach(again, 0.5)
    assert decode(publish(again).body, 3).place == (1, 2)


def test_a_site_that_is_excluded_does_not_count_and_is_passed_on():
    here, there = pair()
    teach(here, 0.25)
    teach(there, 0.75)
    exchange(here, there)
    here.exclude("there", 5, "wrong units")
    assert (here.theta, here.num_agents) == ((0.25, 0.25, 0.25), 1)
    assert [decode(it.body, 3).site for it in here.newer_than({}, "third")] == ["here", "there"]
    again = Site("here", TERMS, here.stored, silent)
    assert again.num_agents == 1
    assert again.stored.excluded["there"].reason == "wrong units"
    assert any("there is excluded here" in it for it in here.warnings())
    here.include("there")
    assert (here.theta, here.num_agents) == ((0.5, 0.5, 0.5), 2)
    with pytest.raises(InvalidArgument, match=r"name must be one of there, not 'ther'"):
        here.exclude("ther", 5)


def test_what_is_impossible_changes_nothing():
    here, there = pair()
    teach(there, 0.75)
    publish(there)
    bulletin = there.board.held("there").bulletin
    before = deepcopy(here.stored)
    for wrong in ({"federation": "other"}, {"incarnation": 2**52}):
        body = replace(bulletin, **wrong).encode()
        with pytest.raises(InvalidArgument):
            here.merge(Signed(body, *simulated_signature("there")(body)), "there", 0.0)
    assert here.stored == before
    assert here.board.sites == ()
    with pytest.raises(InvalidArgument):
        here.link(["here"])
    with pytest.raises(InvalidArgument):
        here.exclude("here", 0)


def test_the_board_survives_a_restart():
    here, there = pair()
    teach(there, 0.75)
    exchange(here, there)
    assert here.board_rows().records
    assert here.board_rows().records == (), "it is written"
    again = Site("here", TERMS, here.stored, silent)
    assert again.theta == here.theta
    assert dict(again.board.have()) == dict(here.board.have())


# ---------------------------------------------------------------- the journal


def open_journal(path, name="here", terms=TERMS, incarnation=1):
    return SqliteJournal(path, name, terms, incarnation)


def drive(site, journal, rounds=12):
    """A story with all kinds of records; what was stored after each commit."""
    states = []

    def do(step):
        journal.commit(step.records)
        states.append(deepcopy(site.stored))
        return step.result

    other = new_site("there", neighbours=["here"])
    do(site.link(["there", "third"]))
    do(site.link(["there"]))
    for i in range(rounds):
        decision = do(site.decide(float(i), DRAWS))
        do(site.report(decision.id, 1.0 / 3.0))
        pull(other, 0.1)
        do(site.receive_have("there", {}))
        do(site.publish(simulated_signature("here"), float(i)))
        do(site.merge(publish(other, 10.0 * i), "there", float(i)))
        if i % 4 == 3:
            do(site.board_rows())
        if i == 8:
            do(site.expire(4.0, NEVER))
            do(site.exclude("there", 5, "wrong units"))
    do(site.include("there"))
    do(site.change_arm("suspend", "a", 7, "recalled"))
    do(site.board_rows())
    return states


def test_the_file_knows_all_that_memory_does(tmp_path):
    path = tmp_path / "here.db"
    journal = open_journal(path)
    site = Site("here", TERMS, journal.load(), silent)
    drive(site, journal)
    assert journal.load() == site.stored
    journal.close()
    journal = open_journal(path, incarnation=99)
    again = Site("here", TERMS, journal.load(), silent)
    journal.close()
    assert again.stored == site.stored
    assert (again.tried, again.theta, again.neighbours) == (site.tried, site.theta, site.neighbours)
    assert again.incarnation == 1, "the incarnation given is for a new file only"


def test_a_torn_last_write_is_dropped(tmp_path):
    """Cut the log anywhere: what comes back is what was committed up to some event, and later cuts keep more.

    As long as the counter has not counted what was cut: ``test_damaged_files`` has the rest.
    """
    path = tmp_path / "here.db"
    journal = open_journal(path)
    site = Site("here", TERMS, journal.load(), silent)
    states = [deepcopy(site.stored), *drive(site, journal)]
    log = (tmp_path / "here.db-wal").read_bytes()
    (tmp_path / "cut").mkdir(mode=0o700)
    found = []
    for length in range(0, len(log) + 1, max(1, len(log) // 97)):
        cut = tmp_path / "cut" / "here.db"
        shutil.copy(path, cut)
        (tmp_path / "cut" / "here.db-wal").write_bytes(log[:length])
        (tmp_path / "cut" / "here.db-wal").chmod(0o600)
        survivor = SqliteJournal(cut, "here", TERMS, 1, accept_old=True)
        stored = survivor.load()
        survivor.close()
        found.append(max((i for i, state in enumerate(states) if state == stored), default=None))
        for file in (tmp_path / "cut").iterdir():
            file.unlink()
    journal.close()
    assert None not in found
    assert found == sorted(found)
    assert len(set(found)) > 20


def test_a_commit_waits_for_the_disk(tmp_path):
    """No test can cut the power; what SQLite then promises depends on these settings."""
    journal = open_journal(tmp_path / "here.db")
    settings_of = {
        name: journal._file.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("synchronous", "journal_mode", "secure_delete", "temp_store")
    }
    journal.close()
    assert settings_of.pop("synchronous") == 2, "FULL: the log is synced at every commit"
    assert settings_of == {"journal_mode": "wal", "secure_delete": 1, "temp_store": 2}, "2 is MEMORY"


def test_an_interval_is_written_once(tmp_path):
    """Also if a site should ask for it: the file refuses, and nothing of that event is kept."""
    journal = open_journal(tmp_path / "here.db")
    site = Site("here", TERMS, journal.load(), silent)
    for _ in range(7):
        decision = site.decide(0.0, DRAWS)
        journal.commit(decision.records)
        journal.commit(site.report(decision.result.id, 0.5).records)
    before = journal.load()
    assert before.released == {(0, 0): 2, (1, 0): 2, (2, 0): 2}
    for last in (1, 2):
        with pytest.raises(JournalError, match=f"pull {last} of arm 0 has been released already at level 0"):
            journal.commit([DecisionRecord("99", 99, 0, 0.0), Released(0, 0, last)])
        assert journal.load() == before
    journal.commit([Released(0, 0, 3)])
    journal.close()


def test_a_site_is_in_memory_once(tmp_path):
    """What the page knows is in the mechanism; the rest of the site holds no copy of it."""
    journal = open_journal(tmp_path / "here.db")
    site = Site("here", TERMS, journal.load(), silent)
    drive(site, journal)
    again = Site("here", TERMS, journal.load(), silent)
    journal.close()
    for one in (site, again):
        assert (one._stored.known, one._stored.released) == ({}, {})
        assert one.stored.known
        assert one.stored.released


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda fields: fields.pop("x_mean"), "x_mean is missing"),
        (lambda fields: fields.update(x_men=0.0), "x_men is unknown"),
        (lambda fields: fields.update(n=-1), "n of arm 0 must be a whole number"),
        (lambda fields: fields.update(n=1.5), "n of arm 0 must be a whole number"),
        (lambda fields: fields.update(total="a"), "total of arm 0 must be a finite number"),
        (lambda fields: fields.update(precision=nan), "precision of arm 0 must be a finite number"),
        (lambda fields: fields.update(n=0, released=0), "n of arm 0 must be that of a row as new as the release up to"),
        (lambda fields: fields.update(released=0), "n of arm 0 must be that of a row as new as the release up to"),
    ],
)
def test_rows_that_the_page_cannot_know_are_refused_with_the_reason(change, reason, tmp_path):
    journal = open_journal(tmp_path / "here.db")
    drive(Site("here", TERMS, journal.load(), silent), journal)
    fields = journal.load().known[0]
    change(fields)
    journal.commit([Known(0, fields)])
    with pytest.raises(JournalError, match=reason):
        journal.load()
    journal.close()


def test_rows_of_an_arm_that_is_none_are_refused(tmp_path):
    journal = open_journal(tmp_path / "here.db")
    drive(Site("here", TERMS, journal.load(), silent), journal)
    journal.commit([Known(3, journal.load().known[0])])
    with pytest.raises(JournalError, match="arm must be a whole number from -1 to 2, not 3"):
        journal.load()
    journal.close()


def test_a_file_that_does_not_fit_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "here.db"
    open_journal(path).close()
    with pytest.raises(JournalError, match="belongs to the agent 'here'"):
        open_journal(path, name="there")
    with pytest.raises(
        JournalError,
        match=r"state file .*here.db .*other terms\. high: 2\.0 here, 1\.0 there .*or, for a new federation, .*: move ",
    ):
        open_journal(path, terms=replace(TERMS, high=2.0))
    with pytest.raises(JournalError, match=r"policy\.epsilon: 2\.0 here, 1\.0 there"):
        open_journal(path, terms=replace(TERMS, policy=FedBatch(2.0, first_batch=2)))
    held = open_journal(path)
    with pytest.raises(JournalError, match="another process holds it"):
        open_journal(path)
    held.close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 1")
    raw.close()
    with pytest.raises(JournalError, match=f"schema is 1, this version of the agent reads {SCHEMA} alone"):
        open_journal(path)
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(JournalError, match="not a database"):
        open_journal(path)
    with pytest.raises(JournalError, match="unable to open"):
        open_journal(tmp_path / "no folder" / "here.db")


def test_a_full_disk_refuses_the_event_and_keeps_the_rest(tmp_path):
    """The driver throws the site away and loads what the file holds."""
    journal = open_journal(tmp_path / "here.db")
    site = Site("here", TERMS, journal.load(), silent)
    journal.commit(site.link(["there"]).records)
    committed = deepcopy(site.stored)
    (pages,) = journal._file.execute("PRAGMA page_count").fetchone()
    journal._file.execute(f"PRAGMA max_page_count = {pages}")
    error = None
    while error is None:
        try:
            journal.commit(site.decide(0.0, DRAWS).records)
            committed = deepcopy(site.stored)
        except JournalError as full:
            error = full
    assert "full" in str(error)
    assert journal.load() == committed
    assert site.stored != committed
    journal.close()


@given(st.integers(2, 9).map(lambda n: tuple(range(n))), st.floats(0.01, 10))
def test_the_hash_tells_terms_apart(arms, high):
    terms = Federation("f", tuple(str(k) for k in arms), 0, high, FedBatch(1.0), max_agents=3)
    assert terms.digest() == replace(terms).digest()
    for other in (
        replace(terms, name="g"),
        replace(terms, max_agents=4),
        replace(terms, arms=(*terms.arms, "new")),
        replace(terms, low=-1.0),
        replace(terms, policy=FedBatch(1.5)),
    ):
        assert other.digest() != terms.digest()


@pytest.mark.parametrize("where", ["before", "torn", "after"])
def test_a_disk_in_memory_fails_where_it_is_told(where):
    disk = MemoryJournal(1)
    disk.commit([Numbering(1, 1)])
    disk.crash_at_next_write = where
    disk.commit([])
    with pytest.raises(Crashed):
        disk.commit([Numbering(1, 2)])
    assert disk.load().numbering == Numbering(1, 2 if where == "after" else 1)


def test_who_is_down_does_not_answer():
    network = MemoryNetwork(TERMS, [("a", "b")])
    network.crash("a")
    with pytest.raises(Down):
        network.decide("a")
    network.exchange("b", "a")
    network.run()
    network.restart("a")
    assert network.decide("a").arm == 0


# ---------------------------------------------------------------- any story


class SiteAndJournal(RuleBasedStateMachine):
    """One site on SQLite beside one in memory: application, messages, crashes, in any order."""

    terms = TERMS
    ids = Bundle("ids")
    messages = Bundle("messages")

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now, self.told, self.forgotten, self.draws = 0.0, {}, 0, 0
        self.journal = open_journal(f"{self.folder.name}/here.db", terms=self.terms)
        self.site = Site("here", self.terms, self.journal.load(), self.noise)
        self.do(self.site.link(["there"]))
        self.other = new_site("there", self.terms, neighbours=["here"])
        self.sent = []
        self.released = {}

    def noise(self, epsilon, count):
        self.draws += 1
        return [1000 * self.draws] * count

    def do(self, step):
        self.journal.commit(step.records)
        return step.result

    def restart(self):
        self.journal.close()
        self.journal = open_journal(f"{self.folder.name}/here.db", terms=self.terms, incarnation=1000)
        self.site = Site("here", self.terms, self.journal.load(), self.noise)

    @rule(target=ids)
    def decide(self):
        self.now += 1.0
        return self.do(self.site.decide(self.now, DRAWS)).id

    @rule(name=ids, reward=st.integers(0, 4).map(lambda n: n / 4))
    def report(self, name, reward):
        if name not in self.site.stored.decisions:
            with pytest.raises(DecisionNotFound):
                self.site.report(name, reward)
        elif name in self.told:
            assert self.site.report(name, reward) == Step(True), "whatever its value"
        else:
            late = self.now - self.site.stored.decisions[name].at >= self.terms.reward_window > 0.0
            assert self.do(self.site.report(name, reward)) == (not late)
            if not late:
                self.told[name] = reward

    @rule(name=ids, reward=st.integers(0, 4).map(lambda n: n / 4))
    def dies_before_the_commit(self, name, reward):
        if name in self.site.stored.decisions and name not in self.told:
            self.site.report(name, reward)
        self.restart()

    @rule()
    def settle(self):
        self.do(self.site.settle(self.now))

    @rule()
    def dies_while_it_settles(self):
        self.site.settle(self.now)
        self.restart()

    @rule()
    def dies(self):
        self.restart()

    @rule(age=st.integers(0, 20))
    def expire(self, age):
        before = set(self.site.stored.decisions)
        self.do(self.site.expire(self.now - age, NEVER))
        self.forgotten += len(before - set(self.site.stored.decisions))
        for name in before - set(self.site.stored.decisions):
            self.told.pop(name, None)

    @rule()
    def publish(self):
        signed = self.do(self.site.publish(simulated_signature("here"), self.now))
        self.sent += [signed] if signed is not None else []

    @rule(target=messages)
    def the_other_publishes(self):
        pull(self.other, 0.75)
        return publish(self.other, self.now) or self.other.board.held("there").signed

    @rule(signed=messages)
    def a_bulletin_comes(self, signed):
        """Once, or again, in any order."""
        self.do(self.site.merge(signed, "there", self.now))

    @rule()
    def the_board_is_written(self):
        self.do(self.site.board_rows())

    @rule(incarnation=st.integers(2, 9))
    def the_other_loses_its_disk(self, incarnation):
        self.other = new_site("there", self.terms, neighbours=["here"], incarnation=incarnation)

    @rule()
    def its_operator_excludes_the_other_and_includes_it(self):
        if "there" in self.site.board.sites:
            self.do(self.site.exclude("there", 0))
            assert "there" not in self.site.board.counted()
            self.do(self.site.include("there"))

    @rule()
    def both_have_all(self):
        """Then they believe the same."""
        self.do(self.site.publish(simulated_signature("here"), self.now))
        publish(self.other, self.now)
        for signed in self.site.newer_than(self.other.have(), "there"):
            self.other.merge(signed, "here", self.now)
        for signed in self.other.newer_than(self.site.have(), "here"):
            self.do(self.site.merge(signed, "there", self.now))
        assert dict(self.site.board.have()) == dict(self.other.board.have())
        both = [(x, y) for x, y in zip(self.site.theta, self.other.theta, strict=True) if None not in (x, y)]
        assert all(x == y for x, y in both)

    @invariant()
    def disk_and_memory_agree(self):
        stored = self.journal.load()
        assert stored == self.site.stored
        again = Site("here", self.terms, stored, silent)
        for seen in ("tried", "own_means", "releases"):  # what others have said is heard again, if it was not written
            assert getattr(again, seen) == getattr(self.site, seen)

    @invariant()
    def acknowledged_rewards_are_counted_once(self):
        stored = self.site.stored
        assert {name for name, d in stored.decisions.items() if d.rewarded} == set(self.told)
        waiting = {name: d.reward for name, d in stored.decisions.items() if d.reward is not None}
        assert waiting.items() <= self.told.items()
        assert not any(stored.decisions[name].played for name in waiting), "a raw reward that has counted"
        defaults = sum(d.played and not d.rewarded for d in stored.decisions.values())
        assert sum(self.site.rewards) + self.site.waiting == len(self.told) + defaults + self.forgotten
        assert defaults == 0 or self.terms.reward_window

    @invariant()
    def slots_are_played_in_order(self):
        for k in range(3):
            played = [d.played for d in self.site.stored.decisions.values() if d.arm == k]
            assert played == sorted(played, reverse=True)

    @invariant()
    def no_interval_has_two_values(self):
        """The own mean after so many releases is what it was, whatever has happened since."""
        for k, releases in enumerate(self.site.releases):
            assert self.released.setdefault((k, releases), self.site.own_means[k]) == self.site.own_means[k]

    @invariant()
    def numbers_of_bulletins_only_grow(self):
        places = [decode(it.body, len(self.terms.page.published_names)).place for it in self.sent]
        assert places == sorted(set(places))

    def teardown(self):
        self.journal.close()
        self.folder.cleanup()


class TreeAndJournal(SiteAndJournal):
    """The same with Fed_UCB, whose trees and counts must survive."""

    terms = replace(TERMS, policy=FedUCB(1.0, horizon=1000))


class WindowAndJournal(SiteAndJournal):
    """The same with a window: rewards wait, and missing ones count with the default."""

    terms = replace(TERMS, reward_window=5.0, default_reward=0.25)


TestSiteAndJournal = SiteAndJournal.TestCase
TestSiteAndJournal.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestTreeAndJournal = TreeAndJournal.TestCase
TestTreeAndJournal.settings = TestSiteAndJournal.settings
TestWindowAndJournal = WindowAndJournal.TestCase
TestWindowAndJournal.settings = TestSiteAndJournal.settings


def test_a_subclass_of_a_policy_is_no_term_of_a_federation():
    """Its page could publish raw sums under the digest of the policy that it pretends to be."""

    class Loud(FedBatch):
        pass

    with pytest.raises(InvalidArgument, match="Loud is a subclass of a built-in policy"):
        Federation("f", ("a", "b"), 0.0, 1.0, Loud(1.0), max_agents=3)


def test_a_disk_in_memory_refuses_a_second_release_as_a_real_one_does():
    disk = MemoryJournal(1)
    disk.commit([Released(0, 0, 12)])
    for last in (12, 3):
        with pytest.raises(InvalidArgument, match="released must be beyond pull 12"):
            disk.commit([Released(0, 0, last)])
    assert disk.load().released == {(0, 0): 12}
