"""What an operator is told of a neighbour: in the log, and in the state."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fedbandit.agent.gossip.links import SILENT_AFTER, SUSPECTED_FOR, NeighbourStatus
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.process.config import Neighbour
from live import Driver


@pytest.fixture
def south():
    return NeighbourStatus(Neighbour("south", None), began=100.0)


def test_one_who_should_call_and_does_not_is_noticed_once(south, caplog):
    south.notice_silence(100.0 + SILENT_AFTER - 1)
    assert caplog.messages == []
    for seconds in (0, 1, 100):
        south.notice_silence(100.0 + SILENT_AFTER + seconds)
    assert caplog.messages == ["south: has not called for 60 s"]
    assert south.last_error == "has not called for 60 s"


def test_one_whose_link_breaks_is_noticed_and_again_when_it_returns(south, caplog):
    caplog.set_level("INFO")
    south.opened(200.0, dialled=False)
    assert (south.linked, south.since, south.dialled) == (True, 200.0, "there")
    south.notice_silence(200.0 + SILENT_AFTER)
    assert south.linked, "a link that is open is not silent"
    south.closed(300.0, "connection reset by peer")
    assert (south.linked, south.since, south.dialled) == (False, 300.0, None)
    south.notice_silence(300.0 + SILENT_AFTER)
    assert south.last_error == "connection reset by peer", "which says more than silence"
    south.opened(400.0, dialled=False)
    assert south.last_error is None
    silent, linked = "south: has not called for 60 s", "south: linked"
    assert caplog.messages == [linked, "south: no link: connection reset by peer", silent, linked]


def test_a_reason_is_logged_once_until_it_changes(south, caplog):
    for _ in range(3):
        south.failed("connection refused")
    south.failed("no answer")
    assert caplog.messages == ["south: no link: connection refused", "south: no link: no answer"]
    assert south.failures == 4


def test_two_processes_of_one_name_are_suspected_until_one_is_silent(south, caplog):
    caplog.set_level("INFO")
    for k in range(3):
        south.suspect(f"two processes have the name south: {k}", 100.0 * k)
    words = "two processes have the name south: 0, since 1970-01-01 00:00 UTC"
    assert (caplog.messages, south.suspicion) == ([f"south: {words}"], words)
    south.opened(200.0, dialled=False)
    south.notice_silence(200.0 + SUSPECTED_FOR - 1.0)
    assert south.suspicion == words
    south.notice_silence(200.0 + SUSPECTED_FOR)
    assert south.suspicion is None
    assert caplog.messages[-1] == f"south: no longer: {words}"


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
