"""Boards: merging is idempotent, commutative and monotone, boards that have exchanged are equal, also with conflicts.

And what a bulletin may hold: every text but the one that a site writes is refused, in words that name the field.
"""

import json
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit import FedBatch
from fedbandit.agent.core.arms import KEPT_FOR_STOPS, MAX_ADDED, MAX_CHANGES, ArmChange, ArmChanged, Arms, receipts_of
from fedbandit.agent.core.board import Board, Version
from fedbandit.agent.core.bulletin import (
    CENTURY,
    MAX_BODY,
    MAX_COUNT,
    MAX_HISTORY,
    MAX_NAME,
    MAX_TIME,
    ArmEntry,
    Bulletin,
    Signed,
    decode,
)
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.gossip import frames
from fedbandit.agent.http.bodies import HttpError, read_object
from fedbandit.agent.process.addresses import site_name
from fedbandit.checks import InvalidArgument
from fedbandit.strict_json import TooDeep, parse_json
from fedbandit.testing.memory_network import MemoryNetwork

TERMS = Federation("test", ("a", "b"), 0.0, 1.0, FedBatch(1.0))
NOW = 1000.0


def entry(arm="a", mean=30_000.0, releases=1, weight=0.01, decisions=None):
    rewards = (0, 12, 24, 36)[releases]
    return ArmEntry(arm, (mean, 1.0, weight), releases, rewards, rewards if decisions is None else decisions)


def bulletin(site="north", number=1, incarnation=1, **fields):
    return Bulletin(TERMS.digest(), site, incarnation, number, 0, **fields)


def signed(*args, **fields):
    return Signed(bulletin(*args, **fields).encode(), b"", b"")


def board(*bulletins, own="own", terms=TERMS, rows=()):
    found = Board(own, terms, rows)
    for it in bulletins:
        found.merge(it, NOW)
    return found


def state(it):
    """All that must be equal on two boards."""
    return (
        {site: it.have()[site] for site in it.sites},
        {site: {x.digest for x in it.to_send(site)} for site in it.sites},
        it.counted(),
        [it.rows(arm) for arm in TERMS.arms],
    )


def exchange(one, other):
    """A link opens: both say what they have, and send what the other lacks."""
    there, here = one.newer_than(dict(other.have())), other.newer_than(dict(one.have()))
    for it in there:
        other.merge(it, NOW)
    for it in here:
        one.merge(it, NOW)


# ---------------------------------------------------------------- laws


places = st.tuples(st.integers(1, 2), st.integers(1, 4))
answers = st.sampled_from([(0, 0), (0, 0), (1, 2), (1, 4), (2, 1)])
several = st.lists(st.tuples(st.sampled_from(["north", "south"]), places, answers, st.integers(1, 3)), max_size=14)
"""Bulletins of two sites: up to three processes may write one place, and an operator may answer."""


def made(said):
    """The bulletins of ``several``."""
    return [
        signed(site, n, born, answers=known if known < (born, n) else (0, 0), run=run, arms=(entry(mean=7.0 * run),))
        for site, (born, n), known, run in said
    ]


thorough = settings(max_examples=500, deadline=None)


@thorough
@given(several)
def test_merging_again_changes_nothing(bulletins):
    it = board(*made(bulletins))
    before = state(it)
    for x in (*it.newer_than({}), *(held.signed for site in it.sites if (held := it.held(site)))):
        assert it.merge(x, NOW).kind == "known"
    assert state(it) == before


@thorough
@given(several, several)
def test_one_exchange_makes_two_boards_equal(some, others):
    """Whatever each had received, in whatever order: losses and repetitions are a part of that."""
    first = {(site, place): (site, place, known, run) for site, place, known, run in (*some, *others)}
    one, other = ([first[site, place] for site, place, *_ in received] for received in (some, others))
    one, other = board(*made(one)), board(*made(other))
    exchange(one, other)
    assert state(one) == state(other)
    assert one.newer_than(other.have()) == other.newer_than(one.have()) == []


@thorough
@given(several, several)
def test_where_processes_have_written_over_each_other_three_exchanges_suffice(some, others):
    """Each may have dropped what counts with the conflict of which the other tells."""
    one, other = board(*made(some)), board(*made(others))
    for _ in range(3):
        exchange(one, other)
    assert state(one) == state(other)
    assert one.newer_than(other.have()) == other.newer_than(one.have()) == []


@thorough
@given(several, st.randoms(use_true_random=False))
def test_the_order_of_merging_does_not_matter(bulletins, random):
    """Of bulletins with different places; of two with one place a board may have dropped the first before the second
    came, and others tell it of the proof."""
    different = made({(site, place): (site, place, *rest) for site, place, *rest in bulletins}.values())
    shuffled = [*different, *different[:3]]
    random.shuffle(shuffled)
    assert state(board(*different)) == state(board(*shuffled))


@thorough
@given(several)
def test_nothing_falls_and_a_proof_stays_until_it_is_answered(bulletins):
    it = board()
    for x in made(bulletins):
        before, conflicts = dict(it.have()), dict(it.conflicts)
        it.merge(x, NOW)
        after = it.have()
        for site, version in before.items():
            assert after[site].place >= version.place
            newest = it.held(site).bulletin
            if site in conflicts and newest.answers < conflicts[site].place:
                assert it.conflicts[site].place <= conflicts[site].place
                assert it.counting(site) is None or it.counting(site).place < conflicts[site].place
            if site not in it.conflicts:
                assert it.counting(site) is it.held(site)


@settings(max_examples=300, deadline=None)
@given(st.lists(several, min_size=5, max_size=5), st.randoms(use_true_random=False))
def test_a_path_of_five_boards_becomes_equal(all_received, random):
    """A link passes on what is new, so each opens again after what it has heard."""
    boards = [board(*made(received)) for received in all_received]
    links = list(pairwise(boards))
    for _ in range(10):
        random.shuffle(links)
        for link in links:
            exchange(*link)
    assert all(state(it) == state(boards[0]) for it in boards)


@settings(max_examples=300, deadline=None)
@given(several)
def test_a_board_that_is_read_from_disk_is_the_same(bulletins):
    bulletins = made(bulletins)
    it = board(*bulletins)
    rows = it.stored()
    assert rows == it.unsaved()
    it.mark_saved(rows)
    assert it.unsaved() == []
    again = board(rows=rows)
    assert state(again) == state(it)
    assert again.unsaved() == []
    assert all(again.held(site).since == NOW for site in again.sites)
    for x in bulletins:
        exchange(again, board(x))
        it.merge(x, NOW)
    exchange(again, it)
    assert state(again) == state(it)


def test_what_has_changed_since_it_was_written_is_written_again():
    it = board(signed(number=1))
    rows = it.unsaved()
    it.merge(signed(number=2), NOW)
    it.mark_saved(rows)
    assert [row.site for row in it.unsaved()] == ["north"]


# ---------------------------------------------------------------- conflicts


def test_two_bulletins_with_one_number_are_a_proof_and_the_last_one_before_counts():
    """Until the operator answers with a bulletin that comes after them."""
    before = signed(number=1, arms=(entry(mean=1.0),))
    one, other = (signed(number=2, run=run, arms=(entry(mean=7.0 * run, releases=2),)) for run in (1, 2))
    it = board(before, one)
    assert it.rows("a")[0][0][0] == 7.0
    assert it.merge(other, NOW).kind == "conflict"
    proof = it.conflicts["north"]
    assert {proof.first.signed, proof.second.signed} == {one, other}
    assert proof.first.signed.digest < proof.second.signed.digest
    assert it.rows("a")[0][0][0] == 1.0
    assert it.held("north").place == (1, 2)
    assert it.counting("north").signed == before
    assert it.merge(signed(number=3), NOW).kind == "new"
    assert it.counting("north").signed == before, "going on is no answer"
    assert it.merge(signed(number=4, answers=(1, 2), arms=(entry(mean=9.0),)), NOW).kind == "new"
    assert it.conflicts == {}
    assert it.rows("a")[0][0][0] == 9.0
    assert {it.merge(x, NOW).kind for x in (one, other)} <= {"older", "known"}, "it was answered"
    assert it.conflicts == {}


def test_a_site_of_which_nothing_came_before_a_conflict_does_not_count():
    it = board(*(signed(number=1, run=run) for run in (1, 2)), signed("south"))
    assert it.counted() == ("south",)
    assert it.counting("north") is None
    assert it.sites == ("north", "south")


def test_a_conflict_travels_to_a_board_that_has_gone_on():
    """It has long dropped the place; it must not have dropped what it says of the arm before it."""
    history = [signed(number=k, run=1, arms=(entry(mean=float(k)),)) for k in range(1, 6)]
    one, other = board(*history), board(*history[:2], signed(number=2, run=2), *history[3:])
    assert one.conflicts == {} != other.conflicts
    exchange(one, other)
    assert one.conflicts == other.conflicts
    assert one.counting("north").place == (1, 1)
    assert state(one) == state(other)


def test_of_three_with_one_number_the_two_smallest_digests_are_kept():
    three = sorted((signed(number=1, run=run) for run in (1, 2, 3)), key=lambda it: it.digest)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        it = board(*(three[k] for k in order))
        assert it.conflicts["north"].first.signed == three[0]
        assert it.conflicts["north"].second.signed == three[1]


def test_an_answer_to_a_place_that_has_not_come_is_refused():
    for answers in ((1, 1), (1, 2), (2, 0)):
        with pytest.raises(InvalidArgument, match="answers"):
            board().merge(signed(number=1, answers=answers), NOW)


# ---------------------------------------------------------------- who counts


def test_excluded_sites_are_passed_on_and_do_not_count():
    it = board(signed("north"), signed("south"), signed("own"))
    it.exclude({"north"})
    assert it.counted() == ("own", "south")
    assert it.num_agents == 2
    assert it.merge(signed("north", 2), NOW).kind == "new"
    assert signed("north", 2) in it.newer_than({})
    it.exclude(())
    assert it.counted() == ("north", "own", "south")


def test_refused_sites_are_neither_taken_nor_passed_on():
    it = board(signed("north"), signed("south"))
    it.refuse({"north"})
    assert it.counted() == ("south",)
    new = signed("north", 2)
    assert it.knows("north", (1, 2), new.digest), "not worth verifying"
    assert it.merge(new, NOW) == ("refused", "north", None)
    assert it.newer_than({}) == it.to_send("south")
    assert it.to_send("north") == []
    assert it.have()["north"].place == (1, 1), "nobody sends it again"
    it.refuse(())
    assert it.merge(new, NOW).kind == "new"


def by(signer, *args, **fields):
    """A bulletin that a certificate has signed."""
    return replace(signed(*args, **fields), signer=signer)


def test_what_a_revoked_certificate_has_signed_is_dropped_and_its_site_goes_on_with_another():
    """Also at lower places: a thief has used high ones."""
    thief, south = by(b"old", "north", 9, decisions=9), by(b"south", "south")
    it = board(by(b"old", "north", 1), thief, south)
    it.revoke({b"old"})
    assert it.counted() == it.sites == ("south",)
    assert it.newer_than({}) == [south]
    assert it.held("north") is it.counting("north") is None
    assert it.to_send("north") == []
    assert "north" not in it.have()
    assert it.merge(by(b"old", "north", 10), NOW) == ("refused", "north", None)
    assert it.knows("north", (1, 9), thief.digest), "not verified again"
    new = by(b"new", "north", 2)
    assert not it.knows("north", (1, 2), new.digest)
    assert it.merge(new, NOW).kind == "new"
    assert it.counted() == ("north", "south")
    assert it.newer_than({}) == [south, new]
    assert it.signers == {b"old", b"new", b"south"}


def test_a_site_of_which_nothing_but_a_revoked_bulletin_is_here_is_not_passed_on():
    """Its only bulletin is kept for itself, and for nobody else."""
    only = by(b"old", "north", 1)
    it = board(only)
    it.revoke({b"old"})
    assert it.newer_than({}) == []
    assert it.have() == {}
    assert it.kept("north") == [only]
    assert [row.site for row in it.unsaved()] == ["north"]
    it.revoke(())
    assert it.newer_than({}) == [only]


def test_the_owner_alone_learns_which_places_a_revoked_certificate_has_used():
    last = by(b"old", "north", 9)
    it = board(by(b"old", "north", 1), last, by(b"new", "north", 2))
    it.revoke({b"old"})
    assert it.version_for("north") == Version((1, 9), last.digest)
    assert it.kept("north") == [by(b"new", "north", 2), last]
    assert it.have()["north"].place == (1, 2)
    it.merge(by(b"new", "north", 10), NOW)
    assert it.version_for("north").place == (1, 10)


def test_revoking_is_undone_and_survives_a_restart():
    last, good = by(b"old", "north", 9), by(b"new", "north", 2)
    it = board(last, good)
    it.mark_saved(it.unsaved())
    it.revoke({b"old"})
    assert [row.site for row in it.unsaved()] == ["north"], "what is stored has changed"
    again = board(rows=it.stored())
    again.revoke({b"old"})
    for one in (it, again):
        assert one.held("north").signed == good
        assert one.dropped["north"].signed == last
    it.mark_saved(it.unsaved())
    it.revoke({b"old", b"others"})
    assert it.unsaved() == []
    it.revoke(())
    assert it.held("north").signed == last
    assert it.dropped == {}
    alone = board(last)
    alone.revoke({b"old"})
    assert board(rows=alone.stored()).held("north").signed == last


def test_own_bulletins_stay_whoever_signed_them():
    """Which places are used is a matter of the release guard."""
    it = board(by(b"old", "own", 3))
    it.revoke({b"old"})
    assert it.held("own").place == (1, 3)
    assert it.merge(by(b"old", "own", 4), NOW).kind == "new"


@pytest.mark.parametrize("what", ["exclude", "refuse"])
def test_nobody_takes_itself_out(what):
    with pytest.raises(InvalidArgument, match="other sites than this one"):
        getattr(board(), what)({"own"})


def test_bulletins_say_who_has_accepted_a_change():
    changes = [ArmChange(version, "add", f"x{version}", "own", 5) for version in (1, 2, 3)]
    first, second, third = changes
    said = receipts_of(changes)
    it = board(
        signed("a", receipts={"own": said[2]}, accepted={"own": "5"}),
        signed("b", receipts={"own": said[0]}, accepted={"own": "7"}),
        signed("c", receipts={"own": said[2]}),
        signed("d", receipts={"own": 16 * "0"}, accepted={"own": "7"}),
        signed("own", changes=tuple(changes)),
    )
    who = {change: [name for name in "abcd" if it.has_accepted(name, change)] for change in changes}
    assert who == {first: ["a", "b"], second: [], third: ["a"]}, "nobody has accepted what he does not know"
    assert it.has_accepted("own", second)
    assert not it.has_accepted("unknown", first)


def test_receipts_say_who_has_a_change():
    changes = [ArmChange(version, "suspend", arm, "own", 5) for version, arm in ((1, "a"), (2, "b"), (2, "c"))]
    first, second, other = changes
    one, two = receipts_of([first, second])
    lost = receipts_of([first, other])[-1]
    it = board(
        signed("a", receipts={"own": two}),
        signed("b", receipts={"own": one}),
        signed("c"),
        signed("d", receipts={"own": lost}),
        signed("own", changes=(first, second)),
    )
    assert it.receipts(first) == (("a", "b"), ("c", "d"))
    assert it.receipts(second) == (("a",), ("b", "c", "d")), "as many changes are not the same changes"
    assert it.receipts(other) == ((), ("a", "b", "c", "d")), "a change that is in no bulletin yet"
    it.exclude({"c"})
    assert it.receipts(second) == (("a",), ("b", "c", "d")), "it may still give the arm"
    it.refuse({"c"})
    assert it.receipts(second) == (("a",), ("b", "d"))


def test_n_max_is_that_of_counted_sites_and_within_what_is_possible():
    it = board(signed("a", arms=(entry(decisions=50),)), signed("b", arms=(entry("b", decisions=10**12),)))
    assert it.n_max(("a", "b", "new"), 1000) == (50, 1000, 0)
    it.exclude({"b"})
    assert it.n_max(("a", "b"), 1000) == (50, 0)


# ---------------------------------------------------------------- noise that is drawn twice


def test_a_second_draw_is_named_whoever_sees_both():
    """Also by a site that was cut off, and has what was shown to it before the snapshot was put back."""
    shown = signed(number=5, arms=(entry(mean=100.0, releases=2),))
    again = signed(number=7, arms=(entry(mean=200.0, releases=2),))
    late = signed(number=9, arms=(entry(mean=300.0, releases=3),))
    for order in ((shown, again), (again, shown), (shown, again, late)):
        it = board(*order)
        assert "'a' at north have two different means" in it.drawn_twice["north"]
    put_back = signed(number=6, arms=(entry(releases=1),))
    assert "north" in board(shown, put_back, again).drawn_twice, "it was put back, and has drawn again"
    anew = signed(number=1, incarnation=2, arms=(entry(mean=200.0, releases=2),))
    assert board(shown, anew).drawn_twice == {}, "a lost file holds other rewards"
    assert board(shown, late).drawn_twice == {}


def test_draws_are_remembered_of_arms_that_a_site_still_has():
    """A member may say other names in each bulletin."""
    it = Board("own", TERMS)
    for number in range(1, 60):
        arms = tuple(entry(f"{number}-{k}") for k in range(90))
        it.merge(signed(number=number, arms=arms), NOW)
    assert len(it._draws["north"]) <= 8 * 90


def test_an_old_bulletin_that_is_shown_again_does_not_make_a_site_too_fast():
    """A site that has just begun sees one of 100 days ago first, and then the latest."""
    terms = replace(TERMS, counts="patients", max_decisions_per_day=100.0)
    day, now = 24 * 3600.0, 2e9

    def said(number, decisions, days_ago):
        at = int(1000 * (now - days_ago * day))
        made = replace(bulletin(number=number, decisions=decisions), federation=terms.digest(), at=at)
        return Signed(made.encode(), b"", b"")

    it = Board("own", terms)
    it.merge(said(1, 0, 100), now)
    it.merge(said(9000, 9000, 0), now + 1)
    assert it.oddities(now + 2) == {}
    it.merge(said(9001, 12_000, -1000), now + 3)
    assert "12,000 decisions in 100.0 days" in it.oddities(now + 4)["north"][0], "a clock ahead gains nothing"


# ---------------------------------------------------------------- what a bulletin may hold


FULL = bulletin(
    "north",
    5,
    1_700_000_000_000,
    run=2**63 - 1,
    opened=(1_700_000_000_000, 4),
    answers=(1_600_000_000_000, 9),
    decisions=100,
    arms=(entry("a", -1.5e-7, 1), entry("Ärger", 65536.25, 2)),
    changes=(
        ArmChange(version=3, kind="suspend", arm="a", by="north", at=5, reason="rash: 3 of 4 «»"),
        ArmChange(version=4, kind="resume", arm="a", by="north", at=9, lifts=("0" * 32,)),
    ),
    receipts={"south": 16 * "3", "east": 16 * "1"},
    accepted={"south": "5"},
    software="fedbandit 1.0",
)


def test_a_site_with_the_longest_name_that_its_configuration_may_have_speaks_and_is_acknowledged():
    """Fails if a bulletin holds shorter ones: such a site starts, and then says nothing for ever."""
    names = [4 * f"{'x' * 61}." + f"{end}{end}{end}{end}{end}" for end in "ab"]
    for name in names:
        assert len(site_name(name)) == MAX_NAME
    network = MemoryNetwork(TERMS, [names], spreads=True)
    network.run()
    stop = network.change_arm(names[0], "suspend", "a")
    network.run()
    assert network.site(names[1]).stopped == {0}
    assert network.site(names[0]).board.receipts(stop) == ((names[1],), ())
    frame = frames.Have(names[0], TERMS.digest(), 1, network.site(names[0]).have())
    assert frames.decode(frames.encode(frame)) == frame
    assert frames.place_in(network.site(names[0]).board.held(names[0]).signed.body)[0] == names[0]


def test_the_fullest_bulletin_of_any_terms_can_be_sent():
    """Fails if terms may have so many arms that a site falls silent once it has released much, or stopped many."""

    def terms_of(count):
        return replace(TERMS, arms=tuple(f"arm {k}" for k in range(count)))

    with pytest.raises(InvalidArgument, match=r"arms must be fewer.*not '400 arms'"):
        terms_of(400)
    terms = terms_of(360)
    arms, wide = Arms.of(terms.arms, {}), "\U0001f600"
    added = [f"{k:02}{62 * wide}" for k in range(MAX_ADDED)]
    most, numbers = MAX_COUNT, (-65536.123456789012, -1.7976931348623157e308, 1.2345678901234567e-300)
    entries = [ArmEntry(name, numbers, most, most, most, MAX_HISTORY) for name in (*terms.arms, *added)]
    while True:
        try:
            new = arms.next_change("suspend", "arm 0", "own", MAX_TIME, 50 * wide, terms.room_for_changes)
        except InvalidArgument:
            break
        arms = Arms.of(terms.arms, {**arms.changes, new.id: ArmChanged(new, 1)})
    changes = arms.made_by("own")
    assert len(changes) > KEPT_FOR_STOPS
    receipts = {f"site-{k}.example": 16 * "1" for k in range(150)}
    accepted = dict.fromkeys(receipts, 25 * "f")
    body = bulletin(site="own", arms=tuple(entries), changes=changes, receipts=receipts, accepted=accepted).encode()
    assert len(decode(body, 3).changes) == len(changes)


def test_a_site_that_has_lost_a_file_with_many_arms_speaks_when_it_adds_others():
    """Fails if it repeats all that it had said of arms that it does not know: nobody takes so many, not even itself."""
    before = tuple(entry(name) for name in ("a", "b", *(f"x{k}" for k in range(MAX_ADDED))))
    own = signed("own", arms=before)
    site = Site("own", TERMS, Stored(Numbering(1, 0), own=own))
    for name in ("new", "newer"):
        site.change_arm("add", name, 5)
        site.publish(lambda _: (b"", b""), NOW)
    told = site.board.held("own").bulletin
    assert len(told.arms) == len(TERMS.arms) + MAX_ADDED
    assert {"new", "newer"} < {it.name for it in told.arms}


@pytest.mark.parametrize("arms", [("", "b"), ("a", "x" * 1001), ("a", "\ud800")])
def test_arms_that_no_bulletin_can_name_are_refused_in_the_terms(arms):
    with pytest.raises(InvalidArgument, match=r"arms\[[01]\] must be a name of 1 to 1000 characters"):
        replace(TERMS, arms=arms)


def test_a_bulletin_is_read_as_it_was_written():
    body = FULL.encode()
    assert decode(body, 3) == FULL
    assert decode(body, 3).encode() == body
    assert len(replace(FULL, changes=(), receipts={}, accepted={}, arms=FULL.arms * 5, opened=(0, 0)).encode()) < 800


def changed(**fields):
    """FULL with other values; those of ``raw`` are put in as text."""
    it = json.loads(FULL.encode())
    it |= fields
    return json.dumps(it, ensure_ascii=False, separators=(",", ":")).encode()


ROW = [1.0, 1.0, 1.0]
WRONG = {
    "not JSON": (b"{", "JSON"),
    "bytes": (b"\xff\xfe", "JSON"),
    "no object": (b"[]", "fields"),
    "nothing": (b"", "JSON"),
    "deep": (b"[" * 100_000, "JSON"),
    "long": (b" " * (MAX_BODY + 1), "at most"),
    "another order": (json.dumps(dict(reversed(json.loads(FULL.encode()).items()))).encode(), "fields"),
    "spaces": (json.dumps(json.loads(FULL.encode()), ensure_ascii=False).encode(), "in one way"),
    "a field twice": (FULL.encode().replace(b'{"fedbandit":1,', b'{"fedbandit":1,"fedbandit":1,'), "in one way"),
    "escapes": (json.dumps(json.loads(FULL.encode()), separators=(",", ":")).encode(), "in one way"),
    "another format": (changed(fedbandit=2), "fedbandit"),
    "another field": (changed(more=1), "fields"),
    "site is a number": (changed(site=5), "site"),
    "site is empty": (changed(site=""), "site"),
    "site is long": (changed(site="x" * (MAX_NAME + 1)), "site"),
    "site has a line break": (changed(site="a\nb"), "site"),
    "site is half a character": (changed(site="a").replace(b'"site":"a"', b'"site":"\\ud800"'), "site"),
    "incarnation 0": (changed(incarnation=0), "incarnation"),
    "number 0": (changed(number=0), "number"),
    "number true": (changed(number=True), "number"),
    "number 5.0": (changed(number=5.0), "number"),
    "number beyond all": (changed(number=MAX_TIME + 1), "number"),
    "number of 5,000 digits": (changed(number="N").replace(b'"N"', b"9" * 5000), "JSON"),
    "answers itself": (changed(answers=[1_700_000_000_000, 5]), "answers"),
    "answers with three": (changed(answers=[1, 2, 3]), "answers"),
    "NaN": (changed(arms=[["a", [float("nan"), 1.0, 1.0], 1, 12, 12, 0]]), "finite"),
    "Infinity": (changed(arms=[["a", [float("inf"), 1.0, 1.0], 1, 12, 12, 0]]), "finite"),
    "1e999": (changed(arms=[["a", ["X", 1.0, 1.0], 1, 12, 12, 0]]).replace(b'"X"', b"1e999"), "finite"),
    "a whole number in a row": (changed(arms=[["a", [1, 1.0, 1.0], 1, 12, 12, 0]]), "row"),
    "a short row": (changed(arms=[["a", [1.0, 1.0], 1, 12, 12, 0]]), "row"),
    "a negative count": (changed(arms=[["a", ROW, -1, 12, 12, 0]]), "releases"),
    "a huge count": (changed(arms=[["a", ROW, 1, 10**12 + 1, 12, 0]]), "rewards"),
    "a count of 1.0": (changed(arms=[["a", ROW, 1, 12, 12.0, 0]]), "decisions"),
    "a huge history": (changed(arms=[["a", ROW, 1, 12, 12, 10**6 + 1]]), "history"),
    "one arm twice": (changed(arms=[["a", ROW, 1, 12, 12, 0]] * 2), "arms"),
    "an arm without a name": (changed(arms=[["", ROW, 1, 12, 12, 0]]), "name"),
    "an arm that is no list": (changed(arms=["abcde"]), r"arms\[0\]"),
    "a change of an unknown kind": (changed(changes=[[1, "drop", "a", 5, [], ""]]), r"changes\[0\]"),
    "a change that is an object": (changed(changes=[{}]), r"changes\[0\]"),
    "a change of a list": (changed(changes=[[1, ["add"], [], 5, [], ""]]), r"changes\[0\]"),
    "a change with a list of lists": (changed(changes=[[1, "resume", "a", 5, [["x"]], ""]]), r"changes\[0\]"),
    "a long reason": (changed(changes=[[1, "suspend", "a", 5, [], "x" * 201]]), r"changes\[0\].reason"),
    "a long name of a new arm": (changed(changes=[[1, "add", "x" * 65, 5, [], ""]]), r"changes\[0\]"),
    "101 changes": (changed(changes=[[1, "suspend", "a", k, [], ""] for k in range(MAX_CHANGES + 1)]), "changes"),
    "receipts of its own": (changed(receipts={"north": 16 * "1"}), "receipts"),
    "receipts of nothing": (changed(receipts={"x": ""}), "receipts.x"),
    "receipts that are numbers": (changed(receipts={"x": 1}), "receipts.x"),
    "receipts in another order": (changed(receipts={"south": 16 * "3", "east": 16 * "1"}), "in one way"),
    "receipts as a list": (changed(receipts=[1]), "receipts"),
    "consent to changes that it does not know": (changed(accepted={"west": "1"}), "accepted"),
    "consent as a number": (changed(accepted={"south": 1}), "accepted.south"),
    "consent to nothing": (changed(accepted={"south": "0"}), "accepted.south"),
    "consent with a zero first": (changed(accepted={"south": "05"}), "accepted.south"),
    "consent to more than 100 changes": (changed(accepted={"south": 26 * "f"}), "accepted.south"),
    "consent as a list": (changed(accepted=[1]), "accepted"),
    "software with a bell": (changed(software="\a"), "software"),
}


@pytest.mark.parametrize("name", ["x" * 65, "a\nb", " a"])
def test_an_arm_that_nobody_can_add_is_refused(name):
    it = board()
    with pytest.raises(InvalidArgument, match="printable characters"):
        it.merge(signed(arms=(entry(name),)), NOW)
    long = replace(TERMS, arms=("x" * 65, "b"))
    said = replace(bulletin(arms=(entry("x" * 65),)), federation=long.digest())
    assert Board("own", long).merge(Signed(said.encode(), b"", b""), NOW).kind == "new", "it is in the terms"


@pytest.mark.parametrize("field", ["answers", "receipts", "accepted", "arms", "changes", "at", "software"])
def test_a_deep_bulletin_is_refused_in_words(field):
    """Also just below the depth at which Python gives up: it can be read there, and not be shown."""
    head, tail = changed(**{field: "@"}).split(b'"@"')
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        for depth in (9, 100, *range(800, 1010, 3)):
            with pytest.raises(InvalidArgument, match=r"at most 8 levels deep"):
                decode(head + opening * depth + b"1" + closing * depth + tail, 3)


def test_an_error_looks_at_no_more_of_a_value_than_it_says():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert str(InvalidArgument("x", deep, "y")).endswith("[[[...")
    start = process_time()
    for _ in range(100):
        InvalidArgument("x", [{"a": [1, "b" * 10**6]}] * 10**5, "y")
    assert process_time() - start < 0.1
    assert str(InvalidArgument("x", 10**5000, "y")) == "x must be y, not a value of type int"
    for value in ((), (1,), [1, ("a", b"b")], {"a": {1: None}}, {2}, 1.5, "it's"):
        assert str(InvalidArgument("x", value, "y")) == f"x must be y, not {value!r}"


def test_json_may_be_eight_deep():
    for text in ("[" * 8 + "]" * 8, '{"a":' * 8 + "1" + "}" * 8, '["' + "[" * 50 + '\\"[[[[[[[[["]', "[[],{}]"):
        assert parse_json(text) == json.loads(text)
    for text in (
        "[" * 9 + "]" * 9,
        '{"a":' * 9 + "1" + "}" * 9,
        "[" * 100_000,
        '{"a":[' * 500,
        "[[]," + "[" * 9 + "]" * 10,
    ):
        with pytest.raises(TooDeep, match="more than 8 deep"):
            parse_json(text.encode())
    with pytest.raises(HttpError, match="in the body, lists and objects are more than 8 deep; it must be an object"):
        read_object(b'{"a":' * 9 + b"1" + b"}" * 9, ("a",), "an object")
    start = process_time()
    for text in ('"' + '\\"' * 60_000, '"a' * 40_000, '"' + "\\" * 120_000):
        with pytest.raises(ValueError, match=r"Expecting|Unterminated|Extra"):
            parse_json(text)
    assert process_time() - start < 1.0, "strings that never end"


@pytest.mark.parametrize("case", WRONG)
def test_what_no_site_writes_is_refused_in_words(case):
    body, words = WRONG[case]
    with pytest.raises(InvalidArgument, match=words):
        decode(body, 3)


numbers = st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=5)
values = st.recursive(numbers, lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(max_size=3), x, max_size=3))


@settings(max_examples=2000, deadline=None)
@given(st.sampled_from(list(json.loads(FULL.encode()))), values, st.integers(0, 3))
def test_any_value_in_any_field_is_taken_or_refused(name, value, depth):
    if name in ("arms", "changes"):
        value = {0: value, 1: [value], 2: [[value] * 5], 3: [[value] * 6]}[depth]
        if depth == 3:
            value = [["a", [value], *[value[0][:1]] * 3]] if name == "arms" else value
    body = json.dumps(json.loads(FULL.encode()) | {name: value}, ensure_ascii=False, separators=(",", ":"))
    try:
        body = body.encode()
    except UnicodeEncodeError:
        return
    with suppress(InvalidArgument):
        assert decode(body, 3).encode() == body


def test_refused_bulletins_change_nothing():
    it = board(signed("north"))
    before = state(it)
    for other in (replace(FULL, federation="0" * 64), replace(FULL, incarnation=int(1000 * NOW) + CENTURY + 1)):
        with pytest.raises(InvalidArgument, match=r"federation|100 years"):
            it.merge(Signed(other.encode(), b"", b""), NOW)
    many = replace(
        FULL, arms=tuple(entry(f"arm {k}") for k in range(500)), incarnation=1, opened=(0, 0), answers=(0, 0)
    )
    with pytest.raises(InvalidArgument, match="at most 102"):
        it.merge(Signed(many.encode(), b"", b""), NOW)
    assert state(it) == before


def test_a_bulletin_that_would_be_too_long_is_not_written():
    lifts = tuple(f"{k:032x}" for k in range(100))
    changes = tuple(
        ArmChange(version=k + 1, kind="resume", arm="a", by="north", at=k, lifts=lifts, reason="x") for k in range(60)
    )
    with pytest.raises(InvalidArgument, match="139264 bytes"):
        replace(FULL, changes=changes).encode()
    with pytest.raises(InvalidArgument, match="finite"):
        replace(FULL, arms=(entry(mean=float("nan")),)).encode()


def test_numbers_that_jump_put_nobody_out():
    """A site, or whoever has its key, uses up all numbers of an incarnation: the next one begins anew."""
    it = board(signed(number=MAX_TIME))
    assert it.merge(signed(number=1, incarnation=2), NOW).kind == "new"
    latest = int(1000 * NOW) + CENTURY
    assert it.merge(signed(number=MAX_TIME, incarnation=latest), NOW).kind == "new"
    with pytest.raises(InvalidArgument, match="100 years"):
        it.merge(signed(number=1, incarnation=latest + 1), NOW)
    assert it.merge(signed(number=1, incarnation=latest + 1), NOW + 1).kind == "new", "a second later"


# ---------------------------------------------------------------- speed


def test_thousand_sites_in_little_time():
    """With room for a machine ten times slower than the one on which the promises were measured."""
    arms = tuple(f"arm {k}" for k in range(10))
    terms = replace(TERMS, arms=arms)
    page, fixed = terms.page, terms.page_terms

    def made(site, number):
        said = tuple(ArmEntry(arm, (30_000.0 + number / 7.0, 9.5, 0.01), 5, 66, 80) for arm in arms)
        return Signed(Bulletin(terms.digest(), site, 1, number, 0, decisions=800, arms=said).encode(), b"", b"")

    first, second = ([made(f"site {j}", number) for j in range(1000)] for number in (1, 2))
    it = Board("site 0", terms)
    jobs = {
        "new": (lambda: [it.merge(x, NOW) for x in (*first, *second)], 2000 * 300e-6),
        "known": (lambda: [it.merge(x, NOW) for x in second], 1000 * 20e-6),
        "have": (lambda: it.newer_than(dict(it.have())), 5e-3),
        "estimates": (lambda: [page.combine(fixed, *it.rows(arm)) for arm in arms], 20e-3),
    }
    for name, (job, promised) in jobs.items():
        start = process_time()
        job()
        taken = process_time() - start
        assert taken < 10 * promised, name
