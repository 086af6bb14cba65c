"""What an application may ask: keys, subjects, eligible arms, counts; cancelled decisions; many rewards."""

import struct
from contextlib import closing
from dataclasses import replace

import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB, InvalidArgument, Shares
from fedbandit.agent.core.decisions import (
    MAX_DECISIONS,
    MAX_TEXT,
    Expired,
    Request,
    Retention,
    SiteDraws,
    arms_in,
    as_bits,
)
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import (
    DecisionCancelled,
    DecisionNotFound,
    HorizonReached,
    Kept,
    KeyTaken,
    NoArmLeft,
    Numbering,
    Rewarded,
    StoppedMeanwhile,
    Stored,
    WindowOver,
)
from fedbandit.agent.core.release_guard import Presence
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import SqliteJournal

ARMS = ("a", "b", "c")
TERMS = Federation("test", ARMS, 0.0, 1.0, FedBatch(1.0, first_batch=2), counts="sites", max_agents=3)
WINDOW = replace(TERMS, reward_window=10.0, default_reward=0.5)
EXACT = replace(TERMS, policy=GossipUCB())
TREE = replace(TERMS, policy=FedUCB(10.0, horizon=1))
DRAWS = SiteDraws((0.0, 0.0, 0.0), 0.0)
NEVER = 10**9


class Stopping(Site):
    """A site that has heard that arms were stopped."""

    @property
    def off(self):
        return self._arms.stopped

    @off.setter
    def off(self, arms):
        self._arms = replace(self._arms, stopped=arms)


def new_site(terms=TERMS, stored=None, presence=None, **options):
    stored = stored or Stored(Numbering(1, 0), key=b"key")
    return Stopping("here", terms, stored, lambda _, count: [0] * count, presence, **options)


def again(site):
    """The same after a restart."""
    return new_site(site.terms, site.stored)


def ask(site, at=1.0, **request):
    asked = Request(**request)
    return site.decide(at, [DRAWS] * asked.count, asked).result


# ---------------------------------------------------------------- keys


def test_a_key_gets_the_same_decisions_again_also_after_a_restart():
    site = new_site()
    first = ask(site, key="visit 7", count=3)
    assert [it.number for it in first] == [1, 2, 3]
    for restarted in (site, again(site)):
        step = restarted.decide(9.0, [DRAWS] * 3, Request(key="visit 7", count=3))
        assert (step.result, step.records) == (first, ())
        assert restarted.decided == 3
    assert ask(site, key="visit 8")[0].number == 4


def test_a_decision_of_a_key_is_told_as_it_stands():
    site = new_site()
    (first,) = ask(site, key="k")
    site.report(first.id, 0.5)
    (found,) = ask(site, key="k")
    assert (found.id, found.arm, found.rewarded) == (first.id, first.arm, True)


@pytest.mark.parametrize(
    "other", [{"count": 2}, {"subject": "s"}, {"eligible": (0,)}, {"exclude": (0,)}, {"eligible": (0, 1, 2)}]
)
def test_a_key_belongs_to_its_request(other):
    site = new_site()
    ask(site, key="k")
    before = site.stored
    for restarted in (site, again(site)):
        with pytest.raises(KeyTaken, match="another request"):
            ask(restarted, key="k", **other)
        assert restarted.stored == before


def test_the_order_of_arms_does_not_make_another_request():
    site = new_site()
    assert ask(site, key="k", eligible=(2, 1, 1)) == ask(site, key="k", eligible=(1, 2))


def test_a_key_is_forgotten_with_its_decisions():
    site = new_site()
    first = ask(site, key="k", count=2)
    site.expire(0.0, keep=1)
    with pytest.raises(KeyTaken, match="1 of the 2 decisions of this key are forgotten"):
        ask(site, key="k", count=2)
    site.expire(0.0, keep=0)
    second = ask(site, key="k", count=2)
    assert {it.id for it in first}.isdisjoint(it.id for it in second)
    assert ask(again(site), key="k", count=2) == second


@pytest.mark.parametrize("window", [0.0, 10.0])
def test_a_key_whose_arm_was_stopped_gets_one_answer_whatever_was_reported(window):
    """It names the decision, so that one that was given is found; and it tells nothing of a reward, in time or late."""
    site = new_site(terms=replace(TERMS, reward_window=window))
    first, second, third = (ask(site, key=key, eligible=(0,))[0] for key in ("none", "in time", "late"))
    site.report(second.id, 1.0)
    site.settle(20.0)
    site.report(third.id, 1.0)
    site.off = frozenset({0})
    for key, decision in (("none", first), ("in time", second), ("late", third)):
        with pytest.raises(StoppedMeanwhile) as refused:
            ask(site, key=key, eligible=(0,))
        assert str(refused.value) == f"a, the arm of the decision {decision.id} of this key, was stopped"
    site.off = frozenset()
    assert ask(site, key="in time", eligible=(0,))[0].id == second.id, "once it is resumed"


def test_a_key_whose_decision_was_cancelled_is_refused():
    site = new_site()
    (first,) = ask(site, key="k")
    site.cancel(first.id, 1.0)
    with pytest.raises(DecisionCancelled, match=first.id):
        ask(again(site), key="k")


def test_only_hashes_are_stored_and_two_sites_have_different_ones():
    one, other = new_site(), new_site(stored=Stored(Numbering(1, 0), key=b"another"))
    for site in (one, other):
        ask(site, key="visit 7", subject="Ada Lovelace")
    assert "Ada" not in repr(one.stored)
    assert "visit" not in repr(one.stored)
    mine, its = (next(iter(site.stored.decisions.values())) for site in (one, other))
    assert (len(mine.key), len(mine.subject)) == (16, 16)
    assert mine.key[:12] != its.key[:12]
    assert mine.subject != its.subject


# ---------------------------------------------------------------- subjects


def test_a_subject_keeps_its_arm_while_it_is_remembered():
    site = new_site()
    (first,) = ask(site, subject="s")
    ask(site, count=4)
    for restarted in (site, again(site)):
        (kept,) = ask(restarted, subject="s")
        assert (kept.arm, kept.propensity) == (first.arm, 1.0)
        assert kept.id != first.id
    (other,) = ask(site, subject="s", exclude=(first.arm,))
    assert other.arm != first.arm
    assert ask(site, subject="s")[0].arm == other.arm, "its newest decision is what it keeps"
    assert ask(site, subject="t")[0].subject != other.subject
    assert len({it.arm for it in ask(site, subject="u", count=5)}) == 1


def test_a_subject_is_forgotten_with_its_newest_decision():
    site = new_site()
    arms = [ask(site, at=1.0, subject="s")[0].arm]
    ask(site, at=2.0)
    site.expire(2.0, NEVER)
    assert not site._decisions._requests._subjects
    arms.append(ask(site, at=3.0, subject="s")[0].arm)
    assert arms == [0, 2], "a new choice: round robin while arms are unknown"


def test_an_arm_that_may_not_be_given_is_not_kept():
    site = new_site()
    (first,) = ask(site, subject="s")
    site.off = frozenset({first.arm})
    assert ask(site, subject="s")[0].arm != first.arm
    full = new_site(TREE)
    given = [ask(full, subject="s")[0].arm for _ in range(6)]
    assert sorted(given) == [0, 0, 1, 1, 2, 2], "an arm without room cannot be kept"


# ---------------------------------------------------------------- arms and counts


def test_only_eligible_arms_are_given_and_the_log_knows_them():
    site = new_site()
    for at in range(40):
        (decision,) = ask(site, at=at, eligible=(0, 2))
        assert decision.arm in (0, 2)
        assert arms_in(decision.eligible) == [0, 2]
        site.report(decision.id, 1.0)
        (decision,) = ask(site, at=at, exclude=(0,))
        assert decision.arm in (1, 2)
        assert arms_in(decision.eligible) == [1, 2]
        site.report(decision.id, 0.0)
    assert ask(site)[0].eligible == b""


def test_a_stopped_arm_is_given_to_nobody():
    site = new_site()
    site.off = frozenset({0, 2})
    assert {it.arm for it in ask(site, count=20)} == {1}
    before = site.stored
    with pytest.raises(NoArmLeft, match="no arm is left for this request"):
        ask(site, eligible=(0, 2))
    for nothing in ({"eligible": ()}, {"exclude": (0, 1, 2)}):
        with pytest.raises(NoArmLeft, match="no arm is left"):
            ask(site, **nothing)
    assert site.stored == before


def test_as_many_as_there_is_room_for_or_none():
    site = new_site(TREE)  # two of each arm
    before = site.stored
    with pytest.raises(HorizonReached):
        ask(site, count=7)
    assert site.stored == before
    assert site.tried == (0, 0, 0)
    assert len(ask(site, count=6)) == 6


def test_several_are_drawn_in_turn():
    one, many = new_site(), new_site()
    single = [one.decide(1.0, DRAWS).result.arm for _ in range(9)]
    assert [it.arm for it in ask(many, count=9)] == single
    assert many.stored.numbering == Numbering(1, 9)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"count": 0}, "count"),
        ({"count": MAX_DECISIONS + 1}, "count"),
        ({"key": ""}, "key"),
        ({"key": "x" * (MAX_TEXT + 1)}, "key"),
        ({"key": "a\nb"}, "key"),
        ({"subject": "\ud800"}, "subject"),
        ({"subject": 7}, "subject"),
        ({"eligible": (0,), "exclude": (1,)}, "exclude"),
    ],
)
def test_wrong_requests(wrong, field):
    with pytest.raises(InvalidArgument) as error:
        Request(**wrong)
    assert error.value.argument == field


def test_wrong_arms_and_draws_change_nothing():
    site = new_site()
    before = site.stored
    for wrong in ({"eligible": (3,)}, {"exclude": (-1,)}):
        with pytest.raises(InvalidArgument):
            ask(site, **wrong)
    with pytest.raises(InvalidArgument, match="draws"):
        site.decide(1.0, [DRAWS], Request(count=2))
    with pytest.raises(InvalidArgument, match="at must be"):
        site.decide(float("nan"), DRAWS)
    assert site.stored == before
    assert site.tried == (0, 0, 0)


@pytest.mark.parametrize("arms", [(), (0,), (7,), (8,), (0, 3, 200)])
def test_sets_of_arms(arms):
    assert arms_in(as_bits(arms)) == list(arms)
    assert as_bits(arms), "empty bytes mean all"


# ---------------------------------------------------------------- cancelled


@pytest.mark.parametrize("terms", [TERMS, WINDOW, EXACT, TREE], ids=["batch", "window", "exact", "tree"])
def test_a_cancelled_decision_does_not_count(terms):
    site = new_site(terms)
    made = ask(site, count=3)
    step = site.cancel(made[0].id, 2.0)
    assert (site.tried, site.pending, site.decided) == ((0, 1, 1), 2, 3)
    assert step.records
    assert site.cancel(made[0].id, 3.0).records == (), "idempotent"
    with pytest.raises(DecisionCancelled):
        site.report(made[0].id, 1.0)
    with pytest.raises(DecisionNotFound):
        site.cancel("nobody", 3.0)
    restarted = again(site)
    assert (restarted.tried, restarted.pending) == (site.tried, site.pending)
    for it in made[1:]:
        site.report(it.id, 1.0)
    site.settle(100.0)
    assert site.rewards == (0, 1, 1)
    assert site.expire(1e6, 0).result == Expired(3, 0, 0)
    assert site.tried == (0, 1, 1)


def test_a_decision_that_was_used_cannot_be_cancelled():
    site = new_site(WINDOW)
    first, second, third = ask(site, at=1.0, count=3)
    site.report(first.id, 1.0)
    with pytest.raises(Rewarded):
        site.cancel(first.id, 2.0)
    clock = site.clock
    with pytest.raises(WindowOver):
        site.cancel(second.id, 11.0)
    assert site.clock == clock, "a refusal changes nothing"
    site.settle(11.0)
    with pytest.raises(WindowOver):
        site.cancel(second.id, 11.0)
    with pytest.raises(WindowOver):  # which does not tell whether a reward came
        site.cancel(first.id, 11.0)
    site.report(third.id, 1.0)
    assert site.decision(third.id).late
    assert site.rewards == (1, 1, 1)


def test_without_a_window_what_waited_for_a_cancelled_decision_counts():
    site = new_site(EXACT)
    made = ask(site, count=3, eligible=(0,))
    site.report(made[1].id, 0.25)
    assert (site.rewards, site.waiting) == ((0, 0, 0), 1)
    site.cancel(made[0].id, 2.0)
    assert (site.rewards, site.waiting, site.pending) == ((1, 0, 0), 0, 1)
    assert site.own_means[0] == 0.25
    assert again(site).own_means[0] == 0.25


def test_with_a_window_the_others_count_when_they_are_due_as_if_it_had_never_been():
    site, other = new_site(WINDOW), new_site(WINDOW)
    for at in range(1, 7):
        (decision,) = ask(site, at=at, eligible=(0,))
        if at % 3:
            ask(other, at=at, eligible=(0,))
        else:
            site.cancel(decision.id, at + 0.5)
        for second in (site, other):
            second.settle(at + 0.6)
            assert second.releases == (0, 0, 0)
    for now in (11.5, 12.5, 14.5, 15.5, 20.0):
        site.settle(now)
        other.settle(now)
        assert (site.rewards, site.releases, site.own_means) == (other.rewards, other.releases, other.own_means)


def test_while_nothing_is_released_a_decision_can_be_cancelled_and_nothing_is_played():
    site = new_site(stored=Stored(Numbering(1, 1), key=b"key"), presence=Presence(7))
    site.link(["there"])
    made = ask(site, count=3, eligible=(0,))
    site.report(made[1].id, 1.0)
    assert site.doubt is not None
    site.cancel(made[0].id, 2.0)
    assert (site.rewards, site.waiting) == ((0, 0, 0), 1)
    site.confirm(8)
    site.settle(3.0)
    assert site.rewards == (1, 0, 0)


def test_a_new_incarnation_neither_counts_nor_forgets_what_was_cancelled():
    site = new_site()
    made = ask(site, count=4)
    site.cancel(made[0].id, 1.0)
    old = new_site(stored=replace(site.stored, run=3), presence=Presence(7))
    restored = old.restore(2, 8).result
    assert (restored.rewards, restored.decisions, restored.kept) == (0, 3, 0)
    assert list(old.stored.decisions) == [made[0].id]
    assert old.tried == (0, 0, 0)
    with pytest.raises(DecisionCancelled):
        old.report(made[0].id, 1.0)


def test_a_cancelled_decision_leaves_room():
    site = new_site(TREE)
    made = ask(site, count=6)
    with pytest.raises(HorizonReached):
        ask(site)
    site.cancel(made[0].id, 1.0)
    assert ask(site)[0].arm == made[0].arm


# ---------------------------------------------------------------- rewards


def test_many_rewards_in_one_step():
    site, alone = new_site(WINDOW), new_site(WINDOW)
    made, same = ask(site, count=4), ask(alone, count=4)
    site.cancel(made[3].id, 1.0)
    alone.cancel(same[3].id, 1.0)
    given = [(made[0].id, 1.0), ("nobody", 1.0), (made[1].id, 2.0), (made[3].id, 1.0), (made[2].id, 0.0)]
    given.append((made[0].id, 0.0))
    step = site.report_all(given)
    assert [type(it) for it in step.result] == [bool, DecisionNotFound, InvalidArgument, DecisionCancelled, bool, bool]
    assert [it for it in step.result if it is True] == [True, True, True]
    records = []
    for it, value in ((same[0], 1.0), (same[2], 0.0)):
        records += alone.report(it.id, value).records
    assert step.records == tuple(records)
    assert site.stored == alone.stored
    assert site.report_all(given).records == (), "idempotent"


def test_rewards_are_kept_for_the_log_only_if_the_site_says_so(tmp_path):
    tmp_path.chmod(0o700)

    def open_journal():
        return closing(SqliteJournal(tmp_path / "state", "here", TERMS, 1))

    def on_disk():
        content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        return {i for i in range(1, 5) if struct.pack("<d", i / 7) in content}

    with open_journal() as journal:
        site = new_site(stored=journal.load(), keeps_rewards=True)

        def do(step):
            journal.commit(step.records)
            return step.result

        made = do(site.decide(1.0, [DRAWS] * 6, Request(count=6)))
        for i, it in enumerate(made[:5]):
            do(site.report(it.id, i / 7))
        assert site.log()[1] == {it.id: i / 7 for i, it in enumerate(made[:5])}
        do(site.expire(0.0, keep=4))
        journal.erase()
        assert journal.load() == site.stored
        assert len(site.log(after=4)[0]) == 2
        assert on_disk() == {2, 3, 4}, "what is forgotten leaves the files"
    with open_journal() as journal:
        assert journal.load() == site.stored
        site = new_site(stored=journal.load())
        step = site.open()
        assert {type(it) for it in step.records} == {Kept}
        journal.commit(step.records)
        assert journal.load().kept == {}
        journal.erase()
        decision = site.decide(2.0, DRAWS).result
        assert not any(isinstance(it, Kept) for it in site.report(decision.id, 0.5).records)
    with open_journal() as journal:
        assert journal.load().kept == {}
        found = journal._file.execute("SELECT content FROM kept").fetchall()
        assert {content for (content,) in found} == {bytes(16)}
        assert on_disk() == set()


# ---------------------------------------------------------------- what is forgotten


def test_expiry_says_how_many_had_no_reward_and_why():
    site = new_site()
    made = [ask(site, at=at)[0] for at in range(10)]
    site.report(made[0].id, 1.0)
    site.cancel(made[1].id, 9.0)
    assert site.expire(4.0, keep=4).result == Expired(6, by_age=2, by_keep=2)
    assert site.expire(0.0, keep=4).result == Expired(0)


def test_a_warning_comes_before_a_pending_decision_is_forgotten():
    limits = Retention(20, 1000.0)
    site = new_site()
    (first,) = ask(site, at=0.0)

    def said(now):
        return [*site.warnings_of_forgetting(limits, now)]

    for number in range(2, 18):
        site.report(ask(site, at=1.0, eligible=(1,))[0].id, 1.0)
        assert said(5.0) == [], number
    site.report(ask(site, at=1.0, eligible=(1,))[0].id, 1.0)
    assert "after 3 more decisions" in said(5.0)[0]
    for _ in range(2):
        site.report(ask(site, at=1.0, eligible=(1,))[0].id, 1.0)
        assert site.expire(0.0, limits.keep).result.total == 0
    assert "after 1 more decisions" in said(5.0)[0]
    assert len(said(899.0)) == 1
    assert "in 0.0 hours" in said(900.0)[1]
    site.report(ask(site, at=1.0, eligible=(1,))[0].id, 1.0)
    assert site.expire(0.0, limits.keep).result == Expired(1, 0, 1)
    assert said(900.0) == []
    assert first.id not in site.stored.decisions
    windowed = new_site(WINDOW)
    ask(windowed, at=0.0)
    assert [*windowed.warnings_of_forgetting(Retention(1, 1.0), 1e6)] == [], "nothing is lost"


def test_a_decision_says_why_it_was_certain():
    """So that whoever evaluates the log later knows which decisions say nothing of other arms."""
    ucb = replace(TERMS, policy=FedBatch(1.0, "ucb", first_batch=2))
    for terms, why in ((TERMS, None), (ucb, "index"), (replace(ucb, shares=Shares(least_share=0.1)), None)):
        site, draws = new_site(terms), SiteDraws((0.0, 0.0, 0.0), 0.0, 0.5 if terms.shares else None)
        asked = [Request(subject="anna", key="1"), Request(subject="anna"), Request(eligible=(1,))]
        asked += [Request(eligible=(k,)) for k in range(3) for _ in range(4)]
        made = [site.decide(0.0, draws, it).result for it in asked]
        assert [it.deterministic for it in made] == [None, "subject", *["one arm"] * 13]
        assert made[1].propensity == 1.0
        assert site.decide(0.0, draws, asked[0]).result == made[0], "the same decision, not another"
        for it in made:
            site.report(it.id, 0.5)
        assert None not in site.theta
        now = site.decide(0.0, draws).result
        assert now.deterministic == why
        assert (now.propensity == 1.0) == (why is not None)


def test_why_it_was_certain_is_on_disk(tmp_path):
    with closing(SqliteJournal(tmp_path / "state", "here", TERMS, 1)) as journal:
        site = new_site(stored=journal.load())
        for request in (Request(subject="anna"), Request(subject="anna"), Request(eligible=(1,))):
            journal.commit(site.decide(0.0, DRAWS, request).records)
    with closing(SqliteJournal(tmp_path / "state", "here", TERMS, 1)) as journal:
        assert [it.deterministic for it in journal.load().decisions.values()] == [None, "subject", "one arm"]
