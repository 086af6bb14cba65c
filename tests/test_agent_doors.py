"""The doors stay open: crowds at the gossip door of a real agent, while its neighbours exchange and patients come.

Nothing here asserts a time: exchanges are counted in generous windows.
"""

import asyncio
import os
import socket
import ssl
import tempfile
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from fedbandit.agent.gossip import tunnel, wire
from fedbandit.agent.gossip.certificates import init
from fedbandit.agent.gossip.tls import TlsFiles, client_context
from fedbandit.agent.gossip.transport import (
    CONNECTIONS,
    SERVICE,
    Dialler,
    GossipServer,
    NeighbourUnreachable,
    TurnedAway,
)
from fedbandit.agent.process.config import Address
from fedbandit.local.processes import LocalFederation
from processes import (
    ask,
    assert_mistake,
    come_through,
    command,
    decide_and_reward,
    lines,
    neighbour,
    state,
    terms,
    wait_until,
)
from strangers import Certificates, Crowd, client_hello, dns, silent_calls

WINDOW = 40.0
"""Seconds in which a few exchanges must come through; without a crowd they take less than one."""


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """East dials north and runs; west, which dials it as well, does not. Every test leaves them so."""
    links = [("east", "north"), ("west", "north")]
    federation = LocalFederation(tmp_path_factory.mktemp("sites"), terms(3), links, rate=20.0)
    try:
        for name in ("north", "east"):
            federation.start(name)
        for name in ("north", "east"):
            federation.wait_ready(name)
        come_through(federation, "north", "east", 3, WINDOW)
        yield federation
    finally:
        federation.stop_all()


def door(federation):
    return federation.gossip_ports["north"], Certificates(federation.folder / "certs")


def go_on(federation, count=10):
    come_through(federation, "north", "east", count, WINDOW)
    assert len(decide_and_reward(federation, "north", 3)) == 3


def restarted(federation, name="east"):
    federation.kill(name)
    federation.start(name)
    federation.wait_ready(name)


def refused(federation, reason):
    return state(federation, "north")["refused"].get(reason, 0)


class TestCrowds:
    def test_silent_connections_do_not_keep_a_restarted_neighbour_out(self, sites):
        """300 of somebody without a certificate, from the neighbour's own address, opened again when closed."""
        before = refused(sites, "unfinished handshake")
        with Crowd(door(sites)[0], 300) as crowd:
            wait_until(lambda: crowd.opened > 600, WINDOW)
            restarted(sites)
            go_on(sites)
        assert refused(sites, "unfinished handshake") >= before + 300
        assert lines(sites, "north", "refused (unfinished handshake)", "127.0.0.1")

    @pytest.mark.slow
    def test_handshakes_byte_by_byte_do_not_either(self, sites):
        before = refused(sites, "unfinished handshake")
        with Crowd(door(sites)[0], 100, client_hello()) as crowd:
            wait_until(lambda: crowd.opened > 150, WINDOW)
            restarted(sites)
            go_on(sites)
        assert refused(sites, "unfinished handshake") >= before + 50

    @pytest.mark.slow
    def test_handshakes_that_stop_after_the_first_message_do_not_either(self, sites):
        """They cost the most: the server has answered with its certificate."""
        hello, port, before = client_hello(), door(sites)[0], refused(sites, "unfinished handshake")
        with ExitStack() as connections:

            def begin():
                connection = connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10.0))
                connection.sendall(hello)

            for _ in range(300):
                begin()
            restarted(sites)
            for _ in range(100):
                begin()
            go_on(sites)
        wait_until(lambda: refused(sites, "unfinished handshake") >= before + 350)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["south", "west"])
    def test_silent_calls_without_a_right_do_not_slow_exchanges(self, sites, name, request):
        """Six connections of 16, by a stranger and by one who has left: no message of theirs is awaited."""
        port, certificates = door(sites)
        pair = certificates.make(dns(name))
        west = f"{sites.url('north')}/v1/neighbours/west"
        request.addfinalizer(lambda: ask(west, "PUT"))
        if name == "west":
            awaited = refused(sites, "message")
            with silent_calls(port, certificates, pair, 1) as calls:
                wait_until(lambda: refused(sites, "message") >= awaited + 16, WINDOW)  # those of a neighbour are
                assert ask(west, "DELETE")[0] == 204
                wait_until(lambda: all(call.done() for call in calls))
        awaited, before = refused(sites, "message"), refused(sites, "not a neighbour")
        with silent_calls(port, certificates, pair, 6) as calls:
            go_on(sites)
            restarted(sites)
            go_on(sites)
            wait_until(lambda: all(call.done() for call in calls), WINDOW)
        assert refused(sites, "not a neighbour") >= before + 6
        assert refused(sites, "message") == awaited
        assert lines(sites, "north", "refused (not a neighbour)", "127.0.0.1", "is no neighbour of north")

        def is_told():  # on a busy machine the handshake may be too late: then nobody is told anything
            with silent_calls(port, certificates, pair, 1) as calls:
                wait_until(lambda: all(call.done() for call in calls), WINDOW)
                return grpc.StatusCode.PERMISSION_DENIED in {call.code() for call in calls}

        wait_until(is_told, WINDOW)

    @pytest.mark.slow
    @pytest.mark.parametrize("channels", [12, 200])
    def test_a_neighbour_with_many_connections_hurts_itself_alone(self, sites, channels):
        port, certificates = door(sites)
        before = refused(sites, "connections")
        with silent_calls(port, certificates, certificates.make(dns("west")), channels):
            wait_until(lambda: refused(sites, "connections") >= before + channels - CONNECTIONS, WINDOW)
            go_on(sites)
            restarted(sites)
            go_on(sites)
        assert lines(sites, "north", "refused (connections)", "west at 127.0.0.1")

    @pytest.mark.slow
    def test_old_connections_of_a_neighbour_do_not_keep_it_out(self, sites):
        """As many as it may have, half open since it was cut off: the new one replaces the oldest."""
        port, certificates = door(sites)
        key, certificate = certificates.make(dns("east"))
        (sites.folder / "pair.pem").write_bytes(certificate + key)
        context = ssl.create_default_context(cadata=certificates.ca.decode())
        context.load_cert_chain(sites.folder / "pair.pem")
        context.set_alpn_protocols(["h2"])
        sites.kill("east")
        with ExitStack() as connections:
            for _ in range(CONNECTIONS):
                plain = connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10.0))
                secured = connections.enter_context(context.wrap_socket(plain, server_hostname="north"))
                assert secured.recv(9), "the server speaks first"
            sites.start("east")
            sites.wait_ready("east")
            go_on(sites)


class TestWhoLeaves:
    def test_its_connections_are_closed(self, sites):
        """By ``leave``, and by removing it from the list; a new connection is told why it is refused."""
        assert ask(f"{sites.url('north')}/v1/neighbours/east", "DELETE")[0] == 204
        wait_until(lambda: "east is no neighbour of north" in (neighbour(sites, "east", "north")["last_error"] or ""))
        assert ask(f"{sites.url('north')}/v1/neighbours/east", "PUT")[0] == 204
        go_on(sites)
        config = sites.config("north")
        text = config.read_text()
        config.write_text(text.replace('[[neighbours]]\nname = "east"\n', ""))
        wait_until(lambda: "east is no neighbour of north" in (neighbour(sites, "east", "north")["last_error"] or ""))
        config.write_text(text)
        wait_until(lambda: neighbour(sites, "north", "east") is not None)
        go_on(sites)


class TestSmallDoors:
    def test_a_pipe_in_place_of_the_configuration_blocks_nothing(self, sites):
        config = sites.config("north")
        text = config.read_text()
        config.unlink()
        os.mkfifo(config)
        wait_until(lambda: lines(sites, "north", "not applied", "site.toml is not a regular file, but a named pipe"))
        go_on(sites)
        config.unlink()
        config.write_text(text.replace('[[neighbours]]\nname = "west"\n', ""))
        wait_until(lambda: neighbour(sites, "north", "west") is None)
        config.write_text(text)
        wait_until(lambda: neighbour(sites, "north", "west") is not None)

    @pytest.mark.parametrize(
        "field", ["key", *(pytest.param(it, marks=pytest.mark.slow) for it in ("certificate", "ca"))]
    )
    def test_a_pipe_in_place_of_a_certificate_is_refused(self, tmp_path, field):
        federation = LocalFederation(tmp_path, terms(), [("east", "north")])
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe, 0o600)
        config = federation.config("north")
        old = {"certificate": "north.crt", "key": "north.key", "ca": "ca.crt"}[field]
        config.write_text(config.read_text().replace(f"../certs/{old}", str(pipe)))
        told = f"tls.{field}: {pipe} is not a regular file, but a named pipe"
        assert_mistake(command("agent", "-c", config), told)

    def test_long_terms_are_not_compared(self, sites):
        port, certificates = door(sites)
        long = wire.encode_terms({f"x{i}": i for i in range(60_000)})
        assert 900_000 < len(long) < wire.MAX_BYTES
        credentials = grpc.ssl_channel_credentials(certificates.ca, *certificates.make(dns("west")))
        options = (("grpc.ssl_target_name_override", "north"),)
        with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
            compare = channel.unary_unary(f"/{SERVICE}/Compare")
            with pytest.raises(grpc.RpcError, match="terms must have at most") as error:
                compare(long, timeout=10.0)
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            twice = wire.pb.Terms(wire=wire.WIRE, terms='{"name": "a", "name": "b"}').SerializeToString()
            with pytest.raises(grpc.RpcError, match="the key 'name' appears twice"):
                compare(twice, timeout=10.0)
            assert wire.decode_terms(compare(wire.encode_terms(terms(3).terms()), timeout=10.0))["max_agents"] == 3


def test_many_differences_are_counted_not_shown():
    differences = terms().difference({f"x{i}": i for i in range(1000)})
    assert len(differences) == 21
    assert differences[-1].startswith("and ")


@pytest.mark.slow
def test_nothing_is_left_in_the_temporary_folder(sites):
    """Not even when it is killed: gRPC's sockets have no name."""
    temporary = Path(tempfile.gettempdir())
    before = set(temporary.glob("fedbandit-*"))
    restarted(sites)
    go_on(sites)
    wait_until(lambda: set(temporary.glob("fedbandit-*")) <= before)  # others' come and go in between


# ---------------------------------------------------------------- one door in this process


class Hall:
    """The door of north in this process, which repeats what it is told."""

    def __init__(self, folder, *admitted):
        init(folder, "test CA", 10, datetime.now(UTC))
        self.certificates, self.admitted, self.told = Certificates(folder), set(admitted), []
        self._open = []

    def tls(self, name):
        key, certificate = self.certificates.make(dns(name))
        return TlsFiles(certificate, key, self.certificates.ca)

    async def __aenter__(self):
        async def repeat(call):
            return f"{call.caller}: {call.data.decode()}".encode()

        self.server = GossipServer(
            Address("127.0.0.1", 0),
            self.tls("north"),
            {"Exchange": repeat},
            lambda name: name in self.admitted,
            lambda *told: self.told.append(told),
        )
        await self.server.start()
        return self

    async def __aexit__(self, *_):
        for writer in self._open:
            writer.close()
        await asyncio.sleep(0.05)
        await self.server.stop(0.0)

    async def call(self, caller, means="north"):
        dialler = Dialler(means, Address("127.0.0.1", self.server.port), self.tls(caller))
        try:
            return await dialler.call("Exchange", b"hello", 10.0)
        finally:
            await dialler.close()

    async def connect(self, caller=None):
        """A connection with a certificate, whose server has spoken; without one, a silent one."""
        secure = {} if caller is None else {"ssl": client_context(self.tls(caller)), "server_hostname": "north"}
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port, **secure)
        self._open.append(writer)
        assert caller is None or await reader.read(9)
        return reader, writer


async def is_closed(connection):
    """Whether the other end closes it, sooner or later."""
    try:
        async with asyncio.timeout(5.0):
            while await connection[0].read(1000):
                pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_only_neighbours_get_in(tmp_path):
    async def scenario():
        async with Hall(tmp_path, "east", "east\0.evil", "*.east") as hall:
            assert await hall.call("east") == b"east: hello"
            for name, told, reason in (
                ("south", "south is no neighbour of north", "not a neighbour"),
                ("east\0.evil", "must be a DNS name", "certificate"),
                ("*.east", "must be a DNS name", "certificate"),
            ):
                with pytest.raises(TurnedAway, match=told):
                    await hall.call(name)
                assert hall.told[-1][0] == reason
            assert r"'east\x00.evil'" in hall.told[1][1]
            assert len(hall.told) == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("caller", ["east", "south"])
def test_a_dialler_that_is_closed_has_no_connection_left(tmp_path, caller, monkeypatch):
    """Not one that ends later, when gRPC's threads have their turn: the loop may have ended before that."""
    ends = []

    def kept(kind):
        def make(*given):
            ends.append(kind(*given))
            return ends[-1]

        return make

    async def scenario():
        async with Hall(tmp_path, "east") as hall:
            with monkeypatch.context() as patched:
                patched.setattr(tunnel, "TlsEnd", kept(tunnel.TlsEnd))
                patched.setattr(tunnel, "PlainEnd", kept(tunnel.PlainEnd))
                with suppress(TurnedAway):
                    await hall.call(caller)
            assert {type(end).__name__ for end in ends} == {"TlsEnd", "PlainEnd"}
            assert [end.transport.get_extra_info("socket").fileno() for end in ends] == [-1] * len(ends)

    asyncio.run(scenario())


@pytest.mark.parametrize("means", ["east", "nort", "north.evil"])
def test_only_the_neighbour_that_we_mean_is_called(tmp_path, means, monkeypatch):
    """Whoever answers, even if it does not mind by what name it is called."""
    monkeypatch.setattr("fedbandit.agent.gossip.tls._MEANT_FOR_ANOTHER", None)

    async def scenario():
        async with Hall(tmp_path, "west") as hall:
            with pytest.raises(NeighbourUnreachable, match=f"does not bear the name {means}, but north"):
                await hall.call("west", means)
            assert await hall.call("west") == b"west: hello"

    asyncio.run(scenario())


def test_the_oldest_silent_one_makes_room(tmp_path, monkeypatch):
    """One that speaks stays, however many silent ones come after it."""
    monkeypatch.setattr(tunnel, "PER_ADDRESS", 4)

    async def scenario():
        async with Hall(tmp_path) as hall:
            speaker = await hall.connect()
            speaker[1].write(client_hello()[:20])
            await asyncio.sleep(0.1)
            silent = [await hall.connect() for _ in range(20)]
            gone = await asyncio.gather(*(asyncio.wait_for(reader.read(), 2.0) for reader, _ in silent[:17]))
            assert gone == [b""] * 17
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(speaker[0].read(1), 0.2)
            assert [reason for reason, _ in hall.told] == ["unfinished handshake"] * 17

    asyncio.run(scenario())


def test_a_handshake_has_a_deadline(tmp_path, monkeypatch):
    monkeypatch.setattr(tunnel, "DEADLINE", 0.2)

    async def scenario():
        async with Hall(tmp_path) as hall:
            silent, slow = await hall.connect(), await hall.connect()
            slow[1].write(client_hello())
            assert await is_closed(silent)
            assert await is_closed(slow)
            assert [reason for reason, _ in hall.told] == ["unfinished handshake"] * 2

    asyncio.run(scenario())


def test_a_further_connection_of_a_neighbour_replaces_its_oldest(tmp_path):
    async def scenario():
        async with Hall(tmp_path, "east", "west") as hall:
            other = await hall.connect("west")
            first, *rest = [await hall.connect("east") for _ in range(CONNECTIONS + 1)]
            assert await is_closed(first)
            assert not other[0].at_eof()
            assert not any(reader.at_eof() for reader, _ in rest)
            assert [reason for reason, _ in hall.told] == ["connections"]

    asyncio.run(scenario())


def test_one_who_is_no_neighbour_any_more_is_disconnected(tmp_path):
    async def scenario():
        async with Hall(tmp_path, "east", "west") as hall:
            east, west = await hall.connect("east"), await hall.connect("west")
            hall.admitted.remove("east")
            await hall.server.drop_strangers()
            assert await is_closed(east)
            assert not west[0].at_eof()
            assert await hall.call("west") == b"west: hello"

    asyncio.run(scenario())


def test_a_connection_ends_with_its_certificate(tmp_path):
    async def scenario():
        async with Hall(tmp_path, "east") as hall:
            key, certificate = hall.certificates.make(dns("east"), ends=timedelta(seconds=3))
            hall.tls = lambda _: TlsFiles(certificate, key, hall.certificates.ca)
            assert await is_closed(await hall.connect("east"))
            assert hall.told == []

    asyncio.run(scenario())


def test_addresses_of_one_network_are_one_stranger():
    group = tunnel._group_of
    assert group("10.0.0.1") != group("10.0.0.2")
    assert group("2001:db8::1") == group("2001:db8::ffff:2") != group("2001:db8:0:1::1")
    assert group("::ffff:10.0.0.1") == "10.0.0.1"
    assert group("fe80::1%eth0") == group("fe80::2")
