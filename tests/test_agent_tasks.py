"""What runs by itself in an agent goes on, whatever happens: clocks of links, house-keeping, the watch on the file."""

import asyncio
import logging
import time
from dataclasses import replace
from random import Random

import pytest

from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.agent.gossip.links import Links, Pace
from fedbandit.agent.gossip.listener import Refusals
from fedbandit.agent.process import runtime
from fedbandit.agent.process.config import read_config
from fedbandit.local.processes import LocalFederation
from live import bulletin_of
from processes import terms

TERMS = terms()


@pytest.fixture
def config(tmp_path):
    federation = LocalFederation(tmp_path, TERMS, [("north", "east")], secure=False)
    return read_config(federation.config("north"))


def site_of(config):
    config.data.mkdir(mode=0o700)
    return DurableSite(
        lambda: SqliteJournal(config.data / "state.sqlite", "north", TERMS, 1),
        lambda stored: Site("north", TERMS, stored),
        time.time,
    )


def links_of(config, site):
    return Links("north", TERMS, site, None, time.time, Random(1))  # noqa: S311  # the pauses of a clock


def clocks():
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("link to ")]


async def eventually(holds):
    async with asyncio.timeout(30.0):
        while not holds():
            await asyncio.sleep(0.01)


def test_a_link_outlives_a_mistake(config, caplog):
    """An error that nobody has foreseen is logged and counted, and the next attempt comes."""

    async def broken(*_):
        raise ZeroDivisionError("planted")

    async def scenario(monkeypatch):
        site = site_of(config)
        links = links_of(config, site)
        monkeypatch.setattr("fedbandit.agent.gossip.links.dial", broken)
        monkeypatch.setattr("fedbandit.agent.gossip.links.RETRY", 0.01)
        monkeypatch.setattr("fedbandit.agent.gossip.links.LONGEST_RETRY", 0.01)
        await links.use(config.neighbours)
        await eventually(lambda: links.statuses["east"].failures > 5)
        assert "ZeroDivisionError: planted" in links.statuses["east"].last_error
        await links.close()
        assert clocks() == []
        site.close()

    with pytest.MonkeyPatch.context() as monkeypatch, caplog.at_level(logging.INFO):
        asyncio.run(scenario(monkeypatch))


def test_changes_of_the_list_at_the_same_time_leave_one_clock(config):
    async def scenario():
        site = site_of(config)
        links = links_of(config, site)
        await links.use(config.neighbours)
        await links.use(())
        assert clocks() == []
        await asyncio.gather(*(links.use(config.neighbours) for _ in range(5)))
        assert len(clocks()) == 1
        await asyncio.gather(links.use(()), links.use(config.neighbours), links.use(config.neighbours))
        assert len(clocks()) == 1
        await links.use(())
        assert clocks() == []
        site.close()

    asyncio.run(scenario())


def test_house_keeping_outlives_a_mistake(config, caplog, monkeypatch):
    monkeypatch.setattr(runtime, "EXPIRY_EVERY", 0.01)
    monkeypatch.setattr(runtime, "WATCH_EVERY", 0.01)

    async def scenario():
        agent = runtime.Agent(config, None)
        await agent.start()
        look, take_over = agent._look_at_disk, agent._take_over

        async def planted():
            raise ZeroDivisionError("planted")

        agent._look_at_disk = agent._take_over = planted
        config.path.write_text(config.path.read_text() + "\n# changed\n")
        await eventually(lambda: caplog.text.count("Traceback") == 2)
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in agent._tasks)
        agent._look_at_disk, agent._take_over = look, take_over
        changed = config.path.read_text().replace('name = "east"', 'name = "west"')
        config.path.write_text(f'{changed}\n[members]\nrefuse = ["east"]\n')
        await eventually(lambda: list(agent.links.statuses) == ["west"])
        assert agent.config.refuse == {"east"}
        await agent.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert caplog.text.count("Traceback") == 2, "each once"
    assert "applied [members] in site.toml" in caplog.text
    assert "restart to apply" not in caplog.text


@pytest.mark.parametrize("task", ["publish", "_save_board"])
def test_publishing_and_writing_the_board_outlive_a_mistake(config, caplog, monkeypatch, task):
    monkeypatch.setattr(runtime, "PUBLISHED_EVERY", 0.01)
    monkeypatch.setattr(runtime, "SAVED_EVERY", 0.01)

    async def scenario():
        agent = runtime.Agent(config, None)
        await agent.start()

        async def planted():
            raise ZeroDivisionError("planted")

        monkeypatch.setattr(agent, "_publish" if task == "publish" else task, planted)
        await eventually(lambda: "Traceback" in caplog.text)
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in agent._tasks)
        monkeypatch.undo()
        await agent.decide()
        own = agent.site.in_memory.board
        await eventually(lambda: (it := own.held("north")) is not None and it.bulletin.decisions == 1)
        await eventually(lambda: not agent.site.in_memory.board.unsaved())
        await agent.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert caplog.text.count("Traceback") == 1, "once"


def test_a_site_that_is_loaded_anew_knows_whom_it_accepts_and_whom_it_refuses(config):
    """At once: a change of arms that comes in the same moment would wait for the operator, or a refused row count."""
    text = config.path.read_text()
    config.path.write_text(f'{text}\n[arms]\naccept = "anyone"\n[members]\nrefuse = ["west"]\n')

    async def scenario():
        agent = runtime.Agent(read_config(config.path), None)
        await agent.start()
        before = agent.site.in_memory
        agent.site._journal._file.execute("PRAGMA query_only = 1")
        with pytest.raises(JournalError):
            await agent.decide()
        after = agent.site.in_memory
        assert after is not before
        assert after._accepts == "anyone"
        assert after.board.knows("west", (1, 1), b""), "refused: not worth verifying"
        await agent.stop()

    asyncio.run(scenario())


def test_a_site_that_is_loaded_anew_knows_which_certificates_are_revoked(config, monkeypatch):
    """Whatever the reason for which it was discarded, and at once."""

    def breaks(_):
        raise ZeroDivisionError

    async def scenario():
        agent = runtime.Agent(config, None)
        await agent.start()
        said = replace(bulletin_of("east", TERMS), signer=b"old")
        agent.site.at_once(lambda site: site.merge(said, "east", time.time()))
        await agent.site.take(lambda site: site.board_rows())
        monkeypatch.setattr(agent.links._signatures, "is_revoked", lambda signer: signer == b"old")
        for _ in range(2):
            before = agent.site.in_memory
            with pytest.raises(ZeroDivisionError):
                await agent.site.do(breaks)
            after = agent.site.in_memory
            assert after is not before
            assert "east" not in after.board.counted()
            assert after.board.dropped["east"].signed == said
        await agent.stop()

    asyncio.run(scenario())


def test_what_waits_is_told_what_the_disk_said(config):
    async def scenario():
        site = site_of(config)
        await site.do(lambda s: s.link(["east"]))
        site._journal._file.execute("PRAGMA query_only = 1")
        outcomes = await asyncio.gather(
            *(site.do(lambda s: s.link(["east", "west"])) for _ in range(3)), return_exceptions=True
        )
        assert [type(it) for it in outcomes] == [JournalError] * 3
        assert all("readonly" in str(it.__cause__) for it in outcomes)
        assert site.problem is not None
        assert "readonly" in str(site.problem.__cause__)
        await site.do(lambda s: s.link(["east", "west"]))  # the file was opened again
        assert site.in_memory.neighbours == ("east", "west")
        site.close()

    asyncio.run(scenario())


def test_the_pace_of_the_log(caplog):
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert sum(pace.allows() for _ in range(100)) == Pace.AT_ONCE
    now[0] += Pace.SECONDS
    assert [pace.allows(), pace.allows()] == [True, False]
    now[0] += 1000 * Pace.SECONDS
    assert sum(pace.allows() for _ in range(100)) == Pace.AT_ONCE

    now[0], refusals = 0.0, Refusals(logging.getLogger("refusals"), lambda: now[0])
    for second in range(25):
        now[0] = float(second)
        refusals.count("reason", "somebody")
    assert refusals.counts() == {"reason": 25}
    assert [record.getMessage() for record in caplog.records] == [
        "refused (reason): somebody",
        "refused (reason): somebody (9 more since the last such line)",
        "refused (reason): somebody (9 more since the last such line)",
    ]
