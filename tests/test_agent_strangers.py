"""Nobody gets in: real agents on loopback, and callers with real certificates that are wrong in one way each."""

import asyncio
import logging
import re
import socket
import time
from concurrent import futures
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from fedbandit.agent.core.memory_network import imbalance
from fedbandit.agent.core.standings import Standing
from fedbandit.agent.gossip import wire
from fedbandit.agent.gossip.tls import Certified, read_tls
from fedbandit.agent.gossip.transport import GossipServer, IncomingCall
from fedbandit.agent.process import runtime
from fedbandit.agent.process.config import Address, read_config
from fedbandit.local.processes import LocalFederation
from processes import (
    ask,
    assert_mistake,
    decide_and_reward,
    dump,
    edit,
    exchanges,
    lines,
    neighbour,
    read,
    spawn,
    state,
    told,
    wait_until,
)
from strangers import (
    DAY,
    TERMS,
    Certificates,
    Door,
    Stranger,
    assert_turned_away,
    dns,
    silent_calls,
    with_a_wrong_message,
    with_a_wrong_name,
    without_a_good_certificate,
)


@pytest.fixture(scope="module")
def north(tmp_path_factory):
    """North as a process. Its neighbour east dials; only the test does that."""
    federation = LocalFederation(tmp_path_factory.mktemp("north"), TERMS, [("east", "north")])
    federation.start("north")
    try:
        federation.wait_ready("north")
        yield federation
    finally:
        federation.stop_all()


@pytest.fixture(scope="module")
def door(north):
    door = Door(
        north.gossip_ports["north"],
        Certificates(north.folder / "certs"),
        north.state_file("north"),
        lambda: state(north, "north")["refused"],
        lambda: north.log("north").read_text(),
    )
    door.exchange()  # the neighbour itself gets in
    return door


def still_serves(north, door, dials=1):
    """``dials``: how often the neighbour may dial, as a link does whose handshake was pushed out of a crowd."""
    before = exchanges(north, "north", "east")
    for left in reversed(range(dials)):
        try:
            door.exchange()
            break
        except grpc.RpcError as error:
            if left == 0 or error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
    assert exchanges(north, "north", "east") == before + 1
    assert len(decide_and_reward(north, "north", 1)) == 1


class TestNobodyGetsIn:
    def test_without_a_good_certificate(self, north, door, tmp_path):
        for stranger in without_a_good_certificate(tmp_path, door.certificates).values():
            assert_turned_away(door, stranger)
        still_serves(north, door)

    def test_with_a_wrong_name(self, north, door):
        for stranger in with_a_wrong_name(door.certificates).values():
            assert_turned_away(door, stranger)
        still_serves(north, door)

    def test_with_a_wrong_message(self, north, door):
        for stranger in with_a_wrong_message(door).values():
            assert_turned_away(door, stranger)
        shown = neighbour(north, "north", "east")
        assert shown["refusals"] >= 8, "east's own mistakes are counted at east"
        still_serves(north, door)
        assert neighbour(north, "north", "east")["last_error"] is None

    def test_every_refusal_is_counted_once_and_few_are_logged(self, north, door):
        stranger = door.certificates.make(dns("south"))
        before = state(north, "north")["refused"].get("not a neighbour", 0)
        logged = len(lines(north, "north", "refused (not a neighbour)"))
        for _ in range(30):
            with pytest.raises(grpc.RpcError):
                door.call(b"", stranger)
        assert state(north, "north")["refused"]["not a neighbour"] == before + 30
        assert len(lines(north, "north", "refused (not a neighbour)")) <= logged + 1
        count = state(north, "north")["refused"].get("no certificate", 0)
        for _ in range(5):
            with pytest.raises(grpc.RpcError):
                door.call(b"")
        wait_until(lambda: state(north, "north")["refused"]["no certificate"] >= count + 5)
        assert state(north, "north")["refused"]["no certificate"] == count + 5, "a line of our own log is not counted"

    def test_calls_that_say_nothing_do_not_keep_neighbours_out(self, north, door):
        """The caller has a certificate of the CA, and is nobody's neighbour: its messages are not awaited."""
        before = state(north, "north")["refused"].get("not a neighbour", 0)
        stranger = door.certificates.make(dns("south"))

        def ends(channels, meanwhile=lambda: None):
            with silent_calls(door.port, door.certificates, stranger, channels) as calls:
                meanwhile()
                wait_until(lambda: all(call.done() for call in calls))
                return {call.code() for call in calls}

        told = grpc.StatusCode.PERMISSION_DENIED in ends(6, lambda: still_serves(north, door, dials=3))
        assert state(north, "north")["refused"]["not a neighbour"] >= before + 6
        # Handshake and reason have three seconds: a machine that is too busy for that closes without one.
        assert told or grpc.StatusCode.PERMISSION_DENIED in ends(1)

    def test_many_who_only_connect_leave_descriptors_for_the_application(self, north, door):
        folder = Path(f"/proc/{north.process('north')}/fd")
        before = len(list(folder.iterdir()))
        with ExitStack() as connections:
            for _ in range(600):
                connections.enter_context(socket.create_connection(("127.0.0.1", door.port), timeout=10.0))
            time.sleep(1.0)
            assert len(list(folder.iterdir())) < before + 300
            assert len(decide_and_reward(north, "north", 1)) == 1
        wait_until(lambda: len(list(folder.iterdir())) < before + 20)
        still_serves(north, door)

    def test_an_old_offer_again(self, north, door):
        """Versions only grow, and what is gossiped stays the sum of what is owned."""
        decide_and_reward(north, "north", 60)
        first = door.exchange()
        decide_and_reward(north, "north", 60)
        for _ in range(5):
            door.exchange()
        before = dump(door.state_file)
        for _ in range(3):
            answer = wire.decode_reply(door.call(first, door.pair))
            assert answer.stamp == door.east.stored.links["north"].register[1], "the answer is what is newer"
        assert dump(door.state_file) == before
        door.exchange()
        north.stop("north")
        try:
            assert imbalance([*read(north, "north"), door.east]) < 1e-12
        finally:
            north.start("north")
            north.wait_ready("north")


def test_exchanges_in_which_one_end_speaks_of_another_incarnation_are_not_counted(north, door):
    """A neighbour that claims to know a later incarnation of this site, again and again, averages nothing."""
    door.exchange()
    door.exchange()
    before = neighbour(north, "north", "east")
    for _ in range(5):
        offer = door.east.offer("north").result
        answer = wire.decode_reply(door.call(wire.encode(offer), door.pair))
        door.call(wire.encode(replace(offer, to_incarnation=answer.incarnation + 1)), door.pair)
    after = neighbour(north, "north", "east")
    assert after["unheard"] >= before["unheard"] + 5
    assert after["exchanges"] <= before["exchanges"] + 5
    for _ in range(3):
        door.exchange()
    assert neighbour(north, "north", "east")["exchanges"] > after["exchanges"]


def test_a_message_far_longer_than_an_honest_one_is_refused_unread(door):
    """Counts by the hundred thousand would take long to read, and nobody would be answered meanwhile."""
    offer = door.east.offer("north").result
    many = replace(offer, standings=(Standing("east", 1, 0, 1.0, (1,) * 100_000),))
    assert_turned_away(door, Stranger("message", grpc.StatusCode.INVALID_ARGUMENT, door.pair, data=wire.encode(many)))
    door.exchange()


class AdmitsAnybody(GossipServer):
    """A server that does not ask who is a neighbour."""

    def __init__(self, address, tls, handlers, admits, refused):
        super().__init__(address, tls, handlers, lambda _: True, refused)


class TestPlantedBug:
    """The checks above notice an agent that takes the name in the message for the name in the certificate."""

    @pytest.fixture
    def with_server(self, tmp_path, monkeypatch, caplog):
        """Run a check, in a thread, on the door of an agent in this process with such a server."""
        federation = LocalFederation(tmp_path, TERMS, [("east", "north")])
        config = read_config(federation.config("north"))
        caplog.set_level(logging.WARNING)

        async def served(check):
            agent = runtime.Agent(config, read_tls(config, datetime.now(UTC)))
            try:
                await agent.start()
                certificates = Certificates(federation.folder / "certs")
                seen = federation.state_file("north"), agent.refusals.counts, lambda: caplog.text
                await asyncio.to_thread(check, Door(agent.gossip_port, certificates, *seen))
            finally:
                await agent.stop()

        def run(server_class, check):
            monkeypatch.setattr(runtime, "GossipServer", server_class)
            if server_class is not GossipServer:
                anybody = Certified("whoever", datetime.now(UTC) + DAY)
                monkeypatch.setattr("fedbandit.agent.gossip.tunnel.certified", lambda _: anybody)
            asyncio.run(served(check))

        return run

    def test_the_checks_pass_without_the_bug(self, with_server):
        def check(door):
            for stranger in with_a_wrong_name(door.certificates).values():
                assert_turned_away(door, stranger)
            door.exchange()

        with_server(GossipServer, check)

    def test_skipping_the_san_check_is_noticed(self, with_server):
        class TrustsTheMessage(AdmitsAnybody):
            def _method(self, handler, caller, where):
                async def trusting(call):
                    return await handler(IncomingCall(wire.decode_offer(call.data).sender, call.data))

                return super()._method(trusting, caller, where)

        def check(door):
            for kind, stranger in with_a_wrong_name(door.certificates).items():
                with pytest.raises(AssertionError, match=r"a stranger (has changed the state|was answered)"):
                    assert_turned_away(door, stranger)
                assert door.refused() == {}, kind

        with_server(TrustsTheMessage, check)

    def test_a_server_that_hands_on_no_name_lets_nobody_in(self, with_server):
        class HandsOnNoName(AdmitsAnybody):
            def _method(self, handler, caller, where):
                return super()._method(handler, lambda _: None, where)

        def check(door):
            for stranger in with_a_wrong_name(door.certificates).values():
                stranger.reason = "certificate"
                assert_turned_away(door, stranger)

        with_server(HandsOnNoName, check)


class TestWhomWeDial:
    """A site talks to nobody but the neighbour that it means."""

    @contextmanager
    def impostor(self, port, pair, heard):
        class Heard(grpc.GenericRpcHandler):
            def service(self, details):
                heard.append(details.method)

        listener = grpc.server(futures.ThreadPoolExecutor(2), handlers=(Heard(),))
        assert listener.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([pair])) == port
        listener.start()
        try:
            yield
        finally:
            listener.stop(None).wait()

    def test_nothing_is_sent_to_an_impostor(self, tmp_path):
        federation = LocalFederation(tmp_path / "federation", TERMS, [("north", "east")])
        ours = Certificates(federation.folder / "certs")
        others = without_a_good_certificate(tmp_path, ours)
        port, heard = federation.gossip_ports["east"], []
        federation.start("north")
        try:
            for pair, reason in (
                (others["another CA"].pair, "unable to get local issuer certificate"),
                (others["expired"].pair, "certificate has expired"),
                (ours.make(dns("south")), "does not bear the name east"),
                (ours.make(dns("east\0.evil")), r"not DNSName 'east\x00.evil'"),
                (ours.make(dns("east"), dns("south")), "must have one name"),
            ):
                with self.impostor(port, pair, heard):
                    federation.wait_ready("north")
                    wait_until(lambda r=reason: r in (neighbour(federation, "north", "east")["last_error"] or ""))
                    assert not neighbour(federation, "north", "east")["reachable"]
                    assert lines(federation, "north", "east: no exchange", reason)
                    failures = neighbour(federation, "north", "east")["failures"]
                    wait_until(lambda n=failures: neighbour(federation, "north", "east")["failures"] >= n + 2)
                    assert len(lines(federation, "north", "east: no exchange", reason)) == 1, "once"
            assert heard == [], "nothing was said"
            assert neighbour(federation, "north", "east")["exchanges"] == 0
            federation.start("east")
            wait_until(lambda: exchanges(federation, "north", "east") > 0)
        finally:
            federation.stop_all()


class TestInsecure:
    def test_on_loopback_only_and_never_by_itself(self, tmp_path):
        federation = LocalFederation(tmp_path, TERMS, [("north", "east")], secure=False)
        config = federation.config("north")
        text = config.read_text()
        without_tls = spawn("agent", "-c", config)
        away = federation.folder / "north" / "away.toml"
        away.write_text(re.sub(r'(gossip|address) = "127.0.0.1', r'\1 = "10.0.0.7', text))
        listens_away = spawn("agent", "-c", away, "--insecure")
        assert_mistake(told(without_tls), "'tls' is missing", "--insecure")
        assert_mistake(told(listens_away), "listen.gossip", "neighbours[0].address", "10.0.0.7", "loopback")
        assert not federation.state_file("north").exists(), "nothing was begun"

    @pytest.mark.slow
    def test_it_is_said_and_a_secure_neighbour_does_not_talk_to_it(self, tmp_path):
        federation = LocalFederation(tmp_path, TERMS, [("north", "east"), ("east", "north")], rate=20.0)
        edit(federation.config("north"), (r"\[\[neighbours\]\]\nname = \"east\"\n\Z", ""))
        edit(federation.config("east"), (r"\[\[neighbours\]\]\nname = \"north\"\n\n", ""))
        federation.start("north", "--insecure")
        federation.start("east")
        try:
            federation.wait_ready("north")
            federation.wait_ready("east")
            assert lines(federation, "north", "WARNING", "INSECURE")
            shown = state(federation, "north")
            assert shown["insecure"]
            assert any("INSECURE" in warning for warning in shown["warnings"])
            assert not state(federation, "east")["insecure"]
            for name, other in (("north", "east"), ("east", "north")):
                wait_until(lambda a=name, b=other: neighbour(federation, a, b)["failures"] >= 2)
                assert exchanges(federation, name, other) == 0
            wait_until(lambda: state(federation, "east")["refused"].get("not TLS", 0) > 0)

            # The neighbour list is read again while it runs: it must not open the way out.
            edit(federation.config("north"), (r"address = \"127\.0\.0\.1", 'address = "10.0.0.7'))
            wait_until(lambda: lines(federation, "north", "not applied"))
            assert lines(federation, "north", "neighbours[0].address", "loopback")
            assert neighbour(federation, "north", "east")["address"].startswith("127.0.0.1")
        finally:
            federation.stop_all()


def test_a_port_that_is_taken_is_named(tmp_path):
    async def two_servers():
        one = GossipServer(Address("127.0.0.1", 0), None, {}, lambda _: True, lambda *_: None)
        with pytest.raises(OSError, match=f"cannot listen for neighbours on 127.0.0.1:{one.port}"):
            GossipServer(Address("127.0.0.1", one.port), None, {}, lambda _: True, lambda *_: None)
        await one.start()
        await one.stop(0.0)

    asyncio.run(two_servers())


def test_ask_is_honest(north):
    assert ask(f"{north.url('north')}/nothing")[0] == 404
