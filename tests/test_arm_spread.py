"""How changes of the arms cross a link: calls that wait, and neighbours that lie."""

import asyncio
import logging
import time
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedbandit.agent.core.arms import ArmChange
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.gossip import arm_spread, wire
from fedbandit.agent.gossip.arm_spread import ArmSpread, Signatures
from fedbandit.agent.gossip.tls import TlsFiles
from fedbandit.agent.gossip.transport import NeighbourUnreachable
from fedbandit.agent.gossip.wire import ArmDelta
from fedbandit.checks import InvalidArgument
from processes import terms

TERMS = terms()


@pytest.fixture
def site(tmp_path):
    tmp_path.chmod(0o700)
    made = DurableSite(
        lambda: SqliteJournal(tmp_path / "state.sqlite", "north", TERMS, 1),
        lambda stored: Site("north", TERMS, stored),
        time.time,
    )
    yield made
    made.close()


def spread_of(site):
    return ArmSpread("north", TERMS, site, None, time.monotonic)


def stop(arm="A", by="east", **more):
    return replace(ArmChange(1, "suspend", arm, by, 0, TERMS.digest()), **more)


def news(*changes, known=(), refused=(), sender="east"):
    keys = frozenset(it.key for it in changes) | frozenset(known)
    return ArmDelta(sender, TERMS.digest(), keys, frozenset(refused), changes)


class Scripted:
    """A dialler whose neighbour answers as it was told, and counts the calls."""

    def __init__(self, answer):
        self.answer, self.heard = answer, []

    async def wait(self, method, data, timeout):
        self.heard.append(wire.decode_arm_delta(data))
        answer = self.answer(self.heard[-1])
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.sleep(60.0)
        return wire.encode_arm_delta(answer)


def polled(site, dialler, seconds, meanwhile=None):
    async def scenario():
        spread = spread_of(site)
        task = asyncio.create_task(spread.poll("east", dialler))
        await asyncio.sleep(seconds)
        if meanwhile is not None:
            await meanwhile(spread)
            await asyncio.sleep(seconds)
        assert not task.done(), "the task has ended"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    return dialler.heard


def test_what_the_other_end_lacks_is_sent_at_once(site):
    """Also while a call waits: it is given up, and another brings the news."""

    async def change(spread):
        await site.do(lambda it: it.change_arm("suspend", "A", 0, spread.sign))
        spread.announce()

    def answer(heard):
        return news() if len(heard.known) > len(heard.changes) else news(*heard.changes) if heard.changes else None

    heard = polled(site, Scripted(answer), 0.3, change)
    assert [len(it.changes) for it in heard][:3] == [0, 0, 1]


def test_a_neighbour_that_is_away_is_asked_again(site, monkeypatch):
    monkeypatch.setattr(arm_spread, "RETRY", 0.05)
    assert len(polled(site, Scripted(lambda _: NeighbourUnreachable("planted")), 0.5)) > 3


@pytest.mark.parametrize("claims", [{"known": [b"x" * 16]}, {"sender": "south"}])
def test_a_liar_cannot_make_calls_spin(site, claims):
    """It claims a change that it never sends, or another's name."""
    assert len(polled(site, Scripted(lambda _: news(**claims)), 1.5)) <= 3


def test_a_mistake_of_ours_does_not_end_the_calls(site, caplog, monkeypatch):
    monkeypatch.setattr(arm_spread, "LONGEST_PAUSE", 0.05)
    with caplog.at_level(logging.INFO):
        assert len(polled(site, Scripted(lambda _: ZeroDivisionError("planted")), 0.5)) > 2


def test_a_damaged_change_does_not_keep_the_true_one_out(site, monkeypatch):
    """A relay spoils a signature; another brings the change as it was signed."""
    true, spoilt = stop(signature=b"good"), stop(signature=b"bad")
    monkeypatch.setattr(Signatures, "why_not", lambda _, it: None if it.signature == b"good" else "planted")

    async def scenario():
        spread = spread_of(site)
        answer = wire.decode_arm_delta(await spread.answer(news(spoilt, known=[true.key])))
        assert answer.refused == {spoilt.key}
        assert not answer.known
        await spread.answer(news(true))
        assert site.in_memory.stopped == {0}

    asyncio.run(scenario())


def test_a_neighbours_next_call_ends_the_one_before(site):
    """So that a neighbour, however often it restarts, has one place."""

    async def scenario():
        spread = spread_of(site)
        first = asyncio.create_task(spread.answer(news()))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(spread.answer(news()))
        await asyncio.wait_for(first, 1.0)
        assert not second.done()
        spread.close()
        await asyncio.wait_for(second, 1.0)
        assert not spread._waiting

    asyncio.run(scenario())


def test_a_caller_that_hangs_up_has_told_all_the_same(site):
    """What it brought is on disk, and others who wait are told."""

    async def scenario():
        spread = spread_of(site)
        other = asyncio.create_task(spread.answer(news(sender="south")))
        await asyncio.sleep(0.05)
        call = asyncio.create_task(spread.answer(news(stop())))
        await asyncio.sleep(0)  # it has begun to write
        call.cancel()
        told = wire.decode_arm_delta(await asyncio.wait_for(other, 2.0))
        assert [it.id for it in told.changes] == [stop().id]

    asyncio.run(scenario())


def test_changes_come_in_parts(site):
    """A long list takes several calls."""
    many = [stop(f"x{k}") for k in range(wire.MOST_CHANGES * 2 + 5)]

    def answer(heard):
        rest = [it for it in many if it.key not in heard.known]
        return replace(news(*many), changes=tuple(rest[: wire.MOST_CHANGES])) if rest else None

    heard = polled(site, Scripted(answer), 1.5)
    assert len(heard) == 4
    assert site.in_memory.arms.version == len(many)


def test_of_a_message_no_more_is_read_than_one_may_bring():
    many = [stop(f"x{k}") for k in range(wire.MOST_CHANGES + 5)]
    assert len(wire.decode_arm_delta(wire.encode_arm_delta(news(*many))).changes) == wire.MOST_CHANGES


# ---------------------------------------------------------------- neighbours that make it hard to hear a stop


def test_stops_come_first_and_a_message_stays_short(site):
    """However large the proofs are that a member has signed: gRPC carries a megabyte."""
    large = [ArmChange(k, "add", f"arm {k}", "liar", 0, TERMS.digest(), (), b"c" * 16_384, b"s") for k in range(1, 101)]
    known = {it.key: it for it in (*large, stop())}
    told = spread_of(site)._delta(known, known)
    assert told.changes[0].kind == "suspend"
    assert len(wire.encode_arm_delta(told)) < wire.MAX_BYTES
    assert len(told.changes) > 1


def test_a_stop_is_kept_though_the_rest_of_its_message_breaks_the_site(site, monkeypatch):
    def breaks(_):
        raise IndexError("planted")

    monkeypatch.setattr(Site, "_grow", breaks)

    async def scenario():
        spread = spread_of(site)
        await spread.accept("anyone")
        with pytest.raises(IndexError, match="planted"):
            await spread._take(news(ArmChange(1, "add", "new", "east", 0, TERMS.digest()), stop()))
        return site.in_memory.stopped

    assert asyncio.run(scenario()) == {0}


def test_a_neighbour_that_lies_in_turn_is_not_called_without_end(site):
    """It lacks what it is told of, then has it, then lacks it again: each call looks useful."""

    async def change(spread):
        await site.do(lambda it: it.change_arm("suspend", "A", 0, spread.sign))

    asyncio.run(change(spread_of(site)))
    heard = polled(site, Scripted(lambda it: news(known=[one.key for one in it.changes])), 0.9)
    assert 2 < len(heard) <= arm_spread.MOST_CALLS + 1


def test_a_key_that_cannot_sign_is_named():
    key = Ed448PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(InvalidArgument, match=r"tls.key must be an elliptic curve, RSA or Ed25519 key.*not 'Ed448'"):
        Signatures(TlsFiles(b"", key, b"")).sign(b"a change")
