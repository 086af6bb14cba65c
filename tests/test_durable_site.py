"""Nothing is told before it is on disk, and what the disk has not taken has not happened; on fast and slow disks."""

import asyncio
import threading
from dataclasses import replace
from typing import ClassVar

import pytest

from fedbandit.agent.core.bulletin import Signed
from fedbandit.agent.core.decisions import SiteDraws
from fedbandit.agent.core.records import DecisionNotFound, Excluded, Step
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk import durable_site
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.checks import InvalidArgument
from live import TERMS, bulletin_of

DRAWS = SiteDraws((0.3, -0.2, 0.1), 0.0)


class Disk(SqliteJournal):
    """A journal that says what it has written, and that can fail."""

    fails = False
    written = 0
    commits = 0
    gate = None
    """Commits begin when it is open."""
    erasing_fails = False
    erased_after: ClassVar = []
    """How much was written when each erasure began."""

    def commit(self, records):
        if Disk.gate is not None:
            assert threading.current_thread() is not threading.main_thread()
            assert Disk.gate.wait(60)
        if Disk.fails:
            Disk.fails = Disk.fails != "once"
            raise JournalError("the disk is full")
        super().commit(records)
        Disk.written += len(records)
        Disk.commits += 1

    def erase(self):
        if Disk.gate is not None:
            assert threading.current_thread() is not threading.main_thread()
            assert Disk.gate.wait(60)
        Disk.erased_after.append(Disk.written)
        if Disk.erasing_fails:
            raise JournalError("no room")
        super().erase()


def make_site(tmp_path):
    Disk.fails, Disk.written, Disk.commits, Disk.gate = False, 0, 0, None
    Disk.erasing_fails, Disk.erased_after = False, []
    return DurableSite(
        lambda: Disk(tmp_path / "here.db", "here", TERMS, 1),
        lambda stored: Site("here", TERMS, stored, lambda epsilon, count: [0] * count),
        lambda: 0.0,
    )


@pytest.fixture(params=[float("inf"), -1.0], ids=["fast disk", "slow disk"])
def site(tmp_path, monkeypatch, request):
    monkeypatch.setattr(durable_site, "SLOW", request.param)
    made = make_site(tmp_path)
    yield made
    made.close()


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A site whose commits wait at a gate."""
    monkeypatch.setattr(durable_site, "SLOW", -1.0)
    made = make_site(tmp_path)
    Disk.gate = threading.Event()
    yield made
    Disk.gate.set()
    Disk.gate = None
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
        with pytest.raises(DecisionNotFound):
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
        assert await site.shown(lambda it: it.decided) == 1
        assert site._journal.load().numbering.decisions == 1
        await task

    asyncio.run(scenario())


def test_an_event_that_changes_nothing_waits_for_those_that_it_may_tell_of(site):
    """With none before it, it waits for nothing."""

    async def scenario():
        first = asyncio.create_task(site.do(decide))
        await asyncio.sleep(0)  # the event has run; its records wait
        assert await site.do(lambda it: Step(it.decided)) == 1
        assert site._journal.load().numbering.decisions == 1
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
        assert site.in_memory.decided == 0
        assert (await site.do(decide)).number == 1

    asyncio.run(scenario())


def test_to_look_changes_nothing(site, tmp_path):
    """No record, no commit, no byte of a file; and after an error it opens no file."""

    async def scenario():
        await site.do(decide)
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        commits = Disk.commits
        for _ in range(3):
            assert await site.shown(lambda it: (it.decided, it.answer, it.warnings(), it.board.sites))
        assert Disk.commits == commits
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
        Disk.fails = True
        with pytest.raises(JournalError, match="full"):
            await site.do(decide)
        Disk.fails = False
        with pytest.raises(JournalError, match="full"):
            await site.shown(lambda it: it.decided)
        assert site._journal is None
        assert await site.do(lambda it: Step(it.decided)) == 1

    asyncio.run(scenario())


def test_what_comes_over_a_link_waits_for_no_disk(slow):
    """Its records are written with those of the next event, in their order."""

    async def scenario():
        first = await being_written(slow)
        assert slow.at_once(lambda it: Step(it.decided, (Excluded("there", 1, "wrong"),))) == 1
        second = asyncio.create_task(slow.do(decide))
        await asyncio.sleep(0.05)
        assert Disk.commits == 0
        Disk.gate.set()
        assert [it.number for it in await asyncio.gather(first, second)] == [1, 2]
        assert Disk.commits == 2
        stored = slow._journal.load()
        assert list(stored.excluded) == ["there"]
        assert len(stored.decisions) == 2

    asyncio.run(scenario())


def test_records_are_announced_when_an_event_makes_them(site):
    seen = []
    site.on_records = seen.append

    async def scenario():
        await site.do(decide)
        await site.do(lambda it: Step(it.decided))
        await site.shown(lambda it: it.decided)

    asyncio.run(scenario())
    assert [len(records) > 0 for records in seen] == [True]


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
        assert site.in_memory.decided == 1
        assert len(site.in_memory.stored.decisions) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), ZeroDivisionError()], ids=repr)
def test_no_bulletin_costs_the_site(site, monkeypatch, error):
    """Whatever its body does to the one who reads it: what is not on disk yet stays."""
    before, said, more = site.in_memory, replace(bulletin_of("there"), signer=b"old"), bulletin_of("there", number=2)

    def fails(*_):
        raise error

    async def scenario():
        site.at_once(lambda it: it.merge(said, "there", 1.0))
        site.at_once(lambda it: it.revoke({b"old"}))
        for where in ("decode", "Counting.rows"):
            with monkeypatch.context() as planted:
                planted.setattr(f"fedbandit.agent.core.board.{where}", fails)
                with pytest.raises(InvalidArgument, match=f"can read .{type(error).__name__}"):
                    site.at_once(lambda it: it.merge(more, "there", 2.0))
        assert site.in_memory is before
        assert site.in_memory.board.held("there") is None, "it is still revoked"

    asyncio.run(scenario())


def test_deep_bulletins_cost_nothing(site):
    before, said = site.in_memory, bulletin_of("there")

    async def scenario():
        for depth in range(700, 1000):  # one of them is just below what Python allows here
            deep = b'"answers":' + b'{"a":' * depth + b"1" + b"}" * depth
            body = said.body.replace(b'"answers":[0,0]', deep)
            assert body != said.body
            with pytest.raises(InvalidArgument):
                site.at_once(lambda it, body=body: it.merge(Signed(body, b"", b""), "there", 1.0))

    asyncio.run(scenario())
    assert site.in_memory is before


# ---------------------------------------------------------------- while a slow disk is written to


async def being_written(site):
    """A decision whose records the thread is writing."""
    task = asyncio.create_task(site.do(decide))
    while site._writing is None:
        await asyncio.sleep(0)
    return task


def test_a_hundred_callers_share_one_commit(slow):
    """They come while another is being written: the loop goes on meanwhile, and nobody is told before its end."""

    async def scenario():
        first = await being_written(slow)
        others = [asyncio.create_task(slow.do(decide)) for _ in range(100)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in (first, *others))
        assert Disk.commits == 0
        Disk.gate.set()
        numbers = [decision.number for decision in await asyncio.gather(first, *others)]
        assert numbers == list(range(1, 102))
        assert Disk.commits == 2
        assert len(slow._journal.load().decisions) == 101

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", [True, "once"])
def test_what_ran_after_a_write_that_failed_has_not_happened(slow, fails):
    """A full disk, noticed in the thread: those that were being written and those that came later hear of it.

    Also where there is room again at once: they ran on memory that knew what was lost.
    """

    async def scenario():
        tasks = [await being_written(slow), *(asyncio.create_task(slow.do(decide)) for _ in range(3))]
        await asyncio.sleep(0.05)
        Disk.fails = fails
        Disk.gate.set()
        said = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(error) for error in said] == ["the disk is full"] * 4
        assert all(isinstance(error, JournalError) for error in said)
        assert slow.problem is not None
        Disk.fails = False
        assert (await slow.do(decide)).number == 1
        assert len(slow._journal.load().decisions) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_who_reads_waits_for_the_disk_and_makes_nobody_wait(slow, fails):
    """He sees nothing that the disk has not taken; the loop goes on, and commits stay in the thread (``Disk.gate``)."""

    async def scenario():
        tasks = [await being_written(slow), asyncio.create_task(slow.do(decide))]
        await asyncio.sleep(0)
        reading = asyncio.create_task(slow.shown(lambda it: it.decided))
        await asyncio.sleep(0.05)
        assert slow.in_memory.decided == 2
        assert not reading.done()
        Disk.fails = fails
        gate.set()
        if fails:
            with pytest.raises(JournalError, match="full"):
                await reading
            assert all(isinstance(it, JournalError) for it in await asyncio.gather(*tasks, return_exceptions=True))
            Disk.fails = False
            assert await slow.do(lambda it: Step(it.decided)) == 0
        else:
            assert await reading == 2
            assert len(slow._journal.load().decisions) == 2
            assert [decision.number for decision in await asyncio.gather(*tasks)] == [1, 2]

    gate = Disk.gate
    asyncio.run(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_who_erases_waits_for_what_is_being_written(slow, fails):
    """In the thread, with the loop free; what has gathered is written first."""

    async def scenario():
        tasks = [await being_written(slow), asyncio.create_task(slow.do(decide))]
        await asyncio.sleep(0)
        erasing = asyncio.create_task(slow.erase())
        await asyncio.sleep(0.05)
        assert not erasing.done()
        Disk.fails = fails
        Disk.gate.set()
        if fails:
            with pytest.raises(JournalError, match="full"):
                await erasing
            Disk.fails = False
            assert all(isinstance(it, JournalError) for it in await asyncio.gather(*tasks, return_exceptions=True))
        else:
            await erasing
            assert (Disk.commits, Disk.erased_after) == (2, [Disk.written])
            assert [decision.number for decision in await asyncio.gather(*tasks)] == [1, 2]

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_others_go_on_while_a_slow_disk_is_erased(slow, fails):
    """They are written after it, also if it fails: they have nothing to do with it."""

    async def scenario():
        Disk.gate.set()
        await slow.do(decide)
        Disk.gate.clear()
        erasing = asyncio.create_task(slow.erase())
        task = asyncio.create_task(slow.do(decide))
        again = asyncio.create_task(slow.erase())
        await asyncio.sleep(0.05)
        assert slow.in_memory.decided == 2
        assert not erasing.done()
        assert not task.done()
        Disk.erasing_fails = fails
        Disk.gate.set()
        said = await asyncio.gather(erasing, again, return_exceptions=True)
        assert [str(it) for it in said] == ["no room" if fails else "None"] * 2
        assert (await task).number == 2
        assert slow.problem is None
        assert len(slow._journal.load().decisions) == 2

    asyncio.run(scenario())


def test_a_refusal_waits_for_what_it_tells_of(slow):
    async def scenario():
        first = await being_written(slow)
        refused = asyncio.create_task(slow.do(lambda it: it.report("1-77", 0.5)))
        nothing = asyncio.create_task(slow.do(lambda it: Step(it.decided)))
        await asyncio.sleep(0.05)
        assert not refused.done()
        assert not nothing.done()
        Disk.gate.set()
        with pytest.raises(DecisionNotFound):
            await refused
        assert await nothing == 1
        await first

    asyncio.run(scenario())


def test_a_caller_who_is_gone_harms_nobody(slow):
    async def scenario():
        first = await being_written(slow)
        second = asyncio.create_task(slow.do(decide))
        await asyncio.sleep(0.01)
        first.cancel()
        second.cancel()
        third = asyncio.create_task(slow.do(decide))
        await asyncio.sleep(0.01)
        Disk.gate.set()
        assert (await third).number == 3

    asyncio.run(scenario())


def test_it_closes_when_the_thread_has_written(slow):
    async def scenario():
        tasks = [await being_written(slow), asyncio.create_task(slow.do(decide))]
        await asyncio.sleep(0.01)
        gate, Disk.gate = Disk.gate, None
        threading.Timer(0.1, gate.set).start()
        slow.close()
        assert [decision.number for decision in await asyncio.gather(*tasks)] == [1, 2]

    gate = Disk.gate
    asyncio.run(scenario())
    Disk.gate = gate


def test_the_disk_decides_where_it_is_written(tmp_path, monkeypatch):
    """In the loop while it is fast, in the thread after a slow commit, and in the loop again."""
    site, seen, delays = make_site(tmp_path), [], [0.0, 0.05, 0.05, 0.0, 0.0]

    def commit(self, records):
        threading.Event().wait(delays[len(seen)])
        seen.append(threading.current_thread() is threading.main_thread())

    monkeypatch.setattr(Disk, "commit", commit)
    monkeypatch.setattr(durable_site, "SLOW", 0.02)

    async def scenario():
        for _ in delays:
            await site.do(decide)

    asyncio.run(scenario())
    assert seen == [True, True, False, False, True]
    site.close()
