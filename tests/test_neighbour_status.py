"""What an operator is told of a neighbour: in the log, and in the state."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fedbandit.agent.core.records import Link
from fedbandit.agent.gossip.links import SILENT_AFTER, NeighbourStatus
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.process.config import Neighbour
from fedbandit.rules import flow
from live import Driver


@pytest.fixture
def south():
    return NeighbourStatus(Neighbour("south", None, 1.0), began=100.0)


def test_one_who_should_call_and_does_not_is_noticed_once(south, caplog):
    south.notice_silence(100.0 + SILENT_AFTER - 1)
    assert caplog.messages == []
    for seconds in (0, 1, 100):
        south.notice_silence(100.0 + SILENT_AFTER + seconds)
    assert caplog.messages == ["south: has not called for 60 s"]
    assert south.last_error == "has not called for 60 s"


def test_one_who_falls_silent_is_no_longer_reachable_until_it_calls(south, caplog):
    caplog.set_level("INFO")
    south.succeeded(200.0)
    south.notice_silence(230.0)
    assert south.reachable
    south.notice_silence(200.0 + SILENT_AFTER)
    assert not south.reachable
    south.succeeded(300.0)
    assert south.reachable
    assert south.last_error is None
    south.notice_silence(300.0 + SILENT_AFTER)
    silent, calls = "south: has not called for 60 s", "south: exchanges succeed"
    assert caplog.messages == [calls, silent, calls, silent]


def test_a_new_incarnation_is_logged(south, caplog):
    south.received_from(5)
    south.received_from(5)
    assert caplog.messages == []
    south.received_from(9)
    told = (
        "began a new incarnation: its disk was lost, or it was restored, or has rejoined; its old numbers are replaced"
    )
    assert caplog.messages == [f"south: {told}"]
    assert south.suspicion is None


def test_an_earlier_incarnation_is_suspicious(south, caplog):
    """Two agents under one name, or an old copy of a data folder: nothing honest goes back."""
    south.received_from(9)
    south.received_from(5)
    south.succeeded(1.0)
    assert "two agents have this name" in caplog.messages[0]
    assert "two agents have this name" in south.suspicion


class TestState:
    """``Driver`` is the agent itself, without noise and without TLS."""

    @pytest.fixture
    def agent(self, tmp_path):
        agent = Driver(tmp_path)
        yield agent
        agent.site.close()

    def expiring_in(self, agent, days):
        agent._tls = TlsFiles(b"", b"", b"", datetime.now(UTC) + timedelta(days=days))
        return agent

    def test_a_suspicion_is_among_the_warnings(self, agent):
        agent.links.statuses["south"] = status = NeighbourStatus(Neighbour("south", None, 1.0))
        status.received_from(9)
        status.received_from(5)
        assert any("earlier incarnation" in warning for warning in asyncio.run(agent.state()).warnings)

    def test_one_that_was_removed_without_leave_is_told_of_until_it_has_left(self, agent):
        """Its flow is still in the sums. One that never sent any, or has left, says nothing."""

        async def scenario():
            await agent.site.do(lambda site: site.join("west"))
            said = [await agent.state()]
            register = (0.25, *[0.0] * 5), flow.empty(3)[1]
            await agent.site.do(lambda site: site._linked(None, Link("west", 1, register)))
            said.append(await agent.state())
            await agent.leave("west")
            return *said, await agent.state()

        def told(state):
            return [it for it in state.needs_person if "'fedbandit leave west'" in it]

        before, unlisted, after = asyncio.run(scenario())
        assert not told(before)
        assert not told(after)
        assert len(told(unlisted)) == 1
        assert set(told(unlisted)) < set(unlisted.warnings)

    @pytest.mark.parametrize(
        ("days", "words"), [(29.2, "expires in 29 days"), (0.6, "expires in 1 days"), (-1, "has expired")]
    )
    def test_a_certificate_that_ends_soon_is_warned_of(self, agent, days, words, caplog):
        self.expiring_in(agent, days)
        assert asyncio.run(agent.state()).warnings == [f"the certificate {words}"]
        for _ in range(3):
            agent._notice_expiry()
        assert caplog.messages == [f"the certificate {words}"]

    def test_one_that_does_not_is_not(self, agent):
        state = asyncio.run(self.expiring_in(agent, 31).state())
        assert state.warnings == []
        assert state.certificate_until == agent._tls.until.timestamp()


def test_exchanges_that_average_nothing_are_not_counted(south, caplog):
    """One end speaks of another incarnation: three in turn are a failure, which ends with the next that counts."""
    for _ in range(3):
        south.answered(False, 1.0)
    assert (south.exchanges, south.unheard, south.failures, south.reachable) == (0, 3, 1, False)
    assert "average nothing" in south.last_error
    south.answered(True, 2.0)
    assert (south.exchanges, south.unheard, south.reachable, south.last_error) == (1, 3, True, None)
    south.answered(False, 3.0)
    assert south.reachable
