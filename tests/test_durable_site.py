"""Nothing is told before it is on disk, and what the disk has not taken has not happened."""

import asyncio

import pytest

from fedbandit.agent.core.site import DecisionDraws, Site, Step, UnknownDecision
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from live import TERMS

DRAWS = DecisionDraws((0.3, -0.2, 0.1), 0.6)


class Disk(SqliteJournal):
    """A journal that says what it has written, and that can fail."""

    fails = False
    written = 0

    def commit(self, records):
        if Disk.fails:
            raise JournalError("the disk is full")
        super().commit(records)
        Disk.written += len(records)


@pytest.fixture
def site(tmp_path):
    Disk.fails, Disk.written = False, 0
    made = DurableSite(
        lambda: Disk(tmp_path / "here.db", "here", TERMS, 1),
        lambda stored: Site("here", TERMS, stored, lambda epsilon, count: [0] * count),
        lambda: 0.0,
    )
    yield made
    made.close()


def decide(site):
    return site.decide(0.0, DRAWS)


def test_nothing_is_told_before_it_is_on_disk(site):
    """Also with many events at once, which share a transaction."""

    async def scenario():
        async def one():
            decision = await site.do(decide)
            assert decision.id in site._journal.load().decisions
            return decision.number

        assert await asyncio.gather(*(one() for _ in range(5))) == [1, 2, 3, 4, 5]
        Disk.fails = True
        with pytest.raises(JournalError, match="full"):
            await site.do(decide)

    asyncio.run(scenario())


def test_the_reason_of_a_refusal_is_on_disk(site):
    """A refusal says that a decision is forgotten: after a crash it must still be."""

    async def refused(decision):
        with pytest.raises(UnknownDecision):
            await site.do(lambda it: it.report(decision.id, 0.75))
        assert site._journal.load().decisions == {}

    async def scenario():
        decision = await site.do(decide)
        await asyncio.gather(site.do(lambda it: it.expire(1.0, 0)), refused(decision))

    asyncio.run(scenario())


def test_what_is_shown_is_on_disk(site):
    async def scenario():
        task = asyncio.create_task(site.do(decide))
        await asyncio.sleep(0)  # the event has run; its records wait
        assert Disk.written == 0
        assert site.look().decided == 1
        assert site._journal.load().life.decisions == 1
        await task

    asyncio.run(scenario())


def test_an_event_that_changes_nothing_waits_for_those_that_it_may_tell_of(site):
    """With none before it, it waits for nothing."""

    async def scenario():
        first = asyncio.create_task(site.do(decide))
        await asyncio.sleep(0)  # the event has run; its records wait
        assert await site.do(lambda it: Step(it.decided)) == 1
        assert site._journal.load().life.decisions == 1
        await first
        alone = site.do(lambda it: Step(it.decided))
        with pytest.raises(StopIteration, match="1"):
            alone.send(None)

    asyncio.run(scenario())


def test_what_a_failed_disk_has_not_taken_has_not_happened(site):
    async def scenario():
        Disk.fails = True
        with pytest.raises(JournalError, match="full"):
            await site.do(decide)
        Disk.fails = False
        assert site.look().decided == 0
        assert (await site.do(decide)).number == 1

    asyncio.run(scenario())


def test_an_event_that_breaks_leaves_nothing_behind(site):
    """And does not harm the events that came with it."""

    def breaks(it):
        it.decide(0.0, DRAWS)
        raise ZeroDivisionError("half way")

    async def scenario():
        whole = asyncio.create_task(site.do(decide))
        with pytest.raises(ZeroDivisionError):
            await asyncio.create_task(site.do(breaks))
        assert (await whole).number == 1
        assert site.look().decided == 1
        assert len(site.look().stored.decisions) == 1

    asyncio.run(scenario())
