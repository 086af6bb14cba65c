"""Arms that change: what changes add up to, who has which, sites that know different arms, faults in the middle."""

from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit import FedBatch, FedUCB, GossipUCB, Shares
from fedbandit.agent.core.arms import (
    GUARDRAIL,
    KEPT_FOR_STOPS,
    MAX_ADDED,
    MAX_ARM_NAME,
    MAX_CHANGES,
    MAX_REASON,
    ArmChange,
    ArmChanged,
    Arms,
    change_from,
    remarks_on_names,
    same_to_readers,
)
from fedbandit.agent.core.bulletin import Bulletin, Signed
from fedbandit.agent.core.decisions import Request, choice, draws_for
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.notices import Note, warnings_of_arms
from fedbandit.agent.core.records import HorizonReached, NoArmLeft
from fedbandit.agent.core.site import Site
from fedbandit.checks import InvalidArgument
from fedbandit.privacy.mechanism import COUNTED
from fedbandit.testing.memory_network import Down, Faults, MemoryJournal, MemoryNetwork
from test_agent_simulation import (
    FAULTY_EVENTS,
    Story,
    Watched,
    check_boards,
    check_releases,
    check_rewards,
    sweep_until_quiet,
)

TERMS = Federation("test", ("a", "b"), 0.0, 1.0, FedBatch(1.0, first_batch=2), counts="sites", max_agents=3)
PATH = [("0", "1"), ("1", "2")]


def change(kind, arm="a", by="0", version=1, lifts=()):
    return ArmChange(version, kind, arm, by, 0, tuple(lifts))


def arms(*changes, accepted=()):
    taken = {it.id: ArmChanged(it, accepted.index(it) + 1 if it in accepted else 0) for it in changes}
    return Arms.of(TERMS.arms, taken)


# ---------------------------------------------------------------- what changes add up to


def test_a_stop_needs_nobodys_consent_and_all_else_does():
    add, stop, back = change("add", "c"), change("suspend"), change("retire", "b")
    seen = arms(add, stop, back)
    assert seen.names == ("a", "b")
    assert seen.stopped == {0, 1}
    assert seen.standing("b").status == "suspended"
    assert {it.kind for it in seen.waiting} == {"add", "retire"}
    seen = arms(add, stop, back, accepted=[add, back])
    assert seen.names == ("a", "b", "c")
    assert seen.standing("b").status == "retired"


def test_what_would_change_nothing_does_not_wait():
    """Fails if an operator is asked to consent to what is so already: a resume of an active arm, an arm that is there.

    A stop that such a resume lifts, and that is heard of later, makes it wait: until then it lifts nothing.
    """
    stop, later = change("suspend", by="3", version=1), change("suspend", by="1", version=2)
    own = change("resume", by="2", version=3, lifts=[stop.id])
    resume = change("resume", by="0", version=3, lifts=[stop.id, later.id])
    assert arms(stop, resume).waiting == (resume,)
    seen = arms(stop, own, resume, accepted=[own])
    assert (seen.stopped, seen.waiting, seen.unaccepted) == (frozenset(), (), (resume,))
    seen = arms(stop, own, resume, later, accepted=[own])
    assert (seen.stopped, seen.waiting) == ({0}, (resume,))
    other_arm = change("resume", "b", by="0", version=3, lifts=[stop.id])
    assert arms(stop, other_arm).waiting == ()
    first, second = change("add", "c"), change("add", "c", by="1")
    assert set(arms(first, second).waiting) == {first, second}
    assert arms(first, second, accepted=[first]).waiting == ()


def test_a_resume_that_changes_nothing_is_trusted_all_the_same():
    """Fails if a site that trusts another from now on leaves out its resume of a stop that it has not heard of yet."""
    stop = change("suspend", by="1")
    resume = change("resume", by="2", version=2, lifts=[stop.id])
    seen = arms(resume)
    assert not seen.waiting
    (accepted,) = seen.accepted_of(seen.unaccepted, "0", frozenset({"2"}))
    taken = Arms.of(TERMS.arms, {resume.id: accepted, stop.id: ArmChanged(stop, 0)})
    assert taken.standing("a").status == "active"


def test_consent_by_other_words_is_told_the_command():
    """Fails if to resume what waits to be added, or to accept what does not wait, gives no advice."""
    network = connected()
    network.change_arm("0", "suspend", "a")
    network.run()
    network.change_arm("2", "resume", "a")
    network.change_arm("0", "add", "new drug")
    network.run()
    with pytest.raises(InvalidArgument, match=r"It waits to be added: fedbandit arm accept 'new drug'$"):
        network.change_arm("1", "resume", "new drug")
    network.change_arm("1", "resume", "a")
    assert network.site("1").arms.standing("a").status == "active", "its own word is as good as its consent"
    assert [it.arm for it in network.site("1").arms.waiting] == ["new drug"]
    with pytest.raises(InvalidArgument, match=r"^no change of the arm 'a' waits; changes of 'new drug' do$"):
        network.accept_arm("1", "a")


def test_a_resume_lifts_the_stops_that_it_knew_and_no_others():
    """Even if its version is the larger one: a site that was cut off may have made the stop meanwhile."""
    known, unknown = change("suspend", version=1), change("suspend", by="1", version=2)
    resume = change("resume", by="2", version=9, lifts=[known.id])
    assert arms(known, resume).stopped == {0}, "a resume that was not accepted counts"
    assert arms(known, resume, accepted=[resume]).stopped == frozenset()
    assert arms(known, unknown, resume, accepted=[resume]).stopped == {0}
    assert arms(known, change("suspend", "b"), replace(resume, arm="b"), accepted=[resume]).stopped == {0, 1}


def test_a_site_takes_back_its_own_stops_everywhere_and_no_others():
    """Fails if consent multiplies, or if a liar ends another site's stop, one that is yet to come, or a retirement."""
    own, others = change("suspend", by="1", version=1), change("suspend", by="2", version=2)
    resume = change("resume", by="1", version=3, lifts=[own.id, others.id])
    assert arms(own, resume).stopped == frozenset()
    assert arms(resume, own).standing("a") == ("active", resume)
    assert arms(own, resume).waiting == ()
    seen = arms(own, resume, others)
    assert (seen.stopped, seen.waiting) == ({0}, (resume,)), "another's stop needs consent, also if it comes later"
    assert arms(others, change("resume", by="1", version=3, lifts=[others.id])).stopped == {0}
    unknown = change("suspend", by="1", version=9)
    assert arms(own, resume, unknown).stopped == {0}, "a stop that it has made since"
    gone = change("retire", by="1")
    assert arms(gone, change("resume", by="1", lifts=[gone.id]), accepted=[gone]).standing("a").status == "retired"
    rail = ArmChange(1, "suspend", "a", "1", 0, (), f"{GUARDRAIL}worse")
    assert arms(rail, change("resume", by="1", lifts=[rail.id])).stopped == {0}, "a guardrail of every site"


CHANGES = st.lists(
    st.tuples(st.sampled_from(["suspend", "resume", "retire"]), st.sampled_from("ab"), st.sampled_from("012")),
    min_size=1,
    max_size=8,
)


@given(CHANGES, st.randoms(use_true_random=False))
def test_in_any_order_own_stops_are_taken_back(asked, random):
    """Sites make changes, each knowing some of those before it; another receives them in any order, and accepts none.

    Judged by words: an arm is stopped if a stop of it is there that its own site has not named in a resume.
    """
    made = []
    for version, (kind, arm, by) in enumerate(asked, 1):
        stops = [it for it in made if it.is_stop and it.arm == arm and random.random() < 0.8]
        lifts = [it.id for it in stops] if kind == "resume" else []
        made.append(change(kind, arm, by, version, lifts))
    open_ = {
        it.arm
        for it in made
        if it.is_stop and not any(r.kind == "resume" and r.by == it.by and it.id in r.lifts for r in made)
    }
    random.shuffle(made)
    known = Arms.of(TERMS.arms, {})
    for it in made:
        taken = known.new([it], "9", frozenset())
        known = Arms.of(TERMS.arms, {**known.changes, **{each.change.id: each for each in taken}})
    assert {known.names[k] for k in known.stopped} == open_
    assert {it.arm for it in known.waiting if it.kind == "resume"} <= open_


def test_whoever_stopped_an_arm_and_accepts_its_resume_says_so_to_all():
    """Fails if a site that joins later is asked for its consent to the end of a stop that nobody holds to any more."""
    network = connected()
    network.change_arm("0", "suspend", "a")
    network.run()
    network.change_arm("1", "resume", "a")
    network.run()
    assert [network.site(name).stopped for name in "012"] == [{0}, set(), {0}]
    network.accept_arm("0", "a")
    network.run()
    assert [network.site(name).stopped for name in "012"] == [set(), set(), set()], "2 was not asked"
    said = [(it.kind, it.by, it.reason) for it in network.site("2").arms.made_by("0")]
    assert said == [("suspend", "0", ""), ("resume", "0", "as 1 has resumed it")]
    network.join("new", ["2"])
    network.run()
    assert (network.site("new").stopped, network.site("new").arms.waiting) == (set(), ())
    assert len(network.site("0").arms.changes) == 3, "and it is said once"


def test_an_excluded_member_takes_nothing_back_until_it_is_included():
    network = connected()
    network.change_arm("2", "suspend", "a")
    network.run()
    network.exclude("0", "2")
    network.change_arm("2", "resume", "a")
    network.run()
    assert [network.site(name).stopped for name in "012"] == [{0}, set(), set()]
    network.include("0", "2")
    assert network.site("0").stopped == set()


def test_a_retirement_is_final_once_accepted():
    gone = change("retire")
    resume = change("resume", by="1", lifts=[gone.id])
    assert arms(gone, resume, accepted=[resume]).stopped == frozenset()
    assert arms(gone, resume, accepted=[resume, gone]).standing("a").status == "retired"


def test_the_order_of_hearing_changes_nothing():
    first = change("suspend")
    every = [first, change("resume", lifts=[first.id]), change("suspend", "b"), change("retire", "b", "1")]
    found = set()
    for order in permutations(every):
        seen = arms()
        for it in order:
            seen = Arms.of(TERMS.arms, {**seen.changes, it.id: seen.new([it], "1", "anyone")[0]})
        found.add((seen.names, seen.stopped, seen.standing("a").status, seen.standing("b").status))
    assert found == {(("a", "b"), frozenset({1}), "active", "retired")}


def test_what_makes_no_sense_is_refused_and_names_the_arms():
    network = MemoryNetwork(TERMS, PATH)
    for kind, arm, says in (
        ("add", "a", "there already"),
        ("add", "", "printable"),
        ("add", "x" * 65, "1 to 64"),
        ("suspend", "aa", "'a', 'b'"),
        ("resume", "a", "is active"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            network.change_arm("0", kind, arm)
    network.change_arm("0", "retire", "a")
    with pytest.raises(InvalidArgument, match="final"):
        network.change_arm("0", "resume", "a")
    with pytest.raises(InvalidArgument, match=r"^no change of the arm 'a' waits$"):
        network.accept_arm("0", "a")
    assert len(network.site("0").arms.changes) == 1
    assert network.change_arm("0", "retire", "a") == network.change_arm("0", "retire", "a")
    assert len(network.site("0").arms.changes) == 1, "a repetition is another change"


def test_the_content_is_read_back_or_refused():
    it = replace(change("resume", "ä", lifts=[change("suspend").id]), reason="recalled")
    assert change_from(it.content) == it
    for wrong in ("", "[]", "{}", it.content.replace("resume", "other"), "[" * 10**5):
        with pytest.raises(InvalidArgument):
            change_from(wrong)


@pytest.mark.parametrize(
    "wrong", [{"reason": "x" * (MAX_REASON + 1)}, {"reason": "two\nlines"}, {"kind": "stop"}, {"lifts": ("0" * 32,)}]
)
def test_what_no_site_says_is_no_change(wrong):
    with pytest.raises(InvalidArgument):
        replace(change("suspend"), **wrong)
    with pytest.raises(InvalidArgument):
        change("add", "x" * (MAX_ARM_NAME + 1))


def connected(links=PATH, terms=TERMS, **options):
    """A network whose links are open: what is new goes out at once."""
    network = MemoryNetwork(terms, links, spreads=True, **options)
    network.run()
    return network


def test_stops_of_arms_that_are_none_are_not_taken():
    """Until an addition is known: then it counts at once, though it came first."""
    network = connected()
    site = network.site("0")
    stop = [change("suspend", "x", "2", 2)]
    assert site.arms.new(stop, "0", "anyone") == []
    both = site.arms.new([change("add", "x", "2", 1), *stop], "0", "anyone")
    assert [it.change.kind for it in both] == ["add", "suspend"]


def test_a_stop_that_came_before_the_arm_counts_once_there_is_one():
    """A site hears of the stop first, and then of the arm from another site."""
    site = Site("0", TERMS, MemoryJournal(1).load())
    site.accept_from("anyone")
    for by, said in (("2", change("suspend", "new", "2")), ("1", change("add", "new", "1"))):
        body = Bulletin(TERMS.digest(), by, 1, 1, 0, changes=(said,)).encode()
        taken = site.merge(Signed(body, b"", b""), by, 0.0).result.changes
        assert len(taken) == (0 if by == "2" else 2)
    assert site.stopped == {2}


def test_no_more_changes_of_a_site_than_others_keep():
    known = arms(*[change("add", f"x{k}", "2", k + 1) for k in range(MAX_CHANGES)])
    assert known.new([change("suspend", "a", "2", MAX_CHANGES + 1)], "0", "anyone") == []
    assert len(known.new([change("suspend", "a", "1")], "0", "anyone")) == 1, "others have their own room"


def test_no_more_arms_than_bulletins_can_hold():
    many = [change("add", f"x{k}", str(k % 2), k + 1) for k in range(MAX_ADDED + 5)]
    taken = Arms.of(TERMS.arms, {it.change.id: it for it in arms().new(many, "0", "anyone")})
    assert len(taken.added) == MAX_ADDED
    assert len(taken.waiting) == 5
    with pytest.raises(InvalidArgument, match="the most"):
        taken.next_change("add", "y", "0", 0)


# ---------------------------------------------------------------- who has it


def test_a_stop_is_everywhere_at_once_and_everybody_says_that_it_is():
    network = connected()
    stop = network.change_arm("0", "suspend", "a", "recalled")
    network.run()
    assert all(network.site(name).stopped == {0} for name in "012")
    assert network.site("2").arms.standing("a").by.reason == "recalled"
    assert all(network.site(name).board.receipts(stop) == (("1", "2"), ()) for name in "012")


def test_who_has_not_said_that_it_knows_of_a_stop_is_told_by_name():
    network = connected()
    network.crash("2")
    stop = network.change_arm("0", "suspend", "a")
    network.run()
    assert network.site("0").board.receipts(stop) == (("1",), ("2",))
    network.restart("2")
    network.run()
    network.site("2").presence._trust()  # a site in doubt acknowledges what it knows once it is sure
    network.decide("2")
    network.run()
    assert network.site("0").board.receipts(stop) == (("1", "2"), ())


def test_a_receipt_of_changes_that_a_file_has_lost_is_none_of_those_made_since():
    """Fails if receipts are numbers: a site that is down had as many changes, and seems to have a stop it never saw."""
    network = connected()
    old = network.snapshot("0")
    for kind in ("suspend", "resume", "suspend"):
        network.change_arm("0", kind, "a")
    network.run()
    network.crash("2")
    network.put_back("0", old)
    network.restart("0")
    stop = network.change_arm("0", "suspend", "b")
    network.run()
    for name in ("0", "1"):
        site = network.site(name)
        assert site.stopped == {0, 1}
        assert "2" in site.board.receipts(stop)[1], f"{name} believes that 2 has a stop made after it was killed"
    network.restart("2")
    network.run()
    for name in "012":
        network.site(name).presence._trust()  # 0 has an old file; others wait for it
        network._publish(name)
    network.run()
    assert all(network.site(name).board.receipts(stop)[1] == () for name in "012")


def test_a_stop_of_an_arm_that_a_site_does_not_have_is_acknowledged():
    """Fails if it counts as missing for ever there, and every later stop of the same site with it."""
    network = connected()
    network.exclude("2", "0")
    network.accepts["1"] = "anyone"
    network.change_arm("0", "add", "c")
    network.run()
    network.accept_arm("1", "c")
    stops = [network.change_arm("1", "suspend", arm) for arm in "cb"]
    network.run()
    assert network.site("2").arms.names == ("a", "b")
    assert network.site("2").stopped == {1}
    assert all(network.site("1").board.receipts(stop) == (("0", "2"), ()) for stop in stops)
    network.restart("2")
    network.run()
    assert all(network.site("1").board.receipts(stop) == (("0", "2"), ()) for stop in stops)


def test_a_stop_that_another_site_has_resumed_can_be_made_again():
    """Fails if a repetition is the old stop, which that site has lifted: nobody could stop the arm there."""
    network = connected()
    first = network.change_arm("0", "suspend", "a")
    network.run()
    assert network.change_arm("0", "suspend", "a") == first
    network.change_arm("1", "resume", "a")
    network.run()
    assert [network.site(name).stopped for name in "012"] == [{0}, set(), {0}]
    again = network.change_arm("0", "suspend", "a")
    assert again != first
    assert network.change_arm("0", "suspend", "a") == again
    network.run()
    assert all(network.site(name).stopped == {0} for name in "012")


def test_a_site_that_joins_gets_stops_and_what_ended_them():
    network = connected()
    network.change_arm("0", "suspend", "a")
    network.change_arm("0", "resume", "a")
    network.change_arm("1", "suspend", "b")
    network.run()
    network.join("new", ["2"])
    network.run()
    assert {it.change.kind for it in network.site("new").arms.changes.values()} == {"suspend", "resume"}
    assert len(network.site("new").arms.changes) == 3
    assert network.site("new").stopped == {1}, "not what its own site has taken back"
    assert network.site("new").arms.waiting == ()


def test_an_excluded_member_changes_no_arms_and_what_it_had_stopped_stays_so():
    network = connected()
    network.change_arm("2", "suspend", "a")
    network.run()
    network.exclude("0", "2")
    stop = network.change_arm("2", "suspend", "b")
    network.run()
    assert (network.site("0").stopped, network.site("1").stopped) == ({0}, {0, 1})
    assert network.site("1").board.receipts(stop) == (("1",), ("0",))
    network.include("0", "2")
    assert network.site("0").stopped == {0, 1}


HIDDEN = ["\u3164", "a\u2800", "\u115f\u1160", "a\u034fb", "\u0301", "a" + 30 * "\u0301\u0302"]


@pytest.mark.parametrize("name", HIDDEN)
def test_names_that_cannot_be_read_are_not_added(name):
    with pytest.raises(InvalidArgument, match="arm must be"):
        Arms.of(("a", "b"), {}).next_change("add", name, "north", 0)
    # Another version has added it: its files open, its gossip is read, and it can be stopped.
    change = ArmChange(1, "add", name, "north", 0)
    arms = Arms.of(("a", "b"), {change.id: ArmChanged(change, 1)})
    assert arms.names == ("a", "b", name)
    assert arms.next_change("suspend", name, "north", 0).arm == name


@pytest.mark.parametrize(
    "name",
    [
        *("naïve", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e17\u0e35\u0e48", "\u2764\ufe0f", "治療 A"),
        *("\u0410\u0441\u043f\u0438\u0440\u0438\u043d C", "IFN\u03b3 1\u03b1", "\u0391\u03c3\u03c0"),
    ],
)
def test_names_of_other_scripts_are_added(name):
    assert Arms.of(("a", "b"), {}).next_change("add", name, "north", 0).arm == name
    assert remarks_on_names(("a", "b", name)) == ()


@pytest.mark.parametrize("name", ["a\ufe0f", "insulin\U000e0100", "\u2764\ufe01", "1\u2764 \ufe0f"])
def test_what_fonts_ignore_is_not_added(name):
    with pytest.raises(InvalidArgument, match="without invisible characters"):
        Arms.of(("c", "b"), {}).next_change("add", name, "north", 0)
    assert "nobody sees" in remarks_on_names((name,))[0], "terms may have it"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("insulin", "insulin\ufe0f"), ("in\u00adsulin", "insulin"), ("\u2764", "\u2764\ufe0f")),
        *(("\u0410\u0421\u041f\u0418\u0420\u0418\u041d", "\u0430\u0441\u043f\u0438\u0440\u0438\u043d"),),
        *(("A\u0421\u041f\u0418\u0420\u0418\u041d", "\u0430\u0441\u043f\u0438\u0440\u0438\u043d"),),
        *(("\u0391\u03a3\u03a0", "\u03b1\u03c3\u03c0"), ("INSULI\u039d", "insulin"), ("\ufb01n", "fin")),
        *((f"IL{hyphen}6", "IL-6") for hyphen in "\u2010\u2013\u2212"),
        ("Crohn\u2019s", "Crohn's"),
    ],
)
def test_names_that_people_take_for_one(one, other):
    assert same_to_readers((one, "b", other)) == same_to_readers((other, "b", one)) == (0, 2)


@pytest.mark.parametrize(("one", "other"), [("10\u00b2", "102"), ("Arm \u2460", "Arm 1"), ("H\u2082O", "H2O")])
def test_names_that_people_tell_apart(one, other):
    assert same_to_readers((one, other)) is None


def test_remarks_on_names_are_few():
    said = remarks_on_names(tuple(f"p\u0430racetamol {k}" for k in range(100)))
    assert (len(said), said[-1]) == (6, "and 95 more remarks on the names of arms.")


def test_names_that_look_alike():
    """A name with a Cyrillic letter among Latin ones is remarked on; one that looks like another arm's is not added."""
    arms = Arms.of(("aspirin", "b"), {})
    mixed = arms.next_change("add", "p\u0430racetamol", "north", 0)
    for there in (0, 1):  # it waits, or counts
        seen = Arms.of(arms.names, {mixed.id: ArmChanged(mixed, there)})
        (said,) = [it for it in warnings_of_arms(seen, None) if "cyrillic small letter a" in it]
        assert isinstance(said, Note)
    for name in ("Aspirin", "\u0430spirin", "\uff41spirin", "a\u0455pirin"):
        with pytest.raises(InvalidArgument, match="'aspirin' is there already, and people cannot tell them apart"):
            arms.next_change("add", name, "north", 0)
        told = ArmChange(1, "add", name, "east", 0)  # by a site that does not mind
        said = warnings_of_arms(Arms.of(arms.names, {told.id: ArmChanged(told, 0)}), None)
        assert any(f"cannot tell the arms 'aspirin' and {name!r} apart" in it for it in said)


def test_two_ways_to_write_one_name_are_one_name():
    arms = Arms.of(("caf\u00e9", "b"), {})
    assert arms.next_change("add", "th\u0065\u0301", "north", 0).arm == "th\u00e9"
    for there in (arms, Arms.of(("cafe\u0301", "b"), {})):
        with pytest.raises(InvalidArgument, match="is there already"):
            there.next_change("add", "cafe\u0301", "north", 0)


# ---------------------------------------------------------------- sites


def learn(network, name, mean, times, arms=None):
    for _ in range(times):
        decision = network.decide(name)
        network.report(name, decision.id, mean(network.site(name).arms.names[decision.arm]))


@pytest.mark.parametrize("policy", [FedBatch(5.0, first_batch=2), FedUCB(50.0, horizon=200), GossipUCB()])
def test_an_arm_is_added_and_learnt_where_it_is_accepted(policy):
    terms = replace(TERMS, policy=policy, counts=None)
    network = connected(terms=terms)
    network.accepts = {"1": frozenset({"0"})}
    network.restart("1")
    network.run()
    network.decide("1")
    network.change_arm("0", "add", "new")
    network.run()
    assert [network.site(name).arms.added for name in "012"] == [("new",), ("new",), ()]
    for _ in range(30):
        for name in "012":
            learn(network, name, lambda arm: float(arm == "new"), 2)
        network.run()
    assert not network.refused
    # The consistency rule makes them chase the counts of the arms that site 2 has alone.
    assert network.site("1").tried[2] > (0 if terms.catches_up else 5)
    assert network.site("0").theta[2] == network.site("1").theta[2]
    network.accept_arm("2", "new")
    if terms.catches_up:
        assert network.site("2").theta[2] is None, "a site tries every arm itself (Algorithm 1, line 1)"
    else:
        assert network.site("2").theta[2] == network.site("1").theta[2], "what the others know of it does not come"


def test_a_stopped_arm_is_given_to_nobody_and_its_late_rewards_count():
    network = connected()
    late = [network.decide("2") for _ in range(4)]
    network.change_arm("0", "suspend", "a")
    network.run()
    assert all(network.decide(name).arm == 1 for name in "012" for _ in range(50))
    assert all(network.report("2", it.id, 1.0) for it in late)
    assert network.site("2").rewards[0] == 2
    network.change_arm("1", "suspend", "b")
    network.run()
    for name in "012":
        with pytest.raises(NoArmLeft, match="a: suspended by 0; b: suspended by 1"):
            network.decide(name)
        assert any("no arm is left" in it for it in network.site(name).warnings())
    network.save_board("2")
    network.restart("2")
    network.run()
    with pytest.raises(NoArmLeft):
        network.decide("2")
    network.change_arm("2", "resume", "b")  # at its own site its operator's word counts
    network.run()
    assert network.decide("2").arm == 1
    with pytest.raises(NoArmLeft):
        network.decide("0")
    network.accept_arm("0", "b")
    assert network.decide("0").arm == 1


def test_only_a_stopped_arm_is_unknown():
    """The page would ask for an unknown arm first, and there is none among those that may be given."""
    network = MemoryNetwork(replace(TERMS, arms=("a", "b", "c")), PATH)
    network.change_arm("0", "suspend", "c")
    learn(network, "0", lambda _: 0.5, 40)
    assert network.site("0").tried[2] == 0
    assert min(network.site("0").tried[:2]) > 0


def test_another_arm_changes_no_release_and_draws_no_noise():
    """The same rewards and noise with and without an arm that is added, and at once suspended, in the middle."""

    def played(adds):
        drawn = []

        def noise(epsilon, count):
            drawn.append((epsilon, count))
            return [len(drawn) * 10_000] * count

        network = MemoryNetwork(
            replace(TERMS, policy=FedBatch(0.5, index="ucb", expected_decisions=200)), PATH, noise=noise
        )
        first = network.terms.first_batch
        learn(network, "0", lambda arm: float(arm == "a"), first + 3)
        before = network.site("0").stored
        if adds:
            network.change_arm("0", "add", "new")
            network.change_arm("0", "suspend", "new")
        after = network.site("0").stored
        assert (before.known, before.released, before.decisions) == (after.known, after.released, after.decisions)
        learn(network, "0", lambda arm: float(arm == "a"), 4 * first)
        site = network.site("0")
        fixed = site.terms.page_terms._asdict().items() - site._player.terms._asdict().items()
        assert {name for name, _ in fixed} <= set(COUNTED), "numbers that the terms fixed have changed"
        return drawn, site.stored.released, {k: it for k, it in site.stored.known.items() if k < 2}, site.own_means[:2]

    plain, grown = played(False), played(True)
    assert plain == grown
    assert plain[1]


def test_consent_to_a_retirement_is_given_by_itself():
    """Whoever accepts a resume does not end the arm for good with the same word."""
    network = connected()
    network.change_arm("0", "suspend", "a")
    network.run()
    network.change_arm("1", "suspend", "a")
    network.run()
    network.change_arm("0", "resume", "a")
    network.change_arm("2", "retire", "a")
    network.run()

    def accept(name, **how):
        network._do(name, lambda site: site.accept_arm("a", **how))
        return network.site(name).arms.standing("a").status

    assert accept("1") == "suspended", "of the retirement nobody has said anything"
    with pytest.raises(InvalidArgument, match=r"retire must be true: only the retirement of 'a' waits.*final"):
        accept("1")
    network.change_arm("1", "resume", "a")
    assert network.site("1").arms.standing("a").status == "active"
    assert not network.site("1").arms.waiting, "what its operator has lifted does not wait any more"
    assert accept("0", retire=True) == "retired"
    assert not any("stopped" in it for it in network.site("0").warnings()), "a retired arm is no alarm"


def test_a_site_that_has_changed_much_can_still_stop_an_arm():
    network = connected([("0", "1")])
    while len(network.site("0").arms.changes) < MAX_CHANGES - KEPT_FOR_STOPS:
        kind = "resume" if network.site("0").stopped else "suspend"
        network.change_arm("0", kind, "a")
    with pytest.raises(InvalidArgument, match="as many changes as others keep"):
        network.change_arm("0", "add", "new")
    network.change_arm("0", "suspend", "b")
    network.run()
    assert 1 in network.site("1").stopped


def test_arms_that_are_added_leave_each_an_equal_floor_and_that_is_said():
    terms = replace(TERMS, shares=Shares("a", 0.2, 0.3))
    network, source = MemoryNetwork(terms, PATH), Random(1)  # noqa: S311
    site = network.site("0")
    assert not any("least share" in it for it in site.warnings())
    for k in range(3):
        network.change_arm("0", "add", f"new {k}")
    asked = dict(choice(terms, site._player, site.n_max, draws_for(terms, source, 5)) for _ in range(300))
    assert asked == pytest.approx({0: 0.2, **dict.fromkeys(range(1, 5), 0.2)})
    assert any("4 arms leave no room for a least share of 0.3: each has 0.2" in it for it in site.warnings())


def test_an_old_file_may_know_fewer_arms():
    """What the site had released of an arm that it does not know any more is repeated until it does."""
    network = connected()
    network.accepts = dict.fromkeys("012", "anyone")
    learn(network, "1", lambda arm: 0.5, 3)
    network.run()
    old = network.snapshot("1")
    for name in "012":
        network.save_board(name)
        network.restart(name)
        network.run()
    network.change_arm("0", "add", "new")
    network.run()
    for _ in range(12):
        for name in "012":
            learn(network, name, lambda arm: float(arm == "new"), 2)
        network.run()
    told = network.site("0").board.held("1").bulletin.by_arm["new"]
    assert told.releases > 0
    network.put_back("1", old)
    network.accepts["1"] = frozenset()
    network.restart("1")
    network.run()
    assert network.site("1").doubt.why == "old"
    network.restore("1")
    network.run()
    assert network.site("1").arms.added == ()
    assert network.site("0").board.held("1").bulletin.by_arm["new"] == told
    network.accept_arm("1", "new")
    network.run()
    assert network.site("1").releases[2] == told.releases
    assert network.differences() == []


# ---------------------------------------------------------------- faults in the middle


class ChangesArms(Story):
    """A schedule in which arms are added, suspended, resumed and retired; some sites accept late or nobody."""

    def __init__(self, seed, kind=Watched, terms=TERMS):
        self.heard = {}  # of each site, all changes that it ever had on this disk
        self.looked_at = {}  # of each site, its arms when we last looked, and what it must not give
        super().__init__(seed, kind, terms)
        self.network.accepts = {
            name: self.random.choice(["anyone", frozenset({"0", "1"}), frozenset()]) for name in "01234"
        }
        self.changed = self.none_left = self.agreed = 0

    def on_a_fresh_disk(self, name):
        super().on_a_fresh_disk(name)
        self.expired[name], self.heard[name], self.looked_at[name] = [0] * 40, {}, (None, set())

    def stopped(self, name):
        """Names of the arms that a site must not give, whatever it remembers itself."""
        now = self.network.site(name).arms
        if self.looked_at[name][0] is not now:
            self.heard[name].update(now.changes)
            arms = Arms.of(self.network.terms.arms, self.heard[name])
            self.looked_at[name] = now, {arms.names[k] for k in arms.stopped}
        return self.looked_at[name][1]

    def decide_or_report(self):
        before = {name: self.stopped(name) for name in self.network.running}
        if before and self.random.random() < 0.01:
            self.check_propensities(self.random.choice(list(before)))
        given = {name: len(self.waiting[name]) for name in self.network.names}
        try:
            super().decide_or_report()
        except NoArmLeft:
            self.none_left += 1
        for name, stopped in before.items():
            for decision, _ in self.waiting[name][given[name] :]:
                arm = self.network.site(name).arms.names[decision.arm]
                assert arm not in stopped, f"{name} gave an arm of whose stop it had heard"

    def check_propensities(self, name):
        """They sum to 1 over the arms that may come: 60 draws leave out more than 0.4 of it in 1 of 10^13 cases."""
        site, source = self.network.open_site(name, self.network._disks[name]), Random(1)  # noqa: S311
        with suppress(NoArmLeft, HorizonReached):
            allowed = Request().arms(len(site.arms.names), site.stopped)
            asked = [
                choice(
                    site.terms, site._player, site.n_max, draws_for(site.terms, source, len(site.arms.names)), allowed
                )
                for _ in range(60 if allowed is None or allowed else 0)
            ]
            assert 0.6 < sum(dict(asked).values()) < 1.0 + 1e-9 or not asked

    def fault(self):
        super().fault()
        random, network = self.random, self.network
        name = random.choice(network.names)
        if name not in network.running:
            return
        seen = network.site(name).arms
        kind = random.choices(["add", "suspend", "resume", "retire", "accept"], [2, 3, 5, 0.3, 3])[0]
        arm = f"new {random.randrange(6)}" if kind == "add" else random.choice(seen.names)
        with suppress(Down, InvalidArgument):
            if kind == "accept":
                network.accept_arm(name, random.choice([it.arm for it in seen.waiting] or ["none"]))
            else:
                network.change_arm(name, kind, arm)
            self.changed += 1


@pytest.mark.parametrize("block", range(4))
def test_in_spite_of_faults(block, fault_seeds):
    """No arm is given that a site knows to be stopped; all end with the same list, and equal boards.

    One schedule in four has all 1,500 events, the others a third of them.
    """
    changed = none_left = grown = repeated = cancelled = agreed = 0
    shares = Shares("a", 0.2, 0.1)
    terms = [
        Federation(
            "test", ("a", "b", "c"), 0.0, 1.0, FedBatch(1.0, first_batch=3, growth=1.5), counts="sites", max_agents=5
        ),
        Federation("test", ("a", "b", "c"), 0.0, 1.0, FedUCB(10.0, horizon=60), max_agents=5),
        Federation(
            "test", ("a", "b"), 0.0, 1.0, FedBatch(1.0, first_batch=3), reward_window=20.0, shares=shares, max_agents=5
        ),
        Federation("test", ("a", "b"), 0.0, 1.0, GossipUCB(), max_agents=5),
    ]
    for seed in range(3000 + block * fault_seeds // 8, 3000 + (block + 1) * fault_seeds // 8):
        try:
            story = ChangesArms(seed, terms=terms[seed % 4])
            story.faulty(FAULTY_EVENTS if seed % 16 < 4 else FAULTY_EVENTS // 3)
            story.calm()
            network = story.network
            until_all_agree_on_arms(story)
            for name in network.names:
                network.save_board(name)
                site, again = network.site(name), network.open_site(name, network._disks[name])
                assert (again.theta, again.tried, again.arms) == (site.theta, site.tried, site.arms)
                check_rewards(story, name)
                check_releases(site)
                grown += len(site.arms.added)
            assert not [it for it in network.refused if "must be" in it or "forged" in it], network.refused
            changed, none_left = changed + story.changed, none_left + story.full
            repeated, cancelled = repeated + story.repeated, cancelled + story.cancels
            agreed += story.agreed
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert changed > fault_seeds // 2
    assert agreed > fault_seeds // 16, "in half of all schedules everybody knows everything"
    assert grown > fault_seeds // 4
    assert min(none_left, repeated, cancelled) > fault_seeds // 40


def until_all_agree_on_arms(story):
    network = story.network
    for name in network.names:
        story.include_all(name)
    sweep_until_quiet(story)
    check_boards(network)
    for (
        name
    ) in network.names:  # a change lives in its maker's bulletin: whoever loses that, and his file, stops saying it
        changes = network.site(name).arms.changes
        board = network.site(name).board
        known = {*network.site(name).arms.names, *(it.change.arm for it in changes.values())}  # of a lost file no arms
        said = {it.id for other in board.sites for it in board.held(other).bulletin.changes if it.arm in known}
        assert said <= changes.keys(), f"{name} does not know a change"
        assert {changes[it].change.by for it in changes.keys() - said} <= story.lost
    for name in network.names:  # then all accept all, and all agree on everything
        for arm in {it.arm: None for it in network.site(name).arms.waiting}:
            network.accept_arm(name, arm)
    sweep_until_quiet(story)
    check_boards(network)
    seen = [network.site(name).arms for name in network.names]
    changes = [set(arms.changes) for arms in seen]
    if any(it != changes[0] for it in changes):
        return
    changed = {it.change.arm for site in seen for it in site.changes.values()}
    retired = {name for it in seen for name in changed if it.standing(name).status == "retired"}  # where accepted
    assert len({frozenset(it.names) - retired for it in seen}) == 1
    statuses = {frozenset((name, it.standing(name).status) for name in it.names if name not in retired) for it in seen}
    assert len(statuses) == 1, f"sites that accept the same disagree: {statuses}"
    story.agreed = True


def test_faults_of_a_network_without_losses_reach_everybody():
    network = connected(faults=Faults(delay=(0.0, 1.0)))
    network.change_arm("2", "suspend", "a")
    network.run()
    assert all(network.site(name).stopped == {0} for name in "012")
