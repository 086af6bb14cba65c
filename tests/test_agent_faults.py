"""Real processes under real faults: what was promised holds in their files."""

import pytest

from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.records import DecisionRecord, Known, Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import SqliteJournal
from live import TERMS, bulletin_of
from process_faults import WINDOW, Outcome, Told, federation_terms, run_with_faults
from processes import measured


def check(outcome):
    measured(f"all sites released {outcome.held:.1f} s after the last fault")
    assert outcome.kills > 0
    assert outcome.pauses > 0
    assert all(told.acknowledged for told in outcome.told.values()), "a site took no reward: little was compared"
    assert outcome.snapshots
    assert outcome.lost() == []
    assert outcome.uncalled() == []
    assert outcome.too_late() == []
    assert outcome.miscounted() == []
    assert outcome.redrawn() == []
    assert outcome.unequal() == []
    assert outcome.unpublished() == []


def test_seconds_of_kills_and_pauses(tmp_path):
    """Few agents, so that it fits beside other tests; seed 3 has both kinds of faults in its first seconds."""
    check(run_with_faults(tmp_path, num_agents=4, seconds=6.0, seed=3, quiet=6.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_minute_of_kills_and_pauses(tmp_path, seed):
    check(run_with_faults(tmp_path, num_agents=8, seconds=60.0, seed=seed, quiet=10.0))


class TestTheChecksCanFail:
    """What they would say of files that are wrong."""

    @staticmethod
    def outcome(decisions=(), known=(), told=None, snapshots=()):
        stored = Stored(Numbering(1, len(decisions)))
        stored.apply([*decisions, *known])
        return Outcome({"north": told or Told()}, {"north": stored}, {}, list(snapshots), 1, 1)

    def test_a_lost_reward(self):
        told = Told(acknowledged={"1-1": 1.0})
        assert self.outcome([DecisionRecord("1-1", 1, 0, 0.0)], told=told).lost()
        assert self.outcome(told=told).lost()

    def test_a_reward_that_nobody_reported(self):
        assert self.outcome([DecisionRecord("1-1", 1, 0, 0.0, rewarded=True)]).uncalled()

    def test_a_reward_that_counts_although_it_was_too_late(self):
        told = Told(late={"1-1"}, unsure={"1-1": 1.0})
        assert self.outcome([DecisionRecord("1-1", 1, 0, 0.0, played=True, rewarded=True)], told=told).too_late()
        assert self.outcome([DecisionRecord("1-1", 1, 0, 0.0, played=True)], told=told).too_late()
        assert not self.outcome([DecisionRecord("1-1", 1, 0, 0.0, played=True, late=True)], told=told).too_late()

    def test_a_decision_that_does_not_count(self):
        assert self.outcome([DecisionRecord("1-1", 1, 0, 0.0)]).miscounted()

    def test_a_reward_that_counts_twice(self):
        told = Told(acknowledged={"1-1": 1.0})
        assert self.outcome(
            [DecisionRecord("1-1", 1, 0, 0.0, rewarded=True)], [Known(0, {"n": 2})], told=told
        ).miscounted()

    def test_boards_that_differ_and_what_is_not_published(self):
        def site(name, reward):
            made = Site(name, TERMS, Stored(Numbering(1, 0)))
            made.merge(bulletin_of("east", reward=reward), "east", 1e9)
            return made

        equal = Outcome({}, {}, {it: site(it, 1.0) for it in ("north", "south")}, [], 1, 1)
        assert equal.unequal() == []
        assert len(equal.unpublished()) == 2
        different = Outcome({}, {}, {"north": site("north", 1.0), "south": site("south", 0.0)}, [], 1, 1)
        assert len(different.unequal()) == 2

    def test_a_release_that_was_drawn_again(self, tmp_path):
        def a_file(path, noise):
            journal = SqliteJournal(path, "north", federation_terms(2), 1)
            site = Site("north", federation_terms(2), journal.load(), lambda *_: [noise])
            for _ in range(120):  # some arm has a whole batch
                step = site.decide(0.0, SiteDraws((0.0, 0.0, 0.0), 0.0))
                journal.commit(step.records)
                journal.commit(site.report(step.result.id, 0.5).records)
            journal.commit(site.settle(WINDOW).records)
            journal.close()
            return path, site.stored.known

        before, known = a_file(tmp_path / "before.sqlite", 1000)
        _, other = a_file(tmp_path / "after.sqlite", 2000)
        snapshots = [("north", before)]
        assert not self.outcome(known=[Known(*row) for row in known.items()], snapshots=snapshots).redrawn()
        assert self.outcome(known=[Known(*row) for row in other.items()], snapshots=snapshots).redrawn()
        assert self.outcome(snapshots=snapshots).redrawn()
