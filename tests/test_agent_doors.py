"""The doors stay open: crowds at a site's listener, while its neighbours come.

A neighbour gets in with its first attempt, whatever strangers do at its own address: it shows a word in its first
message that only members know. Where a bound on time is asserted, it is the one that is promised.
"""

import asyncio
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from bad_wire import BadWire
from fedbandit.agent.gossip import links as of_links
from fedbandit.agent.gossip import listener as doors
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import Neighbour
from links_network import Party, run, terms, until
from strangers import Crowd, client_hello, dns
from test_agent_strangers import Door


def descriptors():
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


class TestCrowds:
    @pytest.mark.parametrize(
        ("count", "said", "at_once"),
        [
            (400, b"", False),
            (100, client_hello(), False),
            (300, client_hello("north"), True),
            (300, b"GET / HTTP/1.1\r\n", True),
        ],
        ids=["silent", "byte by byte", "handshakes that stop", "not TLS"],
    )
    def test_a_crowd_does_not_keep_a_neighbour_out(self, tmp_path, count, said, at_once):
        """From the neighbour's own address, opened again when closed; the neighbour gets in at its first attempt."""

        async def scenario():
            async with Door(tmp_path) as door:
                with Crowd(door.port, count, said, at_once) as crowd:
                    await until(lambda: crowd.opened > 1.2 * count, 20.0)
                    for _ in range(3):
                        await door.lets_in("east")
                        await asyncio.sleep(0.3)
                await until(lambda: door.counts("unfinished handshake") + door.counts("not TLS") > 50)

        run(scenario())

    def test_a_slow_handshake_of_a_neighbour_is_not_pushed_out(self, tmp_path):
        """A fifth of a second for each way, in a crowd of handshakes that stop, from the same address."""

        async def scenario():
            async with Door(tmp_path) as door:
                with BadWire(door.port) as wire, Crowd(door.port, 300, client_hello("north"), True) as crowd:
                    wire.become("late")
                    await until(lambda: crowd.opened > 400, 20.0)
                    east = Party("east", door.certificates.make(dns("east")))
                    try:
                        await east.links.use([Neighbour("north", Address("127.0.0.1", wire.port))])
                        await until(lambda: east.status("north").linked)
                        assert east.status("north").failures == 0
                    finally:
                        await east.links.close()

        run(scenario())

    def test_a_crowd_that_knows_the_word_is_bounded_too(self, tmp_path):
        """A member, or whoever has read its line: handshakes begin at a bounded rate, and the oldest makes room."""

        async def scenario():
            async with Door(tmp_path) as door:
                word = of_links.word(door.north.federation.digest(), "north")
                with Crowd(door.port, 300, client_hello(f"m-{word}.north"), True):
                    members = door.north.listener._members
                    await until(lambda: len(members) == doors.MEMBERS)
                    for _ in range(50):
                        assert len(members) <= doors.MEMBERS
                        await asyncio.sleep(0.01)
                await until(lambda: not members)
                await door.lets_in("east")

        run(scenario())

    def test_many_who_only_connect_leave_descriptors_for_the_application(self, tmp_path):
        async def scenario():
            async with Door(tmp_path) as door:
                before = descriptors()
                with ExitStack() as connections:

                    def connect():
                        for _ in range(600):
                            connections.enter_context(socket.create_connection(("127.0.0.1", door.port), timeout=10.0))

                    await asyncio.to_thread(connect)
                    await asyncio.sleep(1.0)
                    assert descriptors() < before + 600 + 300
                    await door.lets_in("west")
                await until(lambda: descriptors() < before + 20)

        run(scenario())

    def test_a_silent_one_has_a_tenth_of_a_second_however_large_the_crowd_is(self, tmp_path, monkeypatch):
        monkeypatch.setattr(doors, "PER_ADDRESS", 4)
        ages, real = [], doors.Listener._refuse

        def refuse(self, waiting, *told):
            ages.append(asyncio.get_running_loop().time() - waiting.since)
            real(self, waiting, *told)

        monkeypatch.setattr(doors.Listener, "_refuse", refuse)

        async def scenario():
            async with Door(tmp_path) as door:
                crowd = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(30)]
                await until(lambda: door.counts("unfinished handshake") == 26)
                gone = await asyncio.gather(*(asyncio.wait_for(reader.read(), 10.0) for reader, _ in crowd[:26]))
                assert gone == [b""] * 26, "the oldest"
                assert not any(reader.at_eof() for reader, _ in crowd[26:])
                assert min(ages) >= doors.GUARANTEED
                for _, writer in crowd:
                    writer.close()

        run(scenario())

    def test_a_handshake_has_a_deadline(self, tmp_path, monkeypatch):
        monkeypatch.setattr(doors, "DEADLINE", 0.3)

        async def scenario():
            async with Door(tmp_path) as door:
                silent = await asyncio.open_connection("127.0.0.1", door.port)
                slow = await asyncio.open_connection("127.0.0.1", door.port)
                slow[1].write(client_hello())
                async with asyncio.timeout(10.0):
                    assert await silent[0].read() == b""
                    await slow[0].read()
                assert door.counts("unfinished handshake") == 2
                for _, writer in (silent, slow):
                    writer.close()

        run(scenario())

    def test_one_with_a_certificate_that_then_says_nothing_is_closed(self, tmp_path, monkeypatch):
        monkeypatch.setattr(of_links, "DEAD_AFTER", 0.5)

        async def scenario():
            async with Door(tmp_path) as door:
                tls = door.certificates.make(dns("east"))
                (tmp_path / "pair.pem").write_bytes(tls.certificate + tls.key)
                context = ssl.create_default_context(cadata=tls.ca.decode())
                context.check_hostname = False
                context.load_cert_chain(tmp_path / "pair.pem")
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", door.port, ssl=context, server_hostname="north"
                )
                async with asyncio.timeout(doors.DEADLINE + 10.0):
                    assert await reader.read() == b""
                writer.close()
                assert door.counts("unfinished handshake") == 1

        run(scenario())


def test_addresses_of_one_network_are_one_stranger():
    group = doors._group_of
    assert group("10.0.0.1") != group("10.0.0.2")
    assert group("2001:db8::1") == group("2001:db8::ffff:2") != group("2001:db8:0:1::1")
    assert group("::ffff:10.0.0.1") == "10.0.0.1"
    assert group("fe80::1%eth0") == group("fe80::2")


def test_many_differences_are_counted_not_shown():
    differences = terms().difference({f"x{i}": i for i in range(1000)})
    assert len(differences) == 21
    assert differences[-1].startswith("and ")


def test_nothing_of_ours_is_left_open(tmp_path):
    async def scenario():
        before = descriptors()
        for count in range(3):
            async with Door(tmp_path / str(count)) as door:
                await door.lets_in("east")
        await until(lambda: descriptors() <= before + 2)

    run(scenario())
